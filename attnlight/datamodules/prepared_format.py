"""The folder of a prepared corpus: what it holds, and a check of its splits.

It holds `corpus.json` (`{"format", "classes", "splits": {split: {"rows", "empty", "dropped", ...}},
"extras"}`), `tokenizer.json` and one `datasets` folder per split with the columns `index`, `label`
(absent where the split has none), `length`, `tokens`, one list per extra and, optionally, the source
(`text` or `words`). Where texts were split into sentences, `sentences` lists the number of ids of
each, and `text` the sentences. Where texts are passages with queries (`paired`), `query` lists the
ids of the query, `query_text` is its source, and `allowed` lists the classes that the row may be
answered with, unless every one is. Where texts are sources of translations, `target` lists the classes
of the target's tokens, and `links`, optionally, is described by `with_targets`.
"""

import json
from pathlib import Path
from typing import Any

from attnlight.batch import BOS, EOS, UNK
from attnlight.data.dataset import TAGS, TokenDataset
from attnlight.errors import InputError

FORMAT = 1


def describe_splits(folder: Path, tokenizer_json: str, **corpus: Any) -> None:  # noqa: ANN401
    """Write `tokenizer.json` and `corpus.json`, which describe the splits of the folder."""
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    content = json.dumps({"format": FORMAT, **corpus}, indent=2)
    (folder / "corpus.json").write_text(content, encoding="utf-8")


def check_splits(folder: Path, corpus_name: str, *, count_unknown: bool) -> dict[str, Any]:
    """The `splits` of `corpus.json` in a prepared folder, after checking each of them.

    With `count_unknown` it gets the number of tokens of each split that are not in the vocabulary,
    boundary tokens not counted.
    """
    corpus = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    for split, counts in corpus["splits"].items():
        place, last = f"the {split} split of {corpus_name}", len(corpus["classes"]) - 1
        if not counts["rows"]:
            raise InputError(f"{place} is empty.")
        dataset = TokenDataset(folder / split)
        labels = dataset.labels
        labelled = {TAGS, "target"} & set(dataset.table.column_names)
        if labels is None and split == "train" and not labelled:
            raise InputError(f"{place} has no labels.")
        if labels is not None and (labels.min() < 0 or labels.max() > last):
            invalid = labels[(labels < 0) | (labels > last)][0]
            raise InputError(f"{place} has label {invalid}; labels must be 0 to {last}.")
        if labels is not None and (labels == labels[0]).all():
            only = corpus["classes"][labels[0]]
            raise InputError(
                f"{place} has only one class, {only}; at least two are needed. If it is split "
                "off the training texts, use a larger fraction or another split_seed."
            )
        if count_unknown:
            counts |= {"tokens": 0, "unknown_tokens": 0}
            names = ["tokens", *(["query"] if dataset.paired else [])]
            for chunk in (chunk for name in names for chunk in dataset.table[name].chunks):
                ids = chunk.flatten().to_numpy()
                counts["tokens"] += int(((ids != BOS) & (ids != EOS)).sum())
                counts["unknown_tokens"] += int((ids == UNK).sum())
    if count_unknown:
        (folder / "corpus.json").write_text(json.dumps(corpus, indent=2), encoding="utf-8")
    return dict(corpus["splits"])
