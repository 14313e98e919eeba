"""`attnlight explain` and `attnlight.explain`: what they say is what the tests measure."""

from __future__ import annotations

import io
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlight
from attnlight.attribution import ATTRIBUTIONS
from attnlight.batch import AttentionOutput
from attnlight.data.raw_text import RawText
from attnlight.datamodules import BabiStories
from attnlight.errors import InputError
from attnlight.tasks import AttentionClassifier, AttentionTask
from tests.attribution.scenes import METHODS, OF_LAYERS
from tests.bases import Planted, save, save_base
from tests.cli.test_report import Page
from tests.commands import Printed, Refused
from tests.data import test_raw_text
from tests.data.local import write_corpus
from tests.outside import TwoHeads
from tests.pairs import pair_task
from tests.tasks.tagged import corpus, save_tagger, written

TEXTS = [
    "filler5 filler17 filler3 filler99 filler5 filler4",
    "filler7 filler8",
    "filler1 nonsense filler2 filler6 filler40",
]
HOSTILE = "filler5 <script>alert(1)</script> \u202egnp.\u2069 \x1b[31mw7"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "e" / "r"
    folder.mkdir(parents=True)
    path = save_base(folder / "best.ckpt", Planted())
    (folder / "fit.yaml").write_text("model:\n  class_path: attnlight.tasks.AttentionClassifier\n")
    return path


@pytest.fixture
def task(checkpoint: Path) -> AttentionTask:
    return AttentionClassifier.load_from_checkpoint(checkpoint).eval()


def output_of(task: AttentionTask, *given: Any, **named: Any) -> AttentionOutput:
    with torch.no_grad():
        return task.model(task.encode(*given, **named))


def erased(output: AttentionOutput, row: int, items: tuple[int, ...]) -> int:
    """The class without some items, by a sum over the others."""
    assert output.item_logits is not None
    kept = [n for n in output.mask[row].nonzero().flatten().tolist() if n not in items]
    weights = output.weights[row, 0].double()
    total = sum(weights[n] for n in kept)
    logits: Any = sum(weights[n] * output.item_logits[row, 0, n].double() for n in kept)
    return int((output.bias if not kept else logits / total).argmax())


def test_it_says_what_the_model_says(checkpoint: Path, task: AttentionTask) -> None:
    found = attnlight.explain(checkpoint.parent, TEXTS, methods=["occlusion", "gradient"])
    output = output_of(task, TEXTS)
    assert [one.text for one in found] == TEXTS
    assert [one.items for one in found] == [text.split() for text in TEXTS]
    for row, one in enumerate(found):
        places = output.mask[row].nonzero().flatten()
        assert len(places) == len(one.items)
        probabilities = torch.tensor(list(one.probabilities.values()))
        torch.testing.assert_close(probabilities, output.probabilities[row], atol=1e-6, rtol=0)
        assert one.prediction == task.classes[int(output.logits[row].argmax())]
        expected = output.weights[row, 0, places]
        torch.testing.assert_close(torch.tensor(one.attention), expected, atol=1e-6, rtol=0)
        assert one.item is one.query is None
        target = int(output.logits[row].argmax())
        for place in range(len(places)):  # an unknown word in its place, in a text of its own
            words = [*one.items[:place], "[UNK]", *one.items[place + 1 :]]
            change = output.logits[row] - output_of(task, [" ".join(words)]).logits[0]
            expected = float(change[target] - change[1 - target])
            assert one.scores["occlusion"][place] == pytest.approx(expected, abs=1e-4)


def test_the_flip_set_is_the_smallest_of_all_subsets(checkpoint: Path, task: AttentionTask) -> None:
    numbers = torch.randint(0, 200, (30, 6), generator=torch.Generator().manual_seed(0))
    texts = [" ".join(f"filler{number}" for number in row) for row in numbers.tolist()]
    output, flips = output_of(task, texts), 0
    for row, one in enumerate(attnlight.explain(task, texts, methods=[])):
        places = output.mask[row].nonzero().flatten().tolist()
        original = int(output.logits[row].argmax())
        sizes = range(1, len(places) + 1)
        subsets = (s for size in sizes for s in itertools.combinations(places, size))
        first = next((s for s in subsets if erased(output, row, s) != original), None)
        assert (one.flip_set is None) == (first is None)
        if one.flip_set is None or first is None:
            continue
        flips += 1
        members = tuple(places[item] for item in one.flip_set.items)
        assert len(members) == len(first)
        assert one.flip_set.prediction == task.classes[erased(output, row, members)]
        assert one.flip_set.prediction != one.prediction
        assert one.flip_set.exact
    assert flips > 0


