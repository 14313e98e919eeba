"""Does attention follow what the model uses, measured where every counterfactual is known?"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured, fill_undefined
from attnlight.callbacks.marked import marking_column
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.pairs import EVIDENCE
from attnlight.data.word_sampler import WordSampler
from attnlight.datamodules.planted import PlantedEvidence
from attnlight.errors import InputError
from attnlight.functional import attention_entropy, average_precision, somers_d
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.correlation import rank_agreement
from attnlight.functional.ranking import TIE
from attnlight.functional.readout.instances import marked_items
from attnlight.models.readout import Readout
from attnlight.probing.leave_one_out import left_out_logits
from attnlight.probing.swaps import swap_logits

_LABELS = ("agreement_states", "agreement_words", "tau_states", "tau_words", "tau_states_words")
_CONTROLS = ("entropy", "largest_weight", "correct")
_EVIDENCE = ("auprc", "swap_flips", "agreement_evidence", "agreement_resampled")


class MeasuredUse(InterpretabilityTest):
    """Compare attention with the use that the model makes of states and of words.

    For the planted corpus, whose generator knows the counterfactuals of each word. Use is a change
    of the explained log odds, those of the class that is predicted for the complete text, by size:
    they neither saturate where the prediction is certain nor depend on the sign of the change.

    * Use of a state: the change when it is erased at the attention layer and the remaining attention
      is renormalised, in closed form where the readout is affine.
    * Use of a word: the change when it is deleted and the text is encoded again; of a keyword the
      mean of this and of the changes when it is replaced by the keyword of each other class and by a
      filler, of a negator of this and of the change when a filler replaces it.

    With w the attention (mean over heads), the columns are:

    * `agreement_states`, `agreement_words`: over the pairs of items whose use differs by more than
      `least` of the text's largest use, the share that w orders alike less the share that it orders
      the other way (Somers' D of w). From -1 to 1.
    * `tau_states`, `tau_words`: Kendall's tau-b of w and the use over all items. Most pairs are of
      fillers, whose small uses are ordered by their weights in any model, faithful or not.
    * `tau_states_words`: tau-b of the two uses.
    * `auprc`: average precision of w against the evidence for the label; `swap_flips`: share of the
      swaps of a single word of it by another class's word that change the prediction.
    * `agreement_evidence`: Somers' D of w and whether an item is evidence, of either sign: over the
      pairs of an item that is and one that is not. Undefined where all items are or none is.
    * `agreement_resampled`: as `agreement_words`, where no word is deleted: each is replaced by words
      that the generator could have drawn in its place, which are its counterfactuals and, where it
      has none, fillers, drawn by their law. Use is the mean change.
    * `entropy` of w in nats, `largest_weight`, `length`, `correct`: what a test may measure in place
      of the agreement.

    Where items are sentences, use of words is that of a sentence, which is deleted or whose words are
    all replaced at once; counterfactuals of a word that are fewer than the draws repeat.

    Where no word of a text has a counterfactual (`rule: phrase`), the columns that need them are
    undefined. Scores within 1e-5 of the row's largest are ties.

    Args:
        least: Difference of use, as a share of the text's largest, above which a pair counts.
        resamples: Fillers that replace each word without a counterfactual.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    measures = (*_LABELS, *_EVIDENCE, *_CONTROLS, "length")

    def __init__(
        self,
        least: float = 0.1,
        resamples: int = 8,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(1, resamples=resamples)
        if not 0 <= least < 1:
            raise InputError(f"least of {self.name} is {least}; it must be in [0, 1).")
        self.least = least
        self.metadata = {"tie": TIE, "least": least, "use": "change of the explained log odds"}
        self.resamples = resamples
        self._alternatives = torch.empty(0, 0, dtype=torch.long)

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        corpus = around.corpus
        if not isinstance(corpus, PlantedEvidence):
            raise InputError(
                f"{self.name} needs the counterfactuals of words, which only PlantedEvidence has: run "
                "`attnlight test` on it, or give it as the datamodule."
            )
        self._alternatives = counterfactuals(corpus)
        self.word_sampler = filler_sampler(corpus)

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        mask, weights, target = output.mask, readout.weights, output.logits.argmax(-1)
        column = marking_column(self.name, [EVIDENCE], list(batch.extras))
        evidence = marked_items(batch.extras[column] > 0, batch, output)
        explained = log_odds(readout.logits, target)
        states = (log_odds(readout.erase(), target) - explained[:, None]).abs()
        swaps = self._alternatives.to(mask.device)[batch.tokens]
        real = batch.attendable().unsqueeze(-1)
        alternatives = swaps.masked_fill(~real, -1)
        swapped = swap_logits(readout.model, batch, alternatives, self.budget)
        deleted = left_out_logits(readout.model, batch, output, self.budget).double()
        swapped = swapped.expand(-1, -1, -1, deleted.shape[-1])  # without any swap NaN alone
        edited = torch.cat([deleted.unsqueeze(2), swapped], dim=2)  # (R, N, 1 + K, C)
        change = log_odds(edited.flatten(1, 2), target) - explained[:, None]
        words = change.view(edited.shape[:3]).abs().nanmean(-1)
        if (self._alternatives < 0).all():  # deletion alone is no counterfactual
            words = torch.full_like(words, torch.nan)
        columns = {}
        for name, use in {"states": states, "words": words}.items():
            columns[f"agreement_{name}"] = somers_d(weights, use, mask, self.least)
            columns[f"tau_{name}"] = rank_agreement(weights, use, mask, ["tau"])["tau"]
        columns["tau_states_words"] = rank_agreement(states, words, mask, ["tau"])["tau"]
        columns["auprc"] = average_precision(weights, evidence, mask)
        other = evidence.unsqueeze(-1) & ~swapped.isnan().all(-1)
        other[..., -1] = False  # the filler
        flips = (swapped.argmax(-1) != target[:, None, None]) & other
        columns["swap_flips"] = flips.sum((1, 2)) / other.sum((1, 2)).double()
        is_evidence = marked_items(batch.extras[column] != 0, batch, output)
        columns["agreement_evidence"] = somers_d(weights, is_evidence, mask)
        assert self.word_sampler is not None  # by `prepare`
        width, draws = max(self.resamples, swaps.shape[-1]), self.resamples
        if batch.tokens.ndim > 2:  # the last counterfactual of a word, a filler, is never missing
            draws, each = width, torch.arange(width) % swaps.shape[-1]
            swaps = torch.where(swaps[..., each] < 0, swaps[..., -1:], swaps[..., each])
        drawn = self.word_sampler.draw(batch, draws, self.seed).movedim(0, -1)
        drawn, own = (pad(x, (0, width - x.shape[-1]), value=-1) for x in (drawn, swaps))
        drawn = torch.where((swaps >= 0).any(-1, keepdim=True), own, drawn)
        drawn = drawn.masked_fill(~real, -1)
        odds = log_odds(swap_logits(readout.model, batch, drawn, self.budget).flatten(1, 2), target)
        resampled = (odds - explained[:, None]).abs().view(*mask.shape, width).nanmean(-1)
        columns["agreement_resampled"] = somers_d(weights, resampled, mask, self.least)
        columns["entropy"] = attention_entropy(weights)
        columns["largest_weight"] = weights.amax(-1)
        assert batch.labels is not None  # planted texts have one each
        columns["correct"] = (target == batch.labels).double()
        return fill_undefined(columns, readout.undefined(fewest=2)) | {"length": readout.lengths}


def counterfactuals(corpus: PlantedEvidence) -> Tensor:
    """`PlantedSpec.counterfactuals` in the ids of a corpus's vocabulary, (V, C) long."""
    vocabulary = corpus.parsed_tokenizer.get_vocab()
    ids = np.array([vocabulary.get(word, -1) for word in corpus.planted.words])
    table, known = corpus.planted.counterfactuals, ids >= 0
    translated = np.full((len(vocabulary), table.shape[1]), -1, np.int64)
    translated[ids[known]] = np.where(table < 0, -1, ids[table])[known]
    return torch.from_numpy(translated)


def filler_sampler(corpus: PlantedEvidence) -> WordSampler:
    """A sampler of fillers, by their frequency in a planted corpus."""
    vocabulary = corpus.parsed_tokenizer.get_vocab()
    counts = np.zeros(len(vocabulary), np.int64)
    for rank in range(corpus.planted.vocabulary):
        if (number := vocabulary.get(f"filler{rank}")) is not None:
            counts[number] = np.ceil(1e6 * (rank + 1) ** -corpus.planted.zipf)
    texts = SimpleNamespace(token_counts=lambda _: counts)  # of each id of the tokenizer
    return WordSampler(corpus.tokenizer_json, texts)
