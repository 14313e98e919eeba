"""The cells of docs/results/published.yaml: every published figure with an id and the run that meets it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from attnlight.errors import InputError

SOURCES = ("repository", "plots", "recalled", "paper")
_FIGURE = re.compile(
    r"(?P<value>\d+ of \d+|<?-?\d+(?:\.\d+)?(?:e-\d+)?)"
    r"(?: ± (?P<deviation>\d+\.\d+))?(?: \((?P<share>[01]\.\d+)\))?"
)
_SPREAD = {"deviation": "sd over texts", "share": "share significant"}


class Cell(NamedTuple):
    """A published figure.

    Attributes:
        id: Paper, corpus, model, measure, and predicted class and bin where there are several.
        value: The figure as its source prints it.
        spread: Units of the figures beside it: `none`, or some of `sd over texts` and
            `share significant`, the share of texts with p at most .05.
        deviation, share: These figures.
        source: One of `SOURCES`.
        run: The experiment, or the study and its condition, whose records meet the cell.
        reading: `record/column` of its records, or `table: column` of the page.
        lacks: What the repository would need first, if there is no `run`.
    """

    id: str
    paper: str
    corpus: str
    model: str
    measure: str
    value: str
    spread: str
    deviation: str | None
    share: str | None
    source: str
    run: str | None
    reading: str | None
    lacks: str | None


def published_cells(published: Mapping[str, Any]) -> list[Cell]:
    """Every published figure, in the order of `cells` in published.yaml.

    Raises:
        InputError: A figure is not of the form that the file describes.
    """
    return [
        _cell(
            published["corpora"], spec, dict(zip(spec["levels"], keys, strict=True)), place, figure
        )
        for name, spec in published["cells"].items()
        for keys, place, figure in _figures(
            reduce(lambda table, key: table[key], name.split("."), published), spec.get("skip", ())
        )
    ]


def _figures(
    table: Any,  # noqa: ANN401
    skip: Sequence[str],
    keys: tuple[str, ...] = (),
    place: tuple[int, ...] = (),
) -> Iterator[tuple[tuple[str, ...], tuple[int, ...], str]]:
    """Keys, positions in lists of several, and figure of each leaf of a table that is not null."""
    if isinstance(table, Mapping):
        for key, part in table.items():
            if key not in skip:
                yield from _figures(part, skip, (*keys, key), place)
    elif isinstance(table, list):
        for number, part in enumerate(table):
            yield from _figures(part, skip, keys, (*place, number) if len(table) > 1 else place)
    elif table is not None:
        yield keys, place, table


def _cell(
    corpora: Sequence[str],
    spec: Mapping[str, Any],
    levels: Mapping[str, str],
    place: Sequence[int],
    figure: str,
) -> Cell:
    """The cell of a figure, from the levels of its table and what `spec` says of the others."""
    known = {**spec, **levels}
    if "condition" in levels:
        known["corpus"] = max(
            (x for x in corpora if levels["condition"].startswith(f"{x}_")), key=len
        )
        known["model"] = levels["condition"].removeprefix(f"{known['corpus']}_")
    parts = [known[level] for level in ("paper", "corpus", "model", "measure")]
    name = ".".join(_word(part) for part in [*parts, *map(str, place)])
    if "source" in levels and levels["source"] != "repository":
        name += f".{levels['source']}"
    if (found := _FIGURE.fullmatch(str(figure))) is None:
        raise InputError(f"published.yaml: {name} is {figure!r}, which is not a published figure.")
    spread = [unit for key, unit in _SPREAD.items() if found[key]]
    run = _of(spec["run"], known["corpus"])
    known["run"] = run and run.format(**known)
    reading = _of(spec["reading"], known["measure"]) if run else None
    return Cell(
        name,
        *parts,
        **found.groupdict(),
        spread=", ".join(spread) or "none",
        source=known["source"],
        run=known["run"],
        reading=reading and reading.format(**known),
        lacks=spec.get("lacks"),
    )


def _of(part: Any, key: str) -> str | None:  # noqa: ANN401
    """What a part of a table's specification says of one corpus or measure, or of all."""
    found: str | None = part[key] if isinstance(part, Mapping) else part
    return found


def _word(name: str) -> str:
    """A part of an id: words joined by underscores."""
    return re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_")
