"""Peak memory of a test on translations of 10,000 classes: `python -m tests.callbacks.memory TEST`.

Prints GiB by which the peak of this process exceeds what it holds with the model: of a forward pass
of 128 sources of 4 to 40 words, and of the test on the longest two, whose 41 and 40 target words are a
block of their own each, as in a longer run. Of a test of all layers it prints GiB that this process takes on
eight texts of 512 tokens, with a model of MiniLM's size.
"""

import resource
import sys

import torch

from attnlight.batch import TextBatch
from attnlight.callbacks import Faithfulness, InterpretabilityTest
from attnlight.callbacks.base import PAIRS
from attnlight.callbacks.hooks.readouts import shared_readout
from attnlight.datamodules import SymbolSequences
from attnlight.models import Seq2Seq
from tests.benchmarks.scene import configured_tests
from tests.callbacks.every import ready

CLASSES, TEXTS, LONGEST = 10_000, 128, 40
FILES = ("translation", "alignment_error")  # of configs/tests/
LAYERS = ("head_roles", "attention_interchange")


def peak() -> float:
    """Largest resident memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def of_long_texts(test: InterpretabilityTest) -> None:
    from attnlight.huggingface import HuggingFaceClassifier

    sizes = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6}
    config = {"model_type": "bert", "num_attention_heads": 12, "pad_token_id": 0} | sizes
    torch.manual_seed(0)
    model = HuggingFaceClassifier(num_classes=2, vocab_size=60, config=config).eval()
    tokens = torch.randint(4, 60, (8, 512))
    batch = TextBatch(torch.arange(8), tokens, tokens > 0)
    ready(test, model, batch)
    with torch.no_grad():
        readout, _ = shared_readout(batch, model(batch), model, torch.ones(8).bool())
        for part in readout.by_texts(PAIRS):
            test.measure(part.batch, part.output, part)
    print(peak())


def main(test: InterpretabilityTest) -> None:
    sizes = {"train_size": 1, "validation_size": 1, "test_size": TEXTS}
    corpus = SymbolSequences(symbols=CLASSES - 1, min_length=4, max_length=LONGEST, **sizes)
    corpus.prepare()
    batch = corpus.dataset("test")[[*range(TEXTS)]]
    torch.manual_seed(0)
    model = Seq2Seq(corpus.spec["vocab_size"], CLASSES, hidden_size=256, initialization=0.1)
    model.eval().requires_grad_(False)
    lengths = batch.mask.sum(-1)
    chosen = lengths >= lengths.topk(2).values[-1]
    if isinstance(test, Faithfulness):
        test._rows_of_text = 1  # as where `max_instances` sentences are measured
    before = peak()
    with torch.no_grad():
        readout, _ = shared_readout(batch, model(batch), model, chosen)
        for part in readout.by_texts():
            test.measure(part.batch, part.output, part)
    print(peak() - before)


if __name__ == "__main__":
    every = [t for file in (*FILES, *LAYERS) for t in configured_tests(file, programs=True)]
    test = next(test for test in every if test.name == sys.argv[1])
    (of_long_texts if test.holds_layers else main)(test)
