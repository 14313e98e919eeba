"""Templates escape what they print, without being told."""

import jinja2
import pytest

from attnlight.figures.tables import Table
from attnlight.report.markup import render, table_html

TURNED = "\u202e<b>\u2069"


def test_a_template_that_lacks_a_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="title"):
        render("study.html.jinja")


def test_names_turn_only_themselves_around() -> None:
    html = table_html(Table(TURNED, ["a", TURNED], [["1", TURNED]]))
    assert html.count("<bdi>\u202e&lt;b&gt;\u202c</bdi>") == 3, "title, heading and cell"
    assert 'data-label="&lt;b&gt;"' in html, "there is no isolate within an attribute"
    assert "\u2069" not in html
    assert "<b>" not in html
