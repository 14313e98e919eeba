"""The tokenizer of a pretrained model, with the ids that attnlight gives special tokens."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tokenizers import BertWordPieceTokenizer, Tokenizer

from attnlight.batch import SPECIAL_TOKENS
from attnlight.errors import InputError, one_line
from attnlight.storage.files import read_json

_TOKENIZER = "tokenizer.json"
_SLOW = ("vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
# Models whose `vocab.txt` holds word pieces.
_WORD_PIECES = ("bert", "convbert", "distilbert", "electra", "mobilebert", "squeezebert")
_SAMPLE = "A film: 12 words, gripping throughout."
# Models whose positions begin after the number of padding.
_AFTER_PADDING = ("roberta", "camembert", "mpnet", "longformer", "xmod", "data2vec-text", "ibert")
_PADDING = ("[PAD]", "<pad>", "<|padding|>", "<|pad|>")


@runtime_checkable
class _Fast(Protocol):
    """A fast tokenizer of transformers."""

    backend_tokenizer: Any


def find_file(path: str, name: str = _TOKENIZER) -> Path:
    """A file of a model: in a folder, or on the hub.

    Raises:
        InputError: There is none.
    """
    place = Path(path)
    if place.is_dir() or place.is_absolute():
        if (place / name).is_file():
            return place / name
        older = [file for file in _SLOW if (place / file).is_file()]
        if name == _TOKENIZER and older:
            raise InputError(
                f"{path} has {older[0]}, but no {name}: have transformers write one by "
                f"{rewriting_command(path, 'AutoTokenizer')}."
            )
        raise InputError(f"there is no {name} in {path}; expected a model's folder or its hub id.")
    from huggingface_hub import hf_hub_download  # slow

    try:
        return Path(hf_hub_download(path, name))
    except (OSError, ValueError) as error:
        raise InputError(
            f"there is no {name} of {path!r}, neither in a folder of that name nor on the hub or in its "
            f"cache ({type(error).__name__})."
        ) from error


def rewriting_command(path: str, kind: str) -> str:
    """The shell command by which a class of transformers reads a folder and writes its files anew."""
    saved = json.dumps(path)
    code = (
        f"from transformers import {kind} as M; M.from_pretrained({saved}).save_pretrained({saved})"
    )
    return f"`python -c {shlex.quote(code)}`"


def longest_text(config: Mapping[str, Any]) -> int | None:
    """Most tokens of a text that a model reads, special ones included, by its configuration.

    None if it names no limit.
    """
    most = config.get("max_position_embeddings", config.get("n_positions"))
    padding, kind = config.get("pad_token_id") or 0, str(config.get("model_type"))
    if not isinstance(most, int | None) or not isinstance(padding, int):
        raise InputError(
            f"the model's configuration gives {most!r} as the most positions and {padding!r} as padding."
        )
    offset = padding + 1 if any(name in kind for name in _AFTER_PADDING) else 0
    return None if most is None else most - offset


def read_tokenizer(
    given: Any,  # noqa: ANN401
    length: int | None = None,
) -> tuple[Tokenizer, list[int]]:
    """A pretrained model's tokenizer with attnlight's ids, and the model's own id of each.

    The ids 0 to 3 are padding, the unknown token, and the special tokens before and after a text; all
    others follow in the model's order. A special token that the model lacks has an id all the same,
    which no text contains; its own id is that of another special token.

    Args:
        given: Folder or hub id of a model, or a fast tokenizer of transformers or tokenizers.
        length: Number of tokens to which texts are cut, special ones included; None: they are not.

    Raises:
        InputError: There is no such tokenizer, or it puts several special tokens before or after a
            text.
    """
    place = f"{given}" if isinstance(given, str | Path) else f"the given {type(given).__name__}"
    try:
        if isinstance(given, str | Path):
            content = _word_pieces(Path(given)) or read_json(find_file(str(given)))
        else:
            tokenizer = given.backend_tokenizer if isinstance(given, _Fast) else given
            if not isinstance(tokenizer, Tokenizer):
                raise InputError(
                    f"{type(given).__name__} is no fast tokenizer: give one that has a "
                    f"`backend_tokenizer`, or the folder of a {_TOKENIZER}."
                )
            content = json.loads(tokenizer.to_str())
        return _renumber(Tokenizer.from_str(json.dumps(content)), content, place, length)
    except (InputError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of tokenizers is no `Exception`
        reason = one_line(error)[:200]
        raise InputError(
            f"the {_TOKENIZER} of {place} is not one that can be read: {reason}."
        ) from error


def corpus_tokenizer(path: str, truncate: int | None = None, joined: bool = False) -> Tokenizer:
    """The tokenizer of a model, cut at what the model reads or at `truncate` tokens beside special ones.

    `joined` says whether special tokens are those of pairs. Raises as `read_tokenizer`.
    """
    tokenizer, _ = read_tokenizer(path)
    lengths = [longest_text(read_json(find_file(path, "config.json")))]
    if truncate is not None:
        lengths.append(truncate + tokenizer.num_special_tokens_to_add(joined))
    if known := [length for length in lengths if length is not None]:
        tokenizer.enable_truncation(min(known))
    return tokenizer


def _word_pieces(folder: Path) -> dict[str, Any] | None:
    """What transformers makes of a BERT's `vocab.txt`; None if a folder has another tokenizer."""
    if (folder / _TOKENIZER).is_file() or not (folder / "vocab.txt").is_file():
        return None
    files = [folder / name for name in ("tokenizer_config.json", "config.json")]
    options, config = (read_json(file) if file.is_file() else {} for file in files)
    named = options.get("tokenizer_class") or config.get("tokenizer_class")
    kind = str(named or config.get("model_type")).lower()
    words = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    special = {"[UNK]", "[SEP]", "[CLS]", "[PAD]", "[MASK]"}
    if kind.removesuffix("fast").removesuffix("tokenizer") not in _WORD_PIECES or special - {
        *words
    }:
        return None
    tokenizer = BertWordPieceTokenizer(
        {word: number for number, word in enumerate(words)},
        handle_chinese_chars=options.get("tokenize_chinese_chars", True),
        strip_accents=options.get("strip_accents"),
        lowercase=options.get("do_lower_case", True),
    )
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    return content


