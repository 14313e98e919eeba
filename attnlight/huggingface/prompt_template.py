"""Prompts of decoder-only models: their template, and a tokenizer that reads texts as texts alone."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers.utils.chat_template_utils import render_jinja_template

from attnlight.batch import SPECIAL_TOKENS, TextBatch
from attnlight.data.pieces import find_file
from attnlight.errors import InputError, one_line
from attnlight.probing.flat_texts import FlatTexts
from attnlight.storage.files import read_json

CHAT_TEMPLATE = "Context: {context}\n\nQuestion: {question}"
PLAIN_TEMPLATE = "[BOS]Context: {context}\n\nQuestion: {question}\nAnswer:"
_STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
_PLACE = re.compile(r"\{(context|question)\}")
_SPECIAL = re.compile(f"({'|'.join(map(re.escape, SPECIAL_TOKENS))})")


@runtime_checkable
class _HasChatTemplate(Protocol):
    """A tokenizer of transformers."""

    chat_template: Any


class Prompts(NamedTuple):
    """Prompts of B texts, of L tokens, padded on the left.

    Attributes:
        flat: The tokens; those in its mask belong to items, which are those of the texts.
        embeddings: Their embeddings, (B, L, E).
        mask: All real tokens, (B, L) bool.
    """

    flat: FlatTexts
    embeddings: Tensor
    mask: Tensor


def join_prompts(
    batch: TextBatch,
    parts: Sequence[Tensor],
    places: Sequence[str],
    embed: Callable[[Tensor], Tensor],
    passages: Tensor,
) -> Prompts:
    """The prompts of B passages of N tokens, or of S sentences of tokens, with a query each.

    Between the ids of the three `parts` of a template are the `places`, `context` and `question`.
    `embed` maps ids to embeddings; those of the passages are given, (*batch.tokens.shape, E).
    """
    if batch.query is None or batch.query_mask is None:
        raise InputError("the model answers questions: give a query (`query`) with each passage.")
    tokens, size = batch.tokens.flatten(1), batch.mask[0, 0].numel() if batch.mask.ndim > 2 else 1
    item = torch.arange(tokens.shape[1], device=tokens.device) // size
    item = item.masked_fill(~batch.attendable().flatten(1), -1)
    no_item = torch.full_like(batch.query, -1)
    texts = {
        "context": (tokens, batch.mask.flatten(1), item, passages.flatten(1, -2)),
        "question": (batch.query, batch.query_mask, no_item, embed(batch.query)),
    }
    joined: list[tuple[Tensor, ...]] = []
    for part, place in zip(parts, (*places, None), strict=True):
        ids = part.expand(len(batch), -1)
        joined.append(
            (ids, torch.ones_like(ids, dtype=torch.bool), ids.new_full(ids.shape, -1), embed(ids))
        )
        joined += [texts[place]] if place else []
    ids, mask, item, embeddings = (
        torch.cat(columns, dim=1) for columns in zip(*joined, strict=True)
    )
    longest = int(mask.sum(-1).amax())
    order = mask.int().sort(dim=1, stable=True).indices[:, -longest:]  # padding first
    ids, mask, item = (column.gather(1, order) for column in (ids, mask, item))
    inside = replace(batch, tokens=ids, mask=item >= 0, labels=None, extras={})
    flat = FlatTexts(inside, item.clamp(min=0), batch.mask.shape[1], order)
    return Prompts(flat, embeddings[torch.arange(len(ids))[:, None], order], mask)


def text_tokenizer(tokenizer: str, spaced: bool = True) -> str:
    """A tokenizer, as JSON text, that finds no special token in a text and adds none to it.

    Names of template tokens in a passage or question become the pieces of their characters. A text
    that is `spaced` begins after a space, where the tokenizer marks spaces.
    """
    content = json.loads(tokenizer)
    special = {added["content"] for added in content["added_tokens"]}
    model, steps = content["model"], [content["normalizer"], _STRIP]
    if isinstance(model["vocab"], list):  # a unigram model would find whole tokens by their score
        model["vocab"] = [[f"\0{t}" if t in special else t, score] for t, score in model["vocab"]]
    if spaced and "ByteLevel" in json.dumps(content["pre_tokenizer"]):
        steps.append({"type": "Prepend", "prepend": " "})
    normalizer = {"type": "Sequence", "normalizers": [step for step in steps if step is not None]}
    changed: dict[str, Any] = {"added_tokens": [], "post_processor": None, "truncation": None}
    return json.dumps(content | changed | {"normalizer": normalizer})


def chat_template(given: Any) -> str | None:  # noqa: ANN401
    """The chat template of a model's folder or hub id, or of a tokenizer; None: it has none."""
    if not isinstance(given, str | Path):
        found = given.chat_template if isinstance(given, _HasChatTemplate) else None
        return found if isinstance(found, str) else None
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        try:
            file = find_file(str(given), name)
        except InputError:
            continue
        if file.suffix == ".jinja":
            return file.read_text(encoding="utf-8")
        found = read_json(file).get("chat_template")
        named = found if isinstance(found, list) else [{"name": "default", "template": found}]
        found = next((one.get("template") for one in named if one.get("name") == "default"), None)
        return found if isinstance(found, str) else None
    return None


