"""The action and the recipes of docs/ci.md: valid, free of injection, and true to the real CLI."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from neartie.audit.claims.load import load_claims
from neartie.audit.cli import app
from neartie.audit.policy import load_policy

ROOT = Path(__file__).resolve().parent.parent
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
SHELL = {step["name"]: step for step in STEPS if "run" in step}
BLOCKS = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCS = [ROOT / "docs" / name for name in ("ci.md", "policy.md", "claims.md")]
NASTY = 'x"; touch pwned; $(touch pwned) `touch pwned`'


def blocks(kind: str) -> list[str]:
    return [body for doc in DOCS for k, body in BLOCKS.findall(doc.read_text()) if k == kind]


def parses(words: list[str]) -> None:
    """Parse words as the command line does, without running the command."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("neartie", list(words))
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)


def commands_of(script: str) -> Iterator[list[str]]:
    for line in script.replace("\\\n", " ").splitlines():
        if re.match(r"\s*(\.neartie/bin/)?neartie ", line):
            yield shlex.split(line.split(" || ")[0], comments=True)[1:]


@pytest.mark.parametrize("name", SHELL)
def test_a_step_is_valid_shell_without_expressions(name: str) -> None:
    step = SHELL[name]
    assert step["shell"] == "bash"
    assert "${{" not in step["run"]
    done = subprocess.run(["bash", "-n"], input=step["run"], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    used = set(re.findall(r"\$\{?#?([A-Z][A-Z_]*)", step["run"]))
    outside = {"GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "RUNNER_TEMP"}
    assert used - outside == set(step["env"]) - {"GH_TOKEN", "GH_REPO"}


def test_every_input_is_used_and_every_used_one_is_declared() -> None:
    used = set(re.findall(r"inputs\.([a-z-]+)", json.dumps([STEPS, ACTION["outputs"]])))
    assert used == set(ACTION["inputs"])
    assert all(one["description"] and "default" in one for one in ACTION["inputs"].values())


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """``neartie``, ``gh`` and ``python`` that write down how they were called."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    script = f"""#!{sys.executable}
import json, os, pathlib, sys
name = pathlib.Path(sys.argv[0]).name
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
for word in sys.argv:
    if word.startswith("--out=") and os.environ["STUB_STATUS"] != "2":
        out = pathlib.Path(word.removeprefix("--out="))
        out.mkdir()
        (out / "report.md").write_text("the report\\n")
print("what it says")
sys.exit(int(os.environ["STUB_STATUS"]))
"""
    for name in ("neartie", "gh", "python"):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return folder


def run_step(
    stubs: Path, name: str, status: int = 0, **env: str
) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """Run a step's script with stubs; (process, the calls that it made)."""
    place = stubs.parent
    step = SHELL[name]
    defaults = {
        key.upper().replace("-", "_"): str(one["default"]) for key, one in ACTION["inputs"].items()
    }
    declared = {key: defaults.get(key, "") for key in step["env"]}
    files = {
        key: str(place / key) for key in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        text=True,
        capture_output=True,
        cwd=place,
        env={
            "PATH": f"{stubs}:{os.environ['PATH']}",
            "CALLS": str(place / "calls"),
            "STUB_STATUS": str(status),
            "RUNNER_TEMP": str(place),
            **files,
            **declared,
            **env,
        },
        check=False,
    )
    calls = place / "calls"
    return done, [
        json.loads(line) for line in calls.read_text().splitlines()
    ] if calls.exists() else []


def test_the_audit_takes_every_input_as_one_word(stubs: Path) -> None:
    done, calls = run_step(
        stubs, "Audit", BANK="k3-mini gaussian:rows=3", CANDIDATE=NASTY, POLICY="p.toml",
        CLAIMS="route-9-20", OUT="out dir",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (call,) = calls
    parses(call[1:])
    assert f"--candidate={NASTY}" in call
    assert call[-3:] == ["--", "k3-mini", "gaussian:rows=3"]
    assert {"--policy=p.toml", "--claims=route-9-20", "--out=out dir"} <= set(call)
    assert not (stubs.parent / "pwned").exists()
    assert (stubs.parent / "GITHUB_OUTPUT").read_text() == "status=0\n"


def test_the_defaults_name_no_bank_policy_or_claims(stubs: Path) -> None:
    _, (call,) = run_step(stubs, "Audit")
    parses(call[1:])
    assert call[-1] == "--"
    assert not [word for word in call if word.startswith(("--policy", "--claims"))]


def test_a_bank_that_looks_like_an_option_is_a_bank(stubs: Path) -> None:
    _, (call,) = run_step(stubs, "Audit", BANK="--json")
    assert call[-2:] == ["--", "--json"]


@pytest.mark.parametrize(("status", "left"), [(0, 0), (1, 0), (3, 0), (2, 2)])
def test_a_verdict_goes_on_to_the_report_and_bad_input_does_not(
    stubs: Path, status: int, left: int
) -> None:
    done, _ = run_step(stubs, "Audit", status)
    assert done.returncode == left
    assert (stubs.parent / "GITHUB_OUTPUT").read_text() == f"status={status}\n"


@pytest.mark.parametrize(
    ("status", "allowed", "left"),
    [("0", "false", 0), ("1", "true", 1), ("3", "false", 3), ("3", "true", 0), ("1", "false", 1)],
)
def test_the_job_ends_with_the_audits_status(
    stubs: Path, status: str, allowed: str, left: int
) -> None:
    done, _ = run_step(stubs, "Give the answer", STATUS=status, ALLOW_INCONCLUSIVE=allowed)
    assert done.returncode == left


@pytest.mark.parametrize(("status", "left"), [(0, 0), (1, 0), (3, 0), (2, 1)])
def test_report_and_claims_are_in_the_summary(stubs: Path, status: int, left: int) -> None:
    (stubs.parent / "out").mkdir()
    (stubs.parent / "out" / "report.md").write_text("the report\n")
    name = "Put the report into the job summary"
    done, (call,) = run_step(stubs, name, status, OUT="out", CLAIMS="route-9-20")
    assert done.returncode == left
    parses(call[1:])
    summary = (stubs.parent / "GITHUB_STEP_SUMMARY").read_text()
    assert summary.startswith("the report\n")
    if not left:
        assert summary.endswith("### Claims\n\n```text\nwhat it says\n```\n")


def test_without_claims_the_summary_is_the_report(stubs: Path) -> None:
    (stubs.parent / "out").mkdir()
    (stubs.parent / "out" / "report.md").write_text("the report\n")
    _, calls = run_step(stubs, "Put the report into the job summary", OUT="out")
    assert calls == []
    assert (stubs.parent / "GITHUB_STEP_SUMMARY").read_text() == "the report\n"


@pytest.mark.parametrize("files", [[], ["report.sarif"]])
def test_sarif_is_found_where_there_is_one(stubs: Path, files: list[str]) -> None:
    (stubs.parent / "out").mkdir()
    for name in files:
        (stubs.parent / "out" / name).touch()
    done, _ = run_step(stubs, "Look for SARIF", OUT="out")
    assert done.returncode == 0
    output = stubs.parent / "GITHUB_OUTPUT"
    assert (output.read_text() if output.exists() else "") == "".join(
        f"file=out/{n}\n" for n in files
    )


def test_the_comment_is_the_report(stubs: Path) -> None:
    _, calls = run_step(stubs, "Comment on the pull request", NUMBER="7", OUT="out")
    assert calls == [["gh", "pr", "comment", "7", "--body-file", "out/report.md"]]


@pytest.mark.parametrize("packages", ["", "one two==2"])
def test_the_action_installs_itself_with_its_constraints(stubs: Path, packages: str) -> None:
    pip = stubs.parent / "neartie" / "bin"
    pip.mkdir(parents=True)
    (pip / "python").symlink_to(stubs / "python")
    done, calls = run_step(stubs, "Install neartie", ACTION_PATH="/action", PACKAGES=packages)
    assert done.returncode == 0, done.stderr
    assert calls[0][1:3] == ["-m", "venv"]
    assert calls[1][-3:] == ["-c", "/action/constraints.txt", "/action"]
    assert [call[-3:] for call in calls[2:]] == ([["--", "one", "two==2"]] if packages else [])
    assert (stubs.parent / "GITHUB_PATH").read_text() == f"{pip}\n"


@pytest.mark.parametrize("block", blocks("bash"), ids=lambda block: block.splitlines()[-1])
def test_shell_recipes_are_valid_and_their_commands_exist(block: str) -> None:
    done = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    found = list(commands_of(block))
    assert found
    for words in found:
        parses(words)


def test_the_parser_refuses_what_the_command_line_refuses() -> None:
    with pytest.raises(Exception, match="No such option"):
        parses(["audit", "--claim", "x"])
    with pytest.raises(Exception, match="No such command"):
        parses(["claims", "verify"])


@pytest.mark.parametrize("place", [".", "vendored"])
def test_the_plain_recipe_runs_as_written(stubs: Path, place: str) -> None:
    """It installs a checkout, not a name that no registry has; the tools are stand-ins."""
    (recipe,) = [block for block in blocks("bash") if "pip install" in block]
    folder = stubs.parent / "job"
    (folder / place).mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt"):
        (folder / place / name).symlink_to(ROOT / name)
    # What `python3 -m venv .neartie` leaves; pip does its part.
    (stubs / "pip").write_text(f"#!/bin/sh\nSTUB_STATUS=0 exec '{stubs}/python' \"$@\"\n")
    (stubs / "pip").chmod(0o755)
    (stubs / "python3").write_text(
        "#!/bin/sh\nmkdir -p .neartie/bin\n"
        f"ln -s '{stubs}/pip' .neartie/bin/python; ln -s '{stubs}/neartie' .neartie/bin/neartie\n"
    )
    (stubs / "python3").chmod(0o755)
    place_of = {} if place == "." else {"NEARTIE": place}
    done = subprocess.run(
        ["bash", "-c", recipe],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            "PATH": f"{stubs}:{os.environ['PATH']}",
            "CALLS": str(folder / "calls"),
            "STUB_STATUS": "3",
            **place_of,
        },
        check=False,
    )
    install, audit = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
    *options, constraints, source = install[1:]
    assert options == ["-m", "pip", "install", "--quiet", "-c"]
    assert (folder / constraints).samefile(ROOT / "constraints.txt")
    # Without a separator, pip takes it for a name and asks a registry.
    assert "/" in source
    project = tomllib.loads((folder / source / "pyproject.toml").read_text())
    assert project["project"]["name"] == "neartie"
    parses(audit[1:])
    # Every file that the audit reads is there: it names none.
    assert not [word for word in audit if word.endswith((".toml", ".json"))]
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
def test_no_page_installs_neartie_from_a_registry(page: Path) -> None:
    """No registry has it: a clone is installed by its path."""
    text = page.read_text()
    assert not re.findall(r"""pip install[^\n`]*\s["']?neartie\b(?! @)""", text)


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.splitlines()[0])
def test_the_workflow_gives_inputs_that_the_action_has(block: str) -> None:
    steps = yaml.safe_load(block)["jobs"]["audit"]["steps"]
    (mine,) = [step for step in steps if "neartie" in step["uses"]]
    assert set(mine["with"]) <= set(ACTION["inputs"])


def test_the_files_in_the_documentation_are_accepted(tmp_path: Path) -> None:
    policy, claims = blocks("toml")
    (tmp_path / "policy.toml").write_text(policy)
    (tmp_path / "claims.toml").write_text(claims)
    assert load_policy(tmp_path / "policy.toml").name == "our-k3"
    assert load_claims(tmp_path / "claims.toml").claim[0].id == "apart"
