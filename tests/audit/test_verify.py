"""Whatever is edited in evidence is found and named, whether or not its hashes were made again."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from overwrite import overwrite

import neartie
from neartie.audit.evidence import verify
from neartie.audit.evidence.check_figures import SCHEMAS, render
from neartie.audit.evidence.keys import PublicKey, load_public_key, load_signing_key
from neartie.audit.evidence.load import load_evidence, read_evidence
from neartie.audit.evidence.manifest import Manifest, document_text, file_digest
from neartie.audit.evidence.problems import Verification
from neartie.audit.evidence.rejudge import rejudge
from neartie.audit.evidence.sign import sign_evidence
from neartie.audit.evidence.verify import verify_evidence
from neartie.audit.evidence.write import REPORT_FORMS, report_text
from neartie.audit.report import html
from neartie.audit.report.page import Figure
from neartie.banks.errors import InputError
from neartie.banks.manage import make_bank

BYTE_EDITS = 2400
FILE_EDITS = 240
NUMBER_EDITS = 150
CELL_EDITS = 200
SIGNATURE_EDITS = 160
# Sections of a record that follow from the tables: found without a hash.
DERIVED = ("verdict", "numerics_class", "provisional_class", "widths")
BANK_DERIVED = ("boundary", "per_width")
# Counts that no other figure depends on: they say what a search under other limits would see.
ALONE = ("reference_gap",)


def codes(found: Verification) -> set[str]:
    return {problem.code for problem in found.problems}


class Workshop:
    """A copy of evidence whose files are edited one at a time and put back."""

    def __init__(self, place: Path, files: dict[str, bytes]) -> None:
        self.place, self.files = place, files

    def verify(
        self,
        changed: Mapping[str, bytes | None],
        *,
        forge: bool = False,
        keys: Sequence[PublicKey] = (),
    ) -> Verification:
        """Verify with some files changed (None: removed); ``forge`` remakes the manifest."""
        for name, content in changed.items():
            if content is None:
                (self.place / name).unlink()
            else:
                overwrite(self.place / name, content)
        if forge:
            self.forge({})
        found = verify_evidence(self.place, keys=keys)
        for name in (*changed, *(["manifest.json"] if forge else [])):
            if name in self.files:
                overwrite(self.place / name, self.files[name])
            else:
                (self.place / name).unlink()
        return found

    def forge(self, fields: dict[str, Any]) -> None:
        """Make hashes and digest of the manifest those of the files that lie there."""
        document = json.loads(self.files["manifest.json"]) | fields
        document["files"] = {name: file_digest(self.place / name) for name in document["files"]}
        digest = Manifest.model_validate(document).own_digest()
        (self.place / "manifest.json").write_text(document_text({**document, "digest": digest}))


@pytest.fixture(scope="module")
def charts_kept() -> Iterator[None]:
    """A chart that was drawn from a record is not drawn from an equal one again: it is slow.

    The same record gives the same bytes (tests/report/test_html.py).
    """
    drawn: dict[tuple[str, str], Any] = {}
    draw = html._svg

    def kept(figure: Figure, record: Mapping[str, Any]) -> Any:
        key = figure.title, json.dumps(record, sort_keys=True)
        if key not in drawn:
            drawn[key] = draw(figure, record)
        return drawn[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "_svg", kept)
        yield


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory, charts_kept: None) -> Workshop:
    result = neartie.run_audit(
        ["gaussian:geometry=mini,rows=30,seed=1", "near_tie:geometry=mini,rows=20,gap=1,seed=1"],
        candidate="route:select=radix_bf16",
        rows=[9],
        ranks=2,
    )
    assert result.swaps.num_rows > 1
    out = result.write(tmp_path_factory.mktemp("evidence") / "audit")
    assert verify_evidence(out).state == "PASS"
    return Workshop(out, {path.name: path.read_bytes() for path in out.iterdir()})


def edited(content: bytes, draw: random.Random) -> bytes:
    """Some bytes flipped, inserted, removed, cut off or added."""
    place = draw.randrange(len(content))
    kind = draw.choice(("flip", "insert", "remove", "cut", "add"))
    if kind == "flip":
        return (
            content[:place]
            + bytes([content[place] ^ 1 << draw.randrange(8)])
            + content[place + 1 :]
        )
    if kind == "insert":
        return content[:place] + draw.randbytes(draw.randint(1, 4)) + content[place:]
    if kind == "remove":
        return content[:place] + content[place + draw.randint(1, 9) :]
    return content[:place] if kind == "cut" else content + draw.randbytes(3)


def test_every_edited_byte_is_found_and_its_file_named(workshop: Workshop) -> None:
    draw = random.Random(1)
    named: Counter[str] = Counter()
    for _ in range(BYTE_EDITS):
        name = draw.choice(sorted(workshop.files))
        content = edited(workshop.files[name], draw)
        if content == workshop.files[name]:
            continue
        found = workshop.verify({name: content})
        expected = "manifest" if name == "manifest.json" else "changed_file"
        assert found.exit_status == 1
        assert any(p.code == expected and p.where.startswith(name) for p in found.problems), (
            name,
            found,
        )
        named[name] += 1
    print(f"\n{named.total():,} edits of bytes, each found: {dict(named)}")
    assert named.total() > 0.99 * BYTE_EDITS


def test_every_file_that_is_gone_moved_or_new_is_named(workshop: Workshop) -> None:
    draw = random.Random(2)
    named: Counter[str] = Counter()
    for _ in range(FILE_EDITS):
        first, second = draw.sample(sorted(workshop.files), 2)
        changed: dict[str, bytes | None] = {}
        kind = draw.choice(("removed", "renamed", "added", "exchanged"))
        if kind == "removed":
            changed[first] = None
            expected = {"missing_file"}
        elif kind == "renamed":
            changed[first] = None
            changed[f"{first}.{draw.randrange(99)}"] = workshop.files[first]
            expected = {"missing_file", "extra_file"} - (
                {"extra_file"} if first == "manifest.json" else set()
            )
        elif kind == "added":
            changed[f"new{draw.randrange(99)}.txt"] = draw.randbytes(5)
            expected = {"extra_file"}
        else:
            changed[first] = workshop.files[second]
            changed[second] = workshop.files[first]
            both = "manifest.json" in (first, second)
            expected = {"manifest"} if both else {"changed_file"}
        found = workshop.verify(changed)
        assert expected <= codes(found), (kind, first, second, found)
        named[kind] += 1
    print(f"\n{named.total():,} edits of files, each found: {dict(named)}")


@pytest.fixture
def signed(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Workshop, list[str], list[PublicKey]]:
    """The evidence signed by three, their files in the order of signing, and their keys."""
    # What is signed is checked in full by the other tests.
    monkeypatch.setattr(verify, "CHECKS", ())
    place = Path(shutil.copytree(workshop.place, tmp_path / "signed"))
    names, keys = [], []
    form = serialization.PublicFormat.OpenSSH
    for signer in ("ada", "bob", "cy"):
        key = ed25519.Ed25519PrivateKey.generate()
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        (tmp_path / signer).write_bytes(pem)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, form)
        (tmp_path / f"{signer}.pub").write_bytes(public)
        keys.append(load_public_key(tmp_path / f"{signer}.pub"))
        signing = load_signing_key(tmp_path / signer, lambda: None)
        file = sign_evidence(load_evidence(place), signing, signer=signer)
        names.append(str(file.relative_to(place)))
    files = {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    }
    return Workshop(place, files), names, keys


def test_every_edit_of_a_signature_is_found_and_its_file_named(
    signed: tuple[Workshop, list[str], list[PublicKey]],
) -> None:
    shop, names, keys = signed
    assert shop.verify({}, keys=keys).state == "PASS"
    draw = random.Random(5)
    named: Counter[str] = Counter()
    for _ in range(SIGNATURE_EDITS):
        name, other = draw.sample(names, 2)
        kind = draw.choice(("bytes", "space", "removed", "another's"))
        content = {
            "bytes": edited(shop.files[name], draw),
            "space": _with_space(shop.files[name], draw),
            "removed": None,
            "another's": shop.files[other],
        }[kind]
        if content == shop.files[name]:
            continue
        found = shop.verify({name: content}, keys=keys)
        assert found.exit_status == 1
        told = {problem.where for problem in found.problems}
        assert told & {name, other, "signatures"} if kind == "another's" else told, (kind, name)
        if kind in ("bytes", "space"):
            assert name in told, (kind, name, found)
        # Those that came later name it, whoever asks.
        if name != names[-1]:
            found = shop.verify({name: content})
            assert any(p.where == name for p in found.problems), (kind, name, found)
        named[kind] += 1
    print(f"\n{named.total():,} edits of signatures, each found: {dict(named)}")
    assert named.total() > 0.95 * SIGNATURE_EDITS


def _with_space(content: bytes, draw: random.Random) -> bytes:
    """White space where JSON takes it: before, after, or at the end of a line."""
    lines = content.split(b"\n")
    lines[draw.randrange(len(lines))] += draw.choice((b" ", b"\n", b"\t", b"\r"))
    return b"\n".join(lines)


def test_that_the_last_signature_or_all_are_gone_shows_with_a_key_alone(
    signed: tuple[Workshop, list[str], list[PublicKey]],
) -> None:
    shop, names, keys = signed
    note = "signatures: whether the last one, or all, was removed shows only with --key"
    for gone in (names[-1:], names):
        found = shop.verify(dict.fromkeys(gone))
        assert (found.state, list(found.notes)) == ("PASS", [note])
        assert f"note: {note}" in found.text()
        found = shop.verify(dict.fromkeys(gone), keys=keys)
        assert codes(found) == {"missing_signature"}
        assert len(found.problems) == len(gone)
        assert not found.notes


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from leaves(inner, (*place, key))
    else:
        yield place


def other(value: Any, draw: random.Random) -> Any:
    """Another value of the same kind, near the old one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.choice((-1, 1, 7))
    if isinstance(value, float):
        return value * (1 + draw.choice((-1, 1)) * 2.0 ** -draw.randint(1, 40)) if value else 1e-9
    return "PASS" if value is None else f"{value}."


