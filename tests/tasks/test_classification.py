import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from attnlight.batch import TextBatch
from attnlight.checkpoints import AtomicCheckpointIO
from attnlight.errors import InputError
from attnlight.models import HierarchicalClassifier
from attnlight.tasks import AttentionClassifier
from tests.bases import classifier, spec

FLAG = 7  # the word that decides the label
SMALL: dict[str, Any] = {"embedding_size": 8, "hidden_size": 4, "encoder": "bigru"}
HAN = SMALL | {"hierarchical": True}
PARTS = {
    False: ["embedding", "encoder", "attention", "decoder"],
    True: [
        "embedding",
        "word_encoder",
        "word_attention",
        "sentence_encoder",
        "sentence_attention",
        "decoder",
    ],
}


def batches(sentences: bool = True, count: int = 4) -> list[TextBatch]:
    """Texts of 1 to 4 sentences of 5 words; label 1 has `FLAG` somewhere."""
    random = torch.Generator().manual_seed(0)
    made = []
    for number in range(count):
        tokens = torch.randint(8, 30, (16, 4, 5), generator=random)
        sizes = torch.randint(1, 5, (16, 1), generator=random)
        tokens[torch.arange(4) >= sizes] = 0
        labels = torch.arange(16) % 2
        tokens[labels == 1, 0, 2] = FLAG
        if not sentences:
            tokens = tokens.flatten(1)
        index = torch.arange(16) + 16 * number
        made.append(TextBatch(index=index, tokens=tokens, mask=tokens != 0, labels=labels))
    return made


def loader(sentences: bool = True) -> DataLoader[TextBatch]:
    return DataLoader(batches(sentences), batch_size=None, shuffle=False)  # type: ignore[arg-type]


