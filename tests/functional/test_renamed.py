"""Former names of public functions still work, with a warning."""

import pytest

from attnlight import functional


@pytest.mark.parametrize(("former", "name"), functional._RENAMED.items())
def test_a_former_name_is_the_function_with_a_warning(former: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{former} is deprecated; use {name}"):
        assert getattr(functional, former) is getattr(functional, name)
    assert name in functional.__all__
    assert former not in functional.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'js_shares'"):
        _ = functional.js_shares
