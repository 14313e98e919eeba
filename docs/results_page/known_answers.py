"""Scores of the tests by models that were trained and whose use of words is measured.

The study `known_answers` trains them; docs/results/known_answers.parquet has a row for each checkpoint,
with the mean of each measure over its texts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from attnlight.records import read_record
from attnlight.statistics.bootstrap import MeanInterval, defined_mean
from attnlight.studies.plan import plan
from attnlight.studies.spec import read_studies
from results_page.scoring import Bools, Scored, may_decide
from results_page.tables import Row

STUDY = "known_answers"
CONFIGS = Path(__file__).parents[2] / "configs"
USE = "records/test/measured_use.parquet"  # of a run
ASIDE, ASIDE_SEED, REDUNDANT = ("short_10_bilstm", "long_10_none"), 8, "redundant"
LABELS = {"states": "measured_use/agreement_states", "words": "measured_use/agreement_words"}
# Label of a checkpoint that follows use at least, and of one that does not at most. Erasing a state
# moves a prediction in proportion to its weight, so that random attention agrees more with states.
BOUNDS = {"states": (0.8, 0.65), "words": (0.7, 0.5)}
CONTROLS = ("entropy", "largest_weight", "length", "correct")
LEAST, LEAST_SETTINGS = 30, 3  # checkpoints of either group, and settings, to decide
MATCHED = 0.25  # nats: checkpoints whose attention is as peaked
UNSCORED = ("measured_use", "predictions")  # tests of labels and controls
KEYS = ("setting", "treatment", "seed")
KINDS, ALARMS = ("deceit", "displaced", "frozen"), "false alarms"


def archive(
    runs: Path, target: Path, study: str, keys: Sequence[str], row_of: Callable[[Path], Row]
) -> list[str]:
    """Write a row of each finished run of a study below a folder; a line for each left out.

    Args:
        runs: The folder.
        target: The file; its rows of other checkpoints stay.
        study: The study.
        keys: Columns of the names that make its conditions, and of the seed.
        row_of: The other columns of a run; empty if it lacks a test.
    """
    rows, left_out = [], []
    for status in sorted(runs.glob(f"{study}-*/base-s*/status.json")):
        run, state = status.parent, json.loads(status.read_text(encoding="utf-8"))["state"]
        if row := row_of(run) if state == "finished" else {}:
            names = run.parent.name.removeprefix(f"{study}-").split("-", len(keys) - 2)
            point = [*names, int(run.name.removeprefix("base-s"))]
            rows.append(dict(zip(keys, point, strict=True)) | row)
        else:
            left_out.append(f"{run} is {state}, or lacks a test: not archived.")
    if rows:
        write_rows([*kept(rows, keys, target), *rows], keys, target)
    return left_out


def kept(rows: Sequence[Row], keys: Sequence[str], archived: Path) -> list[Row]:
    """The archived rows of other checkpoints than those of some rows."""
    new = {tuple(row[key] for key in keys) for row in rows}
    known = pd.read_parquet(archived).to_dict("records") if archived.exists() else []
    return [row for row in known if tuple(row[key] for key in keys) not in new]


def write_rows(rows: Sequence[Row], keys: Sequence[str], target: Path) -> None:
    """Write rows in the order of their keys, numbers with six digits."""
    frame = pd.DataFrame(rows).sort_values([*keys])
    frame = frame.map(lambda x: float(f"{x:.6g}") if isinstance(x, float) else x)
    frame.to_parquet(target, index=False, compression="brotli", compression_level=11)


def means_of(run: Path) -> Row:
    """The mean of each measure of a run over its texts; empty if its use was not measured."""
    if not (run / USE).is_file():
        return {}
    return {
        f"{record.metadata['test']}/{measure}": float(
            defined_mean(record.columns[measure].astype(np.float64))
        )
        for record in map(read_record, sorted((run / "records/test").glob("*.parquet")))
        for measure in record.metadata.get("measures") or ()
    }


class Checkpoints:
    """The archived checkpoints, and the scores of each measure on those that are not set aside.

    Args:
        frame: A row for each checkpoint: `KEYS`, and its mean of each `<test>/<measure>`.

    Attributes:
        all: The frame.
        fitted: The checkpoints from which scores come.
        measures: The measures that are scored, and the controls.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        aside = frame["setting"].isin(ASIDE) | (frame["seed"] >= ASIDE_SEED)
        redundant = frame["setting"] == REDUNDANT
        self.all, self.aside = frame, frame[aside & ~redundant]
        self.redundant = frame[redundant]
        self.fitted = frame[~aside & ~redundant].reset_index(drop=True)
        names = [name for name in frame if name not in KEYS]
        self.measures = [x for x in names if x.partition("/")[0] not in UNSCORED]
        self.controls = [f"measured_use/{name}" for name in CONTROLS]
        self.settings = pd.factorize(self.fitted["setting"])[0].astype(np.int64)

    def groups(self, label: str, frame: pd.DataFrame | None = None) -> tuple[Bools, Bools]:
        """Which checkpoints follow use, and which do not, (n,) each; the others are in neither."""
        values = (self.fitted if frame is None else frame)[LABELS[label]].to_numpy()
        least, most = BOUNDS[label]
        return values >= least, values <= most

    def scored(self, measure: str, label: str, *, matched: bool = False) -> Scored:
        """A measure on the two groups of a label; `matched`: pairs of similar entropy alone."""
        follows, others = self.groups(label)
        values = np.where(follows | others, self.fitted[measure].to_numpy(np.float64), np.nan)
        entropy = self.fitted["measured_use/entropy"].to_numpy()
        kept = np.abs(entropy[:, None] - entropy) <= MATCHED if matched else None
        return Scored(values, follows, self.settings, kept)

    @cached_property
    def held_out(self) -> dict[str, dict[str, MeanInterval]]:
        """The held-out area of each measure and control, by label."""
        names = [*self.measures, *self.controls]
        return {x: {name: self.scored(name, x).held_out_area() for name in names} for x in LABELS}

    def best_control(self, label: str = "words") -> tuple[str, MeanInterval]:
        """The control of the largest held-out area, and that area."""
        areas = self.held_out[label]
        name = max(self.controls, key=lambda name: np.nan_to_num(areas[name].mean, nan=-1.0))
        return name, areas[name]

    def decided(self, measure: str) -> str:
        """The labels for which a measure may be used with a threshold; empty if for none."""
        labels = []
        for label, areas in self.held_out.items():
            enough = min(x.sum() for x in self.groups(label)) >= LEAST
            enough &= self.settings.max(initial=-1) + 1 >= LEAST_SETTINGS
            labels += [label] * bool(
                enough and may_decide(areas[measure], self.best_control(label)[1])
            )
        return ", ".join(labels)

    def best(self, label: str = "words") -> dict[str, str]:
        """By test its measure of the largest held-out area."""
        best: dict[str, str] = {}
        areas = {name: np.nan_to_num(self.held_out[label][name].mean) for name in self.measures}
        for name in sorted(self.measures, key=lambda name: -areas[name]):
            best.setdefault(name.partition("/")[0], name)
        return dict(sorted(best.items()))

    def kinds(self) -> dict[str, Bools]:
        """The checkpoints whose attention does not follow words, by how they came about, (n,) each.

        `deceit`: the evidence is forbidden to attention and no encoder mixes words; `displaced`: it
        is forbidden and a BiLSTM carries it to other states; `frozen`: random attention.
        """
        _, others = self.groups("words")
        treatment, setting = self.fitted["treatment"].str, self.fitted["setting"].str
        forbidden, mixed = treatment.startswith("deceive"), setting.contains("bilstm")
        found = (forbidden & ~mixed, forbidden & mixed, treatment.startswith("random"))
        return {kind: np.array(rows) & others for kind, rows in zip(KINDS, found, strict=True)}

    def noticed(self, measure: str) -> dict[str, MeanInterval]:
        """Share of each kind, and of what follows words, that a measure notices.

        Thresholds are fitted on the other settings.
        """
        scored, (follows, _) = self.scored(measure, "words"), self.groups("words")
        kinds = self.kinds() | {ALARMS: follows}
        return {kind: scored.noticed(rows) for kind, rows in kinds.items()}


def planned(study: str = STUDY) -> Counter[str]:
    """Number of checkpoints that a study plans, by condition; of several files of one name in all."""
    files = sorted((CONFIGS / "studies").glob(f"{study}*.yaml"))
    return Counter(
        {str(one.condition): len(plan(one)) for file in files for one in read_studies(file)}
    )
