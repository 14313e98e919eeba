"""A run in Weights & Biases: a few curves of each test, and all measures in a table."""

import re
from collections.abc import Mapping
from fnmatch import filter as matching
from math import isnan
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import WandbLogger
from typing_extensions import override

from attnlight.figures import describe

CURVES = 3  # of each test, with the ends of their intervals
_CONSTRAINTS = ("worst_tvd",)  # kept at a bound by their test: a curve says nothing
TABLE_COLUMNS = ("test", "measure", "mean", "low", "high")
_OF_TEST = re.compile(r"(val|test)/([^/]+)/(.+)")
_STEP = "trainer/global_step"
_LEAST_BYTES = 64  # a row of W&B's history takes more


class WandbRun(WandbLogger):
    """Lightning's logger for W&B with names that give each test a section (`sections`).

    The names are changed for W&B alone: other loggers, and callbacks that monitor a value, have those
    that were logged.

    Several commands may continue one run. Offline they cannot know its last step, and W&B drops steps
    that it has seen, so each command begins after all steps that the files of earlier ones can hold.

    Args:
        monitor: The name by whose value the best epoch is chosen; the run's summary has its best.
        mode: `max` or `min`: which value is best.
        step: The training step of the checkpoint that is evaluated, 0 for `fit`.
        options: Those of `WandbLogger`.
    """

    def __init__(
        self,
        monitor: str = "val/loss",
        mode: str = "min",
        step: int = 0,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._monitor, self._mode, self._checkpoint_step = monitor, mode, step
        earlier = Path(self.save_dir or "").glob(f"wandb/*/run-{self.version}.wandb")
        self._first_step = sum(path.stat().st_size for path in earlier) // _LEAST_BYTES

    @property
    @override
    @rank_zero_experiment
    def experiment(self) -> Any:
        begins, run = self._experiment is None, super().experiment
        if begins:
            run.define_metric(self._monitor, step_metric=_STEP, step_sync=True, summary=self._mode)
            if self._first_step:
                first = max(self._first_step, run.step)
                run.log({}, step=first, commit=False)  # what is logged next has this step
        return run

    @override
    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        import wandb

        sent, rows = sections(metrics)
        for stage, table in rows.items():
            sent[f"measures/{stage}"] = wandb.Table(columns=list(TABLE_COLUMNS), data=table)
        super().log_metrics(sent, None if step is None else step + self._checkpoint_step)


def sections(logged: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[list[Any]]]]:
    """What W&B is sent of logged values: values by name, and the rows of one table for each stage.

    `<stage>/<test>/<name>` of a figure or measure becomes `<test>/<stage>_<name>`, so that each test
    has a section. Of the measures, which have intervals, the first three are sent with these, but where
    they are undefined: the headlines that the test's description names, then others, the same in every
    epoch and run. All that a test logs is in the rows (`TABLE_COLUMNS`). Names that are not of a test stay
    as they are.

    Example:
        >>> mine = {"flip_rate": 0.5, "flip_rate_low": 0.4, "flip_rate_high": 0.6, "non_finite": 0}
        >>> sections({"val/loss": 1.0} | {f"val/mine/{name}": mine[name] for name in mine})
        ({'val/loss': 1.0, 'mine/val_flip_rate': 0.5, 'mine/val_flip_rate_low': 0.4, \
'mine/val_flip_rate_high': 0.6}, {'val': [['mine', 'flip_rate', 0.5, 0.4, 0.6], \
['mine', 'non_finite', 0, None, None]]})
    """
    sent: dict[str, Any] = {}
    rows: dict[str, list[list[Any]]] = {}
    by_test: dict[tuple[str, str], dict[str, Any]] = {}
    for key, value in logged.items():
        found = _OF_TEST.fullmatch(key)
        if found is None or (
            found[3] != "figure" and f"{found[1]}/{found[2]}/non_finite" not in logged
        ):
            sent[key] = value
        elif found[3] == "figure":
            sent[f"{found[2]}/{found[1]}_figure"] = value
        else:
            by_test.setdefault((found[1], found[2]), {})[found[3]] = value
    for (stage, test), values in by_test.items():
        measures = [name for name in values if {f"{name}_low", f"{name}_high"} <= values.keys()]
        first = [name for key in describe(test).headlines for name in matching(measures, key)[:1]]
        named = [n for n in dict.fromkeys([*first, *measures]) if n not in _CONSTRAINTS]
        for name in [name for name in named[:CURVES] if not isnan(values[name])]:
            for end in ("", "_low", "_high"):
                sent[f"{test}/{stage}_{name}{end}"] = values[name + end]
        ends = {f"{name}_{end}" for name in measures for end in ("low", "high")}
        rows.setdefault(stage, []).extend(
            [test, name, value, values.get(f"{name}_low"), values.get(f"{name}_high")]
            for name, value in values.items()
            if name not in ends
        )
    return sent, rows
