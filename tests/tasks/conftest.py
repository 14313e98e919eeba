"""Corpora of texts, of texts in sentences, of pairs and of tokens, and bases of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from attnlight.datamodules.base import CorpusDataModule
from tests.bases import Planted, save_base
from tests.pairs import PlantedPairs, save_pairs
from tests.tasks.symbols import Symbols, save_translator
from tests.tasks.tagged import corpus, save_tagger, written

# What each test that takes `scene` is run on.
BOTH = pytest.mark.parametrize("scene", ["two", "tokens"], indirect=True)
TWO = pytest.mark.parametrize("scene", ["two"], indirect=True)
TOKENS = pytest.mark.parametrize("scene", ["tokens"], indirect=True)


@dataclass(frozen=True)
class Scene:
    """A corpus and what writes the checkpoint of an untrained base of it."""

    corpus: CorpusDataModule
    save: Callable[..., Path]

    def base(self, folder: Path, name: str = "base", **options: Any) -> Path:
        return self.save(folder / f"{name}.ckpt", self.corpus, **options)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    return {
        "two": Scene(Planted(), save_base),
        "three": Scene(Planted(num_classes=3), save_base),
        "sentences": Scene(
            Planted(True, num_classes=3),
            lambda *place, **options: save_base(*place, hierarchical=True, **options),
        ),
        "pairs": Scene(PlantedPairs(), save_pairs),
        "symbols": Scene(Symbols(), save_translator),
        "tokens": Scene(corpus(written(tmp_path_factory.mktemp("chunks"))), save_tagger),
    }


@pytest.fixture
def scene(request: pytest.FixtureRequest, scenes: dict[str, Scene]) -> Scene:
    """The scene of a test's parameter, `@pytest.mark.parametrize("scene", [...], indirect=True)`."""
    return scenes[request.param]


@pytest.fixture
def base(scene: Scene, tmp_path: Path) -> Path:
    """The checkpoint of an untrained base of the scene."""
    return scene.base(tmp_path)
