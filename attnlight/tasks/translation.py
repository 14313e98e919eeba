"""Train a translation network whose attention is to be tested."""

from importlib.metadata import version
from typing import Any

import torch
from torchmetrics import MeanMetric
from torchmetrics.text import BLEUScore
from typing_extensions import override

from attnlight.batch import SPECIAL_TOKENS, UNK, TextBatch
from attnlight.models.options import CustomNetwork, Seq2SeqNet
from attnlight.models.seq2seq import Seq2Seq
from attnlight.models.translate import END, translate
from attnlight.reference import evaluating
from attnlight.tasks.attention import AttentionTask

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:none|smooth:none"  # of BLEU, as sacrebleu names it
_UNKNOWN, _MATCHED_BY_NONE = SPECIAL_TOKENS[UNK], "\ufffd"


class Translator(AttentionTask):
    """A translation network, whose decoder attends to the words of the source.

    The loss is cross-entropy of the target's words and its end, with the words before given;
    validation and test log it with the accuracy of the next word. Test also translates each source,
    with no word given, by greedy search or a beam, and logs `test/exact`, the share of targets that are
    translated word for word, and `test/bleu`, BLEU of up to four words over the whole split (0 to 100), on
    the words of the corpus; a word of the target without a class is matched by none. Test prints how
    BLEU is computed, in the terms of sacrebleu's signature, whose value it is.

    Args:
        spec: Description of the corpus; the command line supplies it. Classes are target words.
        net: The network.
        beams: Hypotheses that search keeps of each source; 1: greedy search; 0: test does not translate.
        options: `optimizer`, `loss`, `vectors` and `objective`, see `AttentionTask`.
    """

    problem_name = "translation"

    def __init__(
        self,
        spec: dict[str, Any],
        net: Seq2SeqNet | CustomNetwork = Seq2SeqNet(),
        beams: int = 1,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, "translation", net, **options)  # type: ignore[arg-type]
        self.beams = self.hparams["beams"] = beams
        self.test_bleu, self.test_exact = BLEUScore(), MeanMetric()

    def translate(self, batch: TextBatch, beams: int = 1) -> list[list[str]]:
        """The words of the translation of each source of a batch, by greedy search or a beam."""
        with evaluating(self.model):
            found = translate(self.model, batch, beams=beams)
        return [self._words(row) for row in found.tolist()]

    @override
    def test_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        step: dict[str, Any] = self.validation_step(batch, batch_idx)
        if self.beams and isinstance(self.model, Seq2Seq) and batch.target is not None:
            real = batch.index >= 0
            found = translate(self.model, batch, beams=self.beams)[real]
            words = [self._words(row) for row in found.tolist()]
            known = [self._words(row, _MATCHED_BY_NONE) for row in batch.target[real].tolist()]
            exact = [one == other for one, other in zip(words, known, strict=True)]
            self.test_exact.update(torch.tensor(exact).float())
            self.test_bleu.update(list(map(" ".join, words)), [[" ".join(row)] for row in known])
        return step

    @override
    def on_test_epoch_end(self) -> None:
        super().on_test_epoch_end()
        if self.beams and isinstance(self.model, Seq2Seq):
            self.log("test/exact", self.test_exact)
            self.log("test/bleu", 100 * self.test_bleu.compute())
            self.test_bleu.reset()
            if self.trainer.is_global_zero:
                print(f"test/bleu: {SIGNATURE}|torchmetrics:{version('torchmetrics')}")

    def _words(self, classes: list[int], unknown: str = _UNKNOWN) -> list[str]:
        """The words of a row of classes without its end, and what stands for an unknown word."""
        words = (self.classes[number] for number in classes if number > END)
        return [unknown if word == _UNKNOWN else word for word in words]
