"""`attnlight report`: from a run folder to a page."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from attnlight.cli.report import main
from attnlight.errors import InputError
from attnlight.figures.tables import balanced
from attnlight.report.run import stored_records
from attnlight.report.summary import summarise
from attnlight.report.verdict.card import verdict_of
from tests.report.fake import CONFIG, write_run

VOID = {"br", "input", "meta"}
TURNED = (
    "\u202eevil\u2069\u202e"  # right-to-left override, which the end of an isolate would let out
)
ATTACK = "\"><img src=x onerror=y><script>alert('x')</script>&amp;"


class Page(HTMLParser):
    """Text and attributes of a page whose elements must all be closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.text = ""
        self.turned: list[str] = []
        self.html = path.read_text(encoding="utf-8")
        self.feed(self.html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert "\u202e" not in (value or "")
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                self.references.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "\u202e" in data:
            self.turned.append(self.open[-1])
            assert "\u2069" not in data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "checkpoints" / "sst" / "seed7")


def files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


class TestFiles:
    def test_are_where_the_run_is(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(folder)]) == 0
        printed = capsys.readouterr().out
        assert printed == f"{verdict_of(folder)}\n\n{folder}/report/index.html\n"
        pictures = {
            f"figures/{name}.{kind}"
            for name in (
                "test/predictions",
                "test/attention_permutation",
                "val/curves-metrics",
                "val/curves-predictions",
                "val/curves-attention_permutation",
            )
            for kind in ("svg", "pdf", "png")
        }
        names = ("index.html", "summary.csv", "summary.md", "verdict.json")
        reports = {f"report/{name}" for name in names}
        written = {name for name in files(folder) if name.startswith(("figures", "report"))}
        assert written == pictures | reports

    def test_are_the_same_every_time(self, folder: Path) -> None:
        main([str(folder)])
        first = files(folder)
        main([str(folder)])
        assert files(folder) == first

    def test_go_elsewhere_on_request(self, folder: Path, tmp_path: Path) -> None:
        before = files(folder)
        main([str(folder), "--output", str(tmp_path / "out")])
        assert files(folder) == before
        written = files(tmp_path / "out")
        assert "index.html" in written
        assert "figures/test/predictions.svg" in written

    def test_of_several_runs(self, folder: Path, tmp_path: Path) -> None:
        other = write_run(tmp_path / "checkpoints" / "sst" / "seed8", epochs=())
        main([str(folder), str(other), "--output", str(tmp_path / "out")])
        assert (tmp_path / "out/sst/seed7/index.html").is_file()
        assert (tmp_path / "out/sst/seed8/index.html").is_file()
        with pytest.raises(InputError, match="two runs would be written to one folder"):
            main([str(folder), str(folder), "--output", str(tmp_path / "out")])


def page_of(folder: Path) -> Page:
    main([str(folder)])
    return Page(folder / "report" / "index.html")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page]:
    """A run folder and its page, for tests that only look."""
    folder = write_run(tmp_path_factory.mktemp("checkpoints") / "sst" / "seed7")
    return folder, page_of(folder)


