"""Options of tests, tasks and corpora that are refused, each with a sentence that says why."""

import math
from pathlib import Path
from typing import Any

import pytest

from attnlight.callbacks import (
    DecisionFlip,
    EvidenceMass,
    GradientSearch,
    HeadAblation,
    ImpermissibleMass,
    InterpretabilityTest,
    Plausibility,
    Sanity,
    SingleErasure,
)
from attnlight.errors import InputError
from tests.callbacks.every import NEEDS, every
from tests.callbacks.hooks.test_prediction_writer import corpus, task_of
from tests.callbacks.test_base import run_test, trainer

ONE = r"is 0; it must be at least 1\.$"
LABELS = r"\['random', 'random'\]; expected {} or more, each with a `label` of its own"
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "AdversarialAttention": [
        ({"epsilon": 0.0}, "epsilon of adversarial_attention is 0.0; it must be above 0"),
        ({"epsilon": math.nan}, "epsilon of adversarial_attention is nan"),
        ({"search": GradientSearch(starts=0)}, rf"search\.starts of adversarial_attention {ONE}"),
        ({"search": GradientSearch(steps=0)}, r"search\.steps of adversarial_attention is 0"),
        ({"search": GradientSearch(instances=0)}, r"search\.instances of .* is 0"),
        ({"evaluations": 2}, "evaluations of adversarial_attention is 2; it must be at least 3"),
        ({"program_instances": -1}, "program_instances of adversarial_attention is -1"),
    ],
    "AttentionInterchange": [
        (
            {"level": "heads"},
            r"'heads' \(did you mean 'head'\?\); expected one of: all, layer, head",
        ),
        *(
            ({"least": least}, "least of attention_interchange is")
            for least in (0.0, 1.0, math.nan)
        ),
    ],
    "AttentionPermutation": [
        ({"draws": 0}, f"draws of attention_permutation {ONE}"),
        ({"head_draws": 0}, f"head_draws of attention_permutation {ONE}"),
    ],
    "AttributionCost": [
        ({"repeats": 0}, f"repeats of attribution_cost {ONE}"),
        ({"methods": ["gradinet"]}, "did you mean 'gradient'"),
        ({"methods": []}, "methods of attribution_cost are .*expected 1 or more"),
    ],
    "CounterfactualUse": [({"used": used}, "used of counterfactual_use") for used in (0.0, 1.5)],
    "DecisionFlip": [
        ({"draws": 0}, f"draws of decision_flip {ONE}"),
        ({"level": "word"}, r"is 'word' \(did you mean 'words'\?\); expected one of: words"),
    ],
    "ErasedAccuracy": [
        *(
            ({"shares": shares}, r"shares of erased_accuracy are \[.*\]; expected whole per cent")
            for shares in ([0.1, 0.0], [1.0], [0.125], [])
        ),
        ({"draws": 0}, f"draws of erased_accuracy {ONE}"),
        ({"resamples": 0}, f"resamples of erased_accuracy {ONE}"),
    ],
    "Faithfulness": [
        ({"resamples": 0}, f"resamples of faithfulness {ONE}"),
        (
            {"methods": [{"name": "occlusion", "resamples": 0}]},
            "resamples is 0; it must be at least 1",
        ),
        ({"methods": ["gradeint"]}, r"'gradeint' \(did you mean 'gradient'\?\)"),
        ({"methods": [{"name": "gradient", "labl": "x"}]}, "did you mean 'label'"),
        ({"methods": ["gradient"] * 2}, "'gradient', 'gradient', 'random'.* `label` of its own"),
        ({"methods": [{"name": "gradient", "label": "random"}]}, LABELS.format(2)),
        ({"methods": [{"name": "random", "seed": 3}]}, LABELS.format(2)),
        ({"methods": ["random"]}, r"faithfulness are \['random'\]; expected 2 or more"),
        ({"shares": [0.1, 0.0]}, r"shares of faithfulness are \[0.1, 0.0\]; each must be above 0"),
        ({"shares": [1.5]}, "above 0 and at most 1"),
        ({"shares": []}, "above 0 and at most 1"),
        ({"draws": 0}, f"draws of faithfulness {ONE}"),
        ({"measures": []}, r"measures of faithfulness are \[\]"),
        ({"measures": ["comprehensive"]}, "faithfulness: measures have 'comprehensive' "),
    ],
    "HeadAblation": [
        ({"ablations": ["unifrom"]}, r"'unifrom' \(did you mean 'uniform'\?\); expected one of"),
        ({"ablations": []}, r"are \[\]; expected one or more, each once"),
        ({"ablations": ["off", "off"]}, "expected one or more, each once"),
    ],
    "ImpermissibleMass": [
        ({"replacements": ["unk", "unk"]}, "replacements of .* names one more than once")
    ],
    "ImportanceCorrelation": [
        ({"leave_one_out": False, "gradients": []}, "needs leave_one_out or one of gradients")
    ],
    "LeaveOneOutAgreement": [
        ({"least": 1}, "least of leave_one_out_agreement is 1"),
        ({"resampled_texts": 0}, f"resampled_texts of leave_one_out_agreement {ONE}"),
    ],
    "MeasuredUse": [({"least": 1}, r"least of measured_use is 1; it must be in \[0, 1\)")],
    "Plausibility": [
        ({"methods": ["atention"]}, "atention.*did you mean 'attention'"),
        ({"methods": ["random", "random"]}, LABELS.format(1)),
        ({"methods": []}, r"methods of plausibility are \[\]; expected 1 or more"),
        ({"draws": 0}, f"draws of plausibility {ONE}"),
    ],
    "SaliencyAgreement": [
        ({"methods": ["attention"]}, r"agreement are \['attention'\]; expected 2 or more"),
        ({"methods": ["random", "random"]}, LABELS.format(2)),
        (
            {"methods": ["attention", "gradeint"]},
            "unknown attribution method 'gradeint'.* gradient",
        ),
        ({"methods": ["attention", {"name": "occlusion", "replacment": "pad"}]}, "replacement"),
    ],
    "SingleErasure": [
        ({"label": label}, rf"label of single_erasure is '{label}'; expected letters, digits and _")
        for label in ("", "2", "of words", "a/b")
    ],
    "StateTokenAgreement": [
        ({"probes": 1}, "probes of state_token_agreement is 1; it must be at least 2")
    ],
}
CASES = [(name, *case) for name, cases in REFUSED.items() for case in cases]
CASES += [
    (name, {option: 0}, f"{option} of {kind.name} {ONE}")
    for name, kind in every(*NEEDS).items()
    for option in ("budget", "every_n_epochs", "max_instances")
    if option in kind.__init__.__annotations__
]


