"""Read a claims file, shipped or one's own."""

from __future__ import annotations

from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Final

from ...banks.errors import InputError
from ..toml_model import read_toml, validated
from .metrics import metric_of
from .model import ClaimsFile

SHIPPED: Final = ("route-9-20",)
"""Claims files that come with the package, by name."""


def load_claims(file: str | Path) -> ClaimsFile:
    """Read a claims file; the name of a shipped one reads that.

    Raises:
        InputError: the file cannot be read, is no TOML, or a claim of it cannot be checked.
    """
    path, where = Path(file), str(file)
    if where in SHIPPED:
        path = Path(str(files("neartie.audit.claims").joinpath(f"{where}.toml")))
    elif not path.is_file():
        raise InputError("claims", where, f"a TOML file or one of {', '.join(SHIPPED)}", "claims")
    # Numbers keep the digits that the source quotes: 2.60e-3 is not 2.6e-3.
    claims = validated(ClaimsFile, read_toml(path, "claims", Decimal), where)
    for claim in claims.claim:
        if claim.metric is not None:
            metric_of(claim, where)
    return claims
