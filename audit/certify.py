"""Certificates: what two score forms can differ by at most, from evaluating every FP32 input."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from ..banks.atomic import replace_file
from ..banks.errors import InputError
from ..kernels.exhaustive.record import ScanRecord
from ..kernels.exhaustive.scan import FINITE_PLACES, blocks, check_form, scan_blocks, special_scores
from ..kernels.scores import FORM_VERSIONS
from .device_certificate import (
    device_file_name,
    evaluate_device_forms,
    is_device_pair,
    load_device_certificate,
)
from .environment import environment
from .score_certificate import RECORD_VERSION, ScoreCertificate

Progress = Callable[[int, int, str], None]

_SECONDS_BETWEEN_SAVES: Final = 5.0
_MACHINE: Final = ("neartie", "python", "numpy", "numba", "machine", "system", "cores", "commit")


def load_certificate(
    form_a: str, form_b: str, *, cache_dir: str | Path | None = None
) -> ScoreCertificate | None:
    """Return the certificate of two forms, in either order: shipped, else cached, else None.

    One made with another version of a form or of the record counts as none. Of device forms, one
    made on another device counts only where there is no device (``device_certificate``).

    Args:
        form_a: a name of ``scores.FORMS`` or ``forms.DEVICE_FORMS``.
        form_b: another, or the same.
        cache_dir: where results are kept; default ``default_cache_dir()``.

    Raises:
        InputError: a file that is no certificate.
    """
    if is_device_pair(form_a, form_b):
        return load_device_certificate(form_a, form_b, _directory(cache_dir))
    first, second = sorted((form_a, form_b))
    if not {first, second} <= FORM_VERSIONS.keys():
        return None
    shipped = files("neartie.audit").joinpath("data", "certificates", f"{first}--{second}.json")
    sources = [shipped] if shipped.is_file() else []
    cached = _directory(cache_dir) / _cache_name(first, second)
    sources += [cached] if cached.is_file() else []
    for source in sources:
        found = ScoreCertificate.from_json(source.read_text(encoding="utf-8"), str(source))
        if found.versions == _versions(first, second):
            return found
    return None


def certify_forms(
    form_a: str,
    form_b: str,
    *,
    cache_dir: str | Path | None = None,
    fresh: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ScoreCertificate:
    """Return the certificate of two elementwise forms; evaluate all 2^32 inputs if there is none.

    What was evaluated is kept in the cache every few seconds and when interrupted, and the next
    call goes on from there: to the same record, since counts merge in any order.

    Device forms are evaluated on the device, at once; without one, a kept certificate is returned.

    Args:
        form_a: a name of ``scores.FORMS``, or of ``forms.DEVICE_FORMS``.
        form_b: another of the same kind; certificates are of unordered pairs and name them
            alphabetically.
        cache_dir: where results are kept; default ``default_cache_dir()``.
        fresh: evaluate everything again, whatever is shipped or cached.
        threads: default all cores.
        progress: called with inputs done, inputs in all, and a label.

    Raises:
        InputError: a form that is unknown or not elementwise, or a cache that cannot be written.
        EnvelopeError: device forms, no device, and no certificate of them.
        UnsteadyDevice: the device counted differently twice.
    """
    if is_device_pair(form_a, form_b):
        return _certify_on_device(form_a, form_b, _directory(cache_dir), fresh)
    check_form(form_a)
    check_form(form_b)
    first, second = sorted((form_a, form_b))
    if not fresh:
        known = load_certificate(first, second, cache_dir=cache_dir)
        if known is not None:
            return known
    path = _directory(cache_dir) / _cache_name(first, second)
    partial = path.with_suffix(".partial")
    if fresh:
        partial.unlink(missing_ok=True)
    record, seconds = _scan(first, second, partial, _threads(threads), progress)
    special = (special_scores(first), special_scores(second))
    result = ScoreCertificate(
        first,
        second,
        _versions(first, second),
        record,
        special,
        _provenance(f"neartie certify {first} {second} --fresh", seconds),
    )
    write_certificate(result, path)
    partial.unlink(missing_ok=True)
    return result


def _certify_on_device(form_a: str, form_b: str, cache: Path, fresh: bool) -> ScoreCertificate:
    known = None if fresh else load_device_certificate(form_a, form_b, cache)
    if known is not None:
        return known
    result = evaluate_device_forms(form_a, form_b)
    write_certificate(result, cache / device_file_name(result))
    return result


def write_certificate(certificate: ScoreCertificate, path: str | Path) -> None:
    """Write a certificate's JSON in one rename.

    Raises:
        InputError: the place cannot be written.
    """
    _write(Path(path), certificate.to_json() + "\n", "out")


def default_cache_dir() -> Path:
    """Return where results are kept: ``$NEARTIE_CACHE``, or ``neartie`` in the user's cache."""
    chosen = os.environ.get("NEARTIE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neartie"


def _scan(
    form_a: str, form_b: str, partial: Path, threads: int, progress: Progress | None
) -> tuple[ScanRecord, float]:
    """Evaluate what ``partial`` does not hold yet, and save what there is on the way.

    Returns:
        The record, and the seconds of all the runs that made it.
    """
    record, before = _read_partial(partial)
    started = saved = time.monotonic()
    todo = [block for block in blocks() if not record.covers(block.start, block.stop)]
    done = sum(stop - start for start, stop in record.done)
    try:
        for part in scan_blocks(form_a, form_b, todo, threads=threads):
            record = record.merge(part)
            done += sum(stop - start for start, stop in part.done)
            if progress is not None:
                progress(done, FINITE_PLACES, f"{form_a}, {form_b}")
            if time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                saved = time.monotonic()
                _write_partial(partial, record, before + saved - started)
    except BaseException:
        _write_partial(partial, record, before + time.monotonic() - started)
        raise
    return record, before + time.monotonic() - started


def _threads(wanted: int | None) -> int:
    return (os.cpu_count() or 1) if wanted is None else wanted


def _write_partial(path: Path, record: ScanRecord, seconds: float) -> None:
    _write(path, json.dumps({"seconds": round(seconds, 1), **record.as_dict()}))


def _read_partial(path: Path) -> tuple[ScanRecord, float]:
    """The record of an interrupted run, or of nothing; the name holds forms and versions."""
    if not path.is_file():
        return ScanRecord.empty(), 0.0
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return ScanRecord.from_dict(data), float(data["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("partial result", error, "as written; delete it", str(path)) from error


def _write(path: Path, text: str, what: str = "cache") -> None:
    """Write a file in one rename, so that a reader never sees a part of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        expected = "a file that can be written"
        raise InputError(what, path, expected, error.strerror or "write") from error


def check_certificate_target(path: Path) -> None:
    """Refuse a place that is no file's: only a file is replaced.

    Raises:
        InputError: it is a directory, a link, a device or a pipe, or has no name.
    """
    try:
        file = path.is_file() or not path.exists()
        taken = path.name in ("", "..") or path.is_symlink() or not file
    except OSError as error:
        expected = "a file that can be written"
        raise InputError("out", path, expected, error.strerror or "look") from error
    if taken:
        raise InputError("out", path, "a new file, or a file to be replaced", "--out")


def _directory(cache_dir: str | Path | None) -> Path:
    return (default_cache_dir() if cache_dir is None else Path(cache_dir)) / "certificates"


def _versions(form_a: str, form_b: str) -> tuple[int, int]:
    return FORM_VERSIONS[form_a], FORM_VERSIONS[form_b]


def _cache_name(form_a: str, form_b: str) -> str:
    first, second = _versions(form_a, form_b)
    return f"{form_a}@{first}--{form_b}@{second}.r{RECORD_VERSION}.json"


def _provenance(command: str, seconds: float) -> dict[str, Any]:
    made = environment()
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(seconds, 1),
        **{name: made[name] for name in _MACHINE},
    }
