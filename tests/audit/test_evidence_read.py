"""No reader of evidence takes a file that is not the one that was written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine

from neartie.audit.evidence.load import Evidence, load_evidence
from neartie.audit.evidence.verify import verify_evidence
from neartie.banks.errors import InputError

MakeEvidence = Callable[..., Evidence]
Call = Callable[..., tuple[int, str, str]]
READERS = {
    "report": ["report", "DIR"],
    "report --json": ["report", "DIR", "--json"],
    "report --policy": ["report", "DIR", "--policy", "POLICY"],
    "report --trailer": ["report", "DIR", "--trailer"],
    "claims check": ["claims", "check", "route-9-20", "DIR"],
    "diff, older": ["diff", "DIR", "WHOLE"],
    "diff, newer": ["diff", "WHOLE", "DIR"],
    "history": ["history", "WHOLE", "DIR"],
    "why": ["why", "DIR"],
    "sign": ["sign", "DIR", "--key", "POLICY"],
}


def edit_class(place: Path) -> None:
    record = place / "audit.json"
    record.write_text(record.read_text().replace("UNKNOWN", "BITWISE"))


def cut_short(name: str) -> Callable[[Path], None]:
    def edit(place: Path) -> None:
        (place / name).write_bytes((place / name).read_bytes()[:-1])

    return edit


def remove(name: str) -> Callable[[Path], None]:
    return lambda place: (place / name).unlink()


def link(name: str) -> Callable[[Path], None]:
    def edit(place: Path) -> None:
        (place / name).rename(place.parent / name)
        (place / name).symlink_to(place.parent / name)

    return edit


def hide(name: str) -> Callable[[Path], None]:
    """The manifest without the file, and with its own digest as it was."""

    def edit(place: Path) -> None:
        document = json.loads((place / "manifest.json").read_text())
        del document["files"][name]
        (place / "manifest.json").write_text(json.dumps(document, indent=1) + "\n")

    return edit


EDITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "class": (edit_class, "audit.json=changed since it was written"),
    "triangle": (cut_short("values.parquet"), "values.parquet=changed since it was written"),
    "counts": (cut_short("histograms.parquet"), "histograms.parquet=changed since it was written"),
    "certificates": (cut_short("swaps.parquet"), "swaps.parquet=changed since it was written"),
    "no table": (remove("values.parquet"), "values.parquet=missing"),
    "linked record": (link("audit.json"), "audit.json=a link or a directory"),
    "no manifest": (remove("manifest.json"), "manifest.json=missing"),
    "cut manifest": (cut_short("manifest.json"), "manifest.json=not as it was written"),
    "unlisted": (hide("audit.json"), "manifest.json=not as it was written"),
}


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    command_line = CommandLine(monkeypatch, capfd)

    def run(*words: str) -> tuple[int, str, str]:
        done = command_line(*words)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_an_edited_record(
    reader: str, make_evidence: MakeEvidence, call: Call, tmp_path: Path
) -> None:
    whole = make_evidence("whole").directory
    edited = Path(shutil.copytree(whole, tmp_path / "edited"))
    edit_class(edited)
    policy = tmp_path / "limits.toml"
    policy.write_text("window_ulp = 3\n")
    names = {"DIR": str(edited), "WHOLE": str(whole), "POLICY": str(policy)}
    status, told, err = call(*(names.get(word, word) for word in READERS[reader]))
    assert (status, told) == (2, "")
    assert err == (
        "neartie: audit.json=changed since it was written, but should be as manifest.json records "
        f"it: neartie verify {edited} names every problem [{edited}]\n"
    )


@pytest.mark.parametrize("edit", EDITS)
def test_every_file_that_is_read_is_held_against_the_manifest(
    edit: str, make_evidence: MakeEvidence
) -> None:
    place = make_evidence().directory
    change, told = EDITS[edit]
    change(place)
    with pytest.raises(InputError, match="but should be as") as error:
        load_evidence(place)
    assert str(error.value).startswith(told)
    assert f"neartie verify {place} names every problem" in str(error.value)


def test_verify_goes_on_to_name_every_file(make_evidence: MakeEvidence) -> None:
    place = make_evidence().directory
    for name in ("audit.json", "values.parquet", "swaps.parquet"):
        cut_short(name)(place)
    named = [problem.where for problem in verify_evidence(place).problems]
    assert named == ["audit.json", "swaps.parquet", "values.parquet"]


def test_a_file_that_no_reader_uses_stops_none(make_evidence: MakeEvidence) -> None:
    """What is shown from it would be told by verify; figures do not come from there."""
    place = make_evidence().directory
    (place / "notes.txt").write_text("x")
    assert load_evidence(place).record["verdict"]


@pytest.mark.parametrize("name", ["report.md", "report.html", "junit.xml", "extra.txt"])
def test_no_trailer_stands_for_files_that_were_changed(
    name: str, make_evidence: MakeEvidence, call: Call, tmp_path: Path
) -> None:
    """A reader takes no figure from them, but people read them beside the commit's digest."""
    edited = Path(shutil.copytree(make_evidence("whole").directory, tmp_path / "edited"))
    (edited / name).write_text("PASS, BITWISE\n")
    status, out, err = call("report", str(edited), "--trailer")
    assert (status, out) == (2, "")
    assert err.startswith(f"neartie: evidence={name} is ")
