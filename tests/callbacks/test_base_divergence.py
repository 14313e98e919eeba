"""How far a model is from its base, against scipy text by text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from attnlight.callbacks import BaseDivergence
from attnlight.errors import InputError
from attnlight.records import read_metadata, read_record
from attnlight.reference import read_base
from attnlight.tasks import AttentionClassifier, SeedVariant
from tests.bases import Planted, classifier, save_base, trainer
from tests.outside import OutsideTask, Texts, loader


@pytest.fixture(scope="module")
def corpus() -> Planted:
    return Planted()


def other(corpus: Planted) -> AttentionClassifier:
    torch.manual_seed(5)
    sharp: dict[str, Any] = {"encoder": "none", "attention": "dot", "embedding_scale": 3.0}
    return classifier(corpus.spec, embedding_size=6, **sharp)


def test_record_equals_a_loop_with_scipy(tmp_path: Path, corpus: Planted) -> None:
    base = save_base(tmp_path / "base.ckpt", corpus)
    task, frozen = other(corpus), read_base(base)
    trainer(tmp_path, BaseDivergence(base=str(base))).test(task, corpus, verbose=False)
    path = tmp_path / "records/test/base_divergence.parquet"
    rows = read_record(path).columns
    assert read_metadata(path)["base_fingerprint"] == frozen.identity.fingerprint
    assert read_metadata(path)["base"] == str(base)
    texts = corpus.dataset("test")
    assert rows["index"].tolist() == texts.index.tolist()
    for row in range(len(texts)):
        with torch.no_grad():
            ours, theirs = task.model.eval()(texts[[row]]), frozen.model(texts[[row]])
        one, two = ours.weights[0, 0].double(), theirs.weights[0, 0].double()
        assert rows["attention_js"][row] == pytest.approx(jensenshannon(one, two) ** 2, abs=1e-6)
        far = max(jensenshannon(item, two) ** 2 for item in np.eye(len(two)))
        share = rows["attention_js_share"][row]
        assert share == pytest.approx(rows["attention_js"][row] / far, abs=1e-5)
        moved = (ours.probabilities - theirs.probabilities).abs().sum() / 2
        assert rows["prediction_tvd"][row] == pytest.approx(float(moved), abs=1e-6)
        assert rows["base_max_attention"][row] == pytest.approx(float(two.max()), abs=1e-6)
        assert rows["base_prediction"][row] == int(theirs.logits.argmax())
    assert rows["attention_js"].mean() > 0.05
    assert list((tmp_path / "figures/test").glob("base_divergence.*"))


def test_a_base_is_no_distance_from_itself(tmp_path: Path, corpus: Planted) -> None:
    base = save_base(tmp_path / "base.ckpt", corpus)
    task = AttentionClassifier.load_from_checkpoint(base)
    started = trainer(tmp_path, BaseDivergence(base=str(base), figures=False))
    started.test(task, corpus, verbose=False)
    rows = read_record(tmp_path / "records/test/base_divergence.parquet").columns
    for name in BaseDivergence.measures:
        np.testing.assert_allclose(rows[name], 0, atol=1e-6)


def test_a_variant_brings_its_base_and_drifts(tmp_path: Path, corpus: Planted) -> None:
    base = save_base(tmp_path / "base.ckpt", corpus)
    task = SeedVariant(corpus.spec, str(base), optimizer={"learning_rate": 0.03})
    started = trainer(tmp_path, BaseDivergence(every_n_epochs=2), max_epochs=4)
    started.fit(task, datamodule=corpus)
    records = sorted((tmp_path / "records/val").iterdir())
    assert [path.stem for path in records] == ["base_divergence-1", "base_divergence-3"]
    means = [read_record(path).columns["attention_js"].mean() for path in records]
    assert means[0] != means[1]
    logged = started.callback_metrics["val/base_divergence/attention_js"]
    assert float(logged) == pytest.approx(means[1], rel=1e-5)


class TestRefusal:
    def refused(
        self, folder: Path, test: BaseDivergence, task: Any, corpus: Any, sentence: str
    ) -> None:
        with pytest.raises(InputError, match=sentence):
            trainer(folder, test).test(task, corpus, verbose=False)

    def test_no_base(self, tmp_path: Path, corpus: Planted) -> None:
        self.refused(
            tmp_path, BaseDivergence(), other(corpus), corpus, "give its checkpoint as `base`"
        )

    def test_missing_file(self, tmp_path: Path, corpus: Planted) -> None:
        test = BaseDivergence(base=str(tmp_path / "none.ckpt"))
        self.refused(tmp_path, test, other(corpus), corpus, "there is no checkpoint")

    def test_another_corpus(self, tmp_path: Path, corpus: Planted) -> None:
        base = save_base(tmp_path / "base.ckpt", Planted(corpus_seed=3))
        test = BaseDivergence(base=str(base))
        self.refused(tmp_path, test, other(corpus), corpus, "another corpus")

    def test_no_corpus(self, tmp_path: Path, corpus: Planted) -> None:
        base = save_base(tmp_path / "base.ckpt", corpus)
        test = BaseDivergence(base=str(base))
        self.refused(tmp_path, test, OutsideTask(), loader(Texts()), "needs its corpus")

    def test_another_number_of_heads(self, tmp_path: Path, corpus: Planted) -> None:
        base = save_base(tmp_path / "base.ckpt", corpus)
        task = OutsideTask()
        task.model.table = torch.nn.Embedding(corpus.vocab_size, 8)
        test = BaseDivergence(base=str(base))
        self.refused(tmp_path, test, task, corpus, "1 heads and 2 classes, the model 2 and 3")
