"""`attnlight report`: from a run folder to a page."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from textwrap import fill
from typing import Any

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
from tests.benchmarks.processes import modules_after
from tests.commands import Printed
from tests.report.fake import CONFIG, write_run

VOID = {"br", "input", "meta"}
TURNED = "\u202eevil\u2069\u202e"  # what the end of an isolate would let out
NINE = [f"group{number}" for number in range(9)]
ATTACK = "\"><img src=x onerror=y><script>alert('x')</script>&amp;"


class Page(HTMLParser):
    """Text and attributes of a page whose elements must all be closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.text, self.scripts, self.data = "", 0, ""
        self.turned: list[str] = []
        self.html = path.read_text(encoding="utf-8")
        self.feed(self.html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.scripts += tag == "script"
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
        if self.open[-1:] == ["script"]:
            self.data += data if self.scripts == 1 else ""
            return
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
    def test_are_where_the_run_is_and_the_same_elsewhere(
        self, folder: Path, tmp_path: Path, printed: Printed
    ) -> None:
        before = files(folder)
        main([str(folder), "--output", str(tmp_path / "out")])
        assert files(folder) == before
        said = printed("report", str(folder))
        assert said == f"{fill(verdict_of(folder).sentence, 80)}\n{folder}/report/index.html\n"
        names = ["test/predictions", "test/attention_permutation", "val/curves-metrics"]
        names += ["val/curves-predictions", "val/curves-attention_permutation"]
        pictures = {f"figures/{name}.{kind}" for name in names for kind in ("svg", "pdf", "png")}
        reports = {"index.html", "summary.csv", "summary.md", "verdict.json"}
        elsewhere = files(tmp_path / "out")
        assert elsewhere.keys() == pictures | reports
        own = {name.removeprefix("report/"): content for name, content in files(folder).items()}
        assert {name: own[name] for name in elsewhere} == elsewhere

    def test_of_several_runs(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("attnlight.report.page.save_figure", lambda figure, stem: [])
        other, output = write_run(tmp_path / "a/sst/seed8", epochs=()), str(tmp_path / "out")
        main([str(folder), str(other), "--output", output])
        assert all((tmp_path / f"out/sst/seed{n}/index.html").is_file() for n in (7, 8))
        with pytest.raises(InputError, match="two runs would be written to one folder"):
            main([str(folder), str(folder), "--output", output])


def page_of(folder: Path) -> Page:
    """The page of a run, without the files of its figures, which take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlight.report.page.save_figure", lambda figure, stem: [])
        main([str(folder)])
    return Page(folder / "report" / "index.html")


def test_a_whole_page(folder: Path) -> None:
    page = page_of(folder)
    # It holds everything itself.
    assert not page.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert page.references
    assert all(reference.startswith("#") for reference in page.references)
    assert "@import" not in page.html
    assert page.html.count("url(") == page.html.count("url(#") > 0
    assert len(page.ids) == len(set(page.ids))
    assert "default-src 'none'" in page.html
    for record in stored_records(folder / "records"):
        if record.epoch is None:
            for found in summarise(record).means.values():
                assert f"{found.mean:.3f}[{found.low:.3f}, {found.high:.3f}]" in page.text
    for said in (
        "0.625",  # test/accuracy of the CSV logger
        "BiLSTM with additive attention · SetFit/sst5 · 60 test texts",
        "Does shuffling attention change the prediction?",
        "Jain & Wallace (2019), section 4.2.1",
        f"attnlight report {folder}",
        "--experiment sst --run seed7-again",
        f"numpy{np.__version__}",
        "configuration written bylightning.pytorch==2.6.6",
    ):
        assert said in page.text
    assert "<title>sst/seed7 · attnlight</title>" in page.html
    # Nothing is partial, and there are no texts that points of figures could lead to.
    assert not [word for word in ("Partial", "Hollow points", "Some texts") if word in page.text]
    assert '<svg role="group"' not in page.html


class TestPage:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"epochs": (), "partial": True}, ["Partial record: not the whole split."] * 2),
            ({"stages": ()}, ["Not tested yet: run `attnlight test`.", "While training"]),
            ({"epochs": (), "stages": ("val",)}, ["On the validation split"]),
            ({"epochs": (), "classes": NINE}, ["By predicted class (9)", *["group8"] * 6]),
        ],
    )
    def test_says_what_kind_of_run_it_is(
        self, tmp_path: Path, options: dict[str, Any], expected: list[str]
    ) -> None:
        text = page_of(write_run(tmp_path / "a" / "b", **options)).text
        assert all(text.count(said) >= expected.count(said) for said in expected)

    @pytest.mark.parametrize("classes", [2, 9])
    def test_what_comes_from_files_is_text_that_turns_only_itself(
        self, tmp_path: Path, classes: int
    ) -> None:
        config = yaml.safe_load(CONFIG) | {"seed_everything": ATTACK}
        config["model"]["class_path"], config["data"]["init_args"]["path"] = ATTACK, TURNED
        names = [f"{ATTACK}{TURNED}", *NINE[1:classes]]
        folder = write_run(tmp_path / f"<b>x{TURNED}" / "a&b;<i>", classes=names, epochs=())
        text = yaml.safe_dump(config, allow_unicode=True)
        (folder / "fit.yaml").write_text(f"# {ATTACK}\n{text}")
        (folder / "logs/version_1/metrics.csv").write_text('epoch,"test/<img src=x>"\n0,0.5\n')
        corpora = ('x" onload="alert(1)', TURNED, r"\g<1>\1", r"$\frac$ {{ 7 * 7 }}")
        records = [f"test-{name}/predictions" for name in corpora[: 4 if classes == 2 else 0]]
        for record in ("test/<u>y", "val/<u>y-0", *records):
            target = folder / f"records/{record}.parquet"
            target.parent.mkdir(exist_ok=True)
            shutil.copy(folder / "records/test/predictions.parquet", target)
        page = page_of(folder)  # whose attributes it checks
        assert not page.tags & {"script", "img", "b", "i", "u"}
        assert all(name in page.text for name in (ATTACK, "<u>y", "group1"))
        assert len(page.ids) == len(set(page.ids))
        assert all(re.fullmatch(r"#[\w.-]+", reference) for reference in page.references)
        assert all(balanced(record[5:-12]) in page.text for record in records)
        assert set(page.turned) == {"bdi"}
        assert len(page.turned) > 5
        assert r"\u202eevil" in page.text, "the configuration shows what it holds"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("", "there is no trained run"),
        ("records", "holds no records of measures: run `attnlight test"),
        ("records/test/predictions.parquet", "predictions.parquet is not a readable record"),
        ("records/val/attention_permutation-1.parquet", "-1.parquet is not a readable record"),
        ("report", "cannot be written"),
    ],
)
def test_what_is_missing_or_damaged_is_named(folder: Path, broken: str, message: str) -> None:
    path = folder / broken
    if path.suffix:
        path.write_bytes(path.read_bytes()[:-9])
    elif path.exists():
        path.rename(folder.with_name("elsewhere"))
    else:
        path.touch()
    with pytest.raises(InputError, match=message):
        main([str(folder)])
    assert not (folder / "report").is_dir()


@pytest.mark.slow
def test_what_is_not_imported(folder: Path) -> None:
    assert not modules_after("report", str(folder)) & {"lightning", "wandb"}


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
