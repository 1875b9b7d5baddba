"""Adapters to torch and FlashInfer: lazy, refused for a reason, wired as the library has it."""

import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import neartie
from neartie.banks.errors import EnvelopeError, InputError
from neartie.banks.geometry import PRESETS, Geometry, ScoringRule
from neartie.kernels.adapters import flashinfer
from neartie.kernels.adapters import flashinfer_deepseek as deepseek
from neartie.kernels.adapters import flashinfer_kimi_topk16 as topk16
from neartie.kernels.adapters.table import ADAPTERS
from neartie.kernels.registry import list_paths, make_path
from neartie.kernels.select import SELECTS, make_select, select

V3 = "gaussian:geometry=deepseek-v3,stage=logits,rows=64"
K3 = "gaussian:geometry=k3,stage=logits,rows=40"
NEEDS_LIBRARY = [name for name in ADAPTERS if name != "torch_topk"]
PCIE = "flashinfer.experimental.b12x.comm.pcie"


# Without the library.


def test_importing_and_listing_neartie_imports_no_flashinfer() -> None:
    code = (
        "import sys, neartie, neartie.kernels.registry as r;"
        "assert 'flashinfer' not in sys.modules and 'torch' not in sys.modules;"
        "r.make_path('route');"
        "assert 'flashinfer' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


@pytest.mark.parametrize("name", NEEDS_LIBRARY)
def test_without_flashinfer_the_reason_says_how_to_get_it(name: Any, monkeypatch: Any) -> None:
    def missing(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named {module!r}", name="flashinfer")

    monkeypatch.setattr(flashinfer, "import_module", missing)
    assert make_path(name).unavailable() == flashinfer.INSTALL
    (listed,) = [path for path in list_paths() if path.name == name]
    assert listed.origin == "adapter"
    assert "needs FlashInfer" in listed.summary
    assert listed.unavailable == flashinfer.INSTALL


def test_a_library_that_does_not_import_is_told_with_its_error(monkeypatch: Any) -> None:
    def broken(module: str) -> Any:
        raise OSError("libcudart.so.13: cannot open shared object file")

    monkeypatch.setattr(flashinfer, "import_module", broken)
    reason = make_path("flashinfer_deepseek").unavailable()
    assert reason == (
        "flashinfer does not import: OSError: libcudart.so.13: cannot open shared object file"
    )


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(InputError, match="option=tie, but should be one of tie_break"):
        make_path("flashinfer_topk:tie=small")
    with pytest.raises(InputError, match="tie_break=least, but should be one of none, small"):
        make_path("flashinfer_topk:tie_break=least")


# A library of the same interface, on the CPU.


def fake(monkeypatch: Any, version: str = "0.6.18", capability: int | None = 90) -> ModuleType:
    """A ``flashinfer`` with its sub-modules, whose kernels run on the CPU."""
    root = ModuleType("flashinfer")
    modules = {name: ModuleType(f"flashinfer.{name}") for name in ("fused_moe", "jit")}
    root.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flashinfer", root)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"flashinfer.{name}", module)
        setattr(root, name, module)
    for name in ("experimental", "tllm_enums", "jit.topk", "jit.fused_moe"):
        monkeypatch.setitem(sys.modules, f"flashinfer.{name}", None)
    monkeypatch.setattr(flashinfer, "device_capability", lambda: capability)
    monkeypatch.setattr(flashinfer, "DEVICE", "cpu")
    return root


def add_deepseek(root: Any, flags: list[str]) -> list[Any]:
    """``fused_topk_deepseek`` by the CPU's own select; returns what it is called with."""
    calls: list[Any] = []

    def fused_topk_deepseek(
        scores: Any,
        bias: Any,
        n_group: int,
        topk_group: int,
        topk: int,
        routed_scaling_factor: float,
        topk_values: Any,
        topk_indices: Any,
    ) -> None:
        calls.append((topk_indices.numpy().copy(), topk_values.numpy().copy()))
        geometry = Geometry("fake", 1, 0, scores.shape[1], topk, n_group, topk_group)
        ids, weights = select(
            SELECTS["noaux_tc"],
            scores.numpy(),
            bias.numpy(),
            geometry,
            ScoringRule(scale=routed_scaling_factor),
        )
        topk_indices.copy_(torch.from_numpy(ids))
        topk_values.copy_(torch.from_numpy(weights))

    root.fused_moe.fused_topk_deepseek = fused_topk_deepseek
    root.jit.gen_dsv3_fused_routing_module = lambda: SimpleNamespace(extra_cuda_cflags=flags)
    return calls


def test_the_deepseek_adapter_is_its_twin_bit_for_bit_where_the_library_is(
    monkeypatch: Any,
) -> None:
    calls = add_deepseek(fake(monkeypatch), ["-O3", "-use_fast_math"])
    result = neartie.run_audit(
        V3,
        baseline="route:select=noaux_tc",
        candidate="flashinfer_deepseek",
        rows=[16],
        ranks=2,
        gate=False,
    )
    assert result.record["provisional_class"] == "BITWISE"
    declared = result.record["candidate"]["declared"]
    assert declared["device"] == "cpu"
    assert (
        "flashinfer 0.6.18; built with -use_fast_math: tanhf becomes tanh.approx"
        in (declared["notes"])
    )
    # The caller's poison lies in the library's buffers, another one in the replay.
    patterns = {int(ids[0, 0]) for ids, _ in calls}
    assert len(patterns) == 2
    assert all((ids < 0).all() and np.isnan(weights).all() for ids, weights in calls)


def test_a_slot_that_the_library_leaves_is_seen(monkeypatch: Any) -> None:
    root = fake(monkeypatch)
    add_deepseek(root, [])
    whole: Any = root.fused_moe.fused_topk_deepseek

    def forgetful(*arguments: Any) -> None:
        ids, weights = arguments[-1].clone(), arguments[-2].clone()
        whole(*arguments)
        arguments[-1][:, 7] = ids[:, 7]
        arguments[-2][:, 7] = weights[:, 7]

    root.fused_moe.fused_topk_deepseek = forgetful
    result = neartie.run_audit(
        V3, baseline="route:select=noaux_tc", candidate="flashinfer_deepseek", rows=[16], ranks=1
    )
    codes = {reason["code"] for reason in result.record["verdict"]["reasons"]}
    assert "unwritten_rows" in codes
    assert result.record["verdict"]["state"] == "FAIL"


def test_build_flags_are_read_from_the_library(monkeypatch: Any) -> None:
    root = fake(monkeypatch)
    add_deepseek(root, ["-O3", "--fmad=false"])
    notes = make_path("flashinfer_deepseek").declared.notes
    assert notes == "flashinfer 0.6.18; built with --fmad=false"
    add_deepseek(root, ["-O3"])
    notes = make_path("flashinfer_deepseek").declared.notes
    assert notes == "flashinfer 0.6.18; built without -use_fast_math"
    del root.jit.gen_dsv3_fused_routing_module
    assert "build flags could not be read" in make_path("flashinfer_deepseek").declared.notes


@pytest.mark.parametrize(
    ("geometry", "message"),
    [
        (PRESETS["deepseek-v3"][0], None),
        (Geometry("g", 1, 0, 16, 8, 8, 4), None),
        (PRESETS["k2"][0], "topk_group \\* n_group=1, but should be at least top_k 8"),
        (PRESETS["k3"][0], "top_k=16, but should be at most 8"),
        (Geometry("g", 1, 0, 385, 1), "experts=385, but should be at most 384"),
        (Geometry("g", 1, 0, 264, 8, 8, 4), "experts=264, but should be at most 256"),
        (Geometry("g", 1, 0, 132, 8, 4, 4), "experts in a group=33, but should be at most 32"),
        (Geometry("g", 1, 0, 160, 8, 5, 5), "experts in the top groups=160, but should be at mo"),
    ],
)
def test_the_deepseek_envelope_is_the_librarys(geometry: Any, message: Any) -> None:
    kernel = deepseek.FlashinferDeepseek({})
    if message is None:
        kernel.check(geometry, ScoringRule(), 16)
        return
    with pytest.raises(EnvelopeError, match=message):
        kernel.check(geometry, ScoringRule(), 16)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (ScoringRule("softmax"), "scoring.function=softmax, but should be sigmoid"),
        (ScoringRule(renormalize=False), "scoring.renormalize=False, but should be True"),
    ],
)
@pytest.mark.parametrize("name", list(ADAPTERS))
def test_another_rule_is_refused(name: Any, rule: Any, message: Any) -> None:
    kernel: Any = make_path(name)
    with pytest.raises(EnvelopeError, match=message):
        kernel._kernel.check(PRESETS["k3"][0], rule, 8)


