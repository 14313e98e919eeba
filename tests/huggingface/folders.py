"""Folders of small random models with tokenizers, as `save_pretrained` writes them."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.huggingface.models import build

TEXTS = (
    "a gripping , funny film",
    "dull and much too long",
    "the plot is thin but the cast shines",
    "an unfunny , overlong mess",
)
NAMES = {"id2label": {0: "NEG", 1: "POS"}, "label2id": {"NEG": 0, "POS": 1}}


def write_tokenizer(folder: Path, name: str, texts: Iterable[str] = TEXTS) -> Any:
    """Make a tokenizer, write it and return it: of word pieces, of bytes, or of scored pieces.

    Words are pieces of their own but for those that contain another word. Pieces are listed, not
    learned: ties leave the order of learned ones, hence the models made for them, to chance.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text)})
    letters = sorted({letter for word in words for letter in word})
    whole = [
        word
        for word in words
        if len(word) > 1 and not any(word != other in word for other in words if len(other) > 2)
    ]
    if name == "bert":
        special = ["[PAD]", "[unused]", "[CLS]", "[UNK]", "[SEP]", "[MASK]"]
        pieces = [*special, *letters, *(f"##{letter}" for letter in letters), *whole]
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.add_special_tokens(special)
    elif name == "gpt2":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        end = ["<|endoftext|>"]
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=end, initial_alphabet=alphabet)
        tokenizer.train_from_iterator(list(texts), trainer)
    else:
        scores = dict.fromkeys(["<unk>", "<s>", "</s>"], 0.0)
        scores |= dict.fromkeys([*"▁", *letters], -6.0) | {f"▁{w}": -8.0 for w in whole}
        tokenizer = Tokenizer(models.Unigram(list(scores.items()), 0, False))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    ids = tokenizer.token_to_id
    if name == "bert":
        tokenizer.post_processor = processors.BertProcessing(
            ("[SEP]", ids("[SEP]")), ("[CLS]", ids("[CLS]"))
        )
        tokenizer.enable_padding(length=32)  # as many published files have
        tokenizer.enable_truncation(16)
    elif name != "gpt2":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", ids("<s>"))]
        )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def write_model(
    folder: Path,
    name: str = "bert",
    auto: str = "AutoModelForSequenceClassification",
    texts: Iterable[str] = TEXTS,
    **options: Any,
) -> Path:
    size = write_tokenizer(folder, name, texts).get_vocab_size()
    model = build(name, auto, **({"vocab_size": size} | options))
    model.save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["vocab_size"] >= size
    return folder


def write_decoder(
    folder: Path, name: str = "gpt2", texts: Iterable[str] = TEXTS, **options: Any
) -> Path:
    """A causal model that reads 256 tokens, and its tokenizer."""
    tokenizer = write_tokenizer(folder, name if name == "gpt2" else "llama", texts)
    length = {"n_positions" if name == "gpt2" else "max_position_embeddings": 256}
    size = {"vocab_size": tokenizer.get_vocab_size()}
    build(name, "AutoModelForCausalLM", **(size | length | options)).save_pretrained(folder)
    return folder
