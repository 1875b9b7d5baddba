"""The ready specs: against the source of transformers, and against what its gates compute."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import transformers
from tiny_models import EXPERTS, KINDS, tiny_model, tokens

import neartie
from neartie.banks.bank import Bank
from neartie.banks.recording.ready import DEEPSEEK_V3, MIXTRAL, NEMOTRON_H, QWEN3_MOE, READY

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = Path(transformers.__file__).parent / "models"


@pytest.fixture(scope="module")
def forwards() -> dict[str, str]:
    """The source of each router's forward, by class, as the installed version has it."""
    found = {}
    for path in sorted(MODELS.glob("*/modeling_*.py")):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(
            r"^class (\w*(?:Router|Gate))\(.*?(?=^(?:class|def|@)\b)", text, re.M | re.S
        ):
            body = ast.parse(match[0]).body[0]
            assert isinstance(body, ast.ClassDef)
            for node in body.body:
                if isinstance(node, ast.FunctionDef) and node.name == "forward":
                    found[match[1]] = ast.unparse(node)
    return found


def test_each_class_of_a_spec_has_the_same_forward(forwards: dict[str, str]) -> None:
    groups = defaultdict(set)
    for name, source in forwards.items():
        groups[source].add(name)
    for specs in ([DEEPSEEK_V3, NEMOTRON_H], [QWEN3_MOE], [MIXTRAL]):
        names = {name for spec in specs for name in spec.classes}
        # All of them, and none left out.
        assert groups[forwards[specs[0].classes[0]]] == names
    for spec in READY:
        assert set(spec.classes) <= forwards.keys()


# What the rules of the ready specs say, read off the source of the one class or group.
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "DeepseekV3TopkRouter",
            ["router_logits.sigmoid()", "scores + self.e_score_correction_bias", "+ 1e-20",
             "topk_weights * self.routed_scaling_factor", "if self.norm_topk_prob:"],
        ),
        ("MiniMaxM2TopKRouter", ["functional.sigmoid(", "+ e_score_correction_bias"]),
        ("MixtralTopKRouter", ["softmax(router_logits.float(), dim=-1)", "/= router_top_value"]),
        ("Qwen3MoeTopKRouter", ["softmax(router_logits, dtype=torch.float", "norm_topk_prob:"]),
        ("GptOssTopKRouter", ["self.weight, self.bias)", "torch.topk(router_logits"]),
    ],
)  # fmt: skip
def test_the_source_has_the_rule(forwards: dict[str, str], name: str, lines: list[str]) -> None:
    for line in lines:
        assert line in forwards[name]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Bank]:
    """The last layer's bank of a tiny model: two calls of 12 rows, recorded once a kind."""
    place = tmp_path_factory.mktemp("recorded")

    @torch.no_grad()
    def make(kind: str, dtype: torch.dtype = torch.bfloat16) -> Bank:
        out = place / f"{kind}-{dtype}".replace(".", "-")
        if not out.exists():
            model = tiny_model(kind, dtype)
            alone = [model(tokens(seed)).logits for seed in (1, 2)]
            with neartie.record(model, out=out, quiet=True):
                again = [model(tokens(seed)).logits for seed in (1, 2)]
            assert all(torch.equal(a, b) for a, b in zip(alone, again, strict=True))
        return neartie.open_bank(max(out.iterdir()))

    return make


