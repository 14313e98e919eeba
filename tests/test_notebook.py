"""The notebooks run as they stand, and the numbers of the first are those of `attnlight test`."""

import ast
import csv
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnlight
from attnlight.report.explanation import Explanation
from tests.commands import ROOT, main
from tests.huggingface.folders import NAMES, write_model

pytestmark = pytest.mark.usefixtures("few_steps")

NOTEBOOK = ROOT / "examples/texts_to_figure.ipynb"


class Run:
    """Code cells of a notebook that ran in order, the names they defined and the value of each."""

    def __init__(self, path: Path) -> None:
        content = json.loads(path.read_text(encoding="utf-8"))
        self.names: dict[str, Any] = {}
        self.shown: list[Any] = []
        self.cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
        for cell in self.cells:
            if cell["source"][0].startswith("!"):  # commands
                for line in cell["source"]:
                    program, *words = shlex.split(line)
                    assert (program, main(words)) == ("!attnlight", 0)
                continue
            *body, last = ast.parse("".join(cell["source"])).body
            assert isinstance(last, ast.Expr), "a cell that shows nothing"
            exec(compile(ast.Module(body, []), path.name, "exec"), self.names)  # noqa: S102
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), self.names)
            self.shown.append(value)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:  # it reads nothing but the package
        patch.chdir(tmp_path_factory.mktemp("empty"))
        patch.setenv("ATTNLIGHT_DATA", "nowhere")
        return Run(NOTEBOOK)


def test_shows_an_explanation_a_table_and_a_figure(notebook: Run) -> None:
    explanation, table, figure = notebook.shown
    assert isinstance(explanation, Explanation)
    assert {"predictions", "attention_permutation"} <= set(
        notebook.names["results"].table()["test"]
    )
    assert list(table.columns) == ["test", "measure", "mean", "low", "high", "n"]
    points = np.concatenate(
        [line.get_xdata() for line in figure.axes[0].lines if line.get_marker() == "o"]
    )
    rows = notebook.names["results"].table("attention_permutation")
    np.testing.assert_allclose(np.sort(points), np.sort(rows["median_tvd"]), atol=1e-6)
    code = "".join("".join(cell["source"]) + "\n" for cell in notebook.cells)
    assert len(ast.unparse(ast.parse(code)).splitlines()) <= 10


def test_says_what_is_true_of_its_text(notebook: Run) -> None:
    explanation, *_ = notebook.shown
    highest = explanation.items[int(np.argmax(explanation.attention))]
    assert (highest, explanation.prediction) == ("could", "positive")
    assert explanation.scores["occlusion"][explanation.items.index("could")] < -1
    assert [explanation.items[place] for place in explanation.flip_set.items] == ["good"]


def test_stored_outputs_are_those_of_its_cells(notebook: Run) -> None:
    stored = [cell["outputs"][0]["data"] for cell in notebook.cells]
    for data, value in zip(stored, notebook.shown, strict=True):
        assert data.keys() >= {"text/plain"}
        assert ("image/png" in data) == hasattr(value, "savefig")
    explanation, table, _ = notebook.shown
    old = ast.parse("".join(stored[0]["text/plain"]), mode="eval").body
    assert isinstance(old, ast.Call)
    told = {word.arg: word.value for word in old.keywords}
    assert ast.literal_eval(told["items"]) == explanation.items
    assert ast.literal_eval(told["attention"]) == pytest.approx(explanation.attention, abs=1e-4)
    lines = "".join(stored[1]["text/plain"]).splitlines()[1:]
    assert [line.split()[1:3] for line in lines] == table[["test", "measure"]].values.tolist()
    means = [float(line.split()[3]) for line in lines]
    np.testing.assert_allclose(means, table["mean"], atol=1e-4)


def test_a_name_and_a_loaded_model_are_one(notebook: Run) -> None:
    text = notebook.names["texts"][0][0]
    assert attnlight.explain("sst", [text]) == attnlight.explain(attnlight.load("sst"), [text])


def write_reviews(classes: Sequence[str], places: str) -> None:
    """A table of short texts, three of each class for each place."""
    said = {classes[0]: ("dull", "long", "awful"), classes[1]: ("funny", "warm", "great")}
    with Path("reviews.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "label"])
        for label, words in said.items():
            for place in places.split():
                table.writerows([f"a {word} {place} by all", label] for word in words)


@pytest.mark.slow
def test_from_a_table_to_a_page(here: Path) -> None:
    write_reviews(["negative", "positive"], "film plot cast end script music scene trailer")
    run = Run(ROOT / "examples/table_to_page.ipynb")
    explanation, rows = run.shown
    assert explanation.items == ["a", "gripping,", "funny", "film"]
    assert rows.loc["count", "median_tvd"] == 10, "a fifth of 48 texts"
    page = (here / "checkpoints/reviews/first/report/index.html").read_text(encoding="utf-8")
    assert "May the attention of this model be read as an explanation?" in page


def test_from_a_bert_to_a_verdict(here: Path) -> None:
    write_reviews([*NAMES["id2label"].values()], "film")
    write_model(here / "finetuned", **NAMES)
    explanation, results, figure, page = Run(ROOT / "examples/bert_to_verdict.ipynb").shown
    assert "film" in explanation.items
    assert len(results.table("attention_permutation")) == 6
    assert figure.axes
    assert page == Path("page/index.html")
    assert "no class is predicted of 30 texts or more that have two words" in page.read_text(
        encoding="utf-8"
    )


def test_pages_lead_to_every_notebook() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    links = "".join(page.read_text(encoding="utf-8") for page in pages)
    notebooks = sorted(ROOT.glob("examples/*.ipynb"))
    assert len(notebooks) == 3
    assert [path.name for path in notebooks if f"examples/{path.name})" not in links] == []
