"""What the kernels run on: device, driver, and the versions that decide what a form's bits are."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from pathlib import Path
from typing import Final

from .lang import INTERPRETED, triton, unavailable

KEY_FACTS: Final = ("device", "compute_capability", "cuda", "libdevice", "triton")
"""The facts that decide a form's bits: a certificate holds for these."""

_DRIVER_FILE: Final = Path("/sys/module/nvidia/version")


def why_not_real() -> str | None:
    """Why there is no real device here (the interpreter is none), or None where there is one."""
    if INTERPRETED:
        return "Triton's interpreter is no device"
    return unavailable()


def device_facts() -> dict[str, str]:
    """Return device, compute capability, driver, CUDA, cuBLAS, libdevice, torch, Triton as text.

    Under the interpreter the device is named so and has none of what a GPU has. The kernels must
    be available.
    """
    import torch

    facts = {
        "device": "Triton's interpreter on the CPU",
        "compute_capability": "none",
        "driver": "none",
        "cuda": "none",
        "cublas": "none",
        "libdevice": "none",
        "torch": str(torch.__version__),
        "triton": str(triton.__version__),
    }
    if INTERPRETED:
        return facts
    major, minor = torch.cuda.get_device_capability(0)
    return facts | {
        "device": torch.cuda.get_device_name(0),
        "compute_capability": f"{major}.{minor}",
        "driver": _driver(),
        "cuda": str(torch.version.cuda),
        "cublas": _cublas(str(torch.version.cuda)),
        "libdevice": _libdevice(),
    }


def _cublas(cuda: str) -> str:
    """The version of the cuBLAS that torch has loaded; ``unknown`` where it does not tell."""
    try:
        library = ctypes.CDLL(f"libcublas.so.{cuda.partition('.')[0]}")
    except OSError:
        return "unknown"
    parts = []
    # libraryPropertyType of library_types.h: major, minor, patch.
    for part in range(3):
        value = ctypes.c_int()
        if library.cublasGetProperty(part, ctypes.byref(value)):
            return "unknown"
        parts.append(str(value.value))
    return ".".join(parts)


def _driver() -> str:
    """The NVIDIA driver's version; ``unknown`` where neither the kernel nor nvidia-smi tells it."""
    if _DRIVER_FILE.is_file():
        return _DRIVER_FILE.read_text(encoding="utf-8").strip()
    words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else "unknown"


def _libdevice() -> str:
    """The first 16 hex digits of the SHA-256 of the libdevice that Triton links."""
    chosen = triton.knobs.nvidia.libdevice_path
    shipped = Path(str(triton.__file__)).parent / "backends" / "nvidia" / "lib" / "libdevice.10.bc"
    path = Path(chosen) if chosen else shipped
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
