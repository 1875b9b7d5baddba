from pathlib import Path

import pytest

from neartie.banks.errors import BankError, InputError
from neartie.banks.geometry import ScoringRule
from neartie.banks.manage import make_bank, verify_bank
from neartie.banks.open import GENERATORS, expand_banks, open_bank
from neartie.banks.spec import parse_spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gausian:rows=3", "generator=gausian, but should be one of gaussian, near_tie, saturated"),
        ("gaussian:row=3", "option=row, but should be one of geometry, hidden, latent, experts"),
        ("gaussian:rows", "option rows=nothing, but should be rows=VALUE"),
        ("gaussian:rows=", "option rows=nothing, but should be rows=VALUE"),
        ("gaussian:,rows=3", "option=, but should be one of geometry"),
        ("gaussian:rows=3,rows=4", "option rows=given twice, but should be given once"),
        ("gaussian:rows=0", "option rows=0, but should be at least 1"),
        ("gaussian:rows=-3", "option rows=-3, but should be at least 1"),
        ("gaussian:rows=1e99", "option rows=1e99, but should be a whole number"),
        ("gaussian:rows=many", "option rows=many, but should be a whole number such as 960, 60k"),
        ("gaussian:rows=1.5", "option rows=1.5, but should be a whole number"),
        ("gaussian:rows=1.0005k", "option rows=1.0005k, but should be a whole number"),
        ("gaussian:rows=1e-3", "option rows=1e-3, but should be a whole number"),
        ("gaussian:std=nan", "option std=nan, but should be a finite number"),
        ("gaussian:std=0", "option std=0, but should be a number above 0"),
        ("gaussian:std=x", "option std=x, but should be a number"),
        ("gaussian:bias=-1", "option bias=-1, but should be a standard deviation of at least 0"),
        ("gaussian:stage=shards", "option stage=shards, but should be one of hidden, logits"),
        ("gaussian:geometry=k4", "option geometry=k4, but should be one of k3, k2, deepseek-v3"),
        ("gaussian:top_k=900", "top_k=900, but should be 1..896"),
        ("near_tie:gap=-1", "option gap=-1, but should be ULP counts of at least 0"),
        ("near_tie:gap=1+", "option gap=1+, but should be ULP counts of at least 0"),
        ("near_tie:slot=896", "slot=896, but should be 1..16, inside the top_k"),
        ("near_tie:slot=17", "slot=17, but should be 1..16, inside the top_k"),
        ("near_tie:slot=6,geometry=8x0x6x6", "slot=6, but should be 1..5"),
        ("near_tie:geometry=8x0x1x1", "slot=1, but should be one of 2 experts or more"),
        ("near_tie:gap=3G", "option gap=3G, but should be ULP counts of at least 0"),
        ("gaussian:rows=1001G", "option rows=1001G, but should be at most 1,000,000,000,000"),
        ("resample:rows=1001G", "option rows=1001G, but should be at most 1,000,000,000,000"),
        ("gaussian:experts=1G", "option experts=1G, but should be at most 9,999,999"),
        ("", "bank='', but should be a directory, a URL, a bank or a generator"),
        ("nowhere" * 60, "bank=nowhere"),
        ("near_tie:shards=5", "shards=5, but should be a divisor of 896 experts"),
        ("near_tie:at=1.5", "at=1.5, but should be between bias and bias + 1"),
        ("near_tie:geometry=deepseek-v3", "geometry=deepseek-v3, but should be one without"),
        ("special:inf_bias=500", "inf_bias=500, but should be at most 448"),
        ("resample:bank=k3-mini/layer9", "bank=k3-mini/layer9, but should be a directory, a URL"),
        ("resample:bank=gaussian:stage=logits", "bank=logits with 960 rows, but should be a bank"),
        ("resample:rows=9", "bank=k3-mini, but should be one bank, such as k3-mini/layer0"),
        ("k3-mini", "bank=k3-mini, but should be one bank, such as k3-mini/layer0"),
        ("nowhere/at/all", "bank=nowhere/at/all, but should be a directory, a URL, one of k3-mini"),
    ],
)
def test_bad_specs(spec: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        open_bank(spec)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert str(error.value).isprintable()


def test_an_empty_spec_is_not_the_working_directory() -> None:
    with pytest.raises(InputError, match="bank='', but should be"):
        expand_banks([""])


def test_a_generator_may_have_as_many_rows_as_the_limit() -> None:
    bank = open_bank("gaussian:rows=1000G,geometry=16x8x12x3")
    assert bank.read(10**12 - 1, 10**12).rows == 1


def test_the_spec_opens_a_bank_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bank("all_equal:rows=3", tmp_path / "bank")
    (tmp_path / "k3-mini").mkdir()
    make_bank("all_equal:rows=3,seed=1", tmp_path / "k3-mini" / "layer0")
    monkeypatch.chdir(tmp_path)
    for given, spec in (
        ("k3-mini/layer3", "k3-mini/layer3"),
        ("bank", "bank"),
        ("./bank", "./bank"),
        (tmp_path / "bank", str(tmp_path / "bank")),
        (Path("bank"), "bank"),
        ("./k3-mini/layer0", "./k3-mini/layer0"),
        # A path is no shipped name.
        (Path("k3-mini/layer0"), "./k3-mini/layer0"),
        ("gaussian:seed=3,rows=0.96k", "gaussian:seed=3"),
        ("resample:rows=7,bank=k3-mini/layer1", "resample:bank=k3-mini/layer1,rows=7"),
    ):
        bank = open_bank(given)
        assert bank.spec == spec
        assert open_bank(bank.spec).digest == bank.digest
        assert [b.spec for b in expand_banks([given])] == [spec]
        changed = bank.with_weights(correction_bias=bank.weights["correction_bias"] + 1)
        # No spec opens a bank with changed weights: that of the rows would open the old ones.
        assert changed.spec == changed.name
        with pytest.raises(InputError):
            open_bank(changed.spec)
    assert [b.spec for b in expand_banks(["./k3-mini"])] == ["./k3-mini/layer0"]
    assert [b.spec for b in expand_banks([Path("k3-mini")])] == ["./k3-mini/layer0"]
    assert expand_banks(["k3-mini"])[5].spec == "k3-mini/layer5"
    assert verify_bank("k3-mini/tie-witness").spec == "k3-mini/tie-witness"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": 0.0}, "scoring.scale=0.0, but should be finite and above 0"),
        ({"scale": -1.0}, "scoring.scale=-1.0, but should be finite and above 0"),
        ({"scale": float("inf")}, "scoring.scale=inf, but should be finite and above 0"),
        ({"scale": float("nan")}, "scoring.scale=nan, but should be finite and above 0"),
        ({"epsilon": -1e-20}, "scoring.epsilon=-1e-20, but should be finite and at least 0"),
        ({"epsilon": float("nan")}, "scoring.epsilon=nan, but should be finite and at least 0"),
    ],
)
def test_bad_scoring_rules(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InputError) as error:
        ScoringRule(**changes)  # type: ignore[arg-type]
    assert str(error.value) == f"{message} [scoring rule]"


