"""Write what the runs of the page of answers read: `python docs/results_page/answer_runs.py FOLDER [MODEL]`.

`babi.jsonl`: 100 released questions of bAbI 1 over six sentences, of a story each. `multi_rc.jsonl`: the
shortest passages of MultiRC's validation part, with two questions each in rows one after the other. With the
folder of a model, `heads.json`: heads learned from every other of the stories, the first included.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from attnlight.attribution import fit_heads
from attnlight.huggingface import AnswerModel

STORIES, PASSAGES, SENTENCES, ABLATIONS = 100, 10, 6, 24
MODEL = Path(__file__).with_name("model_babi_1.yaml")


def babi(data: Path) -> Iterator[dict[str, Any]]:
    """The first stories of the test part, at the question after their sixth sentence."""
    rows = pd.read_parquet(data / "babi_qa1/data/test-00000-of-00001.parquet")
    for row in rows[rows.story.map(len) == SENTENCES].head(STORIES).itertuples():
        facts = {"passage": [*row.story], "evidence": [*map(int, row.supporting_ids)]}
        yield facts | {"query": row.question, "label": row.answer}


def multi_rc(data: Path) -> Iterator[dict[str, Any]]:
    """The first answer of each of the first two questions over a passage whose evidence is marked."""
    rows = pd.read_parquet(data / "eraser_multi_rc/data/validation-00000-of-00001.parquet")
    rows["question"] = rows.query_and_answer.str.split(" || ", regex=False).str[0]
    rows["place"] = rows.groupby("doc_id", sort=False).cumcount()
    rows = rows.assign(size=rows.tokens.map(len)).sort_values(["size", "doc_id", "place"])
    rows = rows.drop_duplicates(["doc_id", "question"])
    counts = rows.doc_id.map(rows.doc_id.value_counts())
    for row in (
        rows[counts > 1].groupby("doc_id", sort=False).head(2).head(2 * PASSAGES).itertuples()
    ):
        sentences = row.passage.split("\n")
        marked = [place for place, text in enumerate(sentences) if text in row.evidences]
        facts = {"passage": sentences, "evidence": marked, "query": row.query_and_answer}
        yield facts | {"label": "true" if row.label else "false", "doc_id": row.doc_id}


def heads(folder: Path, path: str) -> None:
    """Fit heads of a model, in bfloat16, on the stories of even number."""
    rows = [json.loads(line) for line in (folder / "babi.jsonl").open(encoding="utf-8")]
    given = yaml.safe_load(MODEL.read_text(encoding="utf-8"))["init_args"]["net"]["init_args"]
    classes = sorted({row["label"] for row in rows})
    model = AnswerModel(**given | {"path": path, "classes": classes}).bfloat16().eval()

    batches = []
    for number in range(0, len(rows), 2):
        row = rows[number]
        batch = model.raw.encode([" ".join(row["passage"])], queries=[row["query"]])
        batches.append(replace(batch, index=batch.index + number))
    fit_heads(model, batches, folder / "heads.json", ABLATIONS)


if __name__ == "__main__":
    target, *models = sys.argv[1:]
    for corpus in (babi, multi_rc):
        lines = "".join(
            f"{json.dumps(row)}\n" for row in corpus(Path(os.environ["ATTNLIGHT_DATA"]))
        )
        (Path(target) / f"{corpus.__name__}.jsonl").write_text(lines, encoding="utf-8")
    for model_folder in models:
        heads(Path(target), model_folder)
