"""The state of the machine that times were measured on: devices, clocks, links, other processes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection
from typing import Any, Final

import torch

_FIELDS: Final = (
    "name", "driver_version", "pstate", "clocks.sm", "clocks.mem", "clocks.max.sm",
    "clocks.max.mem", "temperature.gpu", "power.draw", "power.limit", "utilization.gpu",
    "persistence_mode",
)  # fmt: skip
_TIMEOUT_S: Final = 30
# nvidia-smi underlines its table even where nobody looks.
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")


def machine_state(own: Collection[int] = ()) -> dict[str, Any]:
    """Return what nvidia-smi tells now, JSON values; what it does not tell is None.

    Args:
        own: process ids of the ranks; others on the devices are told.
    """
    rows = _smi(f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader")
    gpus = None
    if rows is not None:
        cells = [[cell.strip() for cell in row.split(",")] for row in rows]
        gpus = [dict(zip(_FIELDS, row, strict=False)) for row in cells]
    apps = _smi("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader")
    others = None
    if apps is not None:
        others = [app for app in apps if _pid(app) not in own]
    return {
        "gpus": gpus,
        "other_gpu_processes": others,
        "load_average": list(os.getloadavg()),
        "cores": os.cpu_count(),
    }


def machine_links() -> dict[str, Any]:
    """Return how the devices are linked: nvidia-smi's matrix, and who reaches whose memory."""
    count = torch.cuda.device_count()
    peers = [
        [a == b or torch.cuda.can_device_access_peer(a, b) for b in range(count)]
        for a in range(count)
    ]
    return {
        "topology": _smi("topo", "-m"),
        "peer_access": peers,
        "multicast": "off",
        "cuda": torch.version.cuda,
    }


def _pid(line: str) -> int:
    head = line.split(",")[0].strip()
    return int(head) if head.isdigit() else -1


def _smi(*words: str) -> list[str] | None:
    """Lines of nvidia-smi's answer; None where it is not there or fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *words], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (
        [_STYLE.sub("", line) for line in done.stdout.splitlines() if line.strip()]
        if not done.returncode
        else None
    )
