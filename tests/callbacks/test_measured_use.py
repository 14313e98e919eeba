"""Labels of attention by measured use against loops over single texts and words."""

import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import somersd

from attnlight.batch import TextBatch
from attnlight.callbacks import MeasuredUse
from attnlight.callbacks.measured_use import filler_sampler
from attnlight.datamodules import PlantedEvidence
from attnlight.functional import somers_d
from attnlight.models import FlatClassifier
from attnlight.tasks import AttentionTask
from tests.bases import classifier
from tests.callbacks.test_base import recorded
from tests.callbacks.token_loops import levels, tau
from tests.pairs import pair_task

TEXTS = 5
SETTINGS = {
    "two classes": ({"redundancy": 2}, {"encoder": "none"}),
    "four classes": ({"num_classes": 4}, {"encoder": "bilstm"}),
    "negation": ({"negation": 0.4, "min_tokens": 12}, {"encoder": "bilstm"}),
    "random by token": ({}, {"encoder": "bilstm", "attention": "random_by_token"}),
    "one-sided": ({"one_sided": True, "redundancy": 1, "distractors": 0}, {"encoder": "none"}),
    "phrase": ({"rule": "phrase", "redundancy": 1, "distractors": 2}, {"encoder": "bilstm"}),
    "pairs": ({"queries": 3, "decoys": 2}, {"encoder": "bilstm"}),
    "sentences": ({"sentence_length": 2, "decoys": 1}, {"encoder": "bilstm", "hierarchical": True}),
    "sentences of classes": (
        {
            "sentence_length": 3,
            "num_classes": 4,
            "one_sided": True,
            "redundancy": 3,
            "distractors": 0,
        },
        {"encoder": "none", "hierarchical": True},
    ),
    "random by text": ({"num_classes": 4}, {"encoder": "none", "attention": "random_by_text"}),
}


def task_of(corpus: PlantedEvidence, **net: object) -> AttentionTask:
    """A classifier that is not trained, with predictions that are far from certain or not."""
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"embedding_size": 8, "hidden_size": 6, "embedding_scale": 1.0}
    task: AttentionTask = (
        pair_task(corpus.spec, 3, decoder="affine", **sizes, **net)
        if corpus.paired
        else classifier(corpus.spec, **sizes, **net)
    ).double()
    task.model.decoder.weight.data.mul_(3)
    return task


def planted(tmp_path: Path, **options: object) -> PlantedEvidence:
    given = {"train_size": 40, "validation_size": 20, "test_size": TEXTS, "vocabulary": 30}
    given |= {"min_tokens": 9, "max_tokens": 14, "keywords": 3, "batch_size": 8}
    return PlantedEvidence(cache_dir=str(tmp_path / "cache"), **given | options)


def odds(logits: torch.Tensor, target: int) -> float:
    values = logits.double().tolist()
    return values[target] - math.log(sum(math.exp(x) for i, x in enumerate(values) if i != target))


def swap(word: str, kind: int, corpus: PlantedEvidence) -> str | None:
    """Counterfactual of a word by its spelling: of the class so many after its own, or the filler."""
    spec = corpus.planted
    found = re.fullmatch(r"(bad|good|topic\d)(word)?(\d+)", word)
    if spec.rule == "phrase" or not (found or word.startswith("not")):
        return None
    if kind == spec.num_classes - 1:
        return "filler0"
    if found is None:
        return None
    name, joint, number = found.groups(default="")
    place = (corpus.classes.index(name) + kind + 1) % spec.num_classes
    return None if spec.one_sided and not place else f"{corpus.classes[place]}{joint}{number}"


def agreement(weights: list[float], use: list[float]) -> float:
    places = levels(torch.tensor(weights)).tolist()
    if np.isnan(use).any():
        return math.nan
    signs = [
        np.sign(places[i] - places[j])
        for i, j in product(range(len(use)), repeat=2)
        if use[i] - use[j] > 0.1 * max(use)
    ]
    return float(np.mean(signs)) if signs else math.nan


