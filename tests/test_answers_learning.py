"""A small Llama learns to answer from the one sentence that supports the answer."""

from pathlib import Path

import pytest

from attnlight.__main__ import main
from attnlight.records import read_record
from tests.commands import CONFIGS, CPU, QUIET, experiment

SUPERVISED = "--model.objective={lambda_supervise: 1, column: evidence}"


@pytest.mark.slow
def test_the_fact_of_an_answer_is_what_leaving_out_and_supervised_attention_find(
    here: Path,
) -> None:
    run = Path("checkpoints/babi_answers_1/r")
    generated = ["--data.test=null", "--data.test_size=500", "--trainer.max_epochs=1"]
    options = [*CPU, *QUIET, "--run=r", SUPERVISED, *generated]
    assert main(["fit", *experiment("babi_answers_1"), *options]) == 0
    tests = (CONFIGS / "tests/context.yaml").read_text().replace("instances: 500", "instances: 100")
    Path("context.yaml").write_text(tests)
    assert main(["test", str(run), "--tests", "context.yaml", *CPU, *QUIET]) == 0
    columns = read_record(run / "records/test/context_ablation.parquet").columns
    assert columns["correct"].mean() >= 0.98
    assert columns["finds_leave_one_out"].mean() >= 0.95
    assert columns["finds_attention"].mean() >= 0.95
