"""Figures as files and on a page."""

import io
import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from PIL import Image

from attnlight.errors import InputError
from attnlight.figures.style import (
    _METADATA,
    GRID,
    INK,
    MUTED,
    PAPER,
    figure_bytes,
    inline_svg,
    styled,
)
from attnlight.report import save_figure
from tests.damage import files_of_at_most
from tests.report.fake import drawn, rows_of

pytestmark = pytest.mark.usefixtures("pictures")


def test_the_style_sheet_has_the_colours_of_the_page() -> None:
    with styled():
        found = {name: mpl.rcParams[name] for name in ("text.color", "xtick.color", "grid.color")}
        assert found == {"text.color": INK, "xtick.color": MUTED, "grid.color": GRID}
        assert mpl.rcParams["figure.facecolor"] == mpl.rcParams["axes.facecolor"] == PAPER
        assert mpl.rcParams["axes.axisbelow"] is True


class TestFiles:
    @pytest.mark.parametrize("test", ["predictions", "head_ablation"])  # lines, and an image
    def test_are_three_and_alike_every_time(self, tmp_path: Path, test: str) -> None:
        found = []
        for folder in ("a", "b"):
            figure = drawn(test, rows_of(test))
            paths = save_figure(figure, tmp_path / folder / "bin-0.25")
            assert [p.name for p in paths] == ["bin-0.25.svg", "bin-0.25.pdf", "bin-0.25.png"]
            assert sorted((tmp_path / folder).iterdir()) == sorted(paths)
            found.append([path.read_bytes() for path in paths])
        assert found[0] == found[1]
        svg, pdf, png = found[0]
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert (pdf[:4], png[:4]) == (b"%PDF", b"\x89PNG")
        assert b"/Subtype /Type3" not in pdf  # fonts that publishers refuse
        assert not re.search(rb"20\d\d-\d\d-\d\d|CreationDate", svg + pdf + png)

    def test_are_what_matplotlib_writes_and_leave_the_figure_as_it_was(
        self, tmp_path: Path
    ) -> None:
        """`Figure.savefig`, which draws twice, ends with the same bytes."""
        test = "attention_permutation"
        figure, other = (drawn(test, rows_of(test)) for _ in range(2))
        canvas, dpi = figure.canvas, figure.get_dpi()
        paths = save_figure(figure, tmp_path / "x")
        assert (figure.canvas, figure.get_dpi()) == (canvas, dpi)
        with Image.open(io.BytesIO(figure_bytes(other, "png", dpi=50))) as image:  # lays it out
            size = [round(50 * inches) for inches in other.get_size_inches()]
            assert list(image.size) == pytest.approx(size, abs=1)
        with styled():
            for path in paths:
                expected = tmp_path / f"y{path.suffix}"
                other.savefig(expected, metadata=_METADATA[path.suffix[1:]])
                assert path.read_bytes() == expected.read_bytes()
        assert paths[1].read_bytes().count(b"/FontFile2") == 1, "one font in a PDF"
        assert "shuffling" in figure.axes[0].get_xlabel()  # which has a ligature

    @pytest.mark.filterwarnings("error")
    def test_a_figure_without_axes_is_drawn_without_a_warning(self) -> None:
        with styled():
            empty = Figure(layout="constrained")
        assert ElementTree.fromstring(figure_bytes(empty, "svg")).tag.endswith("svg")

    def test_a_full_disk_leaves_nothing(self, tmp_path: Path) -> None:
        figure = drawn("predictions", rows_of("predictions"))
        told = rf"{tmp_path}/x\.svg cannot be written: File too large"
        with files_of_at_most(2_000), pytest.raises(InputError, match=told):
            save_figure(figure, tmp_path / "x")
        assert list(tmp_path.iterdir()) == []


@cache
def svg(prefix: str = "one") -> str:
    test, classes = "attention_permutation", ["<b>bad</b>", "good & fine"]
    return inline_svg(drawn(test, rows_of(test), classes), prefix, 'a "caption" <of> & sorts')


class TestInline:
    def test_is_one_element_with_its_label_and_text_that_is_escaped(self) -> None:
        element = ElementTree.fromstring(svg().replace("<svg ", '<svg xmlns:xlink="x" ', 1))
        found = [element.tag, *map(element.get, ("role", "aria-label", "viewBox"))]
        assert found == ["svg", "img", 'a "caption" <of> & sorts', "0 0 374.4 280.8"]
        words = ("predicted &lt;b&gt;bad&lt;/b&gt;", "good &amp; fine", "Maximum attention")
        assert all(part in svg() for part in words)

    def test_follows_the_colours_of_the_page(self) -> None:
        variables = {"--ink", "--muted", "--line", "--paper"}
        assert set(re.findall(r"var\((--\w+)\)", svg())) == variables
        assert not [word for word in (INK, "font-family", "<style") if word in svg()]

    def test_two_on_a_page_share_no_id(self) -> None:
        found = [set(re.findall(r'\bid="([^"]+)"', svg(prefix))) for prefix in ("a", "b")]
        assert found[0]
        assert found[0].isdisjoint(found[1])
        for prefix, ids in zip(("a", "b"), found, strict=True):
            used = re.findall(r'(?:href="#|url\(#)([^")]+)', svg(prefix))
            assert used
            assert set(used) <= ids

    @pytest.mark.parametrize("name", ["nul\0", "\x1b[31mred", "\uffff", "\ud800", "tab\tand\nline"])
    def test_what_xml_cannot_hold_is_replaced(self, name: str) -> None:
        figure = drawn("predictions", rows_of("predictions"), [name, "good"])
        assert ElementTree.fromstring(figure_bytes(figure, "svg", fonttype="none")).tag
        assert figure_bytes(figure, "png", dpi=20)
