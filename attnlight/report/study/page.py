"""Writes the page, tables, figures and verdicts of a study."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from attnlight.figures.style import inline_svg, save_figure
from attnlight.figures.tables import Table, balanced, to_csv
from attnlight.report.compare import comparison_tables, group_runs, measure_groups
from attnlight.report.markup import render
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.figures import figures
from attnlight.report.study.frame import ROLES, read_study
from attnlight.report.study.tables import estimates_csv, study_tables
from attnlight.report.study.texts import text
from attnlight.report.study.verdict import Comparison, compare_groups, verdicts
from attnlight.storage.files import write_text
from attnlight.storage.run_folder import is_run

PAGE = "index.html"
_FIGURE = ("title", "stem", "caption")
_COMPARED = ["question", "group", "against", "about", "measure", "mean", "low", "high"]
_COMPARED += ["group_mean", "against_mean", "group_runs", "against_runs"]
_COMPARED += ["group_models", "against_models", "outcome"]


def write_study(folder: Path, output: Path | None = None) -> list[Path]:
    """Write a study's report from `study.json` and `study.parquet`; the files, the page first.

    Without `output` it goes to the folder's own `report`.

    Raises:
        InputError: The study's files are missing or damaged, no run of it is finished, or a file
            cannot be written.
    """
    study = read_study(folder)
    estimates = Estimates(study)
    compared, facts = compare_groups(estimates), study.facts
    roles = [r for r in dict.fromkeys((*ROLES, *study.runs["role"])) if len(study.planned(r))]
    counts = [f"{len(study.finished(r))} of {len(study.planned(r))} {r}" for r in roles]
    head = {
        "title": study.name,
        "kind": "study",
        "lead": text("leads", "study"),
        "facts": {
            "Experiment": study.experiment,
            "Condition": facts["options"] or "",
            "Corpus": study.corpus,
            "Problem": study.words.problem,
            "Answers": text("targets", facts["target"], "answer") if facts["target"] else "",
            "Classes": ", ".join(map(balanced, study.classes)),
            "Readout": facts["readout"] or "",
            "Part-of-speech tags": {True: "read", False: "not read"}.get(facts["pos"], ""),
            f"Test {study.words.cluster}s": f"{study.measures.index.unique('index').size:,}",
            "Finished runs": ", ".join(counts),
        },
    }
    full = {"estimates.csv": estimates_csv(estimates)}
    bases = [folder / name for name in study.finished("base").index]
    answers: Mapping[str, Sequence[str]] = {}
    if roles == ["base"] and all(map(is_run, bases)):  # there is no variant to compare them with
        by_config = group_runs(bases)
        head["lead"] = text("leads", "bases")
        tables = comparison_tables(by_config, measure_groups(by_config))
    else:
        answers, tables = verdicts(estimates, compared), study_tables(estimates)
    output = folder / "report" if output is None else output
    return write_files(output, head, compared, answers, tables, figures(estimates), full)


def write_files(
    output: Path,
    head: Mapping[str, object],
    compared: Sequence[Comparison],
    answers: Mapping[str, Sequence[str]],
    tables: Mapping[str, Table],
    drawings: Iterable[tuple[str, Figure | None, Mapping[str, object]]],
    full: Mapping[str, str],
) -> list[Path]:
    """Write a report, and return its files, the page first.

    Args:
        output: The folder, made where it is missing.
        head: `title`, `kind`, `lead` and `facts` of the page; empty facts are left out.
        compared: Comparisons, written in full precision so that sentences can be checked.
        answers: The sentences that follow from them, by question.
        tables: Tables by the stem of their files.
        drawings: Kind of each figure, the figure or None, and the fields of its texts.
        full: Name and content of the file with every mean in full precision.
    """
    verdict_lines = [f"# {head['title']}\n"]
    for question, sentences in answers.items():
        verdict_lines += [f"## {question}\n", "".join(f"* {sentence}\n" for sentence in sentences)]
    lines = []
    for spec, difference, (group, against), outcome, _ in compared:
        labels = (spec.question, spec.group, spec.against, spec.subject, spec.measure)
        numbers = (difference.mean, difference.low, difference.high, group.mean, against.mean)
        counts = (len(spec.runs), len(spec.against_runs), group.seeds, against.seeds)
        lines.append([*labels, *numbers, *counts, outcome])
    comparisons = to_csv(_COMPARED, lines)
    texts = {"verdict.md": "\n".join(verdict_lines), "verdict.csv": comparisons, **full}
    for stem, table in tables.items():
        texts |= {f"{stem}.{ending}": content for ending, content in table.to_texts().items()}
    shown, files = [], []
    for kind, figure, words in drawings:
        if figure is not None:
            title, stem, caption = (text("figures", kind, part, **words) for part in _FIGURE)
            files += save_figure(figure, output / stem)
            picture = {"svg": inline_svg(figure, stem, caption), "caption": caption}
            shown.append({"title": title, "stem": stem, "picture": picture})
    (name,) = full
    page = {"answers": answers, "tables": tables, "figures": shown, "full": name}
    texts[PAGE] = render("study.html.jinja", **head, **page)
    for name, content in texts.items():
        write_text(output / name, content)
    return [output / PAGE, *(output / name for name in texts if name != PAGE), *files]
