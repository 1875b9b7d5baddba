"""Every fault of the catalogue is caught and named, on a reduced grid; and the score can fail."""

from typing import Any

import pytest

from neartie.audit import chunk_run, run
from neartie.audit.compare import compare_rows
from neartie.audit.detect import Detector
from neartie.audit.places import Places
from neartie.audit.selftest.catalogue import CATALOGUE, STAGES
from neartie.audit.selftest.cells import Outcome, run_clean, run_fault
from neartie.audit.selftest.fault import Fault, FaultyPath, always
from neartie.audit.selftest.run import RANKS, WIDTHS, planned, run_cell, selftest
from neartie.audit.selftest.scenes import SELECT, Scene
from neartie.audit.selftest.score import Score
from neartie.audit.selftest.table import score_lines
from neartie.banks.errors import InputError
from neartie.kernels.registry import make_path

SETTINGS = ((12, 4), (9, 8), (9, 1), (1, 8))
"""(width, ranks); each fault is tried at the first that can show it."""


def setting_of(fault: Fault) -> tuple[int, int]:
    return next(s for s in SETTINGS if fault.cannot_show(*s) is None)


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught_and_named(fault: Fault) -> None:
    result = run_fault(fault, fault.scenes[0], *setting_of(fault))
    assert result.outcome is Outcome.NAMED, result


SCENES = list({scene.name: scene for fault in CATALOGUE for scene in fault.scenes}.values())


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_the_clean_pair_of_a_scene_raises_no_alarm(scene: Scene) -> None:
    result = run_clean(scene, 12, 4)
    assert result.failing == ()
    assert result.state == "INCONCLUSIVE", "nothing was compared"


def test_names_are_unique_and_every_fault_shows_somewhere() -> None:
    names = [fault.name for fault in CATALOGUE]
    assert len(set(names)) == len(names)
    assert sum(map(len, STAGES.values())) == len(CATALOGUE)
    for fault in CATALOGUE:
        shows = [
            (width, count)
            for width in WIDTHS
            for count in RANKS
            if fault.cannot_show(width, count) is None
        ]
        assert shows, fault.name
        assert fault.names, fault.name


def test_a_path_tells_nothing_of_its_fault() -> None:
    clean = make_path("route")
    faulty = FaultyPath(clean, CATALOGUE[0].make())
    assert (faulty.name, faulty.declared, faulty.outputs) == (
        clean.name,
        clean.declared,
        clean.outputs,
    )


def fault_named(name: str) -> Fault:
    return next(fault for fault in CATALOGUE if fault.name == name)


def score_of(name: str, width: int = 12, ranks: int = 4) -> Score:
    return selftest(widths=[width], ranks=[ranks], only=name)


def test_a_detector_that_is_off_is_told_as_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(self: Any, *given: Any) -> None:
        pass

    monkeypatch.setattr(Detector, "replay", blind)
    score = score_of("nondeterministic_sum")
    assert score.count(Outcome.MISSED) == 1
    assert score.exit_status == 1
    told = score_lines(score)
    assert "mutation score: 0.0% (0 of 1) caught, 0.0% (0 of 1) caught and named; missed 1" in told
    assert any(
        line.startswith("missed: nondeterministic_sum on select at width 12, 4 ranks: INCONCLUSIVE")
        for line in told
    )


def test_a_finding_that_is_off_is_told_as_misnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(self: Any, *given: Any) -> None:
        pass

    monkeypatch.setattr(Places, "selected", blind)
    score = score_of("padded_stride_in_the_select")
    assert score.count(Outcome.MISNAMED) == 1
    # It was caught: only what it is called is wrong.
    assert score.exit_status == 0
    assert any(line.startswith("caught but misnamed: padded_stride") for line in score_lines(score))


def test_an_alarm_on_the_clean_pair_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def trigger_happy(*given: Any) -> Any:
        found = compare_rows(*given)
        found.flags["candidate"][0] |= 1
        return found

    monkeypatch.setattr(chunk_run, "compare_rows", trigger_happy)
    score = score_of("nondeterministic_sum")
    assert len(score.false_alarms) == 1
    assert score.exit_status == 1
    (told,) = (line for line in score_lines(score) if line.startswith("false alarm"))
    assert told == ("false alarm: clean pair on select at width 12, 4 ranks: flag:negative_weight")


def test_a_fault_that_changes_nothing_is_missed() -> None:
    """The score cannot be had for the asking: what is caught must be in the outputs."""
    harmless = Fault(
        "harmless",
        "nothing is wrong",
        "nowhere",
        (SELECT,),
        always(lambda clean, launch, out: clean.run(launch, out)),
        ("*",),
    )
    assert run_fault(harmless, SELECT, 12, 4).outcome is Outcome.MISSED