def test_a_message_stays_on_one_line() -> None:
    with pytest.raises(InputError) as error:
        open_bank("no\nwhere\x1b[2J")
    assert "bank=no\\nwhere\\x1b[2J, but" in str(error.value)


def test_a_missing_bank_is_a_bank_error() -> None:
    with pytest.raises(BankError):
        open_bank("k3-mini/layer6")


@pytest.mark.parametrize(
    ("text", "rows"),
    [("960", 960), ("60k", 60_000), ("3.2M", 3_200_000), ("0.5k", 500), ("1e9", 10**9)],
)
def test_row_counts(text: str, rows: int) -> None:
    assert open_bank(f"gaussian:rows={text}").rows == rows


def test_the_canonical_text_decides_name_and_digest() -> None:
    one = open_bank("gaussian:seed=3,rows=0.96k,geometry=k3")
    other = open_bank("gaussian:geometry=k3,seed=3")
    assert one.name == other.name == "gaussian:geometry=k3,seed=3"
    assert one.digest == other.digest
    assert open_bank("gaussian").name == "gaussian"
    digests = [open_bank(f"gaussian:{x}").digest for x in ("seed=1", "seed=2", "rows=5", "std=2")]
    assert len(set(digests)) == 4


@pytest.mark.parametrize("name", [name for name in GENERATORS if name != "resample"])
def test_every_generator_works_with_its_defaults(name: str) -> None:
    generator, spec = parse_spec(name, GENERATORS)
    block = generator.build(spec).read(0, 3)
    assert block.rows == 3
    assert generator.summary
    assert all(option.help for option in generator.options)
