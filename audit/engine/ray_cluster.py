"""A connection to a Ray cluster: one that runs, or one started here and stopped afterwards."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

from ...banks.errors import InputError

_PROBE_SECONDS: Final = 5.0
# What a local cluster reserves for objects, in bytes: documents in flight are some kilobytes each,
# and the least that Ray accepts is 75 MiB.
_OBJECT_STORE: Final = 100 << 20
_ADDRESS: Final = "RAY_ADDRESS"
# Ray reads them when it starts. No figures of use are sent anywhere; no warning of a default that
# will change and that does not concern tasks which ask for their GPUs.
_SETTINGS: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def require_ray() -> None:
    """Refuse where Ray is not installed.

    Raises:
        InputError: it is not.
    """
    if find_spec("ray") is None:
        expected = 'installed: pip install ".[ray]" in a clone of neartie'
        raise InputError("engine", "ray", expected, "--engine")


def starts_cluster() -> bool:
    """Whether ``connected`` without an address would start a cluster."""
    if _ADDRESS in os.environ:
        return False
    import ray

    return not ray.is_initialized()


@contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[None]:
    """Connect for the ``with`` block; a connection that this process has already is used and kept.

    Args:
        address: ``host:port`` of a cluster's head, ``auto`` for the one on this machine, or
            ``ray://host:port``; None takes ``RAY_ADDRESS``, or starts a cluster on this machine.
        workers: CPUs of a cluster that is started; None takes the machine's.

    Raises:
        InputError: nobody answers at the address, or this process has a connection to another.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        _check_same(address, ray.get_runtime_context().gcs_address)
        yield
        return
    wanted = os.environ.get(_ADDRESS) if address is None else address
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if wanted is None:
        options |= {"address": "local", "num_cpus": workers, "include_dashboard": False}
        options["object_store_memory"] = _OBJECT_STORE
    else:
        _probe(wanted)
        options["address"] = wanted
    with _own_handlers():
        try:
            ray.init(**options)
        except (ConnectionError, ValueError) as error:
            text = " ".join(str(error).split())
            expected = "of a Ray cluster that runs; RAY_AUTH_MODE=token if it asks for its token"
            raise InputError("address", wanted, expected, text) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_same(address: str | None, connected_to: str) -> None:
    if address not in (None, "auto", connected_to):
        expected = f"{connected_to}, which this process is connected to, or ray.shutdown() first"
        raise InputError("address", address, expected, "--address")


def _probe(address: str) -> None:
    """Ray itself waits half a minute for a head that is not there, and prints what it tries."""
    if address == "auto":
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise InputError("address", address, "HOST:PORT, ray://HOST:PORT or auto", "--address")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = f"--address: {error}"
        raise InputError("address", address, "of a Ray cluster that runs", reason) from error


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Ray takes SIGTERM over when it starts; ours, which keeps what is finished, stays.

    Until it has started, Ray's own ends the process: that is an interrupt here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGTERM, before)
