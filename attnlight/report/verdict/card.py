"""The verdict card of a run: in one sentence, may its attention be read as an explanation?

The rules and the words are in `verdict.yaml`, the kinds of models that may get a yes in
`licences.yaml`.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlight.figures.tables import filled
from attnlight.report.run import Run
from attnlight.report.verdict import lines as of
from attnlight.report.verdict.card_records import CardRecords
from attnlight.report.verdict.cites import cites
from attnlight.report.verdict.estimate import Estimate, digest, of_items, rules
from attnlight.report.verdict.lines import Alternative, Line
from attnlight.report.verdict.ranks import TEST, ClassAgreement, agreements, case_of
from attnlight.report.verdict.rows import rows_of
from attnlight.storage.files import write_text

if TYPE_CHECKING:
    import pandas as pd

# Cases that decide nothing, whatever the kind of model.
_LEAVES_OPEN = ("unmeasured", "too_few", "majority", "not_established")
_NO_REMARKS = ("unmeasured", "majority")  # of whose answer none can be right or wrong
_NUMBER_ALONE = ("majority", "not_established")  # those of whose D nothing follows


@dataclass(frozen=True)
class Verdict:
    """The card of a run.

    Attributes:
        heading: Its question.
        sentence: Its answer.
        case: Key of that in verdict.yaml.
        case_if_licensed: The case if all kinds of models had a licence.
        kind: Kind of model, a key of licences.yaml or `other`.
        lines: Its lines; the first has the number that decides.
        note: How to read them.
        checkpoint: Hash of the checkpoint that was tested, or of the weights of a model without one; None
            if unknown.
        scope: What the model says of the scope of its attention; "" if it says nothing.
        caveat: That logits or attention are not finite; "" if all are.
        subject: Model, corpus, number of test texts and accuracy, as far as they are known.
        remarks: How often the card was right for the kind of model, and what the best other method
            costs, as far as that was measured.
        methods: The other methods, the best first, by the names of attributions.
        items: What attention weighs: words or sentences.
    """

    heading: str
    sentence: str
    case: str
    case_if_licensed: str
    kind: str
    lines: tuple[Line, ...]
    note: str
    checkpoint: str | None = None
    scope: str = ""
    caveat: str = ""
    subject: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    items: str = "words"

    def __getitem__(self, name: str) -> Line:
        """The line of a name."""
        return {line.name: line for line in self.lines}[name]

    @property
    def decision(self) -> str:
        """`yes`, `no`, `in part`, `undecided`, or `none` where nothing can be said."""
        return str(rules()["decisions"].get(self.case, "none"))

    @property
    def sign(self) -> str:
        """The sign of `decision`; "" where it is open."""
        return str(rules()["signs"].get(self.decision, ""))

    @property
    def sentence_parts(self) -> tuple[str, str, str]:
        """The sentence before, in and after the words that answer."""
        pattern = rules()["answers"][self.case]
        before, answer, after = re.split(f"({pattern})", self.sentence, maxsplit=1)
        return before, answer, after

    def __str__(self) -> str:
        """The card in 80 columns."""
        above = (" · ".join(self.subject), self.heading, self.sentence, self.scope, self.caveat)
        parts = [textwrap.fill(text, 80) for text in above if text]
        told: set[str] = set()
        for line in self.lines:
            text = textwrap.fill(str(line), 80, subsequent_indent="  ", break_on_hyphens=False)
            commands = [] if line.command in told else line.command.splitlines()
            told.add(line.command)
            parts.append("\n  ".join([text, *commands]))
        return "\n\n".join([*parts, textwrap.fill(self.note, 80)])

    def table(self) -> pd.DataFrame:
        """The answer and the number of each line, with its interval."""
        import pandas as pd

        columns = ["name", "question", "answer", "value", "low", "high", "texts"]
        return pd.DataFrame(map(asdict, self.lines))[columns]

    def _repr_html_(self) -> str:
        """The card as HTML."""
        from attnlight.report.markup import render

        rows = rows_of(self.lines, self.items)
        return str(render("verdict.html.jinja", verdict=self, rows=rows))

    def summary(self) -> dict[str, str | float]:
        """Sentence, and answers, numbers and texts of the lines by key, for loggers."""
        found: dict[str, str | float] = {
            f"verdict/{name}": getattr(self, name) for name in ("sentence", "case", "caveat")
        }
        for line in self.lines:
            numbers = {name: getattr(line, name) for name in ("value", "low", "high")}
            entries = {"answer": line.answer, "text": str(line), **numbers}
            known = ((name, value) for name, value in entries.items() if value is not None)
            found |= {f"verdict/{line.name}_{name}": value for name, value in known}
        return found

    def write(self, folder: Path, corpus: str = "") -> None:
        """Write it as `verdict.json`; of a corpus that the model was not trained on its own file."""
        lines = [{**asdict(line), "text": str(line)} for line in self.lines]
        content = {"version": rules()["version"], **asdict(self), "lines": lines}
        path = folder / f"verdict{corpus and '-'}{corpus}.json"
        write_text(path, json.dumps(content, indent=1) + "\n")


def verdict_of(run: Run | Path, corpus: str = "") -> Verdict:
    """The card of a run, from the records of its test split.

    Args:
        run: The run, or its folder; it may have no records.
        corpus: Name of the corpus; "" is the corpus of training.

    Raises:
        InputError: The records are of several runs or checkpoints, or one is damaged.
    """
    records = CardRecords(run, corpus)
    classes, best = agreements(records), of.alternative_of(records)
    by_size = of.alternative_of(records, signed=False)
    needed, words = of.needed(records), of.words(records)
    finds, instead = of.compared(records, best, by_size)
    last = of.smallest_set(records), of.uniqueness(records), cites(records)
    majority = _majority(records)
    case, speaks_of = _case(records, classes, by_size, words.answer == "yes")
    case = "majority" if majority else case
    licences = rules("licences")
    licensed = licences.get(records.kind, {}).get("licensed") and licences["rules"] == digest()
    given = case if licensed or case in _LEAVES_OPEN else "not_established"
    if given == "not_established":  # of the worst class in which D is defined
        speaks_of = next((one for one in classes if one.d.texts), None)
        if speaks_of is None:
            given, speaks_of = case, classes[0]  # unseen
    ranks = of.ranks(records, classes)
    if given in _NUMBER_ALONE and ranks.value is not None:
        ranks = replace(ranks, answer="")
    made = ranks, finds, needed, words, instead, *last
    sentence = majority or _sentence(records, given, classes, speaks_of, (best, by_size))
    if given not in _LEAVES_OPEN and needed.answer == "no":
        sentence += f" {rules()['sentences']['uniform']}"
    hashes = [
        entry.get("checkpoint_hash") or entry.get("weights") for entry in records.metadata.values()
    ]
    # The record where the most rows were not measured.
    counts = [(entry.get("non_finite") or 0, entry["rows"]) for entry in records.metadata.values()]
    broken, rows = max(counts, default=(0, 0))
    non_finite = str(rules()["all_non_finite" if broken == rows else "some_non_finite"])
    non_finite = non_finite.format(broken=f"{broken:,}", rows=f"{rows:,}")
    return Verdict(
        " ".join(filter(None, (rules()["heading"], corpus and f"On {corpus}."))),
        sentence,
        given,
        case,
        records.kind,
        tuple(line for line in made if line is not None),
        rules()["note"],
        next(filter(None, hashes), None),
        str(records.model.get("scope", "")),
        non_finite if broken else "",
        records.subject,
        () if given in _NO_REMARKS else _remarks(records.kind, bool(licensed), best, sentence),
        () if best is None else best.names,
        records.unit,
    )


def _case(
    records: CardRecords,
    classes: Sequence[ClassAgreement],
    by_size: Alternative | None,
    words: bool,
) -> tuple[str, ClassAgreement | None]:
    """The case if the kind of model has a licence, and the class that it speaks of.

    `by_size` is the best method without signs; `words` tells whether states stand for their words.
    """
    if not classes:
        return "too_few" if records.has(TEST, "log_odds") else "unmeasured", None
    rule = rules()["ranks"]
    bound = rule["found_from" if records.alone else "least_found"]
    finds = by_size is not None and by_size.found >= bound
    in_class = (of.alternative_of(records, False, one.number) for one in classes)
    firsts = [one is not None and one.found >= rule["found_from"] for one in in_class]
    case, speaks_of = case_of(classes, words, finds, firsts)
    if case == "not_finding" and (by_size is None or np.isnan(by_size.ratio.value)):
        case = "unmeasured" if by_size is None else "not_decided"
    return case, speaks_of


def _remarks(kind: str, licensed: bool, best: Alternative | None, sentence: str) -> tuple[str, ...]:
    """How often the card was right, and what the best method costs if the sentence does not say so."""
    words, known = rules()["remarks"], rules("licences").get(kind, {}).get("judgement", {})
    judged = [one for one in known.values() if "right" in one and one["right"][1]]
    found = words["not_judged"]
    if judged and len(judged) == len(known):
        right, decided = min((one["right"] for one in judged), key=lambda pair: pair[0] / pair[1])
        found = words["licensed" if licensed else "not_licensed"]
        found = found.format(right=right, decided=decided, kind=rules()["kind_words"][kind])
    found = [found.format(kind=rules()["kind_words"][kind])]
    if best is not None and best.has_effect and best.method not in sentence:
        fields = {"method": best.method, "passes": f"{best.passes:.0f}"}
        found.append(words["instead"].format(**fields))
    return tuple(found)


def _sentence(
    records: CardRecords,
    case: str,
    classes: Sequence[ClassAgreement],
    speaks_of: ClassAgreement | None,
    others: tuple[Alternative | None, Alternative | None],
) -> str:
    """The sentence of a case and of the class that it speaks of; `others` are the best methods."""
    words, (best, by_size) = rules()["sentences"], others
    fields: dict[str, Any] = {
        "least_texts": rules()["least_texts"],
        "items": records.unit,
        "kind": rules()["kind_words"][records.kind],
    }
    fields["found"] = by_size.ratio.value if by_size else np.nan
    fields["ratio"] = "" if np.isnan(fields["found"]) else filled(words["ratio"], **fields)
    for name in ("read", "elsewhere"):
        fields[name] = ""
        if best is not None and best.has_effect:
            method = {"method": best.method, "passes": f"{best.passes:.0f}"}
            fields[name] = filled(words[name], **method)
    little = by_size is not None and by_size.found < rules()["ranks"]["least_found"]
    fields["little"] = fields["read"] if little else ""
    fields["follows"] = ", ".join(one.name for one in classes if one.side == "yes")
    fields["where"] = ""
    if speaks_of is not None:
        predicted = records.columns(records.records[TEST], "prediction")[1][0]
        every = "everywhere" if len(classes) == len(np.unique(predicted)) else "in_frequent"
        fields["where"] = words[every if len(classes) > 1 else "in_one"]
        texts = sum(one.d.texts for one in classes)
        enough = speaks_of.needed(texts)
        fields |= {"class": speaks_of.name, "opposing": speaks_of.opposing.value, "texts": texts}
        fields |= {"value": speaks_of.d.value, "interval": of.span(speaks_of.interval)}
        fields["where"] = fields["where"].format(**fields)
        fields["ends"] = of.span(speaks_of.opposing.interval(), percent=True)
        if case == "not_decided" and speaks_of.orders:
            case = "weight_open" if speaks_of.side == "undecided" else "nothing_to_find"
        if case == "unseen" and speaks_of.moves:
            case = "alike"
        more = words["more" if enough <= words["most_more"] * texts else "at_bound"]
        fields["more"] = more.format(needed=enough) if enough > texts else ""
    return filled(of_items(words[case], records.unit), **fields)


def _majority(records: CardRecords) -> str:
    """That the model is not shown to predict better than the most frequent label does, or ""."""
    texts, label, prediction = records.labelled
    if not label.size:
        return ""
    classes, counts = np.unique(label, return_counts=True)
    largest = classes[counts.argmax()]
    right, constant = (1.0 * (label == answer) for answer in (prediction, largest))
    gain = Estimate.of(texts, right - constant)
    if gain.interval()[0] > 0 or gain.texts < rules()["least_texts"]:
        return ""
    return str(rules()["sentences"]["majority" if len(classes) > 1 else "one_label"]).format(
        texts=f"{gain.texts:,}",
        accuracy=right.mean(),
        share=constant.mean(),
        **{"class": records.class_name("predictions", int(largest))},
    )
