"""What the page finds in its tables: the sentences of `findings.md.jinja` that its tables bear out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from results_page.cells import Tables, read_cell
from results_page.prose import bullets, claim, paragraph


def findings(tables: Tables) -> dict[str, str]:
    """The sentences of each place: a paragraph, or a list where its name ends in `findings`."""
    template = _environment().get_template("findings.md.jinja")
    found = {}
    for place, block in template.blocks.items():
        said: list[str] = []

        def add(holds: bool, caller: Callable[[], str], said: list[str] = said) -> str:
            said.append(claim(holds, " ".join(caller().split())))
            return ""

        names = {"claim": add, "rows": tables.rows, "row": tables.row, "cell": tables.cell}
        "".join(block(template.new_context(names)))
        found[place] = bullets(said) if place.endswith("findings") else paragraph(*said)
    return found


def _environment() -> Environment:
    """Jinja's, with what conditions ask of the rows and cells of a table."""
    made = Environment(  # Markdown of our own records
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, autoescape=False
    )
    made.tests |= {"starting": str.startswith, "ending": str.endswith}
    made.filters |= {
        "all": all,
        "cell": read_cell,
        "share": lambda text: int(text.split()[0]) / int(text.split()[-1]),
        "figures": _figures,
        "less": lambda rows, a, b: all(float(row[a]) < float(row[b]) for row in rows),
        "below": lambda one, other: all(a < b for a, b in zip(one, other, strict=False)),
    }
    return made


def _figures(row: dict[str, str], start: int) -> list[float]:
    """The first number of each cell of a row from a column on, empty ones left out."""
    return [read_cell(text).value for text in list(row.values())[start:] if text]
