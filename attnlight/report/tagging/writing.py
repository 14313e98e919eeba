"""From the two files of a tagger's study to its page, tables, figures and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnlight.report.study.files import Drawing, finished_runs, write_files
from attnlight.report.study.lambdas import term_name
from attnlight.report.study.page import Head
from attnlight.report.study.plan import StudyRun
from attnlight.report.study.sentences import capital
from attnlight.report.tagging import by_lambda, probes, tradeoff
from attnlight.report.tagging.along import Along
from attnlight.report.tagging.bends import find_bend
from attnlight.report.tagging.collapse import Collapse, find_collapses
from attnlight.report.tagging.estimates import NLL_BASE, TaggingEstimates
from attnlight.report.tagging.groups import terms
from attnlight.report.tagging.reading import TaggingStudy, read_tagging_study
from attnlight.report.tagging.tables import estimates_csv, tables
from attnlight.report.tagging.verdict import verdicts

ANSWERS = {
    "tokens": "the chunk tag of every token",
    "marked": "the chunk tag of one marked token of a sentence",
    "sentence": "whether a sentence has a chunk of one type",
}


def write_tagging_study(folder: Path, output: Path | None = None) -> list[Path]:
    """Write the report of a tagger's study from its `study.json` and `study.parquet`.

    Args:
        folder: The study's folder.
        output: Where to write; None: the folder's own `report`.

    Returns:
        The files, the page first.

    Raises:
        InputError: The study's files are missing or damaged, no run of it is finished, or a file
            cannot be written.
    """
    study = read_tagging_study(folder)
    estimates = TaggingEstimates(study)
    return write_files(
        folder / "report" if output is None else output,
        _head(study),
        verdicts(study, estimates),
        tables(study, estimates),
        figures(study, estimates),
        ("estimates.csv", estimates_csv(study, estimates)),
    )


def figures(study: TaggingStudy, estimates: TaggingEstimates) -> Iterator[Drawing]:
    """The figures, those of each base and attention term together."""
    for base in study.bases:
        collapse = find_collapses(study, base)
        yield from _of_base(study, estimates, base, collapse)
        for term in terms(study, base):
            yield from _of_term(Along(study, estimates, base, term, collapse))
    made = probes.draw_probes(study, estimates)
    if made is not None:
        caption = probes.CAPTION.format(f1=capital(study.f1))
        yield Drawing("Taggers whose attention is given", "probes", made, caption)


def _of_base(
    study: TaggingStudy, estimates: TaggingEstimates, base: StudyRun, collapse: Collapse
) -> Iterator[Drawing]:
    made = tradeoff.draw_tradeoff(study, estimates, base, collapse)
    if made is not None:
        caption = tradeoff.CAPTION.format(base=base.name)
        title = f"Loss against divergence, {base.name}"
        yield Drawing(title, f"tradeoff-{base.name}", made, caption)


def _of_term(along: Along) -> Iterator[Drawing]:
    words, stem = term_name(along.term), f"{along.term}-{along.base.name}"
    known = {"base": along.base.name, "term": words, "f1": capital(along.study.f1)}
    yield Drawing(
        f"{known['f1']} and TVD by lambda, {words}",
        f"outcome-{stem}",
        by_lambda.draw_outcome(along),
        by_lambda.OUTCOME_CAPTION.format(**known),
    )
    made = by_lambda.draw_heads(along)
    if made is not None:
        caption = by_lambda.HEADS_CAPTION.format(**known)
        yield Drawing(f"JS of each head by lambda, {words}", f"heads-{stem}", made, caption)
    bend = find_bend(along.study, along.estimates, along.base, NLL_BASE, along.term)
    made = by_lambda.draw_ranking(along, bend)
    if made is not None:
        caption = by_lambda.RANKING_CAPTION.format(**known, bend=by_lambda.bend_words(bend))
        yield Drawing(f"Rankings of words by lambda, {words}", f"ranking-{stem}", made, caption)


def _head(study: TaggingStudy) -> Head:
    lead = (
        "Is self-attention exclusive where every token must be explained? Models trained from one "
        "tagger, after Yang (2020)."
    )
    facts = {
        "Experiment": study.experiment,
        "Condition": study.condition or "",
        "Corpus": study.corpus,
        "Answers": ANSWERS[study.target],
        "Readout": study.readout or "",
        "Part-of-speech tags": {True: "read", False: "not read", None: ""}[study.pos],
        "Test sentences": f"{study.sentences:,}",
        "Finished runs": finished_runs(study),
    }
    return Head(study.name, "study of a tagger", lead, facts)