def test_every_edited_figure_is_found_though_all_hashes_were_made_again(
    workshop: Workshop,
) -> None:
    draw = random.Random(3)
    record = json.loads(workshop.files["audit.json"])
    places = [p for name in DERIVED for p in leaves(record[name], (name,))]
    for number, bank in enumerate(record["banks"]):
        for name in BANK_DERIVED:
            places += leaves(bank[name], ("banks", number, name))
    named = 0
    for _ in range(NUMBER_EDITS):
        place = draw.choice(places)
        changed = json.loads(workshop.files["audit.json"])
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        old = inner[place[-1]]
        inner[place[-1]] = other(old, draw)
        if inner[place[-1]] == old:
            continue
        found = workshop.verify({"audit.json": document_text(changed).encode()}, forge=True)
        path = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in place).lstrip(".")
        where = f"audit.json: {path}"
        assert any(p.code == "figure" and p.where == where for p in found.problems), (place, found)
        named += 1
    assert named > 0.9 * NUMBER_EDITS
    print(f"\n{named} edited figures of {len(places)}, each named by its place")


def test_a_changed_cell_is_found_though_all_hashes_were_made_again(workshop: Workshop) -> None:
    draw = random.Random(4)
    tables = dict(load_evidence(workshop.place).tables)
    cells: list[tuple[str, int, str]] = []
    for number, line in enumerate(tables["histograms"].to_pylist()):
        if line["metric"] not in ALONE:
            cells.append(("histograms", number, "count"))
    for number, row in enumerate(tables["values"].to_pylist()):
        # Over an error of 0, the norm beside it is in no figure.
        cells += [("values", number, "error_square")] if row["reference_square"] else []
        cells += [("values", number, "reference_square")] if row["error_square"] else []
    for number, swap in enumerate(tables["swaps"].to_pylist()):
        cells += [("swaps", number, name) for name in ("set_class", "replicas")]
        cells += [("swaps", number, "gap_ulp")] if len(swap["dropped"]) == 1 else []
    named: Counter[str] = Counter()
    for _ in range(CELL_EDITS):
        name, row, column = draw.choice(cells)
        rows = tables[name].to_pylist()
        old = rows[row][column]
        if column == "set_class":
            rows[row][column] = "near_tie" if old != "near_tie" else "far_swap"
        elif column == "gap_ulp":
            # From one side of the window to the other: the class no longer follows.
            rows[row][column] = 0 if old else 90
        else:
            rows[row][column] = other(old, draw)
        target = workshop.place / f"{name}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS[name]), target)
        content = target.read_bytes()
        found = workshop.verify({f"{name}.parquet": content}, forge=True)
        assert codes(found) & {"figure", "counts", "certificate"}, (name, rows[row], column, found)
        named[name] += 1
    print(f"\n{named.total()} changed cells with hashes made again, each found: {dict(named)}")


