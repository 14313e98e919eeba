"""The lines of a verdict card, each a number with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlight.figures.methods import method_words
from attnlight.figures.tables import filled
from attnlight.records import KEY
from attnlight.report.verdict.card_records import CardRecords
from attnlight.report.verdict.commands import adversary_commands, command_of
from attnlight.report.verdict.estimate import Estimate, Floats, Rows, of_items, rules
from attnlight.report.verdict.ranks import TEST, ClassAgreement
from attnlight.storage.files import read_yaml
from attnlight.storage.shipped import find_config

NOT_MEASURED, NOT_APPLICABLE, NOT_FINITE = "not measured", "not applicable", "not finite"
NOT_SHOWN = "not shown"
_UNDEFINED = "Undefined in every text: no deletion has an effect that differs from another's."
BOUNDS = ("no_below", "yes_from", "alike")
_FAITHFULNESS, _GAIN = "faithfulness", "excess_comprehensiveness_"


@dataclass(frozen=True)
class Line:
    """A line of the card.

    Attributes:
        name: Its name in verdict.yaml.
        question: The question.
        answer: `yes`, `in part`, `no`, `caution`, `not shown`, `not applicable`, `not measured` or
            `not finite`; "" where the number decides nothing.
        says: What the number is, in words; may be empty.
        value: The number; None if there is none.
        low: Lower end of its interval.
        high: Upper end of its interval.
        texts: Number of texts that the number rests on.
        share: Their share of the split; None if its size is unknown.
        missing: What was not measured; may be empty.
        command: What would measure it, a command on each line; may be empty.
        bounds: Bounds of its rule.
    """

    name: str
    question: str
    answer: str
    says: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    texts: int = 0
    share: float | None = None
    missing: str = ""
    command: str = ""
    bounds: tuple[float, ...] = ()

    def __str__(self) -> str:
        """The line as a paragraph."""
        answer = f"{self.answer[0].upper()}{self.answer[1:]}." if self.answer else ""
        return " ".join(filter(None, (self.question, answer, self.says, self.missing)))


class Alternative(NamedTuple):
    """The method that takes most from the prediction beside attention.

    Attributes:
        method: Its name in words.
        gain: Comprehensiveness less that of random deletion.
        attention: That of attention.
        ratio: Attention's over its.
        passes: Forward passes that it costs a text; NaN if unknown.
        names: The methods that were compared, the best first, by the names of attributions.
    """

    method: str
    gain: Estimate
    attention: Estimate
    ratio: Estimate
    passes: float
    names: tuple[str, ...]

    @property
    def found(self) -> float:
        """The lower end of the interval of attention's share; NaN if it is undefined."""
        return float(self.ratio.interval()[0])

    @property
    def has_effect(self) -> bool:
        """Whether it takes clearly more from the prediction than random deletion does."""
        return bool(self.gain.interval()[0] > rules()["finds"]["least_effect"])


def line_of(
    records: CardRecords,
    name: str,
    answer: str,
    says: str = "",
    found: Estimate | None = None,
    interval: tuple[float, float] | None = None,
    missing: str = "",
    command: str = "",
    **fields: Any,  # noqa: ANN401
) -> Line:
    """The line of a name; `says` is a key of its rule, which `fields` and the estimate fill."""
    rule, found = rules()[name], found or Estimate(np.nan, np.empty(0), 0)
    ends = interval or found.interval()
    text = of_items(rule.get(says, ""), records.unit)
    fields = {**rule, "items": records.unit, **fields, "value": found.value}
    text = filled(text, interval=span(ends, percent="{value:.0%}" in text), **fields)
    if found.texts:
        total = f" of {records.total:,}" if records.total else ""
        text += f" Rests on {found.texts:,}{total} texts."
    value, low, high = (None if np.isnan(x) else float(x) for x in (found.value, *ends))
    return Line(
        name,
        rule["question"].format(items=records.unit),
        answer,
        text,
        value=value,
        low=low,
        high=high,
        texts=found.texts,
        share=found.texts / records.total if records.total else None,
        missing=missing,
        command=command,
        bounds=tuple(fields[bound] for bound in BOUNDS if bound in fields),
    )


def span(interval: tuple[float, float], percent: bool = False) -> str:
    """An interval in brackets."""
    low, high = (100 * end for end in interval) if percent else interval
    form = ".0f" if percent else ".2f"
    return filled(f"[{{low:{form}}}, {{high:{form}}}]", low=low, high=high)


def unmeasured(records: CardRecords, name: str, test: str) -> Line:
    """A line whose record is missing or has no finite row."""
    if records.non_finite(test):
        return line_of(records, name, NOT_FINITE)
    attached = read_yaml(Path(find_config("card", "tests")))["trainer"]["callbacks+"]
    card = {one["class_path"].rpartition(".")[2].lower() for one in attached} - {"predictions"}
    again = not card.isdisjoint(test.replace("_", "") for test in records.records)
    command = command_of(records.folder, records.corpus, "card", again)
    return line_of(records, name, NOT_MEASURED, command=command)


