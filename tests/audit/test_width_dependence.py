"""What changes with the width is told with its rate, and fails only where it was ruled out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from wrapped_path import WrappedPath

import neartie

BANK = "gaussian:geometry=mini,rows=60,seed=3"


def another_expert_when_wide(launch: Any, out: Any) -> None:
    if launch.width == 20:
        row = int(np.flatnonzero(launch.row_index == 43)[0])
        out.logits[:, row, 5] += np.float32(2.0**-20)
        out.ids[:, row, -1] = np.setdiff1d(np.arange(896), out.ids[0, row])[-1]


def audit(row_independent: bool) -> Any:
    path = WrappedPath(another_expert_when_wide, "route:select=standalone")
    path.declared = replace(path.declared, row_independent=row_independent)
    return neartie.run_audit(BANK, candidate=path, rows=[12, 16, 20], ranks=2, gate=False).record


def changes(record: Any, path: str, width: int) -> Any:
    (found,) = [
        item
        for item in record["banks"][0]["width_dependence"]
        if (item["path"], item["width"]) == (path, width)
    ]
    return found


@pytest.mark.parametrize("row_independent", [True, False])
def test_a_set_that_changes_with_the_width_is_counted_and_judged_by_the_declaration(
    row_independent: Any,
) -> None:
    record = audit(row_independent)
    found = changes(record, "candidate", 20)
    assert (found["against"], found["rows"]) == (12, 60)
    assert found["differing"] == {"latent": 0, "logits": 1, "ids": 1, "weights": 0, "sets": 1}
    assert sum(found["set_classes"].values()) == 1
    assert found["largest_logit_step"] == pytest.approx(2.0**-20, rel=0.2)
    reasons = [r for r in record["verdict"]["reasons"] if r["code"] == "width_dependent"]
    assert {r["state"] for r in reasons} == {"FAIL" if row_independent else "PASS_WITH_LIMITATIONS"}
    assert any(
        "the expert set differs from the same row's at width 12" in r["text"] for r in reasons
    )


def test_a_width_that_changes_nothing_is_in_the_record_too() -> None:
    record = audit(False)
    for path, width in (("baseline", 16), ("baseline", 20), ("candidate", 16)):
        found = changes(record, path, width)
        assert found["rows"] == 60
        assert set(found["differing"].values()) == {0}
        assert found["set_classes"] == {}
