"""The command line. Every command is one call in Python; this file only reads and prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from .. import __version__
from ..banks.errors import InputError, printable
from ..interrupts import INTERRUPTED
from .cli_audit import audit
from .cli_bank import bank_app
from .cli_bench import bench
from .cli_certify import certify
from .cli_claims import claims_app
from .cli_evidence import report, verify
from .cli_gate import gate as gate_command
from .cli_hunt import hunt
from .cli_options import Json, count_of
from .cli_policy import policy_app
from .cli_recording import merge_ranks
from .cli_selftest import selftest
from .cli_sign import diff, history, sign
from .cli_why import why
from .engine.contract import WorkerError
from .progress import Interrupted

app = typer.Typer(
    name="neartie",
    help="Audit a numerics change in Mixture-of-Experts routing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(bank_app, name="bank")
bank_app.command("merge-ranks")(merge_ranks)
app.add_typer(claims_app, name="claims")
app.add_typer(policy_app, name="policy")
app.command()(audit)
app.command("gate")(gate_command)
app.command()(bench)
app.command()(certify)
app.command()(hunt)
app.command()(verify)
app.command()(report)
app.command()(sign)
app.command()(diff)
app.command()(history)
app.command()(selftest)
app.command()(why)


# The base of typer's usage errors: click's class, or typer's own where it brings click along.
_USAGE_ERROR: Final[type[Exception]] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit status 2.

    It installs no handlers of signals: the process's own entry, ``neartie.__main__``, does.
    """
    sys.exit(exit_status())


def _version(wanted: bool) -> None:
    if wanted:
        print(f"neartie {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Audit a numerics change in Mixture-of-Experts routing."""


def exit_status(*, tells_interrupt: bool = True) -> int:
    """Run the command line of ``sys.argv`` and return its exit status.

    Args:
        tells_interrupt: print what an interrupt left; another process may tell it.
    """
    try:
        returned = app(standalone_mode=False)
    except InputError as error:
        return _refused(str(error))
    except _USAGE_ERROR as error:
        return _misused(error)
    except WorkerError as error:
        return _refused(f"nothing was judged: {printable(str(error))}")
    except Interrupted as stop:
        if tells_interrupt:
            print(f"neartie: interrupted; {printable(str(stop))}", file=sys.stderr)
        return INTERRUPTED
    except (KeyboardInterrupt, typer.Abort):
        returned = INTERRUPTED
    except SystemExit as error:
        if isinstance(error.__context__, OSError):
            # The reader of stdout is gone, which typer has seen to.
            return 1
        # No command exits: a path did, and whatever status it wanted, nothing was judged.
        return _refused(f"exit={error.code}, but should be a return [a path or what it calls]")
    # typer turns an interrupt into this status, and every command ends with one of its own or 0.
    status = returned if isinstance(returned, int) else 0
    if status == INTERRUPTED and tells_interrupt:
        print("neartie: interrupted; nothing was written", file=sys.stderr)
    return status


def _misused(usage: Any) -> int:
    """Say in one line what is wrong with the words of the command; help where there are none."""
    if type(usage).__name__ == "NoArgsIsHelpError":
        usage.show()
        return int(usage.exit_code)
    command = "neartie" if usage.ctx is None else usage.ctx.command_path
    message = " ".join(usage.format_message().split())
    return _refused(f"{printable(message)} [{command} --help]")


def _refused(message: str) -> int:
    print(f"neartie: {message}", file=sys.stderr)
    return 2


@app.command()
def explain(
    file: Annotated[str, typer.Argument(help="JSON file with cases, or - for stdin.")],
    policy: Annotated[Path | None, typer.Option(help="TOML file with limits.")] = None,
    tie_contract: Annotated[
        str | None, typer.Option(help="lower_id or unspecified; overrides the policy.")
    ] = None,
    flush_to_zero: Annotated[
        bool, typer.Option(help="Declare that subnormals may be flushed to zero.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Classify rows pasted from a bug report, with no bank."""
    from .explain.explain import explain_rows
    from .policy import load_policy

    limits = load_policy(policy)
    changes: dict[str, Any] = {"flush_to_zero": True} if flush_to_zero else {}
    if tie_contract is not None:
        if tie_contract not in ("lower_id", "unspecified"):
            raise InputError("tie_contract", tie_contract, "lower_id or unspecified", "explain")
        changes["tie_contract"] = tie_contract
    source = _stdin_cases() if file == "-" else Path(file)
    result = explain_rows(source, policy=limits.model_copy(update=changes))
    print(result.to_json() if as_json else result.text())
    raise typer.Exit(result.exit_status)


@app.command()
def plan(
    rate: Annotated[float | None, typer.Option(help="Set rate to certify.")] = None,
    rows: Annotated[str | None, typer.Option(help="Rows that were or will be run.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the one-sided bound.")] = 0.95,
    events: Annotated[int, typer.Option(help="Differing rows to allow, or seen.")] = 0,
    widths: Annotated[int, typer.Option(help="Widths tested together (Holm).")] = 1,
    layers: Annotated[int, typer.Option(help="MoE layers of the model.")] = 92,
    as_json: Json = False,
) -> None:
    """Turn a set rate into the rows that certify it, or rows into the rate they can certify."""
    from .plan import plan_rows

    result = plan_rows(
        rate=rate,
        rows=None if rows is None else count_of(rows, "--rows"),
        confidence=confidence,
        events=events,
        widths=widths,
        layers=layers,
    )
    print(json.dumps(result.as_dict(), indent=1) if as_json else result.text())


@app.command()
def paths(as_json: Json = False) -> None:
    """List what can run here, what each path declares, and why one cannot run."""
    from .path_list import path_records, print_paths

    records = path_records()
    if as_json:
        print(json.dumps(records, indent=1))
    else:
        print_paths(records, _console())


def _console() -> Console:
    """Terminal output; a pipe gets plain text wide enough for the tables."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def _stdin_cases() -> Any:
    from .explain.case_format import parse_cases

    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise InputError("content", "bytes that are not UTF-8", "JSON text", "stdin") from None
    return parse_cases(text, "stdin")
