"""Three newcomers install attnlight and ask the commands of README of a corpus of their own."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.data.local import write_table
from tests.reader import README, blocks

pytestmark = pytest.mark.slow
SECONDS = 600  # of all three commands together, of one core
QUESTION = "May the attention of this model be read as an explanation?"
GOOD = ("gripping", "funny", "warm", "clever", "moving", "fresh", "bright", "graceful")
BAD = ("dull", "tired", "clumsy", "cold", "shallow", "noisy", "stale", "endless")
NOUNS = ("plot", "cast", "film", "score", "script", "ending", "camera", "dialogue", "hero")
FILLERS = ("we saw it on a rainy evening", "it opened last week", "it runs for two hours")
FILLERS += ("the theatre was half full", "a friend had told me of it", "it is set in a small town")


def reviews(count: int) -> Iterator[tuple[str, str]]:
    """Texts of 10 to 40 words and their verdicts: most of their three adjectives decide."""
    draw = random.Random(0)
    for _ in range(count):
        good = [draw.random() < 0.5 for _ in range(3)]
        words = (draw.choice(GOOD if one else BAD) for one in good)
        clauses = [f"the {draw.choice(NOUNS)} is {word}" for word in words]
        clauses += draw.sample(FILLERS, draw.randint(0, 4))
        draw.shuffle(clauses)
        yield ", ".join(clauses), "praise" if sum(good) > 1 else "blame"


def write_tags(file: Path) -> None:
    """Sentences of which each line is a word and its tag, a blank line between them."""
    draw = random.Random(0)
    sentences = []
    for _ in range(1500):
        lines = []
        for clause in range(draw.randint(1, 3)):
            lines += [("and", "O")] * (clause > 0) + [("the", "B-NP")]
            lines += [(draw.choice(GOOD + BAD), "I-NP")] * (draw.random() < 0.5)
            lines += [(draw.choice(NOUNS), "I-NP"), (draw.choice(("was", "seemed")), "B-VP")]
            lines += [(draw.choice(GOOD + BAD), "B-ADJP")]
        sentences.append("".join(f"{word} {tag}\n" for word, tag in lines))
    file.write_text("\n".join(sentences))


BERT = """
import csv, torch
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

rows = list(csv.DictReader(open("reviews.csv")))
texts, names = [row["review"] for row in rows], ["blame", "praise"]
pieces = BertWordPieceTokenizer()
pieces.train_from_iterator(texts, vocab_size=200, show_progress=False)
special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces._tokenizer, **special)
torch.manual_seed(0)
torch.set_num_threads(1)
config = BertConfig(vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2,
    num_attention_heads=2, intermediate_size=128, id2label=dict(enumerate(names)),
    label2id={name: number for number, name in enumerate(names)}, pad_token_id=tokenizer.pad_token_id)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for start in range(0, 3200, 32):
    batch = tokenizer(texts[start : start + 32], padding=True, return_tensors="pt")
    labels = torch.tensor([names.index(row["verdict"]) for row in rows[start : start + 32]])
    model(**batch, labels=labels).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.save_pretrained("finetuned")
tokenizer.save_pretrained("finetuned")
"""


class Newcomer:
    """A fresh environment with attnlight and no variable of ours, and a folder of one's own."""

    def __init__(self, folder: Path, extras: str = "") -> None:
        self.home, self.bin = folder / "home", folder / "venv/bin"
        self.home.mkdir()
        kept = {
            k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_", "LANG", "OMP_"))
        }
        self.environment = kept | {"HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin"}
        venv.create(folder / "venv", with_pip=True)
        leave = shutil.ignore_patterns("__pycache__")
        for name in ("attnlight", "configs"):  # a copy, since pip leaves a folder where it builds
            shutil.copytree(ROOT / name, folder / "source" / name, symlinks=True, ignore=leave)
        for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
            shutil.copy(ROOT / name, folder / "source")
        install = f"pip install --quiet -c constraints.txt .{extras}"
        self.run(install, cwd=folder / "source")

    def run(self, command: str, cwd: Path | None = None) -> str:
        """What a command prints that ends with status 0."""
        done = subprocess.run(
            [self.bin / (words := shlex.split(command, comments=True))[0], *words[1:]],
            cwd=cwd or self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {(done.stdout + done.stderr)[-6000:]}"
        return done.stdout


def spent() -> float:
    """CPU seconds of all processes that have ended: at least the time that one quiet core takes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def answered(newcomer: Newcomer, run: str, words: str) -> None:
    """Give README's three commands with these words, each of which ends with what it wrote."""
    (block,) = (b for b in blocks(README) if b.language == "bash" and words in b.text)
    commands, before = block.text.splitlines(), spent()
    printed = [newcomer.run(command) for command in commands]
    assert len(commands) == 3
    assert spent() - before <= SECONDS
    for command, text in zip(commands, printed, strict=True):
        written = newcomer.home / text.rstrip().splitlines()[-1]
        assert written.exists() or command.startswith("attnlight explain"), text
    card = json.loads((newcomer.home / run / "report/verdict.json").read_text(encoding="utf-8"))
    sentence: str = card["sentence"]
    page = (newcomer.home / run / "report/index.html").read_text(encoding="utf-8")
    said = " ".join(" ".join(printed).split())
    assert QUESTION in said
    assert sentence in said
    assert sentence.split(":")[0] in " ".join(re.sub("<[^>]+>", "", page).split())
    assert "measured" not in sentence
    assert "no class is predicted" not in sentence


def test_own_texts(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    write_table(newcomer.home / "reviews.csv", reviews(4000), ("review", "verdict"))
    answered(newcomer, "checkpoints/reviews/first", "bilstm_additive --data reviews.csv")


def test_own_bert(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path, "[transformers]")
    write_table(newcomer.home / "reviews.csv", reviews(4000), ("review", "verdict"))
    (tmp_path / "bert.py").write_text(BERT)
    newcomer.run(f"python {tmp_path / 'bert.py'}")
    answered(newcomer, "checkpoints/finetuned/first", "test finetuned --data reviews.csv")


def test_own_tags(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    write_tags(newcomer.home / "tags.conll")
    answered(newcomer, "checkpoints/tags/first", "--data tags.conll")
