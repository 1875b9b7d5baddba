"""The command line as a user meets it: exit status, streams, and one line for bad input.

Each exit status is seen once of a process of its own; the rest runs in this one.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from command_line import CommandLine

from neartie import __version__
from neartie.audit import cli
from neartie.banks.manage import make_bank

Run = Callable[..., subprocess.CompletedProcess[str]]
CASES = Path(__file__).parent / "data" / "router_cases.json"


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> CommandLine:
    """Run ``neartie`` in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capfd)


@pytest.fixture
def process(tmp_path: Path) -> Run:
    """Run ``neartie`` as a process of its own in an empty directory."""

    def call(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "neartie", *words],
            capture_output=True,
            text=True,
            input=stdin,
            cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1"},
            check=False,
        )

    return call


def refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    __tracebackhide__ = True
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("neartie: ")
    assert message in lines[0]


def test_audit_prints_a_report_and_writes_evidence(process: Run, tmp_path: Path) -> None:
    done = process("audit", "k3-mini/tie-witness", "--rows", "20", "--out", "evidence")
    assert done.returncode == 3
    for phrase in (
        "general (baseline) against route (candidate), 8 ranks, cpu, policy default",
        "Error triangle (relative RMS)",
        "verdict  INCONCLUSIVE",
        "class    NUMERICS-UNKNOWN (so far LIGHT, BF16-structural: coverage too small)",
        "evidence in evidence",
    ):
        assert phrase in done.stdout
    record = json.loads((tmp_path / "evidence" / "audit.json").read_text())
    assert record["command"] == "neartie audit k3-mini/tie-witness --rows 20 --out evidence"


def test_json_is_one_document_and_nothing_else(run: CommandLine) -> None:
    done = run("audit", "k3-mini/tie-witness", "--rows", "9,20", "--json")
    record = json.loads(done.stdout)
    assert [w["width"] for w in record["widths"]] == [9, 20]
    assert set(record) >= {"verdict", "numerics_class", "structural_tag", "environment", "command"}
    assert set(record["widths"][0]) >= {
        "rows",
        "unique_rows",
        "counts",
        "invalid",
        "set_rate",
        "set_rate_upper",
        "confidence",
        "max_weight_ulp",
        "rho",
    }
    assert done.stderr == ""


def test_exit_status_of_a_failed_gate(process: Run) -> None:
    done = process(
        "audit",
        "k3-mini/layer0",
        "--rows",
        "20",
        "--ranks",
        "1",
        "--baseline",
        "route",
        "--candidate",
        "route:logits=bf16",
    )
    assert done.returncode == 1
    assert "verdict  FAIL" in done.stdout
    assert "explained_by:bf16_logits" in done.stdout


