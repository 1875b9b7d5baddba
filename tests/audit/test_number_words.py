"""A limit is shown with the digits that it was given, wherever it is shown."""

from pathlib import Path
from typing import Any

import pytest

import neartie
from neartie.audit.claims.measure import Query
from neartie.audit.claims.metrics import METRICS
from neartie.audit.evidence.load import Evidence
from neartie.audit.evidence.write import report_text
from neartie.audit.number_words import number_of, percent
from neartie.audit.policy import Policy


@pytest.mark.parametrize(
    ("probability", "text"),
    [
        (0.95, "95%"),
        (0.999, "99.9%"),
        (0.07, "7%"),
        (0.5, "50%"),
        (1.0, "100%"),
        (1.0 - 1e-12, "99.9999999999%"),
        (1e-12, "0.0000000001%"),
    ],
)
def test_no_digit_is_rounded_away(probability: float, text: str) -> None:
    assert percent(probability) == text


def test_one_is_no_plural() -> None:
    assert [number_of(n, "width") for n in (0, 1, 2000)] == ["0 widths", "1 width", "2,000 widths"]


@pytest.mark.parametrize("confidence", [0.999, 1e-12, 1.0 - 1e-12])
def test_an_audit_shows_its_confidence_and_its_rate(confidence: float) -> None:
    """Both ends that a policy may ask for can be judged, too."""
    policy = Policy(confidence=confidence, set_rate=2.5e-5)
    result = neartie.run_audit(
        "gaussian:geometry=mini,stage=logits,rows=20",
        rows=[9, 20],
        ranks=1,
        policy=policy,
        gate=False,
        baseline="route",
    )
    shown = percent(confidence)
    text = report_text(result)
    assert f"({shown})" in text
    reasons = [r.text for r in result.verdict.reasons if r.code == "set_rate"]
    if confidence > 0.5:
        assert f"at {shown}, limit 2.5e-05" in reasons[0]
        assert "100%" not in reasons[0]
    tables = {"swaps": result.swaps, "values": result.values, "histograms": result.histograms}
    evidence = Evidence(Path("A"), "audit", result.record, tables, {})
    metric: Any = METRICS["set_rate_upper"]
    found = metric.measure(evidence, Query())
    assert found[0].note.endswith(f"confidence {shown}")
