"""Methods that read all layers of a transformer, beside attention of the last layer's row."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from attnlight.statistics import seeds_then_instances
from results_page import NAMES
from results_page.archive import Archive, conditions
from results_page.cells import columns
from results_page.findings import Cells, Places, Sentences, Tables
from results_page.real_text import NO, NOT_RUN, YES, answer
from results_page.tables import DASH, Row, interval

STUDY, _LAST = "mixing", "attention"
_NAMES = NAMES["mixing"]
MODELS = conditions(STUDY, rf"{STUDY}-(?P<texts>\w+)", _NAMES["texts"])
MEASURES: dict[str, tuple[str, str]] = {x: tuple(y) for x, y in _NAMES["measures"].items()}
_LESS = "less attention's#"


def methods(archive: Archive) -> Iterator[Row]:
    """What each method finds, less what attention of the last layer does, and its cost, by texts."""
    for name, model in MODELS.items():
        if name not in archive:
            yield model.words | {"seeds": f"0 of {model.seeds}", "method": NOT_RUN}
            continue
        runs, cost = archive[name], columns(archive[name], "attribution_cost")
        for label, words in _NAMES["methods"].items():
            row = archive.words(name, model) | {"method": words}
            for heading, (test, measure) in MEASURES.items():
                row |= {heading: DASH, _LESS + heading: DASH}
                if not (runs.folders[0] / f"records/test/{test}.parquet").is_file():
                    continue
                found = columns(runs, test)
                own, last = (found[f"{measure}_{x}"].astype(float) for x in (label, _LAST))
                row[heading] = interval(seeds_then_instances(own, found["index"]), 3)
                if label != _LAST:
                    less = seeds_then_instances(own - last, found["index"])
                    row[_LESS + heading] = interval(less, 3)
                    row[f"better by {heading}?"] = answer(less)
            taken = cost.get(f"cost_{label}", np.array([[np.nan]])).astype(float)
            yield row | {"cost": interval(seeds_then_instances(taken), 1)}


def sentences(t: Tables) -> Sentences:
    """Which methods explain better than attention of the last layer, and which worse, by each measure."""
    c, rows = Cells(t, "mixing_findings"), t.rows("mixing_methods")
    done = [row for row in rows if row["method"] != NOT_RUN]
    for texts, of in groupby(done, key=lambda row: row["texts"]):
        said, of_texts = [], [*of]
        for heading in MEASURES:
            found = {row["method"]: row.get(f"better by {heading}?", DASH) for row in of_texts}
            if {*found.values()} <= {DASH, ""}:
                continue
            parts = ([x for x, y in found.items() if y == wanted] for wanted in (YES, NO))
            better, worse = (", ".join(part) or "nothing" for part in parts)
            said.append(f"by {heading} {better} (worse: {worse})")
        yield c.say("texts", texts=texts, each="; ".join(said))
    if not done:
        yield c.say("open")


PLACES: Places = (sentences,)
