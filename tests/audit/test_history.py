"""Figures over many audits: in order of date, beside their limits, with drift by a stated test."""

import io
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from neartie.audit.evidence.history import History, Series, evidence_history
from neartie.audit.evidence.identity import manifest_digest
from neartie.audit.evidence.load import Evidence
from neartie.audit.report.history import print_history
from neartie.audit.report.trailer import render_trailer
from neartie.banks.errors import InputError

MakeEvidence = Callable[..., Evidence]
ULP = "largest weight ULP"


def weights(*steps: int | None) -> Callable[[dict[str, Any]], None]:
    def edit(record: dict[str, Any]) -> None:
        for width, value in zip(record["widths"], steps, strict=True):
            width["max_weight_ulp"] = value

    return edit


def series(history: History, metric: str, width: int | None = 9) -> Series:
    (found,) = [s for s in history.series if (s.metric, s.width) == (metric, width)]
    return found


def test_runs_stand_in_the_order_of_their_dates(
    make_evidence: MakeEvidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A date without a zone is UTC wherever it is read.
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    dates = ["2026-03-01T00:00:00+00:00", "2026-03-01T01:00:00+02:00", "2026-02-28", "2026-03-02"]
    runs = [make_evidence(f"e{n}", weights(n, 0), date=date) for n, date in enumerate(dates)]
    history = evidence_history(runs)
    assert series(history, ULP).values == [2, 1, 0, 3]
    monkeypatch.undo()
    time.tzset()
    assert history.runs[0].date == "2026-02-28T00:00:00+00:00"
    assert history.runs[1].date == "2026-02-28T23:00:00+00:00"
    assert [run.digest for run in history.runs] == [manifest_digest(runs[n]) for n in (2, 1, 0, 3)]


def test_runs_of_one_date_stay_in_the_order_given(make_evidence: MakeEvidence) -> None:
    runs = [make_evidence(f"e{n}", weights(n, 0)) for n in range(3)]
    assert series(evidence_history(runs[::-1]), ULP).values == [2, 1, 0]


def test_figures_stand_beside_their_limits(make_evidence: MakeEvidence) -> None:
    def edit(record: dict[str, Any]) -> None:
        record["widths"][0]["counts"]["near_tie"] = 4
        record["policy"]["set_rate"] = 1e-4

    first, second = make_evidence("a"), make_evidence("b", edit)
    history = evidence_history([first, second])
    record = first.record
    width = record["widths"][0]
    rate = series(history, "set rate, at most")
    assert rate.values == [width["set_rate_upper"]] * 2
    assert rate.limits == [5e-5, 1e-4]
    assert rate.used == width["set_rate_upper"] / 1e-4
    assert series(history, ULP).limits == [8, 8]
    assert series(history, ULP).used == 1 / 8
    assert series(history, "near-tie swaps").values == [0, 4]
    fit = series(history, "distance from schedule", None)
    assert fit.values == [record["schedule"]["distance"]] * 2
    assert fit.limits == [record["schedule"]["tolerance"]] * 2
    rms = series(history, "latent candidate-reference RMS")
    assert rms.values == [width["triangle"]["latent"]["candidate_reference"]] * 2
    assert rms.used is None


def grown(make_evidence: MakeEvidence, steps: list[int]) -> list[Evidence]:
    return [
        make_evidence(f"e{n}", weights(value, 0), date=f"2026-01-{n + 1:02}")
        for n, value in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("steps", "p_value", "drifts"),
    [
        ([1, 2, 3], 1 / 6, False),
        ([1, 2, 3, 4], 1 / 24, True),
        ([1, 2, 4, 3], 4 / 24, False),
        ([4, 3, 2, 1], 1.0, False),
    ],
)
def test_drift_is_growth_that_few_orders_show(
    make_evidence: MakeEvidence, steps: list[int], p_value: float, drifts: bool
) -> None:
    history = evidence_history(grown(make_evidence, steps))
    found = series(history, ULP)
    assert found.trend.p_value == pytest.approx(p_value)
    assert found.drifts == drifts
    assert history.tested == 1
    assert history.fewest_runs == 4
    assert not series(history, ULP, 12).drifts


def test_two_figures_that_vary_need_more_runs(make_evidence: MakeEvidence) -> None:
    runs = [make_evidence(f"e{n}", weights(n, n % 2), date=f"2026-01-{n + 1:02}") for n in range(4)]
    history = evidence_history(runs)
    assert (history.tested, history.fewest_runs) == (2, 5)
    assert not series(history, ULP).drifts


def test_figures_of_other_rows_are_shown_and_not_tested(make_evidence: MakeEvidence) -> None:
    def other(record: dict[str, Any]) -> None:
        weights(0, 0)(record)
        record["banks"][0]["digest"] = "0" * 64

    runs = [make_evidence("o", other, date="2025-01-01"), *grown(make_evidence, [1, 2, 3])]
    history = evidence_history(runs)
    assert [run.alike for run in history.runs] == [False, True, True, True]
    assert history.compared == 3
    found = series(history, ULP)
    assert found.values == [0, 1, 2, 3]
    assert found.trend.p_value == pytest.approx(1 / 6)
    assert not found.drifts


def test_a_width_that_a_run_lacks_is_a_gap(make_evidence: MakeEvidence) -> None:
    short = make_evidence("a", lambda r: r["widths"].pop(), date="2025-01-01")
    history = evidence_history([short, make_evidence("b")])
    assert series(history, ULP, 12).values == [None, 1]


def test_gates_have_no_triangle(make_evidence: MakeEvidence) -> None:
    def edit(record: dict[str, Any]) -> None:
        del record["schedule"]
        for width in record["widths"]:
            del width["triangle"]

    history = evidence_history([make_evidence("a", edit, kind="gate")])
    assert {s.metric for s in history.series} == {"set rate, at most", "near-tie swaps", ULP}


@pytest.mark.parametrize("date", [None, 3, "soon", "2026-13-01"])
def test_a_run_without_a_date_is_refused(make_evidence: MakeEvidence, date: Any) -> None:
    evidence = make_evidence()
    undated = replace(evidence, manifest={**evidence.manifest, "date": date})
    with pytest.raises(InputError, match=r"^date=.*ISO 8601"):
        evidence_history([undated])


def test_what_is_no_history(make_evidence: MakeEvidence) -> None:
    audit, gate = make_evidence("a"), make_evidence("b", kind="gate")
    with pytest.raises(InputError, match="runs of one kind"):
        evidence_history([audit, gate])
    with pytest.raises(InputError, match="given twice"):
        evidence_history([audit, audit])
    with pytest.raises(InputError, match="at least one"):
        evidence_history([])


def test_the_history_is_json_and_text(make_evidence: MakeEvidence) -> None:
    history = evidence_history(grown(make_evidence, [1, 2, 3, 4]))
    document = json.loads(json.dumps(history.as_dict(), allow_nan=False))
    entry = next(s for s in document["series"] if (s["metric"], s["width"]) == (ULP, 9))
    assert (entry["values"], entry["used"], entry["drifts"]) == ([1, 2, 3, 4], 0.5, True)
    console = Console(width=200, file=io.StringIO(), record=True)
    print_history(history, console)
    text = console.export_text()
    (line,) = [part for part in text.splitlines() if part.startswith(f" {ULP}, width 9")]
    assert line.split()[5:] == ["▁▃▆█", "1", "4", "8", "50%", "4", "0.042,", "drift"]
    assert "drift: largest weight ULP, width 9 grows (p = 0.042, exact)" in text
    # Widths with the same figures are one line.
    assert "set rate, at most, width 9, 12" in text


@pytest.mark.parametrize(
    ("numerics_class", "shown"), [("LIGHT", "LIGHT, BF16-structural"), ("UNKNOWN", "UNKNOWN")]
)
def test_git_reads_the_trailer(
    make_evidence: MakeEvidence, numerics_class: str, shown: str
) -> None:
    evidence = make_evidence(edit=lambda r: r.update(numerics_class=numerics_class))
    message = f"Route wide rounds\n\nWhy.\n\nSigned-off-by: A <a@b>\n{render_trailer(evidence)}"
    parsed = subprocess.run(
        ["git", "interpret-trailers", "--parse"],
        input=message, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert parsed.stdout.splitlines() == [
        "Signed-off-by: A <a@b>",
        f"Numerics-Class: {shown}",
        f"Numerics-Evidence: sha256:{manifest_digest(evidence)}",
    ]
