"""Policy files: strict values, limits, and messages that name the key."""

from pathlib import Path

import pytest

from neartie.audit.policy import Policy, load_policy
from neartie.banks.errors import InputError

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
        ("confidence = 0.0", "confidence=0.0, but should be greater than 0"),
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
