"""The card's line on models that answer from a context: may their attention cite?"""

from typing import Any

import numpy as np

from attnlight.figures.methods import method_words
from attnlight.report.verdict.card_records import CardRecords
from attnlight.report.verdict.estimate import Estimate, rules
from attnlight.report.verdict.lines import NOT_SHOWN, Line, line_of, span

_TEST = "context_ablation"
_FURTHER = ("best_head", "learned_heads")  # readings of attention that other texts have chosen


def cites(records: CardRecords) -> Line | None:
    """Whether attention orders sentences by their effect on the answer; None where none was left out.

    The answer is that of the mean attention of all layers or, for models without layers, of attention;
    the other readings of attention stand beside it. The reading to cite by is the one whose scores predict
    random ablations best. There is no yes: no kind of model that answers has a licence.
    """
    labels = records.metadata.get(_TEST, {}).get("methods", {})
    labels = [name for name in labels if records.has(_TEST, f"somers_d_{name}", f"lds_{name}")]
    if not {"answer_attention", "attention"} & {*labels}:
        return None
    means: dict[str, dict[str, Estimate]] = {"somers_d": {}, "lds": {}, "necessary": {}}
    for measure, defined in means.items():
        names = [f"{measure}_{label}" for label in labels]
        texts, columns = records.columns(records.records[_TEST], *names)
        found = zip(labels, (Estimate.of(texts, column) for column in columns), strict=True)
        defined |= {label: mean for label, mean in found if mean.texts}
    d, lds, necessary = means.values()
    own = "answer_attention" if "answer_attention" in d else "attention"
    known = {label: mean.value for label, mean in lds.items() if label != "random"}
    if own not in d or not known or d[own].texts < rules()["least_texts"]:
        return line_of(records, "cites", NOT_SHOWN, "too_few", d.get(own))
    best = max(known, key=lambda label: (known[label], label == own))
    fields: dict[str, Any] = {"reading": method_words(own), "necessary": necessary[own].value}
    fields |= {"best": method_words(best), "lds": known[best], "own": known.get(own, np.nan)}
    fields["item"] = records.unit.removesuffix("s")
    further = rules()["cites"]["further"]
    fields["others"] = "".join(
        further.format(
            reading=method_words(label),
            value=d[label].value,
            interval=span(d[label].interval()),
            answer=_answer(d[label]),
        )
        for label in _FURTHER
        if label in d
    )
    licence = "unlicensed" if d[own].interval()[0] >= rules()["cites"]["yes_from"] else "licensed"
    fields["licence"] = rules()["cites"][licence].format(**rules()["cites"])
    says = "itself" if best == own else "says"
    return line_of(records, "cites", _answer(d[own]), says, d[own], **fields)


def _answer(somers_d: Estimate) -> str:
    """The answer for a reading, by its Somers' D."""
    return "no" if somers_d.interval()[1] < rules()["cites"]["no_below"] else NOT_SHOWN
