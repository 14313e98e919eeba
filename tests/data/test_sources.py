import os
from pathlib import Path
from typing import Any

import datasets
import pytest

from attnlight.data.sources import Source
from attnlight.errors import InputError
from attnlight.storage.run_folder import Run
from tests.data.local import write_corpus

ROWS = {"text": ["a b", "c", "d"], "label": [0, 1, 0]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", train=ROWS, test=ROWS)


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)


def load(tmp_path: Path, **options: Any) -> datasets.Dataset:
    return (
        Source(split="train").with_defaults(Source(**options), "train").load(tmp_path / "scratch")
    )


def test_local_folder_is_read_and_leaves_nothing_behind(tmp_path: Path, folder: Path) -> None:
    rows = load(tmp_path, path=str(folder))
    assert rows["text"][:] == ROWS["text"]
    assert Path(rows.cache_files[0]["filename"]).is_relative_to(tmp_path / "scratch")


def test_slices_are_understood(tmp_path: Path, folder: Path) -> None:
    source = Source(path=str(folder), split="train[1:]")
    assert source.load(tmp_path / "scratch")["text"][:] == ["c", "d"]


def test_data_folder_stands_in_for_the_hub(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLIGHT_DATA", str(folder.parent))
    rows = load(tmp_path, path="someone/corpus", name="plain", revision="v1", local="corpus")
    assert rows["text"][:] == ROWS["text"]


def test_a_changed_folder_is_read_anew(tmp_path: Path, folder: Path) -> None:
    file = folder / "data" / "train-00000-of-00001.parquet"
    before = file.stat()
    load(tmp_path, path=str(folder))
    write_corpus(folder, train={"text": ["x y", "z", "w"], "label": [0, 1, 0]})
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    fresh = Source(path=str(folder), split="train").load(tmp_path / "next")
    assert fresh["text"][:] == ["x y", "z", "w"]


def test_runs_in_the_folder_are_no_part_of_the_corpus(tmp_path: Path, folder: Path) -> None:
    (folder / "link").symlink_to(write_corpus(tmp_path / "more", train=ROWS))
    source = Source(path=str(folder), split="train")
    before = source.identity(), source.splits(), source.load(tmp_path / "before")[:]
    run = Run(folder / "checkpoints", "mine", "first")
    run.folder.mkdir(parents=True)
    run.begin("id", clear=False)
    for place in (run.folder / "records", run.folder.parent / "report", folder / "wandb"):
        write_corpus(place, train={"index": [1]}, validation={"index": [1]})
    assert (source.identity(), source.splits(), source.load(tmp_path / "now")[:]) == before


def test_a_source_takes_over_what_it_does_not_say() -> None:
    main = Source("hub/main", "plain", "v1", "main", None, "text", None, "label", {"a": [0]})
    other_split = Source(split="extra").with_defaults(main, "train")
    assert other_split == Source(
        "hub/main", "plain", "v1", "main", "extra", "text", None, "label", {"a": [0]}
    )
    elsewhere = Source(path="hub/other", text="sentence").with_defaults(main, "train")
    assert elsewhere == Source(
        "hub/other", None, None, None, "train", "sentence", None, "label", {"a": [0]}
    )
    ready = Source(tokens="words").with_defaults(main, "test")
    assert (ready.split, ready.columns) == ("test", ["words"])


def test_same_content_elsewhere_is_the_same_corpus(tmp_path: Path, folder: Path) -> None:
    copy = write_corpus(tmp_path / "copy", train=ROWS, test=ROWS)
    first, second = (Source(path=str(path), split="train").identity() for path in (folder, copy))
    assert first == second


def test_other_content_is_another_corpus_even_with_equal_names_sizes_and_times(
    tmp_path: Path,
) -> None:
    for name, letter in (("one", "a"), ("two", "b")):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "train.csv"
        file.write_text(f"text,label\n{letter},0\n")
        os.utime(file, ns=(10**18, 10**18))
    first, second = (Source(path=str(tmp_path / name)).identity() for name in ("one", "two"))
    assert first != second


def test_a_rewritten_file_is_noticed_within_a_process(tmp_path: Path, folder: Path) -> None:
    before = Source(path=str(folder)).identity()
    write_corpus(folder, test={"text": ["q"], "label": [1]})
    assert Source(path=str(folder)).identity() != before


def test_linked_folders_count(tmp_path: Path) -> None:
    for name, letter in (("one", "a"), ("two", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / letter).mkdir()
        (tmp_path / letter / "train-00000-of-00001.csv").write_text(f"text,label\n{letter},0\n")
        (tmp_path / name / "data").symlink_to(tmp_path / letter)
    first, second = (Source(path=str(tmp_path / name)).identity() for name in ("one", "two"))
    assert first != second


def test_hidden_files_do_not_count(folder: Path) -> None:
    before = Source(path=str(folder)).identity()
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x").write_text("x")
    assert Source(path=str(folder)).identity() == before


@pytest.mark.parametrize(
    "change", [{"path": "a/c"}, {"name": "n"}, {"revision": "r"}, {"split": "s"}, {"label": "l"}]
)
def test_hub_corpora_are_known_by_what_is_asked_for(change: dict[str, str]) -> None:
    main = Source(path="a/b", local="x")
    assert Source(**change).with_defaults(main, "train").identity() != main.identity()
    assert Source(path="a/b", local="y").identity() == main.identity()


def test_the_order_of_classes_is_part_of_the_identity() -> None:
    one, two = {"a": [0], "b": [1]}, {"b": [1], "a": [0]}
    assert Source("a/b", classes=one).identity() != Source("a/b", classes=two).identity()


@pytest.mark.parametrize("path", ["./nowhere", "/nowhere/at/all", "some/where/deep"])
def test_missing_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match=f"^there is no corpus folder .*{path.strip('./')}$"):
        load(tmp_path, path=path)


def test_missing_folder_under_the_data_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLIGHT_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"no corpus folder .*/nope \(\$ATTNLIGHT_DATA is set\)"):
        load(tmp_path, path="a/b", local="nope")


