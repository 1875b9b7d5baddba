"""``neartie why`` from the question to its exit status."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrapped_path import WrappedPath, nothing

from neartie.audit import cli
from neartie.audit.evidence.load import load_evidence
from neartie.audit.launching import front_weights
from neartie.audit.why.run import why
from neartie.audit.why.section import NotRun, Section, WhyReport
from neartie.banks.errors import InputError
from neartie.banks.memory import memory_bank
from neartie.banks.open import open_bank
from neartie.kernels.project import latent_partials

BANK = "gaussian:geometry=mini,rows=12,seed=1"
FEW: dict[str, Any] = {"rows": 12, "ranks": 4}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "evidence"
ONE_H200 = DOCS / "one-h200"


def section(report: Any, title: str) -> Any:
    (found,) = [one for one in report.sections if one.title.startswith(title)]
    return found


def claiming(declared: str, base: str, spoil: Any = nothing) -> WrappedPath:
    """A path of one arithmetic that declares another."""
    path = WrappedPath(spoil, base, name="claiming")
    path.declared = replace(path.declared, latent_schedule=declared)
    return path


@pytest.mark.parametrize("schedule", ["own_rank_first_fp32", "ring_bf16", "tree_bf16"])
def test_paths_that_do_what_they_declare(schedule: str) -> None:
    report = why(BANK, baseline=f"general:reduce={schedule}", **FEW)
    assert report.exit_status == 0
    exchange = section(report, "Exchange of baseline").figures()
    assert schedule in exchange["attribution"]["names"]
    assert {one["state"] for one in exchange["orders"]} == {"tree"}
    many = schedule in ("own_rank_first_fp32", "ring_bf16")
    assert len(exchange["orders"]) == (4 if many else 1)
    assert exchange["transport"]["wrong"] == 0
    paths = section(report, "Reduction schedule on").figures()["paths"]
    assert schedule in paths["baseline"]["attribution"]["names"]
    assert paths["candidate"]["attribution"]["names"] == ("gather",)


def test_slices_and_ranks_are_told() -> None:
    ring = section(why(BANK, baseline="general:reduce=ring_bf16", **FEW), "Exchange of baseline")
    first = "all ranks, elements 0..575: one after another, rotated to start at 1"
    assert any(line.startswith(first) for line in ring.lines())
    own = why(BANK, baseline="general:reduce=own_rank_first_fp32", **FEW)
    third = "rank 2: one after another, rotated to start at 2"
    assert any(line.startswith(third) for line in section(own, "Exchange of baseline").lines())


def test_a_contradicted_declaration_fails() -> None:
    path = claiming("tree_bf16", "general:reduce=running_bf16")
    report = why(BANK, baseline=path, **FEW)
    assert report.exit_status == 1
    assert report.text().count("CONTRADICTION: declares tree_bf16") == 2
    assert "has the bits of running_bf16" in report.text()


def test_what_only_an_order_tells_is_found_by_feeding() -> None:
    """On these rows both FP32 orders have the same bits; on partials that cancel they differ."""
    path = claiming("one_shot_fp32", "general:reduce=own_rank_first_fp32")
    report = why(BANK, baseline=path, **FEW)
    assert section(report, "Reduction schedule on").exit_status == 0
    assert section(report, "Exchange of baseline").exit_status == 1


def rank_2_for_1(launch: Any, out: Any) -> None:
    """The exchange takes rank 2's partial twice, and rank 1's never, for one column."""
    if launch.latent_partials is not None:
        sent = launch.latent_partials.astype(np.float32)
        moved = out.latent[:, :, 5].astype(np.float32) + sent[2, :, 5] - sent[1, :, 5]
        out.latent[:, :, 5] = moved.astype(out.latent.dtype)


def test_a_lost_partial_is_no_rounding() -> None:
    path = WrappedPath(rank_2_for_1, "general")
    report = why(BANK, baseline=path, **FEW)
    transport = section(report, "Exchange of baseline").figures()["transport"]
    assert report.exit_status == 1
    assert {"missing", "twice"} <= set(transport["kinds"])
    assert {"1", "2"} <= set(transport["terms"])


def test_another_order_at_each_call_is_no_tree() -> None:
    random = np.random.default_rng(5)

    def shuffled(launch: Any, out: Any) -> None:
        if launch.latent_partials is not None:
            total = np.zeros(out.latent.shape[1:], np.float32)
            for part in random.permutation(launch.latent_partials.astype(np.float32)):
                total += part
            out.latent[:] = total.astype(out.latent.dtype)

    report = why(BANK, baseline=WrappedPath(shuffled, "general"), **FEW)
    orders = section(report, "Exchange of baseline").figures()["orders"]
    assert {one["state"] for one in orders} == {"none"}
    assert all("changes between two calls" in one["reason"] for one in orders)
    assert report.exit_status == 1


class IdlePath(WrappedPath):
    """Writes nothing: its outputs are the poison that they were handed over with."""

    def run(self, launch: Any, out: Any) -> None:
        """Leave all as it is."""


def test_a_path_that_writes_nothing(recwarn: pytest.WarningsRecorder) -> None:
    report = why(BANK, candidate=IdlePath(base="general", name="idle"), **FEW)
    (order,) = section(report, "Exchange of candidate").figures()["orders"]
    assert (order["state"], order["ranks"], order["first"]) == ("none", [0, 1, 2, 3], 0)
    assert report.exit_status == 1
    assert max(len(line) for line in report.text().splitlines()) < 300
    assert not recwarn.list


def test_a_path_that_raises_is_not_run() -> None:
    def broken(launch: Any, out: Any) -> None:
        raise RuntimeError("no such kernel")

    report = why(BANK, baseline=WrappedPath(broken, "general"), **FEW)
    assert report.exit_status == 3
    sections = [one for one in report.sections if "no such kernel" in "".join(one.lines())]
    assert len(sections) == 5


def test_a_bank_of_partials() -> None:
    """The bank's own partials are taken, and their FP64 sum is the reference."""
    bank = open_bank(BANK)
    block = bank.read(0, 12)
    assert block.hidden is not None
    latent = front_weights(bank).latent
    assert latent is not None
    logits = np.linspace(-4, 4, 4 * 12 * 224, dtype=np.float32).reshape(4, 12, 224)
    partials = latent_partials(block.hidden, latent, 4)
    other = memory_bank(16, latent_partials=partials, logits_shards=logits)
    report = why(other, baseline="general:reduce=tree_bf16", rows=12)
    assert report.ranks == 4
    paths = section(report, "Reduction schedule on").figures()["paths"]
    assert set(paths["baseline"]["attribution"]["names"]) == {"tree_bf16", "two_level:2"}
    # The route path has no columns to gather there, and that is told.
    assert "latent_shards or hidden" in paths["candidate"]["not_run"]
    assert report.exit_status == 3


