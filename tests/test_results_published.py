"""The cells of docs/results/published.yaml, and the runs and tables that meet them."""

import re
from collections import Counter
from typing import Any

import pytest
import yaml

from attnlight.errors import InputError
from tests.kept import BLOCKS, DOCS, page

published_cells = page("published_cells")
PUBLISHED = yaml.safe_load((DOCS / "results/published.yaml").read_text(encoding="utf-8"))
CELLS = published_cells.published_cells(PUBLISHED)
CONFIGS = DOCS.parent / "configs"
PLANNED = {  # runs that no configuration has yet
    "wiegreffe_pinter_ag_news",
    *(
        f"jain_wallace_pairs-babi_{task}_{encoder}_{attention}"
        for task in (2, 3)
        for encoder in ("cnn", "average")
        for attention in ("additive", "scaled_dot")
    ),
}


def leaves(table: Any) -> list[Any]:
    """The values of a nested table that are not null, in order."""
    if isinstance(table, dict | list):
        parts = table.values() if isinstance(table, dict) else table
        return [leaf for part in parts for leaf in leaves(part)]
    return [] if table is None else [table]


def printed(cell: Any) -> str:
    """A cell as its source prints it."""
    deviation = f" ± {cell.deviation}" if cell.deviation else ""
    return f"{cell.value}{deviation}" + (f" ({cell.share})" if cell.share else "")


def by_id() -> dict[str, Any]:
    return {cell.id: cell for cell in CELLS}


def test_each_figure_is_one_cell() -> None:
    assert len(by_id()) == len(CELLS)
    settings = ("cells", "corpora", "sources", "serrano_claims")
    figures = leaves({name: table for name, table in PUBLISHED.items() if name not in settings})
    pinter = PUBLISHED["wiegreffe_pinter"]
    others = [pinter["source"], *(row["lambda"] for row in pinter["adversary"].values())]
    others += [row["reported"] for row in pinter["base_uniform"].values()]
    for rows in (pinter["base_uniform"], pinter["guides"], pinter["adversary"]):
        for corpus in ("diabetes", "anemia"):
            row = {key: x for key, x in rows[corpus].items() if key not in ("reported", "lambda")}
            others += leaves(row)
    for sources in PUBLISHED["accuracy"].values():
        others += sources.get("repository", {}).get("texts", [])
    assert Counter(figures) == Counter(map(printed, CELLS)) + Counter(others)


def test_cells_say_where_they_come_from_and_how_they_are_met() -> None:
    for cell in CELLS:
        assert re.fullmatch(r"[a-z0-9_.]+", cell.id)
        assert cell.source in published_cells.SOURCES
        assert (cell.run is None) == (cell.lacks is not None), cell.id
        assert cell.lacks is None or cell.reading is None


def test_runs_are_configured_and_readings_exist() -> None:
    known = {path.stem for kind in ("experiments", "studies") for path in CONFIGS.glob(f"{kind}/*")}
    for path in CONFIGS.glob("studies/*.yaml"):
        study = yaml.safe_load(path.read_text(encoding="utf-8"))
        known |= {f"{path.stem}-{name}" for name in study.get("conditions", ())}
    runs = {cell.run for cell in CELLS if cell.run} - {"every model of the table"}
    assert runs - known == PLANNED
    for cell in CELLS:
        if cell.reading and cell.run not in PLANNED:
            table, _, column = cell.reading.partition(": ")
            assert not column or f"| {column}" in BLOCKS[table].splitlines()[0], cell.id


def test_spread_by_hand() -> None:
    found = by_id()
    cell = found["jain_wallace.sst.bilstm.gradient.0"]
    assert (cell.value, cell.deviation, cell.share) == ("0.34", "0.21", "0.48")
    assert cell.spread == "sd over texts, share significant"
    cell = found["jain_wallace.sst.bilstm.gradient"]
    assert (cell.value, cell.spread, cell.deviation) == ("0.351", "sd over texts", "0.211")
    cell = found["jain_wallace.sst.bilstm.median_search.1.2"]
    assert (cell.value, cell.spread, cell.source) == ("0.386", "none", "plots")
    assert found["jain_wallace.sst.bilstm.f1.recalled"].value == "0.81"
    assert found["pruthi.pronoun.bilstm_1.mass"].value == "<1e-6"
    assert found["serrano_smith.all.all.encoder_sooner_in_over_half"].value == "10 of 16"


def test_what_is_no_figure_is_refused() -> None:
    wrong = PUBLISHED | {"serrano_accuracy": {"yelp_han_rnn": "63 %"}}
    with pytest.raises(InputError, match=r"serrano_smith\.yelp\.han_rnn\.accuracy is '63 %'"):
        published_cells.published_cells(wrong)