def by_hand(
    model: FlatClassifier, corpus: PlantedEvidence, index: int, draws: int
) -> dict[str, float]:
    """The labels of one text, each counterfactual text read alone; of sentences, whole ones change."""
    words, kinds = corpus.planted.words, range(corpus.planted.num_classes)
    ids = {word: number for number, word in enumerate(words)}
    full = corpus.dataset("test")[[index]]
    size = corpus.sentence_length or 1

    def read(items: list[list[int]]) -> torch.Tensor:
        text = torch.tensor([[*item, *[0] * (size - len(item))] for item in items])[None]
        text = text if corpus.nested else text.flatten(1)
        query = full.query, full.query_mask
        return model(TextBatch(full.index, text, text != 0, None, *query)).logits[0]

    def change(items: list[list[int]]) -> float:
        return abs(odds(read(items), target) - start)

    flat = full.tokens[full.mask].tolist()
    items = [flat[place : place + size] for place in range(0, len(flat), size)]
    output = model(full)
    target = int(output.logits.argmax())
    start = odds(output.logits[0], target)
    weights = output.weights[0, 0, : len(items)]
    states: list[float] = []
    for place in range(len(items)):
        kept = [i for i in range(len(items)) if i != place]
        context = (weights[kept, None] * output.states[0, kept]).sum(0) / weights[kept].sum()
        logits = model.decoder(context)
        if corpus.paired:
            logits = logits + model.query_decoder(output.memory["query"][0])  # type: ignore[operator]
        logits = logits if len(logits) > 1 else torch.cat([torch.zeros(1), logits])
        states.append(abs(odds(logits, target) - start))
    sampler = filler_sampler(corpus)
    count = max(draws, len(kinds)) if corpus.nested else draws
    drawn = sampler.draw(full, count, seed=0)[:, full.mask].tolist()
    assert all(words[x].startswith("filler") for one in drawn for x in one)
    use: list[float] = []
    resampled: list[float] = []
    for place, item in enumerate(items):
        before, after = items[:place], items[place + 1 :]
        named = [[swap(words[x], kind, corpus) for x in item] for kind in kinds]
        swaps = [
            [x if name is None else ids[name] for x, name in zip(item, names, strict=True)]
            for names in named
            if any(names)
        ]
        texts = [[*before, *after], *([*before, one, *after] for one in swaps)]
        use.append(float(np.mean([change(text) for text in texts])))
        fillers = [one[place * size : place * size + len(item)] for one in drawn]
        others = swaps or fillers
        if corpus.nested:  # a keyword's counterfactuals in turn, a missing one is the filler
            others = [
                [
                    x if swap(word, kinds[-1], corpus) is None else ids[name or "filler0"]
                    for x, word in zip(one, [words[x] for x in item], strict=True)
                    for name in [swap(word, number % len(kinds), corpus)]
                ]
                for number, one in enumerate(fillers)
            ]
        resampled.append(float(np.mean([change([*before, one, *after]) for one in others])))
    if corpus.planted.rule == "phrase":
        use = [math.nan] * len(items)
    marks = full.extras["evidence"][full.mask].abs().tolist()
    evidence = [float(max(marks[x : x + size])) for x in range(0, len(marks), size)]
    listed = weights.tolist()
    return {
        "agreement_states": agreement(listed, states),
        "agreement_words": agreement(listed, use),
        "agreement_evidence": agreement(listed, evidence),
        "agreement_resampled": agreement(listed, resampled),
        "tau_states": tau(listed, states),
        "tau_words": tau(listed, use),
        "tau_states_words": tau(states, use),
        "largest_weight": max(listed),
        "entropy": -sum(x * math.log(x) for x in listed),
        "correct": float(target == int(full.labels)),
        "length": len(items),
    }


@pytest.mark.parametrize("setting", SETTINGS)
@torch.no_grad()
def test_labels_equal_a_loop(setting: str, tmp_path: Path) -> None:
    data, net = SETTINGS[setting]
    corpus = planted(tmp_path, **data)
    task = task_of(corpus, **net)
    found = recorded(tmp_path, MeasuredUse(resamples=3), task=task, data=corpus).columns
    assert found["index"].tolist() == list(range(TEXTS))
    task.eval()
    for index in range(TEXTS):
        for name, expected in by_hand(task.model, corpus, index, draws=3).items():
            close = pytest.approx(expected, abs=1e-6, nan_ok=True)
            assert found[name][index] == close, (index, name)
    defined = [name for name in MeasuredUse.measures if not np.isnan(found[name]).all()]
    assert ("agreement_words" in defined) == (setting != "phrase")
    assert {"agreement_states", "agreement_evidence", "agreement_resampled"} <= {*defined}
    if setting == "one-sided":  # no evidence in class 0
        of_0 = corpus.dataset("test").labels == 0
        assert np.isnan(found["agreement_evidence"]).tolist() == of_0.tolist()


def test_swaps_that_flip(tmp_path: Path) -> None:
    """Where one keyword decides, swapping it flips every prediction, and none where many do."""
    for redundancy, share in ((1, 1.0), (5, 0.0)):
        corpus = planted(tmp_path, redundancy=redundancy, distractors=0, max_tokens=9)
        task = task_of(corpus, encoder="none", attention="uniform")
        words = task.model.embedding.weight.data.zero_()
        for number, word in enumerate(corpus.planted.words):
            words[number, 0] = {"bad": -1.0, "goo": 1.0}.get(word[:3], 0.0)
        task.model.decoder.weight.data[:] = torch.eye(8)[:1] * 9
        task.model.decoder.bias.data.zero_()
        columns = recorded(
            tmp_path / str(redundancy), MeasuredUse(), task=task, data=corpus
        ).columns
        assert np.unique(columns["swap_flips"]).tolist() == [share]


def test_agreement_of_clear_pairs_by_loop() -> None:
    random = np.random.default_rng(0)
    weights = torch.from_numpy(random.integers(0, 5, (30, 12)) / 5)
    use = torch.from_numpy(random.random((30, 12)))
    mask = torch.arange(12) < torch.from_numpy(random.integers(2, 13, 30))[:, None]
    found = somers_d(weights, use, mask, 0.1).tolist()
    of_all = somers_d(weights, use.mul(5).round(), mask).tolist()
    for row, items in enumerate(mask.sum(-1).tolist()):
        w, x = weights[row, :items].tolist(), use[row, :items]
        assert found[row] == pytest.approx(agreement(w, x.tolist()), nan_ok=True)
        if len({*w}) > 1:  # SciPy has no D of tied scores, which is 0
            expected = somersd(x.mul(5).round().tolist(), w).statistic
            assert of_all[row] == pytest.approx(expected, nan_ok=True)


def test_agreement_is_undefined_without_a_clear_pair() -> None:
    mask = torch.ones(3, 3, dtype=torch.bool)
    use = torch.tensor([[1.0, 1.0, 0.95], [1.0, 0.0, torch.nan], [1.0, 0.0, 0.5]])
    found = somers_d(torch.tensor([0.5, 0.2, 0.3]).expand(3, 3), use, mask, 0.1)
    assert found.isnan().tolist() == [True, True, False]
