"""What attention and other scores say of single texts."""

import sys
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import torch
from torch import Tensor

from attnlight.attribution import build_attributions
from attnlight.attribution.base import passes_of
from attnlight.batch import HasScope
from attnlight.data.digests import digests
from attnlight.data.progress import progress
from attnlight.data.rows import read_rows
from attnlight.errors import InputError
from attnlight.functional.masking import allowed_classes
from attnlight.functional.ranking import first_items
from attnlight.functional.readout.instances import rows_are_items, texts_of_rows
from attnlight.models.parts import weights_digest
from attnlight.models.readout import Readout, readout_of
from attnlight.reference.rows import GivenTexts, encode_rows
from attnlight.reference.trained import TrainedModel, evaluating
from attnlight.report.explanation import Explanation, FlipSet, WorstCase, ranking_verdict

METHODS = ("gradient_x_attention", "occlusion")
EPSILON = 0.01
_TEXTS = 32  # that are encoded together
_TOKENS = 1_000_000  # read for one text: more take seconds


def explain(
    model: Any,  # noqa: ANN401
    texts: Any,  # noqa: ANN401
    methods: str | Sequence[str | dict[str, Any]] = METHODS,
    queries: str | Sequence[str] | None = None,
    candidates: Sequence[Sequence[str]] | None = None,
    epsilon: float = EPSILON,
) -> list[Explanation]:
    """Explain the predictions of texts: one explanation for each instance, in order.

    Args:
        model: A run's folder, a checkpoint, the name of a shipped model, what `attnlight.load`
            returns, or a task.
        texts: A text, or the texts in any form that `attnlight.run` reads but batches; for pairs the
            passages. Labels are ignored.
        methods: Attribution methods of the predicted class, as for the tests, or the name of one.
        queries: The query of each text, or of the only one, if the model reads pairs and the texts have no
            column `query`.
        candidates: Names of the classes that each text may be answered with; None: those of the column
            `candidates`, or all.
        epsilon: Largest total variation distance of the worst case.

    Raises:
        InputError: The model cannot be read or is none, there is no text, one is empty or of another
            form, queries do not fit, a method is unknown, or attention or logits are not finite.
    """
    reader = TrainedModel.of(model)
    rows = read_rows([texts] if isinstance(texts, str) else texts)
    if not rows:
        raise InputError("there is no text to explain; expected at least one.")
    for number, row in enumerate(rows, start=1):
        row.pop("label", None)
        if not row["text"].strip():
            raise InputError(f"text {number} is empty; expected at least one word.")
    for key, name, column in (
        ("query", "queries", [queries] if isinstance(queries, str) else queries),
        ("candidates", "candidates", candidates),
    ):
        if column is None:
            continue
        if len(column) != len(rows):
            raise InputError(f"{len(rows)} texts have {len(column)} {name}; expected one for each.")
        for row, value in zip(rows, column, strict=True):
            row[key] = value
    named = build_attributions(methods, "explain", least=0)
    found: list[Explanation] = []
    most: float = _TOKENS
    for start in progress(range(0, len(rows), _TEXTS), f"explaining {len(rows):,} texts"):
        part = rows[start : start + _TEXTS]
        with evaluating(reader.model) as device:
            batch = encode_rows(reader, part, start).to(device)
            with torch.no_grad():
                output = reader.model(batch)
            finite = output.logits.isfinite().all(-1) & output.weights.isfinite().flatten(1).all(-1)
            if not finite.all():
                number = start + int(texts_of_rows(output.rows)[~finite][0]) + 1
                raise InputError(
                    f"text {number} has attention or logits that are not finite: the weights of the "
                    "model are damaged, or its training diverged."
                )
            items, length = (int(x.flatten(1).sum(-1).max()) for x in (output.mask, batch.mask))
            passes = passes_of(named.values(), items)
            if passes * length > most:
                most = passes * length
                longest = f"the longest text, of {length:,} tokens"
                print(f"about {passes:,.0f} forward passes of {longest}", file=sys.stderr)
            target, scores = output.logits.argmax(-1), {}
            with torch.enable_grad():
                for label, method in named.items():
                    method.split = GivenTexts([batch], reader, part)
                    scores[label] = method.explain(reader.model, batch, output, target)[0]
            with torch.no_grad():
                readout = readout_of(batch, output, reader.model)
                found += _explanations(reader, part, readout, scores, epsilon)
    return found


