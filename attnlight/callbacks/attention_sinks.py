"""How much attention lies on tokens that carry no content, and what do tests make of it?"""

import unicodedata
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.surroundings import Surroundings
from attnlight.datamodules.base import CorpusDataModule
from attnlight.functional.correlation import rank_agreement
from attnlight.functional.ranking import TIE, ranking
from attnlight.models.readout import Readout
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.layers import attended
from attnlight.probing.leave_one_out import prediction_change
from attnlight.probing.replay import layered
from attnlight.probing.row_gradients import text_of_rows

_SINKS = ("special", "first", "punctuation")
# What tokenizers put before or after a piece of a word.
_MARKS = ("##", "\u0120", "\u2581", "</w>", "@@")


class AttentionSinks(InterpretabilityTest):
    """Attention on special, first and punctuation tokens in every layer, and tests without them.

    Transformers attend much to tokens that carry no content (Clark et al., 2019; Xiao et al., 2024).
    Sinks are: `special`, boundary tokens such as [CLS] and [SEP]; `first`, the first token that the
    model reads, special or not; `punctuation`, tokens of punctuation marks and symbols alone, of
    corpora with a vocabulary. For each kind of sink:

    * `mass_<sink>`: attention on these tokens, mean over layers, heads and the text's tokens as
      queries (of a tagger, the row's token alone); `mass_<sink>_by_layer` (R, L), of each layer; and
      `mass_<sink>_by_head` (R, L H), of each head, layer by layer.
    * `tau_without_<sink>`: as `tau`, over the other items.
    * `erased_<sink>`: total variation distance between the predictions with and without these items
      in the attention that is tested; undefined where none of its items is one, as where special
      tokens are `fixed`.
    * `erased_top_without_<sink>`: as `erased_top`, of the other items.

    Over all items of the attention that is tested (mean over heads):

    * `tau`: Kendall's tau-b of attention and the change of the prediction when an item is erased.
    * `erased_top`: change (total variation distance) when the most attended item is erased.

    Weights and changes that are ties by `dense_ranks` are tied; of tied weights the first from the left
    is on top. The last three are undefined without enough items. What is erased keeps no weight, and
    the others share it.

    Args:
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self.metadata = {"tie": TIE, "layers": None}
        self._punctuation: list[int] | None = None
        self._name_measures()

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        model = layered(around.model, self.name)
        self.metadata = {"tie": TIE, "layers": len(model.attention_layers)}
        corpus = around.corpus
        if isinstance(corpus, CorpusDataModule):
            self._punctuation = punctuation(corpus)
        self._name_measures()

    def _name_measures(self) -> None:
        """Set `measures`, with those of punctuation if the vocabulary is known."""
        sinks = _SINKS[:2] if self._punctuation is None else _SINKS
        parts = ("mass", "tau_without", "erased", "erased_top_without")
        measures = [f"{part}_{sink}" for part in parts for sink in sinks]
        self.measures = (*measures, "tau", "erased_top")

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        flat = FlatTexts.of(batch)  # of words, sinks are among their pieces
        texts, read = flat.batch, flat.batch.mask
        sinks = {"special": read & ~texts.attendable(), "first": read & (read.cumsum(-1) == 1)}
        if self._punctuation is not None:
            ids = texts.tokens.new_tensor(self._punctuation)
            sinks["punctuation"] = read & torch.isin(texts.tokens, ids)
        text, items, model = text_of_rows(batch, output), output.mask, readout.model
        model, count = layered(model, self.name), len(read[0])
        targets = torch.stack([*sinks.values()], dim=-1).unsqueeze(1).expand(-1, count, -1, -1)
        queries = read.unsqueeze(-1).expand(-1, -1, len(sinks))
        masses, _ = attended(model, batch, output, targets, queries)
        change = prediction_change(readout.erase(), readout.logits)
        rows = torch.arange(len(items), device=items.device)
        columns: dict[str, Tensor] = {}
        for (name, tokens), mass in zip(sinks.items(), masses.unbind(-1), strict=True):
            sink = (flat.sums(tokens.int()) > 0)[text] & items
            by_layer = mass.view(len(mass), len(model.attention_layers), -1).mean(-1)
            columns |= {f"mass_{name}": mass.mean(1), f"mass_{name}_by_layer": by_layer}
            columns[f"mass_{name}_by_head"] = mass
            columns |= _of_items(readout.weights, change, items & ~sink, f"_without_{name}")
            erased = prediction_change(readout.keep(rows, (items & ~sink)[:, None]), readout.logits)
            columns[f"erased_{name}"] = erased[:, 0].masked_fill(~sink.any(-1), torch.nan)
        return columns | _of_items(readout.weights, change, items)


def _of_items(weights: Tensor, change: Tensor, items: Tensor, end: str = "") -> dict[str, Tensor]:
    """`tau` and `erased_top` of weights and changes (R, N) over items (R, N) bool, each (R,)."""
    top = ranking(weights, items)[:, :1]
    erased = change.gather(-1, top).squeeze(-1).masked_fill(~items.any(-1), torch.nan)
    tau = rank_agreement(weights, change, items, ["tau"])["tau"]
    return {f"tau{end}": tau, f"erased_top{end}": erased}


def punctuation(corpus: CorpusDataModule) -> list[int]:
    """Ids of the tokens of a corpus's vocabulary that are punctuation marks and symbols alone."""
    found = []
    for token, number in corpus.parsed_tokenizer.get_vocab().items():
        for mark in _MARKS:
            token = token.removeprefix(mark).removesuffix(mark)
        if token and all(unicodedata.category(character)[0] in "PS" for character in token):
            found.append(number)
    return sorted(found)
