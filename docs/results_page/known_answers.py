"""Scores of the tests by models that were trained and whose use of words is measured.

The study `known_answers` trains them; docs/results/known_answers.parquet has a row for each checkpoint,
with the mean of each measure over its texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from attnlight.figures import describe
from attnlight.records import read_record
from attnlight.statistics.bootstrap import MeanInterval, defined_mean
from attnlight.studies.plan import plan
from attnlight.studies.spec import read_studies
from results_page.scoring import Bools, Scored, may_decide, rank_correlation
from results_page.tables import DASH, Row, interval, number, table

STUDY = "known_answers"
CONFIGS = Path(__file__).parents[2] / "configs"
ASIDE, ASIDE_SEED, REDUNDANT = ("short_10_bilstm", "long_10_none"), 8, "redundant"
LABELS = {"states": "measured_use/agreement_states", "words": "measured_use/agreement_words"}
# Label of a checkpoint that follows use at least, and of one that does not at most. Erasing a state
# moves a prediction in proportion to its weight, so that random attention agrees more with states.
BOUNDS = {"states": (0.8, 0.65), "words": (0.7, 0.5)}
CONTROLS = ("entropy", "largest_weight", "length", "correct")
LEAST, LEAST_SETTINGS = 30, 3  # checkpoints of either group, and settings, for a decider
MATCHED = 0.25  # nats: checkpoints whose attention is as peaked
UNSCORED = ("measured_use", "predictions")  # tests of labels and controls
KEYS = ("setting", "treatment", "seed")
HALF = 0.5  # share of a kind that a test which notices it must exceed
KINDS = ("deceit", "displaced", "frozen")
_WORDS = {"correct": "accuracy", "entropy": "entropy of attention"}  # of controls


def archive_checkpoints(runs: Path, target: Path) -> list[str]:
    """Write the means of all finished checkpoints below a folder; a line for each left out."""
    rows, left_out = [], []
    for status in sorted(runs.glob(f"{STUDY}-*/base-s*/status.json")):
        records = sorted((status.parent / "records/test").glob("*.parquet"))
        state = json.loads(status.read_text(encoding="utf-8"))["state"]
        if state != "finished" or "measured_use" not in {path.stem for path in records}:
            left_out.append(f"{status.parent} is {state}, or untested: not archived.")
            continue
        setting, treatment = status.parents[1].name.removeprefix(f"{STUDY}-").split("-")
        row: dict[str, object] = {"setting": setting, "treatment": treatment}
        row["seed"] = int(status.parent.name.removeprefix("base-s"))
        for record in map(read_record, records):
            for measure in record.metadata.get("measures") or ():
                mean = float(defined_mean(record.columns[measure].astype(np.float64)))
                row[f"{record.metadata['test']}/{measure}"] = float(f"{mean:.6g}")
        rows.append(row)
    if rows:
        frame = pd.DataFrame(rows).sort_values(list(KEYS))
        frame.to_parquet(target, index=False, compression="zstd")
    return left_out


def study_digest() -> str:
    """A hash of the files that determine the study."""
    files = ("studies", "experiments", "models", "data", "tests")
    text = "".join((CONFIGS / f"{kind}/{STUDY}.yaml").read_text("utf-8") for kind in files)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Checkpoints:
    """The archived checkpoints, and the scores of each measure on those that are not set aside.

    Args:
        frame: A row for each checkpoint: `KEYS`, and its mean of each `<test>/<measure>`.

    Attributes:
        all: The frame.
        fitted: The checkpoints from which scores and thresholds come.
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

    @classmethod
    def read(cls, path: Path) -> Checkpoints:
        """The checkpoints of a file."""
        return cls(pd.read_parquet(path))

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
        return {
            label: {
                name: self.scored(name, label).held_out_area()
                for name in [*self.measures, *self.controls]
            }
            for label in LABELS
        }

    def best_control(self, label: str) -> tuple[str, MeanInterval]:
        """The control of the largest held-out area, and that area."""
        areas = self.held_out[label]
        name = max(self.controls, key=lambda name: np.nan_to_num(areas[name].mean, nan=-1.0))
        return name, areas[name]

    def decides(self, measure: str, label: str) -> bool:
        """Whether a measure may be used with a threshold."""
        enough = min(x.sum() for x in self.groups(label)) >= LEAST
        enough &= self.settings.max(initial=-1) + 1 >= LEAST_SETTINGS
        return bool(enough) and may_decide(
            self.held_out[label][measure], self.best_control(label)[1]
        )

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
        """Share of each kind that a measure notices, by thresholds fitted on the other settings."""
        scored = self.scored(measure, "words")
        return {kind: scored.noticed(rows) for kind, rows in self.kinds().items()}


