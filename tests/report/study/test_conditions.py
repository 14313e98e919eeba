"""The comparison of conditions against loops over the fakes' own rows."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind

from attnlight.errors import InputError
from attnlight.report.study.conditions import (
    draw_exclusivity,
    exclusivity_tables,
    exclusivity_verdicts,
    read_conditions,
    write_exclusivity,
)
from attnlight.report.study.texts import text
from tests.cli.test_report import ATTACK, Page, files
from tests.report.study.fake import FakeTagging, condition, conditions
from tests.report.study.naive import mean, measure
from tests.statistics.test_exclusivity import naive

COST = 0.02
QUESTION = text("questions", "exclusivity")
RULES, MISSING = "Which comparisons are valid?", "What is missing?"


def heights(fake: FakeTagging, cost: float = COST) -> list[float]:
    """Share of each seed at a cost on its envelope."""
    names = ("prediction_tvd", "attention_js_share")
    points: dict[int, list[list[float]]] = {}
    for run in (run for run in fake.runs if run["role"] == "adversary"):
        measured = [measure(fake, run["name"], name) for name in names]
        points.setdefault(run["seed"], []).append([run["lambda"], *measured])
    return [naive(*np.transpose(of_seed), cost) for of_seed in points.values()]


def numbers(cell: str) -> list[float]:
    return [float(text) for text in re.findall(r"-?\d+\.\d+", cell)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return conditions(tmp_path_factory.mktemp("root"), sentences=20)


def pair(root: Path, **targets: FakeTagging) -> dict[str, Path]:
    """The folders of studies that are called to be of these targets."""
    for target, fake in targets.items():
        fake.head["target"] = target
    return {target: fake.write(root / target) for target, fake in targets.items()}


class TestTables:
    def test_exclusivity_and_its_difference(self, tmp_path: Path) -> None:
        """Student's interval of each seed's share, and Welch's of two conditions."""
        fakes = {target: condition(target, sentences=40) for target in ("tokens", "marked")}
        tables = exclusivity_tables(read_conditions(pair(tmp_path, **fakes)))
        row = tables["exclusivity"].rows[0]
        names = ["tokens", "every token's tag", "residual readout", "with POS", "3", "0"]
        assert row[:6] == names
        a, b = map(heights, fakes.values())
        ends = np.clip(ttest_1samp(a, 0).confidence_interval(), 0, 1)
        assert numbers(row[6]) == pytest.approx([mean(a), *ends], abs=5.1e-4)
        zero = [f"adversary-kl-l0-s{seed}" for seed in range(3)]
        control = [measure(fakes["tokens"], run, "attention_js_share") for run in zero]
        assert numbers(row[7])[0] == pytest.approx(mean(control), abs=5.1e-4)
        (row,) = tables["tokens_less_marked"].rows
        ends = np.clip(ttest_ind(a, b, equal_var=False).confidence_interval(), -1, 1)
        assert numbers(row[-1]) == pytest.approx([mean(a) - mean(b), *ends], abs=5.1e-4)
        assert row[:3] == ["residual readout, with POS", "3", "3"]

    def test_censored_seeds_are_lower_bounds(self, tmp_path: Path) -> None:
        tokens = condition("tokens", cost=0.1)
        found = read_conditions(pair(tmp_path, tokens=tokens, marked=condition("marked")))
        grids = exclusivity_tables(found)
        row = grids["exclusivity"].rows[0]
        assert row[5] == "3"
        assert re.fullmatch(r"≥ .*, 1\.000\]", row[6])
        assert mean(heights(tokens)) == pytest.approx(numbers(row[6])[0], abs=5.1e-4)
        assert grids["tokens_less_marked"].rows[0][-1].startswith("– [")  # noqa: RUF001


def answers(folders: dict[str, Path]) -> dict[str, list[str]]:
    return exclusivity_verdicts(read_conditions(folders))


