"""Triton as the kernels import it, and a stand-in where it is not installed.

The stand-in lets the modules be imported (to list forms, to read docstrings); a kernel called
without Triton says so.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

__all__ = [
    "INSTALLED",
    "INTERPRETED",
    "device",
    "launch",
    "libdevice",
    "tl",
    "triton",
    "unavailable",
]

INSTALLED: Final = find_spec("triton") is not None


class _Missing:
    """Stands for a module of Triton; only what runs at import is here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Python's own questions, such as whether this is a wrapper.
            raise AttributeError(name)
        raise ModuleNotFoundError("triton is not installed: pip install 'neartie[cuda]'")

    @staticmethod
    def jit(function: Any) -> Any:
        """Return the function itself, which cannot be launched."""
        return function

    @staticmethod
    def constexpr(value: Any) -> Any:
        """Return the value itself."""
        return value


def _module(name: str) -> Any:
    return import_module(name) if INSTALLED else _Missing()


if TYPE_CHECKING:
    # Triton is not installed where types are checked: there, all of it is Any.
    import triton  # pyright: ignore[reportMissingImports]
    import triton.language as tl  # pyright: ignore[reportMissingImports]
    import triton.language.extra.libdevice as libdevice  # pyright: ignore[reportMissingImports]
else:
    triton = _module("triton")
    tl = _module("triton.language")
    libdevice = _module("triton.language.extra.libdevice")

INTERPRETED: Final = INSTALLED and bool(triton.knobs.runtime.interpret)


def unavailable() -> str | None:
    """Why the kernels cannot run here, or None where they can."""
    if not INSTALLED:
        return "triton is not installed"
    if INTERPRETED:
        return None
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device"
    return None


def device() -> str:
    """Where arrays for the kernels live: ``cuda``, or ``cpu`` under the interpreter."""
    return "cpu" if INTERPRETED else "cuda"


def launch(kernel: Any, programs: int, *arguments: Any, warps: int = 1) -> None:
    """Enqueue a kernel, without contraction of products and sums (see ``scores_triton``)."""
    kernel[(programs,)](*arguments, num_warps=warps, enable_fp_fusion=False)
