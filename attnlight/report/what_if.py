"""Texts of runs for a page on which a reader changes attention, and the script that answers."""

import json
import shlex
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from attnlight.data.tokenization import BETWEEN
from attnlight.errors import InputError, printable
from attnlight.figures.tables import class_name
from attnlight.records import KEY, SCORES, TEXT_MARKS, RecordFile, read_pieces
from attnlight.report.join_pieces import join_pieces
from attnlight.report.markup import render
from attnlight.report.run import VERBS, Run
from attnlight.report.texts import (
    BOUNDARY,
    COLUMNS,
    LAYERS,
    TRANSLATED,
    pieces_of,
    query_label,
    shortened,
    words_before,
)

TEXTS, BYTES = 5_000, 12_000_000  # most of a page; an item has about 36 bytes
MAP_WEIGHTS = 1_000_000  # most in maps of attention, of about 3 bytes each
_MINIMAL = f"{SCORES}minimal"
_SHOWN_OTHERWISE = (_MINIMAL, f"{SCORES}worst_case")
_NUMBERS = ("probabilities", "attention", "item_logits", "candidates", "candidate_probabilities")
_OF_TEXTS = ("tokens", "items", "text", "offsets")
_MAPS = ("maps", "maps_shape", "maps_read")
_OPTIONAL = ("query", *_OF_TEXTS[2:], *_NUMBERS[2:], *TEXT_MARKS, *_MAPS)
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
_SCRIPTS = ("what_if_math.js", "what_if_maps.js", "what_if.js")


class WhatIf(NamedTuple):
    """What the template `what_if.html.jinja` shows."""

    data: Markup  # the texts as JSON without signs that could end a script
    script: Markup
    digest: Markup  # what the page's policy calls the script, the only one that it runs


def what_if(groups: Mapping[str, Sequence[Mapping[str, Any] | None]]) -> WhatIf | None:
    """Texts by the name of their corpus, one entry or two of different runs; None without texts.

    Those of a corpus are what `texts_of_run` returns for the same texts.
    """
    named = [{"name": name, "sets": list(filter(None, sets))} for name, sets in groups.items()]
    found = [group for group in named if group["sets"]]
    if not found:
        return None
    folder = Path(__file__).with_name("templates")
    script = "".join((folder / name).read_text("utf-8") for name in _SCRIPTS)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    data = json.dumps(found, ensure_ascii=False, separators=(",", ":")).translate(_UNSAFE)
    return WhatIf(Markup(data), Markup(script), Markup(f"'sha256-{digest}'"))


def what_if_page(title: str, runs: Sequence[Run], lead: str | None = None) -> Markup:
    """A page of the texts of a run, or of those that two runs share, below a sentence.

    Raises:
        InputError: A run has no texts, or one has another label in another run, or they share none.
            Their words may differ, since each model has its own tokenizer.
    """
    corpora = dict.fromkeys(["", *(record.corpus for record in runs[0].records)])
    room = BYTES // (len(runs) * len(corpora))
    found = {corpus: [texts_of_run(run, corpus, room=room) for run in runs] for corpus in corpora}
    groups = {corpus: list(filter(None, sets)) for corpus, sets in found.items() if all(sets)}
    shown = what_if(groups)
    if shown is None:
        folder = shlex.quote(str(runs[-1].folder))
        raise InputError(
            f"{' and '.join(str(run.folder) for run in runs)} have no record `texts` of one corpus: "
            f"run `attnlight test {folder} --tests texts` first."
        )
    for first, *others in groups.values():
        for other in others:
            ours, theirs = (
                {
                    n: one["classes"][c]
                    for n, c in zip(one["keys"], one["labels"], strict=True)
                    if c >= 0
                }
                for one in (first, other)
            )
            differ = [key for key in ours.keys() & theirs if ours[key] != theirs[key]]
            if differ or not set(first["keys"]) & set(other["keys"]):
                why = f"text {min(differ)[0]} has other labels" if differ else "they share none"
                raise InputError(
                    f"{first['run']} and {other['run']} are of different texts: {why}."
                )
    return render("browse.html.jinja", title=title, lead=lead, what_if=shown)


def text_address(row: tuple[int, int], corpus: str) -> str:
    """Where the page shows an instance, a dataset index and a position, of a corpus."""
    index, position = row
    text = f"{index}:{position}" if position else f"{index}"
    return f"#text={text}" + (f"&corpus={quote(corpus, safe='')}" if corpus else "")