def _explanations(
    reader: TrainedModel,
    rows: Sequence[Mapping[str, Any]],
    readout: Readout,
    scores: dict[str, Tensor],
    epsilon: float,
) -> list[Explanation]:
    """The explanation of each row of a readout, given the scores (R, N) of each method."""
    batch, output, classes = readout.batch, readout.output, reader.classes
    verdict = None
    if (path := reader.path) is not None:
        folder = path.parent if path.is_file() else path
        file = path if path.is_file() else path / "best.ckpt"
        network: Any = reader.model
        made = digests(folder, [file]).values() if file.is_file() else [weights_digest(network)]
        verdict = ranking_verdict(folder, *made)
    size, members, exact = smallest_flip_sets(readout)
    kept = (output.mask & ~members).unsqueeze(1)
    flipped = readout.keep(torch.arange(len(size), device=size.device), kept).squeeze(1).argmax(-1)
    adversary, js, _ = readout.worst_case(epsilon)
    # Of several heads each is changed alone; the one that changes most is shown.
    row, head = torch.arange(len(js), device=js.device), js.nan_to_num(-1.0).argmax(-1)
    replaced = readout.head_weights.clone()
    replaced[row, head] = adversary[row, head]
    moved = readout.candidates(replaced.unsqueeze(2)).squeeze(1).softmax(-1)
    allowed = allowed_classes(output.logits)
    known = output.item_logits is not None and len(classes) == 2
    real, mask = batch.mask, batch.attendable()
    real, mask = (x if x.ndim == 2 else x.any(-1) for x in (real, mask))
    # Special tokens may be items as well.
    mask = mask.index_put((texts_of_rows(output.rows),), output.mask, accumulate=True)
    places = [seen.nonzero().flatten() for seen in mask]
    found, of_items = [], rows_are_items(batch, output)
    for number, text in enumerate(texts_of_rows(output.rows).tolist()):
        at = places[text]
        query = rows[text].get("query")
        surface = reader.raw.surface(rows[text]["text"], query, items=True)
        shown = query if query is None or not reader.raw.reads_joined([query]) else None
        # A text without a token is one item.
        forms = surface.forms if surface.text else [rows[text]["text"]] * len(surface.forms)
        tokens = (at - (real[text].sum() - len(forms))).tolist()
        position = int(output.rows[number, 1])
        if batch.target is not None:  # the words of a translation before this one
            before = batch.target[text, :position].tolist()
            shown = " ".join(["…", *(classes[place] for place in before)])

        def named(values: Tensor, number: int = number) -> dict[str, float]:
            """The allowed classes with their values, (C,)."""
            pairs = zip(classes, values.tolist(), allowed[number].tolist(), strict=True)
            return {name: value for name, value, possible in pairs if possible}

        item = flip_set = worst_case = None
        if reader.problem.tags and of_items and (at == position).any():
            item = (at == position).nonzero().flatten().tolist()[0]
        if size[number] > 0:
            erased = members[number, at].nonzero().flatten().tolist()
            flip_set = FlipSet(erased, classes[int(flipped[number])], exact)
        if js[number].isfinite().all():
            most = replaced.mean(1)[number, at].tolist(), float(js[number, head[number]])
            worst_case = WorstCase(*most, named(moved[number]), epsilon, known)
        found.append(
            Explanation(
                text=surface.text or rows[text]["text"],  # what `spans` are of
                query=shown,
                items=[forms[place] for place in tokens],
                item=item,
                prediction=classes[int(output.logits[number].argmax())],
                probabilities=named(output.probabilities[number]),
                attention=readout.weights[number, at].tolist(),
                scores={
                    name: [None if isnan(value) else value for value in rows[number, at].tolist()]
                    for name, rows in scores.items()
                },
                flip_set=flip_set,
                worst_case=worst_case,
                scope=reader.model.scope if isinstance(reader.model, HasScope) else None,
                verdict=verdict,
                spans=[surface.spans[place] for place in tokens],
            )
        )
    return found


def smallest_flip_sets(readout: Readout) -> tuple[Tensor, Tensor, bool]:
    """Size (R,), -1 if none, and members (R, N) of the smallest flip sets, and whether it is exact.

    Where the readout is not affine, the smallest set that the top of a ranking gives.
    """
    found = readout.minimal_flips()
    if found is not None:
        return *found, readout.output.weights.shape[1] == 1
    orders = readout.rankings("signed")  # (R, 3, N)
    counts = readout.first_flips(orders)
    best = counts.masked_fill(counts < 0, orders.shape[-1] + 1).argmin(-1, keepdim=True)
    size = counts.gather(-1, best)
    order = orders.gather(1, best[..., None].expand(-1, 1, orders.shape[-1])).squeeze(1)
    return size.squeeze(-1), first_items(order, size.squeeze(-1)), False
