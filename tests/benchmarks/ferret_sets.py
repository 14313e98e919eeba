"""Removing the first items of a ranking from texts, by ferret and by `Faithfulness`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnlight.callbacks import Faithfulness
from attnlight.huggingface import HuggingFaceClassifier
from attnlight.models.readout import readout_of
from tests.benchmarks.pretrained import model_of

SHARES = [0.05, 0.1, 0.2, 0.3, 0.5]  # ferret leaves out shares that remove as many of 20 words
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def removed_sets(
    shape: Mapping[str, int], texts: int, words: int
) -> tuple[dict[str, Callable[[], Tensor]], Callable[[], object]]:
    """Comprehensiveness and sufficiency (B, 2) of attention by each, and a plain forward pass.

    Both read the texts without the first items of attention's ranking and of a random one, and with
    these alone, for each share: ferret's `only_pos=True` and our one draw ask for as many sets.
    """
    import ferret  # type: ignore[import-not-found]
    from ferret.explainers.explanation import Explanation  # type: ignore[import-not-found]

    tokenizer, plain = tokenizer_of(shape["vocab_size"]), model_of(dict(shape))
    model = HuggingFaceClassifier(model_of(dict(shape)), tokenizer).eval()
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(SPECIAL), shape["vocab_size"], (texts, words), generator=generator)
    sentences = [" ".join(f"w{number}" for number in numbers) for numbers in drawn.tolist()]
    batch = model.encode(sentences)
    with torch.no_grad():
        output = model(batch)
    readout, random = readout_of(batch, output, model), torch.rand(output.mask.shape)
    test = Faithfulness(methods=["attention"], shares=SHARES, draws=1)
    kinds = ferret.AOPC_Comprehensiveness_Evaluation, ferret.AOPC_Sufficiency_Evaluation
    evaluators = [kind(plain, tokenizer) for kind in kinds]
    removal = {"remove_tokens": True, "based_on": "perc", "thresholds": SHARES}

    def evaluated(scores: Tensor) -> Tensor:
        found = []
        for text, own, target in zip(
            sentences, scores, output.logits.argmax(-1).tolist(), strict=True
        ):
            pieces = ["[CLS]", *text.split(), "[SEP]"]
            explanation = Explanation(text, pieces, own.numpy(), "attention", target)
            options = {"target": target, "only_pos": True, "removal_args": removal}
            found.append([e.compute_evaluation(explanation, **options).score for e in evaluators])
        return torch.tensor(found)

    def theirs() -> Tensor:
        evaluated(random)
        return evaluated(output.weights.mean(1))

    def ours() -> Tensor:
        columns = test.measure(batch, output, readout)
        names = ("comprehensiveness_attention", "sufficiency_attention")
        return torch.stack([columns[name] for name in names], 1)

    forward = torch.no_grad()(partial(plain, input_ids=batch.tokens))
    return {"theirs": torch.no_grad()(theirs), "ours": ours}, forward


def tokenizer_of(words: int) -> Any:
    """A fast tokenizer whose tokens are the words w5, w6 and so on."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    every = [*SPECIAL, *(f"w{number}" for number in range(len(SPECIAL), words))]
    network = models.WordLevel({word: place for place, word in enumerate(every)}, "[UNK]")
    tokenizer = Tokenizer(network)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [(name, every.index(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    names = {f"{name.strip('[]').lower()}_token": name for name in SPECIAL}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
