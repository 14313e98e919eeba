"""Someone who follows a page of the documentation: its code blocks run as they stand, in order.

The folder that they run in has the files that the page names, and small corpora. The PATH of shell
blocks begins with stand-ins, so that they end soon and start nothing elsewhere: commands of `attnlight`
and `pip` are noted down as the shell gives them, and those of `attnlight` then run in forked processes,
for a few batches where they train or test. `./launch.sh` prints what it would run, `sbatch` runs its
line as SLURM would in an allocation of 2 nodes with 4 tasks each.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from attnlight.__main__ import main
from attnlight.cli.demo import COMMANDS as DEMO
from attnlight.studies.slurm_executor import slurm_parameters
from tests.commands import CONFIGS, QUIET, ROOT, in_forks, run_script
from tests.data.local import write_corpus, write_table
from tests.test_configs import SMALL, TINY, keys

README = (ROOT / "README.md").read_text(encoding="utf-8")
LIMITS = {
    "fit": [
        "--trainer.max_epochs=1",
        "--trainer.limit_train_batches=4",
        "--trainer.limit_val_batches=2",
        *QUIET,
    ],
    "test": ["--trainer.limit_test_batches=2", *QUIET],
    "sanity": ["--trainer.limit_test_batches=2", *QUIET],
    "vectors": ["--epochs=1", "--min_count=1"],
}
NOTE = """#!/usr/bin/env bash
printf '%s\\0' "${PYTHONPATH:-}" "${0##*/}" "$#" "$@" >>"${BASH_SOURCE[0]%/*}/noted"
"""
LAUNCH = """#!/usr/bin/env bash
[[ $1 != --dry-run ]] || shift
exec "${BASH_SOURCE[0]%/*}/launch.real.sh" --dry-run "$@"
"""
SBATCH = """#!/usr/bin/env bash
SLURM_JOB_ID=1 SLURM_NNODES=2 SLURM_NTASKS=8 exec bash -c "${!#}"
"""
COMMANDS = {"attnlight", "pip", "./launch.sh", "sbatch"}
OF_A_LAUNCHER = ("SLURM_", "NNODES", "NODE_RANK", "MASTER_", "NPROC_", "LOCAL_RANK", "PYTHONPATH")


@dataclass(frozen=True)
class Block:
    """A fenced block: its first line in the README, its language and its text."""

    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the block says it is, in a comment on its first line."""
        named = re.match(r"# (\S+\.\w+)\n", self.text)
        return named and named[1]


def blocks(page: str) -> Iterator[Block]:
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        yield Block(page.count("\n", 0, match.start()) + 2, match[1], match[2])


