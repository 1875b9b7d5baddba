"""What a recording tells of itself: rows, bytes, and the time that it took."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class RecordingReport:
    """A finished recording, as this rank saw it.

    Attributes:
        directory: the banks, or the shards where nothing was merged.
        rows: rows by layer.
        bytes: bytes of this rank's shard.
        hook_seconds: time in the hooks, waiting for the writer included.
        waited_seconds: of that, the time that the hooks waited for the writer.
        forward_seconds: time in the model's forward, hooks included; None where the model was not
            called as a whole, or was compiled in place.
        peak_bytes: most bytes held at once for the writer.
        limit_bytes: the limit of that.
        digests: sha256 by bank; empty where nothing was merged.
    """

    directory: Path
    rows: Mapping[int, int]
    bytes: int
    hook_seconds: float
    waited_seconds: float
    forward_seconds: float | None
    peak_bytes: int
    limit_bytes: int
    digests: Mapping[str, str]

    @property
    def overhead(self) -> float | None:
        """Hook time over the forward time without it; on a GPU, of the launching thread."""
        if self.forward_seconds is None or self.forward_seconds <= self.hook_seconds:
            return None
        return self.hook_seconds / (self.forward_seconds - self.hook_seconds)

    def __str__(self) -> str:
        most, least = max(self.rows.values()), min(self.rows.values())
        rows = f"{most:,}" if most == least else f"{least:,} to {most:,}"
        hooks = f"hooks {1e3 * self.hook_seconds:.1f} ms"
        if self.overhead is not None:
            rest = 1e3 * ((self.forward_seconds or 0.0) - self.hook_seconds)
            hooks += f" beside {rest:.1f} ms of forward ({100 * self.overhead:.2f}%)"
        return (
            f"recorded {len(self.rows)} layers, {rows} rows each, {_size(self.bytes)} "
            f"to {self.directory}; {hooks}, of which {1e3 * self.waited_seconds:.1f} ms waiting; "
            f"held at most {_size(self.peak_bytes)} of {_size(self.limit_bytes)}"
        )


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def environment(model: torch.nn.Module) -> dict[str, Any]:
    """Return the provenance that a model and this machine tell."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if type(model).__module__.startswith("transformers."):
        versions["transformers"] = _version("transformers")
    parameters = sum(p.numel() for p in model.parameters())
    return {
        "model": f"{type(model).__name__}: {parameters:,} parameters",
        "device": name,
        "library_versions": versions,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
