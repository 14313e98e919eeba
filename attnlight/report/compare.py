"""Several runs side by side: the headline measure of each test, and paired tests of runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnlight.figures import describe
from attnlight.figures.style import INK, PALETTE, canvas, inline_svg, save_figure
from attnlight.figures.tables import Table, estimate, probability
from attnlight.records import KEY, RecordFile, read_record
from attnlight.report.curves import panel_title
from attnlight.report.headlines import headline
from attnlight.report.markup import described_table, render
from attnlight.report.measure_bounds import measure_bounds
from attnlight.report.run import Run, StoredRecord, load_run
from attnlight.report.summary import measure_values, summarise
from attnlight.report.verdict.card import Verdict, verdict_of
from attnlight.report.verdict.estimate import rules
from attnlight.statistics.paired import holm, paired_permutation_tests
from attnlight.statistics.seed_bootstrap import (
    SeedInterval,
    difference_of_groups,
    seeds_then_instances,
)
from attnlight.storage.files import write_text


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, which differ in their seeds, and their test records by test."""

    name: str
    runs: Sequence[Run]
    records: Mapping[str, Sequence[StoredRecord]]


class Measured(NamedTuple):
    """The values of a group in one measure, on the instances that all its runs share."""

    # A row for each of n instances, by dataset index and position, ascending, and a column for each
    # of S runs; NaN where undefined.
    values: pd.DataFrame
    corpus: str | None  # fingerprint of the corpus; None if unknown
    # Mean over the runs, with an interval over runs and texts; of two runs without one.
    mean: SeedInterval


def write_comparison(folders: Sequence[Path], target: Path) -> Path | None:
    """Write one page, table and figure of several runs; the path of the page, None if none was tested.

    Runs whose configurations differ in nothing but seed and names are pooled.
    """
    groups = group_runs(folders)
    found = measure_groups(groups)
    if not found:
        return None
    names = [group.name for group in groups]
    written = comparison_tables(groups, found)
    figure = _draw(names, found)
    save_figure(figure, target / "figures" / "comparison")
    for stem, table in written.items():
        table.write(target / "tables" / stem)
    caption = (
        "The headline measure of each test: means with 95 % intervals; small dots are the runs of a "
        "configuration."
    )
    page = render(
        "compare.html.jinja",
        title=" and ".join(names),
        groups=groups,
        tables=written.values(),
        picture={"svg": inline_svg(figure, "comparison", caption), "caption": caption},
    )
    write_text(target / "index.html", page)
    return target / "index.html"


def comparison_tables(
    groups: Sequence[Group], found: Mapping[tuple[str, str], Mapping[int, Measured]]
) -> dict[str, Table]:
    """Answers of cards, headline measures and, of two groups or more, differences, by stem of file."""
    names = [group.name for group in groups]
    lines = [
        [
            f"{describe(test).title}: {measure}",
            *(estimate(by_group[n].mean) if n in by_group else "–" for n in range(len(groups))),  # noqa: RUF001
        ]
        for (test, measure), by_group in found.items()
    ]
    tables = {"cards": _cards(groups), "measures": described_table("headlines", lines, names)}
    return tables | ({"differences": _differences(names, found)} if len(names) > 1 else {})


def _cards(groups: Sequence[Group]) -> Table:
    """The answers of the verdict cards with their numbers, of each run of a group in turn."""
    cards: list[list[Verdict]] = []
    told: list[list[dict[str, str]]] = []
    for group in groups:
        cards.append([])
        told.append([])
        for run in group.runs:
            cards[-1].append(card := verdict_of(run))
            values = {x.name: "" if x.value is None else f" {x.value:z.2f}" for x in card.lines}
            told[-1].append({x.name: f"{x.answer}{values[x.name]}".strip() for x in card.lines})
            for record in run.records:  # more than may be open at once
                record.file.close()
    sentences = (" / ".join(card.sentence for card in of_group) for of_group in cards)
    rows = [[rules()["heading"], *sentences]]
    questions = {line.name: line.question for of_group in cards for line in of_group[0].lines}
    for name, question in questions.items():
        answers = (", ".join(card.get(name, "–") for card in group) for group in told)  # noqa: RUF001
        rows.append([question, *answers])
    names = [group.name for group in groups]
    scoped = zip(names, (of_group[0].scope for of_group in cards), strict=True)
    scopes = [f"{name}: {scope}" for name, scope in scoped if scope]
    return described_table("cards", rows, names, rules=" ".join([rules()["note"], *scopes]))


def group_runs(folders: Sequence[Path]) -> list[Group]:
    """The runs by configuration and corpus, in the order of their first ones.

    A run without a configuration is a group of its own.
    """
    runs = [load_run(folder) for folder in folders]
    by_config: dict[str, list[Any]] = {}
    for run in runs:
        fit = run.configs["fit"]
        trainer = fit.get("trainer") if isinstance(fit.get("trainer"), dict) else {}
        left_out = ("callbacks", "default_root_dir", "logger")
        options = {n: value for n, value in (trainer or {}).items() if n not in left_out}
        corpus = [record.file.metadata.get("corpus") for record in run.records[:1]]
        config = [fit.get("model"), fit.get("data"), options, corpus] if fit else str(run.folder)
        by_config.setdefault(json.dumps(config, sort_keys=True, default=str), []).append(run)
    groups = []
    for members in by_config.values():
        experiment, name = members[0].folder.resolve().parts[-2:]
        if len(members) > 1:
            name = f"{name} and {len(members) - 1} more"
        records: dict[str, list[StoredRecord]] = {}
        for run in members:
            for record in run.records:
                if record.folder_name == "test":
                    records.setdefault(record.test, []).append(record)
        groups.append(Group(f"{experiment}/{name}", members, records))
    return groups