def _choices(
    bank: Bank, logits: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Selected [row, expert] and weights [row, expert] by the bank's rule in FP64."""
    rule, g = bank.scoring, bank.geometry
    x = logits.astype(np.float64)
    if rule.function == "sigmoid":
        scores = 1 / (1 + np.exp(-x))
    else:
        assert rule.function == "softmax"
        scores = np.exp(x - x.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
    keys = scores + bank.weights["correction_bias"]
    grouped = keys.reshape(len(x), g.groups, -1)
    totals = np.sort(grouped, -1)[:, :, -2:].sum(-1)
    floor = np.sort(totals, -1)[:, -g.top_groups][:, None]
    keys = np.where((totals >= floor)[:, :, None], grouped, -np.inf).reshape(len(x), -1)
    chosen = keys >= np.sort(keys, -1)[:, -g.top_k][:, None]
    weights = np.where(chosen, scores, 0)
    if rule.renormalize:
        weights /= weights.sum(-1, keepdims=True) + rule.epsilon
    return chosen, weights * rule.scale


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, torch.bfloat16) for kind in KINDS), ("gpt_oss", torch.float32)],
    ids=str,
)
def test_the_rule_of_the_bank_is_what_the_model_computed(
    recorded: Callable[..., Bank], kind: str, dtype: torch.dtype
) -> None:
    bank = recorded(kind, dtype)
    block = bank.read(0, 24)
    logits = block.logits if bank.stage == "logits" else block.extra["logits_recorded"]
    assert logits is not None
    ids, found = block.recorded["model"]
    assert found is not None
    chosen, weights = _choices(bank, logits.astype(np.float64))
    rows = np.arange(24)[:, None]
    assert (chosen.sum(-1) == 4).all()
    assert chosen[rows, ids].all()
    expected = weights[rows, ids]
    # Roundings of the gate: a function (within 4 u), a sum over all experts, one over the selected,
    # a quotient, a product; and one to the dtype of the weights.
    narrow = bank.provenance["recorded_dtypes"]["weights"] == "bfloat16"
    bound = (EXPERTS + 4 + 10) * 2.0**-24 + (2.0**-8 if narrow else 0)
    assert (abs(found - expected) <= bound * expected).all()


@pytest.mark.parametrize(
    ("kind", "stage", "function", "layer"),
    [
        ("deepseek_v3", "hidden", "sigmoid", 1),
        ("kimi_linear", "hidden", "sigmoid", 1),
        ("nemotron_h", "hidden", "sigmoid", 2),
        ("minimax_m2", "hidden", "sigmoid", 1),
        ("qwen3_moe", "hidden", "softmax", 1),
        ("mixtral", "hidden", "softmax", 1),
        ("gpt_oss", "logits", "softmax", 1),
    ],
)
def test_what_a_bf16_model_becomes(
    recorded: Callable[..., Bank], kind: str, stage: str, function: str, layer: int
) -> None:
    bank = recorded(kind)
    assert (bank.stage, bank.scoring.function) == (stage, function)
    assert bank.provenance["layer"] == layer
    assert bank.provenance["source"]["spec"] == kind.replace("kimi_linear", "deepseek_v3")
    g = bank.geometry
    assert (g.hidden, g.experts, g.top_k) == (64, EXPERTS, 4)
    groups = (4, 2) if kind == "deepseek_v3" else (1, 1)
    assert (g.groups, g.top_groups) == groups
    assert g.latent == (16 if kind == "nemotron_h" else 0)
    assert ("latent_down_weight" in bank.weights) == (kind == "nemotron_h")
    if function == "sigmoid":
        assert bank.weights["correction_bias"].std() > 0.05
    else:
        assert bank.provenance["correction_bias"] == "none in the model: zeros"
        assert not bank.weights["correction_bias"].any()
    if kind == "gpt_oss":
        assert bank.provenance["stage_reason"] == "the logits have a bias of their own"
        assert "softmax of those k alone" in bank.provenance["notes"][0]


def test_two_router_variants_of_a_recorded_model_are_audited(
    recorded: Callable[..., Bank],
) -> None:
    spec = recorded("nemotron_h").spec
    result = neartie.run_audit(
        spec, baseline="general:select=hf", candidate="route:select=standalone", rows=[9, 12],
        ranks=2, gate=False,
    )  # fmt: skip
    # 24 rows bound no rate; all that was compared is the same sets, and the K-split's rounding.
    assert result.record["verdict"]["state"] == "INCONCLUSIVE"
    widths = result.record["widths"]
    assert [width["counts"]["identical"] for width in widths] == [48, 48]
    assert widths[0]["triangle"]["latent"]["candidate_baseline"] > 1e-3
    as_recorded = neartie.run_audit(
        spec, baseline="general:select=hf", candidate="recorded:name=model", rows=[12],
        ranks=2, gate=False,
    )  # fmt: skip
    # torch.topk(sorted=False) promises no order of slots: the sets are the same.
    counts = as_recorded.record["widths"][0]["counts"]
    assert counts["identical"] + counts["reordered"] == 48


def test_a_numerics_change_of_a_recorded_router_is_seen(recorded: Callable[..., Bank]) -> None:
    result = neartie.run_audit(
        recorded("qwen3_moe").spec, baseline="general:select=softmax",
        candidate="general:select=softmax,logits=bf16", rows=[12], ranks=2, gate=False,
    )  # fmt: skip
    # The model rounds its logits to BF16, as the candidate does.
    width = result.record["widths"][0]
    assert width["max_weight_ulp"] > 8
