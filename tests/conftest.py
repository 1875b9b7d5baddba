"""Fixtures and profiles of the whole suite."""

import copy
import json
import lzma
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from slow_first import SLOW_FIRST

from neartie.audit.certificates import SWAP_SCHEMA, swaps_table
from neartie.audit.evidence.load import Evidence, load_evidence
from neartie.audit.evidence.manifest import (
    MANIFEST_FILE,
    Kind,
    Manifest,
    document_text,
    file_digest,
    make_manifest,
)
from neartie.audit.metrics.ulp import from_ordered, ordered
from neartie.audit.result import AuditResult
from neartie.audit.run import run_audit
from neartie.banks.bank import Header, RowBlock
from neartie.banks.exact_product import exact_product
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.banks.open import open_bank

ROOT = Path(__file__).resolve().parent.parent
# `python -m pytest` puts the root on the path, where our folders would be importable bare.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first; others keep their order."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(SLOW_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def master_router_weight() -> Callable[[int], npt.NDArray[np.float32]]:
    """[896, 512] FP32 master router weight of a k3-mini layer."""

    def load(layer: int) -> npt.NDArray[np.float32]:
        folder = Path(__file__).parent / "data" / "k3-mini-master"
        packed = np.load(folder / f"layer{layer}.npy").astype(np.int64)
        packed.flat[json.loads((folder / "ties.json").read_text())[str(layer)]] = 1 << 15
        used = open_bank(f"k3-mini/layer{layer}").weights["router_weight"]
        bits = (used.view(np.uint16).astype(np.int64) << 16) + packed
        master: npt.NDArray[np.float32] = bits.astype(np.uint32).view(np.float32)
        return master

    return load


@pytest.fixture(scope="session")
def recorded_logits() -> Callable[[int], npt.NDArray[np.float32]]:
    """[1024, 896] FP32 router logits of a k3-mini layer, as the GPU computed them."""

    def load(layer: int) -> npt.NDArray[np.float32]:
        file = Path(__file__).parent / "data" / "k3-mini-logits" / f"layer{layer}.xz"
        bank = open_bank(f"k3-mini/layer{layer}")
        hidden = bank.read(0, bank.rows).hidden
        assert hidden is not None
        exact = exact_product(hidden, bank.weights["router_weight"]).astype(np.float32)
        steps = np.frombuffer(lzma.decompress(file.read_bytes()), "<i4").reshape(exact.shape)
        logits: npt.NDArray[np.float32] = from_ordered(ordered(exact) + steps, np.float32)
        return logits

    return load


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small products of torch: threads that wait for each other only take time from other tests."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


TINY = Geometry("tiny", hidden=8, latent=4, experts=6, top_k=2)


@pytest.fixture
def header() -> Header:
    return Header(
        name="tiny",
        rows=0,
        geometry=TINY,
        scoring=ScoringRule(),
        tie_contract="unspecified",
        independence_unit="doc",
        stage="hidden",
        digest="",
        recorded_widths={"gpu": 20, "other": None},
        provenance={"model": "none", "seeds": {"seed": 3}, "anything": [1, "two", None]},
    )


@pytest.fixture
def weights() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return {
        "router_weight": rng.standard_normal((6, 8)).astype(ml_dtypes.bfloat16),
        "correction_bias": rng.standard_normal(6).astype(np.float32),
        "latent_down_weight": rng.standard_normal((4, 8)).astype(ml_dtypes.bfloat16),
    }


@pytest.fixture
def block() -> RowBlock:
    return _block(0, 5)


@pytest.fixture
def make_block() -> Callable[[int, int], RowBlock]:
    return _block


def _block(start: int, rows: int) -> RowBlock:
    rng = np.random.default_rng(start)
    row = np.arange(start, start + rows, dtype=np.int32)
    zero = np.zeros(rows, np.int32)
    return RowBlock(
        start,
        rows,
        {"layer": zero, "step": row // 2, "row": row, "rank": zero - 1, "doc": row // 3},
        hidden=rng.standard_normal((rows, 8)).astype(ml_dtypes.bfloat16),
        recorded={
            "gpu": (
                rng.integers(0, 6, (rows, 2)).astype(np.int32),
                rng.random((rows, 2)).astype(np.float32),
            ),
            "other": (rng.integers(0, 6, (rows, 2)).astype(np.int32), None),
        },
        extra={"logits_recorded": rng.standard_normal((rows, 6)).astype(np.float32)},
    )


@pytest.fixture(scope="session")
def small_audit() -> AuditResult:
    """A real audit of few rows: INCONCLUSIVE, UNKNOWN, so far LIGHT."""
    return run_audit(
        "gaussian:geometry=mini,rows=24", rows=(9, 12), ranks=2, gate=False, command="neartie x"
    )


def _certificate(row: int, **fields: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        name: [] for name in SWAP_SCHEMA.names if pa.types.is_list(SWAP_SCHEMA.field(name).type)
    }
    return {
        "bank": "gaussian:rows=24", "row": row, "width": 9, "rank": 0, "replicas": 2,
        "set_class": "near_tie", "gap_ulp": 1, "snippet": "", **empty, **fields,
    }  # fmt: skip


@pytest.fixture
def make_certificate() -> Callable[..., dict[str, Any]]:
    return _certificate


@pytest.fixture
def make_evidence(tmp_path: Path, small_audit: AuditResult) -> Callable[..., Evidence]:
    """Write evidence made from ``small_audit``, changed as a test wants it.

    Args of the returned function: ``name`` of the directory, ``edit`` of the record in place,
    ``swaps`` as certificates, ``date``, ``kind``, and ``versions`` that differ in the manifest.
    """

    def make(
        name: str = "evidence",
        edit: Callable[[dict[str, Any]], object] = lambda record: None,
        swaps: list[dict[str, Any]] | None = None,
        date: str = "2026-01-01T00:00:00+00:00",
        kind: str = "audit",
        versions: dict[str, str] | None = None,
    ) -> Evidence:
        record = copy.deepcopy(dict(small_audit.record))
        edit(record)
        table = swaps_table(swaps or [])
        place = tmp_path / name
        place.mkdir(parents=True)
        (place / f"{kind}.json").write_text(json.dumps(record), encoding="utf-8")
        tables = {
            "swaps": table,
            "values": small_audit.values,
            "histograms": small_audit.histograms,
        }
        for stem, rows in tables.items():
            pq.write_table(rows, place / f"{stem}.parquet")
        return _with_manifest(place, record, date, versions or {})

    return make


def _with_manifest(
    place: Path, record: dict[str, Any], date: str, versions: dict[str, str]
) -> Evidence:
    hashes = {path.name: file_digest(path) for path in place.iterdir()}
    kind: Kind = "gate" if "gate.json" in hashes else "audit"
    document = json.loads(make_manifest(kind, record, hashes).to_json()) | {"date": date}
    document["versions"] |= versions
    document["digest"] = Manifest.model_validate(document).own_digest()
    (place / MANIFEST_FILE).write_text(document_text(document))
    return load_evidence(place)
