"""`write_study` and `attnlight report` of the folder of a tagger's study."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from attnlight.report.command import main
from attnlight.report.study import write_study
from tests.report.study.fake_tagging import FakeTagging, add_adversary, whole
from tests.report.test_command import ATTACK, Page

TABLES = ("models", "distances", "adversaries", "adversary_distances", "heads", "segments")
FIGURES = [f"{name}-{term}-base-s0" for term in ("kl", "compat") for name in ("outcome", "heads")]
FIGURES += [f"ranking-{term}-base-s0" for term in ("kl", "compat")] + ["tradeoff-base-s0", "probes"]
UNDEFINED = re.compile(r"\b(nan|NaN|inf|None)\b")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    fake = whole(seeds=2, variants=2, kl=(0.0, 0.1, 1.0), compat=(2.1,), sentences=20)
    folder = fake.write(tmp_path_factory.mktemp("root") / "fake")
    return folder, write_study(folder)


def text_of(report: Path) -> str:
    """All that the report says in words and numbers."""
    texts = [
        path.read_text() for path in report.iterdir() if path.suffix in (".md", ".csv", ".tex")
    ]
    return "\n".join([*texts, Page(report / "index.html").text])


class TestFiles:
    def test_are_all_there(self, written: tuple[Path, list[Path]]) -> None:
        folder, paths = written
        names = [f"{t}.{kind}" for t in TABLES for kind in ("csv", "md", "tex")]
        names += [f"{f}.{kind}" for f in FIGURES for kind in ("svg", "pdf", "png")]
        names += ["index.html", "verdict.md", "verdict.csv", "estimates.csv"]
        assert sorted(path.name for path in paths) == sorted(names)
        assert paths[0] == folder / "report/index.html"
        assert sorted((folder / "report").iterdir()) == sorted(paths)

    def test_hold_no_undefined_number(self, written: tuple[Path, list[Path]]) -> None:
        folder, _ = written
        said = text_of(folder / "report")
        assert not UNDEFINED.search(said)
        for path in (folder / "report").glob("*.svg"):
            assert "nan" not in path.read_text()


class TestPage:
    def test_shows_what_was_studied_and_found(self, written: tuple[Path, list[Path]]) -> None:
        folder, _ = written
        text = Page(folder / "report/index.html").text
        for line in (folder / "report/verdict.md").read_text().splitlines():
            assert line.lstrip("#* ") in text
        assert "Part-of-speech tagsread" in text
        assert "Answersthe chunk tag of every token" in text
        assert "2 of 2 base, 10 of 10 uniform, 2 of 2 seed, 24 of 24 guide, 8 of 8 adv" in text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a study whose names are markup."""
    fake = whole(seeds=1, variants=1, kl=(0.0, 0.1), compat=(), sentences=8)
    fake.head |= {"study": ATTACK, "corpus": "<b>x", "experiment": "<i>y", "options": "50_% <s>"}
    for run in fake.runs:
        run["guide"] = run["guide"] and f"<u>{run['guide']}"
        run["context"] = run["context"] and f"<s>{run['context']}"
    folder = fake.write(tmp_path_factory.mktemp("root"))
    write_study(folder)
    return folder / "report"


class TestEscaping:
    def test_what_comes_from_files_is_no_markup(self, hostile: Path) -> None:
        page = Page(hostile / "index.html")
        assert not page.tags & {"script", "img", "b", "i", "s", "u"}
        assert ATTACK in page.text
        assert "50_% <s>" in page.text

    @pytest.mark.parametrize("table", TABLES)
    def test_latex_is_escaped(self, hostile: Path, table: str) -> None:
        text = (hostile / f"{table}.tex").read_text()
        assert not re.search(r"(?<!\\)[%#_<>]", text)
        head, body = text.split("\\toprule\n")[1].split("\\bottomrule")[0].split("\\midrule\n")
        columns = len(re.findall(r"(?<!\\)&", head))
        assert {len(re.findall(r"(?<!\\)&", row)) for row in body.splitlines()} == {columns}

    @pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
    def test_latex_compiles(self, written: tuple[Path, list[Path]], tmp_path: Path) -> None:
        folder, _ = written
        tables = "".join(f"\\input{{{folder}/report/{name}.tex}}\n" for name in TABLES)
        page = "\\documentclass{article}\\usepackage{booktabs}\\usepackage[T1]{fontenc}"
        (tmp_path / "page.tex").write_text(f"{page}\\begin{{document}}{tables}\\end{{document}}")
        command = ["pdflatex", "-halt-on-error", "page.tex"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


class TestCommand:
    def test_a_half_finished_study_says_what_is_missing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
        assert capsys.readouterr().out == f"{folder}/report/index.html\n"
        text = text_of(folder / "report")
        assert "Not finished: 2 of 3 runs with uniform attention (uniform-s1, uniform-s2)." in text
        assert "Not finished: 1 of 2 adversaries (adversary-kl-l0.1-s0)." in text
        assert "The study has no guided taggers." in text
        assert not list((folder / "report").glob("*.png"))

    @pytest.mark.parametrize("target", ["marked", "sentence"])
    def test_a_target_without_chunks_tells_accuracy(self, tmp_path: Path, target: str) -> None:
        fake = whole(
            seeds=1, variants=1, kl=(0.0, 0.1), compat=(), sentences=8, target=target, heads=1
        )
        folder = fake.write(tmp_path / "fake")
        write_study(folder)
        text = text_of(folder / "report")
        assert "F1" not in text
        assert "accuracy, less trained" in text
        assert not UNDEFINED.search(text)
