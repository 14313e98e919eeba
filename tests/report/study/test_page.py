"""`write_study` and `attnlight report` of the folder of a study."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from attnlight.cli.report import main
from attnlight.errors import InputError
from attnlight.report.study import write_study
from tests.cli.test_report import ATTACK, Page, files
from tests.report.fake import CONFIG, rows_of, write_record, write_run
from tests.report.study.fake import FakeTagging, add_adversary, whole, whole_tagger

UNDEFINED = re.compile(r"\b(nan|NaN|inf|None)\b")
KINDS = ("texts", "tagging")
TABLES = {
    "texts": "table2 table3 table4 seeds adversaries",
    "tagging": "models distances adversaries adversary_distances heads segments",
}
FIGURES = {
    "texts": "figure5-base-s0 seeds-base-s0 adversary-base-s0",
    "tagging": "outcome-kl-base-s0 heads-kl-base-s0 ranking-kl-base-s0 outcome-released-base-s0 "
    "heads-released-base-s0 ranking-released-base-s0 tradeoff-base-s0 probes",
}
FACTS = {
    "texts": [
        "Finished runs1 of 1 base, 5 of 5 uniform, 5 of 5 seed, 30 of 30 guide",
        "may lie above it",
    ],
    "tagging": [
        "2 of 2 base, 10 of 10 uniform, 2 of 2 seed, 24 of 24 guide, 8 of 8 adv",
        "Part-of-speech tagsread",
        "Answersthe chunk tag of every token",
    ],
}


class Written(NamedTuple):
    """A report: whose it is, its folder, and its files."""

    kind: str
    folder: Path
    paths: list[Path]


@pytest.fixture(scope="module", params=KINDS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    fake: Any = whole(bases=1, texts=60)
    if request.param == "tagging":
        fake = whole_tagger(seeds=2, variants=2, kl=(0.0, 0.1, 1.0), released=(2.1,), sentences=20)
    folder = fake.write(tmp_path_factory.mktemp("root") / "fake")
    return Written(request.param, folder / "report", write_study(folder))


def text_of(report: Path) -> str:
    paths = [path for path in report.iterdir() if path.suffix in (".md", ".csv", ".tex")]
    texts = [path.read_text() for path in paths]
    return "\n".join([*texts, Page(report / "index.html").text])


class TestFiles:
    def test_are_all_there(self, written: Written) -> None:
        kind, report, paths = written
        names = [f"{table}.{end}" for table in TABLES[kind].split() for end in ("csv", "md", "tex")]
        kinds = ("svg", "pdf", "png")
        names += [f"{stem}.{end}" for stem in FIGURES[kind].split() for end in kinds]
        names += ["index.html", "verdict.md", "verdict.csv", "estimates.csv"]
        assert sorted(path.name for path in paths) == sorted(names)
        assert paths[0] == report / "index.html"
        assert sorted(report.iterdir()) == sorted(paths)

    def test_hold_no_undefined_number(self, written: Written) -> None:
        assert not UNDEFINED.search(text_of(written.folder))
        for path in written.folder.glob("*.svg"):
            assert "nan" not in path.read_text()

    def test_verdicts_stand_below_their_questions(self, written: Written) -> None:
        lines = (written.folder / "verdict.md").read_text().splitlines()
        assert lines[:5] == ["# fake", "", "## Is attention needed here?", "", lines[4]]
        assert all(line == "" or line.startswith(("#", "* ")) for line in lines)
        assert not any("What is missing" in line for line in lines)


def test_the_page_links_to_its_own_files_and_nothing_else(written: Written) -> None:
    """And shows sentences, tables and captions."""
    page = Page(written.folder / "index.html")
    assert not page.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    linked = {reference for reference in page.references if not reference.startswith("#")}
    assert linked == {path.name for path in written.paths} - {"index.html"}
    assert len(page.ids) == len(set(page.ids))
    assert page.html.count("url(") == page.html.count("url(#") > 0
    assert "default-src 'none'" in page.html
    for line in (written.folder / "verdict.md").read_text().splitlines():
        assert line.lstrip("#* ") in page.text
    assert all(fact in page.text for fact in FACTS[written.kind])


def test_what_comes_from_files_is_no_markup(tmp_path: Path) -> None:
    fake = whole_tagger(seeds=1, variants=1, kl=(0.0, 0.1), released=(), sentences=8)
    for run in fake.runs:
        run["guide"] = run["guide"] and f"<u>{run['guide']}"
        run["context"] = run["context"] and f"<s>{run['context']}"
    fake.head |= {"study": ATTACK, "corpus": "<b>x", "experiment": "<i>y"}
    fake.head |= {"options": "50_% <s>", "classes": ["O", f"#1{ATTACK}"]}
    report = fake.write(tmp_path) / "report"
    write_study(tmp_path)
    page = Page(report / "index.html")
    assert not page.tags & {"script", "img", "b", "i", "s", "u"}
    assert all(words in page.text for words in (ATTACK, "<b>x", "<i>y", "50_% <s>"))
    for table in TABLES["tagging"].split():
        text = (report / f"{table}.tex").read_text()
        assert not re.search(r"(?<!\\)[%#_<>]", text)
        head, body = text.split("\\toprule\n")[1].split("\\bottomrule")[0].split("\\midrule\n")
        columns = [len(re.findall(r"(?<!\\)&", row)) for row in (head, *body.splitlines())]
        assert len(set(columns)) == 1
        assert body.count("λ") == 0


def test_a_half_finished_study_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeTagging(8)
    fake.add("base-s0", "base")
    for seed, state in enumerate(("finished", "failed", "missing")):
        fake.add(f"uniform-s{seed}", "uniform", js=0.3, tau=None, state=state)
    for lam in (0.0, 0.1):
        add_adversary(fake, "kl", lam, 0)
        fake.runs[-1]["state"] = "missing" if lam else "finished"
    fake.rows.pop("adversary-kl-l0.1-s0")
    folder = fake.write(tmp_path / "fake")
    assert main([str(folder)]) == 0
    assert main([str(folder), "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"{folder}/report/index.html", f"{tmp_path}/out/index.html"]
    assert files(tmp_path / "out") == files(folder / "report")
    text = text_of(folder / "report")
    assert "Not finished: 2 of 3 runs with uniform attention (uniform-s1, uniform-s2)." in text
    assert "Not finished: 1 of 2 adversaries (adversary-kl-l0.1-s0)." in text
    assert "The study has no guided taggers." in text
    assert not list((folder / "report").glob("*.png"))


def test_bases_without_variants_are_shown_by_their_tests(tmp_path: Path) -> None:
    folder = whole(seeds=0, bases=3, texts=8).write(tmp_path / "fake")
    rows = [rows_of("predictions", seed=seed) for seed in range(3)]
    for seed, of_run in enumerate(rows):
        run = write_run(folder / f"base-s{seed}", epochs=())
        (run / "fit.yaml").write_text(CONFIG.replace("everything: 7", f"everything: {seed}"))
        about = {"test": "predictions", "stage": "test", "classes": ["negative", "positive"]}
        target = run / "records/test/predictions.parquet"
        write_record(target, of_run, checkpoint="best.ckpt", measures=[], **about)
    names = {path.name for path in write_study(folder)}
    assert {"cards.md", "measures.md"} < names
    assert not names & {"table2.md", "differences.md"}
    right = [np.mean(of_run["prediction"] == of_run["label"]) for of_run in rows]
    text = (folder / "report/measures.csv").read_text()
    assert f'Predictions: accuracy,"{np.mean(right):.3f} [' in text
    assert "What is missing?" not in Page(folder / "report/index.html").text


def test_a_place_that_is_taken(tmp_path: Path) -> None:
    folder = whole(seeds=1, bases=1, texts=8).write(tmp_path / "fake")
    (folder / "report").touch()
    with pytest.raises(InputError, match="cannot be written"):
        write_study(folder)