def ranks(records: CardRecords, classes: Sequence[ClassAgreement]) -> Line:
    """Somers' D in the worst predicted class."""
    if not classes:
        if not records.has(TEST, "somers_d_attention"):
            return unmeasured(records, "ranks", TEST)
        few = f"Fewer than {rules()['least_texts']} texts of a predicted class decide nothing."
        return line_of(records, "ranks", NOT_SHOWN, missing=few)
    rule, defined = rules()["ranks"], [one for one in classes if one.d.texts]
    if not defined:
        return line_of(records, "ranks", NOT_SHOWN, missing=_UNDEFINED)
    worst = defined[0]
    sides = {"between": "in part", "opposing": "no", "unseen": NOT_SHOWN, "undecided": NOT_SHOWN}
    each = ", ".join(f"{one.name} {one.d.value:.2f} {span(one.interval)}" for one in defined)
    further = {"norm": "somers_d_attention_value_norm", "resampled": "resampled_somers_d_attention"}
    said = dict.fromkeys(further, "")
    for key, column in further.items():
        if records.has(TEST, column):
            found = Estimate.of(*_column(records, TEST, column))
            numbers = {"texts": found.texts, "interval": span(found.interval())}
            words = filled(
                rule[key], items=records.unit, **{key: found.value}, value=found.value, **numbers
            )
            said[key] = words if found.texts else ""
    return line_of(
        records,
        "ranks",
        sides.get(worst.side, worst.side),
        "says",
        worst.d,
        worst.interval,
        **{"class": worst.name},
        yes_from=worst.yes_from,
        opposing=worst.opposing.value,
        classes=rule["classes"].format(each=each) if len(defined) > 1 else "",
        **said,
    )


def _column(records: CardRecords, test: str, name: str) -> tuple[Rows, Floats]:
    """Dataset index (R,) and one column (R,) of the measured rows of a test."""
    texts, (values,) = records.columns(records.records[test], name)
    return texts, values


def alternative_of(
    records: CardRecords, signed: bool = True, predicted: int | None = None
) -> Alternative | None:
    """The best of the methods of `finds`, signed or by size; None if they were not compared.

    `predicted` is the class in whose texts they are compared; None: in all.
    """
    entry = records.metadata.get(_FAITHFULNESS, {})
    methods: dict[str, Any] = entry.get("methods") or {}
    wanted = rules()["finds"]["methods"]
    labels = {
        method["name"]: label
        for label, method in methods.items()
        if method["name"] in wanted and bool(method.get("signed", True)) == signed
    }
    own = next((label for label, method in methods.items() if method["name"] == "attention"), "")
    names = [f"{_GAIN}{label}" for label in (own, *labels.values())]
    complete = own and labels.keys() == {*wanted} and entry.get("replacement") == "delete"
    among = () if predicted is None else ("prediction",)
    if not complete or not records.has(_FAITHFULNESS, *names, *among):
        return None
    texts, columns = records.columns(records.records[_FAITHFULNESS], *names, *among)
    values = np.stack(columns[: len(names)], axis=1)
    defined = ~np.isnan(values).any(axis=1)
    if predicted is not None:
        defined &= columns[-1] == predicted
    if not defined.any():
        return None
    texts, values = texts[defined], values[defined]
    order = 1 + np.argsort(-values[:, 1:].mean(axis=0), kind="stable")
    names = [[*labels][place - 1] for place in order]
    best, name, times = order[0], names[0], 1.0
    counted = {"occlusion": (TEST, "length")}
    counted["integrated_gradients"] = _FAITHFULNESS, f"steps_{labels['integrated_gradients']}"
    if name in counted:
        known = records.has(counted[name][0], counted[name][1])
        times = float(np.nanmean(_column(records, *counted[name])[1])) if known else np.nan
    return Alternative(
        method_words(name),
        Estimate.of(texts, values[:, best]),
        Estimate.of(texts, values[:, 0]),
        Estimate.of(texts, values[:, 0], values[:, 1:]),
        rules()["alternative"]["passes"][name] * times,
        tuple(names),
    )


def compared(
    records: CardRecords, best: Alternative | None, by_size: Alternative | None
) -> tuple[Line, Line]:
    """What deleting its first words takes beside the best other methods, and what to read instead.

    `best` is the best method with signs, `by_size` that without (`alternative_of`).
    """
    if best is None or by_size is None:
        finds, instead = (
            unmeasured(records, name, _FAITHFULNESS) for name in ("finds", "alternative")
        )
        return finds, instead
    fields: dict[str, Any] = {"unsigned": by_size.ratio.value, "effect": best.gain.value}
    ends = (np.nan, np.nan) if np.isnan(by_size.ratio.value) else by_size.ratio.interval()
    fields |= {"unsigned_interval": span(ends)}
    if best.has_effect:
        finds = line_of(records, "finds", "", "says", best.ratio, **fields)
    else:
        finds = line_of(records, "finds", NOT_SHOWN, "no_effect", **fields)
    fields = {"method": best.method.capitalize(), "attention": best.attention.value}
    fields["passes"] = f"{best.passes:.0f}"
    return finds, line_of(records, "alternative", "", "says", best.gain, **fields)


