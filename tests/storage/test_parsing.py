import pytest

from attnlight.__main__ import main
from attnlight.storage.parsing import one_sentence

ATTEMPTS = """\
Parser key "model":
  Does not validate against any of the Union subtypes
  Subtypes: [<class 'attnlight.tasks.AttentionTask'>, <class 'NoneType'>]
  Errors:
    - Problem with given class_path 'attnlight.tasks.AttentionClassifier':
        Option 'encodr' is not accepted
    - Expected a <class 'NoneType'>
  Given value type: <class 'jsonargparse._util.NestedArg'>
  Given value: NestedArg(key='encodr', val='bilstm')
"""
WRONG_TYPE = """\
Parser key "trainer.max_epochs":
  Does not validate against any of the Union subtypes
  Errors:
    - Expected a <class 'int'>
    - Expected a <class 'NoneType'>
  Given value: Abc
"""
MISSING = """\
Parser key "model":
  The following arguments are required: base
  Given value: Namespace(class_path='attnlight.tasks.SeedVariant', init_args=Namespace(base=None))
"""


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            ATTEMPTS,
            "model: AttentionClassifier has no option 'encodr' (did you mean 'net.encoder'?)",
        ),
        (WRONG_TYPE, "trainer.max_epochs: expected int: given value: Abc"),
        (MISSING, "model: the following arguments are required: base"),
        ("unrecognized arguments: --nonsense 3", "there is no option --nonsense"),
    ],
)
def test_one_sentence(message: str, sentence: str) -> None:
    assert one_sentence(message) == sentence


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--model.encodr=bilstm", "'encodr'"),
        ("--data.init_args.vocabulry=3", "vocabulry"),
        ("--trainer.max_epochs=abc", "trainer.max_epochs"),
        ("--nonsense=3", "--nonsense"),
        ("--config=nowhere.yaml", "nowhere.yaml"),
    ],
)
def test_a_mistake_in_an_option_is_told_in_one_line(
    option: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", option]) == 2
    error = capsys.readouterr().err
    assert error.startswith("attnlight: ")
    assert error.count("\n") == 1
    assert told in error
