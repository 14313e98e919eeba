"""Pairs by names, files and Python: training, checkpoints, tests, variants, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from attnlight.__main__ import main
from attnlight.errors import InputError
from attnlight.models import PairClassifier
from attnlight.probing.leave_one_out import leave_one_out
from attnlight.records import read_record
from attnlight.reference import read_base
from attnlight.tasks import (
    AdversarialVariant,
    AttentionClassifier,
    AttentionTask,
    ChunkTagger,
    GuidedVariant,
    UniformVariant,
)
from tests.bases import Planted, batch_of, save_base, spec
from tests.commands import CPU, QUIET, without_figures
from tests.pairs import PlantedPairs, pair_task, save_pairs

DECODERS = ("tanh", "affine")
ATTACHED = ("predictions", "importance_correlation")
PLACE = ["--root=runs", "--experiment=e"]
SHORT = ["--trainer.max_epochs=2", "--trainer.logger=false", *CPU, *QUIET]
DATA = "--data=tests.pairs.PlantedPairs"


@pytest.mark.parametrize("decoder", DECODERS)
def test_fit_and_test_by_names(decoder: str, here: Path) -> None:
    sizes = ["--model.net.hidden_size=8", "--model.net.embedding_size=8"]
    changed = [f"--model.net.decoder={decoder}", *sizes]
    model = "--model=pair_cnn_scaled_dot"
    assert main(["fit", model, DATA, *changed, "--run=base", *PLACE, *SHORT]) == 0
    options = yaml.safe_load(Path("runs/e/base/fit.yaml").read_text())["model"]["init_args"]
    assert (options["problem"], options["net"]["encoder"]) == ("pairs", "cnn")
    assert options["net"]["decoder"] == decoder
    assert (
        main(["test", "runs/e/base", *without_figures("tests.yaml", *ATTACHED), *CPU, *QUIET]) == 0
    )

    task = AttentionTask.load_from_checkpoint("runs/e/base/best.ckpt").eval()
    assert isinstance(task.model, PairClassifier)
    corpus = PlantedPairs()
    batch = corpus.dataset("test")[list(range(23))]
    with torch.no_grad():
        output = task.model(batch)
        scores = leave_one_out(task.model, batch, output)
    columns = read_record(Path("runs/e/base/records/test/predictions.parquet")).columns
    assert columns["index"].tolist() == batch.index.tolist()
    assert columns["prediction"].tolist() == output.logits.argmax(-1).tolist()
    allowed = batch.allowed_classes
    assert allowed is not None
    assert (output.probabilities[~allowed] == 0).all()
    assert allowed[torch.arange(23), output.logits.argmax(-1)].all()
    assert scores.isfinite().all()
    single = (allowed.sum(-1) == 1).numpy()
    assert single.sum() == 5
    assert (output.probabilities[single].amax(-1) == 1).all()
    tau = read_record(Path("runs/e/base/records/test/importance_correlation.parquet")).columns
    for name in ("tau_attention_loo", "tau_attention_input_gradient"):  # undefined: all are 0
        assert np.isnan(tau[name]).tolist() == single.tolist()


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_checkpoint_gives_the_same_output(decoder: str, tmp_path: Path) -> None:
    corpus = PlantedPairs()
    path = save_pairs(tmp_path / "a.ckpt", corpus, decoder=decoder, share=True)
    expected = pair_task(corpus.spec, decoder=decoder, share=True).eval()
    batch = batch_of(corpus)
    with torch.no_grad():
        logits = expected.model(batch).logits
        loaded = AttentionTask.load_from_checkpoint(path).eval()
        assert torch.equal(loaded.model(batch).logits, logits)
        assert torch.equal(read_base(path).model(batch).logits, logits)
        rows = [n for n in range(len(batch)) if batch.index[n] % 4 == 3]
        words = {number: word for word, number in loaded.tokenizer.get_vocab().items()}
        texts, queries = (
            [" ".join(words[n] for n in ids[row].tolist() if n) for row in rows]
            for ids in (batch.tokens, batch.query)
        )
        names = [
            [
                name
                for name, allowed in zip(corpus.classes, batch.allowed_classes[row], strict=True)
                if allowed
            ]
            for row in rows
        ]
        read = loaded.read(texts, queries=queries, candidates=names)
    torch.testing.assert_close(read.logits, logits[rows])


class TestMistakes:
    def test_a_task_of_the_other_kind(self) -> None:
        queries = spec(40, ["O", "B-NP"], query=True)
        for task in (AttentionClassifier, ChunkTagger):
            with pytest.raises(InputError, match=r"is for single texts, but .* has pairs of a"):
                task(queries)
        with pytest.raises(InputError, match=r"is for pairs of a .*, but .* has single texts"):
            pair_task(spec(40, 2))

    def test_variants_of_another_kind_of_corpus(self, tmp_path: Path) -> None:
        pairs, texts = PlantedPairs(), Planted(num_classes=3)
        of_pairs = str(save_pairs(tmp_path / "pairs.ckpt", pairs))
        of_texts = str(save_base(tmp_path / "texts.ckpt", texts))
        with pytest.raises(InputError, match=r"is for pairs of a .*, but .* has single texts"):
            UniformVariant(texts.spec, of_pairs)
        with pytest.raises(InputError, match=r"is for single texts, but .* has pairs of a"):
            UniformVariant(pairs.spec, of_texts)
        with pytest.raises(InputError, match="no loss was released for pairs"):
            AdversarialVariant(pairs.spec, of_pairs, 0.1, released=True)
        with pytest.raises(InputError, match="options of a tagger"):
            GuidedVariant(pairs.spec, of_pairs, context="full")

    @pytest.mark.parametrize("pairs", [True, False])
    def test_a_checkpoint_of_the_other_kind(
        self, pairs: bool, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        save_pairs(here / "pairs.ckpt", PlantedPairs())
        save_base(here / "texts.ckpt", Planted(num_classes=3))
        if pairs:
            given = ["--model=AttentionClassifier", "--data=PlantedEvidence"]
            given += ["--data.num_classes=3", "--ckpt_path=pairs.ckpt"]
        else:
            given = ["--model=pair_cnn_scaled_dot", DATA, "--ckpt_path=texts.ckpt"]
        command = ["test", *given, *CPU, *QUIET]
        assert main(command) == 2
        message = capsys.readouterr().err.splitlines()[-1]
        assert message.startswith("attnlight: ")
        assert "single texts" in message
        assert "quer" in message
