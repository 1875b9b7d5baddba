"""Certificates of device forms: which device they hold for, and what is shown without one."""

import json
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from neartie.audit import device_certificate as module
from neartie.audit.certify import certify_forms, load_certificate, write_certificate
from neartie.audit.cli import main
from neartie.audit.device_certificate import (
    UnsteadyDevice,
    device_file_name,
    evaluate_device_forms,
)
from neartie.audit.gate import device_plan
from neartie.audit.score_certificate import ScoreCertificate
from neartie.banks.errors import EnvelopeError, InputError
from neartie.kernels.cuda import certify_triton
from neartie.kernels.cuda.facts import KEY_FACTS, why_not_real
from neartie.kernels.cuda.forms import DEVICE_FORM_VERSIONS
from neartie.kernels.cuda.selects import SCREEN

FACTS = dict.fromkeys(("device", "compute_capability", "cuda", "libdevice", "triton"), "1")
MORE = FACTS | {"driver": "5", "torch": "2"}
PAIR = ("exp.cuda", "exp.cuda")
"""Stands for any pair in the tests of files: none is shipped of a form and itself."""

on_device = pytest.mark.skipif(why_not_real() is not None, reason=str(why_not_real()))
without_device = pytest.mark.skipif(why_not_real() is None, reason="there is a device")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEARTIE_CACHE", str(tmp_path))
    return tmp_path / "certificates"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A device that counts as the shipped CPU certificate did; holds its number of evaluations."""
    counted = load_certificate("exp", "tanh")
    assert counted is not None
    calls: list[int] = []

    def scan(*_: str) -> Any:
        calls.append(1)
        return counted.record

    monkeypatch.setattr(certify_triton, "device_scan", scan)
    monkeypatch.setattr(certify_triton, "device_special", lambda _: counted.special[0])
    monkeypatch.setattr(module, "why_not_real", lambda: None)
    monkeypatch.setattr(module, "device_facts", lambda: MORE)
    return calls


def status(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["neartie", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_a_certificate_is_evaluated_twice_and_kept_for_its_device(
    device: list[int], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certify_forms(*PAIR)
    assert len(device) == 2
    assert made.device == FACTS
    assert made.versions == (DEVICE_FORM_VERSIONS["exp.cuda"],) * 2
    assert {"seconds", "first_seconds", "driver", "torch", "date"} <= made.provenance.keys()
    assert ScoreCertificate.from_json(made.to_json()) == made
    assert [path.name for path in cache.iterdir()] == [device_file_name(made)]
    assert certify_forms(*PAIR) == made
    assert len(device) == 2
    for name in KEY_FACTS:
        monkeypatch.setattr(module, "device_facts", lambda name=name: MORE | {name: "9"})
        assert load_certificate(*PAIR) is None
    monkeypatch.setattr(module, "device_facts", lambda: MORE | {"driver": "6"})
    assert load_certificate(*PAIR) == made


def test_without_a_device_a_kept_certificate_is_shown_with_its_device(
    device: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = certify_forms(*PAIR)
    monkeypatch.setattr(module, "why_not_real", lambda: "no CUDA device")
    assert certify_forms(*PAIR) == made
    assert status(monkeypatch, "certify", *PAIR) == 0
    shown = capsys.readouterr().out
    assert "libdevice 1" in shown
    assert "it holds for these alone" in shown
    assert status(monkeypatch, "certify", *PAIR, "--json") == 0
    assert json.loads(capsys.readouterr().out)["device"] == FACTS
    assert status(monkeypatch, "certify", *PAIR, "--fresh") == 2
    assert "device=no CUDA device, but should be a CUDA device" in capsys.readouterr().err


def test_a_device_that_counts_differently_twice_is_refused(
    device: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [load_certificate("exp", "tanh"), load_certificate("exp", "sigmoid")]
    counted = iter(one.record for one in records if one is not None)
    monkeypatch.setattr(certify_triton, "device_scan", lambda *_: next(counted))
    with pytest.raises(UnsteadyDevice, match="counted twice"):
        evaluate_device_forms(*PAIR)


@without_device
def test_without_a_device_and_a_certificate_the_reason_is_told() -> None:
    with pytest.raises(EnvelopeError, match=f"device={why_not_real()}"):
        certify_forms(*PAIR)


@pytest.mark.parametrize("pair", [("exp", "tanh.cuda"), ("tanh.cuda", "nothing")])
def test_forms_of_two_kinds_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=r"one of exp\.cuda"):
        certify_forms(*pair)


def test_a_gates_bounds_are_of_certificates(
    device: list[int], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_plan, "why_not_real", lambda: None)
    monkeypatch.setattr(device_plan, "device_facts", lambda: MORE)
    plan = device_plan.make_device_plan(["tanh.cuda", "tanh.cuda"])
    counted = load_certificate("exp", "tanh")
    assert counted is not None
    assert plan.bounds == {"tanh.cuda": counted.max_abs("all")}
    assert len(device) == 2
    kept = replace(counted, form_a=SCREEN, form_b="tanh.cuda", device=FACTS)
    write_certificate(kept, cache / device_file_name(kept))
    assert device_plan.make_device_plan(["tanh.cuda"]) == plan
    assert len(device) == 2


def shipped() -> list[ScoreCertificate]:
    folder = files("neartie.audit").joinpath("data", "certificates")
    return [
        ScoreCertificate.from_json(entry.read_text(), entry.name)
        for entry in folder.iterdir()
        if "@" in entry.name
    ]


def test_every_shipped_device_certificate_has_its_name_and_is_whole() -> None:
    folder = files("neartie.audit").joinpath("data", "certificates")
    found = shipped()
    assert {(one.form_a, one.form_b) for one in found} >= {
        ("exp.cuda", "tanh.cuda"), ("tanh.approx", "tanh.cuda"),
        ("exp.approx", "exp.cuda"), ("exp.approx", "tanh.cuda"), ("exp.approx", "tanh.approx"),
    }  # fmt: skip
    for one in found:
        text = folder.joinpath(device_file_name(one)).read_text()
        assert text == one.to_json() + "\n"
        assert one.device is not None
        assert set(one.device) == set(KEY_FACTS)
        assert one.provenance["seconds"] < 1.0
        # Joining the last product of expf with the sum after it changes no score of the H200.
        joined = (one.form_a, one.form_b) == ("exp.cuda", "exp.cuda_fma")
        assert (one.max_abs("all") > 0.0) is not joined


@pytest.mark.gpu
@on_device
def test_a_certificate_of_this_device() -> None:
    made = evaluate_device_forms("exp.cuda", "tanh.cuda")
    assert made.provenance["seconds"] < 1.0
    assert 0.0 < made.max_abs("all") < 2.0**-22
    # The two precise forms are within two steps of a score below 1; the approximate one is not.
    assert evaluate_device_forms("tanh.approx", "tanh.cuda").max_abs("all") > 2.0**-22
