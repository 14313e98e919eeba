"""Simulated studies: of a classifier, and of a tagger in the shape of the published one.

Yang's (2020) losses lie on two levels, 0.22 to 0.26 and 0.47 to 0.50 nats, the second that of runs
whose training collapsed; F1 is 0.90, and 0.75 after a collapse.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnlight.problems import problem_class
from attnlight.report.study.frame import Study, read_study

Rows = dict[str, NDArray[Any]]

# Quality of what each guide guides: perceptrons, and probes.
NAMES = ("uniform", "learned", "base", "shuffled", "adversary", "other")
GUIDES = dict(zip(NAMES, (0.7, 0.75, 0.8, 0.66, 0.6, 0.78), strict=True))
PROBES = dict(zip(NAMES, (0.874, 0.903, 0.905, 0.852, 0.889, 0.902), strict=True))
GRID = {0.0005: (0.25, 0.18), 0.002: (0.45, 0.2), 0.01: (0.66, 0.21)}  # JS and TVD by lambda
HEADS = 4
KL = (0.0, *np.logspace(-3, 0, 12).round(4).tolist())
RELEASED = (0.2, 0.5, 1.0, 1.5, 2.1, 2.6, 3.1)
# Of the three seeds of a lambda, which collapsed.
FALLEN = {
    "kl": {0.2848: (1,), 0.5337: (0, 2), 1.0: (0, 1, 2)},
    "released": {2.1: (0, 1, 2), 2.6: (1,), 3.1: (0, 1)},
}
INFINITE = 0.3  # of a run of larger JS the third sentence has an infinite KL
COUNTS = ("tokens", "correct", "agree", "gold", "found", "matched", "choices", "tau_rows")
SUMS = ("nll_gold", "nll_base", "attention_js", "attention_js_mean", "attention_js_share")
SUMS += ("attention_tau", "prediction_tvd", "attention_kl", "attention_kl_elements")


class FakeStudy:
    """Runs are added one by one, then written as `attnlight study` does."""

    def __init__(self, index: NDArray[Any], **head: Any) -> None:
        self.index = index
        self.head = {"schema": 1, "study": "fake", "selected": None, "best": {}} | head
        self.runs: list[dict[str, Any]] = []
        self.rows: dict[str, Rows] = {}

    def add_run(
        self, name: str, role: str, state: str, validation: dict[str, Any], **entry: Any
    ) -> None:
        """Add what `study.json` says of a run."""
        known = dict.fromkeys(("guide", "term", "lambda")) | {"seed": len(self.runs)}
        known |= {"base": None if role == "base" else "base-s0", "validation": validation}
        self.runs.append({"name": name, "role": role, "state": state, **known, **entry})

    def write(self, folder: Path) -> Path:
        """Write study.json and study.parquet, rows in an order of their own."""
        folder.mkdir(parents=True, exist_ok=True)
        problem = problem_class(self.head.get("task", "classification"))
        words = asdict(problem.words(self.head["classes"], self.head.get("target", "tokens")))
        content = {"problem": words} | self.head | {"runs": self.runs}
        (folder / "study.json").write_text(json.dumps(content))
        order = np.random.default_rng(1).permutation(len(self.index))
        names = [name for name in self.rows for _ in order]
        columns: dict[str, Any] = {"run": pa.array(names).dictionary_encode()}
        columns["index"] = pa.array(np.tile(self.index[order], len(self.rows)))
        for name in next(iter(self.rows.values())):
            values = np.concatenate([rows[name][order] for rows in self.rows.values()])
            if values.ndim == 2:
                lists = [None if np.isnan(row).any() else row.tolist() for row in values]
                columns[name] = pa.array(lists, pa.list_(pa.float32()))
            elif name in ("label", "prediction"):
                columns[name] = values
            else:
                kind = pa.int32() if name in COUNTS else pa.float32()
                columns[name] = pa.array(values.astype(float), mask=np.isnan(values)).cast(kind)
        pq.write_table(pa.table(columns), folder / "study.parquet", compression="zstd")
        return folder

    def read(self) -> Study:
        with TemporaryDirectory() as folder:
            return read_study(self.write(Path(folder)))


class FakeTexts(FakeStudy):
    def __init__(self, texts: int = 120, classes: Sequence[str] = ("negative", "positive")) -> None:
        random = np.random.default_rng(5)
        known = {"experiment": "sst_bilstm", "corpus": "planted", "classes": list(classes)}
        super().__init__(7 + 3 * np.arange(texts), **known)
        self.label = random.integers(0, len(classes), texts)
        self.peaks = random.random(texts)

    def add(
        self,
        name: str,
        role: str,
        right: float = 0.8,
        js: float | None = None,
        tvd: float = 0.1,
        state: str = "finished",
        **entry: Any,
    ) -> None:
        """Add a run that is right on a share of texts, as far from its base as told on average."""
        random = np.random.default_rng(len(self.runs))
        if entry.get("guide") in ("adversary", "other"):
            entry.setdefault("told_by", f"{entry['guide']}-s{len(self.runs)}")
        entry.setdefault("epoch", len(self.runs) % 4)
        validation = {"accuracy": right, "f1": right, "attention_js": js, "prediction_tvd": tvd}
        self.add_run(name, role, state, validation, **entry)
        if state != "finished":
            return
        n = len(self.label)
        wrong = (self.label + 1) % len(self.head["classes"])
        rows = {"label": self.label}
        rows["prediction"] = np.where(random.random(n) < right, self.label, wrong)
        nothing = ("attention_js", "prediction_tvd", "base_max_attention")
        nothing += ("worst_js", "search_js", "search_tvd")
        rows |= {name: np.full(n, np.nan) for name in nothing}
        if role == "base":
            rows["worst_js"] = 0.6 + 0.05 * random.random(n)
            rows |= {"search_js": 0.5 + 0.05 * random.random(n), "search_tvd": np.full(n, 0.009)}
        if js is not None:
            rows["attention_js"] = np.clip(js + 0.1 * random.normal(size=n), 0, np.log(2))
            rows["prediction_tvd"] = np.clip(tvd + 0.03 * random.normal(size=n), 0, 1)
            rows["base_max_attention"] = self.peaks
        self.rows[name] = rows


class FakeTagging(FakeStudy):
    def __init__(self, sentences: int = 60, target: str = "tokens", heads: int = HEADS) -> None:
        random = np.random.default_rng(11)
        known = {"experiment": "conll2000_study", "corpus": "conll2000", "readout": "study"}
        known |= {"task": "tagging", "target": target}
        classes = ["O", "B-NP", "I-NP", "B-VP"]
        index = 4 + 2 * np.arange(sentences)
        super().__init__(index, classes=classes, options=None, pos=True, **known)
        self.heads = heads
        lengths = np.clip(random.lognormal(3.0, 0.5, sentences), 2, 78).astype(int)
        self.tokens = lengths if target == "tokens" else np.ones(sentences, int)
        self.gold = np.maximum(random.binomial(lengths, 0.5), 1)

    def add(
        self,
        name: str,
        role: str,
        f1: float = 0.9,
        nll: float = 0.23,
        js: float | None = None,
        tvd: float = 0.06,
        tau: float | None = 0.5,
        state: str = "finished",
        **entry: Any,
    ) -> None:
        """Add a run of about this F1 and loss, as far from its base as told on average."""
        validation = {"f1": f1, "accuracy": 0.5 + f1 / 2, "nll_gold": nll + 0.02}
        validation |= {"attention_js": js, "prediction_tvd": tvd if js is not None else None}
        validation |= {"nll_base": None if role == "base" else nll}
        known = {"context": "full" if role == "guide" else None, "head": None, "heads": None}
        known |= {"epoch": 7, "epochs": 12} | ({"ignorant": 0.62} if role == "base" else {})
        self.add_run(name, role, state, validation, **known | entry)
        if state == "finished":
            self.rows[name] = self._simulated(f1, nll, js, tvd, tau, role == "base")

    def _simulated(
        self, f1: float, nll: float, js: float | None, tvd: float, tau: float | None, base: bool
    ) -> Rows:
        random = np.random.default_rng(len(self.runs))
        n, tokens = len(self.tokens), self.tokens
        null = np.full(n, np.nan)
        rows = {name: null for name in (*COUNTS, *SUMS)}
        rows |= {"tokens": tokens, "correct": random.binomial(tokens, 0.5 + f1 / 2)}
        rows["nll_gold"] = tokens * (nll + 0.02) * random.gamma(20, 1 / 20, n)
        if self.head["target"] == "tokens":
            rows["gold"] = self.gold
            rows["found"] = np.maximum(self.gold + random.integers(-1, 2, n), 0)
            both = np.minimum(rows["found"], self.gold)
            rows["matched"] = random.binomial(both, min(f1 + 0.02, 1))
        heads = np.full((n, self.heads), np.nan)
        if not base and js is not None:
            rows["nll_base"] = tokens * nll * random.gamma(20, 1 / 20, n)
            rows["agree"] = random.binomial(tokens, 1 - tvd)
            rows["prediction_tvd"] = tokens * tvd * random.gamma(20, 1 / 20, n)
            share = np.linspace(0.6, 1.4, self.heads) if self.heads > 1 else np.ones(1)
            heads = (tokens * random.gamma(40, 1 / 40, n))[:, None] * js * share
            rows["attention_js"] = heads.mean(axis=1)
            rows["attention_js_mean"] = 0.6 * rows["attention_js"]
            rows["attention_kl"] = 7 * rows["attention_js"] * (1 + rows["attention_js"] / tokens)
            rows["attention_kl_elements"] = 1.1 * rows["attention_kl"] / tokens
            if js > INFINITE:
                for name in ("attention_kl", "attention_kl_elements"):
                    rows[name][2] = np.inf
            rows["choices"] = tokens * (self.gold > 1)
            rows["attention_js_share"] = rows["attention_js"] / 0.66 * (self.gold > 1)
            rows["tau_rows"] = rows["choices"] if tau is not None else np.zeros(n)
            if tau is not None:
                rows["attention_tau"] = rows["tau_rows"] * (tau + 0.1 * random.normal(size=n))
        rows["attention_js_heads"] = heads
        return rows


def whole(seeds: int = 5, bases: int = 2, **options: Any) -> FakeTexts:
    """A study with every role: attention is needed, the adversary is beyond seeds, its MLP poor."""
    study = FakeTexts(**options)
    frontier = {"tvd": [0.0, 0.01, 0.1, 0.3], "js": [0.1, 0.55, 0.62, 0.65]}
    for base in range(bases):
        study.add(f"base-s{base}", "base", 0.85, frontier=frontier, seed=base)
    for seed in range(seeds):
        study.add(f"uniform-s{seed}", "uniform", 0.7, 0.3 + 0.01 * seed, 0.25, seed=seed)
    for base, seed in product(range(bases), range(10, 10 + seeds)):
        told = {"seed": seed, "base": f"base-s{base}"}
        study.add(f"seed-b{base}-s{seed}", "seed", 0.84, 0.27, 0.22 - 0.002 * seed, **told)
    for (guide, right), seed in product(GUIDES.items(), range(seeds)):
        study.add(f"guide-{guide}-s{seed}", "guide", right, guide=guide, seed=seed)
    for base in range(bases):
        add_classifiers(study, seeds, base)
    study.head["selected"] = {"run": "adversary-kl-l0.01-s0", "term": "kl", "lambda": 0.01}
    other = {"run": "adversary-js-l0.002-s0", "term": "js", "lambda": 0.002}
    study.head["best"] = {"kl": study.head["selected"], "js": other, "tvd": None}
    return study


def add_classifiers(study: FakeTexts, seeds: int, base: int = 0) -> None:
    """A grid of lambdas with KL and JS; lambda 0 is run once for both."""
    for seed in range(seeds):
        told: dict[str, Any] = {"seed": seed, "base": f"base-s{base}"}
        mark = f"b{base}-" if base else ""
        name = f"adversary-{mark}kl-l0-s{seed}"
        study.add(name, "adversary", 0.83, 0.23, 0.175, term="kl", **told, **{"lambda": 0.0})
        for lam, (js, tvd) in GRID.items():
            told["lambda"] = lam
            name = f"adversary-{mark}kl-l{lam}-s{seed}"
            study.add(name, "adversary", 0.82, js, tvd + 0.002 * seed, term="kl", **told)
            name = f"adversary-{mark}js-l{lam}-s{seed}"
            study.add(name, "adversary", 0.82, 0.9 * js, tvd + 0.02, term="js", **told)


def whole_tagger(
    seeds: int = 3,
    variants: int = 5,
    kl: Sequence[float] = KL,
    released: Sequence[float] = RELEASED,
    **options: Any,
) -> FakeTagging:
    """A study with every role, in which some adversaries of a large lambda collapsed."""
    study = FakeTagging(**options)
    for seed in range(seeds):
        study.add(f"base-s{seed}", "base", 0.906, 0.21, seed=seed)
    for seed in range(seeds):
        study.add(f"uniform-s{seed}", "uniform", 0.872, 0.27, 0.36, 0.11, None, seed=seed)
        for head in range(study.heads):
            told = {"seed": seed, "head": head}
            study.add(f"uniform-h{head}-s{seed}", "uniform", 0.9 - 0.004 * head, 0.23, 0.26, **told)
    for seed in range(1, variants + 1):
        study.add(f"seed-b0-s{seed}", "seed", 0.905, 0.215, 0.17, 0.055, 0.58, seed=seed)
    add_probes(study, seeds)
    weights = [*product(["kl"], kl), *product(["released"], released)]
    for (term, lam), seed in product(weights, range(seeds)):
        add_adversary(study, term, lam, seed)
    if above := [lam for lam in kl if lam][-4:]:
        study.head["selected"] = {"run": "x", "term": "kl", "lambda": above[0], "reached": False}
        study.head["best"] = {"kl": study.head["selected"]}
    return study


def add_probes(
    study: FakeTagging, seeds: int, contexts: Sequence[str] = ("full", "tokens")
) -> None:
    """Guided taggers: without the encoder everything hangs on the attention."""
    for context, (guide, f1), seed in product(contexts, PROBES.items(), range(seeds)):
        right = 0.9 + (f1 - 0.9) / 3 if context == "full" else f1 - 0.06
        mark = "" if context == "full" else f"-{context}"
        told = {"guide": guide, "context": context, "seed": seed}
        told["told_by"] = f"{guide}-s{seed}" if guide in ("adversary", "other") else None
        name, near = f"guide-{guide}{mark}-s{seed}", right + 0.003 * (seed - 1)
        study.add(name, "guide", near, 0.25, 0.2, **told)


def on_a_line(
    sentences: int = 8, lambdas: Sequence[float] = (0.0, 0.1), **options: Any
) -> FakeTagging:
    """A base of a tagger and one adversary by lambda."""
    study = FakeTagging(sentences, **options)
    study.add("base-s0", "base")
    for lam in lambdas:
        add_adversary(study, "kl", lam, 0)
    return study


def add_adversary(study: FakeTagging, term: str, lam: float, seed: int) -> None:
    """An adversary that gets farther from its base with lambda, or collapsed."""
    told: dict[str, Any] = {"seed": seed, "term": term, "lambda": lam, "base": "base-s0"}
    name = f"adversary-{term}-l{lam:g}-s{seed}"
    random = np.random.default_rng([int(1e4 * lam), seed, len(term)])
    weight = lam if term == "kl" else lam / 8
    far = 0.0 if lam == 0 else 1 / (1 + (0.08 / weight) ** 1.1)
    js = 0.18 + 0.17 * far + 0.008 * random.normal()
    if seed in FALLEN.get(term, {}).get(lam, ()):
        nll = 0.485 + 0.01 * random.normal()
        study.add(name, "adversary", 0.75, nll, js + 0.02, 0.3, 0.05, epochs=30, **told)
        return
    nll = 0.222 + 0.03 * far + 0.004 * random.normal()
    f1 = 0.904 - 0.015 * far + 0.002 * random.normal()
    study.add(name, "adversary", f1, nll, js, 0.052 + 0.05 * far, 0.55 - 0.35 * far, **told)


# How far an adversary gets at a large lambda, as a share, and what that costs.
REACH = {"tokens": (0.55, 0.09), "marked": (0.75, 0.07), "sentence": (0.93, 0.04)}
LAMBDAS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)


def condition(
    target: str,
    readout: str = "residual",
    pos: bool = True,
    seeds: int = 3,
    lambdas: Sequence[float] = LAMBDAS,
    cost: float = 1.0,
    sentences: int = 60,
) -> FakeTagging:
    """A base and its adversaries; those of a cheaper target get farther."""
    study = FakeTagging(sentences, target)
    name = f"{target}-{readout}-{'pos' if pos else 'nopos'}"
    study.head |= {"options": name, "readout": readout, "pos": pos}
    study.add("base-s0", "base", 0.9)
    far, price = REACH[target]
    far *= 1.0 if readout == "residual" else 0.85
    for seed in range(seeds):
        random = np.random.default_rng([seed, len(target), len(readout), pos])
        for lam in lambdas:
            much = lam**0.8 / (lam**0.8 + 0.02**0.8) if lam else 0.0
            js = 0.66 * (0.22 + (far - 0.22) * much) + 0.008 * random.normal()
            tvd = 0.04 + cost * price * much**2 + 0.002 * random.random()
            told = {"seed": seed, "term": "kl", "lambda": lam}
            study.add(f"adversary-kl-l{lam:g}-s{seed}", "adversary", 0.89, 0.23, js, tvd, **told)
    return study


def conditions(root: Path, **options: Any) -> dict[str, Path]:
    """Folders of twelve conditions: three targets, two readouts, with POS tags and without."""
    parts = product(REACH, ("residual", "text"), (True, False))
    fakes = [condition(*part, **options) for part in parts]
    names = [fake.head["options"] for fake in fakes]
    return {n: fake.write(root / f"study-{n}") for n, fake in zip(names, fakes, strict=True)}
