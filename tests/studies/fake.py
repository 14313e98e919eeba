"""Stands in for `attnlight`: `fit` and `test` leave what a study looks at, and nothing else.

The attention JS of an adversary is ten times its lambda, F1 falls with it. `FAKE_FAILS` names the
run whose fit fails (in the study `FAKE_FAILS_IN`, if that is set), `FAKE_BREAKS` a tagger's whose
sentences `FAKE_BROKEN` cannot be measured; `FAKE_CHECKPOINT` is a checkpoint to copy, `FAKE_CORPUS` the
fingerprint in records of test texts; commands are added to `FAKE_CALLS`.
"""

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.errors import InputError
from attnlight.storage.files import write_text
from attnlight.studies import job
from tests.report.fake import write_record
from tests.studies.fake_records import write_records

TEXTS = 10


def option(arguments: Sequence[str], name: str) -> str | None:
    found = [word.partition("=")[2] for word in arguments if word.startswith(f"--{name}=")]
    return found[-1] if found else None


def record(path: Path, columns: dict[str, np.ndarray], **about: object) -> None:
    write_record(path, columns, classes=["no", "yes"], **about)


def measured(folder: Path, names: dict[str, str], **about: object) -> None:
    seed = int(re.findall(r"\d+$", folder.name)[0])
    weight = float((re.findall(r"-l([\d.e-]+)-s", folder.name) or ["0.02"])[0])
    label = np.arange(TEXTS) % 2
    prediction = np.where(np.arange(TEXTS) < (seed + (weight > 0.05)) % 3, 1 - label, label)
    record(folder / names["predictions"], {"label": label, "prediction": prediction}, **about)
    if folder.name.startswith("base"):
        js = np.linspace(0.1, 0.5, TEXTS)
        frontier = {"frontier_js": np.stack([js, js + 0.1], axis=1)}
        if "test" in names["predictions"]:
            worst = {"worst_js": js, "prediction": prediction} | frontier
            path = folder / "records/test/adversarial_attention.parquet"
            record(path, worst, frontier_epsilons=[0.1, 1.0])
        return
    columns = {
        "prediction": prediction,
        "attention_js": np.full(TEXTS, min(0.69, 10 * weight), np.float32),
        "prediction_tvd": np.full(TEXTS, weight, np.float32),
        "base_max_attention": np.full(TEXTS, 0.5, np.float32),
    }
    record(folder / names["base_divergence"], columns, **about)


def fit(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    root, experiment, run = (option(arguments, name) for name in ("root", "experiment", "run"))
    folder = Path(root or "", experiment or "", run or "")
    fails_in = environment.get("FAKE_FAILS_IN", str(experiment))
    if run == environment.get("FAKE_FAILS") and experiment in fails_in:
        raise InputError("the disk is on fire.")
    if "--overwrite" in arguments:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    told = {"guide_checkpoint": option(arguments, "model.guide_checkpoint")}
    told["net"] = {"readout": option(arguments, "model.net.readout") or "study"}
    data = {"target": option(arguments, "data.target") or "tokens"}
    data["pos"] = (option(arguments, "data.pos") or "true") == "true"
    about = {"model": {"init_args": told}, "data": {"init_args": data}}
    write_text(folder / "fit.yaml", json.dumps(about))
    if not of_tagger(arguments):
        names = {n: f"records/val/{n}-1.parquet" for n in ("predictions", "base_divergence")}
        measured(folder, names)
    for name in ("best.ckpt", "last.ckpt"):
        shutil.copy(environment["FAKE_CHECKPOINT"], folder / name)
    write_text(folder / "status.json", '{"state": "finished", "epochs": 7}')


def of_tagger(arguments: Sequence[str]) -> bool:
    signs = ("conll2000", "Tagger", "figures")  # the last of what is attached to one
    return any(sign in word for sign in signs for word in arguments)


def validate(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    best = Path(option(arguments, "ckpt_path") or "")
    digest = hashlib.sha256(best.read_bytes()).hexdigest()[:16]
    run, stage = best.parent, "val" if arguments[0] == "validate" else "test"
    target = json.loads((run / "fit.yaml").read_text())["data"]["init_args"]["target"]
    weight = float((re.findall(r"-l([\d.e-]+)-s", run.name) or ["0.02"])[0])
    js = None if run.name.startswith("base") else min(0.69, 10 * weight)
    broken = tuple(map(int, environment.get("FAKE_BROKEN", "").split()))
    broken = broken if run.name == environment.get("FAKE_BREAKS") else ()
    folder = run / "records" / stage
    write_records(folder, target, js=js, broken=broken, checkpoint_hash=digest)


def test(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    best = Path(option(arguments, "ckpt_path") or "")
    if of_tagger(arguments):
        return validate(arguments, environment)
    digest = hashlib.sha256(best.read_bytes()).hexdigest()[:16]
    names = {name: f"records/test/{name}.parquet" for name in ("predictions", "base_divergence")}
    measured(best.parent, names, checkpoint_hash=digest, corpus=environment.get("FAKE_CORPUS"))


def timed(
    command: Sequence[str] = (), log: Path = Path(), environment: Mapping[str, str] | None = None
) -> int:
    """Stands in for a command on a few batches: `fit` omits 100 s, what follows it 10 s each."""
    if not command:
        return 0
    assert environment is not None
    assert environment["WANDB_MODE"] == "disabled"
    names = [option(command, name) or "" for name in ("root", "experiment", "run")]
    run = Path(*names) if command[0] == "fit" else Path(option(command, "ckpt_path") or "").parent
    if run.name == os.environ.get("FAKE_FAILS"):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("attnlight: the disk is on fire.\n\n")
        return 2
    run.mkdir(parents=True, exist_ok=True)
    (run / "omitted_seconds").write_text("100" if command[0] == "fit" else "10")
    return 0


class Here(Executor):
    """Does each job in this process, as soon as it is submitted."""

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs or 1

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[int] = Future()
        future.set_result(self.status(fn) if isinstance(fn, job.Job) else timed(*arguments))
        return future

    def status(self, given: Callable[..., Any]) -> int:
        assert isinstance(given, job.Job)
        before = dict(os.environ)
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

            def print_to(log: Path) -> None:
                log.parent.mkdir(exist_ok=True, parents=True)
                file = stack.enter_context(log.open("a", errors="surrogateescape"))
                stack.enter_context(redirect_stdout(file))
                stack.enter_context(redirect_stderr(file))

            patch.setattr(job, "print_to", print_to)
            patch.setattr(job, "end_with_parent", lambda: None)
            patch.setattr(sys, "argv", ["attnlight"])
            patch.setitem(sys.modules, "__main__", sys.modules["__main__"])
            try:
                job.perform(given)
            except SystemExit as exit:
                if isinstance(exit.code, int):
                    return exit.code
                print(exit.code, file=sys.stderr)
                return 1
            finally:
                os.environ.clear()
                os.environ.update(before)
        return 0


def main() -> int:
    arguments = sys.argv[1:]
    with Path(os.environ["FAKE_CALLS"]).open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    try:
        {"fit": fit, "validate": validate, "test": test}[arguments[0]](arguments, os.environ)
    except InputError as error:
        print(f"attnlight: {error}")
        return 2
    return 0
