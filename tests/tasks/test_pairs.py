"""Pairs by names, files and Python: training, checkpoints, tests, variants, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from attnlight.__main__ import main
from attnlight.models import PairClassifier
from attnlight.probing.leave_one_out import leave_one_out
from attnlight.records import read_record
from attnlight.reference import read_base
from attnlight.tasks import (
    AttentionTask,
)
from tests.bases import Planted, batch_of, save_base
from tests.commands import CPU, QUIET, without_figures
from tests.pairs import PlantedPairs, pair_task, save_pairs

DECODERS = ("tanh", "affine")
PLACE = ["--root=runs", "--experiment=e"]
SHORT = ["--trainer.max_epochs=2", "--trainer.logger=false", *CPU, *QUIET]
DATA = "--data=tests.pairs.PlantedPairs"


def test_fit_and_test_by_names(here: Path) -> None:
    sizes = ["--model.net.hidden_size=8", "--model.net.embedding_size=8"]
    changed = ["--model.net.decoder=affine", *sizes]
    model = "--model=pair_cnn_scaled_dot"
    assert main(["fit", model, DATA, *changed, "--run=base", *PLACE, *SHORT]) == 0
    options = yaml.safe_load(Path("runs/e/base/fit.yaml").read_text())["model"]["init_args"]
    assert (options["problem"], options["net"]["encoder"]) == ("pairs", "cnn")
    assert options["net"]["decoder"] == "affine"
    attached = without_figures("tests.yaml", "predictions", "importance_correlation")
    assert main(["test", "runs/e/base", *attached, *CPU, *QUIET]) == 0

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
        allowed = [batch.allowed_classes[row].nonzero().flatten().tolist() for row in rows]
        names = [[corpus.classes[number] for number in numbers] for numbers in allowed]
        read = loaded.read(texts, queries=queries, candidates=names)
    torch.testing.assert_close(read.logits, logits[rows])


@pytest.mark.parametrize(
    ("model", "data", "saved"),
    [
        ("AttentionClassifier", ["--data=PlantedEvidence", "--data.num_classes=3"], "pairs"),
        ("pair_cnn_scaled_dot", [DATA], "texts"),
    ],
)
def test_a_checkpoint_of_the_other_kind(
    model: str, data: list[str], saved: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_pairs(here / "pairs.ckpt", PlantedPairs())
    save_base(here / "texts.ckpt", Planted(num_classes=3))
    given = [f"--model={model}", *data, f"--ckpt_path={saved}.ckpt"]
    assert main(["test", *given, *CPU, *QUIET]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("attnlight: ")
    assert "single texts" in message
    assert "quer" in message
