"""The groups of runs that a study file lists, each read from its part of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnlight.errors import InputError
from attnlight.studies.sections import Section

GUIDES = ("uniform", "learned", "base", "shuffled", "adversary", "other")
CONTEXTS = ("full", "tokens", "query_key")
TERMS = ("kl", "js", "tvd")
COMPAT = "compat"
ADVERSARY_KEYS = ("lambdas", "seeds", "bases", "options")


@dataclass(frozen=True)
class Group:
    """Runs of one kind.

    Attributes:
        seeds: Their seeds.
        options: What they are told beyond the experiment, as options of `fit`.
    """

    seeds: tuple[int, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Uniform(Group):
    """Uniform attention.

    Attributes:
        heads: Heads of a tagger that are uniform alone, all others learned, each with every seed.
    """

    heads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Guides(Group):
    """Guided MLPs, or guided taggers.

    Attributes:
        names: Whose attention guides them, each with every seed.
        contexts: What a guided tagger makes of it, each with every name and seed: `full`, with the
            base's encoder and readout; `tokens`, over tokens read alone; `query_key`, moved by
            trained queries and keys, which is for attention that is given.
    """

    names: tuple[str, ...] = ()
    contexts: tuple[str, ...] = CONTEXTS[:1]


@dataclass(frozen=True)
class Adversaries:
    """Adversaries.

    Attributes:
        lambdas: For each attention term the weights to try, ascending; `compat` is KL of a tagger
            on the scale of Yang's (2020) released code.
        seeds: For each attention term the seeds.
        bases: Seeds of the bases to be unlike.
        options: What they are told beyond the experiment, as options of `fit`.
    """

    lambdas: Mapping[str, tuple[float, ...]]
    seeds: Mapping[str, tuple[int, ...]]
    bases: tuple[int, ...]
    options: tuple[str, ...] = ()

    @property
    def term(self) -> str:
        """The attention term that guides are told by: KL, as the paper's, or else the first."""
        return "kl" if "kl" in self.lambdas else next(iter(self.lambdas))


def read_group(part: Section, shared: tuple[str, ...]) -> Group:
    """Runs that have seeds alone.

    Args:
        part: Their mapping.
        shared: Options of all runs, before their own.

    Raises:
        InputError: As for all of these functions: a value is out of range.
    """
    return Group(part.seeds(), shared + part.options())


def read_uniform(whole: Section, shared: tuple[str, ...], *, tagger: bool) -> Uniform:
    """Uniform attention, of a tagger by head too."""
    part = whole.part("uniform", ("seeds", *(["heads"] if tagger else []), "options"))
    return Uniform(part.seeds(), shared + part.options(), part.seeds("heads", what="head"))


def read_guides(whole: Section, shared: tuple[str, ...], *, tagger: bool) -> Guides:
    """Guided models; those of a tagger name contexts too."""
    part = whole.part("guides", ("names", *(["contexts"] if tagger else []), "seeds", "options"))
    contexts = part.words("contexts", CONTEXTS, default=CONTEXTS[:1])
    names = part.words("names", GUIDES)
    return Guides(part.seeds(), shared + part.options(), names, contexts)


def read_adversaries(
    whole: Section, bases: tuple[int, ...], shared: tuple[str, ...], *, tagger: bool
) -> Adversaries | None:
    """Adversaries of some of the bases; None where the file has none."""
    if whole.content.get("adversaries") is None:
        return None
    part = whole.part("adversaries", ADVERSARY_KEYS)
    terms = (*TERMS, COMPAT) if tagger else TERMS
    grid = part.part("lambdas", terms)
    lambdas = {term: grid.lambdas(term) for term in grid.content}
    if not lambdas:
        raise InputError(f"{part.place}: lambdas needs a list for one of {', '.join(terms)}.")
    if isinstance(part.content.get("seeds"), dict):
        by_term = part.part("seeds", tuple(lambdas))
        seeds = {term: by_term.seeds(term) for term in lambdas}
    else:
        seeds = dict.fromkeys(lambdas, part.seeds())
    against = part.seeds("bases", default=bases[:1])
    if not set(against) <= set(bases):
        raise InputError(f"{part.place}: bases must be seeds of `base`, which has {list(bases)}.")
    return Adversaries(lambdas, seeds, against, shared + part.options())
