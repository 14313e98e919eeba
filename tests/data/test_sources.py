"""Sources of splits: local folders and files, the hub where it is off, and what identifies them."""

import os
from pathlib import Path
from typing import Any

import datasets
import pytest

from attnlight.data.sources import Source
from attnlight.errors import InputError
from attnlight.storage.run_folder import Run
from tests.data.local import write_corpus

ROWS: dict[str, list[Any]] = {"text": ["a b", "c", "d"], "label": [0, 1, 0]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", train=ROWS, test=ROWS)


def load(place: Path, **options: Any) -> datasets.Dataset:
    main = Source(**options)
    return Source().with_defaults(main, "train").load(place / "scratch", "do so")


def test_a_local_folder_stands_in_for_the_hub_and_leaves_nothing_behind(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = load(tmp_path, path=str(folder))
    assert rows["text"][:] == ROWS["text"]
    assert Path(rows.cache_files[0]["filename"]).is_relative_to(tmp_path / "scratch")
    monkeypatch.setenv("ATTNLIGHT_DATA", str(folder.parent))
    rows = load(tmp_path, path="someone/corpus", name="plain", revision="v1", local="corpus")
    assert rows["text"][:] == ROWS["text"]


def test_a_changed_folder_is_read_anew_whatever_its_times(tmp_path: Path, folder: Path) -> None:
    file, source = folder / "data" / "train-00000-of-00001.parquet", Source(path=str(folder))
    before, identity = file.stat(), source.identity()
    load(tmp_path, path=str(folder))
    write_corpus(folder, train={"text": ["x y", "z", "w"], "label": [0, 1, 0]})
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert load(tmp_path / "next", path=str(folder))["text"][:] == ["x y", "z", "w"]
    file.touch()
    assert source.identity() != identity


@pytest.mark.parametrize(
    "place", ["checkpoints/mine/first/records", "checkpoints/mine/report", "wandb"]
)
def test_runs_in_the_folder_are_no_part_of_the_corpus(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "corpus"
    (folder / "inner").mkdir(parents=True)
    for name in ("train.csv", "test.csv", "inner/train.csv"):
        (folder / name).write_text(f"text,label\n{name},0\n")
    (folder / "link").symlink_to(folder / "inner")
    source = Source(path=str(folder), split="train")
    before = source.identity(), source.splits(), source.load(tmp_path / "before")[:]
    assert before[2]["text"] == ["inner/train.csv", "train.csv"]
    run = Run(folder / "checkpoints", "mine", "first")
    run.folder.mkdir(parents=True)
    run.begin("id", clear=False)
    (folder / place).mkdir(exist_ok=True)
    (folder / place / "train.csv").write_text("index\n1\n")
    assert (source.identity(), source.splits(), source.load(tmp_path / "now")[:]) == before


def test_a_source_takes_over_what_it_does_not_say() -> None:
    place = {"path": "hub/main", "name": "plain", "revision": "v1", "local": "main"}
    main = Source(**place, text="text", label="label", classes={"a": [0]})  # type: ignore[arg-type]
    common: Any = {"label": "label", "classes": {"a": [0]}}
    other_split = Source(split="extra").with_defaults(main, "train")
    assert other_split == Source(**place, split="extra", text="text", **common)
    elsewhere = Source(path="hub/other", text="sentence").with_defaults(main, "train")
    assert elsewhere == Source(path="hub/other", split="train", text="sentence", **common)
    ready = Source(tokens="words").with_defaults(main, "test")
    assert (ready.split, ready.columns) == ("test", ["words"])


def test_content_identifies_a_local_corpus(tmp_path: Path, folder: Path) -> None:
    copy = write_corpus(tmp_path / "copy", train=ROWS, test=ROWS)
    first, second = (Source(path=str(path), split="train").identity() for path in (folder, copy))
    assert first == second
    found = []
    for name in ("a", "b"):  # equal names, sizes and times
        (tmp_path / name).mkdir()
        file = tmp_path / name / "train.csv"
        file.write_text(f"text,label\n{name},0\n")
        os.utime(file, ns=(10**18, 10**18))
        found.append(Source(path=str(tmp_path / name)).identity())
    assert found[0] != found[1]


def test_hub_corpora_are_known_by_what_is_asked_for() -> None:
    main = Source(path="a/b", local="x")
    assert Source(path="a/b", local="y").identity() == main.identity()
    one, two = {"a": [0], "b": [1]}, {"b": [1], "a": [0]}  # whose order counts
    changes: list[Any] = [{name: "z"} for name in ("path", "name", "revision", "split", "label")]
    changes += [{"classes": classes} for classes in (one, two)]
    found = [str(Source(**change).with_defaults(main, "train").identity()) for change in changes]
    assert len({*found, str(main.identity())}) == len(changes) + 1


CSV = b"text,label\na,0\n"
# Files of a folder, options besides its path, and the message.
REFUSED: list[tuple[dict[str, bytes], dict[str, Any], str]] = [
    ({"x.py": b""}, {"path": "x"}, "a loading script, which .* no longer runs.*parquet"),
    ({}, {}, "corpus cannot be read: .*data files"),
    ({"train.parquet": b"junk"}, {}, "corpus cannot be read: "),
    ({"train.csv": "text,label\nna\xefve,1\n".encode("latin-1")}, {}, "utf-8.*; save it as UTF-8"),
    ({"train.csv": CSV}, {"name": "plain"}, "cannot be read: .*'plain' not found"),
    ({"train.csv": CSV}, {"split": "dev"}, r"no split 'dev'; it has train: do so$"),
    ({"train.csv": CSV}, {"split": "trian[:1]"}, r"'trian'.*'train'"),
    ({"train.csv": b"text,label\n"}, {}, "^split train of .*corpus is empty$"),
    ({"train.csv": b"a,b\n1,2\n", "test.csv": b"c\nx\n"}, {}, "read: .*(column|cast)"),
    ({}, {"path": "./nowhere"}, "^there is no corpus folder nowhere$"),
    ({}, {"path": "/nowhere/at/all"}, "^there is no corpus folder /nowhere/at/all$"),
    ({}, {"path": "some/where/deep"}, "^there is no corpus folder some/where/deep$"),
    ({}, {"path": "nothing.jsonl"}, r"there is no corpus file nothing\.jsonl"),
    # tests/conftest.py sets HF_HUB_OFFLINE
    ({}, {"path": "a/b"}, "^a/b is not a local .* cannot be reached; .*through .ATTNLIGHT_DATA"),
]


@pytest.mark.parametrize(("files", "options", "message"), REFUSED)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, files: dict[str, bytes], options: dict[str, Any], message: str
) -> None:
    folder = tmp_path / ("x" if "x.py" in files else "corpus")
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    given = {"path": str(folder), "split": "train"} | (options if "x.py" not in files else {})
    with pytest.raises(InputError, match=message):
        Source(**given).load(tmp_path / "scratch", "do so")


def test_no_folder_under_the_data_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNLIGHT_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"no corpus folder .*/nope \(\$ATTNLIGHT_DATA is set\)"):
        load(tmp_path, path="a/b", local="nope")


LINES = zip(ROWS["text"], ROWS["label"], strict=True)
FILES = {
    "rows[1].csv": "text,label\na b,0\nc,1\nd,0\n",
    "rows.tsv": "text\tlabel\na b\t0\nc\t1\nd\t0\n",
    "rows.jsonl": "".join(f'{{"text": "{text}", "label": {label}}}\n' for text, label in LINES),
}


@pytest.mark.parametrize("name", FILES)
def test_a_single_file_is_a_training_split(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text(FILES[name])
    (tmp_path / "other.csv").write_text("unlike,this\n1,2\n")
    monkeypatch.chdir(tmp_path)
    source = Source(path=name, split="train")
    assert source.load(tmp_path / "scratch")[:] == ROWS
    assert source.splits() == ["train"]
    before = source.identity()
    (tmp_path / "other.csv").write_text("more\n")
    assert source.identity() == before
    (tmp_path / name).write_text(FILES[name].replace("a b", "b a"))
    assert source.identity() != before
