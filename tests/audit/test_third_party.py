"""A path of another package, written from the README alone: registered, audited, and failing."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import neartie
from neartie.audit import cli
from neartie.audit.evidence.verify import verify_evidence
from neartie.banks.errors import InputError
from neartie.kernels import registry
from neartie.kernels.registry import list_paths, make_path

README = Path(__file__).resolve().parents[2] / "README.md"
BANK = "gaussian:geometry=mini,rows=24"

METADATA = "Metadata-Version: 2.1\nName: acme-router\nVersion: 1.0\n"
ENTRY_POINTS = "[neartie.paths]\nacme = acme_router.front:MyRoute\n"
SOUND = """

class Sound(MyRoute):
    "A path of acme without the bug."
    name = "acme-sound"

    def run(self, launch, out):
        self.base.run(launch, out)


class Turning(Sound):
    def __init__(self, options):
        super().__init__(options)
        self.name = f"acme-turning:turns={options['turns']}"


def make(options):
    return Sound(options)


number = 3
"""


def example() -> str:
    """The README's own path, as far as it goes before it registers itself."""
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    found = next(block for block in blocks if "class MyRoute" in block)
    return str(found.partition("neartie.register(")[0])


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with an installed third-party package in it."""
    package = tmp_path / "site" / "acme_router"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "front.py").write_text(example() + SOUND)
    (package / "broken.py").write_text("raise SystemExit('no licence')\n")
    information = tmp_path / "site" / "acme_router-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(METADATA)
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path / "site"


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    yield
    for name in [name for name in sys.modules if name.startswith("acme_router")]:
        del sys.modules[name]


def test_the_command_line_audits_it_and_it_fails_where_it_should(
    site: Path,
    installed: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    evidence = site.parent / "evidence"
    words = ["audit", BANK, "--candidate", "acme_router.front:MyRoute", "--rows", "12"]
    words += ["--ranks", "2", "--out", str(evidence), "--json"]
    monkeypatch.setattr(sys, "argv", ["neartie", *words])
    assert cli.exit_status() == 1
    record = json.loads(capsys.readouterr().out)
    assert record["numerics_class"] == "BEHAVIOURAL"
    reasons = [reason["text"] for reason in record["verdict"]["reasons"]]
    assert any("every launch is wrong from its row 11 on" in text for text in reasons)
    assert record["candidate"]["name"] == "my-route"
    assert record["candidate"]["spec"] == "acme_router.front:MyRoute"
    # The spec repeats it in another process, where nothing is registered.
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(part for part in (str(site), before) if part))
    again = verify_evidence(evidence, rerun=True)
    assert again.state == "PASS", again.text()


def test_paths_lists_it_with_its_package(installed: None) -> None:
    found = next(info for info in list_paths() if info.name == "acme")
    assert (found.origin, found.unavailable) == ("acme-router", None)
    assert found.declared == make_path("route").declared


def test_by_its_entry_point_it_fails_too(installed: None) -> None:
    result = neartie.run_audit(BANK, candidate="acme", rows=[12], ranks=2, gate=False)
    assert result.numerics_class == "BEHAVIOURAL"
    # Its name, my-route, opens nothing: the spec does.
    assert result.record["candidate"]["spec"] == "acme"


def test_without_the_bug_it_does_not_fail(installed: None) -> None:
    result = neartie.run_audit(
        BANK, candidate="acme_router.front:Sound", rows=[12], ranks=2, gate=False
    )
    assert result.record["provisional_class"] == "LIGHT"
    assert result.record["verdict"]["state"] == "INCONCLUSIVE"


def test_a_certificate_names_what_runs_it_again(installed: None) -> None:
    spec = "acme_router.front:Sound"
    bank = "near_tie:gap=1,geometry=mini,rows=24"
    baseline = "general:select=radix_bf16"
    result = neartie.run_audit(
        bank, baseline=baseline, candidate=spec, rows=[12], ranks=1, gate=False
    )
    built_in = neartie.run_audit(
        bank, baseline=baseline, candidate="route", rows=[12], ranks=1, gate=False
    )
    snippets = built_in.swaps["snippet"].to_pylist()
    assert snippets, "the test has nothing to look at"
    expected = [text.replace("candidate='route'", f"candidate='{spec}'") for text in snippets]
    assert result.swaps["snippet"].to_pylist() == expected
    row = eval(expected[0], {"neartie": neartie})
    assert row.names["candidate"] == "acme-sound"


def test_options_follow_the_factory(installed: None) -> None:
    assert make_path("acme_router.front:Turning:turns=3").name == "acme-turning:turns=3"
    assert make_path("acme_router.front:make").name == "acme-sound"
    with pytest.raises(InputError, match=r"KeyError: 'turns'"):
        make_path("acme_router.front:Turning")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("acme_router.front:Missing", "has no attribute 'Missing'"),
        ("acme_router.nowhere:MyRoute", "No module named 'acme_router.nowhere'"),
        ("nowhere:MyRoute", "ModuleNotFoundError: No module named 'nowhere'"),
        ("acme_router.broken:MyRoute", "SystemExit: no licence"),
        ("acme_router.front:number", "path=acme_router.front:number, but should be a factory"),
        ("acme_router.front:MyRoute:turns", "option='turns', but should be key=value"),
        ("acme_router.front:MyRoute:", "path='acme_router.front:', but should be name[:key"),
        ("acme_router.front", "or module:factory"),
        # The names of built-in paths stay theirs.
        ("route:MyRoute", "option='MyRoute', but should be key=value"),
    ],
)
def test_what_cannot_be_imported_is_told_in_one_line(
    spec: str, message: str, installed: None
) -> None:
    with pytest.raises(InputError) as caught:
        make_path(spec)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_registered_path_is_named_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    route = make_path("route")
    assert registry.spec_of(route, "module:make") == "route"
    neartie.register("mine", lambda options: route)
    assert registry.spec_of(make_path("mine"), "mine") == "route"
    unknown = make_path("route")
    object.__setattr__(unknown, "name", "unknown")
    assert registry.spec_of(unknown, None) is None
    assert registry.spec_of(unknown, "mine") == "mine"