def planned() -> int:
    """Number of checkpoints that the study plans."""
    return sum(len(plan(study)) for study in read_studies(CONFIGS / f"studies/{STUDY}.yaml"))


def title(measure: str) -> str:
    """The words of a measure's test; `control` of a control."""
    test = measure.partition("/")[0]
    return "control" if test in UNSCORED else describe(test).title


def short(measure: str) -> str:
    """A measure without its test, as code; of a control its words."""
    test, _, name = measure.partition("/")
    return _WORDS.get(name, name.replace("_", " ")) if test in UNSCORED else f"`{name}`"


def deciding(points: Checkpoints, measure: str) -> str:
    """The labels for which a measure may be used with a threshold; empty if for none."""
    return ", ".join(label for label in LABELS if points.decides(measure, label))


def on_one_screen(points: Checkpoints) -> Iterator[Row]:
    """Each test's best measure: its held-out areas, the best control, whether it decides."""
    for measure in points.best().values():
        areas = {label: points.held_out[label][measure] for label in LABELS}
        name, control = points.best_control("words")
        rates = points.noticed(measure)
        known = {kind: rate for kind, rate in rates.items() if rate.defined}
        fools = min(known, key=lambda kind: known[kind].mean, default=None)
        yield {
            "test": title(measure),
            "measure": short(measure),
            "AUC, states": interval(areas["states"]),
            "AUC, words": interval(areas["words"]),
            "best control, words": (
                DASH if np.isnan(control.mean) else f"{number(control.mean, 2)} {short(name)}"
            ),
            "decider": deciding(points, measure) or "**no**",
            "what fools it (noticed)": (f"{fools} ({known[fools].mean:.0%})" if fools else DASH),
        }


def every_measure(points: Checkpoints) -> Iterator[Row]:
    """Every measure and control: rank correlation with both labels, and areas."""
    for measure in [*points.measures, *points.controls]:
        row: dict[str, object] = {"test": title(measure), "measure": short(measure)}
        for label, column in LABELS.items():
            both = (points.fitted[name].to_numpy(np.float64) for name in (measure, column))
            scored = points.scored(measure, label)
            row |= {
                f"Spearman, {label}": interval(rank_correlation(*both, points.settings)),
                f"AUC, {label}": interval(scored.area()),
                f"held out, {label}": interval(points.held_out[label][measure]),
            }
        matched = points.scored(measure, "words", matched=True).area()
        yield row | {"AUC, words, as peaked": interval(matched)}


def noticed(points: Checkpoints) -> Iterator[Row]:
    """Share of each kind noticed at the false alarm rate, fitted on the other settings."""
    follows, _ = points.groups("words")
    heads = {kind: f"{kind} (n = {rows.sum()})" for kind, rows in points.kinds().items()}
    for measure in [*points.best().values(), points.best_control("words")[0]]:
        rates = points.noticed(measure)
        cells = {head: interval(rates[kind]) for kind, head in heads.items()}
        alarms = points.scored(measure, "words").noticed(follows)
        row = {"test": title(measure), "measure": short(measure)}
        yield row | cells | {"false alarms": interval(alarms)}


def by_kind(points: Checkpoints) -> str:
    """A sentence on each kind of attention: which tests notice it, and which do not.

    A test notices a kind if the lower end of the interval of the share that it notices is above one
    half, and does not if the upper end is below; other tests are undecided, and so are all for
    a kind of one setting.
    """
    text = ""
    for kind, rows in points.kinds().items():
        yes, no, undecided = "is noticed by", "is not noticed by", "is undecided for"
        by_verdict: dict[str, list[str]] = {yes: [], no: [], undecided: []}
        for measure in points.best().values():
            rate = points.noticed(measure)[kind]
            verdict = yes if rate.low > HALF else no if rate.high < HALF else undecided
            if rate.defined:
                by_verdict[verdict].append(f"{title(measure)} {interval(rate)}")
        clauses = [f"{verb} {', '.join(tests)}" for verb, tests in by_verdict.items() if tests]
        settings = len(np.unique(points.settings[rows]))
        text += (
            f"* **{kind.capitalize()}** (checkpoints: {rows.sum()}, settings: {settings}) "
            f"{'; '.join(clauses) or 'is not scored yet'}.\n"
        )
    return text


