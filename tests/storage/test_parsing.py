import pytest

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
        (
            MISSING,
            "model needs the run, or its checkpoint, that it is a variant of: --model.base RUN",
        ),
        ("unrecognized arguments: --nonsense 3", "there is no option --nonsense"),
    ],
)
def test_one_sentence(message: str, sentence: str) -> None:
    assert one_sentence(message) == sentence
