"""The device fronts on a GPU: stage by stage, width by width, eager against captured.

Under TRITON_INTERPRET=1 the same tests run on the CPU, but for those that need a CUDA graph.
"""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import neartie
from neartie.audit.graph_replay import check_replay
from neartie.audit.launching import POISONS, alternating, poisoned_outputs
from neartie.banks.errors import EnvelopeError, InputError
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels.contract import BFLOAT16, FrontWeights, Launch, Routed
from neartie.kernels.cuda import lang
from neartie.kernels.cuda.gather_triton import paired_gather
from neartie.kernels.cuda.plain import plain_select
from neartie.kernels.cuda.selects import DEVICE_SELECTS
from neartie.kernels.cuda.topk_triton import select_rows
from neartie.kernels.device_front import DeviceFrontPath
from neartie.kernels.gather import gather
from neartie.kernels.reduce import LIBRARY_ORDERS, SCHEDULES, reduce_partials
from neartie.kernels.registry import make_path

REASON = lang.unavailable()
runs = pytest.mark.skipif(REASON is not None, reason=str(REASON))
NO_GRAPH = REASON or ("the interpreter has no CUDA graphs" if lang.INTERPRETED else None)
graphs = pytest.mark.skipif(NO_GRAPH is not None, reason=str(NO_GRAPH))
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

SMALL = Geometry("small", 64, 32, 96, 8)
GEOMETRY = SMALL if lang.INTERPRETED else Geometry("wide", 7168, 3584, 896, 16)
WIDTHS = (1, 9) if lang.INTERPRETED else tuple(range(1, 21))
RANKS = 4


@pytest.mark.skipif(REASON is None, reason="runs here itself")
@pytest.mark.skipif(not lang.INSTALLED, reason="triton is not installed")
def test_under_the_interpreter() -> None:
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def bf16(random: Any, *shape: int) -> Any:
    return random.standard_normal(shape).astype(np.float32).astype(BFLOAT16)


def launch_of(width: int, seed: int = 0) -> Launch:
    random, g = np.random.default_rng(seed), GEOMETRY
    scale = np.float32(g.hidden**-0.5)
    master = random.standard_normal((g.experts, g.hidden)).astype(np.float32) * scale
    bias = (0.02 * random.standard_normal(g.experts)).astype(np.float32)
    latent = bf16(random, g.latent, g.hidden)
    weights = FrontWeights(master.astype(BFLOAT16), bias, latent, {"master": master})
    hidden = bf16(random, width, g.hidden)
    index = np.arange(width, dtype=np.int64)
    return Launch(g, ScoringRule(), RANKS, width, weights, index, hidden=hidden)


def device_path(spec: str) -> DeviceFrontPath:
    path = make_path(spec, "cuda")
    assert isinstance(path, DeviceFrontPath)
    return path


def run(path: Any, launch: Launch) -> Routed:
    out = poisoned_outputs(path, launch, POISONS[0])
    path.run(launch, out)
    return out


def pieces_of(path: DeviceFrontPath) -> tuple[Any, Any]:
    """Latent and logits pieces of the last run, as they lay before the exchange."""
    assert path._buffers is not None
    latent = path._buffers.latent_pieces.view(torch.int16).cpu().numpy().view(BFLOAT16)
    return latent, path._buffers.logits_pieces.cpu().numpy()


def test_without_a_device_the_reason_is_told() -> None:
    if REASON is None:
        pytest.skip("there is a device")
    path = make_path("route", "cuda")
    assert str(path.unavailable()).startswith("device cuda: no CUDA device")
    with pytest.raises(EnvelopeError, match="but should be one that runs here"):
        path.check(launch_of(9))


def test_what_no_kernel_computes_is_refused() -> None:
    with pytest.raises(InputError, match="accumulate"):
        make_path("route:accumulate=fp32", "cuda")
    with pytest.raises(InputError, match="select=fp64"):
        make_path("route:select=fp64", "cuda")
    with pytest.raises(InputError, match="score=exp, but should be one of"):
        make_path("route:select=fused,score=exp", "cuda")
    reason = make_path("general:reduce=nccl", "cuda").unavailable()
    assert str(reason).startswith("NCCL needs one process and one GPU for each rank")


