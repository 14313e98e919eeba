"""Fixtures that many tests share."""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # as NumPy is imported: workers share the cores
os.environ["ATTNLIGHT_TRUST"] = "tests"  # whose classes runs of the tests name in their fit.yaml
CORPORA = Path(__file__).parents[2] / "shared" / "data"
SHORT = 200  # rows of each file of `short_corpora`, at most twice as many; of long texts fewer
SHORT_BYTES = 300_000


def pytest_configure() -> None:
    """Remove variables that would change tests; benchmarks import this module and keep them."""
    os.environ.pop("ATTNLIGHT_DEBUG", None)  # would show a traceback where tests expect a sentence
    os.environ.pop("ATTNLIGHT_DATA", None)  # the reader's own corpora; tests set it to read theirs


@pytest.fixture(autouse=True, scope="session")
def _session() -> None:
    import torch

    torch.set_num_threads(1)
    os.fsync = lambda _: None  # milliseconds a file, which here need not outlast the machine
    sys.argv[1:] = []  # of pytest; Lightning warns of arguments beside those that it is given
    gc.freeze()  # modules and collected tests: searching them for garbage takes a tenth of the time
    gc.set_threshold(20_000)  # and what tests leave, so often, another 4 %


@pytest.fixture(autouse=True, scope="session")
def _svg_alone() -> Callable[..., bytes]:
    """Leave the PDF and the PNG of a figure empty, which take most of a command's time here.

    An SVG has no layout, which takes half of the rest. What writes a figure in all formats is
    returned, for `pictures`.
    """
    from attnlight.figures import style

    write = style.figure_bytes

    def written(figure: Any, kind: str, **options: Any) -> bytes:
        from matplotlib.layout_engine import PlaceHolderLayoutEngine

        if figure.get_layout_engine() is not None:
            figure.set_layout_engine(PlaceHolderLayoutEngine(True, False))
        return write(figure, kind, **options) if kind == "svg" or options else b""

    style.figure_bytes = written
    return write


@pytest.fixture
def pictures(_svg_alone: Callable[..., bytes]) -> Iterator[None]:
    """Write figures in all formats, for tests of their files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlight.figures.style.figure_bytes", _svg_alone)
        yield


@pytest.fixture(scope="module")
def few_steps() -> Iterator[None]:
    """Let searches for adversaries end early, in tests of what starts them, not of what they find."""
    from attnlight.models.readout import base, opaque

    few = (
        (opaque, "opaque_adversary", {"evaluations": 60}),
        (base.Readout, "worst_case", {"programs": False}),
        (base, "search_adversary", {"steps": 5}),
    )

    def early(search: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
        return lambda *args, **given: search(*args, **(given | options))

    with pytest.MonkeyPatch.context() as patch:
        for module, name, options in few:
            patch.setattr(module, name, early(vars(module)[name], options))
        yield


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run commands in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command here that must end with status 2 and one sentence on stderr, and return that.

    The sentence has all `names` and is the only line if `alone`; nothing changes in the folder
    `leaving`, if one is given.
    """
    from tests.commands import content, main

    def run(
        *words: str, names: Sequence[str] = (), leaving: Path | None = None, alone: bool = False
    ) -> str:
        before = leaving and content(leaving)
        capsys.readouterr()
        assert main([*words]) == 2
        told = capsys.readouterr().err
        assert "Traceback" not in told
        (line,) = (line for line in told.splitlines() if line.startswith("attnlight: "))
        assert told.splitlines()[-1] == line
        assert not alone or told == f"{line}\n"
        assert not [name for name in names if name not in line], line
        assert (leaving and content(leaving)) == before
        return line

    return run


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command here that must end with status 0, and return what it prints."""
    from tests.commands import main

    def run(*words: str) -> str:
        capsys.readouterr()
        assert main([*words]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One cache for all workers, and none that an earlier session left."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    os.environ["ATTNLIGHT_CACHE"] = str(folder / "attnlight-cache")
    os.environ.setdefault("HF_HOME", str(folder / "hf-home"))


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real corpora; a test that needs it is skipped where there is none."""
    if not CORPORA.is_dir():
        message = f"the corpora are not at {CORPORA}"
        if os.environ.get("ATTNLIGHT_REQUIRE_DATA") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return CORPORA


@pytest.fixture(scope="session")
def short_corpora(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real corpora with some hundred rows of each file, for tests of what reads the files."""
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("short")
    for file in corpora.rglob("*.parquet"):
        table = pq.read_table(file)
        (folder / file.relative_to(corpora)).parent.mkdir(parents=True, exist_ok=True)
        # Of ten rows each, among which are pairs.
        step = max(1, len(table) // SHORT, table.nbytes // SHORT_BYTES)
        rows = [row for row in range(len(table)) if row // 10 % step == 0]
        pq.write_table(table.take(rows), folder / file.relative_to(corpora))
    return folder
