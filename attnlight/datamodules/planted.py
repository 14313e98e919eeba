"""The planted corpus: texts with known evidence, generated from a seed."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from typing_extensions import override

from attnlight.batch import BOS, EOS, UNK
from attnlight.data.dataset import split_writer
from attnlight.data.planted import PlantedSpec
from attnlight.data.raw_text import RawText
from attnlight.data.sentences import SentenceRules
from attnlight.datamodules.base import CorpusDataModule, CorpusOptions
from attnlight.datamodules.flat_options import flat_options
from attnlight.datamodules.prepared_format import describe_splits
from attnlight.errors import InputError, require_at_least
from attnlight.records import list_column


class PlantedEvidence(CorpusDataModule):
    """A synthetic corpus with known evidence: fillers, planted keywords and their signs.

    Each text draws its length, its label and its words independently. Fillers (`filler0`, ...) carry
    no information. Keywords are at random positions: with two classes `bad0`, ... for label 0 and
    `good0`, ... for label 1, with more `topic2word0`, ... The label is the class that most count for.

    With `negation` a text is negated with that probability: it is a text of the class before its
    label (cyclically) with a negator (`not0`, ...) directly before every keyword, and a keyword
    after a negator counts for the class after its own (with two classes: the other one). Texts that
    are not negated hold as many negators, each before a filler, without effect. So the bag of words
    of a negated text has the same distribution as that of another class's text that is not negated:
    a model without word order cannot distinguish them, and with two classes its accuracy on negated
    texts equals its error rate on the others. With a probability below one half it learns the
    others; 0.4 is a good value.

    The extra `evidence` (int8) gives the truth for the text's label:

    * keyword not negated: +1 of the label's class, -1 of another class (a distractor);
    * negated keyword: -1, since without its negator it is evidence against the label;
    * its negator: +1 if the two together count for the label, -1 if for another class (a negated
      distractor);
    * fillers, and negators before a filler: 0.

    `rule`, `one_sided`, `place`, `copies`, `balance`, `label_noise` and `decoys` make other kinds of
    evidence, with these signs:

    * `rule: order`: distractors have 0, since a later keyword overrides them;
    * `rule: phrase`: both words of a pair have +1, distractors, which are no phrase, 0;
    * `rule: conjunction`: keyword and gate have +1 together, and -1 in a text of class 0, where
      either is alone; the gate's counterfactual is a filler;
    * `one_sided`: texts of class 0 have no evidence;
    * `label_noise`: signs are those for the label before it was exchanged.

    With `queries` each text is the passage of a pair. With `decoys` these have 0, and the extra
    `decoy` (int8) is 1 on them and 0 elsewhere.

    With `sentence_length` batches hold sentences, tokens and evidence (B, S, N), of the same texts.

    Args:
        train_size: Number of training texts.
        validation_size: Number of validation texts.
        test_size: Number of test texts.
        planted: What a text is drawn from.
        sentence_length: Split each text into sentences of this many words, the last one shorter;
            null: texts are not split.
        common: The options of every corpus.

    Raises:
        InputError: A number is not positive.
    """

    @flat_options
    def __init__(
        self,
        train_size: int = 4000,
        validation_size: int = 500,
        test_size: int = 501,
        *,
        planted: PlantedSpec,
        sentence_length: int | None = None,
        common: CorpusOptions,
    ) -> None:
        super().__init__(common=common)
        self.sizes = {"train": train_size, "validation": validation_size, "test": test_size}
        require_at_least(1, **{f"{split}_size": size for split, size in self.sizes.items()})
        self.planted, self.sentence_length = planted, sentence_length
        self.nested = sentence_length is not None
        if self.nested and planted.boundary_tokens:
            raise InputError(
                "boundary_tokens is for texts without sentences: leave out it or sentence_length."
            )
        self.paired = self.paired or planted.queries > 0
        if self.nested and planted.queries:
            raise InputError(
                "queries is for texts without sentences: leave it or sentence_length out."
            )
        if sentence_length is not None:
            self.sentence_rules = SentenceRules(length=sentence_length)

    @override
    def evaluate_as(self, encoding: RawText, name: str) -> None:
        super().evaluate_as(encoding, name)
        encoding.require_classes(self.planted.classes, self.corpus_name)
        rules = self.sentence_rules
        if rules is not None and rules.length is None:
            raise InputError(
                f"{self.corpus_name} has no sentences of a language; the checkpoint expects them"
            )
        self.sentence_length = None if rules is None else rules.length

    @override
    def recipe(self) -> dict[str, Any]:
        # Included only if used, so that fingerprints of other corpora do not change.
        sentences = {"sentence_length": self.sentence_length} if self.nested else {}
        options = asdict(self.planted)
        names = ("rule", "one_sided", "place", "copies", "balance", "label_noise", "decoys")
        for name in (*names, "queries", "boundary_tokens"):
            if options[name] == getattr(PlantedSpec, name):
                del options[name]
        return {"sizes": self.sizes, **options, **sentences}

    @override
    def build(self, folder: Path) -> None:
        tokenizer, classes = self.planted.tokenizer_json(), list(self.planted.classes)
        ids, labels = np.arange(len(self.planted.words), dtype=np.int32), np.arange(len(classes))
        if self.encoding is not None:
            vocabulary, classes = self.encoding.parsed_tokenizer.get_vocab(), self.encoding.classes
            ids = np.array([vocabulary.get(word, UNK) for word in self.planted.words], np.int32)
            labels = np.array([classes.index(name) for name in self.planted.classes])
            tokenizer = str(self.encoding.tokenizer)
        extras = ["evidence", "decoy"] if self.planted.decoys else ["evidence"]
        kinds = dict.fromkeys(extras, pyarrow.list_(pyarrow.int8()))
        for number, (split, size) in enumerate(self.sizes.items()):
            start, sentence = 0, self.sentence_length
            with split_writer(folder / split, kinds) as write:
                for texts in self.planted.draw(number, size):
                    along = {"tokens": ids[texts.tokens]} | {x: getattr(texts, x) for x in extras}
                    counts = texts.lengths
                    if self.planted.boundary_tokens:
                        stops = counts.cumsum()
                        places = np.stack([stops - counts, stops], axis=1).ravel()
                        enclosing = {name: [0, 0] for name in along} | {"tokens": [BOS, EOS]}
                        along = {
                            name: np.insert(values, places, enclosing[name] * len(counts))
                            for name, values in along.items()
                        }
                        counts = counts + 2
                    columns: dict[str, Any] = {
                        "index": np.arange(start, start + len(texts.labels)),
                        "label": labels[texts.labels],
                        "length": counts,
                    }
                    columns |= {name: list_column(values, counts) for name, values in along.items()}
                    if self.planted.queries:
                        asked = texts.asked + len(ids) - self.planted.queries
                        columns["query"] = list_column(ids[asked], np.ones_like(asked))
                        columns["query_text"] = [self.planted.words[word] for word in asked]
                    if sentence is not None:
                        counts = -(-texts.lengths // sentence)
                        words = np.full(counts.sum(), sentence, np.int32)
                        words[np.cumsum(counts) - 1] -= counts * sentence - texts.lengths
                        columns["sentences"] = list_column(words, counts)
                    write(columns)
                    start += len(texts.labels)
        rows = {split: {"rows": size} for split, size in self.sizes.items()}
        describe_splits(folder, tokenizer, classes=classes, splits=rows, extras=extras)
