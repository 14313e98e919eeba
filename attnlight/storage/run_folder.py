"""The folder of a run: `<root>/<experiment>/<run>/`, the same for the same command."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlight.errors import InputError
from attnlight.storage.files import named_errors, read_json, suggest_file, write_text

# Configuration keys that do not change the name of a run.
NOT_HASHED = (
    *("config", "experiment", "run", "root", "corpus", "overwrite", "ckpt_path"),
    "seed_everything",
)
# What a run writes into its folder: removed when the run is trained again.
PRODUCTS = (
    *("*.ckpt", "*.yaml", "status.json", "wandb_id", "predictions*.parquet"),
    *("records", "figures", "logs", "report"),
)
_VERBS = ("fit", "validate", "test", "predict")  # each writes its configuration into the folder
# Empty, hidden (as attnlight's own files beside runs), or a path.
_INVALID_NAME = re.compile(r"|\..*|.*[/\\\x00-\x1f\x7f\ud800-\udfff].*", re.DOTALL)
_LONGEST_NAME = 255  # bytes, on every common file system


@dataclass(frozen=True)
class Run:
    """A run in `<root>/<experiment>/<name>`."""

    root: Path
    experiment: str
    name: str

    @classmethod
    def of_fit(cls, config: Mapping[str, Any], hashed: str, corpus: str | None = None) -> Run:
        """The run of a `fit` configuration.

        The default name contains a hash of `hashed`, its text without the keys in `NOT_HASHED`. Without a
        configuration file the experiment is named by the file of the `corpus`.
        """
        root, experiment, name = config["root"], config["experiment"], config["run"]
        if re.search(r"[\x00\ud800-\udfff]", root):
            raise InputError(f"--root is {root!r}, which is not a valid folder name.")
        if experiment is None:  # the last configuration file outside tests/
            paths = [Path(str(path)) for path in config.get("config") or () if path is not None]
            stems = [path.stem for path in paths if path.parent.name != "tests"]
            experiment = [corpus_name(None, corpus or "default"), *stems][-1]
        if name is None:
            digest = hashlib.sha256(hashed.encode()).hexdigest()[:8]
            name = f"seed{config['seed_everything']}-{digest}"
        names = _folder_name("experiment", experiment), _folder_name("run", name)
        return cls(Path(root), *names)

    @classmethod
    def of_checkpoint(cls, config: Mapping[str, Any]) -> Run:
        """The run of the checkpoint that `validate`, `test` or `predict` reads."""
        path = config.get("ckpt_path")
        if path in (None, "best", "last"):
            if config["experiment"] is None or config["run"] is None:
                raise InputError(
                    "no trained model is given: add --ckpt_path <run>/best.ckpt, or --experiment "
                    "and --run with --ckpt_path best."
                )
            return cls.of_fit(config, "")
        folder = Path(path).absolute().parent
        return cls(folder.parent.parent, folder.parent.name, folder.name)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.root / self.experiment / self.name

    def checkpoint(self, name: str | None) -> str | None:
        """The checkpoint that `--ckpt_path` means, which must exist."""
        if name is None:
            return None
        path = self.folder / f"{name}.ckpt" if name in ("best", "last") else Path(name)
        if not path.is_file():
            raise InputError(f"there is no checkpoint {path}{suggest_file(path)}.")
        return str(path)

    def verbs(self, corpus: str | None = None) -> list[str]:
        """The verbs that have written their configuration for a corpus (None: of training) here."""
        suffix = "" if corpus is None else f"-{corpus}"
        return [verb for verb in _VERBS if (self.folder / f"{verb}{suffix}.yaml").is_file()]

    def begin(self, wandb_id: str, *, clear: bool) -> None:
        """Store the id of Weights & Biases for `fit`, and `clear` the files of an earlier one."""
        if clear:
            with named_errors(self.folder):
                for product in (path for pattern in PRODUCTS for path in self.folder.glob(pattern)):
                    if product.is_dir() and not product.is_symlink():
                        shutil.rmtree(product)
                    else:
                        product.unlink()
        path = self.folder / "wandb_id"
        if not path.is_file():
            write_text(path, wandb_id + "\n")

    def finish(self, **details: Any) -> None:  # noqa: ANN401
        """Record in `status.json` that `fit` has finished, and details such as its `seconds`."""
        if is_rank_zero():
            status = {"state": "finished"} | details
            write_text(self.folder / "status.json", json.dumps(status, indent=1) + "\n")

    def placeholders(self, corpus: str | None = None, *, another_id: bool) -> dict[str, str]:
        """Values of `{run}` (its folder), `{experiment}`, `{name}` and `{wandb_id}` in a configuration.

        The name of another corpus than that of training is a part of the name and of the id, since
        its curves belong to a separate run in Weights & Biases. `another_id` replaces the stored
        id, by which a resumed run continues its curves.
        """
        path, wandb_id = self.folder / "wandb_id", secrets.token_hex(4)
        if path.is_file() and not another_id:
            wandb_id = path.read_text(encoding="ascii", errors="replace").strip()
            if not re.fullmatch(r"[\w-]{1,128}", wandb_id, re.ASCII):
                raise InputError(
                    f"{path} does not contain a Weights & Biases run id: delete it, and the run "
                    "gets a new one."
                )
        suffix = "" if corpus is None else f"-{corpus}"
        return {
            "run": str(self.folder),
            "experiment": self.experiment,
            "name": self.name + suffix,
            "wandb_id": wandb_id + re.sub(r"[^\w-]", "-", suffix),
        }

    @property
    def unfinished(self) -> bool:
        """Whether `fit` ended before its last epoch and left what it resumes from."""
        names = ("last.ckpt", "status.json")
        return [(self.folder / name).is_file() for name in names] == [True, False]

    def require_new(self) -> None:
        """Raise `InputError` if the folder contains a run, or a status that cannot be read."""
        path = self.folder / "status.json"
        try:
            status = read_json(path) if path.is_file() else {}
        except InputError as error:
            raise InputError(f"{error} Add --overwrite to train the run again.") from error
        if status.get("state") == "finished":
            raise InputError(
                f"{self.folder} already contains this run, finished: test it, or add --overwrite "
                "to replace it."
            )
        if (self.folder / "last.ckpt").exists():
            raise InputError(
                f"{self.folder} already contains this run, unfinished: add --ckpt_path last to "
                "resume it, or --overwrite to start again."
            )


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, begun or finished."""
    names = ("wandb_id", *(f"{verb}.yaml" for verb in _VERBS))
    return any((folder / name).is_file() for name in names)