def test_evidence_is_asked_for_its_banks() -> None:
    """A GPU's evidence over a shipped bank: the CPU arithmetic of its paths runs on that bank."""
    report = why(str(ONE_H200 / "tie-witness-fp64"), device="cpu", rows=20)
    assert (report.ranks, report.width, report.exit_status) == (8, 20, 0)
    paths = section(report, "Reduction schedule on k3-mini/tie-witness").figures()["paths"]
    assert report.baseline == "route:select=fp64"
    assert paths["baseline"]["attribution"]["names"] == ("gather",)
    assert paths["candidate"]["attribution"]["names"] == ("gather",)


def test_a_bank_that_is_gone_or_another_is_told() -> None:
    evidence = load_evidence(ONE_H200 / "k3-mini")
    entries = [dict(bank) for bank in evidence.record["banks"][:2]]
    entries[0]["spec"], entries[1]["digest"] = "gone", "0" * 64
    changed = replace(evidence, record={**evidence.record, "banks": entries})
    report = why(changed, device="cpu", rows=9)
    stored = section(report, "Reduction schedule by the evidence")
    gone, other = stored.lines()[-2:]
    assert "gone does not open here" in gone
    assert "audited was 0000" in other
    assert report.exit_status == 3
    # What the tables know is there all the same: the Gaussian law of the declared one is nearest.
    off = stored.figures()["triangles"][0]["off"]
    assert next(iter(off)) == "one_shot_fp32"
    assert off["one_shot_fp32"] < 0.1 < off["two_level:4"]


def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ONE_H200 / "tie-witness-fp64", tmp_path / "evidence"))


def test_evidence_of_another_form_is_refused() -> None:
    evidence = replace(load_evidence(ONE_H200 / "tie-witness-fp64"), record={})
    with pytest.raises(InputError, match=r"^audit.json: \w+=not there, but should be as an audit"):
        why(evidence)


