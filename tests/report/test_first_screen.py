"""What a page begins with: subject, answer, five rows and a text."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.report.first_text import first_text
from attnlight.report.verdict.card import verdict_of
from attnlight.report.verdict.estimate import rules
from attnlight.report.verdict.rows import rows_of as five_rows
from tests.cli.test_report import ATTACK, TURNED, Page, page_of
from tests.report.fake import MEASURES, rows_of, write_record, write_run
from tests.report.test_texts import row, write
from tests.report.test_verdict import agreement

ABOUT = {"classes": ["negative", "positive"], "checkpoint": "best.ckpt", "stage": "test"}


def run_with_texts(folder: Path, **changes: Any) -> Path:
    """A run with some records of the card, and texts."""
    write_run(folder, epochs=())
    rows = agreement(0.9, 0.4, texts=30)
    rows["max_attention"] = np.full(60, 0.5)
    path = folder / "records/test/leave_one_out_agreement.parquet"
    write_record(path, rows, test="leave_one_out_agreement", **ABOUT)
    two: dict[str, Any] = {"probabilities": [0.25, 0.75], "label": 0}
    scores = {"scores_loo": [0.2, -0.4, 0.0, 0.1], "scores_minimal": [0.0, 1.0, 0.0, 0.0]}
    texts = [row(index, **two, **scores, **changes) for index in range(40)]
    write(folder / "records/test/texts.parquet", texts)
    return folder


def first_screen(page: Page) -> str:
    return page.html.split("<header>")[1].split("</header>")[0]


def test_the_parts_of_a_pair_have_labels(tmp_path: Path) -> None:
    """Whether the query is read apart from the passage or both are one text."""
    joined: dict[str, Any] = {"text": "Mary left | the garden"}
    joined["offsets"] = [[0, 0], [0, 4], [5, 9], [12, 15], [16, 22], [0, 0]]
    page = page_of(run_with_texts(tmp_path / "joined" / "seed7", **joined))
    (line, *_) = re.findall(r'<p class="text".*?</p>', first_screen(page))
    words = re.sub(r"<(?!/?small)[^>]+>", "", line)
    part = '<small class="part">{}</small>'.format
    assert words == f"{part('passage')}Mary left{part('query')}the garden"
    page = page_of(run_with_texts(tmp_path / "apart" / "seed7", query=["who", "left"]))
    assert f"{part('query')}who left</p>" in first_screen(page)
    assert part("passage") not in page.html


def test_the_answer_stands_above_everything(tmp_path: Path) -> None:
    folder = run_with_texts(tmp_path / "sst" / "seed7")
    page = page_of(folder)
    screen, card = first_screen(page), verdict_of(folder)
    assert screen.index("test texts") < screen.index("<h1") < screen.index('class="answer"')
    label, prediction = (rows_of("predictions")[name] for name in ("label", "prediction"))
    accuracy = np.mean(label == prediction)
    assert card.subject == (
        "BiLSTM with additive attention",
        "SetFit/sst5",
        "60 test texts",
        f"accuracy {accuracy:.2f}",
    )
    assert " · ".join(card.subject) in page.text
    # The words that answer are marked; the sentence is whole.
    sentence = re.sub(r"<[^>]+>", "", screen.split("<h1")[1].split("</h1>")[0])
    assert sentence.split(">", 1)[1].replace("&#34;", '"') == card.sentence
    assert '<strong class="none">' in screen
    # The text comes before the rows, as on a narrow screen.
    assert screen.index('class="one-text"') < screen.index('class="rows"')
    assert page.html.count('id="try"') == 1
    assert page.html.index("</header>") < page.html.index('id="try"')


def test_rows_have_sign_answer_bar_and_number(tmp_path: Path) -> None:
    folder = run_with_texts(tmp_path / "sst" / "seed7")
    card = verdict_of(folder)
    rows = {one.line.name: one for one in five_rows(card.lines, card.items)}
    assert [*rows] == ["ranks", "finds", "needed", "words", "uniqueness"]
    line, rule = rows["ranks"].line, rules()["ranks"]
    assert line.value is not None
    assert line.low is not None
    assert line.high is not None
    expected = [100 * number for number in (line.value, line.low, line.high)]
    assert rows["ranks"].bar == pytest.approx(expected, abs=0.05)
    bounds = [100 * rule["no_below"], 100 * rule["yes_from"]]
    assert rows["ranks"].bounds == pytest.approx(bounds)
    assert rows["ranks"].number == f"{line.value:.2f} [{line.low:.2f}, {line.high:.2f}]"
    stricter = [replace(one, bounds=(0.5, 0.7)) if one is line else one for one in card.lines]
    (other, *_) = five_rows(stricter, card.items)  # as of a model without an encoder
    assert other.measures == "Somers' D in the worst class; yes from 0.7, no below 0.5"
    assert other.bounds == (50, 70)
    assert (rows["needed"].sign, rows["needed"].line.answer) == ("✓", "yes")
    assert (rows["words"].sign, rows["words"].bar, rows["words"].bounds) == ("\u2013", (), ())
    screen = first_screen(page_of(folder))
    assert screen.count('class="bound"') == 3  # two of ranks and one of needed
    assert screen.count('class="point"') == 2
    # Commands are folded, short and without JSON.
    for command in re.findall(r"<code>(attnlight [^<]*)</code>", screen):
        assert len(command) < len(str(folder)) + 60
        assert "{" not in command
    assert screen.count("measure this") == 3


def test_a_number_beyond_the_bar_is_at_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    names = ["somers_d_attention", "opposing_mass", "largest_effect", "log_odds"]
    rows = agreement(-0.4, -0.6, texts=40)
    assert {*names} <= rows.keys()
    path = folder / "records/test/leave_one_out_agreement.parquet"
    write_record(path, rows, test="leave_one_out_agreement", **ABOUT)
    card = verdict_of(folder)
    (found, *_) = five_rows(card.lines, card.items)
    assert found.bar == (0.0, 0.0, 0.0)
    assert "accuracy" not in " ".join(verdict_of(folder).subject)


def test_the_text_is_a_median_case_by_attention_another_method_and_the_worst_case(
    tmp_path: Path,
) -> None:
    worst = {"scores_worst_case": [0.0, 0.0, 1.0, 0.0]}
    page = page_of(run_with_texts(tmp_path / "sst" / "seed7", **worst))
    text = first_screen(page).split('class="one-text"')[1].split("</section>")[0]
    assert text.index("attention") < text.index("leave-one-out") < text.index("another attention")
    assert ", a median case" in text
    shown = re.search(r"text (\d+), a median", text)
    assert shown is not None
    rows = agreement(0.9, 0.4, texts=30)["somers_d_attention"][:40]
    distances = np.abs(rows - np.median(rows))
    assert distances[int(shown[1])] == distances.min()
    assert f'href="#text={shown[1]}"' in text
    # Against the prediction, and of the smallest set.
    attention, loo, _ = text.split('class="layer"')[1:]
    assert 'class="against" style="--share:100%"' in loo
    assert 'class="framed"' in attention
    assert "Framed:" in text


def test_hostile_texts_stay_text(tmp_path: Path) -> None:
    words = [ATTACK, TURNED, "</p><script>", "&amp;", "x", "<b>y"]
    source = " ".join(words)
    starts = [source.index(word) for word in words]
    spans = [[start, start + len(word)] for start, word in zip(starts, words, strict=True)]
    page = page_of(run_with_texts(tmp_path / "a" / "b", tokens=words, text=source, offsets=spans))
    assert not page.tags & {"img", "b"}
    assert page.html.count("<script") == 2, "what is changed on the page, and its data"
    assert set(page.turned) <= {"bdi"}
    assert r"\u202eevil" in page.text


def test_long_texts_are_cut_where_attention_is(tmp_path: Path) -> None:
    weights = np.zeros(100)
    weights[70] = 1.0
    words = [f"w{number}" for number in range(100)]
    items = [[number, number + 1] for number in range(100)]
    long = row(tokens=words, items=items, attention=[weights.tolist()])
    found = first_text(write(tmp_path / "predictions.parquet", [long]), None, None, ())
    assert found is not None
    assert "w70" in [token.word for token in found.tokens]
    assert len(found.tokens) == 40
    assert found.before
    assert found.after == 100 - int(found.tokens[-1].word[1:]) - 1


@pytest.mark.parametrize(
    ("best", "shown"),
    [
        (["integrated_gradients", "occlusion"], "integrated gradients, the best other method"),
        (["occlusion"], "occlusion, the best other method"),  # and not deletions without a sign
        (["lrp", "occlusion"], "occlusion"),
    ],
)
def test_the_best_method_colours_the_text(best: list[str], shown: str, tmp_path: Path) -> None:
    """Whose scores are recorded; and it is called the best only if it is."""
    names = ("loo", "occlusion", "integrated_gradients")
    scores = {f"scores_{name}": [0.2, -0.4, 0.0, 0.1] for name in names}
    found = first_text(write(tmp_path / "texts.parquet", [row(**scores)]), None, None, best)
    assert found is not None
    assert [*found.layers.values()] == ["attention", shown]


def test_another_corpus_stands_first_if_it_is_all_there_is(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "sst" / "seed7", stages=())
    path = folder / "records/test-reviews/attention_permutation.parquet"
    rows = rows_of("attention_permutation")
    about = {"test": "attention_permutation", "measures": MEASURES["attention_permutation"]}
    write_record(path, rows, **ABOUT, **about, unknown_words=0.1)
    page = page_of(folder)
    screen = first_screen(page)
    assert "On reviews." in screen
    assert "reviews · 60 test texts" in page.text
    assert "Not tested yet" not in page.text
    assert page.html.count("<h1") == 1


class _Zero(dict[str, object]):
    def __missing__(self, name: str) -> object:
        return 0


def test_every_sentence_has_words_that_answer() -> None:
    sentences, answers = rules()["sentences"], rules()["answers"]
    for (case, pattern), where in product(answers.items(), ("everywhere", "in_one")):
        words = _Zero(items="words", where=sentences[where])
        assert len(re.findall(pattern, sentences[case].format_map(words))) == 1, case
    assert answers.keys() >= rules()["decisions"].keys()
