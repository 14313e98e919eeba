"""Every code block of the README runs as it stands, in order, in a copy of what it names.

The PATH of the blocks begins with stand-ins, so that they end soon and start nothing elsewhere:
`attnlight` trains and tests for a few batches, `./launch.sh` prints what it would run, `sbatch` runs
its line as SLURM would in an allocation of 2 nodes with 4 tasks each.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from attnlight.records import read_record
from tests.commands import CONFIGS, QUIET, ROOT
from tests.test_configs import interpretability_tests, keys

README = (ROOT / "README.md").read_text(encoding="utf-8")
LIMITS = {
    "fit": "--trainer.max_epochs=1 --trainer.limit_train_batches=4 --trainer.limit_val_batches=2",
    "test": "--trainer.limit_test_batches=2",
}
ATTNLIGHT = f"""#!/usr/bin/env bash
case $1 in
  fit) set -- "$@" {LIMITS["fit"]} {" ".join(QUIET)} ;;
  test) set -- "$@" {LIMITS["test"]} {" ".join(QUIET)} ;;
esac
exec {shlex.quote(sys.executable)} -m attnlight "$@"
"""
LAUNCH = """#!/usr/bin/env bash
[[ $1 != --dry-run ]] || shift
exec "${BASH_SOURCE[0]%/*}/launch.real.sh" --dry-run "$@"
"""
SBATCH = """#!/usr/bin/env bash
SLURM_JOB_ID=1 SLURM_NNODES=2 SLURM_NTASKS=8 exec bash -c "${!#}"
"""
COMMANDS = {"attnlight", "./launch.sh", "sbatch"}
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
    """Someone who follows the README in a folder of their own."""

    def __init__(self, folder: Path, corpora: Path) -> None:
        self.folder = folder
        self.printed = ""
        shutil.copytree(CONFIGS, folder / "configs")
        shutil.copy(ROOT / "launch.sh", folder / "launch.real.sh")
        self.script("launch.sh", LAUNCH)
        self.script("bin/attnlight", ATTNLIGHT)
        self.script("bin/sbatch", SBATCH)
        self.own_corpus()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(OF_A_LAUNCHER)}
        self.environment = kept | {
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "ATTNLIGHT_DATA": str(corpora),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "WANDB_MODE": "offline",
        }

    def script(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def own_corpus(self) -> None:
        """The folder of reviews that the README's reader has."""
        (self.folder / "reviews").mkdir()
        verdicts = [("a joy from start to end", "pos"), ("a bore and a waste", "neg")]
        verdicts += [("a triumph", "great"), ("it has an end", "mixed")]
        for split in ("train", "dev", "test"):
            with (self.folder / f"reviews/{split}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([("sentence", "verdict"), *verdicts * 40])

    def follow(self, block: Block) -> None:
        runner = getattr(self, f"run_{block.language}", None)
        assert runner is not None, f"nothing here runs a block of {block.language!r}"
        runner(block)

    def call(self, *command: str) -> None:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        self.printed += done.stdout

    def run_bash(self, block: Block) -> None:
        assert set(commands(block.text)) <= COMMANDS, "a command without a stand-in"
        self.call("bash", "-euo", "pipefail", "-c", block.text)

    def run_python(self, block: Block) -> None:
        file = self.folder / (block.file or "block.py")
        file.write_text(block.text)
        self.call(sys.executable, str(file))

    def run_yaml(self, block: Block) -> None:
        assert block.file, "a configuration that no command can name"
        content = yaml.safe_load(block.text)
        assert not [key for key in keys(content) if "." in key]
        used = [other.text for other in blocks(README) if other.language == "bash"]
        assert block.file in " ".join(used).split(), f"no command names {block.file}"
        (self.folder / block.file).write_text(block.text)

    def run_text(self, block: Block) -> None:
        """A folder and what is in it."""
        home, *lines = block.text.splitlines()
        for line in lines:
            named = re.match(r"[├└]── (\S+)  ", line)
            assert named is not None, f"{line!r} names no file"
            path = self.folder / home / named[1]
            assert path.is_dir() if named[1].endswith("/") else path.is_file(), path


@pytest.mark.slow
def test_every_block_runs(tmp_path: Path, corpora: Path) -> None:
    reader = Reader(tmp_path, corpora)
    for block in blocks(README):
        try:
            reader.follow(block)
        except AssertionError as error:
            pytest.fail(f"README.md, line {block.line}: {error}")
    assert_left_behind(tmp_path / "checkpoints")
    for line in ("torchrun --nnodes 2 --node-rank 0", "srun --nodes 2 --ntasks 8", "pytest -n 2"):
        assert line in reader.printed


def assert_left_behind(checkpoints: Path) -> None:
    """What the README says that its commands write."""
    run = checkpoints / "sst_bilstm/seed0"
    page = (run / "report/index.html").read_text(encoding="utf-8")
    assert "attention_permutation" in page
    assert (run / "figures/test/attention_permutation.svg").is_file()
    own = read_record(run / "records/test/uniform_attention.parquet")
    assert own.metadata["measures"] == ["tvd", "flipped"]
    assert own.metadata["classes"] == ["negative", "positive"]
    assert ((own.columns["tvd"] >= 0) & (own.columns["tvd"] <= 1)).all()
    other = read_record(run / "records/test-reviews/attention_permutation.parquet")
    assert other.metadata["corpus_name"] == "reviews"
    assert 0 <= other.metadata["unknown_words"] < 1
    outside = read_record(checkpoints / "bag/first/records/test/attention_permutation.parquet")
    assert outside.metadata["partial"] is False
    assert (checkpoints / "reviews/first/best.ckpt").is_file()


def test_blocks_are_found_with_their_lines() -> None:
    found = list(blocks("one\n```bash\nA=1 \\\n  run -x  # why\n```\n\n```\nplain\n```\n"))
    assert found == [Block(3, "bash", "A=1 \\\n  run -x  # why\n"), Block(8, "", "plain\n")]
    assert list(commands(found[0].text)) == ["run"]
    assert Block(1, "yaml", "# a.yaml\nb: 1\n").file == "a.yaml"
    assert found[0].file is None
    assert README.count("```") == 2 * len(list(blocks(README)))


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (Block(1, "rust", ""), "nothing here runs"),
        (Block(1, "", "attnlight report x\n"), "nothing here runs"),
        (Block(1, "bash", "X=1 rm file\n"), "without a stand-in"),
        (Block(1, "yaml", "a: 1\n"), "no command can name"),
        (Block(1, "yaml", "# unused.yaml\na: 1\n"), "no command names"),
        (Block(1, "text", "configs/\n└── missing.yaml  what\n"), "missing.yaml"),
        (Block(1, "bash", "attnlight report nowhere\n"), "nowhere"),
        (Block(1, "python", "raise ValueError('wrong')\n"), "wrong"),
    ],
)
def test_a_block_that_does_not_run_is_told(tmp_path: Path, block: Block, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        Reader(tmp_path, tmp_path).follow(block)


def test_links_lead_somewhere() -> None:
    links = set(re.findall(r"\]\(([^)#]+)\)", README))
    assert {"docs/architecture.md", "LICENSE"} <= links
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert not missing


def test_table_of_tests_is_true() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (here|planned) \|$", README, re.MULTILINE)
    here = {name for name, state in rows if state == "here"}
    assert here == interpretability_tests()
    assert {state for _, state in rows} == {"here", "planned"}


def test_versions_of_python_are_those_of_the_launcher() -> None:
    lowest, above = re.findall(r"\(3, (\d+)\)", (ROOT / "launch.sh").read_text(encoding="utf-8"))
    assert f"Python 3.{lowest} to 3.{int(above) - 1}" in README
