"""What does each head of a transformer attend to, and how many heads does the model need?"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.attention_sinks import punctuation
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.head_ablation import HeadAblation
from attnlight.callbacks.predictions import row_labels
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.bio import has_chunks, tag_scheme
from attnlight.data.samplers import OnceSampler
from attnlight.data.selection import choose
from attnlight.datamodules import ChunkingDataModule
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.functional.chunks import group_targets, role_targets
from attnlight.models.readout import Readout
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.layers import attended
from attnlight.probing.patches import Patch, off, restrict
from attnlight.probing.removal import repeat_half
from attnlight.probing.replay import Replay, layered
from attnlight.reference import using_split

PERCENTS = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)  # of the heads, which are pruned
_REPEATED = ("duplicate", "induction")
_LEARNED_ON = "validation"


class HeadRoles(InterpretabilityTest):
    """Attention of each head on the tokens that roles of heads name, and accuracy by heads that are left.

    Roles (Clark et al. 2019; Voita et al. 2019; Olsson et al. 2022) are those of
    `functional.role_targets`, `punctuation` of corpora with a vocabulary. Of corpora whose tokens have tags
    there is also `same_chunk`, the other tokens of a token's chunk, or `same_tag`, those of its tag where
    tags are of no chunks; no parse is needed. Roles overlap: the first token may be the one before. For
    each role:

    * `mass_<role>`: attention on these tokens, mean over layers, heads and the text's tokens that have
      some (of a tagger, of the row's token alone); `..._by_layer` (R, L) of each layer, and `..._by_head`
      (R, L H) of each head, layer by layer.
    * `chance_<role>`: the same of uniform attention on all that a token may reach.

    With `repeats` words are replaced by words of the corpus, drawn by the seed, so that the second half
    of a text repeats the first. The model reads that once, and `repeated_duplicate` and
    `repeated_induction` are roles there.

    With `prune` heads are switched off in the order of their importance, least first (Michel et al. 2019):
    the mean change of the prediction without the head alone, `tvd_head_off` of `HeadAblation`, on texts of
    the validation split. `correct_pruned_<per cent>` is whether the prediction is the label without that
    share of the heads, and `correct_random_<per cent>` the same in a random order. Nothing is pruned on
    the validation split itself.

    Args:
        repeats: Measure on repeated words too, which costs a forward pass.
        prune: Prune heads too: all heads of L layers with H heads cost about H (L + 1) / 2 forward passes
            of each text that the order is learned from, and 19 of each that is tested.
        prune_texts: Texts that the order is learned from, chosen by a seeded hash.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    holds_layers = True

    def __init__(
        self,
        repeats: bool = True,
        prune: bool = False,
        prune_texts: int = 200,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(1, prune_texts=prune_texts)
        self.repeats, self.prune, self.prune_texts = repeats, prune, prune_texts
        self.replacement = "resample" if repeats else ""
        self._marks: list[int] | None = None
        self._tags: tuple[str, Any] | None = None  # role and scheme
        self._orders: dict[str, list[tuple[int, int]]] = {}  # of layers and heads
        self._name()

    def _name(self) -> None:
        """Set `measures`, with those of punctuation, tags and pruning where these are known."""
        roles = ["previous", "next", "same", "first", "separator"]
        roles += [] if self._marks is None else ["punctuation"]
        roles += _REPEATED if self._tags is None else [*_REPEATED, self._tags[0]]
        roles += [f"repeated_{role}" for role in _REPEATED if self.repeats]
        masses = (f"{measure}_{role}" for role in roles for measure in ("mass", "chance"))
        pruned = (f"correct_{name}_{percent}" for name in self._orders for percent in PERCENTS)
        self.measures = (*masses, *pruned)

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        layers = len(layered(around.model, self.name).attention_layers)
        self.metadata = {"layers": layers, "learned_on": None}
        corpus = around.corpus
        if isinstance(corpus, CorpusDataModule):
            self._marks = punctuation(corpus)
        if isinstance(corpus, ChunkingDataModule) and corpus.target == "tokens":
            chunks = has_chunks(corpus.classes)
            scheme = tag_scheme(corpus.classes) if chunks else None
            self._tags = "same_chunk" if chunks else "same_tag", scheme
        known = isinstance(corpus, CorpusDataModule) and _LEARNED_ON in corpus.splits
        if self.prune and not known:
            raise InputError(
                f"prune of {self.name} learns the order of the heads from a validation split, and there is "
                "none: use `attnlight test` with a corpus that has one."
            )
        self._name()

    @override
    def begin(self, around: Surroundings) -> None:
        self._orders = {}
        if self.prune and around.split != _LEARNED_ON:
            # Mean change of the prediction without each head alone, (L, H), the same on every rank.
            texts, ablation = around.corpus.dataset(_LEARNED_ON), HeadAblation(["off"])
            chosen = np.searchsorted(texts.index, choose(texts.index, self.prune_texts, self.seed))
            changes = []
            with torch.no_grad(), using_split(_LEARNED_ON):
                for places in OnceSampler(texts.lengths[chosen], 32, pairs=1 << 16):
                    batch = texts[chosen[places].tolist()].to(around.strategy.root_device)
                    columns = ablation.measure(batch, around.model(batch), around.model)
                    changes.append(columns["tvd_head_off_by_head"])
            mean = torch.cat(changes).nanmean(0)
            importance = mean.view(self.metadata["layers"], -1).cpu()
            generator = torch.Generator().manual_seed(self.seed)
            orders = {"pruned": importance.flatten().argsort(stable=True)}
            orders["random"] = torch.randperm(importance.numel(), generator=generator)
            for name, order in orders.items():
                heads = (divmod(number, importance.shape[1]) for number in order.tolist())
                self._orders[name] = list(heads)
            self.metadata = {**self.metadata, "learned_on": _LEARNED_ON, "orders": self._orders}
        self._name()
        super().begin(around)

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        model, texts = layered(readout.model, self.name), FlatTexts.of(batch).batch
        marks = None if self._marks is None else texts.tokens.new_tensor(self._marks)
        targets = [(batch, role_targets(texts, marks))]
        if self._tags is not None and texts.labels is not None:
            role, scheme = self._tags
            targets[0][1][role] = group_targets(texts.labels, scheme)
        if self.repeats:
            assert self.word_sampler is not None
            copies = repeat_half(batch, self.word_sampler.draw(batch, 1, self.seed)[0])
            found = role_targets(FlatTexts.of(copies).batch)
            targets.append((copies, {f"repeated_{role}": found[role] for role in _REPEATED}))
        columns: dict[str, Tensor] = {}
        for read, roles in targets:
            stacked = torch.stack([*roles.values()], dim=-1)
            masses, chances = attended(model, read, output, stacked, stacked.any(2))
            for role, mass, chance in zip(roles, masses.unbind(-1), chances.T, strict=True):
                layers = mass.view(len(mass), len(model.attention_layers), -1)
                columns |= {f"mass_{role}": mass.mean(1), f"chance_{role}": chance}
                columns |= {f"mass_{role}_by_layer": layers.mean(-1), f"mass_{role}_by_head": mass}
        return columns | (self._pruned(batch, output, readout) if self._orders else {})

    def _pruned(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> dict[str, Tensor]:
        """Whether predictions are the labels without some shares of the heads, (R,) float64 each."""
        patches: dict[tuple[str, int], dict[int, Patch]] = {}
        for name, order in self._orders.items():
            for count in {round(len(order) * percent / 100) for percent in PERCENTS} - {0}:
                gone = order[:count]
                heads = {n: [head for layer, head in gone if layer == n] for n, _ in gone}
                patches[name, count] = {n: restrict(off, chosen) for n, chosen in heads.items()}
        replay, label = Replay(readout.model, batch, self.name), row_labels(batch, output)
        label = torch.full_like(output.rows[:, 0], -1) if label is None else label
        found = replay.logits([*patches.values()], self.budget)
        logits = dict(zip(patches, found.unbind(1), strict=True))
        columns = {}
        for name, order in self._orders.items():
            for percent in PERCENTS:
                left = logits.get((name, round(len(order) * percent / 100)), replay.output.logits)
                right = (left.argmax(-1) == label).double()
                columns[f"correct_{name}_{percent}"] = right.masked_fill(label < 0, torch.nan)
        return columns
