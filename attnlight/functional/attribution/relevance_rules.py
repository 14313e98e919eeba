"""Layer-wise relevance propagation as gradient times input of a model of linear operations.

The epsilon rule divides the relevance of a sum among its terms in proportion to them, which is
gradient times input wherever operations are linear (Ancona et al., 2018). Other operations are
replaced by linear ones of the same value: `tanh(z)` by `z (tanh(z) / z)`, the quotient held fixed.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function
from typing_extensions import override

from attnlight.functional.attribution import relevance

# Nonlinearities that are 0 at 0, with their slope there.
_SLOPES = {"tanh": 1.0, "relu": 0.0, "gelu": 0.5, "silu": 0.5, "elementwise": 0.5}
_SUMS = ("linear", "conv1d", "matmul", "bmm", "mm", "addmm", "einsum")
# Operations that are affine in all their arguments together, in evaluation mode.
_AFFINE_NAMES = """
__get__ __getitem__ __rsub__ add cat chunk clone contiguous double dropout expand expand_as flatten
flip float gather index_copy index_select masked_fill mean movedim neg pad permute repeat
repeat_interleave reshape select split squeeze stack sub sum t to transpose type_as unbind unflatten
unsqueeze view view_as where
"""
_AFFINE = frozenset(_AFFINE_NAMES.split())


class RelevanceRules(TorchFunctionMode):
    """A context in which all operations on a model's input are linear.

    In the first pass they have their values, and what is held fixed is recorded: of a nonlinearity
    f(z) the quotient f(z) / z, or its slope where z is 0; of an LSTM or GRU also the gates; the
    standard deviation of a layer norm and the root mean square of an RMS norm; the result of a
    softmax or of `masked_entmax`. Of a product of two states each gets half of the relevance, the other
    one held fixed. The gradient of that pass with respect to an input, times this input, is its
    relevance. After `replay`, a pass with another input, without gradients, computes the same linear
    model.

    A share `epsilon / (|z| + epsilon)` of the relevance of a sum z is lost in affine maps,
    convolutions, products of matrices, and the candidates and cells of recurrent networks.

    Args:
        epsilon: The stabiliser, at least 0.
        refusal: Returns the error for an operation of this name that has no rule, while it is being
            computed. It is raised by the gradient, if relevance arrives at that operation.
    """

    def __init__(self, epsilon: float, refusal: Callable[[str], Exception]) -> None:
        super().__init__()
        self.epsilon, self._refusal = epsilon, refusal
        self._held: list[Any] = []
        self._replayed: Iterator[Any] | None = None

    def replay(self) -> None:
        """Hold fixed in the next pass what the first one recorded."""
        self._replayed = iter(self._held)

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name, options = func.__name__, kwargs or {}
        rule, held = _RULES.get(name), None
        if self._replayed is not None:
            held = None if rule is None else next(self._replayed)
            if rule is None or held is None:
                return func(*args, **options)
            return rule(_Operation(func, args, options, self.epsilon, held))[0]
        given = (*args, *options.values())
        inputs = sum(isinstance(value, Tensor) and value.requires_grad for value in given)
        result = NotImplemented
        if rule is not None:
            if inputs == 1 or (inputs == 2 and name == "mul"):
                result, held = rule(_Operation(func, args, options, self.epsilon, None))
            self._held.append(held)
        if result is not NotImplemented:
            return result
        result = func(*args, **options)
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, Tensor) and value.requires_grad and name not in _AFFINE:
                value.register_hook(partial(_fail, self._refusal(name)))  # type: ignore[no-untyped-call]
        return result


def elementwise(inputs: Tensor, values: Tensor) -> Tensor:
    """The values f(z) of a kind of GELU at inputs z, by the rule of nonlinearities where rules hold."""
    if not has_torch_function((inputs,)):
        return values
    found: Tensor = handle_torch_function(elementwise, (inputs,), inputs, values.detach())
    return found


class _Operation(NamedTuple):
    """An operation of torch of which one argument, of a product two, depends on the model's input.

    `held` is what the first pass held fixed, and None in that pass.
    """

    function: Callable[..., Any]
    arguments: Sequence[Any]
    options: dict[str, Any]
    epsilon: float
    held: Any

    def __call__(self) -> Any:  # noqa: ANN401
        """The result of the operation as it is."""
        return self.function(*self.arguments, **self.options)


def _fail(error: Exception, _: Tensor) -> None:
    raise error


# Each rule returns the result of an operation and what is held fixed, `_NO_RULE` where it has none.


def _nonlinearity(operation: _Operation) -> tuple[Any, Any]:
    """`z (f(z) / z)` with the quotient held fixed."""
    (inputs, *values), held = operation.arguments, operation.held
    if held is None:
        at = inputs.detach()
        values = values or [operation.function(at.clone(), **operation.options)]
        held = relevance.quotient(values[0], at, _SLOPES[operation.function.__name__])
    return inputs * held, held


def _sum(operation: _Operation) -> tuple[Any, Any]:
    """Sums, whose relevance is passed on in part."""
    sums, held = operation(), operation.held
    if not operation.epsilon:
        return sums, ()
    if held is None:
        held = relevance.kept_share(sums.detach(), operation.epsilon)
        sums.register_hook(held.mul)  # what it returns replaces the gradient
        return sums, held
    return sums * held, held


def _product(operation: _Operation) -> tuple[Any, Any]:
    """A product with a constant, a division by one, or a product of two states."""
    arguments, held = operation.arguments, operation.held
    if held is None:
        moving = [isinstance(part, Tensor) and part.requires_grad for part in arguments]
        divides = operation.function.__name__ == "div"
        if operation.options or (moving[1] and (divides or arguments[0] is arguments[1])):
            return _NO_RULE
        held = tuple(part.detach() for part in arguments) if all(moving) else ()
    if not held:
        return operation(), ()
    (first, second), (own, other) = arguments, held
    return (first * other + own * second) / 2, held


def _fixed(operation: _Operation) -> tuple[Any, Any]:
    """Attention weights, and the inverse root mean square of an RMS norm, held fixed."""
    held = operation().detach() if operation.held is None else operation.held
    return held, held


def _layer_norm(operation: _Operation) -> tuple[Any, Any]:
    """Layer norm with the standard deviation held fixed."""
    (inputs, shape, *further), held = operation.arguments, operation.held
    if further:  # of `torch.layer_norm`; that of torch.nn passes them by name
        return _NO_RULE
    weight, bias, eps = (operation.options[name] for name in ("weight", "bias", "eps"))
    last = tuple(range(-len(shape), 0))
    if held is None:
        held = (inputs.detach().var(last, correction=0, keepdim=True) + eps).rsqrt()
    result = (inputs - inputs.mean(last, keepdim=True)) * held
    result = result if weight is None else result * weight
    return result if bias is None else result + bias, held


def _recurrence(operation: _Operation) -> tuple[Any, Any]:
    """An LSTM or GRU of one layer and one direction with the gates held fixed."""
    function, arguments = operation.function, operation.arguments
    # Arguments as torch.nn passes them; those of packed sequences are others.
    if not isinstance(arguments[3], bool):
        return _NO_RULE
    words, start, (input_weight, weight, *biases), _, layers, _, _, both, batch_first = arguments
    lstm = function.__name__ == "lstm"
    state, cell = (part[0] for part in (start if lstm else (start, start)))
    plain = layers == 1 and not both and len(biases) in (0, 2)
    if not plain or state.requires_grad or cell.requires_grad:
        return _NO_RULE
    words = words.transpose(0, 1) if batch_first else words
    input_bias, bias = biases or [weight.new_zeros(len(weight))] * 2
    if (held := operation.held) is None:
        with torch.no_grad():
            known = function(words, *arguments[1:-1], False)[0]
            before = torch.cat([state.unsqueeze(0), known[:-1]])
            gates = linear(words, input_weight, input_bias), linear(before, weight, bias)
            fixed = relevance.lstm_coefficients if lstm else relevance.gru_coefficients
            held = fixed(*gates, cell if lstm else known, operation.epsilon)
    own = slice(2 * state.shape[-1], 3 * state.shape[-1])  # of the candidates, in both networks
    inputs = linear(words, input_weight[own], input_bias[own])
    driven = held.drive * inputs + held.feedback * bias[own]
    if operation.held is None:
        states: Tensor = relevance.LinearRecurrence.apply(driven, known, weight[own], *held)  # type: ignore[no-untyped-call]
    else:
        states = relevance.linear_states(driven, held, weight[own], state, cell)
    last = states[-1:]
    output = states.transpose(0, 1) if batch_first else states
    return ((output, last, last / held.readout[-1:]) if lstm else (output, last)), held


_NO_RULE = NotImplemented, None
_RULES: dict[str, Callable[[_Operation], tuple[Any, Any]]] = (
    dict.fromkeys(_SLOPES, _nonlinearity)
    | dict.fromkeys(_SUMS, _sum)
    | {
        "mul": _product,
        "div": _product,
        "softmax": _fixed,
        "rsqrt": _fixed,
        "masked_entmax": _fixed,
    }
    | {"layer_norm": _layer_norm, "lstm": _recurrence, "gru": _recurrence}
)
