"""The built-in paths: envelope, stages, batching, options, and what they declare."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neartie.banks.errors import EnvelopeError, InputError
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels import gemm
from neartie.kernels.contract import BFLOAT16, FrontWeights, Launch, Path, Routed
from neartie.kernels.reference import reference_product, reference_select
from neartie.kernels.registry import make_path

GEOMETRY = Geometry("small", 64, 32, 48, 4)
RANKS = 4
ID_POISON = -12345
PATHS = [
    "general",
    "general:reduce=own_rank_first_fp32,select=hf",
    "general:reduce=ring_bf16",
    "general:islands=4,reduce=two_level",
    "general:accumulate=fp32",
    "route",
    "route:accumulate=fp32,row_blocks=2",
    "route:fused_rows=1,row_blocks=2",
    "route:router_weight=master",
    "route:select=fp64",
]


def _launch(rows: int = 12, width: int = 4, seed: int = 0) -> Launch:
    random = np.random.default_rng(seed)

    def bf16(*shape: int) -> Any:
        return random.normal(size=shape).astype(np.float32).astype(BFLOAT16)

    master = (random.normal(size=(48, 64)) / 8).astype(np.float32)
    bias = (0.05 * random.normal(size=48)).astype(np.float32)
    weights = FrontWeights(master.astype(BFLOAT16), bias, bf16(32, 64), {"master": master})
    index = np.arange(rows, dtype=np.int64)
    return Launch(GEOMETRY, ScoringRule(), RANKS, width, weights, index, hidden=bf16(rows, 64))


def _poisoned(launch: Launch) -> Routed:
    shape = (launch.ranks, launch.rows)
    pieces = (launch.hidden, launch.latent_partials, launch.latent_shards)
    latent = any(piece is not None for piece in pieces)
    return Routed(
        np.full((*shape, 4), ID_POISON, np.int32),
        np.full((*shape, 4), 0x7FA5A5A5, np.uint32).view(np.float32),
        np.full((*shape, 32), 0x7FA5, np.uint16).view(BFLOAT16) if latent else None,
        np.full((*shape, 48), 0x7FA5A5A5, np.uint32).view(np.float32)
        if launch.logits is None
        else None,
    )


def _run(path: str | Path, launch: Launch) -> Routed:
    out = _poisoned(launch)
    (make_path(path) if isinstance(path, str) else path).run(launch, out)
    return out


def _arrays(out: Routed) -> dict[str, Any]:
    return {
        name: array.view(f"u{array.dtype.itemsize}")
        for name, array in vars(out).items()
        if array is not None
    }


def _same(a: Routed, b: Routed) -> bool:
    left, right = _arrays(a), _arrays(b)
    return all(np.array_equal(left[name], right[name]) for name in left.keys() & right.keys())


@pytest.mark.parametrize("path", PATHS)
def test_every_element_is_written(path: str) -> None:
    out = _run(path, _launch())
    assert not (out.ids == ID_POISON).any()
    for name, array in _arrays(out).items():
        assert not np.isin(array, [0x7FA5A5A5, 0x7FA5]).any(), name


@pytest.mark.parametrize("path", PATHS)
def test_several_launches_in_one_call_equal_one_by_one(path: str) -> None:
    launch = _launch()
    whole = _run(path, launch)
    assert make_path(path).batches_launches
    for start in (0, 4, 8):
        part = slice(start, start + 4)
        assert launch.hidden is not None
        one = replace(launch, row_index=launch.row_index[part], hidden=launch.hidden[part])
        cut = {name: array[:, part] for name, array in _arrays(whole).items()}
        for name, array in _arrays(_run(path, one)).items():
            assert np.array_equal(array, cut[name]), name


@pytest.mark.parametrize("path", ["general:accumulate=fp32", "route:accumulate=fp32"])
def test_an_fp32_matmul_sees_one_launch_and_one_rank(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bits may depend on the shape, so the shape must be the true one."""
    real, shapes = gemm._torch_product, []

    def recording(x: Any, weight: Any) -> Any:
        shapes.append((x.shape, weight.shape))
        return real(x, weight)

    monkeypatch.setattr(gemm, "_torch_product", recording)
    _run(path, _launch())
    latent = ((4, 16), (32, 16)) if path.startswith("general") else ((4, 64), (8, 64))
    assert sorted(shapes) == sorted([latent, ((4, 64), (12, 64))] * 3 * RANKS)


