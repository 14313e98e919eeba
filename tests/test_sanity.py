"""`attnlight sanity`: two runs, their record, the printed table and the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from attnlight.__main__ import main
from attnlight.cli.shorthand import expand
from attnlight.figures.tables import estimate
from attnlight.records import read_record
from attnlight.statistics.sanity import sanity_verdicts
from tests.commands import CPU, QUIET, Printed, Refused, attnlight_here

RECORD = "records/test/sanity.parquet"
SMALL = ["--data.train_size=64", "--data.validation_size=16", "--data.test_size=20"]
SMALL += ["--model.net.embedding_size=8", "--model.net.hidden_size=6", "--trainer.max_epochs=2"]
METHODS = "attention, lrp, {name: occlusion, replacement: delete, label: deletion}, random"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds of one configuration."""
    folder = tmp_path_factory.mktemp("sanity")
    for seed in range(2):
        options = [f"--run=seed{seed}", f"--seed_everything={seed}", "--trainer.logger=false"]
        attnlight_here("fit", "planted_bilstm", *options, *SMALL, *CPU, *QUIET, cwd=folder)
    return [folder / f"checkpoints/planted_bilstm/seed{seed}" for seed in range(2)]


def test_two_runs(runs: list[Path], printed: Printed) -> None:
    command = ["sanity", *map(str, runs), "--methods", METHODS, *CPU, *QUIET]
    said = printed(*command, "--overwrite")
    record = read_record(runs[0] / RECORD)
    lines = said[said.index("Do explanations") :].splitlines()
    assert max(len(line) for line in lines if "checkpoints/" not in line) <= 80
    rows = [line for line in lines if line.rstrip().endswith(("passes", "fails", "undecidable"))]
    for line, (label, found) in zip(rows, sanity_verdicts(record).items(), strict=True):
        assert line.startswith({"lrp": "LRP"}.get(label, label))
        assert line.split()[-1] == found.verdict
        cells = f"{estimate(found.randomised)} {estimate(found.seeds)} {found.verdict}"
        assert " ".join(line.split()).endswith(cells)
    assert rows[-1].split()[0] == "random"
    assert rows[-1].split()[-1] == "fails"
    assert "planted_bilstm/seed1" in " ".join(said.split())
    assert "signed_4" not in said  # no means of the record beside it
    metadata = record.metadata
    assert metadata["parts"] == ["decoder", "attention", "encoder", "embedding"]
    assert metadata["against"] == "planted_bilstm/seed1"
    assert list(metadata["methods"]) == ["attention", "lrp", "deletion", "random"]
    assert metadata["methods"]["deletion"]["replacement"] == "delete"
    for name, expected in {"checkpoint": "best.ckpt", "rows": 20, "partial": False}.items():
        assert metadata[name] == expected
    np.testing.assert_allclose(record.columns["signed_1_attention"], 1, atol=1e-12)
    for column in ("signed_4_random", "sizes_seeds_random", "signed_random_random"):
        np.testing.assert_allclose(record.columns[column], 1, atol=1e-12)

    assert main(["report", str(runs[0])]) == 0
    page = (runs[0] / "report/index.html").read_text(encoding="utf-8")
    assert "Do explanations depend on what the model has learned?" in page
    assert "Correlation with the trained model&#39;s explanations, scores of sizes" in page
    assert (runs[0] / "figures/test/sanity.svg").is_file()


def test_a_record_of_other_settings_stays(
    runs: list[Path], printed: Printed, refused: Refused
) -> None:
    command = ["sanity", str(runs[1]), "--methods=gradient", "--max_instances", "6", *CPU, *QUIET]
    said = " ".join(printed(*command).split())
    assert "undecidable" in said
    assert "`attnlight sanity RUN RUN2 --overwrite` decides" in said
    first = read_record(runs[1] / RECORD)
    assert (len(first.columns["index"]), first.metadata["partial"]) == (6, True)
    assert main(command) == 0  # the same settings again
    for changed in ("--methods=lrp", str(runs[0])):
        names = ("was measured with other settings", "--overwrite replaces it")
        refused(*command, changed, names=names)
    again = read_record(runs[1] / RECORD)
    for name, values in first.columns.items():
        np.testing.assert_array_equal(again.columns[name], values)
    assert main([*command, "--seed=1", "--overwrite"]) == 0
    other = read_record(runs[1] / RECORD)
    assert other.metadata["settings"]["seed"] == 1
    assert other.columns["index"].tolist() != first.columns["index"].tolist()


def test_a_run_without_a_checkpoint_is_refused(runs: list[Path], refused: Refused) -> None:
    bare = runs[0].with_name("bare")
    bare.mkdir()
    (bare / "fit.yaml").write_text((runs[0] / "fit.yaml").read_text())
    for words in ([str(bare)], [str(runs[1]), str(bare)]):
        told = f"there is no checkpoint {bare}/best.ckpt"
        refused("sanity", *words, "--overwrite", *CPU, names=[told])


def test_it_is_a_test_with_one_callback(runs: list[Path]) -> None:
    first, second = map(str, runs)
    options = ["--methods", "gradient", "--max_instances=null", "--trainer.accelerator", "cpu"]
    test, *given, callback = expand(["sanity", first, *options, second, "--seed=2"])
    of_run = [f"--config={first}/fit.yaml", f"--ckpt_path={first}/best.ckpt"]
    assert [test, *given] == ["test", *of_run, "--trainer.accelerator=cpu"]
    name, _, value = callback.partition("=")
    assert name == "--trainer.callbacks+"
    init_args = {"methods": ["gradient"], "max_instances": None, "seed": 2, "against": second}
    sanity = {"class_path": "attnlight.callbacks.Sanity", "init_args": init_args}
    assert json.loads(value) == [sanity]