def test_device_cuda_is_exit_3_with_a_reason(run: CommandLine) -> None:
    done = run("audit", "k3-mini/layer0", "--device", "cuda")
    assert done.returncode == 3
    assert "NOT_RUN" in done.stdout
    assert "device cuda" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("audit", "--rows", "21"), "width=21, but should be 1..20 [rows]"),
        (("audit", "--rows", "0"), "width=0, but should be 1..20 [rows]"),
        (
            ("audit", "--rows", "9,x"),
            "rows=9,x, but should be integers separated by commas [--rows]",
        ),
        (("audit", "--ranks", "3"), "ranks=3, but should be a divisor of hidden 512"),
        (("audit", "--ranks", "0"), "ranks=0, but should be at least 1 [geometry"),
        (("audit", "--ranks", "0", "--plan-only"), "ranks=0, but should be at least 1 [geometry"),
        (("audit", "--launch", "0"), "launch=0, but should be 2..16 [--launch]"),
        # Without --launch too.
        (("audit", "--rank-timeout", "nan"), "rank_timeout=nan, but should be above 0 and at most"),
        (("audit", "--rank-timeout", "-1"), "rank_timeout=-1.0, but should be above 0 and at most"),
        (("bench", "--rank-timeout", "inf"), "rank_timeout=inf, but should be above 0 and at most"),
        (("audit", "nowhere"), "bank=nowhere, but should be a directory, a URL"),
        (
            ("audit", "--candidate", "rout"),
            # Other packages may bring more.
            "path=rout, but should be one of ",
        ),
        (("audit", "--candidate", "route:reduce=x"), "reduce"),
        (("audit", "--candidate", "general:reduce=x"), "reduce=x, but should be one of"),
        (("audit", "gaussian:geometry=k9"), "geometry"),
        (("audit", "gaussian:rows=-1"), "rows"),
        (("audit", "gauss:rows=1"), "gauss"),
        (("audit", "--policy", "none.toml"), "policy=none.toml, but should be a readable file"),
        (("audit", "--engine", "slurm"), "engine=slurm, but should be local or ray [--engine]"),
        (("gate", "--address", "auto"), "address=auto, but should be left out without --engine"),
        (("bank", "info", "nowhere"), "bank=nowhere"),
        (("explain", "nowhere.json"), "nowhere.json"),
        (("plan",), "exactly one of them"),
        (("plan", "--rate", "2"), "rate=2"),
        (("plan", "--rows", "many"), "rows=many"),
        (("plan", "--rows", "999999999999G"), "rows=999999999999000000000, but should be 1.."),
        (("audit", ""), "bank='', but should be a directory, a URL, a bank or a generator"),
        (("audit", "--out", ""), "out=., but should be a directory by its own name"),
        (("audit", "--out", "x" * 300), "but should be a directory that can be written"),
        (("bank", "info", "a\nb"), "bank=a\\nb, but should be"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    run: CommandLine, words: tuple[str, ...], message: str
) -> None:
    refused(run(*words), message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("audit", "--rows"), "requires an argument"),
        (("nothing",), "No such command"),
        (("audit", "--frobnicate"), "No such option"),
        (("gate", "--seed", "abc"), "Invalid value for '--seed'"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(
    run: CommandLine, words: tuple[str, ...], message: str
) -> None:
    refused(run(*words), message)


def test_the_version_is_printed(process: Run) -> None:
    assert process("--version").stdout == f"neartie {__version__}\n"


def test_an_edited_bank_is_refused(run: CommandLine, tmp_path: Path) -> None:
    make_bank("k3-mini/tie-witness", tmp_path / "bank")
    file = tmp_path / "bank" / "rows.arrow"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    refused(run("audit", "bank"), "rows.arrow")
    refused(run("bank", "verify", "bank"), "rows.arrow")


def test_a_truncated_bank_is_refused(run: CommandLine, process: Run, tmp_path: Path) -> None:
    make_bank("k3-mini/tie-witness", tmp_path / "bank")
    file = tmp_path / "bank" / "weights.arrow"
    file.write_bytes(file.read_bytes()[:-100])
    done = run("audit", "bank")
    refused(done, "weights.arrow")
    alone = process("audit", "bank")
    assert (alone.returncode, alone.stdout, alone.stderr) == (2, done.stdout, done.stderr)


def test_an_unknown_schema_version_is_refused(run: CommandLine, tmp_path: Path) -> None:
    make_bank("k3-mini/tie-witness", tmp_path / "bank")
    header = tmp_path / "bank" / "bank.json"
    header.write_text(header.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    refused(run("audit", "bank"), "99")


def test_a_file_name_that_leaves_the_bank_is_refused(run: CommandLine, tmp_path: Path) -> None:
    make_bank("k3-mini/tie-witness", tmp_path / "bank")
    shutil.move(tmp_path / "bank" / "rows.arrow", tmp_path / "rows.arrow")
    header = tmp_path / "bank" / "bank.json"
    header.write_text(header.read_text().replace('"rows.arrow"', '"../rows.arrow"'))
    refused(run("audit", "bank"), "../rows.arrow")


def test_out_is_checked_before_anything_runs(run: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("mine")
    refused(run("audit", "--out", "full"), "out=full, but should be a new or empty directory")
    assert (tmp_path / "full" / "kept").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_out_where_nothing_can_be_made(run: CommandLine) -> None:
    refused(run("audit", "--out", "/proc/x"), "out=/proc/x, but should be a directory that can be")
    refused(run("audit", "--out", "/proc/none/x"), "but should be a directory that can be written")


def test_a_policy_file_moves_the_limits(run: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "strict.toml").write_text('name = "strict"\nweight_budget_ulp = 0\n')
    done = run("audit", "k3-mini/layer0", "--rows", "9", "--ranks", "1", "--policy", "strict.toml")
    assert done.returncode == 1
    assert "policy strict" in done.stdout
    assert "budget 0" in done.stdout
    # One of a thing is in the singular.
    assert "(candidate), 1 rank, cpu" in done.stdout
    assert re.search(r"certified, 1 width *$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windw_ulp = 3", "windw_ulp=3, but should be a known key: window_ulp, set_rate"),
        ("set_rate = 2", "set_rate=2, but should be less than 1 [policy.toml]"),
        ("set_rate = [", "a TOML file"),
    ],
)
def test_a_bad_policy_names_the_key(
    run: CommandLine, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "policy.toml").write_text(text)
    refused(run("audit", "--policy", "policy.toml"), message)


def test_explain_reads_a_file_and_stdin(run: CommandLine) -> None:
    done = run("explain", str(CASES), "--json")
    document = json.loads(done.stdout)
    assert len(document["cases"]) == 24
    assert done.returncode == 1
    piped = run("explain", "-", "--json", stdin=CASES.read_text())
    assert json.loads(piped.stdout) == document


def test_explain_takes_the_tie_contract(run: CommandLine) -> None:
    case = next(c for c in json.loads(CASES.read_text()) if c["id"] == "C37")
    assert run("explain", "-", stdin=json.dumps(case)).returncode == 0
    strict = run("explain", "-", "--tie-contract", "lower_id", stdin=json.dumps(case))
    assert strict.returncode == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cases=, but should be JSON, a case or a list of cases [stdin]"),
        ("not json", "content=not JSON"),
        # Text from a pipe never opens a file.
        ("cases.json", "content=not JSON"),
        ('"cases.json"', "cases='cases.json', but should be a case or a list"),
        ('[{"id": "a\\nb"}]', "[case a\\nb]"),
    ],
)
def test_explain_of_no_cases_is_refused(
    run: CommandLine, tmp_path: Path, text: str, message: str
) -> None:
    shutil.copy(CASES, tmp_path / "cases.json")
    refused(run("explain", "-", stdin=text), message)