def test_values_follow_the_stages() -> None:
    """Latent: one rounding of the exact sum. Logits: FP32 of it. Ids: the reference's."""
    launch = _launch()
    out = _run("route:select=standalone", launch)
    assert launch.hidden is not None
    weights = launch.weights
    assert weights.latent is not None
    assert weights.router is not None
    exact = reference_product(launch.hidden, weights.latent)
    assert out.latent is not None
    assert np.array_equal(out.latent[2], exact.astype(np.float32).astype(BFLOAT16))
    logits = reference_product(launch.hidden, weights.router)
    assert out.logits is not None
    assert np.array_equal(out.logits[3], logits.astype(np.float32))
    expected = reference_select(logits, weights.bias, GEOMETRY, ScoringRule())
    assert np.array_equal(out.ids[1], expected.ids)
    assert np.abs(out.weights[0] / expected.weights - 1).max() < 8 * 2.0**-24


def test_general_differs_in_latent_only() -> None:
    launch = _launch()
    route, general = (_run(f"{kind}:select=hf", launch) for kind in ("route", "general"))
    assert np.array_equal(route.ids, general.ids)
    assert np.array_equal(route.weights, general.weights)
    assert not np.array_equal(route.latent, general.latent)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["general", "route"])
def test_later_stages_continue_with_the_same_bits(kind: str) -> None:
    """Pieces cut from one run and given as inputs end in the same outputs."""
    launch = _launch()
    whole = _run(kind, launch)
    assert whole.logits is not None
    assert whole.latent is not None
    shards = np.stack(np.split(whole.logits[0], RANKS, axis=1))
    pieces = replace(launch, hidden=None, logits_shards=shards)
    if kind == "route":
        latent = np.stack(np.split(whole.latent[0], RANKS, axis=1))
        pieces = replace(pieces, latent_shards=latent)
    else:
        partials = np.zeros((RANKS, 12, 32), BFLOAT16)
        partials[1] = whole.latent[0]
        pieces = replace(pieces, latent_partials=partials)
    assert _same(_run(kind, pieces), whole)
    logits = replace(launch, hidden=None, logits=whole.logits[0])
    assert _same(_run(kind, logits), whole)


def test_row_blocks_never_change_a_bit() -> None:
    launch = _launch()
    assert _same(_run("route", launch), _run("route:row_blocks=2", launch))


def test_fused_rows_decides_the_select() -> None:
    narrow, wide = _launch(20, 8), _launch(20, 10)
    narrow = replace(narrow, row_index=narrow.row_index[:16], hidden=narrow.hidden[:16])  # type: ignore[index]
    for launch, name in ((narrow, "fused"), (wide, "standalone")):
        assert _same(_run("route", launch), _run(f"route:select={name}", launch))
    assert _same(_run("route:fused_rows=10", wide), _run("route:select=fused", wide))
    assert not _same(_run("route", wide), _run("route:select=fused", wide))


def test_nan_weights_are_kept() -> None:
    launch = _launch()
    assert launch.hidden is not None
    launch.hidden[5, 0] = np.nan
    out = _run("general:select=hf", launch)
    assert np.isnan(out.weights[:, 5]).all()
    assert np.isfinite(np.delete(out.weights, 5, axis=1)).all()


@pytest.mark.parametrize("kind", ["general", "route", "recorded"])
@pytest.mark.parametrize("width", [0, 21])
def test_width_envelope(kind: str, width: int) -> None:
    with pytest.raises(EnvelopeError, match=rf"width={width}, but should be 1..20"):
        make_path(kind).check(replace(_launch(), width=width))