class TestVerdict:
    @pytest.mark.parametrize(
        ("tokens", "marked", "claim"),
        [
            ("tokens", "marked", "is more exclusive than tagging one"),
            ("marked", "tokens", "is less exclusive than tagging one"),
            ("tokens", "tokens", "is not shown to be more or less exclusive than tagging one"),
        ],
    )
    def test_a_claim_follows_from_the_interval(
        self, tmp_path: Path, tokens: str, marked: str, claim: str
    ) -> None:
        fakes = {"tokens": condition(tokens, seeds=5), "marked": condition(marked, seeds=5)}
        (said,) = answers(pair(tmp_path, **fakes))[QUESTION]
        assert said.startswith(f"Residual readout, with POS: tagging every token {claim}")

    def test_three_seeds_are_too_few(self, folders: dict[str, Path]) -> None:
        said = answers(folders)
        assert len(said[QUESTION]) == 4
        assert all(": inconclusive: " in sentence for sentence in said[QUESTION])
        assert not any("is more exclusive" in sentence for sentence in said[QUESTION])
        targets, few, text_readout, *_ = said[RULES]
        assert targets.startswith("Only every token's tag against one marked token's answers")
        assert "support no conclusion" in few
        assert "only through its attention to itself" in text_readout
        assert MISSING not in said

    def test_without_a_pair_there_is_no_answer(self, tmp_path: Path) -> None:
        fakes = {"tokens": condition("tokens"), "marked": condition("marked", readout="text")}
        said = answers(pair(tmp_path, **fakes))
        assert said[QUESTION][0].startswith("No answer: no readout and choice of features has both")
        assert MISSING not in said

    def test_unfinished_runs_and_seeds_without_a_control(self, tmp_path: Path) -> None:
        a, b = condition("tokens"), condition("marked")
        for name in ("adversary-kl-l0-s1", "adversary-kl-l0.1-s2"):
            next(run for run in a.runs if run["name"] == name)["state"] = "missing"
            a.rows.pop(name)
        for run in b.runs[1:]:  # all but the base
            run["state"] = "failed"
        found = read_conditions({"a": a.write(tmp_path / "a"), "b": b.write(tmp_path / "b")})
        assert found[0].exclusivity.seeds == 2
        said = exclusivity_verdicts(found)
        assert said[QUESTION] == [
            "Residual readout, with POS: no answer, no curve of one marked token's tag."
        ]
        *unfinished, other = said[MISSING]
        assert unfinished == [
            "a: Not finished: 2 of 18 adversaries (adversary-kl-l0-s1, adversary-kl-l0.1-s2).",
            "a: No curve of base-s0, seed 1, which lacks λ = 0 or any other λ.",
        ]
        assert other.startswith("b: Not finished: 18 of 18 adversaries (adversary-kl-l0-s0, ")

    def test_other_lambdas_are_told(self, tmp_path: Path) -> None:
        marked = condition("marked", lambdas=(0.0, 0.1, 0.3))
        said = answers(pair(tmp_path, tokens=condition("tokens"), marked=marked))
        assert "the two have different numbers of runs by λ" in said[RULES][-1]


def test_a_mean_curve_is_that_of_each_seed_and_none_without_adversaries(tmp_path: Path) -> None:
    fake = condition("tokens", sentences=30)
    figure = draw_exclusivity(read_conditions({"a": fake.write(tmp_path)}))
    assert figure is not None
    lines = figure.axes[0].lines
    (mean_curve,) = [line for line in lines if line.get_linewidth() == 1.8]
    x, y = (np.asarray(values) for values in mean_curve.get_data())
    assert x[-1] == min(line.get_xdata()[-1] for line in lines if line.get_linewidth() == 0.7)
    for cost in (0.01, 0.02, 0.05):
        assert np.interp(cost, x, y) == pytest.approx(mean(heights(fake, cost)), rel=1e-6)
    found = read_conditions({"a": condition("tokens", seeds=0, sentences=8).write(tmp_path)})
    assert draw_exclusivity(found) is None
    assert exclusivity_tables(found)["exclusivity"].rows[0][4:7] == 3 * ["–"]  # noqa: RUF001


# Stems of files and their endings.
TABLE = ("csv", "md", "tex")
ENDINGS = [("exclusivity", *TABLE), ("tokens_less_marked", *TABLE), ("curves", "svg", "pdf", "png")]
ENDINGS += [("index", "html"), ("verdict", "md", "csv"), ("runs", "csv")]


class TestFiles:
    def test_are_all_there(self, folders: dict[str, Path], tmp_path: Path) -> None:
        paths = write_exclusivity(folders, tmp_path)
        names = [f"{stem}.{ending}" for stem, *endings in ENDINGS for ending in endings]
        assert sorted(path.name for path in paths) == sorted(names)
        rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
        assert len(rows) == 12 * 18
        page = Page(tmp_path / "index.html")
        assert {r for r in page.references if not r.startswith("#")} == {*names} - {"index.html"}
        assert not re.search(r"\b(nan|NaN|inf|None)\b", page.text)

    def test_names_are_no_markup_and_files_the_same_every_time(self, tmp_path: Path) -> None:
        fake = condition("tokens", seeds=1, lambdas=(0.0, 0.1), sentences=8)
        fake.head |= {"readout": "<b>", "corpus": ATTACK}
        folder = fake.write(tmp_path / "a")
        write_exclusivity({ATTACK: folder}, tmp_path / "out")
        written = files(tmp_path / "out")
        write_exclusivity({ATTACK: folder}, tmp_path / "out")
        assert files(tmp_path / "out") == written
        page = Page(tmp_path / "out/index.html")
        assert not page.tags & {"script", "img", "b"}
        assert ATTACK in page.text

    def test_what_cannot_be_compared(self, tmp_path: Path) -> None:
        path = condition("tokens", seeds=1, sentences=8).write(tmp_path / "a")
        with pytest.raises(InputError, match="conditions a and b have the same target"):
            write_exclusivity({"a": path, "b": path}, tmp_path / "out")