def texts_of_run(
    run: Run,
    corpus: str = "",
    needed: Iterable[int] = (),
    room: int = BYTES,
    stage: str | None = None,
) -> dict[str, Any] | None:
    """The texts of a record `texts`, or of the predictions, as the script reads them.

    Texts whose dataset indices are `needed` are shown in any case; of more than fit into `room`,
    most bytes, some in a random order of a fixed seed. The corpus "" is that of training; the stage
    is `test`, `val` or `predict`, None: the first of them that has texts.

    Returns:
        Arrays in base64, and lists of one entry for each instance; None without such a record.
    """
    stages = [stage] if stage else [*VERBS, "predict"]
    files = {stage: run.texts(stage, corpus) for stage in stages}
    stage = next((each for each in stages if files[each].path.is_file()), stages[0])
    file = files[stage]
    available = file.columns if file.path.is_file() else {}
    if not set(COLUMNS) <= available.keys():
        return None
    metadata = [each.metadata for each in (file, *(record.file for record in run.records))]
    known = next((each["classes"] for each in metadata if each.get("classes")), None)
    classes = known and list(map(printable, known))
    scores = [name for name in available if name.startswith(SCORES)]
    columns = [*COLUMNS, *scores, *(name for name in _OPTIONAL if name in available)]
    columns += ["prediction"] * ("prediction" in available)  # which predictions lack
    chosen, total = _chosen(file, len(scores), needed, room)
    read = read_pieces(file, columns, measured="prediction" in available, texts=chosen)
    parts = list(read)
    rows = {name: np.concatenate([part[name] for part in parts]) for name in columns}
    keys = list(zip(*(rows[name].tolist() for name in KEY), strict=True))
    numbers = range(rows["probabilities"].shape[1])
    texts = [{n: rows[n][at] for n in _OF_TEXTS if n in rows} for at in range(len(keys))]
    methods = {
        LAYERS.get(name.removeprefix(SCORES), name.removeprefix(SCORES).replace("_", " ")): name
        for name in scores
        if name not in _SHOWN_OTHERWISE
        and (name != f"{SCORES}loo" or f"{SCORES}occlusion" not in scores)  # which has signs
    }
    queries = [" ".join(t for t in q if t not in BOUNDARY) for q in rows.get("query", ())]
    labels = rows["label"].astype(float)
    if (asked := query_label(file)) == TRANSLATED:
        said = dict(zip(keys, zip(labels, rows["probabilities"], strict=True), strict=True))
        queries = [words_before(key, said, classes) for key in keys]
    return {
        "run": "/".join(run.folder.resolve().parts[-2:]),
        "classes": [class_name(number, classes) for number in numbers],
        "heads": len(rows["attention"][0]),
        "epsilon": file.metadata.get("epsilon", 0.01),
        "recorded": total,
        "keys": keys,
        "texts": list(map(_lines, texts)),
        "between": BETWEEN,
        "asked": asked,
        "queries": list(map(printable, queries)),
        "labels": np.nan_to_num(labels, nan=-1).astype(int).tolist(),
        "flags": _base64(_flags(rows, of_items=asked != TRANSLATED), np.uint8),
        "scores": {name: _halves(_flat(rows[column])) for name, column in methods.items()},
        "measures": _measures(run, stage, corpus, keys, chosen),
        "maps": _maps(rows) if set(_MAPS) <= rows.keys() else {},
        **{name: _base64(_flat(rows[name]), np.float32) for name in _NUMBERS if name in rows},
    }


def _chosen(
    file: RecordFile, scores: int, needed: Iterable[int], room: int
) -> tuple[NDArray[np.int64], int]:
    """Dataset indices of the texts that are shown, and the number of instances of the record."""
    rows: list[int] = []
    sizes: list[float] = []
    for piece in read_pieces(file, ["index", "attention", "probabilities"]):
        classes = piece["probabilities"].shape[1]
        for index, heads in zip(piece["index"].tolist(), piece["attention"], strict=True):
            if heads is not None:  # the instance was measured
                each = 12 + 1.4 * (2 * scores + 4 * len(heads) * (1 + classes))
                rows.append(index)
                sizes.append(each * len(heads[0]))
    texts, place = np.unique(np.array(rows, dtype=np.int64), return_inverse=True)
    counts, totals = np.bincount(place), np.bincount(place, sizes)
    wanted = np.isin(texts, list(needed))
    order = np.random.default_rng(0).permutation(len(texts))
    order = order[(~wanted[order]).argsort(kind="stable")]
    fit = (counts[order].cumsum() <= TEXTS) & (totals[order].cumsum() <= room)
    return np.sort(texts[order[fit | wanted[order]]]), len(rows)