@pytest.mark.parametrize("width", [1, 20])
def test_width_is_accepted_to_its_ends(width: int) -> None:
    make_path("route").check(_launch(20, width))


@pytest.mark.parametrize(
    ("path", "changes", "message"),
    [
        ("route", {"width": 5}, "rows=12, but should be a multiple of 5"),
        ("route", {"ranks": 5}, "ranks=5, but should be a divisor of hidden 64"),
        ("general:reduce=two_level,islands=3", {}, "islands=3, but should be a divisor of 4"),
        ("route", {"hidden": None}, "logits input=nothing"),
        ("general:reduce=nccl", {}, "needs CUDA GPUs"),
        (
            "route",
            {"hidden": None, "latent_partials": 0, "logits_shards": 0},
            "latent input=latent_partials, but should be latent_shards or hidden",
        ),
        (
            "general:select=grouped_topk",
            {"geometry": replace(GEOMETRY, groups=4, top_groups=2)},
            None,
        ),
        (
            "route",
            {"geometry": replace(GEOMETRY, groups=4, top_groups=2)},
            "groups=4, but should be 1",
        ),
        ("general", {"scoring": ScoringRule("softmax")}, "scoring.function=softmax"),
    ],
)
def test_envelope(path: str, changes: dict[str, Any], message: str | None) -> None:
    launch = replace(_launch(), **changes)
    if message is None:
        make_path(path).check(launch)
        return
    with pytest.raises(EnvelopeError, match=message):
        make_path(path).check(launch)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rout", r"path=rout, but should be one of .*general, recorded, route"),
        ("route:", "path='route:', but should be name"),
        ("route:reduce=nccl", r"option=reduce, but should be one of select, fused_rows"),
        ("general:reduce=fast", "reduce=fast, but should be one of one_shot_fp32"),
        ("general:reduce", "option='reduce', but should be key=value"),
        ("general:select=hf,select=fused", r"option='select=fused', but should be given once"),
        ("route:fused_rows=-1", "fused_rows=-1, but should be a whole number, at least 0"),
        ("route:row_blocks=3", "row_blocks=3, but should be one of 1, 2"),
        ("general:islands=4", "islands=4, but should be left out unless reduce=two_level"),
        ("route:fused_rows=1,select=hf", "fused_rows=1, but should be left out unless"),
        ("route:sum=random", "sum=random, but should be one of left_to_right"),
    ],
)
def test_bad_specs(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_path(spec)


def test_unknown_router_weight_lists_what_the_bank_has() -> None:
    with pytest.raises(InputError, match="router_weight=none, but should be one of master, router"):
        make_path("route:router_weight=none").check(_launch())


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("general:reduce=one_shot_fp32,accumulate=fp64", "general"),
        ("route:select=hf,row_blocks=2,bias=bf16", "route:bias=bf16,row_blocks=2,select=hf"),
        ("route:fused_rows=01", "route:fused_rows=1"),
        ("recorded:name=gpu", "recorded"),
    ],
)
def test_names_are_canonical(spec: str, name: str) -> None:
    assert make_path(spec).name == name
    assert make_path(name).declared == make_path(spec).declared


def test_declarations_hold() -> None:
    """What is declared about rows, ranks and machines follows from the options."""
    expected = {
        "general": (True, True, True, False),
        "general:reduce=ring_bf16": (False, True, True, False),
        "general:reduce=own_rank_first_fp32": (True, True, False, False),
        "general:accumulate=fp32": (False, True, True, True),
        "route": (True, False, True, False),
        "route:select=standalone": (True, True, True, False),
    }
    for spec, flags in expected.items():
        declared = make_path(spec).declared
        got = (
            declared.row_independent,
            declared.select_row_independent,
            declared.ranks_agree,
            declared.machine_dependent,
        )
        assert got == flags, spec
    words = make_path("route").declared
    assert words.weight_sum == "up to 8 rows: fold; above: left_to_right"
    assert "BF16 first" in make_path("route:logits=bf16").declared.score
