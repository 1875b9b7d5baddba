"""Directories of SGLang's dumper, written as ``_Dumper._dump_single`` of SGLang 0.5.23 does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from neartie.banks.errors import BankError
from neartie.banks.formats import export_bank, import_files
from neartie.banks.geometry import Geometry
from neartie.banks.importers.reading import Reading, Recording
from neartie.banks.importers.sglang_dims import parse_dims
from neartie.banks.open import open_bank

EXPERTS, HIDDEN, K = 8, 6, 2
NAMES = {
    "logits": "moe_router_logits",
    "recorded.served.ids": "moe_topk_ids",
    "recorded.served.weights": "moe_topk_weights",
    "correction_bias": "param__model.layers.3.mlp.gate.e_score_correction_bias",
}
READING = Reading(NAMES, layers=frozenset({3}))


class Dumper:
    """The part of the dumper that names and writes files."""

    def __init__(self, directory: Path, rank: int = 0, world: int = 1) -> None:
        self.directory = directory
        self.rank = rank
        self.world = world
        self.index = 0
        self.step = 0
        directory.mkdir(exist_ok=True)

    def dump(self, name: str, value: Any, dims: str | None = None, **tags: Any) -> Path:
        self.index += 1
        full = {"step": self.step, "rank": self.rank, "dump_index": self.index, "name": name}
        full |= {"recompute_status": "disabled", **tags}
        meta = {**full, "world_rank": self.rank, "world_size": self.world,
                "sglang_parallel_info": {"tp_rank": self.rank, "tp_size": self.world}}  # fmt: skip
        if dims is not None:
            meta["dims"] = dims
        path = self.directory / ("___".join(f"{k}={v}" for k, v in full.items()) + ".pt")
        torch.save({"value": value, "meta": meta}, path)
        return path


def values(step: int, layer: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + layer)
    logits = torch.randn(step + 2, EXPERTS, generator=generator)
    weights, ids = logits.sigmoid().topk(K)
    return {"moe_router_logits": logits, "moe_topk_ids": ids.int(), "moe_topk_weights": weights}


def a_run(directory: Path, ranks: int = 1, sharded: bool = False) -> Path:
    for rank in range(ranks):
        dumper = Dumper(directory, rank, ranks)
        bias = torch.arange(EXPERTS) / 7
        dumper.dump(NAMES["correction_bias"], bias)
        for dumper.step in range(3):
            for layer in (3, 4):
                for name, value in values(dumper.step, layer).items():
                    if sharded and name == "moe_router_logits":
                        width = EXPERTS // ranks
                        part = value[:, rank * width : (rank + 1) * width]
                        dumper.dump(name, part.clone(), "t e[tp]", layer_id=layer)
                    else:
                        dumper.dump(name, value, layer_id=layer)
            dumper.dump("non_intrusive__lm_head.output", torch.randn(2, 3))
    return directory


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_layer_of_a_run(ranks: int, tmp_path: Path) -> None:
    a_run(tmp_path / "dump", ranks)
    import_files([tmp_path / "dump"], tmp_path / "bank", format="sglang", reading=READING)
    bank = open_bank(tmp_path / "bank")
    block = bank.read(0, bank.rows)
    want = [values(step, 3) for step in range(3)]
    assert bank.stage == "logits"
    assert bank.geometry == Geometry("dump", 0, 0, EXPERTS, K)
    assert block.logits is not None
    logits = torch.cat([part["moe_router_logits"] for part in want])
    assert block.logits.tobytes() == logits.numpy().tobytes()
    ids, weights = block.recorded["served"]
    assert ids.tolist() == torch.cat([part["moe_topk_ids"] for part in want]).tolist()
    assert weights is not None
    assert weights.tolist() == torch.cat([part["moe_topk_weights"] for part in want]).tolist()
    assert block.keys["step"].tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert block.keys["row"].tolist() == [0, 1, 0, 1, 2, 0, 1, 2, 3]
    assert set(block.keys["layer"].tolist()) == {3}
    assert bank.provenance["source"]["ranks"] == ranks


def test_shards_by_their_dims(tmp_path: Path) -> None:
    a_run(tmp_path / "dump", ranks=2, sharded=True)
    import_files([tmp_path / "dump"], tmp_path / "bank", format="sglang", reading=READING)
    bank = open_bank(tmp_path / "bank")
    block = bank.read(0, bank.rows)
    assert (bank.stage, bank.ranks) == ("shards", 2)
    assert block.logits_shards is not None
    got = np.concatenate(list(block.logits_shards), axis=1)
    want = torch.cat([values(step, 3)["moe_router_logits"] for step in range(3)])
    assert got.tobytes() == want.numpy().tobytes()


def test_a_rank_that_disagrees_is_named(tmp_path: Path) -> None:
    a_run(tmp_path / "dump", ranks=2)
    (path,) = (tmp_path / "dump").glob("step=1___rank=1___*___name=moe_topk_ids___*layer_id=3.pt")
    held = torch.load(path)
    held["value"][2, 0] += 1
    torch.save(held, path)
    with pytest.raises(BankError) as error:
        import_files([tmp_path / "dump"], tmp_path / "bank", format="sglang", reading=READING)
    assert str(error.value).startswith("moe_topk_ids on rank 1=other bits, but should be the bits")
    assert path.name in str(error.value)
    assert not (tmp_path / "bank").exists()


def test_a_weight_that_differs_between_ranks(tmp_path: Path) -> None:
    a_run(tmp_path / "dump", ranks=2)
    (path,) = (tmp_path / "dump").glob("step=0___rank=1___*param__*")
    held = torch.load(path)
    held["value"][3] *= 1.5
    torch.save(held, path)
    with pytest.raises(BankError, match="e_score_correction_bias on rank 1=other bits, but should"):
        import_files([tmp_path / "dump"], tmp_path / "bank", format="sglang", reading=READING)


def break_(directory: Path, what: str) -> None:
    dumper = Dumper(directory)
    dumper.index, dumper.step = 90, 1
    (ids,) = directory.glob("step=1___rank=0___*___name=moe_topk_ids___*layer_id=3.pt")
    if what == "lost":
        ids.unlink()
    elif what == "twice":
        dumper.dump("moe_topk_ids", torch.zeros(3, K), layer_id=3)
    elif what == "dims":
        ids.unlink()
        dumper.dump("moe_topk_ids", torch.zeros(3, K, dtype=torch.int32), "t", layer_id=3)
    elif what == "columns":
        ids.unlink()
        dumper.dump("moe_topk_ids", torch.zeros(3, K + 1, dtype=torch.int32), layer_id=3)
    elif what == "tags":
        ids.rename(directory / "name=moe_topk_ids.pt")
    elif what == "object":
        ids.unlink()
        dumper.dump("moe_topk_ids", [1, 2], layer_id=3)
    elif what == "numpy":
        ids.unlink()
        dumper.dump("moe_topk_ids", np.zeros((3, K)), layer_id=3)
    elif what == "partial":
        ids.unlink()
        dumper.dump("moe_topk_ids", torch.zeros(3, K), "t k[tp:partial]", layer_id=3)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("lost", "recorded.served.ids=nothing in step 1, layer 3, but should be there"),
        ("twice", "name moe_topk_ids=step=1.* too, but should be dumped once in a step"),
        ("dims", r"shape of moe_topk_ids=\[3, 2\] with dims 't', but should be an axis for each"),
        ("columns", r"a token of recorded.served.ids=int32 \[3\], but should be int32 \[2\]"),
        ("tags", "tag step=nothing, but should be a whole number"),
        ("object", "value of moe_topk_ids=list, but should be a tensor"),
        ("numpy", "file=an object of numpy.*, but should be tensors, numbers and text"),
        ("partial", "dims of recorded.served.ids=partial, but should be replicated"),
    ],
)
def test_bad_dumps(what: str, message: str, tmp_path: Path) -> None:
    a_run(tmp_path / "dump")
    break_(tmp_path / "dump", what)
    with pytest.raises(BankError, match=message):
        import_files([tmp_path / "dump"], tmp_path / "bank", format="sglang", reading=READING)


def test_nothing_that_a_bank_has_a_place_for(tmp_path: Path) -> None:
    a_run(tmp_path / "dump")
    with pytest.raises(BankError, match="names=none known, but should be tensors of a router"):
        import_files([tmp_path / "dump"], tmp_path / "bank", format="sglang")
    wrong = Reading({**NAMES, "hidden": "gate_input"}, layers=frozenset({3}))
    with pytest.raises(BankError, match="tensor gate_input=nothing, but should be present"):
        import_files([tmp_path / "dump"], tmp_path / "bank", format="sglang", reading=wrong)
    with pytest.raises(BankError, match=r"file=nothing, but should be a directory of SGLang's"):
        import_files([tmp_path / "none"], tmp_path / "bank", format="sglang")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BankError, match=r"file=no \*.pt, but should be files of SGLang's dumper"):
        import_files([tmp_path / "empty"], tmp_path / "bank", format="sglang")


def test_a_recomputed_pass_is_not_a_second_dump(tmp_path: Path) -> None:
    a_run(tmp_path / "dump")
    dumper = Dumper(tmp_path / "dump")
    dumper.index, dumper.step = 90, 1
    path = dumper.dump("moe_topk_ids", torch.zeros(3, K), layer_id=3)
    path.rename(path.with_name(path.name.replace("=disabled", "=recompute")))
    import_files([tmp_path / "dump"], tmp_path / "bank", format="sglang", reading=READING)
    assert open_bank(tmp_path / "bank").rows == 9


def test_exported_files_are_named_and_filled_as_the_dumpers(tmp_path: Path) -> None:
    export_bank("k3-mini/tie-witness", tmp_path / "dump", format="sglang")
    (path,) = (tmp_path / "dump").glob("*___name=hidden___*")
    index = path.name.split("___")[2]
    assert path.name == (
        f"step=0___rank=0___{index}___name=hidden___recompute_status=disabled___layer_id=1.pt"
    )
    held = torch.load(path)
    assert set(held) == {"value", "meta"}
    assert held["meta"]["dims"] == "t e"
    assert (held["value"].dtype, list(held["value"].shape)) == (torch.bfloat16, [20, 512])


@pytest.mark.parametrize(
    ("text", "layout"),
    [("t h", "replicated"), ("t h[tp] # dp:=moe_dp", "column"), ("t 1 (n*d)[tp:sharded]", "column"),
     ("t h[tp:partial]", "partial")],
)  # fmt: skip
def test_dims(text: str, layout: str) -> None:
    assert parse_dims(text, "x").layout == layout


@pytest.mark.parametrize("text", ["", "t[cp] h", "t[cp:zigzag] h", "t h[tp] d", "h t", "t h["])
def test_dims_that_are_refused(text: str) -> None:
    with pytest.raises(BankError, match="dims="):
        parse_dims(text, "x")


def test_zero_bias_beside_a_dump(tmp_path: Path) -> None:
    dumper = Dumper(tmp_path / "dump")
    dumper.dump("router_logits", torch.ones(3, EXPERTS))
    dumper.dump("topk_ids", torch.tensor([[0, 1]] * 3))
    import_files([tmp_path / "dump"], tmp_path / "bank", format="sglang",
                 recording=Recording(layer=5, zero_bias=True))  # fmt: skip
    bank = open_bank(tmp_path / "bank")
    assert set(bank.read(0, 3).keys["layer"].tolist()) == {5}
    assert not bank.weights["correction_bias"].any()