def test_the_worst_case_moves_attention_and_not_the_prediction(task: AttentionTask) -> None:
    output = output_of(task, TEXTS)
    found = attnlight.explain(task, TEXTS, methods=[], epsilon=0.02)
    for row, one in enumerate(found):
        assert one.worst_case is not None
        attention = torch.zeros_like(output.weights)
        places = output.mask[row].nonzero().flatten()
        attention[row, 0, places] = torch.tensor(one.worst_case.attention, dtype=torch.float)
        probabilities = task.model.readout(output, attention.unsqueeze(2)).softmax(-1)[row, 0]
        given = torch.tensor(list(one.worst_case.probabilities.values()))
        torch.testing.assert_close(given, probabilities, atol=1e-5, rtol=0)
        assert float((given - output.probabilities[row]).abs().sum() / 2) <= 0.02 + 1e-5
        p, q = attention[row, 0].double(), output.weights[row, 0].double()
        assert one.worst_case.js == pytest.approx(jensen_shannon(p, q), abs=1e-5)
        assert one.worst_case.exact


def jensen_shannon(p: Tensor, q: Tensor) -> float:
    m = (p + q) / 2
    return float(sum((torch.xlogy(a, a) - torch.xlogy(a, m)).sum() for a in (p, q)) / 2)


def test_neither_batches_nor_order_change_it(task: AttentionTask) -> None:
    texts = [*TEXTS, *(f"filler{number} filler{number + 3} filler9" for number in range(40))]
    together = attnlight.explain(task, texts)
    for text, one in zip(texts, together, strict=True):
        (alone,) = attnlight.explain(task, [text])
        assert alone.items == one.items
        assert alone.attention == pytest.approx(one.attention, abs=1e-6)
        for name, values in alone.scores.items():
            assert values == pytest.approx(one.scores[name], abs=1e-4)


OF_OTHERS = {"external", "attention_value_norm", *OF_LAYERS}


@pytest.mark.parametrize("name", sorted({*METHODS} - OF_OTHERS))
def test_every_method_that_a_classifier_has(task: AttentionTask, name: str) -> None:
    (one,) = attnlight.explain(task, TEXTS[0], methods=name)
    batch = task.encode([TEXTS[0]])
    output = task.model(batch)
    scores = ATTRIBUTIONS[name]()(task.model, batch, output, output.logits.argmax(-1))
    expected = scores[0, output.mask[0]].tolist()
    assert one.scores[name] == pytest.approx(expected, abs=1e-5, nan_ok=True)


def test_documents_of_sentences_have_sentences_as_items(tmp_path: Path) -> None:
    columns = {"text": ["Good film. Bad plot", "I like it."] * 3, "label": [0, 1] * 3}
    texts = write_corpus(tmp_path / "corpus", ["neg", "pos"], train=columns, test=columns)
    sentences = ["I like it!", "Bad plot here."]
    words = ["I", "like", "it", "!", "Bad", "plot", "here", "."]
    for form, items in (("nested", sentences), ("flat", words)):
        data = test_raw_text.corpus(texts, form)
        task = test_raw_text.task_of(data)
        task.raw = RawText.of_corpus(data)
        (one,) = attnlight.explain(task, [" ".join(sentences)], methods=["occlusion"])
        assert [item.strip() for item in one.items] == items


def test_a_tagger_has_an_explanation_for_each_token(tmp_path: Path) -> None:
    data = corpus(written(tmp_path / "chunks"), pos=False)
    path = save_tagger(tmp_path / "tagger.ckpt", data)
    found = attnlight.explain(path, ["the cat sat .", "a"], methods=["gradient"])
    tokens = [*(("the cat sat .", place) for place in range(4)), ("a", 0)]
    assert [(one.text, one.item) for one in found] == tokens
    assert "Prediction of 'cat': " in found[1].sentences()[0]
    assert all(len(one.attention) == len(one.items) for one in found)


def test_pairs_have_a_query_and_candidates(tmp_path: Path) -> None:
    data = BabiStories(train_size=20, validation_size=5, test_size=5, cache_dir=str(tmp_path))
    task = pair_task(data.spec)
    task.raw = RawText.of_corpus(data)
    path = save(task, tmp_path / "pairs.ckpt")
    story, query = "Mary went to the garden. John went to the office.", "Where is Mary?"
    candidates = sorted(data.classes)[:2]
    (one,) = attnlight.explain(path, [story], queries=[query], candidates=[candidates])
    assert [one] == attnlight.explain(path, story, queries=query, candidates=[candidates])
    assert sorted(one.probabilities) == candidates
    assert sum(one.probabilities.values()) == pytest.approx(1, abs=1e-6)
    assert one.query == query
    assert f"{query}\n" in str(one)
    assert one.prediction in candidates
    with pytest.raises(InputError, match="queries: give each its own, in `queries`, as `query`"):
        attnlight.explain(path, [story])
    with pytest.raises(InputError, match=r"candidate 'gardn' is not among .* mean 'garden'"):
        attnlight.explain(path, [story], queries=[query], candidates=[["gardn"]])


