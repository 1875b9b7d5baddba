"""Pages of mapped files: what a pass over a large bank has read need not stay in memory."""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any, Final

import numpy.typing as npt

_DONT_NEED: Final = 4
"""MADV_DONTNEED of Linux; a file's own pages stay in its cache."""


@cache
def _advise() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "madvise", None)
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def unmap(array: npt.NDArray[Any]) -> None:
    """Drop the whole pages under a contiguous view of a mapped, read-only file.

    The view stays valid. Never for memory that is not a file's: it would read as zeros. On systems
    other than Linux nothing happens.
    """
    advise = _advise()
    if advise is None or array.flags.writeable or not array.flags.c_contiguous:
        return
    page = mmap.PAGESIZE
    first = -(-array.ctypes.data // page) * page
    last = (array.ctypes.data + array.nbytes) // page * page
    if last > first:
        advise(first, last - first, _DONT_NEED)
