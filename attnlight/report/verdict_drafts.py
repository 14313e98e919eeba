"""Drafts of the lines of a verdict card: each one's number and its claim, from a run's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.compatibility import problem_of, section
from attnlight.errors import InputError
from attnlight.files import read_yaml
from attnlight.records import KEY, read_metadata, read_pieces, record_columns
from attnlight.report.figures import describe
from attnlight.report.methods import METHODS
from attnlight.report.run import require_one_run, stored_records
from attnlight.report.verdict_commands import adversary_commands, from_here, measuring_command

Floats = NDArray[np.float64]
DECIDERS = Path(__file__).with_name("deciders.yaml")
NOT_MEASURED, NOT_SHOWN, NOT_APPLICABLE = "not measured", "not shown", "not applicable"
NOT_CALIBRATED = "not calibrated for this kind of model"
CLAIMS = ("no", "in part", "yes")  # of a number below, between and above its bounds
_NAN = float("nan")


@cache
def rules() -> dict[str, Any]:
    """The content of verdict.yaml."""
    return read_yaml(Path(__file__).with_name("verdict.yaml"))


class Estimate(NamedTuple):
    """A ratio of sums over texts.

    Attributes:
        value: Its value; NaN if no text counts.
        replicates: Its values in bootstrap resamples of the texts, (B,), NaN where undefined.
        texts: Number of texts that count.
    """

    value: float
    replicates: Floats
    texts: int

    @classmethod
    def of(cls, numerator: Floats, denominator: Floats, texts: NDArray[np.int64]) -> Estimate:
        """The ratio of the sums of two columns (R,) where both are defined, by text (R,)."""
        from attnlight.statistics.bootstrap import divide, resampled_rows

        defined = ~(np.isnan(numerator) | np.isnan(denominator))
        if not defined.any():
            return cls(_NAN, np.empty(0), 0)
        pairs = np.where(defined[:, None], np.stack([numerator, denominator], axis=1), np.nan)
        replicates, observed = resampled_rows(pairs, texts)
        value = divide(observed[:1], observed[1:2])[0]
        count = len(np.unique(texts[defined]))
        return cls(float(value), divide(replicates[:, 0], replicates[:, 1]), count)

    def interval(self, confidence: float) -> tuple[float, float]:
        """The percentile interval."""
        from attnlight.statistics.bootstrap import percentile_interval

        return percentile_interval(self.replicates, confidence)

    def p_value(self, low: float, high: float) -> float:
        """Two-sided p-value of the best supported claim: below `low`, from `high` on, or between."""
        below, above = (~(self.replicates < low)).sum(), (~(self.replicates >= high)).sum()
        outside = [(~(self.replicates >= low)).sum(), (~(self.replicates < high)).sum()]
        least = min(below, above, max(outside))
        return float(min(1.0, 2 * (1 + least) / (1 + len(self.replicates))))


@dataclass
class Draft:
    """A line before it is known how many claims the card makes.

    Attributes:
        name: Its name.
        answer: Its answer, or the answers of a claim on `estimate`: below, between, above.
        says: The key of what it says in the rules.
        fields: What fills that.
        estimate: Its number.
        bounds: The lower and upper bound of a claim; None: it makes none.
        missing: As of `Line`.
        command: As of `Line`.
    """

    name: str
    answer: str | Sequence[str]
    says: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    estimate: Estimate | None = None
    bounds: tuple[float, float] | None = None
    missing: str = ""
    command: str = ""


class Drafts:
    """What the records of a run's test split say on each line.

    Args:
        folder: The run folder.
        corpus: Name of the corpus; "" is the corpus of training.
        deciders: The file of measures that may be used with a threshold.

    Attributes:
        records: The records by test.
        metadata: Their metadata.
        total: Number of texts of the split; None if no record has all.
        model: What the records say of the model: `problem` and `net`.

    Raises:
        InputError: The records are of several runs or checkpoints, or one is damaged.
    """

    def __init__(self, folder: Path, corpus: str = "", deciders: Path = DECIDERS) -> None:
        self.folder, self.corpus = from_here(folder), corpus
        self.records = {
            record.test: record.path
            for record in stored_records(folder / "records")
            if record.stage == "test" and record.corpus == corpus
        }
        require_one_run([*self.records.values()])
        self.metadata = {test: read_metadata(path) for test, path in self.records.items()}
        whole = [test for test, entry in self.metadata.items() if not entry.get("partial")]
        sizes = [len(np.unique(self.columns(test)[KEY[0]])) for test in whole[:1]]
        self.total = sizes[0] if sizes else None
        self.model: dict[str, Any] = {}
        if (folder / "fit.yaml").is_file():
            config = section(read_yaml(folder / "fit.yaml").get("model") or {})
            self.model = {"problem": problem_of(str(config.get("class_path")))}
            self.model |= config.get("init_args") or {}
        for entry in self.metadata.values():
            self.model |= entry.get("model") or {}
        net = self.model.get("net")
        self.net: Mapping[str, Any] = net if isinstance(net, dict) else {}
        self.deciders = read_yaml(deciders)["deciders"]

    def columns(self, test: str, *names: str, path: Path | None = None) -> dict[str, NDArray[Any]]:
        """`index` and some columns of the measured rows of a record."""
        path = path or self.records[test]
        known = "prediction" in record_columns(path)  # an archived record may lack it
        wanted = [KEY[0], *(["prediction"] if known else []), *names]
        pieces = list(read_pieces(path, wanted, measured=known))
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in wanted}

    def has(self, test: str, *names: str) -> bool:
        """Whether there is a record of a test with these columns."""
        return test in self.records and {*names} <= record_columns(self.records[test]).keys()

    def unmeasured(self, name: str, test: str) -> Draft:
        """A line whose record is missing."""
        return Draft(
            name,
            NOT_MEASURED,
            "unmeasured",
            command=measuring_command(self.folder, self.corpus, self.records, test),
        )

    def ranks(self) -> Draft:
        """Comprehensiveness of attention beside the best of some methods, each less random."""
        from attnlight.data.selection import choose

        rule, test = rules()["lines"]["ranks"], "faithfulness"
        entry = self.metadata.get(test, {})
        methods: dict[str, Any] = entry.get("methods") or {}
        attention = [label for label, method in methods.items() if method["name"] == "attention"]
        others = [label for label, method in methods.items() if method["name"] in rule["methods"]]
        complete = {methods[label]["name"] for label in others} == {*rule["methods"]}
        names = [f"excess_comprehensiveness_{label}" for label in (*attention[:1], *others)]
        deleted = entry.get("replacement") == "delete"
        if not (attention and complete and deleted and self.has(test, *names)):
            return self.unmeasured("ranks", test)

        def excess(path: Path) -> tuple[Floats, NDArray[np.int64]]:
            """Attention and the other methods less random (R, 1 + M), defined for all, and texts."""
            rows = self.columns(test, *names, path=path)
            found = np.stack([rows[name].astype(np.float64) for name in names], axis=1)
            defined = ~np.isnan(found).any(axis=1)
            return found[defined], rows[KEY[0]][defined]

        values, texts = excess(self.records[test])
        judged = np.ones(len(texts), dtype=bool)
        stage = f"val{self.corpus and '-'}{self.corpus}"
        path = self.folder / "records" / stage / f"{test}.parquet"
        if self._same_checkpoint(path, entry) and {*names} <= record_columns(path).keys():
            chosen, selection = "the validation split", excess(path)[0]
        else:
            every = np.unique(texts)
            judged = ~np.isin(texts, choose(every, len(every) // 2, rules()["seed"]))
            chosen, selection = "the other half of the texts", values[~judged]
        if not len(selection) or not judged.any():
            return self.unmeasured("ranks", test)
        best = 1 + int(selection[:, 1:].mean(axis=0).argmax())
        attended, reached, texts = values[judged, 0], values[judged, best], texts[judged]
        label = others[best - 1]
        fields = {"best": METHODS.get(label, label), "chosen": chosen, "methods": len(others)}
        effect = Estimate.of(reached, np.ones(len(texts)), texts)
        # The ratio is claimed only where its denominator is.
        if not effect.interval(1 - rules()["level"])[0] > rule["least_effect"]:
            fields["effect"] = effect.value
            empty = Estimate(_NAN, effect.replicates[:0], effect.texts)
            return Draft("ranks", NOT_SHOWN, "no_effect", fields, empty)
        ratio = Estimate.of(attended, reached, texts)
        says, bounds = "worse" if ratio.value < 0 else "says", (rule["no_below"], rule["yes_from"])
        return Draft("ranks", CLAIMS, says, fields, ratio, bounds)

    def _same_checkpoint(self, path: Path, entry: Mapping[str, Any]) -> bool:
        """Whether a record exists and is of the checkpoint of another one's metadata."""
        if not path.is_file():
            return False
        names = ("checkpoint_hash", "corpus")
        other = read_metadata(path)
        return all(entry.get(name) and other.get(name) == entry[name] for name in names)

    def smallest_set(self) -> Draft:
        """Share of the flipping texts where attention needs little more than the minimum.

        Of several heads each is taken alone, since only then the minimum is exact.
        """
        rule, test = rules()["lines"]["smallest_set"], "decision_flip"
        names = ["minimal_count", "removed_count_attention", "never_flips_minimal"]
        if self.has(test, *(by_head := [f"{name}_by_head" for name in names])):
            names = by_head
        if not self.has(test, *names, "length"):
            return self.unmeasured("smallest_set", test)
        rows = self.columns(test, *names, "length")
        texts = rows[KEY[0]]
        least, removed, never = (
            rows[name].astype(np.float64).reshape(len(texts), -1) for name in names
        )
        flips = never == 0
        if not flips.any():
            says = "unknown" if np.isnan(never).all() else "never"
            return Draft("smallest_set", NOT_APPLICABLE, says)
        nearly_all = flips & (least >= rule["nearly_all"] * rows["length"][:, None])
        share = Estimate.of(nearly_all.sum(1) * 1.0, flips.sum(1) * 1.0, texts)
        fields = {name: rule[name] for name in ("slack_items", "slack_share", "nearly_all")}
        fields["heads"] = ", of each head alone," if names is by_head else ""
        if share.value > rule["most_nearly_all"]:
            return Draft("smallest_set", NOT_APPLICABLE, "needs_all", fields, share)
        slack = np.maximum(rule["slack_items"], rule["slack_share"] * least)
        counted = flips & ~nearly_all
        found = counted & (removed <= least + slack)  # attention may never flip what others do
        size = np.where(counted.any(1), counted.sum(1), np.nan)
        bounds = (rule["no_below"], rule["yes_from"])
        estimate = Estimate.of(found.sum(1) * 1.0, size, texts)
        return Draft("smallest_set", CLAIMS, "says", fields, estimate, bounds)

    def uniqueness(self) -> Draft:
        """The largest divergence with the same prediction, and that of trained variants."""
        rule, test = rules()["lines"]["uniqueness"], "adversarial_attention"
        both = ("worst_js", "upper_js")
        epsilon = self.metadata.get(test, {}).get("epsilon")
        if epsilon is None or not self.has(test, "worst_share"):
            draft = self.unmeasured("uniqueness", test)
        else:
            rows = self.columns(test, "worst_share", *(both if self.has(test, *both) else ()))
            share = rows["worst_share"].astype(np.float64)
            defined = ~np.isnan(share)
            worst, upper = (rows.get(name, share * np.nan)[defined] for name in both)
            exact = np.isclose(worst, upper, atol=1e-6).all()
            fields = {"epsilon": epsilon, "least": "" if exact else "at least "}
            estimate = Estimate.of(share, np.where(defined, 1.0, np.nan), rows[KEY[0]])
            draft = Draft("uniqueness", "caution", "says", fields, estimate)
            if not defined.any():
                draft = Draft("uniqueness", NOT_APPLICABLE, "undefined")
        found = self._variants()
        if found["AdversarialVariant"]:
            alike = [js for js, tvd in found["AdversarialVariant"] if tvd <= rule["alike"]]
            seeds = [js for js, _ in found["SeedVariant"]]
            draft.missing = rule["trained"].format(
                adversaries=len(found["AdversarialVariant"]),
                alike=len(alike) or "none",
                tolerance=rule["alike"],
                js=f"{max(alike):.2f}" if alike else "–",  # noqa: RUF001
                seeds=len(seeds) or "no",
                seeds_js=f"{np.mean(seeds):.2f}" if seeds else "–",  # noqa: RUF001
            )
        elif draft.answer == "caution":
            draft.missing = rule["untrained"]
            draft.command = (
                adversary_commands(self.folder) if (self.folder / "fit.yaml").is_file() else ""
            )
        return draft

    def _variants(self) -> dict[str, list[tuple[float, float]]]:
        """Mean JS of attention and TVD of predictions of each trained variant, by its class."""
        found: dict[str, list[tuple[float, float]]] = {"AdversarialVariant": [], "SeedVariant": []}
        own = self.folder.resolve()
        for path in sorted(own.parent.parent.glob("*/*/records/test/base_divergence.parquet")):
            try:
                base = Path(str(read_metadata(path).get("base"))).resolve()
                if own not in (base, base.parent):
                    continue
                model = read_yaml(path.parents[2] / "fit.yaml").get("model") or {}
                rows = self.columns("", "attention_js", "prediction_tvd", path=path)
            except InputError:  # another run's record is damaged: that run's own report says so
                continue
            kind = str(model.get("class_path")).rpartition(".")[2]
            imitates = (model.get("init_args") or {}).get("lambda_") == 0
            if kind in found and not imitates:
                js, tvd = (float(np.nanmean(rows[n])) for n in ("attention_js", "prediction_tvd"))
                found[kind].append((js, tvd))
        return found

    def notices(self, label: str) -> Draft:
        """On which side of its threshold the best decider lies, if the kind of model has any.

        Args:
            label: What the decider must have been scored against, `words` or `states`.
        """
        kinds = rules()["lines"]["notices"]["kinds"]
        kind = {"problem": self.model.get("problem"), "encoder": self.net.get("encoder")}
        kind["hierarchical"] = bool(self.net.get("hierarchical"))
        known = all(value in kinds[name] for name, value in kind.items())
        found = [decider for decider in self.deciders if known and decider["label"] == label]
        if not found:
            return Draft("notices", NOT_CALIBRATED, "none")
        ordered = sorted(found, key=lambda decider: -decider["held_out_auc"][0])
        best = next((one for one in ordered if self.has(one["test"], one["measure"])), None)
        if best is None:
            return self.unmeasured("notices", ordered[0]["test"])
        rows = self.columns(best["test"], best["measure"])
        values = rows[best["measure"]].astype(np.float64)
        estimate = Estimate.of(values, np.ones(len(values)), rows[KEY[0]])
        above = best["follows"] == "above"
        answers = ("noticed", NOT_SHOWN, "not noticed")[:: 1 if above else -1]
        fields = {"test": describe(best["test"]).title, "measure": best["measure"], "label": label}
        fields |= {"side": "below" if above else "above", "threshold": best["threshold"]}
        fields |= {"area": best["held_out_auc"][0]}
        bounds = (best["threshold"], best["threshold"])
        return Draft("notices", answers, "says", fields, estimate, bounds)

    def words(self) -> Draft:
        """Whether erasing a state does what deleting its word does."""
        rule, test = rules()["lines"]["words"], "state_token_agreement"
        names = ("hidden_token_attribution", "tau_erasure_deletion")
        if not self.has(test, *names):
            return self.unmeasured("words", test)
        rows = self.columns(test, *names)
        own, estimate = (
            Estimate.of(rows[name], np.ones(len(rows[name])), rows[KEY[0]]) for name in names
        )
        if own.value >= rule["own_word"]:
            return Draft("words", "yes", "alone", estimate=own)
        bounds = (rule["no_below"], rule["yes_from"])
        return Draft("words", CLAIMS, "says", {"yes_from": rule["yes_from"]}, estimate, bounds)