def _renumber(
    given: Tokenizer, content: dict[str, Any], path: str, length: int | None
) -> tuple[Tokenizer, list[int]]:
    """`read_tokenizer` of a tokenizer and its description, which is changed."""
    given.no_padding()
    given.no_truncation()
    vocabulary = given.get_vocab(with_added_tokens=True)
    roles = _special_tokens(given, content, path)
    held = [vocabulary[token] for token in roles if token is not None]
    other = held[-1] if held else 0
    first = [other if token is None else vocabulary[token] for token in roles]
    own = first + sorted(set(vocabulary.values()).difference(held))
    names = {number: token for token, number in vocabulary.items()}
    tokens = [
        f"[attnlight {name}]" if token is None else token
        for name, token in zip(SPECIAL_TOKENS, roles, strict=True)
    ]
    tokens += [names[number] for number in own[len(roles) :]]
    numbers = {token: number for number, token in enumerate(tokens)}
    model = content["model"]
    if isinstance(model["vocab"], list):  # a unigram model: scores in the order of ids
        scores = dict(map(tuple, model["vocab"]))
        model["vocab"] = [[token, scores.get(token, -1e4)] for token in tokens]
        if model.get("unk_id") is not None:
            model["unk_id"] = 1
    else:
        model["vocab"] = numbers
    for added in content["added_tokens"]:
        added["id"] = numbers[added["content"]]
    content |= {"padding": None, "truncation": None}
    content["post_processor"] = _renumbered(content["post_processor"], numbers)
    tokenizer = Tokenizer.from_str(json.dumps(content))
    if [own[number] for number in tokenizer.encode(_SAMPLE).ids] != given.encode(_SAMPLE).ids:
        raise InputError(f"the tokenizer of {path} cannot be given other ids.")
    if length is not None:
        tokenizer.enable_truncation(length)
    return tokenizer, own


def _special_tokens(tokenizer: Tokenizer, content: dict[str, Any], path: str) -> list[str | None]:
    """Names of the tokens for padding, the unknown, before and after a text; None: there is none."""
    model, encoded = content["model"], tokenizer.encode(_SAMPLE)
    special = encoded.special_tokens_mask
    start = special.index(0)
    stop = len(special) - special[::-1].index(0)
    before, after = encoded.tokens[:start], encoded.tokens[stop:]
    if len(before) > 1 or len(after) > 1 or (before and before == after):
        raise InputError(
            f"the tokenizer of {path} puts {' '.join(before)} before a text and {' '.join(after)} after "
            "it; expected at most one token on each side, and not the same."
        )
    unknown = model.get("unk_token")
    if isinstance(model["vocab"], list) and model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    boundaries = [*before, *after]
    if unknown in boundaries:  # GPT-2's <|endoftext|>
        unknown = None
    padding = (name for name in _PADDING if tokenizer.token_to_id(name) is not None)
    return [next(padding, None), unknown or None, (*before, None)[0], (*after, None)[0]]


def _renumbered(part: Any, numbers: dict[str, int]) -> Any:  # noqa: ANN401
    """A post-processor's description with other ids of its special tokens."""
    if isinstance(part, list):
        return [_renumbered(item, numbers) for item in part]
    if not isinstance(part, dict):
        return part
    changed = {name: _renumbered(value, numbers) for name, value in part.items()}
    for name in ("sep", "cls"):
        if isinstance(part.get(name), list):
            changed[name] = [part[name][0], numbers[part[name][0]]]
    if isinstance(part.get("special_tokens"), dict):
        changed["special_tokens"] = {
            name: {**token, "ids": [numbers[one] for one in token["tokens"]]}
            for name, token in part["special_tokens"].items()
        }
    return changed
