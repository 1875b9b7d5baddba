"""One of a thing is told in the singular."""

from typing import Any

import pytest

from neartie.audit.report.figures import certificate_text


@pytest.mark.parametrize(("replicas", "words"), [(1, "(1 rank alike)"), (8, "(8 ranks alike)")])
def test_a_certificate_counts_its_ranks(replicas: int, words: str) -> None:
    certificate: dict[str, Any] = {
        "set_class": "near_tie",
        "bank": "mine",
        "row": 3,
        "width": 9,
        "rank": 0,
        "replicas": replicas,
        "dropped": [5],
        "slots_dropped": [15],
        "reference_ranks_dropped": [15],
        "added": [7],
        "slots_added": [15],
        "reference_ranks_added": [16],
        "gap_ulp": 1,
        "gap_fp64_ulp": None,
        "flags": [],
    }
    assert f"at width 9, rank 0 {words}: drops 5 (slot 15," in certificate_text(certificate)
