"""Roles of heads against loops over full attention, and pruning against full passes without heads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnlight
from attnlight.batch import BOS, EOS, TextBatch
from attnlight.callbacks import HeadAblation, HeadRoles
from attnlight.callbacks.head_roles import PERCENTS
from attnlight.data.bio import tag_scheme
from attnlight.errors import InputError
from attnlight.figures import tables
from attnlight.functional.chunks import group_targets
from attnlight.probing.interception import intercept
from attnlight.probing.patches import off, restrict
from attnlight.probing.removal import repeat_half
from attnlight.records import read_record
from tests.bases import Planted, classifier, one_text, trainer
from tests.callbacks import copying
from tests.callbacks.every import ready
from tests.models.taggers import sentences, tagger
from tests.report.fake import rows_of
from tests.tasks.tagged import corpus, task_of, written

MARKS = [6, 9, 12]
TAGS = ["O", "B-NP", "I-NP", "B-VP"]


def role_tokens(
    tokens: list[int], query: int, chunks: list[int] | None = None
) -> dict[str, set[int]]:
    """The places that each role names, of one token of a text."""
    places = range(len(tokens))
    special = tokens[query] in (BOS, EOS)
    earlier = {k for k in range(query) if tokens[k] == tokens[query] and not special}
    found = {
        "previous": {query - 1} & {*places},
        "next": {query + 1} & {*places},
        "same": {query},
        "first": {0},
        "separator": {k for k in places if tokens[k] == EOS},
        "punctuation": {k for k in places if tokens[k] in MARKS},
        "duplicate": earlier,
        "induction": {k + 1 for k in earlier} - {query},
    }
    if chunks is not None:
        same = {k for k in places if chunks[k] == chunks[query] and chunks[k] >= 0} - {query}
        found["same_chunk"] = same
    return found


def chunks_of(tags: list[int]) -> list[int]:
    """The number of each token's chunk, -1 outside, by the rules of conlleval."""
    numbers, current = [], -1
    for place, tag in enumerate(tags):
        name = TAGS[tag]
        inside = name.startswith("I") and place > 0 and TAGS[tags[place - 1]][1:] == name[1:]
        current += not inside and name != "O"
        numbers.append(current if name != "O" else -1)
    return numbers


