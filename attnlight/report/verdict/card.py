"""The verdict card of a run: in five lines, may its attention be read as an explanation?

The rules and the words are in `verdict.yaml`.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from attnlight.report.run import Run
from attnlight.report.verdict.claims import NOT_SHOWN, Claim, Draft, Estimate, rules, tested
from attnlight.report.verdict.drafts import DECIDERS, Drafts
from attnlight.storage.files import write_text


@dataclass(frozen=True)
class Line:
    """A line of the card.

    Attributes:
        name: Its name in verdict.yaml.
        question: The question.
        answer: `yes`, `in part`, `no`, `noticed`, `not noticed`, `caution`, `not shown`, `not
            applicable`, `not measured`, `not finite` or `not calibrated for this kind of model`.
        says: What that rests on, in words; may be empty.
        value: The number; None if there is none.
        low: Lower end of its interval.
        high: Upper end of its interval.
        p: p-value of the claim after Holm; None if the line makes none.
        texts: Number of texts that the number rests on.
        share: Their share of the split; None if its size is unknown.
        missing: What was not measured; may be empty.
        command: What would measure it, a command on each line; may be empty.
    """

    name: str
    question: str
    answer: str
    says: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    texts: int = 0
    share: float | None = None
    missing: str = ""
    command: str = ""

    def __str__(self) -> str:
        """The line as a paragraph."""
        answer = self.answer[0].upper() + self.answer[1:]
        return " ".join(filter(None, (self.question, f"{answer}.", self.says, self.missing)))


@dataclass(frozen=True)
class Verdict:
    """The card of a run.

    Attributes:
        heading: Its question.
        lines: Its lines.
        note: How to read them.
        checkpoint: Hash of the checkpoint that was tested; None if unknown.
        scope: What the model says of the scope of its attention; "" if it says nothing.
        caveat: What makes all lines worth little, such as a model at its majority class; "" if
            nothing does.
    """

    heading: str
    lines: tuple[Line, ...]
    note: str
    checkpoint: str | None = None
    scope: str = ""
    caveat: str = ""

    def __getitem__(self, name: str) -> Line:
        """The line of a name."""
        return {line.name: line for line in self.lines}[name]

    def __str__(self) -> str:
        """The card in 80 columns."""
        parts = list(filter(None, (self.heading, self.scope, textwrap.fill(self.caveat, 80))))
        for line in self.lines:
            text = textwrap.fill(str(line), 80, subsequent_indent="  ", break_on_hyphens=False)
            parts.append("\n  ".join([text, *line.command.splitlines()]))
        return "\n\n".join([*parts, textwrap.fill(self.note, 80)])

    def summary(self) -> dict[str, str | float]:
        """Answers, numbers and texts of the lines by key, for loggers."""
        found: dict[str, str | float] = {"verdict/caveat": self.caveat}
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


def verdict_of(run: Run | Path, corpus: str = "", deciders: Path = DECIDERS) -> Verdict:
    """The card of a run, from the records of its test split.

    Args:
        run: The run, or its folder; it may have no records.
        corpus: Name of the corpus; "" is the corpus of training.
        deciders: The file of measures that may be used with a threshold.

    Raises:
        InputError: The records are of several runs or checkpoints, or one is damaged.
    """
    found = Drafts(run, corpus, deciders)
    drafts = [found.ranks(), found.smallest_set(), found.uniqueness(), found.words()]
    lines: list[Line] = []
    for items in ("words", "states"):
        each = [*drafts[:3], found.notices(items), drafts[3]]
        claims = tested(each)
        lines = [_line(found, draft, items, claims.get(draft.name)) for draft in each]
        if lines[-1].answer == "yes":
            break
    hashes = [entry.get("checkpoint_hash") for entry in found.metadata.values()]
    heading = " ".join(filter(None, (rules()["heading"], corpus and f"On {corpus}.")))
    checkpoint, scope = next(filter(None, hashes), None), str(found.model.get("scope", ""))
    # The record where the most rows were not measured.
    counts = [(entry.get("non_finite") or 0, entry["rows"]) for entry in found.metadata.values()]
    broken, rows = max(counts, default=(0, 0))
    says = str(rules()["all_non_finite" if broken == rows else "some_non_finite"])
    non_finite = says.format(broken=f"{broken:,}", rows=f"{rows:,}") if broken else ""
    caveat = " ".join(filter(None, (_majority(found), non_finite)))
    return Verdict(heading, tuple(lines), rules()["note"], checkpoint, scope, caveat)


def _line(of: Drafts, draft: Draft, items: str, claim: Claim | None) -> Line:
    """The line of a draft on `words` or `states`; `claim` is None if it makes none."""
    rule, found = rules()["lines"][draft.name], draft.estimate or Estimate(np.nan, np.empty(0), 0)
    low, high = claim.interval if claim else found.interval(1 - rules()["level"])
    answer, says = claim.answer if claim else draft.answer, rule.get(draft.says, "")
    scale, digits = (100, 0) if "{value:.0%}" in says else (1, 2)
    fields = draft.fields | {"items": items, "top": rules()["top"][items], "value": found.value}
    fields["interval"] = f"[{scale * low:.{digits}f}, {scale * high:.{digits}f}]"
    says = says.format(**fields).replace("%", " %")
    if draft.estimate and not found.texts:
        answer, says = NOT_SHOWN, rules()["undefined"]
    elif found.texts:
        total = f" of {of.total:,}" if of.total else ""
        says += f" Rests on {found.texts:,}{total} texts."
    if not isinstance(answer, str):  # too few texts for a claim
        answer, says = NOT_SHOWN, f"{says} Fewer than {rules()['least_texts']} show nothing."
    question = rule["question"]
    question = question[items] if isinstance(question, dict) else question.format(items=items)
    unit = "sentence" if of.net.get("hierarchical") else "word"
    numbers = [None if np.isnan(x) else float(x) for x in (found.value, low, high)]
    return Line(
        draft.name,
        question.replace("word", unit),
        answer,
        says.replace("word", unit),
        value=numbers[0],
        low=numbers[1],
        high=numbers[2],
        p=claim.p if claim else None,
        texts=found.texts,
        share=found.texts / of.total if of.total else None,
        missing=draft.missing.replace("word", unit),
        command=draft.command,
    )


def _majority(of: Drafts) -> str:
    """Whether the model is not shown to predict better than the most frequent label does."""
    if not of.has("predictions", "label"):
        return ""
    texts, (label, prediction) = of.columns(of.records["predictions"], "label", "prediction")
    known = label >= 0
    if not known.any():
        return ""
    texts, label, prediction = texts[known], label[known], prediction[known]
    classes, counts = np.unique(label, return_counts=True)
    largest = classes[counts.argmax()]
    right, constant = (1.0 * (label == answer) for answer in (prediction, largest))
    gain = Estimate.of(texts, right - constant)
    low, high = gain.interval(1 - rules()["level"])
    if low > 0 or gain.texts < rules()["least_texts"]:
        return ""
    return str(rules()["majority"]).format(
        texts=f"{gain.texts:,}",
        accuracy=right.mean(),
        share=constant.mean(),
        value=gain.value,
        interval=f"[{low:.2f}, {high:.2f}]",
        **{"class": of.class_name("predictions", int(largest))},
    )