def test_a_readout_that_is_not_affine_has_an_upper_bound(task: AttentionTask) -> None:
    network = task.model

    class Opaque(torch.nn.Module):
        """The network without its item logits."""

        embed, readout = network.embed, network.readout

        def forward(self, *given: Any, **named: Any) -> AttentionOutput:
            output = network(*given, **named)
            output.item_logits = None
            return output

    texts = [f"filler{n} filler{2 * n} filler{n + 7} filler3" for n in range(20)]
    exact = attnlight.explain(task, texts, methods=[])
    task.model = Opaque()
    bounds = attnlight.explain(task, texts, methods=[])
    assert any(one.flip_set for one in bounds)
    for bound, one in zip(bounds, exact, strict=True):
        assert one.flip_set is not None or bound.flip_set is None
        if bound.flip_set is not None and one.flip_set is not None:
            assert not bound.flip_set.exact
            assert len(bound.flip_set.items) >= len(one.flip_set.items)
        assert bound.worst_case is not None
        assert one.worst_case is not None
        assert bound.worst_case.js <= one.worst_case.js + 1e-6
        assert not bound.worst_case.exact


def test_html_and_terminal_set_text_as_text(
    checkpoint: Path, tmp_path: Path, printed: Printed
) -> None:
    file = tmp_path / "page.html"
    assert printed("explain", str(checkpoint.parent), HOSTILE, "--html", str(file)) == f"{file}\n"
    assert Page(file).scripts == 2, "the data and the page's own script"
    ((group,),) = [json.loads(Page(file).data)]
    (shown,) = group["sets"]
    words = shown["texts"][0].split("\n")
    for word in ("<script>alert", "\\u202egnp", "\\u2069"):
        assert any(word in each for each in words)
    assert list(shown["scores"]) == ["gradient", "gradient x attention", "occlusion"]
    (one,) = attnlight.explain(checkpoint.parent, [HOSTILE])
    page = one._repr_html_()
    assert "<script" not in page
    terminal = printed("explain", str(checkpoint.parent), HOSTILE)
    assert "\\x1b" in terminal
    for control in ("\u202e", "\u2069", "\x1b[31m"):
        assert control not in file.read_text("utf-8") + terminal + page


def test_the_command_reads_arguments_files_and_standard_input(
    checkpoint: Path, tmp_path: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, file = str(checkpoint.parent), tmp_path / "texts.txt"
    file.write_text("\n".join([TEXTS[0], "", TEXTS[1]]) + "\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(TEXTS)))
    of_file = ["--file", str(file)]
    for arguments, texts in (([TEXTS[2]], TEXTS[2:]), (of_file, TEXTS[:2]), ([], TEXTS)):
        found = json.loads(printed("explain", run, *arguments, "--json", "--methods", "gradient"))
        assert [one["text"] for one in found] == texts
        assert [list(one["scores"]) for one in found] == [["gradient"]] * len(texts)
    lines = printed("explain", run, TEXTS[0]).splitlines()
    assert lines[0].startswith("Prediction: ")
    for scores in ("attention: ", "occlusion: "):
        assert [line for line in lines if line.startswith(scores)]
    assert TEXTS[0] in " ".join(lines)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "RUN", *TEXTS[:2]],
        ["RUN", TEXTS[0], "--json", TEXTS[1]],
        ["--methods=gradient", "RUN", TEXTS[0], "--json", TEXTS[1]],
        ["RUN", TEXTS[0], "--json", "--", TEXTS[1]],
    ],
)
def test_texts_stand_before_and_after_options(
    checkpoint: Path, printed: Printed, arguments: list[str]
) -> None:
    words = [str(checkpoint.parent) if word == "RUN" else word for word in arguments]
    found = json.loads(printed("explain", *words))
    assert [one["text"] for one in found] == TEXTS[:2]


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (["RUN", "--html", TEXTS[0]], "explanation.html"),
        (["RUN", TEXTS[0], "--html"], "explanation.html"),
        (["--methods", "gradient", "RUN", "--html", "mine.html", TEXTS[0]], "mine.html"),
    ],
)
def test_a_page_takes_no_text_for_its_name(
    checkpoint: Path, here: Path, printed: Printed, arguments: list[str], page: str
) -> None:
    words = [str(checkpoint.parent) if word == "RUN" else word for word in arguments]
    assert printed("explain", *words).splitlines()[-1] == page
    assert [path.name for path in here.glob("*.html")] == [page]
    assert TEXTS[0].split()[-1] in (here / page).read_text()


