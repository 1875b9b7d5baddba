"""Banks made of arrays: what they hold, how they print, and what they refuse."""

from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neartie
from neartie.banks.errors import BankError, InputError
from neartie.banks.memory import MemoryBank, memory_bank

LOGITS = [[0.1, -0.0, nan, -inf], [1e-45, 2.0, 3.5, 4.0]]


def made(**changes: Any) -> MemoryBank:
    given: dict[str, Any] = {"logits": LOGITS, "bias": [0.1, 0.2, inf, 0.0]}
    return memory_bank(2, **(given | changes))


def test_the_arrays_come_back() -> None:
    bank = made()
    block = bank.read(0, 2)
    assert block.logits is not None
    assert block.logits.tobytes() == np.array(LOGITS, np.float32).tobytes()
    assert block.keys["row"].tolist() == [0, 1]
    assert bank.read(1, 2).keys["row"].tolist() == [1]
    assert (bank.stage, bank.ranks, bank.geometry.experts) == ("logits", None, 4)
    assert not block.logits.flags.writeable


def test_what_it_prints_makes_it_again() -> None:
    for bank in (made(), made(tie_contract="lower_id", groups=2, top_groups=1)):
        again = eval(repr(bank))
        assert again.digest == bank.digest
        assert repr(again) == repr(bank)


def test_the_digest_tells_every_input() -> None:
    others = [
        made(logits=[[0.1, 0.0, nan, -inf], LOGITS[1]]),
        made(bias=[0.1, 0.2, inf, 1.0]),
        made(tie_contract="lower_id"),
        made(independence_unit="row"),
        memory_bank(1, logits=LOGITS, bias=[0.1, 0.2, inf, 0.0]),
    ]
    digests = {bank.digest for bank in (made(), *others)}
    assert len(digests) == 6
    assert made().digest == made().digest


def test_every_stage_is_stored_and_opened_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shards = rng.standard_normal((2, 3, 2))
    banks = {
        "hidden": memory_bank(
            2,
            hidden=rng.standard_normal((3, 8)),
            router_weight=rng.standard_normal((4, 8)),
            latent_down_weight=rng.standard_normal((2, 8)),
        ),
        "partials": memory_bank(
            2, latent_partials=rng.standard_normal((2, 3, 6)), logits_shards=shards
        ),
        "shards": memory_bank(
            2, latent_shards=rng.standard_normal((2, 3, 3)), logits_shards=shards
        ),
        "logits": made(),
    }
    for stage, bank in banks.items():
        stored = bank.save(tmp_path / stage)
        assert (stored.stage, stored.rows, stored.geometry) == (stage, bank.rows, bank.geometry)
        mine, theirs = bank.read(0, bank.rows), stored.read(0, bank.rows)
        for name in ("hidden", "logits", "latent_partials", "latent_shards", "logits_shards"):
            a, b = getattr(mine, name), getattr(theirs, name)
            assert (a is None) == (b is None)
            assert a is None or a.tobytes() == b.tobytes()
        assert stored.spec == str(tmp_path / stage)
    with pytest.raises(BankError, match="new or empty"):
        banks["logits"].save(tmp_path / "logits")


def test_an_audit_takes_it() -> None:
    rng = np.random.default_rng(0)
    logits = rng.permuted(np.tile(np.arange(8.0) / 4, (30, 1)), axis=1)
    result = neartie.run_audit(
        memory_bank(2, logits=logits), baseline="general", candidate="route", rows=[9], ranks=2
    )
    width = result.record["widths"][0]
    assert width["counts"]["identical"] == width["rows"] == 60
    assert width["unique_rows"] == 30
    assert width["units"] == 0  # rows of a test bound no rate


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "rows=nothing, but should be tensors of exactly one stage"),
        ({"logits": [[0.0]], "hidden": [[0.0]]}, "rows=logits and hidden, but"),
        ({"hidden": [[0.0]]}, "router_weight=nothing, but should be given with stage hidden"),
        ({"latent_partials": [[[0.0]]]}, "logits_shards=nothing, but should be given"),
        ({"logits": [0.0]}, "logits.shape=(1,), but should be 2 axes, none of them empty"),
        ({"logits": [[]]}, "logits.shape=(1, 0), but should be 2 axes"),
        ({"logits": [[0.0, 1.0]], "bias": [0.0]}, "bias.shape=(1,), but should be (2,)"),
        ({"logits": [[0.0]], "groups": 2}, "groups=2, but should be a divisor of 1"),
    ],
)
def test_what_does_not_fit_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        memory_bank(1, **given)
    assert str(caught.value).startswith(message)