def measure_groups(groups: Sequence[Group]) -> dict[tuple[str, str], dict[int, Measured]]:
    """The headline measure of each test in each group that has it, by test and measure.

    The headline of the first group that has the test counts for all.
    """
    found: dict[tuple[str, str], dict[int, Measured]] = {}
    for test in dict.fromkeys(test for group in groups for test in group.records):
        first = next(group.records[test][0] for group in groups if test in group.records)
        heading = headline(summarise(first, by_class=False))
        if heading is None:
            continue
        measure = heading.measure
        for number, group in enumerate(groups):
            of_runs = [_values(record.file, measure) for record in group.records.get(test, ())]
            of_runs = [values for values in of_runs if values.notna().any()]
            if not of_runs:
                continue
            values = pd.concat(of_runs, axis=1, join="inner", keys=range(len(of_runs))).sort_index()
            if len(values):
                clusters = values.index.get_level_values(0).to_numpy()
                bounds = measure_bounds(measure)
                mean = seeds_then_instances(values.to_numpy().T, clusters, bounds=bounds)
                corpus = group.records[test][0].file.metadata.get("corpus")
                found.setdefault((test, measure), {})[number] = Measured(values, corpus, mean)
    return found


def _values(record: RecordFile, measure: str) -> pd.Series:
    """Values of a measure of a record by its keys; empty if the record lacks it."""
    columns = ["prediction", "label"] if measure == "accuracy" else [measure]
    if not {*KEY, *columns} <= record.columns.keys():
        return pd.Series(dtype=float)
    rows = read_record(record, [*KEY, *columns]).columns
    record.close()
    keys = pd.MultiIndex.from_arrays([rows[key] for key in KEY], names=KEY)
    return pd.Series(measure_values(rows, measure), keys)


def _differences(
    names: Sequence[str], found: Mapping[tuple[str, str], Mapping[int, Measured]]
) -> Table:
    """Differences of every two groups on the instances that both measured, with p-values."""
    lines = []
    for (test, measure), by_group in found.items():
        compared = []
        for pair in combinations(by_group, 2):
            first, second = (by_group[number] for number in pair)
            both = pd.concat({0: first.values, 1: second.values}, axis=1, join="inner").dropna()
            if not len(both) or (first.corpus and second.corpus and first.corpus != second.corpus):
                continue
            a, b = (both[side].to_numpy().T for side in (0, 1))
            clusters = both.index.get_level_values(0).to_numpy()
            means = np.stack([a.mean(axis=0), b.mean(axis=0)], axis=1)
            p = paired_permutation_tests(means, clusters)[0, 1]
            difference = difference_of_groups(a, b, clusters, bounds=measure_bounds(measure))
            compared.append((pair, difference, p, len(both)))
        for (pair, mean, _, n), p in zip(compared, holm([c[2] for c in compared]), strict=True):
            title = f"{describe(test).title}: {measure}"
            versus = f"{names[pair[0]]} − {names[pair[1]]}"  # noqa: RUF001
            lines.append([title, versus, estimate(mean), probability(p), f"{n:,}"])
    return described_table("differences", lines)


def _draw(names: Sequence[str], found: Mapping[tuple[str, str], Mapping[int, Measured]]) -> Figure:
    """A panel for each measure, two per row: the mean of each group with its interval."""
    rows = max(1, (len(found) + 1) // 2)
    with canvas(rows * (0.75 + 0.24 * len(names)) + 0.2) as figure:
        panels = figure.subplots(rows, 2, squeeze=False, sharey=True)
        for axes, ((_, measure), by_group) in zip(panels.flat, found.items(), strict=False):
            for number, group in by_group.items():
                color = PALETTE[number % len(PALETTE)]
                axes.hlines(number, group.mean.low, group.mean.high, INK, linewidth=1.2)
                runs = group.values.mean().to_numpy()
                if len(runs) > 1:
                    axes.plot(runs, np.full(len(runs), number), "o", color=color, ms=3, alpha=0.7)
                axes.plot(group.mean.mean, number, "o", color=color, mec=INK, ms=6)
            axes.set_title(panel_title(measure), loc="left", fontsize=9)
            axes.grid(axis="x")
            axes.locator_params(axis="x", nbins=4)
        for axes in list(panels.flat)[len(found) :]:
            axes.set_axis_off()
        short = [name if len(name) <= 24 else f"…{name[-23:]}" for name in names]
        panels[0, 0].set_yticks(range(len(names)), short)
        panels[0, 0].set_ylim(len(names) - 0.4, -0.6)
    return figure
