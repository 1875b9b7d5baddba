"""Certificates: the shipped files against the forms, the cache, interruption, the command line."""

import json
import os
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neartie.audit import certify as module
from neartie.audit.certify import certify_forms, load_certificate
from neartie.audit.cli import main
from neartie.audit.metrics.score_bounds import key_bound
from neartie.audit.metrics.ulp import ulp_distance
from neartie.audit.score_certificate import ScoreCertificate, magnitude
from neartie.banks.errors import InputError
from neartie.kernels.exhaustive.float_line import RANGES, Stretch, place_of, stretches, value_at
from neartie.kernels.exhaustive.scan import scan_block, score_at
from neartie.kernels.scores import FORM_VERSIONS, score

SHIPPED = [("exp", "tanh"), ("exp", "sigmoid"), ("sigmoid", "tanh")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEARTIE_CACHE", str(tmp_path))
    return tmp_path / "certificates"


def shipped(pair: tuple[str, str]) -> ScoreCertificate:
    found = load_certificate(*pair)
    assert found is not None
    return found


def test_every_shipped_file_is_used() -> None:
    folder = files("neartie.audit").joinpath("data", "certificates")
    names = sorted(entry.name for entry in folder.iterdir() if "@" not in entry.name)
    assert names == sorted(f"{a}--{b}.json" for a, b in SHIPPED)
    for pair in SHIPPED:
        made = shipped(pair).provenance
        assert {"date", "seconds", "neartie", "numba", "machine", "cores"} <= made.keys()


@pytest.mark.parametrize("pair", SHIPPED)
def test_order_does_not_matter_and_json_round_trips(pair: tuple[str, str]) -> None:
    found = shipped(pair)
    assert load_certificate(pair[1], pair[0]) == found
    assert ScoreCertificate.from_json(found.to_json()) == found
    text = files("neartie.audit").joinpath("data", "certificates", f"{pair[0]}--{pair[1]}.json")
    assert text.read_text() == found.to_json() + "\n"


@pytest.mark.parametrize("pair", SHIPPED)
@pytest.mark.parametrize("name", RANGES)
def test_witnesses_show_what_the_shipped_file_says(pair: tuple[str, str], name: str) -> None:
    found = shipped(pair)
    counts = found.range(name).pair
    for at in (counts.max_ulp_at, counts.max_abs_at):
        assert abs(float(value_at(at))) <= RANGES[name][0]
    a, b = (score_at(form, counts.max_abs_at) for form in pair)
    assert abs(float(a) - float(b)) == found.max_abs(name)
    a, b = (score_at(form, counts.max_ulp_at) for form in pair)
    assert ulp_distance(a, b).max() == found.max_ulp(name)
    histogram = found.range(name).histogram
    assert sum(histogram) == counts.inputs
    assert histogram[0] == counts.inputs - counts.differ
    for form, one in zip(pair, found.range(name).forms, strict=True):
        assert one.drops == one.nonfinite == 0
        for place, value, inside in ((one.first_one, 1.0, 1), (one.last_zero, 0.0, -1)):
            if place >= 0:
                assert score_at(form, place) == value
                assert score_at(form, place - inside) != value
        if one.subnormals:
            assert 0 < score_at(form, one.first_subnormal) < 2.0**-126
            assert score_at(form, one.last_subnormal + 1) >= 2.0**-126


@pytest.mark.parametrize("pair", SHIPPED)
def test_random_inputs_keep_to_the_shipped_bounds(pair: tuple[str, str]) -> None:
    """Random bits, and blocks whose own largest distances must be within the file's."""
    found = shipped(pair)
    rng = np.random.default_rng(7)
    for ring, start, stop in stretches():
        first = int(rng.integers(start, stop - (1 << 16)))
        part = scan_block(*pair, Stretch(ring, first, first + (1 << 16))).rings[ring].pair
        assert part.max_ulp <= found.max_ulp(ring)
        assert magnitude(part.max_abs_bits) <= found.max_abs(ring)
        x = np.array([value_at(int(p)) for p in rng.integers(start, stop, 2000)], np.float32)
        a, b = (score(form, x[None])[0] for form in pair)
        assert (ulp_distance(a, b).max() or 0) <= found.max_ulp(ring)
        assert np.abs(a.astype(np.float64) - b).max() <= found.max_abs(ring)


def test_a_tight_block_is_counted_as_in_the_shipped_file() -> None:
    """All inputs from the first score of 1 to 88: their counts follow from the ranges'."""
    found = shipped(("exp", "tanh")).range("abs88").forms[0]
    stop = place_of(88.0) + 1
    assert found.ones == stop - found.first_one
    part = scan_block("exp", "tanh", Stretch("abs88", found.first_one - 100, stop))
    assert part.rings["abs88"].forms[0].ones == found.ones
    assert part.rings["abs88"].forms[0].first_one == found.first_one


def test_bounds_of_the_shipped_certificates() -> None:
    found = shipped(("exp", "tanh"))
    assert [found.max_abs(name) for name in RANGES] == [2.0**-23] * 3
    assert shipped(("exp", "sigmoid")).max_abs("all") == 2.0**-24
    assert found.score_range("all") == (0.0, 1.0)
    assert found.key_bound("all", 0.0, 0.0) == 2.0**-23
    assert found.key_bound("all", -0.1, 0.1) == key_bound(2.0**-23, -0.1, 0.1) == 2.0**-22
    assert found.swap_window("abs16", -0.1, 0.1) == 2.0**-21
    with pytest.raises(InputError, match="range=abs17, but should be one of abs16, abs88, all"):
        found.max_abs("abs17")


def few_blocks() -> list[Stretch]:
    start = place_of(1.0)
    return [Stretch("abs16", start + 1000 * n, start + 1000 * (n + 1)) for n in range(6)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "blocks", few_blocks)


@pytest.mark.usefixtures("small")
def test_an_interrupted_run_goes_on_to_the_same_record(tmp_path: Path, cache: Path) -> None:
    whole = certify_forms("identity", "exp", cache_dir=tmp_path / "other")
    seen = []

    def stop(done: int, total: int, name: str) -> None:
        seen.append((done, name))
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify_forms("exp", "identity", progress=stop, threads=1)
    assert [path.suffix for path in cache.iterdir()] == [".partial"]
    rest: list[int] = []
    resumed = certify_forms(
        "exp", "identity", progress=lambda done, total, name: rest.append(done), threads=1
    )
    assert resumed.record == whole.record
    assert seen == [(1000, "exp, identity"), (2000, "exp, identity")]
    assert rest == [3000, 4000, 5000, 6000]
    assert [path.name for path in cache.iterdir()] == ["exp@1--identity@1.r1.json"]
    assert certify_forms("exp", "identity", cache_dir=tmp_path, fresh=True).record == whole.record
    itself = certify_forms("exp", "exp")
    assert itself.max_ulp("all") == itself.range("all").pair.differ == 0
    with pytest.raises(InputError, match="threads=0"):
        certify_forms("exp", "identity", fresh=True, threads=0)


@pytest.mark.usefixtures("small")
def test_an_incomplete_or_damaged_file_is_refused(cache: Path) -> None:
    certify_forms("exp", "identity")
    with pytest.raises(InputError, match="inputs=6,000, but should be 4,278,190,080"):
        load_certificate("exp", "identity")
    path = cache / "exp@1--identity@1.r1.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="should be a certificate"):
        load_certificate("exp", "identity")
    path.unlink()
    path.with_suffix(".partial").write_text("[")
    with pytest.raises(InputError, match="delete it"):
        certify_forms("exp", "identity")


def test_another_version_is_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORM_VERSIONS, "tanh", 2)
    assert load_certificate("exp", "tanh") is None
    assert load_certificate("exp", "sigmoid") is not None
    assert load_certificate("exp", "unheard of") is None
    assert load_certificate("exp", "identity") is None


