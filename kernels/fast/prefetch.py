"""Ask for memory before it is needed: a hint to the processor, which changes no result."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .uncounted import uncounted

_LINE_BYTES = 64


@intrinsic
def _intrinsic(typing_context: Any, address: Any) -> Any:
    """llvm.prefetch of one cache line, for reading, into every cache."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.PointerType(ir.IntType(8)))
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        builder.call(function, [pointer, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(types.intp), code


_prefetch: Any = _intrinsic


@uncounted
def prefetch_row(address: int, row: int, row_bytes: int) -> None:
    """Ask for the ``row_bytes`` of a row of a matrix that starts at ``address``."""
    start = address + row * row_bytes
    for offset in range(0, row_bytes, _LINE_BYTES):
        _prefetch(start + offset)
