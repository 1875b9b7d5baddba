"""``neartie bank merge-ranks``: the shards of a recording become its banks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..banks.errors import printable

if TYPE_CHECKING:
    from ..banks.recording.agree import Disagreement

_SHOWN: Final = 20
"""Places of disagreement that are printed; ``--json`` has all of them."""


def merge_ranks(
    directory: Annotated[Path, typer.Argument(help="Holds the shards rank0, rank1, ...")],
    out: Annotated[Path, typer.Argument(help="A new or empty directory for the banks.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Merge the shards that ranks recorded into a bank a layer; exit 1 where a rank disagrees.

    What every rank must hold is compared bit for bit. Nothing is written where ranks disagree.
    """
    from ..banks.recording.agree import RankDisagreement
    from ..banks.recording.merge import merge_ranks as merge

    try:
        digests = merge(directory, out)
    except RankDisagreement as error:
        _tell(error.found, as_json)
        raise typer.Exit(1) from None
    if as_json:
        print(json.dumps({"banks": digests, "disagreements": []}))
        return
    for name, digest in digests.items():
        print(f"{printable(name)}: sha256 {digest}")


def _tell(found: Sequence[Disagreement], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"banks": {}, "disagreements": [asdict(one) for one in found]}))
        return
    print(f"ranks disagree in {len(found)} places; nothing was merged")
    for one in found[:_SHOWN]:
        print(printable(f"{one}: {one.counted}" if one.counts else str(one)))
    if len(found) > _SHOWN:
        print(f"... and {len(found) - _SHOWN} more (--json lists all)")
