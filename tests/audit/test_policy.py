"""Policy files: strict values, limits, and messages that name the key."""

import json
from pathlib import Path
from typing import Any

import pytest

from neartie.audit.policy import (
    LIMITS,
    Policy,
    RequiredCoverage,
    effective_policy,
    load_policy,
    policy_schema,
)
from neartie.audit.policy.compare import Loosened, loosened, loosened_budgets
from neartie.audit.policy.limits import SIGNED_CLASSES
from neartie.audit.policy.of_model import model_names
from neartie.audit.policy.show import policy_text
from neartie.audit.verdict import NumericsClass
from neartie.banks.errors import InputError
from neartie.banks.open import open_bank

KEYS = ", ".join(Policy.model_fields)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windw_ulp = 3", f"windw_ulp=3, but should be a known key: {KEYS}"),
        ("window_ulp = true", "window_ulp=True, but should be a valid integer"),
        ("window_ulp = '2'", "window_ulp=2, but should be a valid integer"),
        ("window_ulp = 2.0", "window_ulp=2.0, but should be a valid integer"),
        ("window_ulp = -1", "window_ulp=-1, but should be greater than or equal to 0"),
        ("window_ulp = 2147483649", "window_ulp=2147483649, but should be less than or equal to"),
        ("weight_budget_ulp = 2147483649", "weight_budget_ulp=2147483649, but should be less"),
        ("set_rate = 0", "set_rate=0, but should be greater than"),
        ("set_rate = 1e-13", "set_rate=1e-13, but should be greater than or equal to"),
        ("set_rate = 1", "set_rate=1, but should be less than 1"),
        ("set_rate = nan", "set_rate=nan, but should be a finite number"),
        ("set_rate = true", "set_rate=True, but should be a valid number"),
        ("confidence = '0.9'", "confidence=0.9, but should be a valid number"),
        ("confidence = 0.0", "confidence=0.0, but should be greater than or equal to 0.00"),
        ("noise_abs = inf", "noise_abs=inf, but should be a finite number"),
        ("one_for_one = 1", "one_for_one=1, but should be a valid boolean"),
        ("tie_contract = 'x'", "tie_contract=x, but should be 'lower_id' or 'unspecified'"),
        ('name = ""', "name=, but should be printable text"),
        ('name = "a\\nb"', "name=a\\nb, but should be printable text"),
        (f"window_ulp = {'9' * 5000}", "policy="),
        ("set_rate = [", "policy="),
    ],
)
def test_bad_policies(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        load_policy(file)
    assert str(error.value).startswith(message)
    assert str(error.value).isprintable()
    if not message.startswith("policy="):
        assert str(error.value).endswith(f" [{file}]")


def test_good_policies(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("window_ulp = 2147483648\nset_rate = 1e-12\nnoise_abs = 1\n")
    policy = load_policy(file)
    assert (policy.window_ulp, policy.set_rate, policy.noise_abs) == (2**31, 1e-12, 1.0)
    assert load_policy(None) == Policy()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("allowed_classes = []", "allowed_classes=[], but should be a list of at least 1"),
        ("allowed_classes = ['LIGHT', 'LIGHT']", "allowed_classes=['LIGHT', 'LIGHT'], but should"),
        ("allowed_classes = ['BEHAVIOURAL']", "allowed_classes.0=BEHAVIOURAL, but should be"),
        ("independence_unit = ''", "independence_unit=, but should be printable text"),
        ("[coverage]\nwidths = [21]", "coverage.widths.0=21, but should be less than or equal"),
        ("[coverage]\nwidths = [9, 9]", "coverage.widths=[9, 9], but should be each value once"),
        (
            "[coverage]\nrank = 8",
            "coverage.rank=8, but should be a known key: banks, widths, ranks",
        ),
        ("[coverage]\ndevice = 'tpu'", "coverage.device=tpu, but should be 'cpu' or 'cuda'"),
        (
            "[provenance.set_rat]\nmeasured_at = 'x'",
            "provenance.set_rat=set_rat, but should be a limit",
        ),
        ("[provenance.set_rate]\ndevice = 'x'", "provenance.set_rate.measured_at=nothing, but"),
        (
            "[provenance.set_rate]\nmeasured_at = 'x'\ndate = '31.1.2026'",
            "provenance.set_rate.date=31.1.2026, but should be a date",
        ),
        ("confidence = 1e-300", "confidence=1e-300, but should be greater than or equal to 0.00"),
        ("confidence = 0.9999999999999", "confidence=0.9999999999999, but should be less than or"),
        ("[model.k3]\nname = 'x'", "model.k3.name=x, but should be a known key: window_ulp"),
        ("[model.k3]\nset_rate = 2.0", "model.k3.set_rate=2.0, but should be less than 1"),
        ("provenance = 3", "provenance=3, but should be a table"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        load_policy(file)
    assert str(error.value).startswith(message)


WHOLE = """
name = "k3"
window_ulp = 1
allowed_classes = ["BITWISE", "LIGHT"]
independence_unit = "row"
[coverage]
banks = ["k3-mini"]
widths = [9, 20]
ranks = 8
device = "cpu"
[provenance.window_ulp]
measured_at = "a gate over 3.2M rows"
device = "H200"
date = 2026-11-30
source = "a pull request"
[model."k3-mini"]
weight_budget_ulp = 4
[model."k3-mini".provenance.weight_budget_ulp]
measured_at = "the recorded rows"
"""


@pytest.fixture
def whole(tmp_path: Path) -> Policy:
    file = tmp_path / "whole.toml"
    file.write_text(WHOLE)
    return load_policy(file)


def test_a_policy_survives_its_record(whole: Policy) -> None:
    record = json.loads(json.dumps(whole.model_dump(mode="json")))
    assert Policy.model_validate(record) == whole
    # An override is what it sets: a default must not turn into one.
    assert set(record["model"]["k3-mini"]) == {"weight_budget_ulp", "provenance"}
    assert record["provenance"]["window_ulp"]["date"] == "2026-11-30"


def test_every_shipped_limit_says_where_it_is_from() -> None:
    shipped = Policy().provenance
    assert set(shipped) == set(LIMITS)
    assert "no provenance given" not in policy_text(Policy())
    chosen = {name for name, one in shipped.items() if "no measurement" in one.measured_at}
    # A date and a device are of a measurement; the sign-off tells neither.
    assert {name for name in shipped if shipped[name].date} == {"weight_budget_ulp"}
    assert not any(shipped[name].device or shipped[name].date for name in chosen)
    stated = {name for name in shipped if "sign-off" in (shipped[name].source or "")}
    assert stated == {"window_ulp", "set_rate", "one_for_one"}
    assert stated | chosen | {"weight_budget_ulp"} == set(LIMITS)


def test_a_figure_of_ones_own_has_no_shipped_provenance() -> None:
    shipped, own = Policy(), Policy(weight_budget_ulp=4)
    assert "640,000" in shipped.provenance["weight_budget_ulp"].measured_at
    assert "weight_budget_ulp" not in own.provenance
    assert own.provenance["window_ulp"] == shipped.provenance["window_ulp"]
    assert "weight_budget_ulp  4              no provenance given" in policy_text(own)


def test_the_text_shows_every_limit_with_its_origin(whole: Policy) -> None:
    lines = policy_text(whole).splitlines()
    assert lines[0] == "policy k3"
    for name in LIMITS:
        assert any(line.split()[:1] == [name] for line in lines)
    assert any("1 " in x and "3.2M rows; H200; 2026-11-30; a pull request" in x for x in lines)
    assert lines[-2:] == ["model k3-mini", lines[-1]]
    assert lines[-1].split()[:3] == ["weight_budget_ulp", "4", "the"]


def test_the_schema_in_the_documentation_is_current() -> None:
    file = Path(__file__).parents[2] / "docs" / "policy.schema.json"
    expected = json.dumps(policy_schema(), indent=2) + "\n"
    assert file.read_text() == expected, "run: neartie policy schema > docs/policy.schema.json"


def test_every_field_has_a_description_in_the_schema() -> None:
    schema = policy_schema()
    for model in (schema, *schema["$defs"].values()):
        for name, field in model["properties"].items():
            assert field.get("description"), name


def test_signable_classes_are_those_of_the_verdict() -> None:
    unsigned = {NumericsClass.BEHAVIOURAL, NumericsClass.UNKNOWN}
    assert tuple(c for c in NumericsClass if c not in unsigned) == SIGNED_CLASSES


def test_the_limits_of_a_bank_are_its_models(whole: Policy) -> None:
    recorded, generated = open_bank("k3-mini/layer0"), open_bank("gaussian:geometry=k3,rows=2")
    assert model_names(recorded) == ("k3-mini",)
    assert model_names(generated) == ("none", "k3")
    mine = effective_policy(whole, [recorded])
    assert (mine.weight_budget_ulp, mine.window_ulp) == (4, 1)
    assert mine.provenance["weight_budget_ulp"].measured_at == "the recorded rows"
    assert effective_policy(mine, [recorded]) == mine
    assert effective_policy(whole, [generated]).weight_budget_ulp == 8
    by_geometry = Policy.model_validate({"model": {"k3": {"set_rate": 1e-6}}})
    assert effective_policy(by_geometry, [generated]).set_rate == 1e-6


def test_banks_of_models_with_other_limits_are_refused_together(whole: Policy) -> None:
    banks = [open_bank("k3-mini/layer0"), open_bank("gaussian:geometry=k3,rows=2")]
    with pytest.raises(InputError, match="of one model: their weight_budget_ulp differs"):
        effective_policy(whole, banks)
    same = Policy.model_validate({"model": {"k3-mini": {"weight_budget_ulp": 8}}})
    assert effective_policy(same, banks).weight_budget_ulp == 8


# Per field: a stricter and a looser value.
STEPS: dict[str, tuple[Any, Any]] = {
    "window_ulp": (1, 2),
    "set_rate": (1e-6, 1e-5),
    "confidence": (0.99, 0.95),
    "weight_budget_ulp": (4, 8),
    "tie_contract": ("lower_id", "unspecified"),
    "one_for_one": (True, False),
    "noise_abs": (0.0, 1e-6),
    "flush_to_zero": (False, True),
    "allowed_classes": (["LIGHT"], ["LIGHT", "VISIBLE"]),
    "independence_unit": ("row", None),
    "coverage.banks": (["a", "b"], ["a"]),
    "coverage.widths": ([9, 20], [20]),
    "coverage.ranks": (8, None),
    "coverage.device": ("cuda", "cpu"),
}


def nested(name: str, value: Any) -> dict[str, Any]:
    outer, _, inner = name.partition(".")
    return {outer: {inner: value} if inner else value}


def test_every_limit_has_a_direction() -> None:
    assert set(STEPS) == {*LIMITS, *(f"coverage.{name}" for name in RequiredCoverage.model_fields)}


@pytest.mark.parametrize("name", STEPS)
def test_a_looser_value_is_told_and_a_stricter_one_is_not(name: str) -> None:
    strict, loose = (Policy.model_validate(nested(name, value)) for value in STEPS[name])
    assert loosened(strict, loose) == [Loosened(name, *STEPS[name])]
    if name != "coverage.device":  # cuda and cpu: either way something is no longer demanded
        assert loosened(loose, strict) == []
    assert loosened(strict, strict) == []


def test_overrides_are_compared_as_the_limits_they_lead_to() -> None:
    strict = Policy.model_validate({"model": {"m": {"window_ulp": 1}}})
    assert loosened(strict, Policy()) == [Loosened("model.m.window_ulp", 1, 2)]
    assert loosened(Policy(), strict) == []
    both = Policy.model_validate({"window_ulp": 4, "model": {"m": {"window_ulp": 3}}})
    found = loosened(Policy(), both)
    assert found == [Loosened("window_ulp", 2, 4), Loosened("model.m.window_ulp", 2, 3)]
    # A record of an older version lacks what did not exist.
    assert loosened_budgets({"window_ulp": 2}, Policy().model_dump(mode="json")) == []