@pytest.mark.parametrize("what", ["digest", "spec", "name", "whole"])
@pytest.mark.parametrize("where", ["manifest", "record", "both"])
def test_two_swapped_banks_are_named(workshop: Workshop, what: str, where: str) -> None:
    record = json.loads(workshop.files["audit.json"])
    a, b = record["banks"]
    if what == "whole":
        record["banks"] = [b, a]
    else:
        a[what], b[what] = b[what], a[what]
    entries = [{key: bank[key] for key in ("name", "spec", "digest")} for bank in record["banks"]]
    if where != "manifest":
        (workshop.place / "audit.json").write_text(document_text(record))
    workshop.forge({} if where == "record" else {"banks": entries})
    found = workshop.verify({})
    for name in ("audit.json", "manifest.json"):
        (workshop.place / name).write_bytes(workshop.files[name])
    assert "banks_swapped" in codes(found), found
    assert found.exit_status == 1


def test_a_forged_report_is_found(workshop: Workshop) -> None:
    text = workshop.files["report.md"].replace(b"FAIL", b"PASS")
    found = workshop.verify({"report.md": text}, forge=True)
    assert [(p.code, p.where) for p in found.problems] == [("rendered", "report.md")]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("banks", 3),
        ("banks", [{"name": "x"}]),
        ("coverage", [{"bank": 1}]),
        ("policy", {"window_ulp": "2"}),
        ("environment", None),
        ("baseline", {}),
        ("findings", {}),
        ("schedule", []),
    ],
)
def test_a_section_of_another_form_is_a_problem_and_no_traceback(
    workshop: Workshop, place: str, value: Any
) -> None:
    record = json.loads(workshop.files["audit.json"]) | {place: value}
    found = workshop.verify({"audit.json": document_text(record).encode()}, forge=True)
    assert "unreadable" in codes(found)