def test_what_a_version_lacks_and_what_a_device_is_not_are_told_together(monkeypatch: Any) -> None:
    fake(monkeypatch)
    reason = make_path("flashinfer_trtllm_routing").unavailable()
    assert reason == (
        "trtllm_gen_routing needs compute capability 10.0, 10.3, 10.7, 12.0, 12.1; this device has "
        "9.0; flashinfer 0.6.18 has no flashinfer.fused_moe.trtllm_gen_routing (seen in 0.7.4)"
    )
    reason = make_path("flashinfer_kimi_k3").unavailable()
    assert reason is not None
    assert reason.startswith("kimi_k3_fused_router needs compute capability 10.0, 10.3; this devi")
    result = neartie.run_audit(K3, candidate="flashinfer_kimi_topk16", rows=[8, 9], ranks=8)
    assert result.verdict.exit_status == 3
    assert result.record["verdict"]["state"] == "NOT_RUN"
    for width in (8, 9):
        assert any(
            f"at width {width} was not run: flashinfer_kimi_topk16: kimi_topk16 needs compute "
            "capability 12.0, 12.1; this device has 9.0" in one["text"]
            for one in result.record["verdict"]["reasons"]
        )


def test_a_function_that_tells_its_devices_is_asked(monkeypatch: Any) -> None:
    root = fake(monkeypatch, capability=80)
    add_deepseek(root, [])
    reason = make_path("flashinfer_deepseek").unavailable()
    assert reason is not None
    assert "needs compute capability 8.9, 9.0" in reason
    told: Any = root.fused_moe.fused_topk_deepseek
    told.is_compute_capability_supported = lambda capability: capability == 80
    assert make_path("flashinfer_deepseek").unavailable() is None