def test_hub_unreachable(tmp_path: Path) -> None:  # conftest sets HF_HUB_OFFLINE
    message = "^a/b is not a local folder or file, and the hub cannot be reached; .*through .ATTNLIGHT_DATA"
    with pytest.raises(InputError, match=message):
        load(tmp_path, path="a/b")


def test_missing_split(tmp_path: Path, folder: Path) -> None:
    source = Source(path=str(folder), split="dev")
    with pytest.raises(InputError, match=r"corpus has no split 'dev'; it has train, test: do so$"):
        source.load(tmp_path / "scratch", "do so")
    with pytest.raises(InputError, match=r"'tets'.*'test'"):
        Source(path=str(folder), split="tets[:1]").load(tmp_path / "scratch")


FILES = {
    "rows[1].csv": "text,label\na b,0\nc,1\nd,0\n",
    "rows.tsv": "text\tlabel\na b\t0\nc\t1\nd\t0\n",
    "rows.jsonl": "".join(
        f'{{"text": "{text}", "label": {label}}}\n'
        for text, label in zip(ROWS["text"], ROWS["label"], strict=True)
    ),
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


def test_a_missing_file_is_not_sought_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no corpus file nothing\.jsonl"):
        load(tmp_path, path="nothing.jsonl")


def test_loading_script(tmp_path: Path) -> None:
    folder = tmp_path / "scripted"
    folder.mkdir()
    (folder / "scripted.py").write_text("raise SystemExit\n")
    with pytest.raises(
        InputError, match=r"needs a loading script, which .* no longer runs.*parquet"
    ):
        load(tmp_path, path=str(folder))


def test_folder_without_data(tmp_path: Path) -> None:
    (tmp_path / "hollow").mkdir()
    with pytest.raises(InputError, match=r"hollow cannot be read: .*data files"):
        load(tmp_path, path=str(tmp_path / "hollow"))


def test_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "train.parquet").write_bytes(b"junk")
    with pytest.raises(InputError, match="damaged cannot be read: "):
        load(tmp_path, path=str(tmp_path / "damaged"))


def test_unknown_configuration(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match=r"corpus cannot be read: .*'plain' not found"):
        load(tmp_path, path=str(folder), name="plain")


def test_split_without_rows(tmp_path: Path, folder: Path) -> None:
    rows = datasets.Dataset.from_dict(ROWS).select([])
    rows.to_parquet(str(folder / "data" / "train-00000-of-00001.parquet"))
    with pytest.raises(InputError, match=r"^split train of .*corpus is empty$"):
        load(tmp_path, path=str(folder))


def test_splits_of_different_columns_name_the_cause(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "mixed", train=ROWS, test={"text": [1], "other": [2]})
    with pytest.raises(InputError, match=r"mixed cannot be read: .*(column|cast)"):
        load(tmp_path, path=str(folder))
