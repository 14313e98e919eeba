"""The records of a run that a verdict card reads."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnlight.errors import InputError
from attnlight.figures.tables import class_name
from attnlight.problems import problem_of_task
from attnlight.records import KEY, RecordFile, Source, read_metadata, read_pieces, record_columns
from attnlight.report.run import Run, require_one_run, trained_run
from attnlight.report.run_description import model_name, tested_corpus
from attnlight.report.verdict.commands import from_here
from attnlight.report.verdict.estimate import Floats, Rows, rules
from attnlight.storage.files import read_yaml


class CardRecords:
    """The records of a run's test split.

    Args:
        run: The run, or its folder.
        corpus: Name of the corpus; "" is the corpus of training.

    Attributes:
        records: The records by test.
        metadata: Their metadata.
        total: Number of texts of the split; None if no record has all.
        model: What the records say of the model: `problem`, `net`, `scope` and `items`.
        net: The options of its network.
        unit: What items are called.
        labelled: Dataset index, label and prediction of the instances with a label, (R,) each.
        subject: Model, corpus, number of test texts and accuracy, as far as they are known.

    Raises:
        InputError: The records are of several runs or checkpoints, or one is damaged.
    """

    def __init__(self, run: Run | Path, corpus: str = "") -> None:
        run = trained_run(run) if isinstance(run, Path) else run
        self.folder, self.corpus = from_here(run.folder), corpus
        stored = [one for one in run.records if one.corpus == corpus and one.stage == "test"]
        self.records: dict[str, RecordFile] = {record.test: record.file for record in stored}
        require_one_run([*self.records.values()])
        self.metadata = {test: file.metadata for test, file in self.records.items()}
        whole = [test for test, entry in self.metadata.items() if not entry.get("partial")]
        counted = whole[:1] or self.records
        sizes = [len(np.unique(self.columns(self.records[test])[0])) for test in counted]
        self.total = sizes[0] if whole else None
        self.model: dict[str, Any] = {}
        if run.config_text:
            config = run.configs["fit"].get("model")
            config = config if isinstance(config, dict) else {}
            options = config.get("init_args")
            self.model = {"problem": problem_of_task(config.get("class_path"))}
            self.model |= options if isinstance(options, dict) else {}
        for entry in self.metadata.values():
            self.model |= entry.get("model") or {}
        net = self.model.get("net")
        self.net: Mapping[str, Any] = net if isinstance(net, dict) else {}
        own = "sentences" if self.net.get("hierarchical") else "words"
        self.unit = str(self.model.get("items", own))
        known = [f"{max(sizes):,} test texts"] if sizes else []
        self.labelled = np.empty(0, np.int64), np.empty(0), np.empty(0)
        if self.has("predictions", "label"):
            file = self.records["predictions"]
            texts, (label, prediction) = self.columns(file, "label", "prediction")
            known_rows = label >= 0
            self.labelled = texts[known_rows], label[known_rows], prediction[known_rows]
        _, label, prediction = self.labelled
        known += [f"accuracy {(label == prediction).mean():.2f}"] if label.size else []
        named = filter(None, (model_name(self.net), tested_corpus(run, corpus)))
        self.subject = (*named, *known)

    @property
    def kind(self) -> str:
        """The kind of model, as licences are given: one of the keys of licences.yaml, or `other`."""
        problem, encoder = self.model.get("problem"), str(self.net.get("encoder"))
        of_encoder = rules()["kinds"].get(encoder)
        if problem == "pairs":  # transformers that read pairs were not judged
            return "pairs" if of_encoder and not self.model.get("scope") else "other"
        if problem != "classification":
            return "tagger" if problem == "tagging" else "other"
        if self.model.get("scope"):
            return "transformer"
        return "hierarchical" if self.net.get("hierarchical") else str(of_encoder or "other")

    @cached_property
    def alone(self) -> bool:
        """Whether each state depends on its own word alone; by the kind of model if not measured."""
        test, name = "state_token_agreement", "hidden_token_attribution"
        if not self.has(test, name):
            return self.kind == "none"
        _, (own,) = self.columns(self.records[test], name)
        own = own[~np.isnan(own)]
        return bool(own.size) and bool(own.mean() >= rules()["words"]["own_word"])

    def columns(self, record: Source, *names: str) -> tuple[Rows, list[Floats]]:
        """Dataset index (R,), and some columns (R, ...), of the measured rows of a record."""
        known = "prediction" in record_columns(record)  # an archived record may lack it
        wanted = [*dict.fromkeys((*KEY, *(["prediction"] if known else []), *names))]
        pieces = list(read_pieces(record, wanted, measured=known))
        rows = {name: np.concatenate([piece[name] for piece in pieces]) for name in wanted}
        return rows[KEY[0]], [rows[name].astype(np.float64) for name in names]

    def has(self, test: str, *names: str) -> bool:
        """Whether there is a record of a test with these columns, some row of which is finite."""
        if test not in self.records or self.non_finite(test):
            return False
        return {*names} <= self.records[test].columns.keys()

    def non_finite(self, test: str) -> bool:
        """Whether the record of a test has rows, of which none could be measured."""
        entry = self.metadata.get(test, {})
        return bool(entry.get("non_finite")) and entry["non_finite"] == entry["rows"]

    def class_name(self, test: str, number: int) -> str:
        """The name of a class, in quotation marks, or its number."""
        classes = self.metadata[test].get("classes") or []
        name = class_name(number, classes)
        return f'"{name}"' if number < len(classes) else name

    @cached_property
    def variants(self) -> dict[str, list[tuple[float, float]]]:
        """Mean JS of attention and TVD of predictions of each trained variant, by its class."""
        found: dict[str, list[tuple[float, float]]] = {"AdversarialVariant": [], "SeedVariant": []}
        own = self.folder.resolve()
        for path in sorted(own.parent.parent.glob("*/*/records/test/base_divergence.parquet")):
            try:
                base = Path(str(read_metadata(path).get("base"))).resolve()
                if own not in (base, base.parent):
                    continue
                model = read_yaml(path.parents[2] / "fit.yaml").get("model") or {}
                _, rows = self.columns(path, "attention_js", "prediction_tvd")
            except InputError:  # another run's record is damaged: that run's own report says so
                continue
            kind = str(model.get("class_path")).rpartition(".")[2]
            imitates = (model.get("init_args") or {}).get("lambda_") == 0
            if kind in found and not imitates:
                js, tvd = (float(np.nanmean(column)) for column in rows)
                found[kind].append((js, tvd))
        return found
