"""The pytest plugin: banks as fixtures, edge values as test ids, evidence of a test run.

pytest loads it in every run of whoever has neartie installed, so it imports nothing heavy before
a test asks for something.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from .kept_evidence import EvidenceKeeper, keep_with

if TYPE_CHECKING:
    from ..banks.bank import Bank
    from ..banks.memory import MemoryBank
    from ..banks.store import StoredBank

_KEEPER = pytest.StashKey[EvidenceKeeper]()


class BankFactory(Protocol):
    """What the fixture ``neartie_bank`` is."""

    def __call__(self, spec: str | Path, **options: object) -> Bank:
        """Return the bank of a spec, or of a generator's name and options."""
        ...


class TmpBankFactory(Protocol):
    """What the fixture ``neartie_tmp_bank`` is."""

    def __call__(self, bank: MemoryBank) -> StoredBank:
        """Return a bank that was stored for this test."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--neartie-out``."""
    parser.getgroup("neartie").addoption(
        "--neartie-out",
        metavar="DIR",
        default=None,
        help="write an evidence directory for every assert_equivalent call of the tests into DIR, "
        "which is new or empty",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a directory with something in it: old evidence must not pass for this run's."""
    given = config.getoption("neartie_out")
    if given is None:
        return
    root = config.invocation_params.dir / given
    # The processes of pytest-xdist find what the others have written by then.
    if not hasattr(config, "workerinput"):
        expected = "but should be a new or empty directory"
        try:
            if root.exists() and (not root.is_dir() or any(root.iterdir())):
                raise pytest.UsageError(f"--neartie-out={given}, {expected} [pytest]")
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise pytest.UsageError(f"--neartie-out={given}, {expected} [{reason}]") from error
    keeper = config.stash[_KEEPER] = EvidenceKeeper(root)
    keep_with(keeper)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Keep nothing from here on."""
    if _KEEPER in config.stash:
        keep_with(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Name the evidence after the test that makes it, its fixtures included."""
    keeper = item.config.stash.get(_KEEPER, None)
    if keeper is None:
        return (yield)
    keeper.begin(item.nodeid)
    try:
        return (yield)
    finally:
        keeper.end()


@pytest.fixture
def neartie_bank(request: pytest.FixtureRequest) -> Bank | BankFactory:
    """Open a bank by ``neartie_bank("k3-mini/layer0")`` or ``neartie_bank("near_tie", gap=1)``.

    Parametrised indirectly by specs, it is the open bank itself.
    """
    from ..banks.open import open_bank

    def opened(spec: str | Path, **options: object) -> Bank:
        text = ",".join(f"{name}={value}" for name, value in options.items())
        return open_bank(f"{spec}{',' if ':' in str(spec) else ':'}{text}" if text else spec)

    return opened(request.param) if hasattr(request, "param") else opened


@pytest.fixture
def neartie_tmp_bank(tmp_path: Path) -> TmpBankFactory:
    """Stores what ``memory_bank`` made under ``tmp_path`` and opens it from there."""
    stored = 0

    def store(bank: MemoryBank) -> StoredBank:
        nonlocal stored
        stored += 1
        return bank.save(tmp_path / f"neartie-bank-{stored}")

    return store


def edge_banks(*names: str, geometry: str = "mini", rows: int = 24, seed: int = 0) -> Sequence[Any]:
    """Return parameters for ``pytest.mark.parametrize``: specs of edge banks, ids their names.

    Args:
        names: some of ``neartie.banks.edges.EDGE_BANKS``, such as ``saturated`` and ``bias=-inf``;
            all but the ``UNANSWERABLE_EDGES``, which fail whatever the path, where there are none.
        geometry: a preset, or HIDDENxLATENTxEXPERTSxTOP_K.
        rows: rows of each.
        seed: seed of the rows.

    Raises:
        InputError: no edge bank of this name.
    """
    from ..banks.edges import EDGE_BANKS, UNANSWERABLE_EDGES, edge_spec

    wanted = names or [name for name in EDGE_BANKS if name not in UNANSWERABLE_EDGES]
    return [
        pytest.param(edge_spec(name, geometry=geometry, rows=rows, seed=seed), id=name)
        for name in wanted
    ]


def edge_logits() -> Sequence[Any]:
    """Return parameters for ``pytest.mark.parametrize``: FP32 edge logits, ids their names."""
    from ..banks.edges import LOGIT_EDGES

    return [pytest.param(value, id=name) for name, value in LOGIT_EDGES.items()]


def edge_biases() -> Sequence[Any]:
    """Return parameters for ``pytest.mark.parametrize``: FP32 edge biases, ids their names."""
    from ..banks.edges import BIAS_EDGES

    return [pytest.param(value, id=name) for name, value in BIAS_EDGES.items()]
