"""Shards of ranks become banks with rank layouts; a rank that disagrees is named."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from toy_moe import EXPERTS, HIDDEN, LATENT, SPEC, ToyGate, ToyModel, toy_input

import neartie
from neartie.audit.cli import exit_status
from neartie.banks.errors import BankError, InputError
from neartie.banks.recording.agree import (
    Disagreement,
    RankDisagreement,
    odd_ranks,
    sides_of,
)
from neartie.banks.recording.capture import to_numpy

RANKS = 2
PIECES = replace(SPEC, classes=("ToyGate*",))


class ToyGatePiece(nn.Module):
    """A gate that keeps the logits of its own experts, and gathers them to choose."""

    def __init__(self, whole: ToyGate, rank: int) -> None:
        super().__init__()
        # In a list: no gate of its own.
        self.whole, self.bias, self.top_k = [whole], whole.bias, whole.top_k
        self.part = slice(rank * EXPERTS // RANKS, (rank + 1) * EXPERTS // RANKS)
        self.weight = nn.Parameter(whole.weight.detach()[self.part].clone())

    def forward(self, x: torch.Tensor) -> Any:
        logits, weights, ids = self.whole[0](x)
        return logits[:, self.part], weights, ids


class _KSplit(nn.Module):
    """A projection of the rank's own columns of the input: a partial sum."""

    def __init__(self, whole: nn.Linear, rank: int) -> None:
        super().__init__()
        self.part = slice(rank * HIDDEN // RANKS, (rank + 1) * HIDDEN // RANKS)
        self.weight = nn.Parameter(whole.weight.detach()[:, self.part].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[..., self.part] @ self.weight.T


class _NSplit(nn.Module):
    """A projection to the rank's own columns of the output."""

    def __init__(self, whole: nn.Linear, rank: int) -> None:
        super().__init__()
        part = slice(rank * LATENT // RANKS, (rank + 1) * LATENT // RANKS)
        self.weight = nn.Parameter(whole.weight.detach()[part].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.T


class _Front(nn.Module):
    def __init__(self, gate: nn.Module, down: nn.Module) -> None:
        super().__init__()
        self.gate, self.down = gate, down

    def forward(self, x: torch.Tensor) -> None:
        self.gate(x)
        self.down(x)


@pytest.fixture(autouse=True)
def grads() -> Iterator[None]:
    with torch.no_grad():
        yield


def _shards(out: Path, models: list[Any], inputs: Any, **options: Any) -> Path:
    """Record each model as the rank of its place, without a merge."""
    for rank, model in enumerate(models):
        group = (rank, len(models))
        with neartie.record(
            model, out=out, specs=[PIECES], merge=False, quiet=True, group=group, **options
        ) as opened:
            for number, x in enumerate(inputs(rank)):
                opened.mark(doc=number)
                model(x)
    return out


def _same(rank: int) -> list[torch.Tensor]:
    return [toy_input(0), toy_input(1)]


@pytest.mark.parametrize("latent", ["replicated", "column", "partial"])
@pytest.mark.parametrize("logits", ["replicated", "column"])
def test_rank_layouts(tmp_path: Path, logits: str, latent: str) -> None:
    moe = ToyModel().moe(1)
    kinds = {"replicated": lambda whole, rank: whole, "column": _NSplit, "partial": _KSplit}
    spec_classes = {"replicated": lambda whole, rank: whole, "column": ToyGatePiece}
    models = [
        _Front(spec_classes[logits](moe.gate, rank), kinds[latent](moe.down, rank))
        for rank in range(RANKS)
    ]
    place = _shards(
        tmp_path / "ranks", models, _same,
        layouts={"logits": logits, "latent": latent},
    )  # fmt: skip
    neartie.merge_ranks(place, tmp_path / "bank")
    bank = neartie.open_bank(tmp_path / "bank" / "layer0")
    block = bank.read(0, 20)
    hidden = torch.cat(_same(0)).reshape(-1, HIDDEN)
    # Call by call: another width gives other bits.
    whole = torch.cat([moe.gate(x)[0] for x in _same(0)]).numpy()
    assert (bank.weights["router_weight"] == to_numpy(moe.gate.weight.detach())).all()
    assert (bank.weights["latent_down_weight"] == to_numpy(moe.down.weight.detach())).all()
    if (logits, latent) == ("replicated", "replicated"):
        assert (bank.stage, bank.ranks) == ("hidden", None)
        assert (block.extra["logits_recorded"] == whole).all()
        return
    assert (bank.stage, bank.ranks) == ("partials" if latent == "partial" else "shards", RANKS)
    assert block.logits_shards is not None
    assert (np.concatenate(block.logits_shards, axis=1) == whole).all()
    assert (block.extra["hidden_recorded"] == to_numpy(hidden)).all()
    if latent == "column":
        assert block.latent_shards is not None
        pieces = [
            to_numpy(torch.cat([model.down(x) for x in _same(0)]).reshape(20, -1))
            for model in models
        ]
        assert (block.latent_shards == np.stack(pieces)).all()
    if latent == "partial":
        assert block.latent_partials is not None
        pieces = [
            to_numpy(torch.cat([model.down(x) for x in _same(0)]).reshape(20, -1))
            for model in models
        ]
        assert (block.latent_partials == np.stack(pieces)).all()
    result = neartie.run_audit(
        str(tmp_path / "bank" / "layer0"),
        baseline="general:select=hf" if latent == "partial" else "route:select=hf",
        candidate="recorded:name=model",
        rows=[10],
        ranks=RANKS,
        gate=False,
    )
    # Every row on both ranks.
    assert result.record["widths"][0]["counts"]["identical"] == 20 * RANKS


def test_ranks_with_their_own_rows(tmp_path: Path) -> None:
    model = ToyModel()
    place = _shards(
        tmp_path / "ranks", [model] * RANKS,
        lambda rank: [toy_input(rank, sequence=3 + rank)], parallel="data",
    )  # fmt: skip
    neartie.merge_ranks(place, tmp_path / "bank")
    block = neartie.open_bank(tmp_path / "bank" / "layer3").read(0, 14)
    assert block.keys["rank"].tolist() == [0] * 6 + [1] * 8
    assert block.keys["row"].tolist() == [*range(6), *range(8)]
    first = neartie.open_bank(tmp_path / "bank" / "layer1").read(6, 14).hidden
    assert first is not None
    assert (first == to_numpy(toy_input(1, sequence=4).reshape(-1, HIDDEN))).all()


def _disagreement(place: Path, models: Any, inputs: Any) -> Any:
    _shards(place, models, inputs)
    with pytest.raises(RankDisagreement) as caught:
        neartie.merge_ranks(place, place.with_name("bank"))
    assert not place.with_name("bank").exists()
    return caught.value


def _flipped_on(odd: int) -> Any:
    """Inputs of which one bit of one element differs on one rank."""

    def inputs(rank: int) -> list[torch.Tensor]:
        second = toy_input(1)
        bits = second.view(torch.int16)
        bits[1, 2, 3] ^= rank == odd
        return [toy_input(0), second]

    return inputs


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_of_three_ranks_the_one_that_saw_another_row_is_named(tmp_path: Path, odd: int) -> None:
    error = _disagreement(tmp_path / "ranks", [ToyModel().moe(1)] * 3, _flipped_on(odd))
    rest = tuple(rank for rank in range(3) if rank != odd)
    sides = ((odd,), rest) if odd == 0 else (rest, (odd,))
    assert Disagreement(odd, 0, 1, 7, "hidden", sides) in error.found
    assert {(one.rank, one.step, one.row) for one in error.found} == {(odd, 1, 7)}
    assert str(error).startswith(f"rank {odd}, layer 0, step 1, row 7: hidden=other bits than")
    assert f"odd ranks: {odd})" in str(error)


@pytest.mark.parametrize("odd", [0, 1])
def test_of_two_ranks_neither_is_blamed(tmp_path: Path, odd: int) -> None:
    error = _disagreement(tmp_path / "ranks", [ToyModel().moe(1)] * 2, _flipped_on(odd))
    assert {one.rank for one in error.found} == {None}
    start = "ranks 0 and 1 differ, layer 0, step 1, row 7: hidden=other bits than"
    assert str(error).startswith(start)
    assert "which is wrong cannot be known" in str(error)
    assert "odd ranks" not in str(error)


def test_a_rank_with_another_weight_or_count_is_named(tmp_path: Path) -> None:
    models = [ToyModel().moe(1) for _ in range(3)]
    models[1].gate.bias[5] += 1
    error = _disagreement(tmp_path / "ranks", models, _same)
    sides = ((0, 2), (1,))
    assert Disagreement(1, 0, None, None, "correction_bias", sides) in error.found
    assert {one.rank for one in error.found} == {1}
    # The weights of one layer are compared in one place; what follows from them in each row.
    places = len(error.found)
    assert places > 1
    assert str(error).startswith(
        "rank 1, layer 0: correction_bias=other bits than the other ranks' in 1 place of "
        f"correction_bias; {places} places in all (odd ranks: 1), but should be"
    )
    error = _disagreement(
        tmp_path / "other", [models[0]] * 3, lambda rank: _same(rank)[: 2 - (rank == 1)]
    )
    rows = 2 * len(toy_input(0).reshape(-1, HIDDEN))
    counts = (rows, rows // 2)
    assert error.found == (Disagreement(1, 0, None, None, "rows", sides, counts),)
    assert f"rows={rows} on ranks 0, 2; {rows // 2} on rank 1 (odd ranks: 1)" in str(error)


def test_the_odd_rank_is_the_one_that_most_differ_from() -> None:
    def odd(*values: bytes) -> list[int]:
        return odd_ranks(sides_of(values))

    assert odd(b"x", b"a", b"a", b"a") == [0]
    assert odd(b"a", b"a", b"b", b"c") == [2, 3]
    assert odd(b"a", b"a") == []
    # As many on each side: nobody is odd.
    assert odd(b"a", b"b") == odd(b"a", b"b", b"a", b"b") == odd(b"a", b"b", b"c") == []
    four = Disagreement(None, 3, None, None, "rows", sides_of([b"a", b"b", b"a", b"b"]))
    assert str(four) == "ranks 0, 2 and ranks 1, 3 differ, layer 3: rows"


def test_shards_that_are_missing_or_damaged(tmp_path: Path) -> None:
    place = _shards(tmp_path / "ranks", [ToyModel()] * RANKS, _same)
    header = place / "rank1" / "shard.json"
    text = header.read_text()
    for change, words in (
        ({"rank": 0}, "rank=0, but should be 1"),
        ({"name": "other"}, "name=other, but should be ranks as on rank 0"),
        ({"shard_version": 2}, "shard_version=2"),
        ({"extra": 1}, "extra=1"),
    ):
        header.write_text(json.dumps({**json.loads(text), **change}))
        with pytest.raises(BankError, match=words):
            neartie.merge_ranks(place, tmp_path / "bank")
    header.write_text(text)
    rows = place / "rank1" / "layer3.gate.arrow"
    rows.write_bytes(rows.read_bytes()[:-1] + b"x")
    with pytest.raises(BankError, match=r"sha256.*layer3\.gate\.arrow"):
        neartie.merge_ranks(place, tmp_path / "bank")
    header.unlink()
    with pytest.raises(InputError, match=r"file=nothing.*rank1"):
        neartie.merge_ranks(place, tmp_path / "bank")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ranks"]


def test_the_command_line_merges_or_names_the_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["neartie", "bank", "merge-ranks", *words])
        return exit_status(), capsys.readouterr().out

    models = [ToyModel().moe(1), ToyModel().moe(1)]
    good = str(_shards(tmp_path / "good", models, _same))
    assert run(good, str(tmp_path / "bank"), "--json")[0] == 0
    digest = neartie.open_bank(tmp_path / "bank" / "layer0").digest
    status, printed = run(good, str(tmp_path / "again"))
    assert (status, printed) == (0, f"good/layer0: sha256 {digest}\n")
    assert run(good, str(tmp_path / "bank"))[0] == 2
    assert run(str(tmp_path), str(tmp_path / "other"))[0] == 2
    models[1].gate.bias[5] += 1
    bad = str(_shards(tmp_path / "bad", models, _same))
    status, printed = run(bad, str(tmp_path / "other"))
    assert status == 1
    first, second, *_ = printed.splitlines()
    assert first.startswith("ranks disagree in ")
    assert second == "ranks 0 and 1 differ, layer 0: correction_bias"
    status, printed = run(bad, str(tmp_path / "other"), "--json")
    assert status == 1
    found = json.loads(printed)["disagreements"]
    assert found[0] == {
        "rank": None, "layer": 0, "step": None, "row": None, "tensor": "correction_bias",
        "sides": [[0], [1]], "counts": [],
    }  # fmt: skip
    assert not (tmp_path / "other").exists()
