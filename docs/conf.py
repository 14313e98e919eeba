"""Sphinx's configuration of the documentation's site, which `./launch.sh check` builds."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))
from page_of_test import page_of_test

PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"].get("Repository", "")

project = html_title = PROJECT["name"]
author = copyright = PROJECT["authors"][0]["name"]
release = PROJECT["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["results_page"]
html_theme = "furo"
html_math_renderer = "mathml"
html_static_path, html_css_files = ["_static"], ["site.css"]
html_theme_options = {"source_repository": REPOSITORY} if REPOSITORY else {}
html_show_sphinx = html_copy_source = False
html_show_search_summary = False  # which reads the pages again, and cannot from a disk
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # groups of docs/performance.md are of the third level
default_role = "code"  # as backticks of Markdown
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
napoleon_use_ivar = True
# Names of other packages, whose own sites would have to be asked.
nitpick_ignore_regex = [(r"py:.*", r"(?!attnlight\.).*")]


def read_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Complete a page before it is parsed: the README's text, a test's, and links for the site."""
    text = source[0]
    if name == "index":
        readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"\]\((?!\w+:)", "](../", readme).replace("](../docs/", "](") + text
    if name == "results":
        text += "\n```{toctree}\n:hidden:\n:glob:\n\nresults/*\n```\n"
    if name.startswith("tests/"):
        text = page_of_test(name.removeprefix("tests/"), text)
    folder = (DOCS / name).parent
    source[0] = re.sub(
        r"(?<!!)\[((?:[^][]|`[^`]*`)*)\]\((?!\w+:)([^)#]+)(#[^)]*)?\)",
        lambda link: link_of_site(link, folder),
        text,
    )


def link_of_site(link: re.Match[str], folder: Path) -> str:
    """A link to a page or notebook as it is; to another file its address, if the repository's is known."""
    text, target, anchor = link[1], link[2], link[3] or ""
    file = Path(os.path.normpath(folder / target))
    if file == DOCS.parent / "README.md":
        return f"[{text}]({os.path.relpath(DOCS / 'index.md', folder)}{anchor})"
    if file.is_relative_to(DOCS) or file.suffix == ".ipynb" or not file.exists():
        return link[0]  # the site keeps notebooks; one that leads nowhere ends the build
    place = file.relative_to(DOCS.parent)
    return f"[{text}]({REPOSITORY}/blob/main/{place})" if REPOSITORY else text


def visit_math(translator: HTML5Translator, node: nodes.Element) -> None:
    """Write a formula as MathML, which needs no script."""
    block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block=block)
    after = '<mo rspace=".17em">&ApplyFunction;'  # the space of TeX after the name of a function
    formula = formula.replace("<mo>&ApplyFunction;", after)
    translator.body.append(
        f'<div style="overflow-x: auto; padding: .6em 0">{formula}</div>' if block else formula
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Connect the functions of this file."""
    app.connect("source-read", read_page)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
