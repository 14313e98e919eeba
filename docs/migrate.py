"""Migrate runs, studies and checkpoints in place: `python docs/migrate.py FOLDER ...`.

Of the files below each folder, class and option names of the first format become today's, and
`compat` becomes `released`: in configurations, checkpoints, records, `study.json` and
`study.parquet`. Files that have neither stay as they are. A corpus of bAbI that was prepared as
released has another fingerprint, so that it must be at hand ($ATTNLIGHT_DATA).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from results_page.archive_runs import _write

from attnlight.data.sources import Source
from attnlight.datamodules import BabiStories
from attnlight.records.parquet import read_table
from attnlight.storage import compatibility
from attnlight.storage.files import read_yaml, write_text
from attnlight.storage.foreign_classes import STORED

_NAME = re.compile(r"(?<=[-_])compat(?=[-_.]|$)")
_METADATA = b"attnlight"
_MOVED = ("attnlight.checkpoints.", "attnlight.storage.checkpoints.")


def released(value: Any) -> Any:  # noqa: ANN401
    """A value whose keys and names say `released` where they said `compat`."""
    if isinstance(value, dict):
        return {released(key): released(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(released, value))
    if isinstance(value, str):
        return "released" if value == "compat" else _NAME.sub("released", value)
    return value


def configuration(path: Path) -> None:
    """Migrate a configuration; sections that stay the same keep their text."""
    text = path.read_text(encoding="utf-8").replace(*_MOVED)
    content = yaml.safe_load(text)
    new = dict(content)
    if "model" in content:
        new["model"] = compatibility.section(content["model"])
    trainer = content.get("trainer") or {}
    if trainer.get("callbacks"):
        callbacks = [compatibility.callback(item) for item in trainer["callbacks"]]
        new["trainer"] = trainer | {"callbacks": callbacks}
    for name, section in released(new).items():
        if section != content.get(name):
            block = yaml.safe_dump({name: section}, sort_keys=False, allow_unicode=True)
            pattern = rf"^{name}:.*\n(?:[ -].*\n|\n)*"
            text = re.sub(pattern, lambda _, block=block: block, text, flags=re.MULTILINE)
    assert yaml.safe_load(text) == released(new), path
    if text != path.read_text(encoding="utf-8"):
        write_text(path, text)


def checkpoint(path: Path) -> None:
    """Migrate a checkpoint's hyperparameters, and those of its base that it keeps."""
    held = torch.load(path, map_location="cpu", weights_only=True)
    before = held.get("hyper_parameters")
    if "attnlight" not in held or before is None:
        return
    after = compatibility.hyperparameters(before)
    base = (after.get("inherited") or {}).get("base")
    if base:
        options = compatibility.hyperparameters(base["options"])
        after["inherited"] = after["inherited"] | {"base": base | {"options": options}}
    if "compat" in after:
        after["released"] = after.pop("compat")
    if "class_weight" not in held["state_dict"]:
        held["state_dict"]["class_weight"] = torch.ones(len(after["spec"]["classes"]))
    if held["attnlight"]["format"] != 2 or after != before:
        held["attnlight"]["format"] = 2
        torch.save(held | {"hyper_parameters": after}, path)


def study(path: Path) -> None:
    """Migrate a `study.json`, and the names of runs in the rows beside it."""
    content = json.loads(path.read_text(encoding="utf-8"))
    today = compatibility.study(content)
    new = released({name: today[name] for name in (*_order(today), "runs")})
    if new != content:
        write_text(path, json.dumps(new, indent=1, allow_nan=False) + "\n")
    rows = path.with_name("study.parquet")
    if rows.is_file():
        table = read_table(rows)
        column = table["run"].combine_chunks()
        names = released(column.dictionary.to_pylist())
        if names != column.dictionary.to_pylist():
            renamed = pa.DictionaryArray.from_arrays(column.indices, names)
            _write(table.set_column(0, "run", renamed), rows)


def _order(content: dict[str, Any]) -> list[str]:
    """The keys of a study but `runs`, the words of its problem after its classes."""
    names = [name for name in content if name not in ("problem", "runs")]
    names.insert(names.index("classes") + 1, "problem")
    return names


def record(path: Path, identified: Callable[[str], str]) -> None:
    """Migrate columns and metadata of a record."""
    schema = pq.read_schema(path)
    if _METADATA not in (schema.metadata or {}):
        return
    metadata = json.loads(schema.metadata[_METADATA])
    new = {name: released(value) for name, value in metadata.items()}
    if new.get("settings") and new.get("test") == "adversarial_attention":
        named = {"class_path": "AdversarialAttention", "init_args": new["settings"]}
        new["settings"] = compatibility.callback(named)["init_args"]
    if "corpus" in new:
        new["corpus"] = identified(new["corpus"])
    columns = released(schema.names)
    if new == metadata and columns == schema.names:
        return
    table = read_table(path).rename_columns(columns)
    _write(table.replace_schema_metadata({_METADATA: json.dumps(new)}), path)


def identified(folder: Path) -> Callable[[str], str]:
    """From a fingerprint to the present one of the corpus of a run."""
    file = folder / "fit.yaml"
    data = (read_yaml(file).get("data") or {}) if file.is_file() else {}
    options = dict(data.get("init_args") or {}) if isinstance(data, dict) else {}
    if not (str(data.get("class_path")).endswith("BabiStories") and options.get("released")):
        return str
    test = options.pop("test")
    corpus = BabiStories(**options, test=Source(**test) if test else None)
    return lambda _: corpus.fingerprint


def migrate(folder: Path) -> None:
    """Migrate all files below a folder, and then the folders of runs by their names."""
    for path in sorted(folder.rglob("*.yaml")):
        if STORED.fullmatch(path.name):
            configuration(path)
    for path in sorted(folder.rglob("*.ckpt")):
        checkpoint(path)
    for path in sorted(folder.rglob("study.json")):
        study(path)
    for run in sorted({path.parents[2] for path in folder.rglob("records/*/*.parquet")}):
        of_run = identified(run)
        for path in sorted(run.rglob("*.parquet")):
            record(path, of_run)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and released(path.name) != path.name:
            path.rename(path.with_name(released(path.name)))


if __name__ == "__main__":
    for named in sys.argv[1:]:
        migrate(Path(named))
