"""Certificates of device score forms: made where a device is, shown anywhere with its name.

A form's bits are those of one device and one compiler, so a certificate is of two forms *and* of
``facts.KEY_FACTS``. Where a device is, only a certificate of that very device counts; where there
is none, one that was kept is shown, and says what it holds for.
"""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from ..banks.errors import EnvelopeError, InputError
from ..kernels.cuda.facts import KEY_FACTS, device_facts, why_not_real
from ..kernels.cuda.forms import DEVICE_FORM_VERSIONS, DEVICE_FORMS
from ..kernels.scores import FORMS
from .environment import environment
from .score_certificate import RECORD_VERSION, ScoreCertificate

_MACHINE: Final = ("neartie", "python", "numpy", "machine", "system", "cores", "commit")


class UnsteadyDevice(RuntimeError):
    """Two evaluations of the same forms on the same inputs gave different counts."""


def is_device_pair(form_a: str, form_b: str) -> bool:
    """Whether the forms are of the device.

    Raises:
        InputError: one is of the device and the other is not.
    """
    names = [form in DEVICE_FORMS for form in (form_a, form_b)]
    if names[0] == names[1]:
        return names[0]
    device, other = (form_a, form_b) if names[0] else (form_b, form_a)
    expected = f"a device form beside {device}: one of {', '.join(DEVICE_FORMS)}"
    if other not in FORMS:
        expected = f"one of {', '.join(DEVICE_FORMS)}"
    raise InputError("form", other, expected, "certify")


def load_device_certificate(form_a: str, form_b: str, cache: Path) -> ScoreCertificate | None:
    """Return a kept certificate of two device forms: of this device, or of any if there is none.

    Args:
        form_a: a name of ``DEVICE_FORMS``.
        form_b: another, or the same.
        cache: the directory of certificates; shipped ones are read too.

    Raises:
        InputError: a file that is no certificate.
    """
    first, second = sorted((form_a, form_b))
    here = _key(device_facts()) if why_not_real() is None else None
    pattern = f"{first}--{second}@"
    shipped = files("neartie.audit").joinpath("data", "certificates")
    sources = [
        *(one for one in shipped.iterdir() if one.name.startswith(pattern)),
        *(sorted(cache.iterdir()) if cache.is_dir() else ()),
    ]
    for source in sorted(sources, key=lambda one: one.name):
        if not (source.name.startswith(pattern) and source.name.endswith(".json")):
            continue
        found = ScoreCertificate.from_json(source.read_text(encoding="utf-8"), str(source))
        if found.versions != _versions(first, second) or found.device is None:
            continue
        if here is None or dict(found.device) == here:
            return found
    return None


def evaluate_device_forms(form_a: str, form_b: str) -> ScoreCertificate:
    """Evaluate two device forms on all inputs, twice, and return their certificate.

    The first evaluation compiles; the second is the one that is timed, and must count the same.

    Args:
        form_a: a name of ``DEVICE_FORMS``.
        form_b: another, or the same.

    Raises:
        EnvelopeError: no device here.
        UnsteadyDevice: the two evaluations differ.
    """
    reason = why_not_real()
    if reason is not None:
        raise EnvelopeError("device", reason, "a CUDA device with Triton", "certify")
    from ..kernels.cuda.certify_triton import device_scan, device_special

    first, second = sorted((form_a, form_b))
    began = time.monotonic()
    record = device_scan(first, second)
    compiled = time.monotonic()
    again = device_scan(first, second)
    ended = time.monotonic()
    if record != again:
        raise UnsteadyDevice(f"{first} and {second} were counted twice with different results")
    special = (device_special(first), device_special(second))
    made, facts = environment(), device_facts()
    provenance: dict[str, Any] = {
        "command": f"neartie certify {first} {second} --fresh",
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(ended - compiled, 3),
        "first_seconds": round(compiled - began, 3),
        **{name: made[name] for name in _MACHINE},
        **{name: facts[name] for name in ("driver", "torch")},
    }
    versions = _versions(first, second)
    return ScoreCertificate(first, second, versions, record, special, provenance, _key(facts))


def device_file_name(certificate: ScoreCertificate) -> str:
    """The name under which a certificate of device forms is kept: forms, versions, device key."""
    assert certificate.device is not None, "a certificate of device forms"
    first, second = certificate.versions
    digest = hashlib.sha256(json.dumps(dict(certificate.device), sort_keys=True).encode())
    return (
        f"{certificate.form_a}--{certificate.form_b}@{first}.{second}.r{RECORD_VERSION}"
        f".{digest.hexdigest()[:12]}.json"
    )


def _key(facts: dict[str, str]) -> dict[str, str]:
    return {name: facts[name] for name in KEY_FACTS}


def _versions(form_a: str, form_b: str) -> tuple[int, int]:
    return DEVICE_FORM_VERSIONS[form_a], DEVICE_FORM_VERSIONS[form_b]