def test_explain_opens_a_file_by_its_name(run: CommandLine, tmp_path: Path) -> None:
    shutil.copy(CASES, tmp_path / "cases.json")
    assert run("explain", "cases.json").returncode == 1


def test_explain_of_bytes_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "neartie", "explain", "-"],
        input=b"[\xff]",
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    expected = b"neartie: content=bytes that are not UTF-8, but should be JSON text [stdin]\n"
    assert done.stderr == expected


_SLOW = """
import pathlib, signal, sys, time
import neartie
from neartie.__main__ import main

# A shell's background job starts with interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Slow:
    def __init__(self, options):
        self.base = neartie.make_path("route")
        self.name, self.declared = "slow", self.base.declared
        self.batches_launches, self.outputs = True, self.base.outputs
        self.unavailable, self.check = self.base.unavailable, self.base.check

    def run(self, launch, out):
        pathlib.Path("started").touch()
        time.sleep(60)


neartie.register("slow", Slow)
sys.argv = ["neartie", "audit", "k3-mini/tie-witness", "--candidate", "slow", "--out", "evidence"]
main()
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_one_line_and_leaves_nothing(tmp_path: Path, stop: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _SLOW],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        until = time.monotonic() + 60
        while not (tmp_path / "started").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(stop)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stdout == ""
    assert stderr == "neartie: interrupted; nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == ["started"]


_STOPPED_IMPORT = """
import os, signal, sys
from neartie.__main__ import main

signal.signal(signal.SIGINT, signal.default_int_handler)


class Stop:
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            os.kill(os.getpid(), int(sys.argv[1]))


