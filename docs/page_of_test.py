"""The page of a test: what is written by hand, and what the package says of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

import attnlight

TEXTS: dict[str, Any] = yaml.safe_load(
    (Path(attnlight.__file__).parent / "figures/texts.yaml").read_text(encoding="utf-8")
)
READ = "A sentence of the page of a run, with a value in place of *x*, and how to read it:"
OPTIONS = """\
## Columns and options

```{{eval-rst}}
.. autoclass:: attnlight.callbacks.{kind}
```
"""


def page_of_test(name: str, page: str) -> str:
    """A page with its question first, and with measures, figure and options last.

    Args:
        name: The test in snake case.
        page: The Markdown of its page in the repository; the first line is its class.
    """
    title, rest = page.split("\n", 1)
    parts = [title]
    told = TEXTS.get(name, {})
    if told:
        parts += [f"**{told['question']}**", f"Source: {told['source']}.", rest.strip()]
        parts += ["## How to read it", READ]
        for headline in told.get("headlines", {}).values():
            said = re.sub(r"\{value[^}]*\}", "*x*", headline["says"]).replace("{least}", "")
            parts.append(f"* {said} {headline['read']}")
        parts += ["## Figure", told["caption"]] if "caption" in told else []
        parts += ["## Measures", measures(told)]
    else:
        parts.append(rest.strip())
    return "\n\n".join([*parts, OPTIONS.format(kind=title.strip("# `"))])


def measures(told: dict[str, Any]) -> str:
    """A table of the columns of a record."""
    rows = {**told.get("measures", {})}
    rows |= {f"{name}_<ranking>": said for name, said in told.get("by_ranking", {}).items()}
    lines = [f"| `{name}` | {' '.join(said.split())} |" for name, said in rows.items()]
    return "\n".join(["| column | what it is |", "|---|---|", *lines])