@runs
@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name not in LIBRARY_ORDERS])
def test_the_latent_is_the_schedule_of_the_products(schedule: Any) -> None:
    launch = launch_of(9)
    path = device_path(f"general:reduce={schedule}")
    out = run(path, launch)
    latent, logits = pieces_of(path)
    assert out.latent is not None
    assert out.logits is not None
    expected = np.empty_like(out.latent)
    reduce_partials(schedule, latent, expected, 9)
    assert np.array_equal(out.latent.view(np.uint16), expected.view(np.uint16))
    wide = np.empty(out.logits.shape[1:], np.float32)
    gather(logits, wide)
    assert (out.logits.view(np.uint32) == wide.view(np.uint32)).all()


@runs
@pytest.mark.parametrize("width", WIDTHS)
def test_the_route_gathers_its_shards_for_any_row_blocks(width: Any) -> None:
    launch = launch_of(width)
    both = []
    for row_blocks in (1, 2):
        path = device_path(f"route:row_blocks={row_blocks}")
        out = run(path, launch)
        latent, _ = pieces_of(path)
        assert out.latent is not None
        wide = np.empty(out.latent.shape[1:], BFLOAT16)
        gather(latent, wide)
        assert (out.latent.view(np.uint16) == wide.view(np.uint16)).all()
        both.append(out)
    for name in ("latent", "logits", "ids", "weights"):
        a, b = (getattr(out, name).tobytes() for out in both)
        assert a == b


@runs
@pytest.mark.parametrize(
    ("spec", "width", "select"),
    [
        ("route", 8, "fused"),
        ("route", 9, "standalone"),
        ("general", 9, "topk_sigmoid"),
        ("general:select=grouped_topk", 9, "grouped_topk"),
    ],
)
def test_the_select_is_plain_torch_on_the_path_s_own_logits(
    spec: Any, width: Any, select: Any
) -> None:
    launch = launch_of(width)
    out = run(device_path(spec), launch)
    assert out.logits is not None
    where = lang.device()
    logits = torch.from_numpy(out.logits[0].copy()).to(where)
    bias = torch.from_numpy(launch.weights.bias).to(where)
    ids, weights = plain_select(DEVICE_SELECTS[select], logits, bias, GEOMETRY.top_k)
    for rank in range(RANKS):
        assert np.array_equal(out.ids[rank], ids.cpu().numpy())
        assert np.array_equal(
            out.weights[rank].view(np.int32), weights.cpu().numpy().view(np.int32)
        )


@runs
@pytest.mark.parametrize("spec", ["general", "route", "route:router_gemm=fp32"])
def test_products_are_near_the_exact_ones_and_inputs_may_be_rounded(spec: Any) -> None:
    launch = launch_of(9)
    out, exact = run(device_path(spec), launch), run(make_path(spec.partition(":")[0]), launch)
    assert out.logits is not None
    assert exact.logits is not None
    # An FP32 sum of 7168 products in any order: u sqrt(n) of the logits' size is far above it.
    limit = 2.0**-24 * GEOMETRY.hidden**0.5 * np.abs(exact.logits).max()
    assert np.abs(out.logits - exact.logits).max() < 4 * limit


@runs
def test_logits_and_bias_may_be_rounded_and_the_weight_another() -> None:
    launch = launch_of(9)
    path = device_path("route:logits=bf16,bias=bf16")
    out = run(path, launch)
    assert out.logits is not None
    rounded = out.logits[0].astype(BFLOAT16).astype(np.float32)
    bias = launch.weights.bias.astype(BFLOAT16).astype(np.float32)
    where = lang.device()
    ids, _ = plain_select(
        DEVICE_SELECTS["standalone"],
        torch.from_numpy(rounded).to(where),
        torch.from_numpy(bias).to(where),
        GEOMETRY.top_k,
    )
    assert np.array_equal(out.ids[0], ids.cpu().numpy())
    master = run(device_path("route:router_weight=master"), launch)
    assert master.logits is not None
    assert not np.array_equal(master.logits, out.logits)


