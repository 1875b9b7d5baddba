"""Hooks that hand a module's tensors to a recording, eagerly and from inside a compiled graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

Taker = Callable[[Sequence[torch.Tensor]], None]
Extract = Callable[[tuple[Any, ...], dict[str, Any], Any], tuple[torch.Tensor, ...]]

_TAKERS: Final[dict[int, Taker]] = {}
_NUMBERS: Final = itertools.count()
# What the operator writes to: a compiler drops an operator that neither writes nor returns.
_SEEN: Final = torch.zeros((), dtype=torch.int64)


def _tap(seen: torch.Tensor, number: int, tensors: Sequence[torch.Tensor]) -> None:
    """Hand tensors to the taker of a number; nobody is there once a recording has ended."""
    seen.add_(1)
    taker = _TAKERS.get(number)
    if taker is not None:
        taker(tensors)


# An operator stays in the graph of torch.compile as it is: no graph break, also with fullgraph.
_operator: Final = torch.library.custom_op(
    "neartie::tap",
    _tap,
    mutates_args=("seen",),
    schema="(Tensor(a!) seen, int number, Tensor[] tensors) -> ()",
)


class Tap:
    """A forward hook on one module.

    Args:
        module: what to listen to; its outputs are left alone.
        extract: from the arguments and the output of a call to the tensors to hand over.
        taker: gets them, in the thread of the call.
    """

    def __init__(self, module: torch.nn.Module, extract: Extract, taker: Taker) -> None:
        self._number = next(_NUMBERS)
        _TAKERS[self._number] = taker
        self._handle = module.register_forward_hook(_hook(extract, self._number), with_kwargs=True)

    def remove(self) -> None:
        """Take the hook away; what was compiled with it hands over nothing any more."""
        self._handle.remove()
        _TAKERS.pop(self._number, None)


def _hook(extract: Extract, number: int) -> Callable[..., None]:
    def hook(
        module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        del module
        tensors = extract(args, kwargs, output)
        if torch.compiler.is_compiling():
            _operator(_SEEN, number, list(tensors))
        else:
            _TAKERS[number](tensors)

    return hook


def forget_compiled() -> None:
    """Have everything compiled anew: compiled code does not see that hooks came or went.

    Does nothing where nothing was compiled in this process.
    """
    import sys

    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
