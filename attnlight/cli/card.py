"""`attnlight card`: a model card with what the verdict of a run says of its attention."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from attnlight import __version__
from attnlight.cli.arguments import VerbParser
from attnlight.errors import InputError, printable
from attnlight.storage.files import read_json, read_yaml, require_no_links_out, write_text
from attnlight.storage.model_folder import HUB_ID, require_run_or_tested

DESCRIPTION = """\
Write RUN/report/card.md, a model card with the front matter that the Hugging Face hub reads, from the
verdicts in RUN/report/verdict.json and verdict-<corpus>.json. Nothing is evaluated again."""
EPILOG = (
    "--section prints what stands below the front matter and the title, for a card of your own."
)
# What the hub calls the task of a class; of all others texts are classified.
TASKS = {"ChunkTagger": "token-classification", "Translator": "translation"}


def main(argv: list[str]) -> int:
    """Write the card of a run and print its path, or print its section."""
    parser = VerbParser("card", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("run", metavar="RUN", type=Path, help="checkpoints/<experiment>/<run>")
    parser.add_argument("--section", action="store_true", help="print the section, write no file")
    options = parser.parse_args(argv)
    run = options.run
    # That of its own corpus first.
    verdicts = sorted(run.glob("report/verdict*.json"), key=lambda path: path.stem)
    if not verdicts:
        require_run_or_tested(run)
        raise InputError(
            f"{run} has no verdict in report/verdict.json: `attnlight test {run} --tests card` makes it."
        )
    section = "\n".join(line for path in verdicts for line in _section(path))
    if options.section:
        print(section)
        return 0
    require_no_links_out(run)
    title = _escaped(str(read_json(verdicts[0]).get("subject", [run.name])[0]))
    # What the hub reads of a model: its library, task, data set and tags.
    files = [run / name for name in ("fit.yaml", "test.yaml") if (run / name).is_file()]
    config = read_yaml(files[0]) if files else {}
    model, data = (config.get(part) or {} for part in ("model", "data"))
    kind, given = str(model.get("class_path", "")), data.get("init_args") or {}
    path = str(given.get("path") or "")
    front: dict[str, Any] = {"library_name": "attnlight"}
    front["pipeline_tag"] = TASKS.get(kind.rpartition(".")[2], "text-classification")
    if HUB_ID.fullmatch(path) and not Path(path).exists():
        front["datasets"] = [path]
    front["tags"] = ["attention", "interpretability"]
    matter = yaml.safe_dump(front, sort_keys=False)
    write_text(run / "report/card.md", f"---\n{matter}---\n\n# {title}\n\n{section}\n")
    print(run / "report/card.md")
    return 0


def _section(path: Path) -> Iterator[str]:
    """The lines of Markdown that say a verdict: sentence, numbers with n, and the date."""
    verdict = read_json(path)
    corpus = path.stem.removeprefix("verdict").removeprefix("-")
    yield f"## {_escaped(verdict['heading'])}\n"
    yield f"**{_escaped(verdict['sentence'])}**\n"
    subject = ", ".join(map(_escaped, verdict.get("subject", ())))
    date = datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
    measured = f"Measured by attnlight {__version__}, rules of version {verdict['version']}, {date}"
    yield f"{measured}{corpus and f', on {_escaped(corpus)}'}{subject and f': {subject}'}.\n"
    for line in verdict["lines"]:
        yield f"* {_escaped(line['text'])}"
    said = [*verdict.get("remarks", ()), verdict.get("caveat"), verdict["note"]]
    yield f"\n{' '.join(_escaped(text) for text in said if text)}\n"


def _escaped(text: str) -> str:
    """Text of a run, which may be a stranger's, without meaning in Markdown, HTML or a terminal."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", printable(str(text)))
