"""The documentation's site answers questions, finds every test, and requests nothing elsewhere."""

import asyncio
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from tests.commands import ROOT
from tests.report.test_browser import CHROMIUM, Call, browse, value
from tests.test_configs import interpretability_tests

TEXTS = yaml.safe_load((ROOT / "attnlight/figures/texts.yaml").read_text(encoding="utf-8"))
QUESTIONS = yaml.safe_load((ROOT / "tests/questions.yaml").read_text(encoding="utf-8"))
FOUND = "[...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))"
# What stands wider than the window, without a box of its own that scrolls.
WIDE = """(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)()"""


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_every_test_has_a_page_of_the_same_sections() -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in ROOT.glob("docs/tests/*.md")}
    assert pages.keys() == {snake(name) for name in interpretability_tests()}
    for name, page in pages.items():
        assert snake(re.match(r"# `(\w+)`\n", page)[1]) == name  # type: ignore[index]
        for section in ("Definition", "Cost", "Known criticism"):
            assert f"\n## {section}\n" in page, (name, section)
        assert "$$" in page or name == "texts"


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked["page"])
def test_a_question_is_answered_where_it_should_be(asked: dict[str, str]) -> None:
    text = (ROOT / f"docs/{asked['page']}.md").read_text(encoding="utf-8")
    (section,) = re.findall(
        rf"^#+ {re.escape(asked['heading'])}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert asked["answer"] in " ".join(section.split())


def test_conf_and_what_it_needs_are_small() -> None:
    files = [ROOT / "docs/conf.py", ROOT / "docs/page_of_test.py"]
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= 150


def build(docs: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(
        [*command, str(docs), str(out)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT / "docs", out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_a_broken_link_or_anchor_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# A page\n\n[a](index.md#no) [b](no.md) [c](#none)\n")
    plain = ["-C", "-D", "extensions=myst_parser", "-D", "myst_heading_anchors=4", "-W", "-n"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *plain, "-q", str(tmp_path), str(tmp_path / "out")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_search_finds_every_test_and_nothing_is_requested(site: Path, tmp_path: Path) -> None:
    async def visit(call: Call) -> None:
        for name, told in TEXTS.items():
            address = f"{(site / 'search.html').as_uri()}?q={quote(told['question'])}"
            await call("Page.navigate", url=address)
            for _ in range(100):
                found = await value(call, FOUND)
                if any(f"tests/{name}.html" in link for link in found or ()):
                    break
                await asyncio.sleep(0.1)
            else:
                pytest.fail(f"{told['question']!r} finds {found}")
        for width, page in product((390, 1280), ("index", "verdict", "tests/decision_flip", "api")):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            await call("Emulation.setDeviceMetricsOverride", **size)
            address = (site / f"{page}.html").as_uri()
            await call("Page.navigate", url=address)
            for _ in range(100):
                if await value(call, "document.readyState + location.href") == f"complete{address}":
                    break
                await asyncio.sleep(0.1)
            assert await value(call, WIDE) == 0, (width, page)

    events = browse(site / "index.html", visit, tmp_path)
    requests = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    assert len(requests) > 10
    assert not [url for url in requests if not url.startswith(("file:", "data:"))]
