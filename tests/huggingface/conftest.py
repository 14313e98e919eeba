"""Nothing here is collected without transformers."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("transformers") else ["test_*.py"]
if find_spec("transformers"):
    from tests.huggingface.models import MODELS

    @pytest.fixture(params=list(MODELS))
    def name(request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture(params=["fixed", "attended"])
    def special_tokens(request: pytest.FixtureRequest) -> str:
        return str(request.param)
