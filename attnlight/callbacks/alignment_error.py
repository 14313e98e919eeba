"""Does attention link words of a translation to the words that they translate?"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution import build_attributions
from attnlight.batch import AttentionOutput, HasWords, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.marked import tested_split
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.selection import choose
from attnlight.errors import InputError
from attnlight.functional.alignment_error import alignment_scores
from attnlight.functional.readout.instances import row_texts, texts_of_rows
from attnlight.models.readout import Readout

METHODS = ("attention", "input_gradient", {"name": "occlusion", "replacement": "delete"})


class AlignmentError(InterpretabilityTest):
    """Compare what a translation's words attend to with links that the corpus marks.

    Each target word is linked to the source token of its largest score. Of a sentence, with sure links
    S, possible links P (the sure ones among them) and predicted links A:

    * `error_<method>`: alignment error rate `1 - (|A & S| + |A & P|) / (|A| + |S|)` of Och & Ney
      (2003); `precision_<method>`: `|A & P| / |A|`; `recall_<method>`: `|A & S| / |S|`.
    * `error_threshold`, `precision_threshold`, `recall_threshold`: A are all tokens whose attention,
      mean over heads, is at least `threshold`.
    * `error_diagonal`: each target word is linked to the source token at its relative place.
    * `mass`: attention on the tokens that a target word is linked to, of a word that has links;
      `chance`: their share of the source.

    All rows of a sentence have its scores but the end of the target, which is no word and is undefined:
    a mean over rows weights a sentence by its target words. A row's own link is in `linked_<method>`, 1
    where its largest score is on a link, undefined without links.

    Of some sentences `shown_weights`, `shown_links` and `shown_words` are the attention of each row on
    the source, the links, and the words of the source, for the figure; null of others.

    Args:
        methods: Names of attribution methods, or mappings `{name: ..., option: value}`.
        threshold: Least weight of a link.
        shown: Number of sentences whose attention the figure shows, chosen by a seeded hash.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.

    Raises:
        InputError: `threshold` is outside (0, 1].
    """

    needs_gradients = True

    def __init__(
        self,
        methods: Sequence[str | dict[str, Any]] = METHODS,
        threshold: float = 0.2,
        shown: int = 4,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        if not 0 < threshold <= 1:
            raise InputError(
                f"threshold of {self.name} is {threshold}; it must be above 0, at most 1."
            )
        self.threshold, self.shown = threshold, shown
        self._shown: dict[int, list[str]] = {}
        self.methods = build_attributions(methods, self.name)
        named = (*self.methods, "threshold", "diagonal")
        self.measures = (
            *(f"error_{name}" for name in named),
            *("mass", "chance"),
            *(f"{score}_{name}" for score in ("precision", "recall") for name in named[:-1]),
            *(f"linked_{name}" for name in self.methods),
        )
        self.metadata = {"threshold": threshold}

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        texts = tested_split(around)
        if texts is not None and "links" not in texts.table.column_names:
            raise InputError(
                f"{self.name} needs the links of a translation: `alignment` of TranslationDataModule "
                "names their column, and SymbolSequences has them."
            )

    @override
    def begin(self, around: Surroundings) -> None:
        super().begin(around)
        texts = around.dataset
        if isinstance(texts, HasWords):
            chosen = choose(texts.index, self.shown, self.seed)
            places = np.flatnonzero(np.isin(texts.index, chosen)).tolist()
            with suppress(InputError):  # of batches alone, which hold no words
                self._shown = {int(texts.index[place]): texts.words(place) for place in places}

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        if batch.links is None or batch.target is None:
            raise InputError(
                f"{self.name} needs a corpus with links between words of translations."
            )
        text, position = row_texts(batch, output), output.rows[:, 1]
        links = batch.links[text, position] * output.mask
        linked = links > 0
        without = ~linked.any(-1)
        words = (batch.target >= 0).sum(-1)[text] - 1  # without the end
        word = position < words
        sentence = texts_of_rows(output.rows)
        target = output.logits.argmax(-1)
        columns: dict[str, Tensor] = {}
        predicted = {"threshold": readout.weights >= self.threshold}
        for name, method in self.methods.items():
            scores = method(readout.model, batch, output, target).abs()
            known = scores.nan_to_num(-1.0).masked_fill(~output.mask, -1.0)
            best = known.argmax(-1, keepdim=True)  # of no row without a defined score
            largest = torch.zeros_like(output.mask)
            predicted[name] = largest.scatter(-1, best, known.gather(-1, best) >= 0)
            hit = (predicted[name] & linked).any(-1).double()
            columns[f"linked_{name}"] = hit.masked_fill(without, torch.nan)
        # The item at the same relative place as each row among its target's words.
        place = ((position + 0.5) / words.clamp(min=1) * readout.lengths).long()
        place = place.minimum(readout.lengths - 1)
        predicted["diagonal"] = output.mask & (output.mask.cumsum(-1) - 1 == place[:, None])
        for name, chosen in predicted.items():
            found = alignment_scores(chosen & word[:, None], links, sentence)
            for score, values in found._asdict().items():
                columns[f"{score}_{name}"] = values[sentence].masked_fill(~word, torch.nan)
        shares = {"mass": (readout.weights * linked).sum(-1)}
        shares["chance"] = linked.sum(-1) / readout.lengths.double()
        columns |= {name: share.masked_fill(without, torch.nan) for name, share in shares.items()}
        return columns | {"label": batch.target[text, position]} | self._matrices(readout, links)

    def _matrices(self, readout: Readout, links: Tensor) -> dict[str, pa.Array]:
        """What the figure shows of each row, null of most."""
        mask, rows = readout.output.mask, readout.output.rows[:, 0].tolist()
        found: dict[str, list[Any]] = {"weights": [], "links": [], "words": []}
        for row, index in enumerate(rows):
            words, seen = self._shown.get(index), mask[row]
            found["weights"].append(words and readout.weights[row, seen].tolist())
            found["links"].append(words and links[row, seen].tolist())
            found["words"].append(words)
        kinds = {"weights": pa.float32(), "links": pa.int8(), "words": pa.string()}
        return {f"shown_{name}": pa.array(x, pa.list_(kinds[name])) for name, x in found.items()}
