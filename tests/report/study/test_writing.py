"""`write_study` and `attnlight report` of a study's folder."""

import re
from pathlib import Path

import pytest

from attnlight.errors import InputError
from attnlight.report.command import main
from attnlight.report.study import write_study
from tests.report.study.fake import FakeStudy, whole
from tests.report.test_command import ATTACK, Page, files

TABLES = ("table2", "table3", "table4", "seeds", "adversaries")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    folder = whole(bases=1, texts=60).write(tmp_path_factory.mktemp("root") / "fake")
    return folder, write_study(folder)


class TestFiles:
    def test_are_all_there(self, written: tuple[Path, list[Path]]) -> None:
        folder, paths = written
        names = [f"{t}.{kind}" for t in TABLES for kind in ("csv", "md", "tex")]
        figures = [f"{f}-base-s0" for f in ("figure5", "seeds", "adversary")]
        names += [f"{f}.{kind}" for f in figures for kind in ("svg", "pdf", "png")]
        names += ["index.html", "verdict.md", "verdict.csv", "estimates.csv"]
        assert sorted(path.name for path in paths) == sorted(names)
        assert paths[0] == folder / "report/index.html"
        assert sorted((folder / "report").iterdir()) == sorted(paths)

    def test_are_the_same_every_time(
        self, written: tuple[Path, list[Path]], tmp_path: Path
    ) -> None:
        folder, _ = written
        write_study(folder, tmp_path)
        assert files(tmp_path) == files(folder / "report")


class TestPage:
    def test_links_to_its_own_files_and_nothing_else(
        self, written: tuple[Path, list[Path]]
    ) -> None:
        folder, paths = written
        page = Page(folder / "report/index.html")
        assert not page.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
        linked = {reference for reference in page.references if not reference.startswith("#")}
        assert linked == {path.name for path in paths} - {"index.html"}
        assert len(page.ids) == len(set(page.ids))
        assert page.html.count("url(") == page.html.count("url(#") > 0
        assert "default-src 'none'" in page.html

    def test_shows_sentences_tables_and_captions(self, written: tuple[Path, list[Path]]) -> None:
        folder, _ = written
        text = Page(folder / "report/index.html").text
        for line in (folder / "report/verdict.md").read_text().splitlines():
            assert line.lstrip("#* ") in text
        assert "may lie above it" in text
        assert "Finished runs1 of 1 base, 5 of 5 uniform, 5 of 5 seed, 30 of 30 guide" in text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a study whose names are markup."""
    fake = whole(seeds=1, bases=1, texts=8, classes=["good", f"50_% & #1{ATTACK}"])
    fake.head |= {"study": ATTACK, "corpus": "<b>x", "experiment": "<i>y"}
    folder = fake.write(tmp_path_factory.mktemp("root"))
    write_study(folder)
    return folder / "report"


class TestEscaping:
    def test_what_comes_from_files_is_no_markup(self, hostile: Path) -> None:
        page = Page(hostile / "index.html")
        assert not page.tags & {"script", "img", "b", "i"}
        assert ATTACK in page.text
        assert "<b>x" in page.text

    @pytest.mark.parametrize("table", TABLES)
    def test_latex_is_escaped(self, hostile: Path, table: str) -> None:
        text = (hostile / f"{table}.tex").read_text()
        assert not re.search(r"(?<!\\)[%#_<>]", text)
        head, body = text.split("\\toprule\n")[1].split("\\bottomrule")[0].split("\\midrule\n")
        assert "F1 of 50\\_\\% \\& \\#1" in head
        columns = len(re.findall(r"(?<!\\)&", head))
        assert {len(re.findall(r"(?<!\\)&", row)) for row in body.splitlines()} == {columns}
        assert body.count("λ") == 0


class TestCommand:
    def test_report_notices_a_study(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake = FakeStudy(texts=8)
        fake.add("base-s0", "base")
        fake.add("uniform-s0", "uniform", js=0.3, state="failed")
        folder = fake.write(tmp_path / "fake")
        assert main([str(folder), "--output", str(tmp_path / "out")]) == 0
        assert capsys.readouterr().out == f"{tmp_path}/out/index.html\n"
        text = Page(tmp_path / "out/index.html").text
        assert "Not finished: 1 of 1 runs with uniform attention (uniform-s0)." in text
        assert "The study has no guided MLPs." in text
        assert not list((tmp_path / "out").glob("*.png"))
        assert main([str(folder)]) == 0
        assert files(tmp_path / "out") == files(folder / "report")

    def test_a_place_that_is_taken(self, tmp_path: Path) -> None:
        folder = whole(seeds=1, bases=1, texts=8).write(tmp_path / "fake")
        (folder / "report").touch()
        with pytest.raises(InputError, match="cannot be written"):
            write_study(folder)
