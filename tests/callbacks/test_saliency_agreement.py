"""Agreement of attribution methods against scipy and sets, a row at a time."""

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import pearsonr
from torch import Tensor

from attnlight.__main__ import main
from attnlight.callbacks import SaliencyAgreement
from attnlight.records import read_record
from tests.attribution.scenes import evaluated
from tests.callbacks.every import LABELS, METHODS, explained
from tests.callbacks.test_base import recorded
from tests.callbacks.token_loops import columns_of, levels, rho, tau
from tests.models import test_classifier as flat
from tests.outside import OutsideTask, Texts
from tests.turns import by_turns

RECORD = Path("records/test/saliency_agreement.parquet")
KINDS = ("tau", "spearman", "overlap", "pearson", "js")


def by_loops(one: Tensor, other: Tensor) -> dict[str, float]:
    """The measures of the scores (n,) of a row, whose ties are within rounding."""
    if len(one) < 2 or one.isnan().any() or other.isnan().any():
        return dict.fromkeys(KINDS, math.nan)
    ranks = levels(one), levels(other)
    k, both = math.ceil(round(len(one) / 10, 9)), 0.0
    for item in range(len(one)):
        chances = []
        for of in ranks:
            above, tied = int((of > of[item]).sum()), int((of == of[item]).sum())
            chances.append(min(1.0, max(0.0, (k - above) / tied)))
        both += chances[0] * chances[1]
    tied = any(of.max() == of.min() for of in ranks)
    pearson = math.nan if tied else float(pearsonr(one.double(), other.double()).statistic)
    sizes = one.double().abs(), other.double().abs()
    js = float(jensenshannon(*sizes)) ** 2 if all(map(torch.any, sizes)) else math.nan
    values = tau(one, other), rho(one, other), both / k, pearson, js
    return dict(zip(KINDS, values, strict=True))


@pytest.mark.parametrize(
    ("name", "signed"),
    by_turns(zip(["bilstm", "cnn", "han", "pair", "heads", "transformer"]), [False, True]),
)
def test_equals_loops_over_rows(name: str, signed: bool) -> None:
    model, batch, output, _ = evaluated(name, padding=2)
    columns = columns_of(SaliencyAgreement(METHODS, signed=signed), model, batch)
    scores = explained(model, batch, output.logits.argmax(-1))
    scores = scores if signed else {label: values.abs() for label, values in scores.items()}
    pairs, defined = list(combinations(LABELS, 2)), 0
    assert list(columns) == [
        *(f"tied_{label}" for label in LABELS),
        *(f"{kind}_{a}_{b}" for a, b in pairs for kind in KINDS),
        "chance_overlap",
    ]
    for row, items in enumerate(output.mask):
        size = int(items.sum())
        for one, other in pairs:
            kept = items.clone()
            if name in ("heads", "transformer") and "deletion" in (one, other):
                kept[output.rows[row, 1]] = False  # a token cannot do without itself
            expected = by_loops(scores[one][row, kept], scores[other][row, kept])
            for kind, value in expected.items():
                found = float(columns[f"{kind}_{one}_{other}"][row])
                assert found == pytest.approx(value, abs=1e-9, nan_ok=True), (kind, one, other)
                defined += not math.isnan(value)
        chance = math.ceil(round(size / 10, 9)) / size if size > 1 else math.nan
        assert float(columns["chance_overlap"][row]) == pytest.approx(chance, nan_ok=True)
    assert defined > 100


def test_tied_says_why_a_correlation_is_undefined() -> None:
    model, batch = flat.model("bilstm", "uniform"), flat.collate(flat.corpus())
    columns = columns_of(SaliencyAgreement(METHODS), model, batch)
    assert columns["tied_attention"].eq(1).all()
    assert columns["tau_attention_gradient"].isnan().all()
    assert columns["spearman_attention_gradient"].isnan().all()
    several = columns["chance_overlap"].isfinite()
    overlap = columns["overlap_attention_gradient"][several]
    torch.testing.assert_close(overlap, columns["chance_overlap"][several])
    assert columns["tied_random"].eq(0).sum() == several.sum()


@pytest.mark.parametrize("affine", [True, False])
def test_record_figure_and_ceilings_of_two_seeds(
    tmp_path: Path, affine: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, runs = Texts(), []
    methods = ["attention", "input_gradient", "random"]
    for seed in range(2):
        torch.manual_seed(seed)
        task, folder = OutsideTask(affine), tmp_path / f"e/seed{seed}"
        test = SaliencyAgreement(methods=methods, keep_scores=True)
        recorded(folder, test, figures=True, task=task, texts=texts)
        runs.append(folder)
    record = read_record(runs[0] / RECORD)
    assert record.metadata["measures"] == [
        f"tau_{pair}" for pair in ("attention_input_gradient", "attention_random")
    ] + ["tau_input_gradient_random"]
    assert record.metadata["signed"] is False
    assert record.metadata["top"] == 0.1
    described = record.metadata["methods"]["input_gradient"]
    assert (described["signed"], described["explains"]) == (True, "log odds")
    lengths = [len(text) for text in texts.tokens]
    assert [len(scores) for scores in record.columns["scores_random"]] == lengths
    assert min(min(scores) for scores in record.columns["scores_input_gradient"]) < 0
    assert list((runs[0] / "figures/test").glob("saliency_agreement.*"))

    assert main(["reliability", *map(str, runs)]) == 0
    seeds, pairs = capsys.readouterr().out.split("**Agreement of each pair")
    rows = [read_record(run / RECORD).columns for run in runs]
    ceilings: dict[str, dict[str, float]] = {}
    for method in methods:
        found = [
            by_loops(
                *(torch.from_numpy(np.array(run[f"scores_{method}"][row])).abs() for run in rows)
            )
            for row in range(len(texts))
        ]
        ceilings[method] = {kind: float(np.nanmean([x[kind] for x in found])) for kind in found[0]}
    assert ceilings["random"]["tau"] == 1
    lines = [[cell.strip() for cell in line.split("|")] for line in pairs.splitlines()]
    lines = [cells for cells in lines if len(cells) == 9 and " and " in cells[1]]
    for (one, other), cells in zip(combinations(methods, 2), lines, strict=True):
        for number, kind in enumerate(("tau", "spearman", "overlap")):
            each = np.stack([run[f"{kind}_{one}_{other}"] for run in rows])
            assert cells[2 + 2 * number].startswith(f"{np.nanmean(each):.3f} [")
            ceiling = min(ceilings[method][kind] for method in (one, other))
            assert cells[3 + 2 * number] == f"{ceiling:.3f}"
    assert f" {ceilings['input_gradient']['tau']:.3f} " in seeds