def fill_chat(chat: str, template: str) -> str:
    """A prompt template as the message of a user, before the answer of the model.

    transformers renders chat templates, which whoever wrote a folder chose, in a sandbox.
    """
    names = {"bos_token": "[BOS]", "eos_token": "[EOS]", "add_generation_prompt": True}
    message = [{"role": "user", "content": template}]
    try:
        rendered: Any = render_jinja_template([message], chat_template=chat, **names)
    except Exception as error:
        reason = one_line(error)[:200]
        raise InputError(f"the model's chat template cannot be rendered: {reason}.") from error
    return str(rendered if isinstance(rendered, str) else rendered[0][0])


def split_template(template: str) -> tuple[list[str], list[str]]:
    """The three texts of a template, and the names of the two places between them."""
    if not isinstance(template, str):
        raise InputError(f"template is {template!r}; expected a text: put it in quotes for YAML.")
    parts = _PLACE.split(template)
    for name in ("context", "question"):
        if (count := parts[1::2].count(name)) != 1:
            raise InputError(
                f"template has {{{name}}} {count} times; expected it once, as in {PLAIN_TEMPLATE!r}."
            )
    return parts[::2], parts[1::2]


def encode_part(tokenizer: str, text: str) -> Tensor:
    """Ids (n,) of a text of a template, in which `[BOS]` and `[EOS]` are a tokenizer's special tokens.

    A special token that the tokenizer, a JSON, lacks is left out.
    """
    ids, full = [], Tokenizer.from_str(tokenizer)
    for part in filter(None, _SPECIAL.split(text)):
        if part not in SPECIAL_TOKENS:
            ids += full.encode(part, add_special_tokens=False).ids
        elif full.token_to_id(f"[attnlight {part}]") is None:
            ids.append(SPECIAL_TOKENS.index(part))
    return torch.tensor(ids, dtype=torch.long)


def encode_answers(tokenizer: str, classes: Sequence[str]) -> Tensor:
    """Token ids of each answer, (C, A), padded with -1, from a tokenizer's JSON."""
    reader, found = Tokenizer.from_str(tokenizer), dict[tuple[int, ...], str]()
    for name in classes:
        ids = tuple(reader.encode(name, add_special_tokens=False).ids)
        if not ids:
            raise InputError(f"the answer {name!r} has no token: name one that has.")
        if ids in found:
            raise InputError(f"the answers {found[ids]!r} and {name!r} are the same tokens.")
        found[ids] = name
    longest = max(map(len, found), default=0)
    rows = [[*ids, *[-1] * (longest - len(ids))] for ids in found]
    return torch.tensor(rows, dtype=torch.long)