class RememberRates(pl.Callback):
    """Learning rate during each epoch."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


def fit(
    task: AttentionClassifier, epochs: int, ckpt_path: Path | None = None, **options: Any
) -> Any:
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        plugins=[AtomicCheckpointIO()],
        **({"enable_checkpointing": False} | options),
    )
    data = loader(bool(task.hparams["net"]["hierarchical"]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(workers|logging interval|exists and is not)")
        trainer.fit(task, data, data, ckpt_path=ckpt_path)
    return trainer


@pytest.mark.parametrize(("option", "value"), [("dropout_on", "logits"), ("attention_size", 3)])
def test_options_reach_the_model(option: str, value: object) -> None:
    for hierarchical in (False, True):
        task = classifier(spec(40, 3), **SMALL, hierarchical=hierarchical, **{option: value})
        if option == "dropout_on":
            assert task.model.dropout_on == value
        else:
            keys = [p for name, p in task.model.named_parameters() if name.endswith("key.bias")]
            assert [len(key) for key in keys] == [3] * (1 + hierarchical)


@pytest.mark.parametrize("encoder", ["bigru", "conv", "none"])
def test_a_hierarchical_model_learns_which_word_decides(encoder: str) -> None:
    torch.manual_seed(0)
    task = classifier(spec(40, 2), **HAN | {"encoder": encoder}, learning_rate=0.03)
    assert isinstance(task.model, HierarchicalClassifier)
    trainer = fit(task, 12)
    assert trainer.callback_metrics["val/accuracy"] == 1.0
    if encoder != "none":  # states of other words may know of it
        return
    task.eval()
    with torch.no_grad():
        output = task.validation_step(batches()[0], 0)["output"]
    flagged = output.layers[0][1::2, 0]  # the first sentence of each text of label 1
    assert (flagged.argmax(-1) == 2).double().mean() > 0.9


class TestParts:
    @pytest.mark.parametrize("hierarchical", [False, True])
    def test_have_weight_decays_by_name(self, hierarchical: bool) -> None:
        names = PARTS[hierarchical]
        decay = {name: float(number) for number, name in enumerate(names, start=1)}
        options = SMALL | {"hierarchical": hierarchical, "weight_decay": decay}
        task = classifier(spec(40, 2), **options)
        optimizer = task.configure_optimizers()
        assert isinstance(optimizer, torch.optim.Adam)
        held = [(group["weight_decay"], group["params"]) for group in optimizer.param_groups]
        for name, (value, parameters) in zip(names, held, strict=True):
            assert value == decay[name]
            own = list(getattr(task.model, name).parameters())
            assert all(p is q for p, q in zip(own, parameters, strict=True))
        assert sum(len(ps) for _, ps in held) == len(list(task.model.parameters()))

    def test_another_name_is_refused(self) -> None:
        task = classifier(spec(40, 2), **HAN, weight_decay={"encoder": 0.1})
        with pytest.raises(InputError, match=f"'encoder'; the model has {', '.join(PARTS[True])}"):
            task.configure_optimizers()


class TestPlateau:
    def test_rate_is_halved_after_each_epoch_without_a_new_best(self) -> None:
        rates = RememberRates()
        # Too small to change a prediction: the first epoch is the best.
        task = classifier(spec(40, 2), **HAN, learning_rate=1e-6, plateau_factor=0.5)
        fit(task, 4, callbacks=[rates])
        assert rates.rates == [1e-6, 1e-6, 0.5e-6, 0.25e-6]

    def test_without_it_the_rate_stays(self) -> None:
        rates = RememberRates()
        fit(classifier(spec(40, 2), **HAN, learning_rate=1e-6), 3, callbacks=[rates])
        assert rates.rates == [1e-6] * 3

    def test_a_resumed_run_is_as_an_undisturbed_one(self, tmp_path: Path) -> None:
        def run(epochs: int, folder: str, ckpt_path: Path | None = None) -> dict[str, Any]:
            torch.manual_seed(0)
            task = classifier(spec(40, 2), **HAN, learning_rate=1e-6, plateau_factor=0.5)
            keep = ModelCheckpoint(
                tmp_path / folder,
                filename="last",
                save_on_train_epoch_end=True,
                enable_version_counter=False,
            )
            options = {"callbacks": [keep], "enable_checkpointing": True}
            fit(task, epochs, ckpt_path, **options)
            held: dict[str, Any] = torch.load(tmp_path / folder / "last.ckpt", weights_only=True)
            return held

        whole = run(5, "whole")
        first = run(2, "parts")
        resumed = run(5, "parts", tmp_path / "parts" / "last.ckpt")
        rates = [
            part["optimizer_states"][0]["param_groups"][0]["lr"] for part in (first, resumed, whole)
        ]
        assert rates == [0.5e-6, 0.5**4 * 1e-6, 0.5**4 * 1e-6]
        assert resumed["lr_schedulers"] == whole["lr_schedulers"]
        assert whole["lr_schedulers"][0]["last_epoch"] == 5
        for name, tensor in whole["state_dict"].items():
            assert torch.equal(resumed["state_dict"][name], tensor), name

    @pytest.mark.parametrize("factor", [0.0, 1.0, 2.0])
    def test_a_factor_that_does_not_reduce_is_refused(self, factor: float) -> None:
        task = classifier(spec(40, 2), **HAN, plateau_factor=factor)
        with pytest.raises(InputError, match=f"plateau_factor is {factor}"):
            task.configure_optimizers()


@pytest.mark.parametrize("hierarchical", [False, True])
def test_gradients_are_clipped_with_those_of_embeddings_among_them(hierarchical: bool) -> None:
    """On a CPU these are sparse until just before the step."""
    options = SMALL | {"hierarchical": hierarchical, "optimizer": "sgd", "learning_rate": 1.0}
    task = classifier(spec(40, 2), **options, initialization="xavier")
    before = [parameter.detach().clone() for parameter in task.model.parameters()]
    fit(task, 1, gradient_clip_val=1e-3, limit_train_batches=1)
    pairs = zip(before, task.model.parameters(), strict=True)
    moved = torch.cat([(own - other).flatten() for own, other in pairs]).norm()
    assert task.model.embedding.sparse
    assert moved.item() == pytest.approx(1e-3, rel=1e-2)


class TestMistakes:
    @pytest.mark.parametrize("hierarchical", [False, True])
    def test_a_corpus_of_the_other_kind(self, hierarchical: bool) -> None:
        task = classifier(spec(40, 2), **SMALL, hierarchical=hierarchical)
        setting = "true" if hierarchical else "false"
        with pytest.raises(InputError, match=f"set `sentences: {setting}` in `data`"):
            task.validation_step(batches(sentences=not hierarchical)[0], 0)

    @pytest.mark.parametrize(("labels", "has"), [(None, "no labels"), ((16, 20), "each token")])
    def test_a_corpus_without_a_label_for_each_text(
        self, labels: tuple[int, ...] | None, has: str
    ) -> None:
        (batch,) = batches(sentences=False, count=1)
        given = None if labels is None else torch.zeros(labels, dtype=torch.long)
        with pytest.raises(InputError, match=has):
            classifier(spec(40, 2), **SMALL).validation_step(replace(batch, labels=given), 0)

    def test_sentence_dropout_without_sentences(self) -> None:
        with pytest.raises(InputError, match=r"sentence_dropout is 0\.2, but .* no sentences"):
            classifier(spec(40, 2), **SMALL, sentence_dropout=0.2)