def repeated_by_hand(tokens: list[int], drawn: list[int]) -> list[int]:
    words = [place for place, token in enumerate(tokens) if token not in (BOS, EOS)]
    half, new = max(len(words) // 2, 1), list(tokens)
    for rank, place in enumerate(words):
        new[place] = drawn[words[rank % half]]
    return new


def drawn_for(test: HeadRoles, batch: TextBatch) -> Any:
    assert test.word_sampler is not None
    return test.word_sampler.draw(batch, 1, test.seed)[0]


def masses(weights: Any, targets: dict[str, set[int]], query: int) -> dict[str, list[float]]:
    """Attention of each head, of weights (L, H, N, N), and of uniform attention in its place."""
    found = {}
    for role, places in targets.items():
        if places:
            heads = [w[query, sorted(places)].sum() for layer in weights for w in layer]
            found[role] = [float(value) for value in heads]
    return found


def test_of_a_tagger_by_hand() -> None:
    model, batch = tagger("residual", layers=2).double(), sentences((7, 1, 4, 9), extra=1)
    batch.tokens = torch.where(batch.mask, 4 + batch.tokens % 9, 0)
    test = HeadRoles()
    test._marks, test._tags = MARKS, ("same_chunk", tag_scheme(TAGS))
    ready(test, model, batch)
    output = model(batch).apply(torch.Tensor.detach)
    columns = test.measure(batch, output, model)  # type: ignore[arg-type]
    copies = repeat_half(batch, drawn_for(test, batch))
    assert not copies.extras["pos"].any()
    defined = dict.fromkeys(columns, 0)
    for row, (index, query) in enumerate(output.rows.tolist()):
        text = int((batch.index == index).nonzero())
        for read, start in ((batch, ""), (copies, "repeated_")):
            alone = one_text(read, text)
            with torch.no_grad(), intercept(record="all") as found:
                model(alone)
            weights = np.stack([found[layer].weights[0].numpy() for layer in range(2)])
            tokens = alone.tokens[0].tolist()
            chunks = chunks_of(batch.labels[text, : len(tokens)].tolist())  # type: ignore[index]
            targets = role_tokens(tokens, query, chunks)
            for role, places in targets.items():
                if start and role not in ("duplicate", "induction"):
                    continue
                name = f"mass_{start}{role}"
                expected = [float("nan")] * 4
                if places:
                    expected = masses(weights, {role: places}, query)[role]
                    defined[name] += 1
                mean = np.array(expected)
                np.testing.assert_allclose(columns[f"{name}_by_head"][row], mean, atol=1e-9)
                np.testing.assert_allclose(
                    columns[f"{name}_by_layer"][row], mean.reshape(2, 2).mean(1), atol=1e-9
                )
                np.testing.assert_allclose(columns[name][row], mean.mean(), atol=1e-9)
                chance = len(places) / len(tokens) if places else float("nan")
                np.testing.assert_allclose(columns[f"chance_{start}{role}"][row], chance, atol=1e-9)
            if start:
                assert tokens == repeated_by_hand(
                    batch.tokens[text, : len(tokens)].tolist(),
                    drawn_for(test, batch)[text].tolist(),
                )
    roles = {
        name: n for name, n in defined.items() if name.startswith("mass_") and "_by_" not in name
    }
    assert {name for name, n in roles.items() if not n} == {"mass_separator"}
    test._name()
    assert set(test.measures) <= columns.keys()


def test_the_head_that_copies_attends_to_the_token_before() -> None:
    model, batch = copying.trained(), copying.texts(200, seed=10**6)
    columns = HeadRoles(repeats=False).measure(batch, model(batch), model)  # type: ignore[arg-type]
    heads = columns["mass_previous_by_head"].nanmean(0)
    known = copying.LAYER * copying.HEADS + copying.HEAD
    assert float(heads[known]) > 0.9
    assert float(columns["chance_previous"].nanmean()) < 0.3
    assert int(heads.argmax()) == known


def test_chunks_and_tags() -> None:
    labels = torch.tensor([[1, 2, 0, 2, 3, -100], [0, 3, 3, -100, 3, 2]])
    found = group_targets(labels, tag_scheme(TAGS))
    pairs = {tuple(pair) for pair in found.nonzero().tolist()}
    assert pairs == {(0, 0, 1), (0, 1, 0)}
    plain = {tuple(pair) for pair in group_targets(labels, None).nonzero().tolist()}
    assert plain == {
        (text, one, other)
        for text in range(2)
        for one in range(6)
        for other in range(6)
        if one != other and labels[text, one] == labels[text, other] >= 0
    }


def test_words_repeat_in_place_of_words() -> None:
    tokens = torch.tensor([[0, 0, BOS, 4, 5, 6, 7, 8, EOS], [BOS, 4, EOS, 5, EOS, 0, 0, 0, 0]])
    batch = TextBatch(torch.arange(2), tokens, tokens > 0)
    found = repeat_half(batch, 20 + torch.arange(18).view(2, 9))
    assert found.tokens.tolist() == [
        [0, 0, BOS, 23, 24, 23, 24, 23, EOS],
        [BOS, 30, EOS, 30, EOS, 0, 0, 0, 0],
    ]


def test_pruning_by_full_passes_in_the_order_of_ablations_on_validation(tmp_path: Path) -> None:
    data = corpus(written(tmp_path / "chunks", train=60, test=15))
    task, random = task_of(data), torch.Generator().manual_seed(1)
    for values in task.model.parameters():
        values.data = 0.5 * torch.randn(values.shape, generator=random)
    options: dict[str, Any] = {"figures": False, "seed": 3}
    test = HeadRoles(prune=True, prune_texts=4, **options)
    trainer(tmp_path, test).test(task, data, verbose=False)
    record = read_record(tmp_path / "records/test/head_roles.parquet")
    orders, model = record.metadata["orders"], task.model.eval()
    assert record.metadata["learned_on"] == "validation"
    validation = HeadAblation(["off"], max_instances=4, **options)
    trainer(tmp_path, validation).validate(task, data, verbose=False)
    columns = read_record(tmp_path / "records/val/head_ablation.parquet").columns
    importance = np.stack(columns["tvd_head_off_by_head"]).mean(0)
    heads = len(importance) // len(model.attention_layers)
    places = [layer * heads + head for layer, head in orders["pruned"]]
    assert (np.diff(importance[places]) >= -1e-7).all()
    assert {tuple(pair) for pair in orders["random"]} == {tuple(pair) for pair in orders["pruned"]}
    rows = list(
        zip(record.columns["index"].tolist(), record.columns["position"].tolist(), strict=True)
    )
    texts = data.dataset("test")
    for name, order in orders.items():
        for percent in PERCENTS:
            gone = order[: round(len(order) * percent / 100)]
            patch = {
                layer: restrict(off, [head for n, head in gone if n == layer])
                for layer in {layer for layer, _ in gone}
            }
            right = {}
            for place in range(len(texts)):
                batch = texts[[place]]
                with torch.no_grad(), intercept(patch=patch):
                    output = model(batch)
                for (index, position), logits in zip(
                    output.rows.tolist(), output.logits, strict=True
                ):
                    right[index, position] = float(logits.argmax() == batch.labels[0, position])  # type: ignore[index]
            found = record.columns[f"correct_{name}_{percent}"]
            assert found.tolist() == [right[row] for row in rows]
    values = [record.columns[f"correct_pruned_{percent}"].mean() for percent in PERCENTS]
    assert len(set(values)) > 2
    assert values[0] == record.columns["correct_random_0"].mean()
    assert values[-1] == record.columns["correct_random_100"].mean()
    test = HeadRoles(prune=True, prune_texts=4, **options)
    trainer(tmp_path, test).validate(task, data, verbose=False)
    again = read_record(tmp_path / "records/val/head_roles.parquet")
    assert not any(name.startswith("correct") for name in again.columns)
    assert "mass_same_chunk" in again.columns
    assert "mass_punctuation" in again.columns


def test_what_pruning_cannot_learn_from_is_refused(tmp_path: Path) -> None:
    model, batch = tagger(), sentences()
    with pytest.raises(
        InputError, match=r"^prune of head_roles learns .* validation split[^.]*\.$"
    ):
        attnlight.run(model, [batch], [HeadRoles(repeats=False, prune=True)])
    with pytest.raises(InputError, match="prune_texts of head_roles is 0"):
        HeadRoles(prune_texts=0)
    data = Planted(cache_dir=str(tmp_path / "cache"))
    with pytest.raises(InputError, match="head_roles needs a model with layers of self-attention"):
        trainer(tmp_path, HeadRoles()).test(classifier(data.spec), data, verbose=False)


def test_tables_name_heads_and_roles() -> None:
    rows = rows_of("head_roles")
    rows["mass_previous_by_head"][:, 6] += 2
    roles, heads = tables("head_roles", rows)
    (line,) = [cells for cells in roles.rows if cells[0] == "token before"]
    assert line[1] == "2, 3"
    mean = rows["mass_previous_by_head"][:, 6].mean()
    assert float(line[2].split()[0]) == pytest.approx(mean, abs=1e-3)
    assert heads.rows[1][3] == f"token before {mean:.2f}"
    assert [cells[0] for cells in heads.rows] == ["1", "2", "3"]