def test_a_cause_that_is_not_the_faults_is_counted() -> None:
    fault = fault_named("bias_missing")
    assert fault.is_misled_by("stale_output")
    assert fault.is_misled_by("explained_by:bf16_bias")
    # True of the outputs, of the arithmetic, or of the fault itself.
    for code in ("far_swap", "explained_by:score_form=exp", "explained_by:no_bias"):
        assert not fault.is_misled_by(code)


@pytest.mark.parametrize("name", ["logits_off_by_1e-4", "padded_stride", "flush_to_zero"])
def test_no_mistake_is_named_that_has_no_part_in_it(name: str) -> None:
    """A select that is right for the logits it got makes no mistake, whatever the logits are."""
    fault = fault_named(name)
    result = run_fault(fault, fault.scenes[0], 12, 4)
    assert result.outcome is Outcome.NAMED
    assert result.misleading == ()


@pytest.mark.parametrize(
    ("name", "width", "ranks", "reason"),
    [
        ("rank_major_read_as_row_major", 1, 4, "a launch of one row has no other row"),
        ("rank_major_read_as_row_major", 12, 1, "one rank exchanges nothing"),
        ("row_block_loses_the_odd_row", 12, 4, "an even number of rows is halved evenly"),
    ],
)
def test_what_cannot_show_is_not_run_and_says_why(
    name: str, width: int, ranks: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: Any, **options: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(run, "run_audit", never)
    fault = fault_named(name)
    result = run_fault(fault, fault.scenes[0], width, ranks)
    assert (result.outcome, result.reason) == (Outcome.NOT_APPLICABLE, reason)


def test_what_is_said_not_to_show_really_changes_nothing() -> None:
    """A fault may not be excused where it does show."""
    for fault in CATALOGUE:
        for width, ranks in ((1, 4), (12, 1), (12, 2)):
            if fault.cannot_show(width, ranks) is not None:
                assert_same_outputs(fault, width, ranks)


def assert_same_outputs(fault: Fault, width: int, ranks: int) -> None:
    from neartie.audit.launching import front_weights, make_launch, run_path

    scene = fault.scenes[0]
    bank = scene.make(width, ranks)
    weights = front_weights(bank)
    launch = make_launch(bank, weights, bank.read(0, bank.rows), width, ranks)
    clean = make_path(scene.candidate)
    expected, got = (run_path(p, launch) for p in (clean, FaultyPath(clean, fault.make())))
    for tensor in ("latent", "logits", "ids", "weights"):
        a, b = getattr(expected, tensor), getattr(got, tensor)
        if a is not None:
            assert a.tobytes() == b.tobytes(), (fault.name, width, ranks, tensor)


def test_a_plan_has_every_fault_at_every_setting() -> None:
    cells = planned([(w, r) for w in WIDTHS for r in RANKS])
    planted = {(cell.fault, cell.width, cell.ranks) for cell in cells if cell.fault}
    assert len(planted) == len(CATALOGUE) * len(WIDTHS) * len(RANKS)
    scenes = {cell.scene for cell in cells}
    assert {cell.scene for cell in cells if cell.fault is None} == scenes


def test_two_processes_say_what_one_says() -> None:
    options: Any = {"widths": [9], "ranks": [4], "only": "bias_in_weights"}
    one, two = selftest(workers=1, **options), selftest(workers=2, **options)
    assert one.results == two.results
    assert len(one.results) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": "no_such"}, "fault=no_such, but should be one of k_tail_dropped"),
        ({"widths": []}, "widths=[], but should be at least one, each once"),
        ({"widths": [9, 9]}, "widths=[9, 9], but should be at least one, each once"),
        ({"widths": [21]}, "width=21, but should be 1..20"),
        ({"ranks": [3]}, "ranks=3, but should be a divisor of 64"),
    ],
)
def test_misuse_is_one_line(options: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        selftest(**options)
    assert str(error.value).startswith(message)


def test_an_interrupted_self_test_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress may raise, as an interrupt does: the results end there."""

    def stop(done: int, total: int, text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        selftest(widths=[12], ranks=[4], only="bias_in_weights", progress=stop)


def test_a_cell_runs_by_its_names_alone() -> None:
    (cell, *_) = planned([(12, 4)], "scale_not_applied")
    assert run_cell(cell).outcome is Outcome.NAMED
