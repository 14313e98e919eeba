"""Scores from a file, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import attnlight
from attnlight.attribution import External, build_attribution
from attnlight.batch import TextBatch
from attnlight.callbacks import SaliencyAgreement, Texts
from attnlight.callbacks.hooks.prediction_writer import PredictionWriter
from attnlight.errors import InputError
from attnlight.records import read_record
from tests.attribution.scenes import evaluated, scene
from tests.bases import trainer
from tests.callbacks.hooks import test_prediction_writer as sentences
from tests.tasks import tagged


class Split:
    """The texts of a batch, in reverse order, with a word for each id."""

    def __init__(self, batch: TextBatch) -> None:
        self.index = batch.index.numpy()[::-1]
        self._batch = batch

    def words(self, position: int) -> list[str]:
        text = len(self.index) - 1 - position
        ids = self._batch.tokens[text][self._batch.mask[text]].tolist()
        return [f'w{number},\n"{text}"' for number in ids]


def read(file: str, words: bool = True) -> Tensor:
    """The scores that a file gives the items of a scene, (R, N)."""
    model, batch, output, _ = evaluated("bilstm")
    method = External(file=file)
    if words:
        method.split = Split(batch)
    return method(model, batch, output, output.logits.argmax(-1))


def table(name: str = "bilstm", extra: bool = False) -> pd.DataFrame:
    """A table of random scores of a scene's items, in no order."""
    _, batch, output, _ = evaluated(name)
    texts, lines = batch.index.tolist(), []
    for (index, position), mask in zip(output.rows.tolist(), output.mask, strict=True):
        text = texts.index(index)
        for item, place in enumerate(mask.nonzero().flatten().tolist()):
            ids = batch.tokens[text][place][batch.mask[text][place]].flatten().tolist()
            word = "  ".join(f'w{number},\n"{text}"' for number in ids)
            key = {"index": index, "position": position, "item": item}
            lines.append({**key, "word": word, "score": 0.0})
    if extra:
        lines += [{**lines[0], "index": 5, "position": 0, "item": item} for item in range(3)]
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
    model, batch, output, _ = evaluated(name, padding=2)
    method.split = Split(batch)
    found = method(model, batch, output, output.logits.argmax(-1))
    keys = ["index", "position", "item"] if name == "recurrent" else ["index", "item"]
    scores = frame.set_index(keys)["score"].to_dict()
    for (index, position), row, mask in zip(output.rows.tolist(), found, output.mask, strict=True):
        places = mask.nonzero().flatten().tolist()
        for item, place in enumerate(places):
            key = (index, position, item) if name == "recurrent" else (index, item)
            assert row[place] == pytest.approx(scores[key], abs=1e-12)
        assert row.count_nonzero() == len(places)
    repeated = replace(batch, index=batch.index.index_fill(0, torch.tensor([0]), -1))
    of_repeat = model(repeated).rows[:, 0] < 0
    again = method(model, repeated, model(repeated), output.logits.argmax(-1))
    assert not again[of_repeat].any()
    assert again[~of_repeat].equal(found[~of_repeat])
    assert method.metadata["explains"] == "as in the file"
    assert method.metadata["label"] == "shap"


def test_a_missing_score_is_undefined(tmp_path: Path) -> None:
    frame = table()
    missing = frame.index[frame["item"] == 2][0]
    index = int(frame.loc[missing, "index"])
    frame.loc[missing, "score"] = None
    found = read(written(frame, tmp_path / "shap.csv"))
    _, batch = scene("bilstm")
    assert found.isnan().sum() == 1
    assert found[(batch.index == index).nonzero().item(), 3].isnan()  # after a boundary token


def dropped(frame: pd.DataFrame, **values: int) -> pd.DataFrame:
    chosen = pd.concat([frame[name] == value for name, value in values.items()], axis=1).all(axis=1)
    return frame[~chosen]