def test_a_score_that_is_not_finite_has_no_bound() -> None:
    found = shipped(("exp", "tanh"))
    data = found.as_dict()
    data["counts"]["rings"]["all"]["pair"]["undefined"] = 3
    broken = ScoreCertificate.from_json(json.dumps(data))
    assert broken.max_abs("abs88") == 2.0**-23
    with pytest.raises(InputError, match="max_abs=3 inputs with a score that is not finite"):
        broken.max_abs("all")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["neartie", "certify", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_the_command_prints_every_part(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert run(monkeypatch, "tanh", "exp", "--bias", "-0.1,0.1") == 0
    text = capsys.readouterr().out
    for phrase in (
        "exp (1/(1+exp(-x)), each step rounded to FP32)",
        "4,278,190,080  201,425,481",
        "0x3f9f9bd2     0.776770115    0.776770234",
        "65 to 1,024",
        "16.6355324 (0x41851592)",
        "NaN, always",
        "Keys with bias from -0.1 to 0.1",
        "4.76837e-07               4                 8",
    ):
        assert phrase in text, phrase


def test_the_command_prints_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    out = tmp_path / "made" / "it.json"
    assert run(monkeypatch, "exp", "tanh", "--json", "--bias=0,1", "--out", str(out)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bounds"]["abs16"]["window_ulp"] == {"1.0": 4, "0.5": 8, "0.25": 16}
    assert document["ranges"]["all"]["scores"]["tanh"]["last_zero"]["bits"] == "0xc1902cb4"
    assert ScoreCertificate.from_json(out.read_text()) == load_certificate("exp", "tanh")


@pytest.mark.usefixtures("small")
def test_a_fresh_run_that_differs_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert run(monkeypatch, "exp", "tanh", "--fresh") == 2
    assert "certificate=counts unlike those of" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_an_interruption_says_what_was_kept(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "scan_blocks", stop)
    assert run(monkeypatch, "exp", "identity") == 130
    assert capsys.readouterr().err == "neartie: interrupted; the next run goes on from here\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("exp", "relu"), "form=relu, but should be one of exp, tanh, sigmoid"),
        (("softmax", "exp"), "form=softmax, but should be one of exp"),
        (("exp", "tanh", "--bias", "1"), "bias=1, but should be LOW,HIGH"),
        (("exp", "tanh", "--bias", "1,0"), "bias=1.0..0.0, but should be a range"),
    ],
)
def test_bad_input_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, words: Any, message: str
) -> None:
    assert run(monkeypatch, *words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"neartie: {message}")
    assert shown.count("\n") == 1


def test_only_a_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A directory, a link and a pipe are refused before anything is evaluated; a file is not."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    for name in ("directory", "link", "pipe", ".", "", "directory/.."):
        assert run(monkeypatch, "exp", "tanh", "--out", name) == 2
        told = capsys.readouterr()
        assert "a new file, or a file to be replaced [--out]" in told.err
        assert told.out == ""
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "link", "pipe"]
    (tmp_path / "file").write_text("old")
    assert run(monkeypatch, "exp", "tanh", "--out", "file") == 0
    assert json.loads((tmp_path / "file").read_text())["forms"]


def test_a_bias_that_bounds_nothing_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for bias in ("1,-1", "nan,0", "0,inf"):
        assert run(monkeypatch, "exp", "tanh", f"--bias={bias}", "--fresh") == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert "bias" in told.err