sys.meta_path.insert(0, Stop())
main()
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_the_first_imports_is_one_line(stop: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _STOPPED_IMPORT, str(int(stop)), "paths"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "neartie: interrupted; nothing was written\n"


@pytest.mark.parametrize("code", [0, None, 1, "done"])
def test_an_exit_from_inside_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: object
) -> None:
    def leave(standalone_mode: bool) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(cli, "app", leave)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"neartie: exit={code}, but should be a return")


@pytest.mark.parametrize(
    ("returned", "status"), [(None, 0), (0, 0), (1, 1), (3, 3), (typer.Abort(), 130)]
)
def test_the_status_of_a_command_is_kept(
    monkeypatch: pytest.MonkeyPatch, returned: object, status: int
) -> None:
    def app(standalone_mode: bool) -> object:
        if isinstance(returned, BaseException):
            raise returned
        return returned

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == status


def test_plan_both_ways(run: CommandLine) -> None:
    done = run("plan", "--rate", "5e-5")
    assert "0 differing:       59,914 rows" in done.stdout
    assert "0.46% of tokens" in done.stdout
    back = json.loads(run("plan", "--rows", "3.2M", "--json").stdout)
    assert back["rate"] == pytest.approx(9.36e-7, rel=1e-3)
    widths = json.loads(run("plan", "--rate", "5e-5", "--widths", "5", "--json").stdout)
    assert widths["rows"] == 92_102


def test_paths_lists_what_runs_and_what_does_not(run: CommandLine) -> None:
    done = run("paths")
    for phrase in ("general", "route", "recorded", "runs here", "one_shot_fp32", "standalone"):
        assert phrase in done.stdout
    assert "reduce = one_shot_fp32 (one_shot_fp32, own_rank_first_fp32, " in done.stdout
    assert "islands = 2 (a whole number from 1 on): islands of reduce=two_level" in done.stdout
    assert "bias (fp32, bf16, none): the select's own if left out" in done.stdout
    assert "router_weight = router_weight (any name)" in done.stdout
    for label in ("project", "exchange", "score", "non-finite", "weight sum", "normalise"):
        assert f"declares {label}" in done.stdout
    assert "declares slot order   selection" in done.stdout
    assert "{'" not in done.stdout
    assert "None" not in done.stdout
    records = {r["name"]: r for r in json.loads(run("paths", "--json").stdout)}
    assert records["route"]["declared"]["latent_schedule"] == "gather"


def test_bank_commands(run: CommandLine, tmp_path: Path) -> None:
    made = run("bank", "make", "near_tie:geometry=mini,rows=8,gap=1", "ties")
    assert made.returncode == 0
    assert "sha256" in made.stdout
    info = json.loads(run("bank", "info", "ties", "--json").stdout)
    assert (info["rows"], info["stage"]) == (8, "logits")
    assert "as recorded" in run("bank", "verify", "ties").stdout
    assert "as recorded" in run("bank", "verify", "k3-mini/tie-witness").stdout
    generated = run("bank", "verify", "near_tie:geometry=mini,rows=8,gap=1").stdout
    assert generated.startswith("near_tie:rows=8: generated: 8 rows read, digest of the spec ")
    assert "as recorded" not in generated
    assert "independence unit" in run("bank", "info", "k3-mini").stdout
    again = run("bank", "make", "near_tie:geometry=mini,rows=8,gap=1", "ties")
    refused(again, "ties")


def test_the_policy_in_force_is_shown_with_its_origin(run: CommandLine, tmp_path: Path) -> None:
    assert "640,000 N(0, 1) rows" in run("policy", "show").stdout
    (tmp_path / "mine.toml").write_text('name = "mine"\nwindow_ulp = 3\n')
    shown = run("policy", "show", "mine.toml").stdout
    assert shown.startswith(
        "policy mine\n  window_ulp         3              no provenance given\n"
    )
    assert json.loads(run("policy", "show", "mine.toml", "--json").stdout)["window_ulp"] == 3
    (tmp_path / "mine.toml").write_text("window_ulp = -1")
    refused(run("policy", "show", "mine.toml"), "window_ulp=-1, but should be greater than")


