"""FlashInfer as the adapters see it: imported late, asked what it has and how it was built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

INSTALL: Final = "flashinfer is not installed: pip install 'neartie[cuda]'"

# Flags of nvcc that change what FP32 code computes; the others are left out of a declaration.
_ARITHMETIC: Final = ("fast_math", "fmad", "ftz", "prec-div", "prec-sqrt")

FAST_MATH: Final = (
    "-use_fast_math: tanhf becomes tanh.approx.f32, FP32 exp and division approximate, subnormals "
    "flushed"
)

DEVICE: Final = "cuda"
"""Where the library's kernels run."""


class BrokenLibrary(RuntimeError):
    """FlashInfer is there and does not import; the message says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One public function of the library.

    Attributes:
        module: where it is, such as ``flashinfer.fused_moe``.
        function: its name.
        capabilities: compute capabilities that the library documents for it (90 is 9.0); asked
            where the function itself does not tell.
        since: the first version that was seen to have it.
    """

    module: str
    function: str
    capabilities: tuple[int, ...]
    since: str


def why_not(entry: Entry) -> str | None:
    """Every reason why ``entry`` cannot run here, in one line; None where it can."""
    try:
        version = library_version()
    except BrokenLibrary as error:
        return str(error)
    if version is None:
        return INSTALL
    function, missing = _find(entry, version)
    capability = device_capability()
    reasons = ["no CUDA device"] if capability is None else _too_old(entry, function, capability)
    return "; ".join([*reasons, *missing]) or None


def find(entry: Entry) -> Callable[..., Any]:
    """The library's function.

    Raises:
        ImportError, OSError, RuntimeError: its module does not import.
        AttributeError: the module does not have it.
    """
    found: Any = getattr(import_module(entry.module), entry.function)
    return found  # type: ignore[no-any-return]


def _find(entry: Entry, version: str) -> tuple[Callable[..., Any] | None, list[str]]:
    """The function, or why there is none."""
    name = f"{entry.module}.{entry.function}"
    try:
        return find(entry), []
    except (AttributeError, ModuleNotFoundError) as error:
        # A module of another package that it imports is not the version's fault.
        missing = getattr(error, "name", None) or entry.module
        if not str(missing).startswith("flashinfer") and isinstance(error, ImportError):
            return None, [f"{name} does not import: {error}"]
        return None, [f"flashinfer {version} has no {name} (seen in {entry.since})"]
    except (ImportError, OSError, RuntimeError) as error:
        return None, [f"{name} does not import: {type(error).__name__}: {error}"]


def library_version() -> str | None:
    """FlashInfer's version, None where it is not installed.

    Raises:
        BrokenLibrary: it is installed and does not import.
    """
    try:
        module: Any = import_module("flashinfer")
    except ModuleNotFoundError as error:
        if error.name == "flashinfer":
            return None
        raise BrokenLibrary(f"flashinfer does not import: {error}") from error
    # Its import builds paths, asks for compilers and loads shared libraries.
    except (ImportError, OSError, RuntimeError) as error:
        message = f"flashinfer does not import: {type(error).__name__}: {error}"
        raise BrokenLibrary(message) from error
    return str(getattr(module, "__version__", "of unknown version"))


def device_capability() -> int | None:
    """Compute capability of the CUDA device as one number (90 is 9.0); None where there is none."""
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def version_notes() -> str:
    """The library's version in words, or that it is not here."""
    try:
        version = library_version()
    except BrokenLibrary as error:
        return str(error)
    return (
        "flashinfer is not installed: version unknown"
        if version is None
        else f"flashinfer {version}"
    )


def build_notes(module: str, generator: str) -> str:
    """The library's version and the arithmetic flags of one of its JIT modules, as read from it.

    Args:
        module: where the generator of the JIT module is, such as ``flashinfer.jit``.
        generator: its name, such as ``gen_dsv3_fused_routing_module``.
    """
    version = version_notes()
    try:
        spec: Any = getattr(import_module(module), generator)()
        flags = [str(flag) for flag in spec.extra_cuda_cflags]
    # Making a spec asks for compilers and a CUDA architecture.
    except (AttributeError, ImportError, OSError, RuntimeError, TypeError) as error:
        read = f"build flags could not be read ({type(error).__name__}: {error})"
        return f"{version}; {read}"
    kept = [flag for flag in flags if any(word in flag for word in _ARITHMETIC)]
    if not kept:
        return f"{version}; built without -use_fast_math"
    # "-use_fast_math" is nvcc's own word, with one dash or two.
    words = [FAST_MATH if flag.lstrip("-") == "use_fast_math" else flag for flag in kept]
    return f"{version}; built with {', '.join(words)}"


def _too_old(entry: Entry, function: Any, capability: int) -> list[str]:
    """Why the device is not one that the library accepts; the function is asked where it tells."""
    tells = getattr(function, "is_compute_capability_supported", None)
    accepted = tells(capability) if callable(tells) else capability in entry.capabilities
    if accepted:
        return []
    listed = ", ".join(f"{c // 10}.{c % 10}" for c in entry.capabilities)
    here = f"{capability // 10}.{capability % 10}"
    return [f"{entry.function} needs compute capability {listed}; this device has {here}"]
