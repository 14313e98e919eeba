"""Scores from a file, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnlight.attribution import External, build_attribution
from attnlight.errors import InputError
from tests.attribution.scenes import scene


def table(name: str, extra: bool = False) -> pd.DataFrame:
    """A table of random scores of a scene's items, in no order."""
    model, batch = scene(name)
    output = model(batch)
    lines = [
        {"index": index, "position": position, "item": item, "score": 0.0}
        for (index, position), mask in zip(output.rows.tolist(), output.mask, strict=True)
        for item in range(int(mask.sum()))
    ]
    if extra:
        lines += [{"index": 5, "position": 0, "item": item, "score": 0.0} for item in range(3)]
    frame = pd.DataFrame(lines).sample(frac=1, random_state=0)
    frame["score"] = np.random.default_rng(0).uniform(-1, 1, len(frame))
    return frame


def written(frame: pd.DataFrame, path: Path) -> str:
    (frame.to_csv if path.suffix == ".csv" else frame.to_parquet)(path, index=False)
    return str(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["bilstm", "han", "recurrent"])
def test_every_item_gets_its_score(tmp_path: Path, name: str, ending: str) -> None:
    frame = table(name, extra=True)
    if name != "recurrent":
        frame = frame.drop(columns="position")
    method = External(file=written(frame, tmp_path / f"shap.{ending}"), label="shap")
    model, batch = scene(name, padding=2)
    output = model(batch)
    found = method(model, batch, output, output.logits.argmax(-1))
    keys = ["index", "position", "item"] if name == "recurrent" else ["index", "item"]
    scores = frame.set_index(keys)["score"].to_dict()
    for (index, position), row, mask in zip(output.rows.tolist(), found, output.mask, strict=True):
        places = mask.nonzero().flatten().tolist()
        for item, place in enumerate(places):
            key = (index, position, item) if name == "recurrent" else (index, item)
            assert row[place] == pytest.approx(scores[key], abs=1e-12)
        assert row.count_nonzero() == len(places)
    assert method.metadata["explains"] == "as in the file"
    assert method.metadata["label"] == "shap"


def test_a_missing_score_is_undefined(tmp_path: Path) -> None:
    frame = table("bilstm")
    missing = frame.index[frame["item"] == 2][0]
    index = int(frame.loc[missing, "index"])
    frame.loc[missing, "score"] = None
    model, batch = scene("bilstm")
    output = model(batch)
    method = External(file=written(frame, tmp_path / "shap.csv"))
    found = method(model, batch, output, output.logits.argmax(-1))
    assert found.isnan().sum() == 1
    assert found[(batch.index == index).nonzero().item(), 3].isnan()  # after a boundary token


def dropped(frame: pd.DataFrame, **values: int) -> pd.DataFrame:
    chosen = pd.concat([frame[name] == value for name, value in values.items()], axis=1).all(axis=1)
    return frame[~chosen]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: dropped(f, index=102), "has no scores of row 102: it is of other texts or of a"),
        (
            lambda f: dropped(f, index=102, item=29),
            "has 29 items in row 102, but the model attends to 30: it is of other texts",
        ),
        (
            lambda f: dropped(f, index=102, item=7),
            "has the item 8 of row 102 where 7 is expected; items are numbered from 0, each once.",
        ),
        (
            lambda f: pd.concat([f, f[(f["index"] == 102) & (f["item"] == 4)]]),
            "has the item 4 of row 102 where 5 is expected",
        ),
        (
            lambda f: f.rename(columns={"score": "scores"}),
            "has no column score (did you mean 'scores'?).",
        ),
        (lambda f: f.assign(score="high"), "column score is not of numbers."),
        (lambda f: f.assign(item=f["item"] + 0.5), "column item is not of whole numbers."),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    model, batch = scene("bilstm")
    output = model(batch)
    for ending in ("csv", "parquet"):
        file = written(change(table("bilstm")), tmp_path / f"scores.{ending}")
        with pytest.raises(InputError) as error:
            External(file=file)(model, batch, output, output.logits.argmax(-1))
        assert f"external: {file}" in str(error.value)
        assert message in str(error.value)


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shap.parquet").write_text("no table")
    with pytest.raises(
        InputError, match=r"shop.parquet is not a file \(did you mean 'shap.parquet"
    ):
        build_attribution({"name": "external", "file": str(tmp_path / "shop.parquet")})
    with pytest.raises(InputError, match="external needs the option file"):
        build_attribution("external")
    model, batch = scene("bilstm")
    output = model(batch)
    with pytest.raises(InputError, match=r"shap.parquet is not a table: "):
        External(file=str(tmp_path / "shap.parquet"))(
            model, batch, output, output.logits.argmax(-1)
        )
