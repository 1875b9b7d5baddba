"""A path as a side of the gate: run as it is, counted as selects are, and refused with reasons."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neartie
from neartie.audit.gate.plan import make_plan
from neartie.audit.gate.result import GateResult
from neartie.audit.gate.run import plan_gate, run_gate
from neartie.audit.gate.shard import ShardResult
from neartie.audit.gate.shard_file import write_shard
from neartie.audit.gate.workers import missing_shards
from neartie.audit.policy import Policy
from neartie.banks.errors import EnvelopeError, InputError
from neartie.kernels import registry
from neartie.kernels.contract import Launch, Routed

SMALL: dict[str, Any] = {"rows": 6000, "widths": (9, 20), "shard_rows": 2500, "seed": 3}
SOURCE = """
import numpy as np
import neartie


class Acme:
    batches_launches = False
    outputs = ("ids", "weights")

    def __init__(self, options):
        self.bug = options.get("bug", "")
        self.name = f"acme:bug={self.bug}"
        self.base = neartie.make_path("route:select=standalone")
        self.declared = self.base.declared

    def unavailable(self):
        return "the licence has ended" if self.bug == "licence" else None

    def check(self, launch):
        self.base.check(launch)

    def run(self, launch, out):
        assert launch.rows == launch.width and launch.logits is not None and launch.hidden is None
        self.base.run(launch, out)
        row = launch.row_index
        if self.bug == "last_row":
            out.weights[:, -1] = np.float32(1 / 16)
        if self.bug == "far":
            # The best expert is lost to the last of all, in one row of 1,000.
            worst = np.argmin(launch.logits + launch.weights.bias, axis=1)
            hit = row % 1000 == 500
            out.ids[:, hit, 0] = worst[hit]
        if self.bug == "unwritten" and 5000 in row:
            out.ids[0, row == 5000, 3] = -0x5A5A5A5B
        if self.bug.startswith("raises") and int(self.bug[6:] or 4000) in row:
            raise RuntimeError("out of\\nmemory")
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of another package that is on the path of this process and of its children."""
    (tmp_path / "acme_gate.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.delitem(sys.modules, "acme_gate", raising=False)
    return "acme_gate:Acme"


def counted(result: GateResult) -> dict[str, Any]:
    """What both ways of running a select must count alike."""
    pooled = result.record["pooled"]
    names = ("swaps", "observed", "weight_ulp_histogram", "near_tie_rows", "reference")
    return {name: pooled[name] for name in names} | {
        "steps": pooled["margins"]["steps"],
        "widths": [width["counts"] for width in result.record["widths"]],
        "flags": pooled["input_flags"],
        "worst": pooled["worst_weight"],
    }


@pytest.mark.parametrize(
    ("source", "select"),
    [
        ("normal:geometry=k3", "radix_bf16"),
        ("special:geometry=mini,rows=200", "radix_bf16"),
        # Sides that agree on most rows: what is not finite is looked at all the same.
        ("special:geometry=mini,rows=200", "topk_sigmoid"),
    ],
)
def test_a_path_is_counted_as_its_select_is(source: str, select: str) -> None:
    """The same arithmetic once by the fast loop, once by running the path launch by launch."""
    pairs = [("standalone", select), ("standalone", f"route:select={select}")]
    rows = {"rows": 200} if source.startswith("special") else {}
    by_select, by_path = (run_gate(a, b, source, **{**SMALL, **rows}) for a, b in pairs)
    assert counted(by_path) == counted(by_select)
    assert by_path.swaps.num_rows == by_select.swaps.num_rows
    assert by_path.verdict.state == by_select.verdict.state
    if rows:
        assert by_path.record["pooled"]["input_flags"]["nonfinite_logits"] > 0
    else:
        assert by_path.record["pooled"]["observed"]["differing"] > 100
        assert by_path.record["pooled"]["prediction"]["agreement"] == "unknown"


def test_both_sides_may_be_paths(acme: str) -> None:
    result = run_gate("general:select=standalone", acme, **SMALL)
    assert result.record["baseline"]["spec"] == "general:select=standalone"
    assert result.record["candidate"]["name"] == "acme:bug="
    assert result.record["pooled"]["observed"]["differing"] == 0
    assert result.record["pooled"]["near_tie_rows"] is None
    assert str(result.verdict.state) == "INCONCLUSIVE"
    assert any("run once on each row" in text for text in result.record["limitations"])


def test_launches_have_the_width_of_their_rows(acme: str) -> None:
    """A bug in the last row of every launch hits one row in so many as the width says."""
    result = run_gate("standalone", f"{acme}:bug=last_row", **SMALL)
    assert str(result.verdict.state) == "FAIL"
    wrong = {
        width["width"]: width["weight_classes"]["mismatch"] for width in result.record["widths"]
    }
    # Shards of 2,500 and 500 rows, blocks of 2,048: the last launch of each is filled up.
    assert wrong == {9: 2048 // 9 + 452 // 9 + 500 // 9, 20: 2048 // 20 + 452 // 20 + 500 // 20}


def test_a_rare_far_swap_is_found_and_replays(acme: str) -> None:
    result = run_gate("standalone", f"{acme}:bug=far", **SMALL)
    assert result.record["pooled"]["swaps"] == {"far_swap": 6}
    rows = sorted(result.swaps["row"].to_pylist())
    assert rows == [500, 1500, 2500, 3500, 4500, 5500]
    snippet = result.swaps["snippet"][0].as_py()
    assert f"candidate='{acme}:bug=far'" in snippet
    again = eval(snippet, {"neartie": neartie})
    lost = set(again.ids["baseline"][0]) - set(again.ids["candidate"][0])
    assert lost == set(result.swaps["dropped"][0].as_py())


@pytest.mark.parametrize("bug", ["", "far", "raises"])
def test_the_same_bits_with_two_processes(acme: str, tmp_path: Path, bug: str) -> None:
    candidate = f"{acme}:bug={bug}" if bug else acme
    one, two = (run_gate("standalone", candidate, workers=n, **SMALL) for n in (1, 2))
    assert one.to_json() == two.to_json()
    assert one.swaps.equals(two.swaps)
    assert one.histograms.equals(two.histograms)


@pytest.mark.parametrize("row", [4000, 5800])
def test_a_path_that_raises_is_not_run_and_leaves_nothing_of_its_width(acme: str, row: int) -> None:
    """Both rows are of width 20, in its first shard and in its last; width 9 keeps its rows."""
    result = run_gate("standalone", f"{acme}:bug=raises{row}", **SMALL)
    nine, twenty = sorted(result.record["coverage"], key=lambda item: item["width"])
    assert nine["ran"]
    assert not twenty["ran"]
    assert "raised RuntimeError: out of\\nmemory (acme_gate.py:" in twenty["reason"]
    assert [width["unique_rows"] for width in result.record["widths"] if width["unique_rows"]] == [
        3000
    ]
    assert result.exit_status == 3
    assert json.loads(result.to_json())["pooled"]["observed"]["units"] == 3000


def test_a_kept_shard_that_could_not_be_run_is_tried_again(tmp_path: Path) -> None:
    plan, _ = make_plan("standalone", "torch_topk", "normal", policy=Policy(), **SMALL)
    first, second, *others = plan.shards()
    write_shard(tmp_path, plan, first, ShardResult())
    write_shard(tmp_path, plan, second, ShardResult(not_run="out of memory"))
    assert missing_shards(tmp_path, plan) == [second, *others]


def test_what_nobody_wrote_is_invalid(acme: str) -> None:
    result = run_gate("standalone", f"{acme}:bug=unwritten", **SMALL)
    assert sum(width["invalid"] for width in result.record["widths"]) == 1
    assert str(result.verdict.state) == "FAIL"


def test_a_path_that_refuses_is_not_run(acme: str) -> None:
    result = run_gate("standalone", f"{acme}:bug=licence", **SMALL)
    assert str(result.verdict.state) == "NOT_RUN"
    assert all("the licence has ended" in item["reason"] for item in result.record["coverage"])
    assert result.exit_status == 3


def test_a_width_out_of_the_envelope_is_not_run() -> None:
    class Narrow:
        name, batches_launches, outputs = "narrow", False, ("ids", "weights")
        declared = neartie.make_path("route").declared

        def unavailable(self) -> str | None:
            return None

        def check(self, launch: Launch) -> None:
            if launch.width > 12:
                raise EnvelopeError("width", launch.width, "at most 12", "narrow")

        def run(self, launch: Launch, out: Routed) -> None:
            raise AssertionError("nothing runs where a width is refused")

    registry.register("narrow-gate", lambda options: Narrow())
    try:
        result = run_gate("standalone", "narrow-gate", **SMALL)
        assert all("width=20" in item["reason"] for item in result.record["coverage"])
        with pytest.raises(InputError, match="a path that other processes can import"):
            run_gate("standalone", "narrow-gate", workers=2, **SMALL)
    finally:
        registry._entries.pop("narrow-gate")


def test_what_cannot_be_is_refused(acme: str, tmp_path: Path) -> None:
    for arguments, options, text in (
        (("standalone", "acme_gate:Nothing"), {}, "path=acme_gate:Nothing, but should be module"),
        (("standalone", "nothing"), {}, "auto, recorded, or a path"),
        ((acme, "recorded"), {}, "select=acme_gate:Acme, but should be recorded"),
        (("standalone", "torch_topk"), {"device": "cuda"}, "a path runs where it declares"),
        (("standalone", acme), {"work": tmp_path / "work"}, "left out: finished shards do not"),
        (("standalone", f"{acme}:bug"), {}, "option='bug', but should be key=value"),
    ):
        with pytest.raises(InputError, match=text.replace("(", r"\(")):
            run_gate(*arguments, **{**SMALL, **options})
    assert not (tmp_path / "work").exists()


def test_shards_of_the_packages_own_paths_are_kept(tmp_path: Path) -> None:
    first, again = (
        run_gate("standalone", "torch_topk", work=tmp_path / "work", **SMALL) for _ in range(2)
    )
    assert first.reused_shards == 0
    assert again.reused_shards == 4
    assert first.to_json() == again.to_json()
    pooled = first.record["pooled"]
    assert sum(pooled["swaps"].values()) == pooled["observed"]["differing"] <= 3
    assert np.isfinite(pooled["near_tie_rate"])


def test_the_plan_says_what_it_does_not_count(acme: str) -> None:
    told = plan_gate("standalone", acme, **SMALL)
    assert "what a path itself takes is not known and not counted" in told.text()
