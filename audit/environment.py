"""What the figures were made with: versions, machine, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from typing import Any

from .. import __version__

_PACKAGES = ("numpy", "scipy", "numba", "pyarrow", "torch", "ml_dtypes")


def environment() -> dict[str, Any]:
    """Return versions, processor, and the commit of the working directory, JSON values."""
    return {
        "neartie": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": _dirty(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _dirty() -> bool | None:
    status = _git("status", "--porcelain")
    return None if status is None else bool(status)


def _git(*words: str) -> str | None:
    """Output of a git command in the working directory; None outside a checkout."""
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
