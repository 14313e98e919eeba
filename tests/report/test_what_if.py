"""The what-if of the page: its numbers are the package's, for all texts that it has."""

import json
import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import attnlight
from attnlight import callbacks
from attnlight.api.recording import record_tests
from attnlight.batch import TextBatch
from attnlight.cli.browse import main
from attnlight.data.rows import read_rows
from attnlight.errors import InputError
from attnlight.functional import total_variation
from attnlight.models.readout import Readout, readout_of
from attnlight.reference.rows import encode_rows
from attnlight.reference.trained import TrainedModel, evaluating
from attnlight.report import what_if as module
from attnlight.report.first_text import first_text
from attnlight.report.run import Run, trained_run
from attnlight.report.what_if import texts_of_run, what_if, what_if_page
from tests.outside import Texts, TwoHeads, loader
from tests.report.test_texts import row, write
from tests.tasks import tagged

HERE = Path(__file__).parent
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(
    NODE is None and not os.environ.get("ATTNLIGHT_REQUIRE_DATA"), reason="no node on this machine"
)
RECORDED = 0.01  # the record has the package's worst case at this tolerance
EPSILONS = (0.001, RECORDED, 0.1, 0.4)


def node(*words: str | Path) -> str:
    done = subprocess.run(
        [str(NODE), *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_mathematics() -> None:
    assert "# fail 0" in node("--test", "--test-reporter=tap", HERE / "what_if_math.test.js")


class Words:
    """Texts of batches, with words."""

    def __init__(self, batches: Sequence[TextBatch]) -> None:
        self.index = np.concatenate([batch.index.numpy() for batch in batches])
        self._texts = [text[text > 0].tolist() for batch in batches for text in batch.tokens]

    def words(self, place: int) -> list[str]:
        return [f"w{token}" for token in self._texts[place]]


def answers(folder: Path, tmp_path: Path) -> dict[tuple[int, int], Any]:
    """What the page's script says of the texts of a run."""
    found = what_if({"": [texts_of_run(trained_run(folder))]})
    assert found is not None
    (tmp_path / "payload.json").write_text(found.data)
    epsilons = ",".join(map(str, EPSILONS))
    said = json.loads(node(HERE / "what_if_answers.js", tmp_path / "payload.json", epsilons))
    return {tuple(each["key"]): each for each in said}


def compare(said: dict[tuple[int, int], Any], readout: Readout) -> dict[float, list[float]]:
    """By epsilon how much more JS the page finds than a readout; what it calls exact is equal."""
    output, keys = readout.output, list(map(tuple, readout.output.rows.tolist()))
    heads, items = output.weights.shape[1], output.mask
    pattern = (1 + (items.cumsum(-1) - 1) % 3).double() * items
    other = (pattern / pattern.sum(-1, keepdim=True))[:, None].expand(-1, heads, -1)
    worst = readout.head_weights.unsqueeze(2).repeat(1, 1, len(EPSILONS), 1)
    for number, key in enumerate(keys):
        for place, each in enumerate(said[key]["worst"]):
            attention = torch.tensor(each["attention"], dtype=torch.float64).view(heads, -1)
            worst[number, :, place, items[number]] = attention
    attentions = torch.cat([torch.stack([readout.head_weights, other], dim=2), worst], dim=2)
    logits = readout.candidates(attentions)
    moved = total_variation(logits[:, 2:].softmax(-1), readout.logits.softmax(-1).unsqueeze(1))
    assert (moved <= torch.tensor(EPSILONS) + 1e-5).all()
    better: dict[float, list[float]] = {epsilon: [] for epsilon in EPSILONS}
    for place, epsilon in enumerate(EPSILONS):
        if not readout.affine and epsilon != RECORDED:
            continue  # the page knows no other attention, and each takes long
        largest = readout.worst_case(epsilon, programs=readout.affine)[1].amax(-1).tolist()
        for key, js in zip(keys, largest, strict=True):
            found = said[key]["worst"][place]
            if found["exact"]:
                assert abs(found["js"] - js) < 1e-5, key
            else:
                better[epsilon].append(found["js"] - js)
    if readout.affine:
        for key, expected in zip(keys, logits[:, :2], strict=True):
            found = said[key]["own"], said[key]["other"]
            np.testing.assert_allclose(found, expected, atol=5e-5, rtol=0)
    return better


CASES = [(1, 2, True), (2, 2, True), (1, 20, True), (2, 3, False)]


@pytest.mark.parametrize(("heads", "classes", "affine"), CASES)
def test_the_page_says_what_the_package_says(
    tmp_path: Path, heads: int, classes: int, affine: bool
) -> None:
    torch.manual_seed(0)
    model, batches = TwoHeads(affine, classes, heads).eval(), list(loader(Texts(), 23))
    with torch.no_grad():
        model.values.weight *= 4
    test = callbacks.Texts(max_instances=None, leave_one_out=False, methods=[])
    record_tests([test], model, batches, Words(batches), None, tmp_path / "e" / "r")
    (batch,) = batches
    with torch.no_grad():
        readout = readout_of(batch, model(batch), model)
        better = compare(answers(tmp_path / "e" / "r", tmp_path), readout)
    searched = [each for found in better.values() for each in found]
    if affine and classes == 2:
        assert not searched
    else:
        assert 0 < len(searched) <= len(batch) * len(EPSILONS)
        assert min(better[RECORDED]) > -1e-5


def recorded(folder: Path, rows: Sequence[dict[str, Any]], **about: Any) -> Run:
    write(folder / "records/test/texts.parquet", list(rows), **about)
    return trained_run(folder)


def test_of_more_texts_than_fit_some_are_chosen_and_the_page_says_so(tmp_path: Path) -> None:
    run = recorded(tmp_path / "e" / "r", [row(index) for index in range(40)])
    every = texts_of_run(run)
    assert every is not None
    assert every["keys"] == [(index, 0) for index in range(40)]
    some = texts_of_run(run, needed=[3, 33], room=2000)
    assert some is not None
    assert some["recorded"] == 40
    shown = [index for index, _ in some["keys"]]
    assert {3, 33} < set(shown)
    assert len(some["texts"]) == len(shown) < 20
    few = texts_of_run(run, needed=[3], room=0)
    assert few is not None
    assert few["keys"] == [(3, 0)]
    half = texts_of_run(run, room=4000)
    assert half is not None
    assert set(shown) - {3, 33} <= {index for index, _ in half["keys"]}, "more room, more texts"


def test_words_stand_as_in_their_text(tmp_path: Path) -> None:
    text = "Oh: café, “naïve”\u202e!"
    offsets = [[0, 2], [4, 8], [7, 8], [11, 16]]  # the é is two bytes
    words = {"tokens": ["Oh", "caf", "é", "naïve"], "items": [[0, 1], [1, 2], [2, 3], [3, 4]]}
    shown = texts_of_run(recorded(tmp_path / "e" / "r", [row(text=text, offsets=offsets, **words)]))
    assert shown is not None
    assert shown["texts"] == ["\t1\t\tOh\n\t2\t: \tcafé\n\t1\t, “\tnaïve\n\t0\t”\\u202e!\t"]
    sentences = row(items=[[0, 3], [3, 6]], attention=[[0.8, 0.2]])
    shown = texts_of_run(recorded(tmp_path / "e" / "s", [sentences]))
    assert shown is not None
    assert shown["texts"][0].split("\t")[-1].split("\n")[-1] == "the garden"


def test_words_of_a_translation_are_none_of_its_source(tmp_path: Path) -> None:
    rows = [row(position=place, label=label) for place, label in enumerate((2, 1, 0))]
    about = {"classes": ["[EOS]", "der", "Garten"], "model": {"problem": "translation"}}
    run = recorded(tmp_path / "e" / "r", rows, **about)
    shown = texts_of_run(run)
    assert shown is not None
    assert shown["asked"] == "translated so far"
    assert shown["queries"] == ["…", "… Garten", "… Garten der"]
    assert not any(b64decode(shown["flags"])), "no word of the source is what is predicted"
    own = [one | {"label": None} for one in rows]  # the class 0 is predicted of each
    alone = texts_of_run(recorded(tmp_path / "e" / "own", own, **about))
    assert alone is not None
    assert alone["queries"] == ["…", "… [EOS]", "… [EOS] [EOS]"]
    begins = first_text(run.texts("test", ""), about["classes"], None, ())
    assert begins is not None
    assert (begins.asked, begins.name) == ("translated so far", "text 3, position 0")
    assert not any(token.predicted for token in begins.tokens)
    tagged_too = texts_of_run(recorded(tmp_path / "e" / "s", rows, classes=about["classes"]))
    assert tagged_too is not None
    assert any(b64decode(tagged_too["flags"])), "a tagger's rows are words of the text"
    assert tagged_too["queries"] == []


def test_maps_of_layers_while_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = ["[CLS]", "caf", "é", "é", "<b>", "[SEP]"]
    source = {"text": "café <b>", "offsets": [[0, 0], [0, 3], [3, 4], [3, 4], [5, 8], [0, 0]]}
    weights = np.linspace(0, 1, 2 * 3 * 36).round(3)
    maps = {"maps": weights.tolist(), "maps_shape": [2, 3, 6, 6], "maps_read": [1.0, *[0.0] * 5]}
    none = dict.fromkeys(maps)
    rows = [row(n, tokens=tokens, **source, **(none if n == 1 else maps)) for n in range(3)]
    run = recorded(tmp_path / "e" / "r", rows)
    shown = texts_of_run(run)
    assert shown is not None
    assert [*shown["maps"]] == [0, 2]
    found = shown["maps"][2]
    assert found["words"] == ["[CLS]", "caf", "é", "", "<b>", "[SEP]"]
    assert (found["shape"], found["position"]) == ([2, 3, 6, 6], 0)
    code, scale = found["weights"]
    halves = np.frombuffer(b64decode(code), np.float16) * scale
    np.testing.assert_allclose(halves, weights, rtol=1e-3, atol=1e-6)
    monkeypatch.setattr(module, "MAP_WEIGHTS", 300)
    shown = texts_of_run(run)
    assert shown is not None
    assert [*shown["maps"]] == [0]


def test_two_runs_need_the_same_texts(tmp_path: Path) -> None:
    rows = [row(n, label=n % 2) for n in range(4)]
    first = recorded(tmp_path / "e" / "a", rows)
    others = {
        "other labels": [{**each, "label": 1} for each in rows],
        "they share none": [{**each, "index": each["index"] + 9} for each in rows],
    }
    for said, changed in others.items():
        second = recorded(tmp_path / "e" / said, changed)
        with pytest.raises(InputError, match=f"e/a and e/{said} are of different texts: .*{said}"):
            what_if_page("both", [first, second])
    empty = tmp_path / "e" / "empty"
    empty.mkdir()
    with pytest.raises(
        InputError, match="have no record `texts` of one corpus: run `attnlight test"
    ):
        what_if_page("both", [first, trained_run(empty)])
    with pytest.raises(InputError, match="3 runs are named"):
        main([str(empty)] * 3)


def numbers_of_trained(
    model: TrainedModel, rows: Sequence[Any], tmp_path: Path
) -> dict[float, list[float]]:
    """Compare what the page says of texts with what the package says of a trained model."""
    test = callbacks.Texts(max_instances=None, leave_one_out=False, methods=[])
    results = attnlight.run(model, rows, [test])
    said = answers(results.folder, tmp_path)
    better: dict[float, list[float]] = {epsilon: [] for epsilon in EPSILONS}
    seen = 0
    for start in range(0, len(rows), 64):
        batch = encode_rows(model, read_rows(rows[start : start + 64]), start)
        with evaluating(model.model), torch.no_grad():
            output = model.model(batch)
            seen += len(output.rows)
            for epsilon, found in compare(said, readout_of(batch, output, model.model)).items():
                better[epsilon] += found
    assert len(said) == seen
    return better


@pytest.mark.slow
def test_all_texts_of_sst(corpora: Path, tmp_path: Path) -> None:
    """The shipped model's page: every text is exact."""
    table = pq.read_table(corpora / "sst5/data/test-00000-of-00001.parquet")
    texts = table["text"].to_pylist()
    better = numbers_of_trained(attnlight.load("sst"), texts, tmp_path)
    assert not any(better.values())


@pytest.mark.slow
def test_a_tagger_of_two_heads(tmp_path: Path) -> None:
    corpus = tagged.corpus(tagged.written(tmp_path / "corpus"), pos=False)
    path = tagged.save_tagger(tmp_path / "e" / "r" / "best.ckpt", corpus)
    rows = [{"tokens": ["the", "cat", "sat", ".", "a", "Tea", "Runs"][n:]} for n in range(6)]
    better = numbers_of_trained(attnlight.load(path), rows, tmp_path)
    assert len(better[max(EPSILONS)]) < 27, "some of the tokens have an exact worst case"
    # The record has the package's worst case of one token of each text.
    assert sum(each > -1e-5 for each in better[RECORDED]) >= 1