def changed(frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """The table with other values at item 7 of row 102."""
    there = (frame["index"] == 102) & (frame["item"] == 7)
    assert there.sum() == 1
    return frame.assign(**{name: frame[name].mask(there, value) for name, value in values.items()})


def renamed(frame: pd.DataFrame, **names: str) -> pd.DataFrame:
    return frame.rename(columns=names)


@pytest.mark.parametrize(
    ("change", "given", "message"),
    [
        (dropped, {"index": 102}, "has no scores of row 102: it is of other texts or of a"),
        (dropped, {"index": 102, "item": 17}, "17 items in row 102, but the model attends to 18"),
        (dropped, {"index": 102, "item": 7}, "has the item 8 of row 102 where 7 is expected"),
        (changed, {"item": 6}, "has the item 6 of row 102 where 7 is expected; items are num"),
        (renamed, {"score": "scores"}, "no column score (did you mean 'scores'?)."),
        (pd.DataFrame.assign, {"score": "high"}, "column score is not of numbers."),
        (pd.DataFrame.assign, {"item": lambda f: f["item"] + 0.5}, "item is not of whole numbers."),
        (renamed, {"word": "words"}, "no column word (did you mean 'words'?): wri"),
        (pd.DataFrame.head, {"n": 0}, "has no rows; expected one for each item."),
        (changed, {"score": np.inf}, "has the score inf at item 7 of row 102; expected fin"),
        (changed, {"score": -np.inf}, "has the score -inf at item 7 of row 102; expected fin"),
        (changed, {"word": "w3"}, "has the word 'w3' at item 7 of row 102, but the text has"),
    ],
)
def test_a_wrong_table_is_refused(
    tmp_path: Path, change: Any, given: dict[str, Any], message: str
) -> None:
    for ending in ("csv", "parquet"):
        file = written(change(table(), **given), tmp_path / f"scores.{ending}")
        with pytest.raises(InputError) as error:
            read(file)
        assert f"external: {file}" in str(error.value)
        assert message in str(error.value)


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shap.parquet"
    file.write_text("no table")
    with pytest.raises(InputError, match=r"shop.parquet is not a file \(did you mean 'shap.parqu"):
        build_attribution({"name": "external", "file": str(tmp_path / "shop.parquet")})
    with pytest.raises(InputError, match="external needs the option file"):
        build_attribution("external")
    with pytest.raises(InputError, match=r"shap.parquet cannot be compared with texts whose words"):
        read(str(file), words=False)
    with pytest.raises(InputError, match=r"shap.parquet is not a table: "):
        read(str(file))
    with pytest.raises(InputError, match=r"shap.parquet: column word is not of words"):
        read(written(table().assign(word=None), file))


def by_recipe(predictions: Path, file: Path) -> str:
    """The table that the guide makes of predictions, with attention as the scores."""
    lines = []
    for row in pd.read_parquet(predictions).to_dict("records"):
        attention = np.mean([head.tolist() for head in row["attention"]], axis=0)
        for item, (start, stop) in enumerate(row["items"]):
            word = " ".join(row["tokens"][start:stop])
            key = {"index": row["index"], "position": row["position"], "item": item}
            lines.append({**key, "word": word, "score": attention[item]})
    return written(pd.DataFrame(lines), file)


def compared(file: str) -> SaliencyAgreement:
    """The test of attention against the scores of a file."""
    return SaliencyAgreement([{"name": "external", "file": file}, "attention"], figures=False)


def agreement(folder: Path) -> NDArray[np.float64]:
    record = read_record(folder / "records/test/saliency_agreement.parquet")
    taus: NDArray[np.float64] = record.columns["tau_external_attention"]
    return taus[~np.isnan(taus)]


@pytest.mark.parametrize("kind", ["words", "sentences", "tagger"])
def test_what_predict_writes_is_what_a_test_reads(tmp_path: Path, kind: str) -> None:
    if kind == "tagger":
        data: Any = tagged.corpus(tagged.written(tmp_path / "chunks"))
        task: Any = tagged.task_of(data)
    else:
        data = sentences.corpus(sentences.LENGTH if kind == "sentences" else None)
        task = sentences.task_of(data)
    trainer(tmp_path, PredictionWriter()).predict(task, data, return_predictions=False)
    file = by_recipe(tmp_path / "predictions.parquet", tmp_path / "scores.csv")
    trainer(tmp_path, compared(file)).test(task, data, verbose=False)
    taus = agreement(tmp_path)
    assert len(taus) > 20
    np.testing.assert_allclose(taus, 1, atol=1e-12)


@pytest.mark.usefixtures("few_steps")
def test_run_and_explain_compare_the_words_of_their_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a pretrained model, whose tokens divide words; more texts than are explained at a time."""
    pytest.importorskip("transformers")
    from attnlight.huggingface import HuggingFaceClassifier
    from tests.huggingface.folders import TEXTS, write_model

    monkeypatch.setattr("attnlight.api.explain._TEXTS", 2)
    names = {"id2label": {0: "neg", 1: "pos"}, "label2id": {"neg": 0, "pos": 1}}
    model = HuggingFaceClassifier(
        str(write_model(tmp_path / "bert", "bert", **names)), items="words"
    )
    texts = [f"{TEXTS[n % 4]} {'film ' * (n % 7)}" for n in range(5)]
    first = attnlight.run(model, texts, [Texts(leave_one_out=False)])
    file = by_recipe(first.folder / "records/test/texts.parquet", tmp_path / "scores.parquet")
    method = {"name": "external", "file": file}
    results = attnlight.run(model, texts, [compared(file)], batch_size=2)
    np.testing.assert_allclose(agreement(results.folder), 1, atol=1e-12)
    found = attnlight.explain(model, texts, [method, "attention"])
    for one in found:
        assert one.scores["external"] == pytest.approx(one.attention, abs=1e-5)
        assert max(one.attention) > 0
    other = [*texts[:4], f"{texts[4]}, film"]
    for function, arguments in (
        (attnlight.run, (other, [compared(file)])),
        (attnlight.explain, ([*texts[:3], texts[4], texts[3]], [method])),
    ):
        with pytest.raises(InputError, match=r"scores.parquet has .* (in|of) row [34], but"):
            function(model, *arguments)
    batches = [model.raw.encode(texts)]
    with pytest.raises(InputError, match="batches hold no words: give texts"):
        attnlight.run(model, batches, [compared(file)])
