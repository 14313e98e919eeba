"""Is attention on the evidence of the corpus, and is that evidence the model's own?"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import UNK, AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured, fill_undefined
from attnlight.callbacks.marked import marking_column, tested_split
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.pairs import EVIDENCE
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.functional import average_precision, expected_average_precision
from attnlight.functional.ranking import TIE, dense_ranks
from attnlight.functional.readout.instances import marked_items, row_texts
from attnlight.models.readout import Readout
from attnlight.probing.swaps import swap_flips

_MEASURES = ("mass", "top_in_evidence", "auprc", "chance", "chance_auprc")
_OF_SENTENCES = ("top_sentence_in_evidence", "chance_sentence")
_SWAPS = ("flips_with_evidence", "flips_with_others", "proven", "without_answer")


class EvidenceMass(InterpretabilityTest):
    """Compare attention with the evidence that the corpus marks, beside chance.

    An item is evidence if the corpus's column `evidence` is positive for it or, if items are
    sentences, for any of its words. With w the attention (mean over heads), m of n attended items
    being evidence:

    * `mass`: sum of w over the evidence.
    * `top_in_evidence`: whether the item of largest w is evidence; if several are tied (within 1e-5
      of the largest), the share of these that is.
    * `auprc`: average precision of w against the evidence, tied items at one threshold.
    * `chance`: m / n. It is exactly the mass and the average precision of uniform attention, and the
      probability that a random item is evidence.
    * `chance_auprc`: the exact expectation of the average precision of a random order, which is
      above m / n in short texts and converges to it in long ones.
    * `evidence_items`: m; `without_evidence`: whether m is 0. The other columns are undefined then.

    With several heads, `mass_by_head`, `top_in_evidence_by_head` and `auprc_by_head` (R, H) are of
    each head alone.

    Where words are items and the corpus has full stops as tokens (bAbI's stories), sentences are
    compared too. A sentence ends with `.`, `!` or `?`, or several of these; it is evidence if one of
    its attended words is, and its weight is the sum of theirs:

    * `top_sentence_in_evidence`: whether the sentence of largest weight is evidence, with ties as
      above.
    * `chance_sentence`: share of the sentences that are evidence, the probability that a random
      sentence is.

    The evidence of a corpus is the reason of the task, not necessarily of the model. `swap` measures
    whether it is the model's, for corpora whose class names are words of the texts (bAbI's places).
    Swappable classes of a text are those that it may be answered with and that its query does not
    name; with S of them in a cycle by their numbers there are S - 1 swaps, swap k replacing a class
    by the k-th after it:

    * `flips_with_evidence`: share of the swaps that change the prediction when each token of the
      evidence (of its sentences, if sentences are kept apart) that names the text's label is
      replaced by the name of the other class.
    * `flips_with_others`: the same share when, in place of that, each token outside the evidence
      that names a swappable class is replaced.
    * `proven`: whether the first is 1 and the second 0, so that the answer depends on what the
      evidence says and not on what the rest says.
    * `<column>_proven` of the first five columns and those of sentences: their values where `proven`
      is 1, else undefined.
    * `without_answer`: whether the swaps are undefined: the evidence does not name the label, the
      text has no label or fewer than two swappable classes, or its label is not one of them. The
      columns before are undefined then.

    Query, allowed classes and all else stay as they are.

    Args:
        swap: Measure the columns from `flips_with_evidence` on, for models of one row per text. Each
            swap encodes the texts twice more.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    measures = (*_MEASURES, "without_evidence")

    def __init__(self, swap: bool = False, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self.swap = swap
        self.metadata = {"tie": TIE, "swap": swap}
        self._names: Tensor | None = None
        self._stops: list[int] = []
        self._name_measures()

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        texts = tested_split(around)
        if texts is not None:
            marking_column(self.name, [EVIDENCE], texts.extras)
            corpus: CorpusDataModule = around.corpus
            of_words = not texts.nested and not texts.whole_words
            ends = map(corpus.parsed_tokenizer.token_to_id, ".!?" if of_words else "")
            self._stops = [number for number in ends if number is not None]
            self._name_measures()
            if self.swap and texts.labels is None:
                raise InputError(f"swap of {self.name} needs a corpus with a label for each text.")
            if self.swap:
                self._names = class_tokens(corpus, f"swap of {self.name}")
        elif self.swap:
            raise InputError(
                f"swap of {self.name} takes the names of classes from a corpus of "
                "attnlight.datamodules: run `attnlight test` on one, or give it as the datamodule."
            )

    def _name_measures(self) -> None:
        """Set `measures`: of items, of sentences if there are full stops, and of swaps if asked for."""
        compared = (*_MEASURES, *(_OF_SENTENCES if self._stops else ()))
        swapped = (*_SWAPS, *(f"{name}_proven" for name in compared)) if self.swap else ()
        self.measures = (*compared, "without_evidence", *swapped)

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        column = marking_column(self.name, [EVIDENCE], list(batch.extras))
        tokens, mask = batch.extras[column] > 0, output.mask
        items = marked_items(tokens, batch, output)
        count = items.sum(-1)
        columns = _on_evidence(readout.weights, items, mask) | {
            "chance": count / readout.lengths.double(),
            "chance_auprc": expected_average_precision(count, readout.lengths),
        }
        heads = output.weights.shape[1]
        if heads > 1:
            each = partial(torch.repeat_interleave, repeats=heads, dim=0)
            by_head = _on_evidence(readout.head_weights.flatten(0, 1), each(items), each(mask))
            columns |= {f"{name}_by_head": by_head[name].view(-1, heads) for name in by_head}
        if self._stops:
            stops = torch.isin(batch.tokens, batch.tokens.new_tensor(self._stops))
            stops = stops[row_texts(batch, output)]
            found = sentences_in_evidence(readout.weights, items, mask, stops)
            columns |= dict(zip(_OF_SENTENCES, found, strict=True))
        columns = fill_undefined(columns, count == 0)
        columns |= {"evidence_items": count, "without_evidence": (count == 0).double()}
        if not self.swap:
            return columns
        assert self._names is not None  # since `setup`
        names = self._names.to(batch.tokens.device)
        if tokens.ndim == 3:  # items are sentences
            tokens = tokens.any(-1, keepdim=True).expand_as(tokens)
        flips = swap_flips(readout.model, batch, tokens, names)
        proven = torch.where(flips[0].isnan(), torch.nan, (flips[0] == 1) & (flips[1] == 0))
        columns |= dict(zip(_SWAPS, (*flips, proven, proven.isnan().double()), strict=True))
        kept = [name for name in (*_MEASURES, *_OF_SENTENCES) if name in columns]
        of_proven = (torch.where(proven == 1, columns[name], torch.nan) for name in kept)
        return columns | dict(zip((f"{name}_proven" for name in kept), of_proven, strict=True))


def _on_evidence(weights: Tensor, evidence: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """`mass`, `top_in_evidence` and `auprc` of weights (R, N), each (R,)."""
    ranks = dense_ranks(weights, mask)
    top = mask & (ranks == ranks.amax(-1, keepdim=True))
    return {
        "mass": (weights * evidence).sum(-1),
        "top_in_evidence": (top & evidence).sum(-1).double() / top.sum(-1),
        "auprc": average_precision(weights, evidence, mask),
    }


def sentences_in_evidence(
    weights: Tensor, evidence: Tensor, mask: Tensor, stops: Tensor
) -> tuple[Tensor, Tensor]:
    """`top_sentence_in_evidence` and `chance_sentence`, each (R,).

    Of weights (R, N) and, (R, N) bool, evidence, attended items, and tokens that end a sentence.
    """
    begins = stops.roll(1, -1) & ~stops
    begins[:, 0] = False
    number = begins.cumsum(-1)  # of each item's sentence
    sums = (
        torch.zeros_like(weights).scatter_add(-1, number, values.to(weights.dtype) * mask)
        for values in (weights, evidence, mask)
    )
    sentence_weights, supporting, size = sums
    supports, present = supporting > 0, size > 0
    top = _on_evidence(sentence_weights, supports, present)["top_in_evidence"]
    return top, supports.sum(-1).double() / present.sum(-1)


def class_tokens(corpus: CorpusDataModule, reader: str) -> Tensor:
    """Token id of each class's name in a corpus's vocabulary, (C,) long; `reader` needs them.

    Raises:
        InputError: A name is not one token of the vocabulary, or two names are the same token.
    """
    tokens: dict[int, str] = {}
    for name in corpus.classes:
        ids = corpus.parsed_tokenizer.encode(name, add_special_tokens=False).ids
        if len(ids) != 1 or ids[0] == UNK:
            raise InputError(
                f"{reader} needs class names that are words of the texts, and {name!r} is not one "
                f"token of the vocabulary of {corpus.corpus_name}."
            )
        if ids[0] in tokens:
            raise InputError(
                f"{reader} needs class names that differ as tokens of the texts, and {name!r} and "
                f"{tokens[ids[0]]!r} of {corpus.corpus_name} are one token."
            )
        tokens[ids[0]] = name
    return torch.tensor(list(tokens))