@pytest.mark.parametrize(("name", "options", "sentence"), CASES)
def test_options_that_make_no_sense_are_refused(
    name: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence) as error:
        every(*NEEDS)[name](**options)
    assert str(error.value).count(". ") == 0


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        (EvidenceMass(), "a column `evidence` along the tokens"),
        (EvidenceMass(swap=True), "run `attnlight test` on one"),  # there is no corpus
        (HeadAblation(), "needs a model with layers .* has none"),
        (Plausibility(["attention"]), "a column `rationale` or `evidence` along the tokens"),
        (
            DecisionFlip(level="words"),
            "has no attention over words inside sentences: leave level out",
        ),
        (Sanity(methods=["attention"]), "OutsideTask lacks the options: it needs a task of"),
    ],
)
def test_what_a_task_and_batches_from_outside_lack(
    test: InterpretabilityTest, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence):
        run_test(tmp_path, test)
    assert not list(tmp_path.rglob("*.parquet*"))


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        (EvidenceMass(swap=True), "'bad' is not one token of the vocabulary of PlantedEvidence"),
        (
            ImpermissibleMass(),
            r"^(?!.*PlantedEvidence).*`impermissible` along the tokens \(`marks` or .* one: evidence",
        ),
        (
            SingleErasure(target="godo"),
            r"target of single_erasure names the label 'godo'; expected one of .*did you mean 'good'",
        ),
        (Plausibility(column="evidense"), r"`evidense` along .*did you mean 'evidence'\?"),
    ],
)
def test_what_a_corpus_of_sentences_lacks(
    test: InterpretabilityTest, sentence: str, tmp_path: Path
) -> None:
    data = corpus()
    with pytest.raises(InputError, match=sentence) as error:
        trainer(tmp_path, test).test(task_of(data), datamodule=data, verbose=False)
    assert str(error.value).count(". ") == 0
    assert not list(tmp_path.rglob("*.parquet*"))