def _lines(row: Mapping[str, Any]) -> str:
    """A text in lines, one for each item; others hold a number of items, what is before, and words."""
    item_of = {place: n for n, span in enumerate(row["items"]) for place in range(*span)}
    lines: list[tuple[list[int], str, str]] = []
    for piece in pieces_of(row):
        before, text = printable(shortened(piece.before)), printable(shortened(piece.text))
        items = [*dict.fromkeys(item_of[place] for place in piece.tokens if place in item_of)]
        if lines and items and items == lines[-1][0]:  # of one sentence
            lines[-1] = (items, lines[-1][1], lines[-1][2] + before + text)
        else:
            lines.append((items, before, text))
    if [item for items, *_ in lines for item in items] != list(range(len(row["items"]))):
        words = (" ".join(row["tokens"][slice(*span)]) for span in row["items"])
        lines = [([item], " ", printable(word)) for item, word in enumerate(words)]
    return "\n".join(
        text if len(items) == 1 and before == " " else f"\t{len(items)}\t{before}\t{text}"
        for items, before, text in lines
    )


def _maps(rows: Mapping[str, NDArray[Any]]) -> dict[int, dict[str, Any]]:
    """By dataset index the attention between all tokens of the texts that have it, while room is left."""
    found, room = {}, MAP_WEIGHTS
    for at, weights in enumerate(rows["maps"]):
        if weights is None or len(weights) > room:
            continue
        room -= len(weights)
        tokens, read = rows["tokens"][at], rows["maps_read"][at]
        source = (rows[name][at] for name in ("text", "offsets") if name in rows)
        words = [""] * len(tokens)
        for piece in join_pieces(tokens, [False] * len(tokens), *source):
            for place in piece.tokens[:1]:
                words[place] = printable(shortened(piece.text))
        found[int(rows["index"][at])] = {
            "position": int(rows["position"][at]),
            "words": words,
            "shape": rows["maps_shape"][at].tolist(),
            "weights": _halves(weights),
            "read": None if read is None else _halves(read),
        }
    return found


def _flags(rows: Mapping[str, NDArray[Any]], of_items: bool) -> NDArray[np.int64]:
    """Of each item of all rows which marks it has, and whether it is erased or predicted, as bits."""
    of_items &= bool(rows["position"].any())
    places = [*rows["position"]] if of_items else [-1] * len(rows["position"])
    bits = []
    for number, items in enumerate(rows["items"]):
        position = places[number]
        sentences = any(end - start > 1 for start, end in items)
        for place, (start, end) in enumerate(items):
            marks = [
                *(
                    name in rows and np.any(rows[name][number][start:end] > 0)
                    for name in TEXT_MARKS
                ),
                _MINIMAL in rows and rows[_MINIMAL][number][place] > 0,
                position == place if sentences else start <= position < end,
            ]
            bits.append(sum(2**bit for bit, mark in enumerate(marks) if mark))
    return np.array(bits)


def _measures(
    run: Run, stage: str, corpus: str, keys: Sequence[tuple[int, int]], texts: NDArray[np.int64]
) -> dict[str, Any]:
    """What the tests of the same split measured of each instance, NaN where nothing."""
    rows = pd.MultiIndex.from_tuples(keys, names=KEY)
    found: dict[str, Any] = {}
    for record in run.records:
        if (record.stage, record.corpus) == (stage, corpus):
            columns = record.file.columns
            names = [n for n in record.file.metadata.get("measures", ()) if columns.get(n) is False]
            pieces = list(read_pieces(record.file, [*KEY, *names], texts=texts))
            flat = [name for name in (*KEY, *names) if all(x[name].ndim == 1 for x in pieces)]
            table = pd.concat(pd.DataFrame({n: piece[n] for n in flat}) for piece in pieces)
            values = table.set_index([*KEY]).reindex(rows).astype(np.float64)
            found |= {f"{record.test}: {n}": _halves(x.to_numpy()) for n, x in values.items()}
    return found


def _flat(values: NDArray[Any]) -> NDArray[Any]:
    """All numbers of nested lists, in order; an empty array where a list is null."""
    while values.dtype == object:
        values = np.concatenate(list(values)) if all(v is not None for v in values) else np.empty(0)
    return values.ravel()


def _base64(values: NDArray[Any], kind: type[np.generic]) -> str:
    return b64encode(values.astype(np.dtype(kind).newbyteorder("<")).tobytes()).decode()


def _halves(values: NDArray[Any]) -> list[Any]:
    """Numbers in half precision, in base64, and the number by which they are divided."""
    values = values.astype(np.float64)
    scale = float(np.abs(values[np.isfinite(values)]).max(initial=0)) or 1.0
    return [_base64(values / scale, np.float16), scale]
