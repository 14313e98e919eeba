"""A run that notes which texts each loop reads: `python -m tests.datamodules.counting OUT DEVICES`."""

import json
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from attnlight.batch import TextBatch
from attnlight.datamodules import PlantedEvidence


class Counting(pl.LightningModule):
    """Predicts nothing; writes the indices of every batch, by loop, on every rank."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.out = out
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: dict[str, list[list[int]]] = {}

    def note(self, loop: str, batch: TextBatch) -> None:
        self.seen.setdefault(loop, []).append(batch.index.tolist())

    def training_step(self, batch: TextBatch) -> torch.Tensor:
        self.note(f"train {self.current_epoch}", batch)
        return self.weight * len(batch)

    def validation_step(self, batch: TextBatch) -> None:
        self.note(f"{self.trainer.state.fn} validation", batch)

    def test_step(self, batch: TextBatch) -> None:
        self.note("test", batch)

    def predict_step(self, batch: TextBatch) -> None:
        self.note("predict", batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def save(self) -> None:
        path = self.out / f"rank{self.global_rank}.json"
        path.write_text(json.dumps({str(loop): seen for loop, seen in self.seen.items()}))


def quiet(**options: Any) -> pl.Trainer:
    """A trainer on the CPU that writes nothing."""
    names = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    return pl.Trainer(accelerator="cpu", **(dict.fromkeys(names, False) | options))


def run(out: Path, devices: int) -> None:
    """Fit two epochs, validate, test and predict on a planted corpus of odd size."""
    torch.set_num_threads(1)
    strategy = "ddp" if devices > 1 else "auto"
    trainer = quiet(devices=devices, strategy=strategy, max_epochs=2, num_sanity_val_steps=0)
    data = PlantedEvidence(
        train_size=101, validation_size=33, test_size=21, batch_size=8, eval_batch_size=8
    )
    model = Counting(out)
    trainer.fit(model, datamodule=data)
    trainer.validate(model, datamodule=data, verbose=False)
    trainer.test(model, datamodule=data, verbose=False)
    trainer.predict(model, datamodule=data, return_predictions=False)
    model.save()


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