def test_the_policy_schema_is_one_document(run: CommandLine) -> None:
    schema = json.loads(run("policy", "schema").stdout)
    assert "window_ulp" in schema["properties"]


CLAIM = """name = "mine"
[[claim]]
id = "weights"
text = "Weights are within {number} FP32 ULP"
source = "a test"
kind = "audit"
metric = "max_weight_ulp"
relation = "<="
number = {number}
scope = {{ widths = [{width}] }}
"""


@pytest.mark.parametrize(
    ("number", "width", "answer", "status"),
    [(1, 9, "SUPPORTED", 0), (0, 9, "REFUTED", 1), (1, 12, "UNSUPPORTED", 3)],
)
def test_claims_are_answered_from_evidence(
    run: CommandLine, tmp_path: Path, number: int, width: int, answer: str, status: int
) -> None:
    words = ("gaussian:geometry=mini,rows=20", "--rows", "9", "--ranks", "1", "--no-gate")
    run("audit", *words, "--out", "E")
    (tmp_path / "claims.toml").write_text(CLAIM.format(number=number, width=width))
    done = run("claims", "check", "claims.toml", "E", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == status
    assert [one["answer"] for one in document["claims"]] == [answer]
    assert document["evidence"] == ["E"]
    text = run("claims", "check", "claims.toml", "E")
    assert (text.returncode, text.stdout.splitlines()[2].split()) == (status, [answer, "weights"])


def test_answers_to_claims_are_counted_first_and_may_be_chosen(run: CommandLine) -> None:
    whole = run("claims", "check", "route-9-20")
    first, *rest = whole.stdout.splitlines()
    assert first == "claims route-9-20 on no evidence: 4 supported, 0 refuted, 24 unsupported"
    short = run("claims", "check", "route-9-20", "--short").stdout.splitlines()
    assert short[:2] == [first, ""]
    assert len(short) == 2 + 28 < len(rest)
    only = run("claims", "check", "route-9-20", "--short", "--only", "supported,Refuted")
    assert only.stdout.splitlines()[0] == first
    assert [line.split()[:2] for line in only.stdout.splitlines()[2:]] == [
        ["SUPPORTED", name]
        for name in ("rows-1-to-20", "rows-21", "row-blocks-at-8", "row-blocks-elsewhere")
    ]
    # What is not shown decides the status all the same.
    assert whole.returncode == only.returncode == 3
    blocks = run("claims", "check", "route-9-20", "--only", "supported").stdout
    assert blocks.count("    claim     ") == 4
    for words, message in (
        (("--only", "supported,passed"), "only=supported,passed, but should be of supported, "),
        (("--only", ""), "only=, but should be of supported, refuted, unsupported, separated by"),
        (("--json", "--short"), "json=with --only or --short, but should be alone"),
    ):
        refused(run("claims", "check", "route-9-20", *words), message)


def test_an_audit_with_claims_ends_with_their_status(run: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "claims.toml").write_text(CLAIM.format(number=0, width=9))
    words = ("gaussian:geometry=mini,rows=20", "--rows", "9", "--ranks", "1", "--no-gate")
    plain = run("audit", *words)
    done = run("audit", *words, "--claims", "claims.toml", "--out", "E")
    assert (plain.returncode, done.returncode) == (3, 1)
    assert "REFUTED                weights" in done.stdout
    record = json.loads((tmp_path / "E" / "audit.json").read_text())
    assert record["claims"]["counts"] == {"SUPPORTED": 0, "REFUTED": 1, "UNSUPPORTED": 0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("claims", "check", "nothing"), "claims=nothing, but should be a TOML file or one of"),
        (("claims", "check", "route-9-20", "nothing"), "evidence=nothing, but should be a dir"),
        (("audit", "--claims", "nothing"), "claims=nothing, but should be a TOML file or one of"),
    ],
)
def test_bad_claims_are_refused_before_anything_runs(
    run: CommandLine, words: tuple[str, ...], message: str
) -> None:
    refused(run(*words), message)


def test_metrics_are_listed(run: CommandLine) -> None:
    assert run("claims", "metrics").stdout.startswith("relative_rms ")
