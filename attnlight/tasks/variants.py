"""The two plainest variants of a trained model: uniform attention, and another seed."""

from __future__ import annotations

from typing import Any

from attnlight.models.build import changed_net
from attnlight.tasks.from_base import FromBase


class UniformVariant(FromBase):
    """The base's network with attention fixed to uniform over what it may reach.

    Is attention needed at all, or is that of one head? Wiegreffe & Pinter (2019), 3.1. Attention that
    is uniform has no parameters. In a hierarchical model that over words is uniform too, in a tagger
    that of all layers.

    Args:
        spec: What a model must know of its corpus; the command line takes it from there.
        base: Checkpoint of the base model, or the folder of its run.
        head: The head of a tagger's last layer that is uniform, from 0, while all others are
            learned; null: all of them.
        options: What differs from the base's training, see `FromBase`.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        base: str,
        head: int | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, base, **options)
        self._build(changed_net(self.hparams["problem"], self.net, "uniform_net", head=head))


class SeedVariant(FromBase):
    """The base's model, trained from another seed: `--seed_everything` gives it.

    How much does attention vary where nothing but chance differs? Wiegreffe & Pinter (2019), 3.2.
    Heads have no order: `BaseDivergence` matches them first.

    Args:
        spec: What a model must know of its corpus; the command line takes it from there.
        base: Checkpoint of the base model, or the folder of its run.
        options: What differs from the base's training, see `FromBase`.
    """

    def __init__(self, spec: dict[str, Any], base: str, **options: Any) -> None:  # noqa: ANN401
        super().__init__(spec, base, **options)
        self._build(self.net)
