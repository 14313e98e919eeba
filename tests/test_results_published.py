"""The figures of docs/results/published.yaml, and the runs and tables that meet them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

import yaml

from tests.kept import BLOCKS, DOCS

PUBLISHED = yaml.safe_load((DOCS / "results/published.yaml").read_text(encoding="utf-8"))
CELLS = PUBLISHED["cells"]
CONFIGS = DOCS.parent / "configs"
SOURCES = ("repository", "plots", "recalled", "paper")
FIGURE = re.compile(
    r"(\d+ of \d+|<?-?\d+(\.\d+)?(e-\d+)?)( ± \d+\.\d+)?( \([01]\.\d+\))?"  # value, spread, share
)
ALL = "every model of the table"
PLANNED = {  # runs that no configuration has yet
    "wiegreffe_pinter_ag_news",
    *(f"honest_{x}-{y}" for x in ("snli", "babi_2", "babi_3") for y in ("plain", "diversity")),
    *(f"honest_{x}-orthogonal" for x in ("snli", "babi_2", "babi_3")),
    *(
        f"jain_wallace_pairs-babi_{task}_{encoder}_{attention}"
        for task in (2, 3)
        for encoder in ("cnn", "average")
        for attention in ("additive", "scaled_dot")
    ),
}


def leaves(
    table: Any, skip: Sequence[str] = (), keys: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Keys and figure of each leaf of nested tables and lists that is not null."""
    if isinstance(table, Mapping):
        for key, part in table.items():
            if key not in skip:
                yield from leaves(part, skip, (*keys, key))
    elif isinstance(table, list):
        for part in table:
            yield from leaves(part, skip, keys)
    elif table is not None:
        yield keys, table


def figures(name: str) -> list[tuple[tuple[str, ...], Any]]:
    """The leaves of a table of `cells`."""
    table = reduce(lambda table, key: table[key], name.split("."), PUBLISHED)
    return [*leaves(table, CELLS[name].get("skip", ()))]


def met(name: str) -> Iterator[tuple[str, str]]:
    """The run and the reading that meet each figure of a table; none where it lacks something."""
    spec = CELLS[name]
    for keys, _ in figures(name) if spec["run"] else ():
        known = spec | dict(zip(spec["levels"], keys, strict=True))
        if "condition" in known:
            corpora = [x for x in PUBLISHED["corpora"] if known["condition"].startswith(f"{x}_")]
            known["corpus"] = max(corpora, key=len)
        run, reading = (
            part[known[key]] if isinstance(part := spec[kind], Mapping) else part
            for kind, key in (("run", "corpus"), ("reading", "measure"))
        )
        known["run"] = run.format(**known)
        yield known["run"], (reading or "").format(**known)


def test_each_figure_is_of_one_table() -> None:
    settings = ("cells", "corpora", "sources", "serrano_claims")
    every = Counter(str(x) for k, t in PUBLISHED.items() if k not in settings for _, x in leaves(t))
    for name, spec in CELLS.items():
        table = reduce(lambda table, key: table[key], name.split("."), PUBLISHED)
        every -= Counter(str(x) for _, x in leaves(table))
        assert spec.get("source", SOURCES[0]) in SOURCES
        assert (spec["run"] is None) == ("lacks" in spec), name
        for _, figure in figures(name):
            assert FIGURE.fullmatch(str(figure)), (name, figure)
    assert every == Counter([PUBLISHED["wiegreffe_pinter"]["source"]])


def test_runs_are_configured_and_readings_exist() -> None:
    known = {path.stem for kind in ("experiments", "studies") for path in CONFIGS.glob(f"{kind}/*")}
    for path in CONFIGS.glob("studies/*.yaml"):
        study = yaml.safe_load(path.read_text(encoding="utf-8"))
        known |= {f"{path.stem}-{name}" for name in study.get("conditions", ())}
        known |= {"-".join([path.stem, *cell]) for cell in product(*study.get("grid", ()))}
    pairs = {pair for name in CELLS for pair in met(name)}
    assert {run for run, _ in pairs} - {ALL} - known == PLANNED
    for table, _, column in (x.partition(": ") for run, x in pairs if run not in PLANNED):
        assert not column or f"| {column}" in BLOCKS[table].splitlines()[0], (table, column)
