import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch

from attnlight.datamodules import PlantedEvidence
from attnlight.models import FlatClassifier
from tests.benchmarks import card, suite
from tests.benchmarks.__main__ import main
from tests.benchmarks.scene import random_texts
from tests.benchmarks.suite import GROUPS, PAGE, groups_of, read_results, row, with_tables
from tests.benchmarks.training import tagging_epoch, translation_epoch
from tests.tasks import tagged

THREE = [0.5, 0.25, 0.75]
RESULT = {
    "values": {"help_cost": [0.5, 0.25, 0.75]},
    "details": {"ours": "1.00 s"},
    "circumstances": ["2000-01-01, abacus, 2 cores", "Python 3"],
}


class TestCommittedPage:
    page = PAGE.read_text(encoding="utf-8")

    def test_shows_the_stored_results(self) -> None:
        assert self.page == with_tables(self.page, read_results())

    def test_lists_every_benchmark_and_group(self) -> None:
        for device, results in read_results().items():
            measured = {name: set(result["values"]) for name, result in results.items()}
            groups = groups_of(device)
            assert measured == {name: set(group["benchmarks"]) for name, group in groups.items()}
        assert all(f"* **{group}**: " in self.page for group in GROUPS)

    def test_names_no_place_of_the_machine_that_measured(self) -> None:
        assert "/work" not in json.dumps(read_results()) + self.page


@pytest.mark.parametrize(
    ("bounds", "end", "values"),
    [
        ({"at_most": 100, "unit": "MiB"}, "| at most 100 MiB | 61.3 MiB | met |", [61.26]),
        ({"at_most": 0.75}, "at most 0.75 | 0.500 (0.250 to 0.750 over 3) | met |", THREE),
        ({"at_most": 0.24}, "| **missed** |", THREE),
        ({"at_most": 0.5}, "| met by the median; the repetitions disagree |", THREE),
        ({"at_most": 0.49}, "| **missed** by the median; the repetitions disagree |", THREE),
        ({"at_least": 0.25, "unit": "times"}, "0.50 times (0.25 to 0.75 over 3) | met |", THREE),
        ({"at_least": 0.76}, "at least 0.76 | 0.500 (0.250 to 0.750 over 3) | **missed** |", THREE),
    ],
)
def test_a_row_says_whether_the_bound_is_met(
    bounds: dict[str, Any], end: str, values: list[float]
) -> None:
    assert row({"asks": "Ours", **bounds}, values).endswith(end)


@pytest.mark.slow
def test_a_group_is_kept_beside_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr("tests.benchmarks.processes.startup.__defaults__", (1,))
    suite.RESULTS.write_text(json.dumps({"cpu": {"memory": {}, "startup": RESULT}}))
    main(["--here", "startup"])
    found = read_results()["cpu"]
    assert found["memory"] == {}
    assert len(found["startup"]["values"]["help_cost"]) == 1
    machine, libraries = found["startup"]["circumstances"]
    assert " cores, Linux, 1 thread, load averages before: " in machine
    assert "torch" in libraries


TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY |= {"intermediate_size": 24, "vocab_size": 50}


def small(group: str, folder: Path) -> dict[str, Any]:
    """Arguments with which a group takes seconds."""
    planted = PlantedEvidence(train_size=70, validation_size=8, test_size=19, eval_batch_size=3)
    chunks = tagged.corpus(tagged.written(folder, 24, 6), cache_dir=str(folder / "cache"))
    chunking = [*tagged.arguments(chunks), f"--data.cache_dir={folder}/cache"]
    chunking += [f"--model.net.{name}={value}" for name, value in tagged.SMALL.items()]
    tagger = {"corpus": chunks, "epochs": 1} | tagged.SMALL
    sizes: dict[str, Any] = {"repetitions": 2, "batches": 1, "texts": 3, "tokens": 6}
    epoch = partial(tagging_epoch, 1, *chunking)
    symbols = [f"--data.{split}_size=20" for split in ("train", "validation", "test")]
    symbols += ["--model.net.hidden_size=4", f"--data.cache_dir={folder}/cache"]
    explained = {"corpora": (planted, planted), "epochs": 1, "batches": 1, "texts": 3}
    scenes = {name: (name, partial(card.bert, 4, 5)) for name in card.SCENES}
    sampled = FlatClassifier(90, 2, encoder="lstm").eval(), random_texts(0, 3, 24, 90)
    every: dict[str, dict[str, Any]] = {
        "attributions": {"repetitions": 2, "lengths": (3, 5)} | explained,
        "permutation": {"repetitions": 2, "corpus": planted},
        "joined_batches": {"repetitions": 2, "batches": 2, "texts": 1, "tokens": (200, 20)},
        "adversary": sizes | {"steps": 20},
        "several_classes": {"repetitions": 2, "rows": 2, "most": (2, 9, 5)},
        "opaque_readouts": {"rows": 1, "cells": ((4, 2, 4), (5, 3, 4)), "texts": 1},
        "leave_one_out": {"repetitions": 2, "corpus": planted, "texts": 3, "tokens": 5},
        "card": {"scenes": scenes},
        "peers": {
            "repetitions": 2,
            "texts": 2,
            "tokens": 20,
            "steps": 3,
            "shape": card.BERT,
            "ferret": find_spec("ferret") is not None,
        },
        "curves": {"lengths": (2, 4), "classes": (2, 3), "texts": (9, 18), "size": 2},
        "positions": {"scene": sampled, "samples": 2, "count": 20, "cost_of": 1},
        "encoders": {"repetitions": 2, "texts": 2, "tokens": 3, "units": 4},
        "card_tolerances": {"scenes": scenes, "settings": (card.CHOSEN,)},
        "variants": {"repetitions": 2, "corpus": planted},
        "tagging": tagger | {"repetitions": 1, "sentences": 1, "steps": 3, "epoch": epoch},
        "huggingface": {"repetitions": 2, "shape": TINY, "sizes": ((2, 6), (2, 9), (3, 4), (3, 5))},
        "tagging_cheap": tagger,
        "translation": {"repetitions": 2, "texts": 2, "tokens": 3, "draws": 2, "classes": 9}
        | {"epoch": partial(translation_epoch, 1, *symbols)},
        "merging": {"rows": (3, 40_000)},
        "csv_memory": {"sizes": (200, 400)},
    }
    return every.get(group, sizes)


SLOW = {"merging", "csv_memory"}  # several processes each
SLOW |= {"tagging", "tagging_cheap", "attributions", "opaque_readouts", "variants"}
SLOW |= {"joined_batches"}  # two threads, which wait for each other where cores are taken
MINUTES = {"training", "memory", "startup", "translation_memory"}  # tested by their parts


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=[pytest.mark.slow] * (group in SLOW))
        for group in sorted(groups_of("cpu").keys() - MINUTES)
    ],
)
def test_a_group_measures_its_benchmarks(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlight.figures.style.figure_bytes", lambda *_: b"")  # most of the time
    if group in ("huggingface", "opaque_readouts", "peers"):
        pytest.importorskip("transformers")
    monkeypatch.setattr("tests.benchmarks.opaque_readouts.STRONG", 8)
    function = resolve_name(f"tests.benchmarks.{GROUPS[group]['run']}")
    threads = torch.get_num_threads()
    found = function(**small(group, tmp_path))
    assert torch.get_num_threads() == threads
    elsewhere = set() if find_spec("ferret") else {"peers_ferret"}
    assert found.values.keys() == GROUPS[group]["benchmarks"].keys() - elsewhere
    assert all(found.values.values())