def commands(text: str) -> Iterator[str]:
    """The command of each line of a shell block, behind its assignments."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        if words:
            yield words[0]


class Reader:
    """Follows a page in a folder of their own; `printed` is what its commands printed."""

    def __init__(self, folder: Path, page: str = README) -> None:
        self.folder, self.page, self.printed = folder, page, ""
        shutil.copytree(CONFIGS, folder / "configs")
        for study in (folder / "configs/studies").glob("planted*"):
            self.write_study(study, yaml.safe_load(study.read_text(encoding="utf-8")))
        for name in ("cheap", "all"):  # figures of all tests take long
            file = folder / f"configs/tests/{name}.yaml"
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
            tests = content["trainer"]["callbacks+"]
            few = ("Predictions", "AttentionPermutation")
            content["trainer"]["callbacks+"] = [
                test for test in tests if test["class_path"].endswith(few)
            ]
            file.write_text(yaml.safe_dump(content))
        for block in blocks(README):  # the other pages use these
            if block.file and block.language == "python":
                (folder / block.file).write_text(block.text)
        shutil.copy(ROOT / "launch.sh", folder / "launch.real.sh")
        self.script("launch.sh", LAUNCH)
        self.script("bin/attnlight", NOTE)
        self.script("bin/pip", NOTE)
        self.script("bin/sbatch", SBATCH)
        self.write_corpora()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(OF_A_LAUNCHER)}
        self.environment = kept | {
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "ATTNLIGHT_DATA": str(folder / "corpora"),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "WANDB_MODE": "disabled",
        }

    def script(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def write_corpora(self) -> None:
        """The reader's reviews, questions and model, and small corpora named as real ones."""
        from tests.huggingface.folders import write_decoder, write_model

        names = ("sentence", "verdict")
        verdicts = [("a joy from start to end", "pos"), ("a bore and a waste", "neg")]
        verdicts += [("a triumph", "great"), ("it has an end", "mixed")]
        texts = [text for text, _ in verdicts] * 10
        for split in ("train", "dev", "test"):
            write_table(self.folder / f"reviews/{split}.csv", verdicts * 40, names)
        labels = {"pos": "positive", "neg": "negative"}
        numbers = [(f"{x} {n}", labels[label]) for n in range(60) for x, label in verdicts[:2]]
        write_table(self.folder / "reviews.csv", numbers, names)
        tags = "the DET\nfilm NOUN\nis VERB\n\na DET\nfilm NOUN\n\n"
        numbered = (tags.replace("film", f"film{n}") for n in range(30))
        (self.folder / "tags.conll").write_text("".join(numbered))
        stories = {
            "story": [["Ann went home.", "Bob sat down."], ["Eve went to the garden."]] * 20,
            "question": ["Where is Ann?", "Where is Eve?"] * 20,
            "answer": ["home", "garden"] * 20,
            "options": [["home", "garden"], ["garden", "office"]] * 20,
            "facts": [[0]] * 40,
        }
        write_corpus(self.folder / "questions", train=stories, validation=stories, test=stories)
        own = {0: "negative", 1: "positive"}
        write_model(self.folder / "finetuned", texts=texts, id2label=own)
        write_model(self.folder / "pretrained", auto="AutoModel", texts=texts)
        relations = ["entailment", "contradiction"]
        write_model(self.folder / "nli", texts=texts, id2label=dict(enumerate(relations)))
        pairs = [
            {"premise": f"{x} {n}", "hypothesis": y, "label": relations[x == y]}
            for n in range(20)
            for x in texts[:2]
            for y in texts[:2]
        ]
        lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
        (self.folder / "inference.jsonl").write_text(lines)
        write_decoder(self.folder / "decoder", "gpt2")
        asked = [
            {"passage": ["Ann went home.", "Bob sat."], "query": "Where is Ann?", "label": "home"},
            {"passage": ["Bob sat.", "Eve left."], "query": "Where is Eve?", "label": "out"},
        ]
        lines = [json.dumps(question) + "\n" for question in asked * 20]
        for name in ("questions", "earlier"):
            (self.folder / f"{name}.jsonl").write_text("".join(lines))
        for name, labels in {"sst5": [4, 0, 3, 1], "imdb": [1, 0, 1, 0]}.items():
            rows = {"text": texts, "label": labels * 10}
            splits = dict.fromkeys(("train", "validation", "test"), rows)
            write_corpus(self.folder / "corpora" / name, **splits)
        pronouns = {"tokens": [["he", "ran"], ["she", "ran"]] * 20, "label": [0, 1] * 20}
        pronouns["impermissible"] = [[1, 0]] * 40
        splits = dict.fromkeys(("train", "validation", "test"), pronouns)
        write_corpus(self.folder / "corpora/deceptive_pronoun", **splits)
        columns = {"text": texts, "label": [1, 0] * 20, "revised": [False, True, True, False] * 10}
        edits = columns | {"batch_id": [row // 2 for row in range(40)]}
        test = edits | {"text": [f"{text} {row}" for row, text in enumerate(texts)]}
        write_corpus(self.folder / "corpora/counterfactual_imdb", train=edits, validation=test)

    def write_study(self, path: Path, content: dict[str, Any]) -> None:
        """Write the base and one variant of a study of the planted corpus, all of it small."""
        data = dict(part.removeprefix("--data.").split("=") for part in SMALL)
        net = dict(part.removeprefix("--model.net.").split("=") for part in TINY)
        content["options"] = {
            "data": {name: int(size) for name, size in data.items()},
            "trainer": {"max_epochs": 1, "accelerator": "cpu", "devices": 1},
        }
        content["base"]["options"] = {"model": {"net": {key: int(n) for key, n in net.items()}}}
        content["uniform"]["seeds"] = [0]
        kept = {key: content[key] for key in ("experiment", "options", "base", "uniform")}
        path.write_text(yaml.safe_dump(kept, sort_keys=False))

    def follow(self, block: Block) -> None:
        runner = getattr(self, f"run_{block.language}", None)
        assert runner is not None, f"nothing here runs a block of {block.language!r}"
        runner(block)

    def run_bash(self, block: Block) -> None:
        assert set(commands(block.text)) <= COMMANDS, "a command without a stand-in"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        self.printed += done.stdout
        noted = self.folder / "bin/noted"
        words = iter(noted.read_text().split("\0")[:-1] if noted.exists() else [])
        noted.unlink(missing_ok=True)
        for path in words:
            command, count = next(words), int(next(words))
            arguments = [next(words) for _ in range(count)]
            getattr(self, command)(arguments, path)

    def run_console(self, block: Block) -> None:
        """Check that the commands before printed it."""
        assert " ".join(block.text.split()) in " ".join(self.printed.split())

    def pip(self, arguments: list[str], path: str) -> None:
        """Check that what is installed is there, extras included; the wheel has tests of its own."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        found = re.fullmatch(r"install \.(?:\[(\w+)\])?", " ".join(arguments))
        assert found, f"pip {arguments}"
        assert found[1] is None or found[1] in project["optional-dependencies"]

    def attnlight(self, arguments: list[str], path: str) -> None:
        """Run a command on few batches, two tests for `cheap` and `all`; of SLURM the options."""
        if arguments == ["demo"]:
            for line in DEMO:
                self.attnlight(line.split(), path)
            return
        if "--slurm" in arguments:
            place = arguments.index("--slurm")
            given = list(takewhile(lambda word: "=" in word, arguments[place + 1 :]))
            assert slurm_parameters(given)
            arguments = [*arguments[:place], *arguments[place + 1 + len(given) :], "--dry-run"]
        own = {name: f"configs/tests/{name}.yaml" for name in ("cheap", "all")}
        arguments = [own.get(word, word) for word in arguments]
        self.call(main, [*arguments, *LIMITS.get(arguments[0], [])], path)

    def call(self, function: Any, arguments: list[str], path: str = "") -> None:
        """Call a function in a process of its own, to which `path` is PYTHONPATH."""
        environment = self.environment | {"PYTHONPATH": f"{path}:{ROOT}"}
        statuses, printed = in_forks(
            function, arguments, cwd=self.folder, environments=[environment]
        )
        assert statuses == [0], f"{arguments}: {printed[-6000:]}"
        self.printed += printed

    def run_python(self, block: Block) -> None:
        if "captum" in block.text and find_spec("captum") is None:
            return
        file = self.folder / (block.file or "block.py")
        file.write_text(block.text)
        self.call(run_script, [str(file)])

    def run_yaml(self, block: Block) -> None:
        assert block.file, "a configuration that no command can name"
        content = yaml.safe_load(block.text)
        assert not [key for key in keys(content) if "." in key]
        used = [other.text for other in blocks(self.page) if other.language == "bash"]
        assert block.file in " ".join(used).split(), f"no command names {block.file}"
        if "experiment" in content:
            self.write_study(self.folder / block.file, content)
        else:
            (self.folder / block.file).write_text(block.text)

    def run_text(self, block: Block) -> None:
        """A folder and what is in it."""
        home, *lines = block.text.splitlines()
        for line in lines:
            named = re.match(r"[├└]── (\S+)  ", line)
            assert named is not None, f"{line!r} names no file"
            if named[1] == "wandb/":  # W&B is disabled here; tests/test_wandb.py sees to it
                continue
            path = self.folder / home / named[1]
            assert path.is_dir() if named[1].endswith("/") else path.is_file(), path
