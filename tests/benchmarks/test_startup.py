import pytest

from tests.benchmarks.startup import HELP, modules_after, python

HEAVY = {"torch", "lightning", "torchmetrics", "datasets", "wandb", "matplotlib", "scipy"}


def test_the_measured_command_prints_the_help() -> None:
    assert python(HELP).startswith("usage: attnlight VERB")


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("report", "--help")])
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    loaded = modules_after(*arguments)
    assert "attnlight" in loaded
    assert not loaded & HEAVY


def test_what_a_verb_imports_is_seen() -> None:
    # An option that is not there: the verb's modules are imported, then its parser stops.
    assert {"torch", "lightning"} <= modules_after("fit", "--no-such-option")
