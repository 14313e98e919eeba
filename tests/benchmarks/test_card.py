"""What the card says that it will cost, against what it reads."""

import re

import pytest

from tests.benchmarks.card import bert, passes


@pytest.mark.parametrize("tokens", [8, 20])
def test_the_cost_is_said_before_it_is_there(
    tokens: int, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    read, _ = passes(*bert(8, tokens))
    said = re.findall(
        r"faithfulness: about (\d+) forward passes for each of 8 texts", capsys.readouterr().err
    )
    assert len(said) == 1
    # Another test of the card reads the text without each of its items, which the two share.
    assert int(said[0]) == pytest.approx(read["faithfulness"] + tokens - 1, rel=0.2)