@runs
def test_every_stage_is_an_input() -> None:
    launch = launch_of(9)
    for spec in ("general", "route"):
        path = device_path(spec)
        out = run(path, launch)
        latent, logits = pieces_of(path)
        name = "latent_partials" if spec == "general" else "latent_shards"
        pieces: dict[str, Any] = {name: latent, "logits_shards": logits}
        again = run(path, replace(launch, hidden=None, **pieces))
        assert out.logits is not None
        select = run(path, replace(launch, hidden=None, logits=out.logits[0].copy()))
        for other in (again, select):
            assert np.array_equal(out.ids, other.ids)
            assert np.array_equal(out.weights, other.weights)
        assert out.latent is not None
        assert again.latent is not None
        assert np.array_equal(out.latent.view(np.uint16), again.latent.view(np.uint16))
        assert select.latent is None


@graphs
@pytest.mark.parametrize("spec", ["general", "route", "general:reduce=own_rank_first_fp32"])
@pytest.mark.parametrize("width", [1, 8, 9, 20])
def test_a_replay_has_the_bits_of_an_eager_run(spec: Any, width: Any) -> None:
    first = launch_of(width)
    second = replace(first, hidden=launch_of(width, seed=1).hidden)
    assert check_replay(device_path(spec), [first, second]) == []


@graphs
def test_a_captured_kernel_that_skips_the_last_rows_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def short(logits: Any, bias: Any, select: Any, k: int, scale: Any, ids: Any, w: Any) -> None:
        # Eager runs are right; the graph has a kernel of too few programs.
        rows = len(logits) - 2 * torch.cuda.is_current_stream_capturing()
        select_rows(logits[:rows], bias, select, k, scale, ids[:rows], w[:rows])

    monkeypatch.setattr("neartie.kernels.cuda.front_steps.select_rows", short)
    first = launch_of(9)
    second = replace(first, hidden=launch_of(9, seed=1).hidden)
    differences = check_replay(device_path("route"), [first, second])
    assert differences is not None
    assert {(str(one.finding), one.tensor) for one in differences} == {
        (kind, tensor)
        for kind in ("unwritten_rows", "stale_output")
        for tensor in ("ids", "weights")
    }
    assert all(np.flatnonzero(one.rows).tolist() == [7, 8] for one in differences)


@graphs
def test_an_exchange_that_was_not_captured_leaves_stale_outputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def outside(latent: Any, logits: Any, row_blocks: int) -> None:
        # The graph has no gather: replays select the logits of whatever ran before.
        if not torch.cuda.is_current_stream_capturing():
            paired_gather(latent, logits, row_blocks)

    monkeypatch.setattr("neartie.kernels.cuda.front_steps.paired_gather", outside)
    first = launch_of(9)
    second = replace(first, hidden=launch_of(9, seed=1).hidden)
    differences = check_replay(device_path("route"), [first, second])
    assert differences is not None
    found = {(str(one.finding), one.tensor) for one in differences}
    assert {("unwritten_rows", "latent"), ("stale_output", "latent")} <= found


@graphs
def test_an_audit_on_the_device_judges_both_paths_and_passes_them() -> None:
    result = neartie.run_audit("k3-mini/layer0", rows=[9, 20], device="cuda")
    failing = [r for r in result.record["verdict"]["reasons"] if r["state"] == "FAIL"]
    assert failing == []
    assert result.record["banks"][0]["graph_replays"] == 16
    assert result.record["environment"]["cublas"] != "unknown"
    assert {w["width"] for w in result.record["widths"]} == {9, 20}


@runs
def test_two_launches_in_one_call_are_refused() -> None:
    launch = launch_of(8)
    with pytest.raises(EnvelopeError, match="rows=8, but should be one launch of 4"):
        run(device_path("route"), replace(launch, width=4))


def test_one_alternating_launch_is_enough_for_a_single_row() -> None:
    assert len(alternating(launch_of(1))) == 1
