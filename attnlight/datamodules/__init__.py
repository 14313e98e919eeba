"""Corpora as LightningDataModules."""

from attnlight.datamodules.babi import BabiStories
from attnlight.datamodules.base import CorpusDataModule
from attnlight.datamodules.chunking import ChunkingDataModule
from attnlight.datamodules.pair import PairDataModule
from attnlight.datamodules.planted import PlantedEvidence
from attnlight.datamodules.symbols import SymbolSequences
from attnlight.datamodules.text import TextDataModule
from attnlight.datamodules.translation import TranslationDataModule

__all__ = [
    "BabiStories",
    "ChunkingDataModule",
    "CorpusDataModule",
    "PairDataModule",
    "PlantedEvidence",
    "SymbolSequences",
    "TextDataModule",
    "TranslationDataModule",
]
