"""Where a benchmark leaves its record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_record(record: Any, out: Path) -> None:
    """Write a record as JSON, and say where."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {out}")