@pytest.mark.parametrize("coloured", [False, True])
def test_an_explanation_prints_as_the_command_does(
    checkpoint: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch, coloured: bool
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    if coloured:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")
    run = str(checkpoint.parent)
    (one, two) = attnlight.explain(run, TEXTS[:2])
    assert printed("explain", run, TEXTS[0]) == f"{one}\n"
    both = printed("explain", run, *TEXTS[:2])
    assert ("\x1b[" in both) == coloured
    assert one.verdict is not None
    assert both.count("was not measured") == 1  # the verdict
    assert both.count("orange: against it") == coloured  # the legend
    lines = re.sub(r"\x1b\[[\d;]*m", "", both).splitlines()
    assert max(map(len, lines)) <= 80
    # Each text once, or once in the colours of each score.
    scores = 2 + len(one.scores) + (one.flip_set is not None) if coloured else 1
    assert [line.strip() for line in lines].count(TEXTS[0]) == scores
    assert str(two) in both


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["RUN", "--mehtods", "x"], "there is no option --mehtods (did you mean '--methods'?)"),
        (["RUN", "--method=x", "a"], "there is no option --method (did you mean '--methods'?)"),
        (["RUN", "a", "--methods"], "argument --methods: expected one argument"),
        (
            ["RUN", "--json", "--html", "a", "b"],
            "argument --html: not allowed with argument --json",
        ),
        (["--json"], "the following arguments are required: RUN"),
        (["RUN", "a \udce9 film"], "'a \\udce9 film', has a lone surrogate (half a character) at"),
        (["none", "text"], "there is no run or checkpoint"),
        (["RUN", " "], "text 1 is empty; expected at least one word"),
        (["RUN", "a", "--methods=gradent"], "unknown attribution method 'gradent' (did you mean"),
        (
            ["RUN", "a", "--query", "who?"],
            "the model reads texts alone: leave out `queries`, or --query",
        ),
        (["RUN", "--file", "none.txt"], "none.txt is not readable"),
    ],
)
def test_mistakes_are_one_sentence(
    checkpoint: Path, refused: Refused, arguments: list[str], told: str
) -> None:
    words = [str(checkpoint.parent) if word == "RUN" else word for word in arguments]
    refused("explain", *words, names=[told], alone=True)


def test_the_cost_of_a_long_text_is_said_once_before(
    task: AttentionTask, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (text, *_), few = TEXTS, len(TEXTS[0].split())
    monkeypatch.setattr("attnlight.api.explain._TEXTS", 1)
    for tokens in (few * few - 1, few * few):
        monkeypatch.setattr("attnlight.api.explain._TOKENS", tokens)
        attnlight.explain(task, [text, text], "occlusion")
        said = f"about {few} forward passes of the longest text, of {few} tokens\n"
        assert capsys.readouterr().err.count(said) == (tokens < few * few)


def test_weights_that_are_not_finite_are_refused(task: AttentionTask) -> None:
    with torch.no_grad():
        next(task.model.decoder.parameters()).fill_(torch.nan)
    with pytest.raises(InputError, match="text 1 has attention or logits that are not finite"):
        attnlight.explain(task, TEXTS)


def test_a_model_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(InputError, match="TwoHeads has no tokenizer to read raw text with"):
        attnlight.explain(TwoHeads(True), TEXTS)


def test_lightning_is_not_imported(checkpoint: Path) -> None:
    script = (
        "import sys, attnlight\n"
        "early = {'torch', 'numpy', 'lightning', 'yaml'} & sys.modules.keys()\n"
        "names = {'Explanation', 'Results', 'check', 'explain', 'load', 'run'}\n"
        "assert set(attnlight.__all__) == names\n"
        "for name in names: getattr(attnlight, name)\n"
        f"(one,) = attnlight.explain({str(checkpoint.parent)!r}, ['filler5 filler7'])\n"
        "one._repr_html_()\n"
        "heavy = {'lightning', 'torchmetrics', 'jsonargparse', 'pandas', 'datasets', 'matplotlib'}\n"
        "print(sorted(early), sorted(heavy & sys.modules.keys()), hasattr(attnlight, 'none'))\n"
    )
    printed = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert printed == "[] [] False\n"
