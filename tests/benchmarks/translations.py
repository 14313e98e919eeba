"""Translations: an epoch, candidate attentions, and memory beside a model of 10,000 classes."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attnlight.data.raw_text import RawText
from attnlight.datamodules import SymbolSequences
from attnlight.models import Seq2Seq
from attnlight.tasks import AdversarialVariant, Translator
from tests.bases import save, trainer
from tests.benchmarks.measuring import Measured, interleave, over, timed
from tests.benchmarks.processes import python
from tests.benchmarks.scene import configured_tests, random_texts
from tests.benchmarks.training import translation_epoch
from tests.callbacks.memory import CLASSES, FILES, LONGEST

NET: dict[str, Any] = {"hidden_size": 256, "embedding_size": 256}  # of translation_en_de.yaml


@torch.no_grad()
def translation(
    repetitions: int = 5,
    texts: int = 16,
    tokens: int = 13,
    draws: int = 100,
    classes: int = CLASSES,
    epoch: Callable[[], Measured] = translation_epoch,
) -> Measured:
    """An epoch over that of a plain loop, and candidates of every target token over a forward pass."""
    torch.manual_seed(0)
    batch = random_texts(0, texts, tokens, classes)
    batch.target = torch.randint(1, classes, (texts, tokens + 1))
    batch.target[:, -1] = 0
    model = Seq2Seq(classes, classes, **NET).eval()
    output = model(batch)
    attentions = torch.rand(len(output.rows), 1, draws, tokens).softmax(-1)
    candidates, forward = f"{draws} candidates of {len(output.rows)} tokens", "forward pass"
    ways = {
        candidates: partial(timed, partial(model.readout, output, attentions)),
        forward: partial(timed, partial(model, batch), 10),
    }
    seconds = interleave(ways, repetitions)
    with torch.enable_grad():
        trained = epoch()
    return trained | over(seconds, translation_candidates=(candidates, forward))


def memory(
    names: Sequence[str] = tuple(t.name for file in FILES for t in configured_tests(file)),
    sentences: int = 1500,
) -> Measured:
    """GiB that a test and an adversary take, and MB that the latter keeps of its base, each in a process."""
    peaks = {n: float(python("-m", "tests.callbacks.memory", n).splitlines()[-1]) for n in names}
    details = {name: f"{peak:.2f} GiB above the model" for name, peak in peaks.items()}
    with tempfile.TemporaryDirectory(prefix="attnlight-adversary-") as folder:
        command = ["-m", "tests.benchmarks.translations", folder, str(sentences)]
        found = json.loads(python(*command).splitlines()[-1])
    details[f"an adversary, {sentences:,} sentences"] = found.pop("details")
    return Measured({"test_memory": [max(peaks.values())]} | found, details)


def adversary(folder: Path, sentences: int) -> dict[str, Any]:
    """What a process holds that trains an adversary for an epoch, and what it writes."""
    sizes = {"train_size": sentences, "validation_size": 128, "test_size": 1}
    lengths = {"min_length": 4, "max_length": LONGEST, "batch_size": 128}
    corpus = SymbolSequences(
        symbols=CLASSES - 1, cache_dir=str(folder / "cache"), **sizes, **lengths
    )
    corpus.prepare()
    base = Translator(corpus.spec, net=NET)  # type: ignore[arg-type]
    base.raw = RawText.of_corpus(corpus)
    path = save(base, folder / "base.ckpt")
    terms: dict[str, Any] = {"prediction_term": "tvd", "attention_term": "js"}
    task = AdversarialVariant(corpus.spec, str(path), 0.1, **terms)
    fit = trainer(folder, max_epochs=1, gradient_clip_val=1.0)
    fit.fit(task, datamodule=corpus)
    kept = sum(file.stat().st_size for file in folder.glob("cache/outputs-*/*")) / 1e6
    fit.save_checkpoint(folder / "best.ckpt", weights_only=True)
    model = (folder / "best.ckpt").stat().st_size / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    details = f"{peak:.2f} GiB; {kept:.1f} MB of the base's outputs, {model:.0f} MB of weights"
    return {"adversary_memory": [peak], "adversary_disk": [kept + model], "details": details}


if __name__ == "__main__":
    print(json.dumps(adversary(Path(sys.argv[1]), int(sys.argv[2]))))
