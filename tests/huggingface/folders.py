"""Folders of small random models with tokenizers, as `save_pretrained` writes them."""

import json
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
    """Train a tokenizer, write it and return it: of word pieces, of bytes, or of scored pieces."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    if name == "bert":
        special = ["[PAD]", "[unused]", "[CLS]", "[UNK]", "[SEP]", "[MASK]"]
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=90, special_tokens=special)
    elif name == "gpt2":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        end = ["<|endoftext|>"]
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=end, initial_alphabet=alphabet)
    else:
        special = ["<unk>", "<s>", "</s>"]
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=90, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    tokenizer.train_from_iterator(list(texts), trainer)
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
