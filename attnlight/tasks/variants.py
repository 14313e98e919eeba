"""The two simplest variants of a trained model: uniform attention, and another seed."""

from typing import Any

from attnlight.models.build import changed_net
from attnlight.tasks.from_base import FromBase


class UniformVariant(FromBase):
    """The base's network with uniform attention over the items of each row.

    Is attention, or one of its heads, necessary at all? Wiegreffe & Pinter (2019), 3.1. Uniform
    attention has no parameters. In a hierarchical model the attention over words is uniform too, in
    a tagger that of all layers.

    Args:
        spec: Description of the corpus; the command line supplies it.
        base: Checkpoint of the base model, or the folder of its run.
        head: The only uniform head of a tagger's last layer, from 0; null: all heads.
        options: Options that differ from the base's training, see `FromBase`.
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

    How much does attention vary between seeds? Wiegreffe & Pinter (2019), 3.2. Heads have no order:
    `BaseDivergence` matches them first. The base's objective is part of its training and is taken
    over; other variants have none.

    Args:
        spec: Description of the corpus; the command line supplies it.
        base: Checkpoint of the base model, or the folder of its run.
        options: Options that differ from the base's training, see `FromBase`.
    """

    has_objective = True

    def __init__(self, spec: dict[str, Any], base: str, **options: Any) -> None:  # noqa: ANN401
        super().__init__(spec, base, **options)
        self._build(self.net)
