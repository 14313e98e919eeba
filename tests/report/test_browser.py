"""The page in headless Chromium: from disk, with hostile text, by keyboard, in both themes."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_report import ATTACK, TURNED, page_of
from tests.report.fake import write_run
from tests.report.test_texts import row, write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
# Smallest contrast of text and what lies behind it, over the text that is shown.
CONTRAST = """(() => {
  const parse = c => { const m = c.match(/[\\d.]+/g).map(Number);
    const s = c.startsWith('color(') ? 255 : 1;
    return [m[0] * s, m[1] * s, m[2] * s, m.length > 3 ? m[3] : 1]; };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255;
    return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b; };
  let least = [99, ''];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.checkVisibility()
        || element.closest('title')) continue;
    const chain = []; for (let e = element; e; e = e.parentElement) chain.unshift(e);
    let ground = [255, 255, 255, 1];
    for (const e of chain) ground = over(parse(getComputedStyle(e).backgroundColor), ground);
    const style = getComputedStyle(element);
    const ink = over(parse(element.closest('svg') ? style.fill : style.color), ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < least[0]) least = [ratio, walk.currentNode.data.trim().slice(0, 40)];
  }
  return least; })()"""
FOCUS = """(() => { const e = document.activeElement;
  return [e.tagName, e.dataset.v || '', getComputedStyle(e, '::after').content]; })()"""

NOISE = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
Call = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "sst" / "seed7"
    write_run(folder, classes=[ATTACK, TURNED])
    words = [ATTACK, TURNED, "</p><script>document.title='hit'</script>", "&amp;", "plain", "word"]
    two, marks = [0.25, 0.75], {"evidence": [0, 0, 1, 0, 0, 0]}
    rows = [row(n, tokens=words, probabilities=two, label=n % 2, **marks) for n in range(40)]
    write(folder / "records/test/texts.parquet", rows)
    started = time.process_time()
    page_of(folder)
    assert time.process_time() - started < 20
    return folder / "report" / "index.html"


def browse(page: Path, visit: Callable[[Call], Awaitable[object]], folder: Path) -> list[Any]:
    """Open a page over the DevTools protocol, visit it, and return all its events."""
    aiohttp = pytest.importorskip("aiohttp")
    events: list[Any] = []

    process = subprocess.Popen(
        [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu"),
            *("--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"),
        ],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )

    async def session() -> None:
        told = folder / "DevToolsActivePort"
        for _ in range(600):
            if told.is_file() and len(told.read_text().split()) == 2:
                break
            await asyncio.sleep(0.1)
        port = told.read_text().split()[0]
        async with aiohttp.ClientSession() as client:
            async with client.get(f"http://127.0.0.1:{port}/json") as answer:
                targets = await answer.json()
            target = next(entry for entry in targets if entry["type"] == "page")
            address = target["webSocketDebuggerUrl"]
            async with client.ws_connect(address, max_msg_size=0) as socket:
                number = 0

                async def call(method: str, **params: object) -> dict[str, Any]:
                    nonlocal number
                    number += 1
                    await socket.send_json({"id": number, "method": method, "params": params})
                    while True:
                        message = json.loads((await socket.receive()).data)
                        if message.get("id") == number:
                            assert "error" not in message, message
                            return message["result"]  # type: ignore[no-any-return]
                        events.append(message)

                for domain in ("Network", "Log", "Runtime", "Page"):
                    await call(f"{domain}.enable")
                await call("Page.navigate", url=page.as_uri())
                while not any(e["method"] == "Page.loadEventFired" for e in events):
                    await call("Runtime.evaluate", expression="1")
                    await asyncio.sleep(0.1)
                await visit(call)

    try:
        asyncio.run(session())
    finally:
        process.kill()
        process.wait()
    return events


async def value(call: Call, expression: str) -> Any:
    answer = await call("Runtime.evaluate", expression=expression, returnByValue=True)
    return answer["result"].get("value")


async def press(call: Call, key: str, code: int, **typed: str) -> None:
    keys = {"key": key, "code": key, "windowsVirtualKeyCode": code}
    await call("Input.dispatchKeyEvent", type="keyDown", **keys, **typed)
    await call("Input.dispatchKeyEvent", type="keyUp", **keys)


def test_from_disk_hostile_text_does_nothing(page: Path, tmp_path: Path) -> None:
    async def visit(call: Call) -> None:
        assert await value(call, "document.title") == "sst/seed7 · attnlight"
        assert await value(call, "document.scripts.length + document.images.length") == 0
        assert await value(call, "document.querySelectorAll('.text span').length") > 20

    events = browse(page, visit, tmp_path)
    sent = [event for event in events if event["method"] == "Network.requestWillBeSent"]
    assert [event["params"]["request"]["url"] for event in sent] == [page.as_uri()]
    assert [event for event in events if event["method"] in NOISE] == []


def test_layers_and_scores_by_keyboard_alone(page: Path, tmp_path: Path) -> None:
    async def visit(call: Call) -> None:
        seen = []
        for _ in range(400):
            await press(call, "Tab", 9)
            tag, scores, shown = await value(call, FOCUS)
            seen.append(tag)
            if tag == "SPAN":
                assert scores.startswith("attention 0.")
                assert scores in shown
                break
        assert {"A", "SUMMARY", "INPUT", "SPAN"} <= set(seen)
        # From the first layer the arrow keys choose the next one, and the colour follows.
        share = (
            "Array.from(document.querySelectorAll('.text span'), "
            "e => getComputedStyle(e).getPropertyValue('--share')).join()"
        )
        await value(call, "document.querySelector('fieldset input').focus()")
        before = await value(call, share)
        await press(call, "ArrowRight", 39)
        checked = await value(call, "document.querySelector('fieldset input:checked').className")
        assert checked != "by-attention"
        assert await value(call, share) != before

    browse(page, visit, tmp_path)


def test_the_link_of_a_text_opens_it_by_keyboard(page: Path, tmp_path: Path) -> None:
    async def visit(call: Call) -> None:
        link = "document.querySelectorAll('section dd a')[3]"
        await value(call, f"{link}.closest('details').open = true; {link}.focus()")
        shown = "document.querySelector(':target')?.checkVisibility() ?? false"
        assert not await value(call, shown)
        await press(call, "Enter", 13, text="\r")
        assert await value(call, shown)
        assert await value(call, f"location.hash == {link}.hash")
        # The choice of colours, which stays at the top, does not cover it.
        place = "document.querySelector(':target').getBoundingClientRect().top"
        bar = "document.querySelector('fieldset').getBoundingClientRect().bottom"
        assert await value(call, f"{place} > {bar}")

    browse(page, visit, tmp_path)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_points_of_figures_lead_to_texts(page: Path, tmp_path: Path, theme: str) -> None:
    points = "document.querySelectorAll('figure svg a')"
    shown = "document.querySelector(':target')?.checkVisibility() ?? false"

    async def visit(call: Call) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": theme}]
        await call("Emulation.setEmulatedMedia", features=scheme)
        assert await value(call, f"{points}.length") > 20
        # The tab key comes from one point to the next, and each is seen to have the focus.
        await value(call, f"{points}[4].focus({{focusVisible: true}})")
        await press(call, "Tab", 9)
        assert await value(call, f"document.activeElement == {points}[5]")
        assert await value(call, f"getComputedStyle({points}[5]).outlineStyle") == "solid"
        await press(call, "Enter", 13, text="\r")
        assert await value(call, f"location.hash == {points}[5].getAttribute('href')")
        assert await value(call, shown)
        # A click on the last point, on top of others, does the same.
        last = f"{points}[{points}.length - 1]"
        await value(call, f"{last}.scrollIntoView({{block: 'center'}})")
        box = f"(b => [b.x + b.width / 2, b.y + b.height / 2])({last}.getBoundingClientRect())"
        x, y = await value(call, box)
        mouse = {"x": x, "y": y, "button": "left", "clickCount": 1}
        await call("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        await call("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
        assert await value(call, f"location.hash == {last}.getAttribute('href')")
        assert await value(call, shown)
        fill = f"getComputedStyle({last}.querySelector('use')).fill"
        ink = f"getComputedStyle({last}.querySelector('use')).stroke"
        assert await value(call, fill) != await value(call, ink)

    events = browse(page, visit, tmp_path)
    assert [event for event in events if event["method"] in NOISE] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast(page: Path, tmp_path: Path, theme: str) -> None:
    async def visit(call: Call) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": theme}]
        await call("Emulation.setEmulatedMedia", features=scheme)
        await value(call, "document.querySelectorAll('details').forEach(d => d.open = true)")
        least, text = await value(call, CONTRAST)
        assert least >= 4.5, text

    browse(page, visit, tmp_path)


def test_size(page: Path) -> None:
    assert page.stat().st_size < 8e6