def test_topk_passes_the_librarys_own_options(monkeypatch: Any) -> None:
    root: Any = fake(monkeypatch)
    seen: list[Any] = []

    def top_k(keys: Any, k: int, **options: Any) -> Any:
        seen.append(options)
        return keys.topk(k)

    root.top_k = top_k
    audit: Any = {"baseline": "torch_topk", "rows": [16], "ranks": 1, "gate": False}
    spec = "flashinfer_topk:tie_break=large,deterministic=false,sorted=false"
    for candidate in ("flashinfer_topk", spec):
        result = neartie.run_audit(V3, candidate=candidate, **audit)
        assert result.record["provisional_class"] == "BITWISE"
    assert seen[0] == {"sorted": True, "deterministic": True, "tie_break": 1}
    assert seen[-1] == {"sorted": False, "deterministic": False, "tie_break": 2}


def test_trtllm_routing_is_called_by_its_deepseek_method(monkeypatch: Any) -> None:
    root: Any = fake(monkeypatch, "0.7.4", 100)
    enums: Any = ModuleType("flashinfer.tllm_enums")
    enums.RoutingMethodType = SimpleNamespace(DeepSeekV3=2)
    monkeypatch.setitem(sys.modules, "flashinfer.tllm_enums", enums)
    seen: list[Any] = []

    def trtllm_gen_routing(x: Any, bias: Any, method: int, top_k: int, **options: Any) -> Any:
        seen.append((method, top_k, options))
        geometry, _ = PRESETS["deepseek-v3"]
        rule = ScoringRule(scale=options["routed_scaling_factor"])
        ids, weights = select(SELECTS["noaux_tc"], x.numpy(), bias.numpy(), geometry, rule)
        bf16 = torch.from_numpy(weights).to(torch.bfloat16)
        return SimpleNamespace(topk_ids=torch.from_numpy(ids), topk_weights=bf16)

    root.fused_moe.trtllm_gen_routing = trtllm_gen_routing
    result = neartie.run_audit(
        V3,
        baseline="route:select=noaux_tc",
        candidate="flashinfer_trtllm_routing",
        rows=[16],
        ranks=1,
    )
    assert seen[0] == (2, 8, {"n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5})
    (width,) = result.record["widths"]
    assert width["weight_classes"]["narrowed_bf16"] == 64


def add_topk16(monkeypatch: Any, accepts: int, **attributes: Any) -> list[int]:
    """A ``kimi_topk16`` that refuses more than ``accepts`` rows; returns the rows it ran."""
    ran: list[int] = []

    def kimi_topk16(x: Any, bias: Any, weights: Any, ids: Any, *, threads: int = 256) -> Any:
        rows = len(x)
        if not 1 <= rows <= accepts:
            raise ValueError(f"Kimi top-16 rows {rows} must be between 1 and {accepts}")
        ran.append(rows)
        geometry, scoring = PRESETS["k3"]
        found = select(SELECTS["standalone"], x.numpy(), bias.numpy(), geometry, scoring)
        ids.copy_(torch.from_numpy(found[0]))
        weights.copy_(torch.from_numpy(found[1]))
        return weights, ids

    for name in ("experimental", "experimental.b12x", "experimental.b12x.comm"):
        monkeypatch.setitem(sys.modules, f"flashinfer.{name}", ModuleType(f"flashinfer.{name}"))
    module: Any = ModuleType(PCIE)
    module.kimi_topk16 = kimi_topk16
    for name, value in attributes.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, PCIE, module)
    return ran


def coverage(widths: Any) -> dict[int, tuple[bool, str]]:
    result = neartie.run_audit(
        K3,
        baseline="route:select=standalone",
        candidate="flashinfer_kimi_topk16",
        rows=widths,
        ranks=8,
        gate=False,
    )
    return {one["width"]: (one["ran"], one["reason"]) for one in result.record["coverage"]}


def test_kimi_topk16_runs_one_to_eight_rows(monkeypatch: Any) -> None:
    fake(monkeypatch, "0.7.4", 120)
    ran = add_topk16(monkeypatch, accepts=8)
    found = coverage([1, 8, 9])
    assert found[1][0]
    assert found[8][0]
    assert set(ran) == {1, 8}
    assert found[9] == (
        False,
        "flashinfer_kimi_topk16: width=9, but should be 1..8 (the installed version has no "
        "KIMI_TOPK16_MAX_ROWS) [flashinfer_kimi_topk16]",
    )


def test_a_version_that_declares_20_rows_and_takes_them_runs_them(monkeypatch: Any) -> None:
    fake(monkeypatch, "0.7.4", 120)
    ran = add_topk16(monkeypatch, accepts=20, KIMI_TOPK16_MAX_ROWS=20)
    found = coverage([9, 20])
    assert all(ran for ran, _ in found.values())
    assert set(ran) == {9, 20}
    notes = make_path("flashinfer_kimi_topk16").declared.notes
    assert "1..20 rows (KIMI_TOPK16_MAX_ROWS of the installed version)" in notes


def test_a_version_that_declares_20_rows_and_refuses_9_is_not_run_there(monkeypatch: Any) -> None:
    fake(monkeypatch, "0.7.4", 120)
    add_topk16(monkeypatch, accepts=8, KIMI_TOPK16_MAX_ROWS=20)
    found = coverage([8, 9])
    assert found[8][0]
    assert not found[9][0]
    assert "ValueError: Kimi top-16 rows 9 must be between 1 and 8" in found[9][1]


def test_a_version_that_wants_a_prepared_plan_is_not_guessed_at(monkeypatch: Any) -> None:
    fake(monkeypatch, "0.7.4", 120)
    add_topk16(monkeypatch, accepts=8)

    def planned(x: Any, bias: Any, weights: Any = None, ids: Any = None, *, plan: Any) -> Any:
        raise AssertionError("must not be called")

    monkeypatch.setattr(sys.modules[PCIE], "kimi_topk16", planned)
    reason = make_path("flashinfer_kimi_topk16").unavailable()
    assert reason is not None
    assert "of flashinfer 0.7.4 takes a plan of its PreparationSession" in reason
    assert topk16.declared_rows() == (8, "the installed version has no KIMI_TOPK16_MAX_ROWS")


# torch on the CPU.


def test_torch_topk_is_the_hf_select_bit_for_bit_where_nothing_rounds() -> None:
    """Scores 0, 0.5 and 1 are exact in any sigmoid; so are their sums, in any order."""
    rng = np.random.default_rng(3)
    geometry, scoring = PRESETS["k3"]
    x = rng.choice(np.array([-200.0, 0.0, 200.0], np.float32), (64, 896))
    bias = rng.permutation(np.arange(896, dtype=np.float32) / 4096).astype(np.float32)
    expected = select(SELECTS["hf"], x, bias, geometry, scoring)
    kernel: Any = make_path("torch_topk")
    ids, weights = np.empty((64, 16), np.int32), np.empty((64, 16), np.float32)
    kernel._kernel.select(x, bias, geometry, scoring, ids, weights)
    keys = np.take_along_axis(1 / (1 + np.exp(-x.astype(float))) + bias, expected[0], axis=1)
    distinct = (keys[:, :-1] > keys[:, 1:]).all(axis=1)
    assert distinct.all()
    assert np.array_equal(ids, expected[0])
    assert np.array_equal(weights.view(np.uint32), expected[1].view(np.uint32))


@pytest.mark.parametrize("preset", ["k3", "deepseek-v3"])
def test_torch_topk_selects_by_torchs_scores_as_the_grouped_rule_does(preset: Any) -> None:
    rng = np.random.default_rng(5)
    geometry, scoring = PRESETS[preset]
    x = rng.standard_normal((256, geometry.experts), np.float32)
    bias = (0.02 * rng.standard_normal(geometry.experts)).astype(np.float32)
    scores = torch.sigmoid(torch.from_numpy(x)).numpy()
    rule = make_select("hf", {"score": "identity"}, "test")
    expected, exact = select(rule, scores, bias, geometry, scoring)
    kernel: Any = make_path("torch_topk")
    top_k = geometry.top_k
    ids, weights = np.empty((256, top_k), np.int32), np.empty((256, top_k), np.float32)
    kernel._kernel.select(x, bias, geometry, scoring, ids, weights)
    keys = np.take_along_axis(scores + bias, expected.astype(np.int64), axis=1)
    distinct = (keys[:, :-1] > keys[:, 1:]).all(axis=1)
    assert distinct.sum() > 200
    assert np.array_equal(ids[distinct], expected[distinct])
    # Same scores; only the order of the sum differs: each side's n - 1 additions and the three
    # roundings after them are off by half a unit at most.
    limit = 2 * (top_k - 1 + 3) * 2.0**-24
    off = np.abs(weights[distinct] / exact[distinct] - 1)
    assert off.max() <= limit


def test_a_launch_from_hidden_takes_the_exact_products_logits() -> None:
    bank = "gaussian:geometry=mini,rows=32,seed=2"
    result = neartie.run_audit(
        bank, baseline="route:select=hf", candidate="torch_topk", rows=[16], ranks=4, gate=False
    )
    record = result.record
    assert (
        "where it starts at hidden, the CPU's exact sum"
        in (record["candidate"]["declared"]["project"])
    )
    (width,) = record["widths"]
    assert width["bits_equal"]["logits"]
    # It has no latent: that is told, not passed over.
    assert record["verdict"]["state"] == "INCONCLUSIVE"
    assert any("latent was not compared" in one["text"] for one in record["verdict"]["reasons"])
