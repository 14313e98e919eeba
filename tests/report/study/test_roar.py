"""Accuracy without the words that methods rank first, against loops over the fake's own rows."""

import re
from typing import Any

import pytest

from attnlight.figures.methods import method_words
from attnlight.report.study import groups
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.figures import figures
from attnlight.report.study.tables import estimates_csv, study_tables
from attnlight.report.study.texts import text
from tests.report.study.fake import FakeTexts, whole
from tests.report.study.naive import measure

SHARES = (0.1, 0.9)
RIGHT = {"attention": (0.8, 0.6), "input_gradient": (0.7, 0.5), "random": (0.82, 0.7)}
SEEDS = range(3)


def removed() -> FakeTexts:
    """Three bases, and models of each method but one that is not finished."""
    study = FakeTexts(texts=60)
    for seed in SEEDS:
        study.add(f"base-s{seed}", "base", 0.85, seed=seed)
    for method, rights in RIGHT.items():
        for share, right in zip(SHARES, rights, strict=True):
            for seed in SEEDS:
                lacks = (method, share, seed) == ("attention", 0.9, 2)
                entry: dict[str, Any] = {
                    "method": method,
                    "share": share,
                    "seed": seed,
                    "base": None,
                }
                name, state = f"roar-{method}-{100 * share:g}-s{seed}", "failed" if lacks else ""
                study.add(name, "roar", right, state=state or "finished", **entry)
    return study


WHOLE = removed


def test_table_and_numbers(fake: FakeTexts, estimates: Estimates) -> None:
    table = study_tables(estimates)["roar"]
    cells = {tuple(row[:2]): row[2:] for row in table.rows}
    words = {"attention": "attention", "input_gradient": "gradient × input", "random": "random"}  # noqa: RUF001
    assert list(cells) == [
        ("nothing", "0 %"),
        *((words[method], f"{100 * share:g} %") for method in RIGHT for share in SHARES),
    ]
    means = {}
    for (method, share), (seeds, accuracy, less) in cells.items():
        names = [run for run in fake.rows if run.startswith("base")]
        if method != "nothing":
            (key,) = (key for key, word in words.items() if word == method)
            names = [n for n in fake.rows if re.match(rf"roar-{key}-{share.split()[0]}-s", n)]
        assert seeds == str(len(names))
        each = [measure(fake, name, "accuracy") for name in names]
        means[method, share] = sum(each) / len(each)
        assert accuracy.startswith(f"{means[method, share]:.3f}")
        assert ("[" in accuracy) == (len(names) != 2), "two leave no interval"
        assert (less == "\N{EN DASH}") == (method in ("nothing", "random"))
    for (method, share), (*_, less) in cells.items():
        if less != "\N{EN DASH}":
            difference = means[method, share] - means["random", share]
            assert float(less.split()[0].replace("\N{MINUS SIGN}", "-")) == pytest.approx(
                difference, abs=6e-4
            )
    assert "Not finished: 1 of 18 models trained without some words (roar-attention-90-s2)" in (
        table.note
    )
    full = [line for line in estimates_csv(estimates).splitlines() if ",accuracy," in line]
    assert any(line.startswith("roar-input_gradient-0.9,base-s0,") for line in full)


def test_curves_go_from_the_bases_through_the_shares(estimates: Estimates) -> None:
    drawn = {kind: figure for kind, figure, _ in figures(estimates)}
    (axes,) = drawn["roar"].axes  # type: ignore[union-attr]
    lines = {line.get_label(): line for line in axes.lines}
    for method, path in groups.removals(estimates.study).items():
        line = lines[method_words(method)]
        assert line.get_xdata().tolist() == [0, 10, 90]  # type: ignore[union-attr]
        expected = [estimates.estimate(runs, "accuracy").mean for runs in path.values()]
        assert line.get_ydata().tolist() == expected  # type: ignore[union-attr]
    styles = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}
    assert len(styles) == len(axes.lines) == len(axes.collections)
    assert "Hooker" in text("figures", "roar", "caption", **groups.words(estimates.study))


def test_other_studies_have_neither() -> None:
    estimates = Estimates(whole(seeds=3, bases=1, texts=30).read())
    assert "roar" not in study_tables(estimates)
    assert not [kind for kind, *_ in figures(estimates) if kind == "roar"]