def test_a_bank_that_is_changed_or_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_bank("near_tie:geometry=mini,rows=8,gap=1", "mine")
    out = neartie.run_audit("mine", rows=[9], ranks=1).write("out")
    assert verify_evidence(out).exit_status == 0
    rows = Path("mine") / "rows.arrow"
    content = rows.read_bytes()
    rows.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    found = verify_evidence(out)
    assert codes(found) == {"bank"}
    make_bank("near_tie:geometry=mini,rows=8,gap=2", "other")
    Path("mine").rename("gone")
    found = verify_evidence(out)
    assert (found.state, found.exit_status) == ("NOT_RUN", 3)
    assert found.not_run[0].startswith("banks[0] near_tie")
    Path("other").rename("mine")
    assert codes(verify_evidence(out)) == {"bank"}


def test_an_empty_manifest_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    found = verify_evidence(tmp_path)
    assert found.exit_status == 1
    texts = [problem.text for problem in found.problems]
    assert "fields=no schema_version, kind, date, command, device, banks, files, " in texts[0]
    assert "but should be every field of a manifest" in texts[0]
    assert [problem.where for problem in found.problems] == [
        "manifest.json",
        "audit.json or gate.json",
    ]


def test_where_there_is_no_evidence(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match="a directory with a manifest and a record"):
            verify_evidence(place)


