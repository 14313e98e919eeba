"""Drafts of the lines of a verdict card: each one's number and its claim, from a run's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from attnlight.errors import InputError
from attnlight.figures import describe
from attnlight.figures.methods import method_words
from attnlight.figures.tables import class_name
from attnlight.problems import problem_of_task
from attnlight.records import (
    KEY,
    RecordFile,
    Source,
    read_metadata,
    read_pieces,
    record_columns,
)
from attnlight.report.run import Run, require_one_run, trained_run
from attnlight.report.verdict.claims import (
    ANSWERS,
    NOT_SHOWN,
    Draft,
    Estimate,
    Floats,
    Texts,
    rules,
)
from attnlight.report.verdict.commands import adversary_commands, from_here, measuring_command
from attnlight.storage.files import read_yaml

DECIDERS = Path(__file__).with_name("deciders.yaml")
NOT_MEASURED, NOT_APPLICABLE, NOT_FINITE = "not measured", "not applicable", "not finite"
NOT_CALIBRATED = "not calibrated for this kind of model"


class Drafts:
    """What the records of a run's test split say on each line.

    Args:
        run: The run, or its folder.
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

    def __init__(self, run: Run | Path, corpus: str = "", deciders: Path = DECIDERS) -> None:
        run = trained_run(run) if isinstance(run, Path) else run
        self.folder, self.corpus = from_here(run.folder), corpus
        stored = [record for record in run.records if record.corpus == corpus]
        self.records = {record.test: record.file for record in stored if record.stage == "test"}
        self._validated = {record.test: record for record in stored if record.stage == "val"}
        require_one_run([*self.records.values()])
        self.metadata = {test: file.metadata for test, file in self.records.items()}
        whole = [test for test, entry in self.metadata.items() if not entry.get("partial")]
        sizes = [len(np.unique(self.columns(self.records[test])[0])) for test in whole[:1]]
        self.total = sizes[0] if sizes else None
        self.model: dict[str, Any] = {}
        if run.config_text:
            config = run.configs["fit"].get("model")
            config = config if isinstance(config, dict) else {}
            options = config.get("init_args")
            self.model = {"problem": problem_of_task(config.get("class_path"))}
            self.model |= options if isinstance(options, dict) else {}
        for entry in self.metadata.values():
            self.model |= entry.get("model") or {}
        net = self.model.get("net")
        self.net: Mapping[str, Any] = net if isinstance(net, dict) else {}
        self.deciders = read_yaml(deciders)["deciders"]

    def columns(self, record: Source, *names: str) -> tuple[Texts, list[Floats]]:
        """Dataset index (R,), and some columns (R, ...), of the measured rows of a record."""
        known = "prediction" in record_columns(record)  # an archived record may lack it
        wanted = [KEY[0], *(["prediction"] if known else []), *names]
        pieces = list(read_pieces(record, wanted, measured=known))
        rows = {name: np.concatenate([piece[name] for piece in pieces]) for name in wanted}
        return rows[KEY[0]], [rows[name].astype(np.float64) for name in names]

    def has(self, test: str, *names: str) -> bool:
        """Whether there is a record of a test with these columns, some row of which is finite."""
        if test not in self.records or self._non_finite(test):
            return False
        return {*names} <= self.records[test].columns.keys()

    def _non_finite(self, test: str) -> bool:
        """Whether the record of a test has rows, of which none could be measured."""
        entry = self.metadata.get(test, {})
        return bool(entry.get("non_finite")) and entry["non_finite"] == entry["rows"]

    def unmeasured(self, name: str, test: str) -> Draft:
        """A line whose record is missing or has no finite row."""
        if self._non_finite(test):
            return Draft(name, NOT_FINITE)
        command = measuring_command(self.folder, self.corpus, self.records, test)
        return Draft(name, NOT_MEASURED, "unmeasured", command=command)

    def ranks(self) -> Draft:
        """Comprehensiveness of attention beside the best of some methods, each less random."""
        rule, test = rules()["lines"]["ranks"], "faithfulness"
        entry = self.metadata.get(test, {})
        methods: dict[str, Any] = entry.get("methods") or {}
        attention = [label for label, method in methods.items() if method["name"] == "attention"]
        others = {  # by name; attention has no sign, so that they are compared by size
            method["name"]: label
            for label, method in methods.items()
            if method["name"] in rule["methods"] and not method.get("signed", True)
        }
        complete = attention and others.keys() == {*rule["methods"]}
        names = [f"excess_comprehensiveness_{x}" for x in (*attention[:1], *others.values())]
        compared = entry.get("replacement") == "delete" and entry.get("keep_opposing")
        if not (complete and compared and self.has(test, *names)):
            return self.unmeasured("ranks", test)
        judged = self._judged([*names, "prediction"])
        if judged is None:
            return Draft("ranks", NOT_SHOWN, estimate=Estimate(np.nan, np.empty(0), 0))
        chosen, best, texts, values = judged
        effect = Estimate.of(texts, values[:, best])
        fields: dict[str, Any] = {"best": method_words([*others][best - 1]), "chosen": chosen}
        fields |= {"methods": len(others), "effect": effect.value}
        # The ratio is claimed only where its denominator is.
        if not effect.interval(1 - rules()["level"])[0] > rule["least_effect"]:
            empty = Estimate(np.nan, effect.replicates[:0], effect.texts)
            return Draft("ranks", NOT_SHOWN, "no_effect", fields, empty)
        ratio = Estimate.of(texts, values[:, 0], values[:, best])
        least = self._least_by_class(values[:, -1], values[:, best])
        if least is not None and least[1] <= rule["least_effect"]:
            fields["class"], fields["effect"] = self.class_name(test, least[0]), least[1]
            return Draft("ranks", NOT_SHOWN, "no_effect_in_class", fields, ratio)
        says, bounds = "worse" if ratio.value < 0 else "says", (rule["no_below"], rule["yes_from"])
        return Draft("ranks", ANSWERS, says, fields, ratio, bounds)

    def _least_by_class(self, classes: Floats, values: Floats) -> tuple[int, float] | None:
        """The predicted class (R,) with the least mean of values (R,), and that; None: too few rows."""
        known = ~np.isnan(values)
        named, counts = np.unique(classes[known], return_counts=True)
        enough = named[counts >= rules()["least_texts"]]
        means = [float(values[known & (classes == one)].mean()) for one in enough]
        return min(zip(enough.astype(int), means, strict=True), key=itemgetter(1), default=None)

    def class_name(self, test: str, number: int) -> str:
        """The name of a class, in quotation marks, or its number."""
        classes = self.metadata[test].get("classes") or []
        name = class_name(number, classes)
        return f'"{name}"' if number < len(classes) else name

    def _judged(self, names: Sequence[str]) -> tuple[str, int, Texts, Floats] | None:
        """What chose the best of the columns `names[1:-1]`, its place, and other texts that judge by it.

        These are texts (R,) and columns (R, K) where all are defined. None: too few texts.
        """
        from attnlight.data.selection import choose

        def defined(record: RecordFile) -> tuple[Texts, Floats]:
            texts, columns = self.columns(record, *names)
            values = np.stack(columns, axis=1)
            known = ~np.isnan(values).any(axis=1)
            return texts[known], values[known]

        test = "faithfulness"
        texts, values = defined(self.records[test])
        other = self._validated.get(test)
        entry, of_other = self.metadata[test], other.file.metadata if other else {}
        identity = ("checkpoint_hash", "corpus")
        same = all(entry.get(key) and of_other.get(key) == entry[key] for key in identity)
        if other and same and {*names} <= other.file.columns.keys():
            chosen, selection = "the validation split", defined(other.file)[1]
        else:
            every = np.unique(texts)
            chooses = np.isin(texts, choose(every, len(every) // 2, rules()["seed"]))
            chosen, selection = "the other half of the texts", values[chooses]
            texts, values = texts[~chooses], values[~chooses]
        if not len(selection) or not len(texts):
            return None
        return chosen, 1 + int(selection[:, 1:-1].mean(axis=0).argmax()), texts, values

    def smallest_set(self) -> Draft:
        """Share of the flipping texts where attention needs little more than the minimum.

        Of several heads each is taken alone, since only then the minimum is exact.
        """
        rule, test = rules()["lines"]["smallest_set"], "decision_flip"
        names = ["minimal_count", "removed_count_attention_unopposed", "never_flips_minimal"]
        if self.has(test, *(by_head := [f"{name}_by_head" for name in names])):
            names = by_head
        if not self.has(test, *names, "length"):
            return self.unmeasured("smallest_set", test)
        used = (*names, "length", "prediction")
        texts, (*columns, classes) = self.columns(self.records[test], *used)
        least, removed, never, length = (column.reshape(len(texts), -1) for column in columns)
        flips = never == 0
        if not flips.any():
            says = "unknown" if np.isnan(never).all() else "never"
            return Draft("smallest_set", NOT_APPLICABLE, says)
        nearly_all = flips & (least >= rule["nearly_all"] * length)
        share = Estimate.of(texts, nearly_all.sum(1) * 1.0, flips.sum(1) * 1.0)
        fields = {name: rule[name] for name in ("slack_items", "slack_share", "nearly_all")}
        fields["heads"] = ", of each head alone," if names is by_head else ""
        if share.value > rule["most_nearly_all"]:
            return Draft("smallest_set", NOT_APPLICABLE, "needs_all", fields, share)
        by_some = (flips & ~nearly_all).mean(1)
        rarest = self._least_by_class(classes, by_some)
        if rarest is not None and rarest[1] < rule["least_flips"]:
            fields["class"] = self.class_name(test, rarest[0])
            rarely = Estimate.of(texts[classes == rarest[0]], by_some[classes == rarest[0]])
            return Draft("smallest_set", NOT_APPLICABLE, "rarely", fields, rarely)
        slack = np.maximum(rule["slack_items"], rule["slack_share"] * least)
        counted = flips & ~nearly_all
        found = counted & (removed <= least + slack)  # attention may never flip what others do
        size = np.where(counted.any(1), counted.sum(1), np.nan)
        bounds = (rule["no_below"], rule["yes_from"])
        estimate = Estimate.of(texts, found.sum(1) * 1.0, size)
        return Draft("smallest_set", ANSWERS, "says", fields, estimate, bounds)

    def uniqueness(self) -> Draft:
        """The largest divergence with the same prediction, and that of trained variants."""
        rule, test = rules()["lines"]["uniqueness"], "adversarial_attention"
        both = ("worst_js", "upper_js")
        epsilon = self.metadata.get(test, {}).get("epsilon")
        if epsilon is None or not self.has(test, "worst_share"):
            draft = self.unmeasured("uniqueness", test)
        else:
            names = ("worst_share", *(both if self.has(test, *both) else ()))
            texts, (share, *bounds) = self.columns(self.records[test], *names)
            defined = ~np.isnan(share)
            exact = bounds and np.allclose(bounds[0][defined], bounds[1][defined], atol=1e-6)
            fields = {"epsilon": epsilon, "least": "" if exact else "at least "}
            draft = Draft("uniqueness", "caution", "says", fields, Estimate.of(texts, share))
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
            fitted = (self.folder / "fit.yaml").is_file()
            draft.command = adversary_commands(self.folder) if fitted else ""
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
                _, rows = self.columns(path, "attention_js", "prediction_tvd")
            except InputError:  # another run's record is damaged: that run's own report says so
                continue
            kind = str(model.get("class_path")).rpartition(".")[2]
            imitates = (model.get("init_args") or {}).get("lambda_") == 0
            if kind in found and not imitates:
                js, tvd = (float(np.nanmean(column)) for column in rows)
                found[kind].append((js, tvd))
        return found

    def notices(self, label: str) -> Draft:
        """On which side of its threshold the best decider lies, if the kind of model has one.

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
        # The best alone: thresholds of others hold for the settings that they were fitted with.
        best = max(found, key=lambda decider: float(decider["held_out_auc"][0]))
        if not self.has(best["test"], best["measure"]):
            return self.unmeasured("notices", best["test"])
        texts, columns = self.columns(self.records[best["test"]], best["measure"])
        above = best["follows"] == "above"
        answers = ("noticed", NOT_SHOWN, "not noticed")[:: 1 if above else -1]
        fields = {"test": describe(best["test"]).title, "measure": best["measure"], "label": label}
        fields |= {"side": "below" if above else "above", "threshold": best["threshold"]}
        fields |= {"area": best["held_out_auc"][0]}
        bounds = (best["threshold"], best["threshold"])
        return Draft("notices", answers, "says", fields, Estimate.of(texts, *columns), bounds)

    def words(self) -> Draft:
        """Whether erasing a state does what deleting its word does."""
        rule, test = rules()["lines"]["words"], "state_token_agreement"
        names = ("hidden_token_attribution", "tau_erasure_deletion")
        if not self.has(test, *names):
            return self.unmeasured("words", test)
        texts, columns = self.columns(self.records[test], *names)
        own, estimate = (Estimate.of(texts, column) for column in columns)
        if own.value >= rule["own_word"]:
            return Draft("words", "yes", "alone", estimate=own)
        bounds = (rule["no_below"], rule["yes_from"])
        return Draft("words", ANSWERS, "says", {"yes_from": rule["yes_from"]}, estimate, bounds)