def labels(points: Checkpoints) -> Iterator[Row]:
    """Both labels by setting and treatment, with what else is known of these checkpoints."""
    shown = {
        "states": LABELS["states"],
        "words": LABELS["words"],
        "tau of the two uses": "measured_use/tau_states_words",
        "AUPRC": "measured_use/auprc",
        "swaps that flip": "measured_use/swap_flips",
        "entropy": "measured_use/entropy",
        "accuracy": "measured_use/correct",
    }
    for (setting, treatment), rows in points.all.groupby(["setting", "treatment"], sort=True):
        yield {"setting": setting, "attention": treatment, "checkpoints": len(rows)} | {
            heading: number(rows[name].mean(), 2) for heading, name in shown.items()
        }


def redundant(points: Checkpoints) -> Iterator[Row]:
    """Each test's reading where evidence is redundant, beside its readings of the two groups."""
    follows, others = points.groups("words")
    for measure in points.best().values():
        row: dict[str, object] = {"test": title(measure), "measure": short(measure)}
        row |= {"follows words": number(points.fitted[measure][follows].mean())}
        row |= {"does not": number(points.fitted[measure][others].mean())}
        for treatment, rows in points.redundant.groupby("treatment"):
            row[f"redundant, {treatment}"] = number(rows[measure].mean())
        yield row


def sentences(points: Checkpoints) -> str:
    """A sentence on each test's best measure."""
    text = ""
    for measure in points.best().values():
        areas = points.held_out["words"][measure]
        name, control = points.best_control("words")
        if np.isnan(areas.mean):
            text += f"* **{title(measure)}** is not scored yet.\n"
            continue
        labels = deciding(points, measure)
        verb = f"may decide (use of {labels})" if labels else "may only rank"
        rates = points.noticed(measure).items()
        notices = [f"{kind} {interval(rate)}" for kind, rate in rates if rate.defined]
        alarms = points.scored(measure, "words").noticed(points.groups("words")[0])
        text += (
            f"* **{title(measure)}** ({short(measure)}) {verb}: in a setting it was not fitted on it "
            f"tells attention that follows words from attention that does not with an area of "
            f"{interval(areas)}, the best control ({short(name)}) with {number(control.mean, 2)}; "
            f"with a threshold set for 10 % false alarms (there {interval(alarms)}) it notices "
            f"{', '.join(notices) or 'nothing yet'}.\n"
        )
    return text


def state(points: Checkpoints, total: int) -> str:
    """How many checkpoints there are, and in which group."""
    counts = {label: [int(x.sum()) for x in points.groups(label)] for label in LABELS}
    aside = [int(x.sum()) for x in points.groups("words", points.aside)]
    few = [label for label in LABELS if min(counts[label]) < LEAST]
    lacking = f", so that no measure is one for {' or '.join(few)}" if few else ""
    return (
        f"{len(points.all)} of {total} planned checkpoints are archived. Of the "
        f"{len(points.fitted)} that are scored (settings: {points.settings.max(initial=-1) + 1}), "
        f"attention follows states in {counts['states'][0]} and does not in {counts['states'][1]}; it "
        f"follows words in {counts['words'][0]} and does not in {counts['words'][1]}. Set aside are "
        f"{len(points.aside)}, of which {aside[0]} follow words and {aside[1]} do not. A decider needs "
        f"{LEAST} of either group and {LEAST_SETTINGS} settings{lacking}.\n"
    )


def deciders(points: Checkpoints, total: int) -> str:
    """The measures that may be used with a threshold, as YAML."""
    found = []
    for label, measure in ((label, name) for label in LABELS for name in points.measures):
        if points.decides(measure, label):
            scored = points.scored(measure, label)
            area = points.held_out[label][measure]
            found.append(
                {
                    **dict(zip(("test", "measure"), measure.split("/"), strict=True)),
                    "label": label,
                    "follows": "above" if scored.sign > 0 else "below",
                    "threshold": float(f"{scored.threshold():.6g}"),
                    "held_out_auc": [round(x, 3) for x in area[:3]],
                }
            )
    content = {
        "version": 1,
        "study": STUDY,
        "digest": study_digest(),
        "checkpoints": [len(points.all), total],
        "deciders": found,
    }
    head = "# Written by docs/build_known_answers.py: measures that may be used with a threshold.\n"
    return head + yaml.safe_dump(content, sort_keys=False)


def trained_blocks(points: Checkpoints, total: int) -> Mapping[str, str]:
    """The parts of the page, by the name of their place."""
    return {
        "trained_state": state(points, total),
        "trained": table(on_one_screen(points), 2),
        "trained_sentences": sentences(points),
        "trained_noticed": table(noticed(points), 2),
        "trained_kinds": by_kind(points),
        "trained_redundant": table(redundant(points), 2),
        "trained_labels": table(labels(points), 2),
        "trained_measures": table(every_measure(points), 2),
    }
