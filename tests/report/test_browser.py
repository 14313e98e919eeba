"""The page in headless Chromium: from disk, with hostile text, by keyboard, in both themes."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from attnlight.cli.browse import main
from tests.cli.test_report import ATTACK, TURNED, page_of
from tests.report.fake import write_run
from tests.report.test_texts import row, write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("ATTNLIGHT_REQUIRE_DATA"),
    reason="no Chromium on this machine",
)
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
NOISE = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
Call = Callable[..., Awaitable[dict[str, Any]]]


def write_texts(folder: Path, first: int = 0) -> None:
    """A record of 40 hostile texts, of four items each, predicted by an affine readout."""
    words = [ATTACK, TURNED, "</p><script>document.title='hit'</script>", "&amp;", "plain", "word"]
    logits = np.array([[0.0, 2.0], [1.0, -1.0], [0.5, 0.0], [-1.0, 1.0]])
    rows = []
    for n in range(first, first + 40):
        weights = np.array([0.2, 0.4, 0.1, 0.3]) + n % 20 * np.array([0.01, -0.01, 0, 0])
        known = {"attention": [weights.tolist()], "item_logits": [logits.tolist()]}
        known |= {"evidence": [0, 0, 1, 0, 0, 0], "query": ["?"], "allowed": [0, 1]}
        layers = np.eye(6)[[*range(1, 6), 0]] * 0.75 + 0.25 / 6  # each token attends to the next
        maps = np.stack([np.full((2, 6, 6), 1 / 6), [layers, layers]])
        known |= {"maps": maps.ravel().tolist(), "maps_shape": [*maps.shape]}
        known |= {"maps_read": [1.0, *[0.0] * 5]}
        predicted = softmax(weights @ logits).tolist()
        rows.append(row(n, tokens=words, probabilities=predicted, label=n % 2, **known))
    write(folder / "records/test/texts.parquet", rows, classes=[ATTACK, TURNED])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "sst" / "seed7"
    write_run(folder, classes=[ATTACK, TURNED])
    write_texts(folder)
    page_of(folder)
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


STATE = """(() => { const at = s => document.querySelector(s)?.textContent ?? '';
  return [location.hash, at('.try-panel h3'), at('.predictions div span:last-child'), at('.moved'),
    document.querySelectorAll('.try-list li').length, document.activeElement.className]; })()"""


def test_what_if_by_keyboard_alone_from_disk(tmp_path: Path) -> None:
    """The only test of a browser that is not slow: hostile text does nothing, and keys do all."""
    write_texts(tmp_path / "sst" / "seed7")
    page = tmp_path / "page.html"
    main([str(tmp_path / "sst" / "seed7"), "--output", str(page)])

    async def visit(call: Call) -> None:
        assert await value(call, "document.title") == "sst/seed7 · attnlight"
        assert await value(call, "document.scripts.length + 10 * document.images.length") == 2
        for _ in range(400):
            await press(call, "Tab", 9)
            if "weight" in (state := await value(call, STATE))[5]:
                break
        own, moved = state[2:4]
        assert "moves by 0.000 (TVD), attention by 0.000" in moved
        for _ in range(3):
            await press(call, "PageUp", 33)
        now = "document.activeElement.getAttribute('aria-valuenow')"
        assert float(await value(call, now)) > 30
        raised = await value(call, STATE)
        assert "weight" in raised[5]
        assert raised[2] != own
        await press(call, "Delete", 46)
        assert float(await value(call, now)) == 0
        await press(call, "ArrowRight", 39)
        assert await value(call, "document.activeElement.parentElement.dataset.i") == "1"
        await press(call, "j", 74)
        assert (await value(call, STATE))[:2] == [
            "#text=1",
            r"Text 1: \u202eevil\u2069\u202e predicted, as in the corpus",
        ]
        await press(call, "k", 75)
        assert (await value(call, STATE))[0] == "#text=0"
        await value(call, "document.querySelector('.maps').open = true")
        await value(call, "document.querySelector('.maps canvas').focus()")
        said = "document.querySelector('.maps [role=status]').textContent"
        assert (await value(call, said)).endswith("with 0.792")
        await press(call, "ArrowDown", 40)
        assert (await value(call, said)).endswith("with 0.042")

    events = browse(page, visit, tmp_path / "profile")
    sent = [event for event in events if event["method"] == "Network.requestWillBeSent"]
    assert [event["params"]["request"]["url"] for event in sent] == [page.as_uri()]
    assert [event for event in events if event["method"] in NOISE] == []


@pytest.mark.slow
def test_texts_are_found_sorted_dragged_and_replaced(page: Path, tmp_path: Path) -> None:
    def choice(name: str, chosen: str) -> str:
        found = f"document.querySelector('#try [name={name}]')"
        return f"{found}.value = {chosen!r}, {found}.dispatchEvent(new Event('input'))"

    async def visit(call: Call) -> None:
        for name, chosen, count in (
            ("outcome", "wrong", 20),
            ("outcome", "right", 20),
            ("search", "no such word", 0),
            ("search", "plain", 20),
        ):
            await value(call, choice(name, chosen))
            assert (await value(call, STATE))[4] == count
        await value(call, choice("sort", "2"))
        shown = "Array.from(document.querySelectorAll('.try-list small'), e => e.textContent)"
        numbers = [float(text) for text in await value(call, shown)]
        assert numbers == sorted(numbers)
        for button, said in (
            ("uniform", "attention by"),
            ("worst case", "differs more"),
            ("model's own", "0.000"),
        ):
            found = f"[...document.querySelectorAll('.controls button')].find(b => b.textContent === {button!r})"
            assert said in await value(
                call, f"{found}.click(), document.querySelector('.moved').textContent"
            )
        await value(call, "document.querySelector('.weight').scrollIntoView({block: 'center'})")
        box = "(b => [b.x + b.width / 2, b.bottom, b.height])(document.querySelector('.weight').getBoundingClientRect())"
        x, bottom, height = await value(call, box)
        mouse = {"x": x, "button": "left", "buttons": 1, "clickCount": 1}
        await call("Input.dispatchMouseEvent", type="mousePressed", y=bottom - 2, **mouse)
        await call("Input.dispatchMouseEvent", type="mouseMoved", y=bottom - height / 2, **mouse)
        await call("Input.dispatchMouseEvent", type="mouseReleased", y=bottom - height / 2, **mouse)
        now = await value(call, "document.querySelector('.weight').getAttribute('aria-valuenow')")
        assert float(now) == pytest.approx(25, abs=3), "heights are square roots"

    assert [event for event in browse(page, visit, tmp_path) if event["method"] in NOISE] == []


@pytest.mark.slow
def test_two_runs_show_the_texts_that_both_have(tmp_path: Path) -> None:
    folders = [tmp_path / "sst" / name for name in ("a", "b")]
    for folder, first in zip(folders, (0, 10), strict=True):
        write_texts(folder, first)
    page = tmp_path / "both.html"
    main([*map(str, folders), "--output", str(page)])
    shown = "Array.from(document.querySelectorAll('.try-panel'), e => e.querySelector('{}').textContent)"

    async def visit(call: Call) -> None:
        assert (await value(call, STATE))[4] == 30
        assert await value(call, shown.format("h4")) == ["sst/a", "sst/b"]
        await press(call, "j", 74)
        titles = await value(call, shown.format("h3"))
        assert titles[0] == titles[1]
        assert titles[0].startswith("Text 11: ")
        other = "document.querySelectorAll('.controls button')[3].click()"
        said = await value(call, f"{other}, document.querySelector('.moved').textContent")
        assert said.endswith("This is the attention of sst/b.")

    events = browse(page, visit, tmp_path / "profile")
    assert [event for event in events if event["method"] in NOISE] == []


@pytest.mark.slow
def test_the_list_shows_which_word_is_tagged(tmp_path: Path) -> None:
    words = [f"w{place}" for place in range(30)]
    shared = {"tokens": words, "items": [[n, n + 1] for n in range(30)]}
    shared |= {"attention": [[1 / 30] * 30], "probabilities": [0.5, 0.5], "label": 0}
    rows = [row(3, position=place, **shared) for place in (0, 20)]
    write_run(tmp_path / "run", classes=["O", "B"])
    write(tmp_path / "run/records/test/texts.parquet", rows, classes=["O", "B"])
    page_of(tmp_path / "run")

    async def visit(call: Call) -> None:
        entries = "Array.from(document.querySelectorAll('.try-list li button'), e => e.innerHTML)"
        first, second = await value(call, entries)
        assert "<b>w0</b> w1" in first
        assert "w13" not in second
        assert "w14 w15 w16 w17 w18 w19 <b>w20</b> w21" in second
        counted = "document.querySelector('.try-list [role=status]').textContent"
        assert await value(call, counted) == "2 of 2 words"

    events = browse(tmp_path / "run/report/index.html", visit, tmp_path / "profile")
    assert [event for event in events if event["method"] in NOISE] == []


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_points_of_figures_lead_to_texts(page: Path, tmp_path: Path, theme: str) -> None:
    points = "document.querySelectorAll('figure svg a')"
    shown = "document.querySelector('.try-panel h3').textContent.split(':')[0]"

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
        address = await value(call, f"{points}[5].getAttribute('href')")
        assert await value(call, "location.hash") == address
        assert await value(call, shown) == address.replace("#text=", "Text ")
        assert await value(call, "document.querySelector('#try').getBoundingClientRect().top") < 99
        # A click on the last point, on top of others, does the same.
        last = f"{points}[{points}.length - 1]"
        await value(call, f"{last}.scrollIntoView({{block: 'center'}})")
        box = f"(b => [b.x + b.width / 2, b.y + b.height / 2])({last}.getBoundingClientRect())"
        x, y = await value(call, box)
        mouse = {"x": x, "y": y, "button": "left", "clickCount": 1}
        await call("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        await call("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
        address = await value(call, f"{last}.getAttribute('href')")
        text = address.replace("#text=", "Text ")
        for _ in range(100):  # the page hears of a new address after the click has returned
            if await value(call, shown) == text:
                break
            await asyncio.sleep(0.02)
        assert await value(call, shown) == text
        fill = f"getComputedStyle({last}.querySelector('use')).fill"
        ink = f"getComputedStyle({last}.querySelector('use')).stroke"
        assert await value(call, fill) != await value(call, ink)

    events = browse(page, visit, tmp_path)
    assert [event for event in events if event["method"] in NOISE] == []


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast(page: Path, tmp_path: Path, theme: str) -> None:
    async def visit(call: Call) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": theme}]
        await call("Emulation.setEmulatedMedia", features=scheme)
        await value(call, "document.querySelectorAll('details').forEach(d => d.open = true)")
        least, text = await value(call, CONTRAST)
        assert least >= 4.5, text

    browse(page, visit, tmp_path)


@pytest.mark.slow
def test_size(page: Path) -> None:
    assert page.stat().st_size < 8e6