def is_rank_zero() -> bool:
    """Whether this process is rank 0 of its job, available before a trainer exists."""
    # At use: who asks whether a folder is a run's need not wait for Lightning.
    from lightning.fabric.utilities.rank_zero import _get_rank

    node = os.environ.get("NODE_RANK") or os.environ.get("GROUP_RANK") or "0"
    # Lightning's own launcher starts the first process of each node with no other variable.
    return not _get_rank() and int(node) == 0


def corpus_name(name: str | None, default: str) -> str:
    """Name, in records, of a corpus other than that of training: that of `--corpus`, if given.

    Else the last part of `default`, a hub id, a path or a file stem.
    """
    if name is not None:
        return _folder_name("corpus", name)
    return re.sub(r"[^\w.-]+", "-", Path(default).name).strip(".-") or "other"


def _folder_name(option: str, name: str) -> str:
    """Return the name of one folder, or raise `InputError`."""
    if _INVALID_NAME.fullmatch(name) or len(os.fsencode(name)) > _LONGEST_NAME:
        raise InputError(
            f"--{option} is {name!r}; expected the name of one folder: no path, no leading dot, "
            f"no control characters, at most {_LONGEST_NAME} bytes. Give another --{option}, and "
            "the folder of all runs as --root."
        )
    return name
