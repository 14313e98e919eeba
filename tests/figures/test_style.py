"""Figures as files and on a page."""

import io
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
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
from attnlight.report import draw, save_figure
from tests.report.fake import rows_of

FILL_UP = """
import resource, sys
from pathlib import Path
from attnlight.errors import InputError
from attnlight.report import draw, save_figure
from tests.report.fake import rows_of

figure = draw("predictions", rows_of("predictions"))
save_figure(figure, Path(sys.argv[1], "warm"))
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
try:
    save_figure(figure, Path(sys.argv[1], "x"))
except InputError as error:
    sys.exit(f"InputError: {error}")
"""


def test_the_style_sheet_has_the_colours_of_the_page() -> None:
    with styled():
        found = {name: mpl.rcParams[name] for name in ("text.color", "xtick.color", "grid.color")}
        assert found == {"text.color": INK, "xtick.color": MUTED, "grid.color": GRID}
        assert mpl.rcParams["figure.facecolor"] == mpl.rcParams["axes.facecolor"] == PAPER
        assert mpl.rcParams["axes.axisbelow"] is True


class TestFiles:
    def test_are_three_and_alike_every_time(self, tmp_path: Path) -> None:
        found = []
        for folder in ("a", "b"):
            figure = draw("predictions", rows_of("predictions"))
            assert figure is not None
            paths = save_figure(figure, tmp_path / folder / "bin-0.25")
            assert [p.name for p in paths] == ["bin-0.25.svg", "bin-0.25.pdf", "bin-0.25.png"]
            assert sorted((tmp_path / folder).iterdir()) == sorted(paths)
            found.append([path.read_bytes() for path in paths])
        assert found[0] == found[1]
        svg, pdf, png = found[0]
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert pdf.startswith(b"%PDF")
        assert png.startswith(b"\x89PNG")
        assert b"/Subtype /Type3" not in pdf  # fonts that publishers refuse
        assert not re.search(rb"20\d\d-\d\d-\d\d|CreationDate", svg + pdf + png)

    @pytest.mark.parametrize("test", ["predictions", "attention_permutation"])
    def test_are_what_matplotlib_writes(self, test: str, tmp_path: Path) -> None:
        """`Figure.savefig`, which draws twice, ends with the same bytes."""
        figure, other = (draw(test, rows_of(test)) for _ in range(2))
        assert figure is not None
        assert other is not None
        paths = save_figure(figure, tmp_path / "x")
        figure_bytes(other, "png", dpi=50)  # lays it out
        with styled():
            for path in paths:
                kind = path.suffix[1:]
                expected = tmp_path / f"y.{kind}"
                other.savefig(expected, metadata=_METADATA[kind])
                assert path.read_bytes() == expected.read_bytes()

    def test_a_figure_is_left_as_it_was(self, tmp_path: Path) -> None:
        figure = draw("predictions", rows_of("predictions"))
        assert figure is not None
        canvas, dpi = figure.canvas, figure.get_dpi()
        save_figure(figure, tmp_path / "x")
        assert figure.canvas is canvas
        assert figure.get_dpi() == dpi
        with Image.open(io.BytesIO(figure_bytes(figure, "png", dpi=50))) as image:
            size = [round(50 * inches) for inches in figure.get_size_inches()]
            assert list(image.size) == pytest.approx(size, abs=1)

    def test_pdf_embeds_one_font(self, tmp_path: Path) -> None:
        figure = draw("attention_permutation", rows_of("attention_permutation"))
        assert figure is not None
        pdf = save_figure(figure, tmp_path / "x")[1].read_bytes()
        assert pdf.count(b"/FontFile2") == 1
        assert "shuffling" in figure.axes[0].get_xlabel()  # which has a ligature

    def test_a_full_disk_leaves_nothing(self, tmp_path: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-c", FILL_UP, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        expected = f"InputError: {tmp_path}/x.svg cannot be written: File too large."
        assert done.stderr.strip().splitlines()[-1] == expected
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "warm.pdf",
            "warm.png",
            "warm.svg",
        ]

    def test_a_folder_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "figures").touch()
        figure = draw("predictions", rows_of("predictions"))
        assert figure is not None
        with pytest.raises(InputError, match=r"figures/x\.svg cannot be written"):
            save_figure(figure, tmp_path / "figures" / "x")


class TestInline:
    def svg(self, prefix: str = "one", classes: list[str] | None = None) -> str:
        figure = draw("attention_permutation", rows_of("attention_permutation"), classes)
        assert figure is not None
        return inline_svg(figure, prefix, 'a "caption" <of> & sorts')

    def test_is_one_element_with_its_label(self) -> None:
        named = self.svg().replace("<svg ", '<svg xmlns:xlink="x" ', 1)
        element = ElementTree.fromstring(named)
        assert element.tag == "svg"
        assert element.get("role") == "img"
        assert element.get("aria-label") == 'a "caption" <of> & sorts'
        assert element.get("viewBox") == "0 0 374.4 280.8"

    def test_follows_the_colours_of_the_page(self) -> None:
        svg = self.svg()
        assert INK not in svg
        assert set(re.findall(r"var\((--\w+)\)", svg)) == {"--ink", "--muted", "--line", "--paper"}
        assert "font-family" not in svg
        assert "<style" not in svg

    def test_two_on_a_page_share_no_id(self) -> None:
        found = [set(re.findall(r'\bid="([^"]+)"', self.svg(prefix))) for prefix in ("a", "b")]
        assert found[0]
        assert found[0].isdisjoint(found[1])
        for prefix, ids in zip(("a", "b"), found, strict=True):
            used = re.findall(r'(?:href="#|url\(#)([^")]+)', self.svg(prefix))
            assert used
            assert set(used) <= ids

    @pytest.mark.parametrize("name", ["nul\0", "\x1b[31mred", "\uffff", "\ud800", "tab\tand\nline"])
    def test_what_xml_cannot_hold_is_replaced(self, name: str) -> None:
        figure = draw("predictions", rows_of("predictions"), [name, "good"])
        assert figure is not None
        assert ElementTree.fromstring(figure_bytes(figure, "svg", fonttype="none")).tag
        assert figure_bytes(figure, "png", dpi=20)

    def test_text_is_text_and_escaped(self) -> None:
        svg = self.svg(classes=["<b>bad</b>", "good & fine"])
        assert "predicted &lt;b&gt;bad&lt;/b&gt;" in svg
        assert "predicted good &amp; fine" in svg
        assert "Maximum attention weight" in svg
