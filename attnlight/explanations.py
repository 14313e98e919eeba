"""`attnlight explain`: what attention and other scores say of single texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlight.arguments import VerbParser
from attnlight.attribution import build_attributions
from attnlight.data.digests import digests
from attnlight.data.rows import read_rows
from attnlight.errors import InputError
from attnlight.functional.masking import allowed_classes
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.models.readout import Readout, readout_of
from attnlight.reference.rows import GivenTexts, encode_rows
from attnlight.reference.trained import TrainedModel, evaluating
from attnlight.report.explanation import Explanation, FlipSet, WorstCase, ranking_verdict
from attnlight.shorthand import plain_value

DESCRIPTION = """\
Predict texts, and show what attention and other scores say of their words: the smallest set of words
whose erasure from attention changes the decision, and the most different attention that gives the
same prediction. For pairs, TEXT is the passage."""
EPILOG = """\
attnlight explain sst "a gripping, funny film"
attnlight explain checkpoints/sst_bilstm/seed0 "a gripping, funny film"
attnlight explain RUN --file texts.txt --methods occlusion,lrp --json

Without TEXT and --file, lines of standard input are read."""
METHODS = ("gradient_x_attention", "occlusion")
EPSILON = 0.01
_TEXTS = 32  # that are encoded together


def main(argv: list[str]) -> int:
    """Print the explanation of each text.

    Raises:
        InputError: There is no such run, a file cannot be read, or `explain` refuses the texts.
    """
    parser = VerbParser("explain", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "run", metavar="RUN", help="folder of a run, a checkpoint, or a shipped model, such as sst"
    )
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="a text")
    parser.add_argument("--file", metavar="FILE", type=Path, help="a file with a text in each line")
    parser.add_argument("--query", help="for pairs: the query of all texts")
    parser.add_argument(
        "--candidates",
        metavar="CLASS,...",
        help="the classes that a text may be answered with (default: all)",
    )
    parser.add_argument(
        "--methods",
        metavar="NAME,...",
        default=",".join(METHODS),
        help="attribution methods, or mappings of their options (default: %(default)s)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--html", action="store_true", help="print an HTML page")
    options = parser.parse_args(argv)
    texts = options.texts
    if options.file is not None or not texts:
        try:
            content = sys.stdin.read() if options.file is None else options.file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{options.file or 'standard input'} is not readable: {error}."
            ) from error
        texts = [*texts, *filter(str.strip, content.splitlines())]
    queries = None if options.query is None else [options.query] * len(texts)
    candidates = options.candidates and [options.candidates.split(",")] * len(texts)
    methods = plain_value("--methods", options.methods)
    found = explain(options.run, texts, methods, queries, candidates)
    if options.json:
        print(json.dumps(list(map(asdict, found)), indent=1))
    elif options.html:
        from markupsafe import Markup

        from attnlight.report.markup import render

        parts = [Markup(one._repr_html_()) for one in found]
        print(render("explanations.html.jinja", title="Explanations", parts=parts))
    else:
        from rich.console import Console

        console = Console(highlight=False)
        for one in found:
            console.print(one.to_rich(), "")
    return 0


def explain(
    model: Any,  # noqa: ANN401
    texts: Any,  # noqa: ANN401
    methods: Sequence[str | dict[str, Any]] = METHODS,
    queries: Sequence[str] | None = None,
    candidates: Sequence[Sequence[str]] | None = None,
    epsilon: float = EPSILON,
) -> list[Explanation]:
    """Explain the predictions of texts: one explanation for each instance, in order.

    Args:
        model: A run's folder, a checkpoint, the name of a shipped model, what `attnlight.load`
            returns, or a task.
        texts: A text, or the texts in any form that `attnlight.run` reads but batches; for pairs the
            passages. Labels are ignored.
        methods: Attribution methods of the predicted class, as for the tests.
        queries: The query of each text, if the model reads pairs and the texts have no column `query`.
        candidates: Names of the classes that each text may be answered with; None: those of the column
            `candidates`, or all.
        epsilon: Largest total variation distance of the worst case.

    Raises:
        InputError: The model cannot be read or is none, there is no text, a text is empty or of another
            form, queries are missing or not expected, a method is unknown, or attention or logits are
            not finite.
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
        ("query", "queries", queries),
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
    for start in range(0, len(rows), _TEXTS):
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
            target, scores = output.logits.argmax(-1), {}
            # cuDNN's RNNs have no gradients in evaluation mode.
            with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
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
    if (checkpoint := reader.path) is not None:
        checkpoint = checkpoint / "best.ckpt" if checkpoint.is_dir() else checkpoint
        (digest,) = digests(checkpoint.parent, [checkpoint]).values()
        verdict = ranking_verdict(checkpoint, digest)
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
    items = [reader.raw.items(row["text"]) for row in rows]
    mask = batch.attendable()
    places = [seen.nonzero().flatten() for seen in (mask if mask.ndim == 2 else mask.any(-1))]
    found = []
    for number, text in enumerate(texts_of_rows(output.rows).tolist()):
        at = places[text]
        position = int(output.rows[number, 1])

        def named(values: Tensor, number: int = number) -> dict[str, float]:
            """The allowed classes with their values, (C,)."""
            pairs = zip(classes, values.tolist(), allowed[number].tolist(), strict=True)
            return {name: value for name, value, possible in pairs if possible}

        found.append(
            Explanation(
                text=rows[text]["text"],
                query=rows[text].get("query"),
                items=items[text],
                item=(at == position).nonzero().flatten().tolist()[0]
                if reader.problem.tags and (at == position).any()
                else None,
                prediction=classes[int(output.logits[number].argmax())],
                probabilities=named(output.probabilities[number]),
                attention=readout.weights[number, at].tolist(),
                scores={
                    name: [None if isnan(value) else value for value in rows[number, at].tolist()]
                    for name, rows in scores.items()
                },
                flip_set=FlipSet(
                    members[number, at].nonzero().flatten().tolist(),
                    classes[int(flipped[number])],
                    exact,
                )
                if size[number] > 0
                else None,
                worst_case=WorstCase(
                    replaced.mean(1)[number, at].tolist(),
                    float(js[number, head[number]]),
                    named(moved[number]),
                    epsilon,
                    known,
                )
                if js[number].isfinite().all()
                else None,
                scope=getattr(reader.model, "scope", None),
                verdict=verdict,
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
    first = torch.arange(orders.shape[-1], device=size.device) < size
    return size.squeeze(-1), torch.zeros_like(first).scatter(-1, order, first), False
