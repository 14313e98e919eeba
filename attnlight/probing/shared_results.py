"""Results that several tests of a batch need, computed once."""

from collections.abc import Callable, MutableMapping
from functools import wraps
from typing import Concatenate, ParamSpec

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch

_Options = ParamSpec("_Options")
_OfBatch = Callable[Concatenate[AttentionModel, TextBatch, AttentionOutput, _Options], Tensor]
_Shared = tuple[AttentionModel, TextBatch, dict[str, Tensor]]
# By output; without references to it, so that results are freed with it.
_SHARED: MutableMapping[AttentionOutput, _Shared] = WeakIdKeyDictionary()


def share_results(model: AttentionModel, batch: TextBatch, output: AttentionOutput) -> None:
    """Let `shared` functions compute their results for a batch once, as long as `output` exists.

    The parameters of the model and the texts must stay as they are.
    """
    _SHARED[output] = model, batch, {}


def shared(function: _OfBatch[_Options]) -> _OfBatch[_Options]:
    """The function, computed once for a batch whose results are shared, see `share_results`.

    Nobody may write to the tensor that it returns. Its further options may change no result, except
    tensors: a call with one is computed by itself.
    """

    @wraps(function)
    def of_batch(
        model: AttentionModel,
        batch: TextBatch,
        output: AttentionOutput,
        /,
        *args: _Options.args,
        **kwargs: _Options.kwargs,
    ) -> Tensor:
        its_model, its_batch, results = _SHARED.get(output, (None, None, {}))
        own = any(isinstance(option, Tensor) for option in (*args, *kwargs.values()))
        if own or its_model is not model or its_batch is not batch:
            return function(model, batch, output, *args, **kwargs)
        name = function.__qualname__
        if name not in results:
            results[name] = function(model, batch, output, *args, **kwargs)
        return results[name]

    return of_batch