class TestPage:
    def test_holds_everything_itself(self, reported: tuple[Path, Page]) -> None:
        _, page = reported
        assert not page.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
        assert page.references
        assert all(reference.startswith("#") for reference in page.references)
        assert "@import" not in page.html
        assert page.html.count("url(") == page.html.count("url(#") > 0
        assert len(page.ids) == len(set(page.ids))
        assert "default-src 'none'" in page.html

    def test_shows_the_numbers_of_the_records(self, reported: tuple[Path, Page]) -> None:
        folder, page = reported
        for record in stored_records(folder / "records"):
            if record.epoch is None:
                for found in summarise(record).means.values():
                    assert f"{found.mean:.3f}[{found.low:.3f}, {found.high:.3f}]" in page.text
        assert "0.625" in page.text  # test/accuracy of the CSV logger

    def test_opens_in_plain_language(self, reported: tuple[Path, Page]) -> None:
        folder, page = reported
        text = page.text
        assert "AttentionClassifier (encoder bilstm, attention additive)" in text
        assert "trained on SetFit/sst5; tested on 60 instances of the test split" in text
        assert "Partial" not in text
        assert "Does shuffling attention change the prediction?" in text
        assert "Jain & Wallace (2019), section 4.2.1" in text
        assert f"attnlight report {folder}" in text
        assert "--experiment sst --run seed7-again" in text
        assert "<title>sst/seed7 · attnlight</title>" in page.html
        assert f"numpy{np.__version__}" in text
        assert "configuration written bylightning.pytorch==2.6.6" in text

    def test_marks_partial_records(self, tmp_path: Path) -> None:
        text = page_of(write_run(tmp_path / "a" / "b", epochs=(), partial=True)).text
        assert text.count("Partial record: not the whole split.") == 2

    def test_says_when_nothing_was_tested_yet(self, tmp_path: Path) -> None:
        text = page_of(write_run(tmp_path / "a" / "b", stages=())).text
        assert "Not tested yet: run `attnlight test`." in text
        assert "While training" in text

    def test_shows_a_validation_outside_fit(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "a" / "b", stages=("val",), epochs=())
        assert "On the validation split" in page_of(folder).text
        assert (folder / "figures/val/attention_permutation.svg").is_file()

    def test_folds_many_classes(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "a" / "b", classes=[f"group{c}" for c in range(9)], epochs=())
        page = page_of(folder)
        assert "By predicted class (9)" in page.text
        assert page.text.count("group8") >= 6

    def test_escapes_what_comes_from_files(self, tmp_path: Path) -> None:
        config = yaml.safe_load(CONFIG) | {"seed_everything": ATTACK}
        config["model"]["class_path"] = config["data"]["init_args"]["path"] = ATTACK
        folder = write_run(tmp_path / "<b>x" / "a&b;<i>", classes=[ATTACK, "good"], epochs=())
        (folder / "fit.yaml").write_text(f"# {ATTACK}\n{yaml.safe_dump(config)}")
        (folder / "logs/version_1/metrics.csv").write_text('epoch,"test/<img src=x>"\n0,0.5\n')
        for test in ("records/test/<u>y.parquet", "records/val/<u>y-0.parquet"):
            (folder / test).parent.mkdir(exist_ok=True)
            (folder / test).write_bytes((folder / "records/test/predictions.parquet").read_bytes())
        page = page_of(folder)
        assert not page.tags & {"script", "img", "b", "i", "u"}
        assert ATTACK in page.text
        assert "<u>y" in page.text

    def test_escapes_names_of_corpora(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "a" / "b", epochs=(), partial=True)
        names = ('x" onload="alert(1)', TURNED, r"\g<1>\1", r"$\frac$ {{ 7 * 7 }}")
        for name in names:
            target = folder / f"records/test-{name}"
            target.mkdir()
            shutil.copy(folder / "records/test/predictions.parquet", target)
        page = page_of(folder)  # whose attributes it checks
        assert len(page.ids) == len(set(page.ids))
        assert all(re.fullmatch(r"#[\w.-]+", reference) for reference in page.references)
        assert all(balanced(name) in page.text for name in names)

    @pytest.mark.parametrize("classes", [2, 9])
    def test_a_name_turns_only_itself_around(self, tmp_path: Path, classes: int) -> None:
        config = yaml.safe_load(CONFIG)
        config["data"]["init_args"]["path"] = TURNED
        names = [TURNED, *(f"group{c}" for c in range(1, classes))]
        folder = write_run(tmp_path / TURNED / "r", classes=names, epochs=())
        (folder / "fit.yaml").write_text(yaml.safe_dump(config, allow_unicode=True))
        page = page_of(folder)
        assert set(page.turned) == {"bdi"}
        assert len(page.turned) > 5
        assert "group1" in page.text
        assert r"\u202eevil" in page.text, "the configuration shows what it holds"

    def test_a_test_from_elsewhere_has_a_table_alone(self, folder: Path) -> None:
        record = folder / "records/test/attention_permutation.parquet"
        record.rename(record.with_name("my_own_test.parquet"))
        text = page_of(folder).text
        assert "My own test" in text
        assert "median_tvd" in text
        assert not (folder / "figures/test/my_own_test.svg").exists()


class TestErrors:
    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            ("", "there is no run folder"),
            ("records", "holds no records: run `attnlight test"),
        ],
    )
    def test_what_is_missing(self, folder: Path, broken: str, message: str) -> None:
        (folder / broken).rename(folder.with_name("elsewhere"))
        with pytest.raises(InputError, match=message):
            main([str(folder)])

    @pytest.mark.parametrize("name", ["test/predictions", "val/attention_permutation-1"])
    def test_a_damaged_record_is_named(self, folder: Path, name: str) -> None:
        record = folder / "records" / f"{name}.parquet"
        record.write_bytes(record.read_bytes()[:-9])
        with pytest.raises(InputError, match=f"{record} is not a readable record"):
            main([str(folder)])
        assert not (folder / "report").exists()

    def test_an_output_that_is_a_file(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "taken").touch()
        with pytest.raises(InputError, match="cannot be written"):
            main([str(folder), "--output", str(tmp_path / "taken")])


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], "torch matplotlib scipy"),
        pytest.param(["RUN"], "lightning wandb", marks=pytest.mark.slow),
    ],
)
def test_what_is_not_imported(folder: Path, arguments: list[str], absent: str) -> None:
    given = [str(folder) if word == "RUN" else word for word in arguments]
    program = (
        "import sys\nfrom attnlight.__main__ import main\n"
        f"try:\n    main(['report', *{given!r}])\nexcept SystemExit:\n    pass\n"
        f"print('loaded:', *sorted(set({absent!r}.split()) & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_a_record_kept_in_part_has_what_can_be_made_of_it(folder: Path, tmp_path: Path) -> None:
    path = folder / "records/test/attention_permutation.parquet"
    table = pq.read_table(path)
    pq.write_table(table.select(["index", "position", "prediction", "median_tvd"]), path)
    assert main([str(folder), "--output", str(tmp_path / "report")]) == 0
    report = tmp_path / "report"
    summary = (report / "summary.csv").read_text()
    assert "median_tvd" in summary
    assert "flip_rate" not in summary
    drawn = {picture.stem for picture in (report / "figures/test").glob("*.svg")}
    assert drawn == {"predictions"}
