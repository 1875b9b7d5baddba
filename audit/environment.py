"""What the figures were made with: versions, machine, commit, code and floating-point flags."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from .. import __version__
from ..kernels.cuda.facts import device_facts
from ..kernels.cuda.lang import unavailable

_PACKAGES: Final = ("numpy", "scipy", "numba", "pyarrow", "torch", "ml_dtypes")
_VARIABLES: Final = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "MKL_NUM_THREADS",
    "NUMBA_DISABLE_JIT",
    "NUMBA_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "TRITON_INTERPRET",
)
"""Variables of the process that change how libraries compute."""


def environment(device: str = "cpu") -> dict[str, Any]:
    """Return versions, processor, and the commit of the working directory, JSON values.

    With a CUDA device that can be used, also what it is and what computes on it.
    """
    state = git_state(Path.cwd())
    return {
        "neartie": __version__,
        "python": platform.python_version(),
        **versions(),
        **(device_facts() if device == "cuda" and unavailable() is None else {}),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "commit": None if state is None else state["commit"],
        "dirty": None if state is None else state["dirty"],
    }


def versions() -> dict[str, str | None]:
    """Return the versions of the libraries that compute or store."""
    return {name: _version(name) for name in _PACKAGES}


def flags() -> dict[str, Any]:
    """Return what this process has set that can change a result's bits, JSON values.

    Whether subnormals are flushed is tried out on this thread, as no library tells.
    """
    import numpy as np
    import torch

    with np.errstate(all="ignore"):
        halved = np.float32(2.0**-126) * np.float32(0.5)
    tensor = torch.tensor([2.0**-126], dtype=torch.float32) * 0.5
    return {
        "numpy_flushes_subnormals": bool(halved == 0.0),
        "torch_flushes_subnormals": bool(tensor.item() == 0.0),
        "torch_float32_matmul_precision": torch.get_float32_matmul_precision(),
        "torch_deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch_threads": torch.get_num_threads(),
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def package_root() -> Path:
    """Return the directory that the package is imported from."""
    return Path(str(files("neartie")))


def package_state() -> dict[str, Any] | None:
    """Return commit and dirty flag of the package's code; None where it lies in no repository.

    A package that was installed below somebody's repository, and not committed to it, has none.
    """
    source = (package_root() / "audit" / "environment.py").resolve()
    tracked = _git(source.parent, "ls-files", "--error-unmatch", source.name)
    return None if tracked is None else git_state(source.parent)


def code_digest() -> str:
    """Sha256 hex of the package's Python sources."""
    digest = hashlib.sha256()
    root = package_root()
    for folder in ("banks", "kernels", "audit"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def git_state(place: Path) -> dict[str, Any] | None:
    """Return commit and dirty flag of the repository that ``place`` lies in, or None."""
    commit, status = _git(place, "rev-parse", "HEAD"), _git(place, "status", "--porcelain")
    if commit is None or status is None:
        return None
    return {"commit": commit, "dirty": bool(status)}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(place: Path, *words: str) -> str | None:
    """Output of a git command; None where it fails, such as outside a checkout.

    Nothing of the repository is written: a commit in another window must find its lock free.
    """
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(place), *words],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