@pytest.fixture(params=["audit", "gate"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "audit":
        bank = "gaussian:geometry=mini,rows=20,seed=1"
        made = neartie.run_audit(bank, candidate="route:select=radix_bf16", rows=[9], ranks=2)
        return made.write(tmp_path / "out")
    source = "normal:geometry=mini"
    gate = neartie.run_gate("topk_sigmoid", "hf:bias=bf16", source, rows=900, widths=(9, 20))
    return gate.write(tmp_path / "out")


@pytest.fixture(scope="module")
def gate_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Evidence of a gate whose sets differ."""
    gate = neartie.run_gate("topk_sigmoid", "hf:bias=bf16", "normal:geometry=mini", rows=900)
    place = gate.write(tmp_path_factory.mktemp("gate") / "out")
    return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.fixture
def gate_workshop(gate_files: dict[str, bytes], tmp_path: Path) -> Workshop:
    for name, content in gate_files.items():
        (tmp_path / name).write_bytes(content)
    return Workshop(tmp_path, gate_files)


def test_the_files_for_ci_of_a_gate_are_listed_and_made_again(gate_workshop: Workshop) -> None:
    assert verify_evidence(gate_workshop.place).state == "PASS"
    again = rejudge(load_evidence(gate_workshop.place))
    for form, name in REPORT_FORMS.items():
        assert report_text(again, form).encode() == gate_workshop.files[name]
    listed = json.loads(gate_workshop.files["manifest.json"])["files"]
    for name in ("junit.xml", "results.sarif"):
        assert name in listed
        content = gate_workshop.files[name].replace(b"FAIL", b"PASS")
        assert content != gate_workshop.files[name]
        found = gate_workshop.verify({name: content}, forge=True)
        assert [(p.code, p.where) for p in found.problems] == [("rendered", name)]


@pytest.mark.parametrize("removed", [["junit.xml"], ["junit.xml", "results.sarif"]])
def test_a_gate_without_the_files_for_ci_was_made_by_an_earlier_version(
    gate_workshop: Workshop, removed: list[str]
) -> None:
    """The manifest tells: it lists neither, and its code is not this one."""
    document = json.loads(gate_workshop.files["manifest.json"])
    for name in removed:
        (gate_workshop.place / name).unlink()
        del document["files"][name]
    earlier = Workshop(gate_workshop.place, {"manifest.json": json.dumps(document).encode()})
    earlier.forge({})
    found = verify_evidence(gate_workshop.place)
    assert [(p.code, p.where) for p in found.problems] == [("missing_file", n) for n in removed]
    earlier.forge({"code": "0" * 64})
    found = verify_evidence(gate_workshop.place)
    # One of the two is no version's evidence.
    expected = [] if len(removed) == 2 else [("missing_file", "junit.xml")]
    assert [(p.code, p.where) for p in found.problems] == expected


def test_a_repeated_run_has_the_same_bits_but_for_one_edited_cell(small: Path) -> None:
    """No figure depends on it, and the report shows the edited one: only the run can tell."""
    table = pq.read_table(small / "swaps.parquet")
    rows = table.to_pylist()
    rows[0]["gap_logit"] = 0.125
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["swaps"]), small / "swaps.parquet")
    for name, text in render(rejudge(read_evidence(small))):
        assert isinstance(text, str)
        (small / name).write_text(text, encoding="utf-8")
    files = {path.name: path.read_bytes() for path in small.iterdir()}
    Workshop(small, files).forge({})
    assert verify_evidence(small).state == "PASS"
    found = verify_evidence(small, rerun=True)
    assert [(p.code, p.where) for p in found.problems] == [
        ("rerun", "swaps.parquet: row 0, gap_logit")
    ]


def test_a_run_that_cannot_be_repeated_is_not_run(workshop: Workshop, monkeypatch: Any) -> None:
    from neartie.audit.evidence import rerun

    job = rerun.job_of(load_evidence(workshop.place))
    monkeypatch.setattr(rerun, "job_of", lambda evidence: {**job, "candidate": "my-own-path"})
    found = verify_evidence(workshop.place, rerun=True)
    assert (found.state, found.exit_status) == ("NOT_RUN", 3)
    assert "my-own-path" in found.not_run[0]


def test_the_command_line(
    workshop: Workshop, capsys: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    from neartie.audit import cli

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["neartie", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().out

    out = str(workshop.place)
    assert call("verify", out) == (0, verify_evidence(out).text() + "\n")
    status, printed = call("verify", out, "--json")
    assert (status, json.loads(printed)["state"]) == (0, "PASS")
    assert call("report", out) == (1, workshop.files["report.md"].decode())
    for form, name in REPORT_FORMS.items():
        expected = workshop.files[name].decode()
        assert call("report", out, "--format", form) == (1, expected)
    (tmp_path / "loose.toml").write_text('name = "loose"\ntie_contract = "lower_id"\n')
    status, printed = call("report", out, "--policy", str(tmp_path / "loose.toml"), "--json")
    assert json.loads(printed)["policy"]["name"] == "loose"
    assert call("verify", str(tmp_path))[0] == 2