def test_changed_files_of_evidence_are_told_or_refused(tmp_path: Path) -> None:
    place = copied(tmp_path)
    shown = place / "report.md"
    shown.write_text(shown.read_text() + "\n")
    (place / "junit.xml").unlink()
    report = why(str(place), device="cpu", rows=9)
    changed = section(report, "Files of the evidence").lines()
    assert [line.split(":")[0] for line in changed] == ["junit.xml", "report.md"]
    assert report.exit_status == 1
    (place / "values.parquet").unlink()
    with pytest.raises(InputError, match=r"^values\.parquet=missing, but should be as manifest"):
        why(str(place), device="cpu", rows=9)


def test_evidence_without_values_says_so() -> None:
    evidence = load_evidence(ONE_H200 / "tie-witness-fp64")
    less = {name: table for name, table in evidence.tables.items() if name != "values"}
    report = why(replace(evidence, tables=less), device="cpu", rows=9)
    stored = section(report, "Reduction schedule by the evidence").figures()
    assert stored == {"not_run": "no values.parquet is there"}


def test_the_evidences_figures_name_its_own_paths() -> None:
    report = why(str(ONE_H200 / "tie-witness-fp64"), baseline="general", device="cpu", rows=9)
    assert report.baseline == "general"
    stored = section(report, "Reduction schedule by the evidence")
    assert stored.title.endswith(": route:select=fp64 against route")


def test_evidence_of_real_ranks_is_told_from_its_tables() -> None:
    report = why(str(DOCS / "two-h200" / "nccl-against-push"))
    assert report.exit_status == 3
    assert "it shows one_shot_fp32 against gather" in report.text()
    assert "it ran on 2 real ranks" in report.text()


def test_the_worst_section_decides_the_status() -> None:
    class Told:
        title = "told"

        def lines(self) -> list[str]:
            return ["a line"]

        def figures(self) -> dict[str, Any]:
            return {"figure": 1}

    def status(*sections: Section) -> int:
        return WhyReport("bank", "a", "b", 2, 9, sections).exit_status

    idle, lost = NotRun("idle", "nothing to do", exit_status=0), NotRun("lost", "no bank")
    against = NotRun("against", "contradicted", exit_status=1)
    assert [status(Told(), idle), status(Told(), lost), status(lost, against)] == [0, 3, 1]
    text = WhyReport("bank", "a", "b", 2, 9, (Told(), lost)).text()
    assert text.endswith("told\n  a line\n\nlost\n  not run: no bank")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": 3}, "ranks=3"),
        ({"width": 21}, "width=21"),
        ({"width": 0}, "width=0, but should be at least 1"),
        ({"ranks": 0}, "ranks=0, but should be at least 1"),
        ({"rows": 0}, "rows=0"),
        ({"device": "tpu"}, "device=tpu"),
        ({"baseline": "generl"}, "path=generl"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        why(BANK, **change)


def test_the_command(monkeypatch: Any, capsys: Any) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["neartie", "why", *words])
        status = cli.exit_status()
        return status, *capsys.readouterr()

    status, out, _ = run(BANK, "--rows", "12", "--ranks", "4", "--json")
    told = json.loads(out)
    assert (status, told["exit_status"]) == (0, 0)
    titles = [one["title"] for one in told["sections"]]
    assert titles[0] == "Reduction schedule on gaussian:rows=12,seed=1"
    assert "Exchange of baseline general at mini sizes" in titles
    status, out, told_on_stderr = run("nothing-there")
    assert (status, out) == (2, "")
    assert told_on_stderr.startswith("neartie: bank=nothing-there, but should be")


def test_stages_noise_and_swaps_of_both_paths() -> None:
    report = why(BANK, candidate="route:bias=bf16,score=tanh", **FEW)
    stages = section(report, "Stages").figures()
    assert {"bias", "score"} <= set(stages["acting"])
    assert section(report, "Noise").figures()["test"]["rows"] == 12
    assert section(report, "Effect of the swaps").figures()["effect"]["rows"] == 12


def test_a_section_that_a_bank_cannot_answer_is_not_run() -> None:
    report = why("gaussian:geometry=mini,stage=logits,rows=12", rows=12)
    noise = section(report, "Noise")
    assert "should be a bank with hidden rows" in noise.figures()["not_run"]
    assert section(report, "Stages").figures()["rows"] == 12
    assert report.exit_status == 3