def needed(records: CardRecords) -> Line:
    """How far predictions move with uniform and with shuffled attention."""
    test, rule = "attention_permutation", rules()["needed"]
    if not records.has(test, "uniform_tvd", "median_tvd"):
        return unmeasured(records, "needed", test)
    uniform = Estimate.of(*_column(records, test, "uniform_tvd"))
    shuffled = Estimate.of(*_column(records, test, "median_tvd"))
    low, high = uniform.interval()
    answer = "yes" if low > rule["alike"] else "no" if high <= rule["alike"] else NOT_SHOWN
    pairs, seeds = records.variants["SeedVariant"], ""
    if pairs:
        js, tvd = (float(np.mean(column)) for column in zip(*pairs, strict=True))
        seeds = rule["seeds"].format(seeds=len(pairs), js=js, tvd=tvd)
    return line_of(records, "needed", answer, "says", uniform, shuffled=shuffled.value, seeds=seeds)


def words(records: CardRecords) -> Line:
    """Whether erasing a state does what deleting its word does."""
    test, rule = "state_token_agreement", rules()["words"]
    names = ("hidden_token_attribution", "tau_erasure_deletion")
    if not records.has(test, *names):
        return unmeasured(records, "words", test)
    own, tau = (Estimate.of(*_column(records, test, name)) for name in names)
    if records.alone:
        return line_of(records, "words", "yes", "alone", own)
    if not tau.texts:
        return line_of(records, "words", NOT_SHOWN, missing=_UNDEFINED)
    low, high = tau.interval()
    answer = "yes" if low >= rule["yes_from"] else "no" if high < rule["yes_from"] else NOT_SHOWN
    return line_of(records, "words", answer, "says", tau)


def uniqueness(records: CardRecords) -> Line:
    """The largest divergence with the same prediction, and that of trained adversaries."""
    test, rule = "adversarial_attention", rules()["uniqueness"]
    epsilon = records.metadata.get(test, {}).get("epsilon")
    if epsilon is None or not records.has(test, "worst_share"):
        return unmeasured(records, "uniqueness", test)
    bounds = ["worst_js", "upper_js"] if records.has(test, "worst_js", "upper_js") else []
    texts, (share, *ends) = records.columns(records.records[test], "worst_share", *bounds)
    defined = ~np.isnan(share)
    if not defined.any():
        return line_of(records, "uniqueness", NOT_APPLICABLE, "undefined")
    exact = ends and np.allclose(ends[0][defined], ends[1][defined], atol=1e-6)
    adversaries, missing, command = records.variants["AdversarialVariant"], rule["untrained"], ""
    if adversaries:
        alike = [js for js, tvd in adversaries if tvd <= rule["alike"]]
        furthest = f"{max(alike):.2f}" if alike else "–"  # noqa: RUF001
        counts = {"adversaries": len(adversaries), "alike": len(alike) or "none", "js": furthest}
        missing = rule["trained"].format(**counts, tolerance=rule["alike"])
    elif (records.folder / "fit.yaml").is_file():
        command = adversary_commands(records.folder)
    fields = {"epsilon": epsilon, "least": "" if exact else "at least "}
    found = Estimate.of(texts, share)
    more = {"missing": missing, "command": command}
    return line_of(records, "uniqueness", "caution", "says", found, **more, **fields)


def smallest_set(records: CardRecords) -> Line | None:
    """Share of the texts where attention's order needs little more than the smallest deciding set.

    Of the texts whose smallest set is no larger than the evidence that deletion finds; None if these
    are too few. Of several heads each is taken alone, since only then the minimum is exact.
    """
    test, rule = "decision_flip", rules()["smallest_set"]
    names = ["minimal_count", "removed_count_attention"]
    if records.has(test, *(by_head := [f"{name}_by_head" for name in names])):
        names = by_head
    if not records.has(test, *names) or not records.has(TEST, "supporting"):
        return None
    keys, (place, supporting) = records.columns(records.records[TEST], KEY[1], "supporting")
    evidence = dict(zip(zip(keys, place, strict=True), supporting, strict=True))
    texts, (place, least, removed) = records.columns(records.records[test], KEY[1], *names)
    least, removed = least.reshape(len(texts), -1), removed.reshape(len(texts), -1)
    most = [evidence.get(key, np.nan) for key in zip(texts, place, strict=True)]
    counted = least <= np.array(most)[:, None]  # NaN where nothing flips
    slack = np.maximum(rule["slack_items"], rule["slack_share"] * least)
    share = np.where(counted, removed <= least + slack, np.nan)
    known = counted.any(axis=1)
    if len(np.unique(texts[known])) < rules()["least_texts"]:
        return None
    estimate = Estimate.of(texts[known], np.nanmean(share[known], axis=1))
    heads = ", of each head alone," if names is by_head else ""
    return line_of(records, "smallest_set", "", "says", estimate, heads=heads)
