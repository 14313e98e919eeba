"""Every interpretability test that `attnlight.callbacks` names, by what it needs beyond a model."""

from __future__ import annotations

from typing import Any

from attnlight import callbacks
from attnlight.callbacks import InterpretabilityTest

NEEDS = {
    "layers": {"AttentionSinks", "HeadAblation"},
    "marks": {"EvidenceMass", "ImpermissibleMass", "Plausibility"},
    "planted texts": {"MeasuredUse"},
    "base": {"BaseDivergence"},
    "random networks": {"Sanity"},
    "words": {"Texts"},
    "time": {"AttributionCost"},
}
# What a test has no default for.
OPTIONS: dict[str, dict[str, Any]] = {"ImpermissibleMass": {"column": "evidence"}}


def every(*needs: str) -> dict[str, type[InterpretabilityTest]]:
    """The tests by class name that need a model and its texts, and of more only `needs`."""
    without = set[str]().union(*(names for need, names in NEEDS.items() if need not in needs))
    kinds = {name: getattr(callbacks, name) for name in callbacks.__all__ if name not in without}
    return {
        name: kind
        for name, kind in kinds.items()
        if issubclass(kind, InterpretabilityTest) and kind is not InterpretabilityTest
    }


def built(*needs: str) -> list[InterpretabilityTest]:
    """An instance of each of these tests."""
    return [kind(**OPTIONS.get(name, {})) for name, kind in every(*needs).items()]
