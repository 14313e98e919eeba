"""The figures of docs/results/published.yaml, and the runs and tables that meet them."""

import re
from collections import Counter
from functools import reduce
from itertools import product
from pathlib import Path

import numpy as np
import yaml

from tests.kept import BLOCKS, DOCS, page
from tests.report.study.fake import whole_tagger

PUBLISHED = yaml.safe_load((DOCS / "results/published.yaml").read_text(encoding="utf-8"))
CELLS = PUBLISHED["cells"]
REPLICATION = page("replication")
CONFIGS = DOCS.parent / "configs"
SOURCES = ("repository", "plots", "recalled", "paper")
FIGURE = re.compile(
    r"(\d+ of \d+|<?-?\d+(\.\d+)?(e-\d+)?)( ± \d+\.\d+)?( \([01]\.\d+\))?"  # value, spread, share
)
ALL = "every model of the table"
PLANNED = {  # runs that no configuration has yet
    f"honest_{corpus}-{model}"
    for corpus in ("snli", "babi_2", "babi_3")
    for model in ("plain", "diversity", "orthogonal")
}


def figures(name: str) -> list[str]:
    """The figures of a table of `cells`, as published."""
    table = reduce(lambda table, key: table[key], name.split("."), PUBLISHED)
    return [str(x) for *_, x in REPLICATION.leaves(table, CELLS[name].get("skip", ()))]


def test_each_figure_is_of_one_table() -> None:
    settings = ("cells", "corpora", "sources", "serrano_claims", "agreement")
    content = {key: x for key, x in PUBLISHED.items() if key not in settings}
    every = Counter(str(x) for *_, x in REPLICATION.leaves(content))
    for name, spec in CELLS.items():
        table = reduce(lambda table, key: table[key], name.split("."), PUBLISHED)
        every -= Counter(str(x) for *_, x in REPLICATION.leaves(table))
        assert spec.get("source", SOURCES[0]) in SOURCES
        assert (spec["run"] is None) == ("lacks" in spec), name
        for figure in figures(name):
            assert FIGURE.fullmatch(figure), (name, figure)
    assert every == Counter([PUBLISHED["wiegreffe_pinter"]["source"]])


def test_runs_are_configured_and_readings_exist() -> None:
    known = {path.stem for kind in ("experiments", "studies") for path in CONFIGS.glob(f"{kind}/*")}
    for path in CONFIGS.glob("studies/*.yaml"):
        study = yaml.safe_load(path.read_text(encoding="utf-8"))
        known |= {f"{path.stem}-{name}" for name in study.get("conditions", ())}
        known |= {"-".join([path.stem, *cell]) for cell in product(*study.get("grid", ()))}
    known_of = [x.known for x in REPLICATION.figures(PUBLISHED) if x.known["run"]]
    pairs = {(x["run"], x["reading"]) for x in known_of}
    assert {run for run, _ in pairs} - {ALL} - known == PLANNED
    for table, _, column in (x.partition(": ") for run, x in pairs if run not in PLANNED):
        if table.startswith("wiegreffe_pinter_ag_news"):
            continue  # not run yet
        assert not column or f"| {column}" in BLOCKS[table].splitlines()[0], (table, column)


def test_yang_s_curve_is_laid_over_a_study_with_kl(tmp_path: Path) -> None:
    tiny = whole_tagger(1, 1, kl=(0.0, 0.1), released=(), sentences=8)
    figure = page("studies").draw_chunking(tiny.write(tmp_path), DOCS / "results/published.yaml")
    (curve,) = (line for line in figure.axes[2].lines if line.get_marker() == "P")
    kl = [0.188, 0.187, 0.248, 0.210, 0.273, 0.332, 0.324]  # by lambda: 0.2 to 0.6, 2.6 and 3.1
    nll = [0.222, 0.222, 0.223, 0.219, 0.232, 0.26, 0.26]
    assert np.array(curve.get_data()).tolist() == [kl, nll]
    (said,) = figure.axes[2].get_legend().get_texts()
    assert said.get_text() == "Yang (2020), λ = 0.2 to 3.1"
