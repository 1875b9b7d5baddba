"""The entry of the command line, also as ``python -P -m neartie``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from .interrupts import INTERRUPTED, Interrupts


def main() -> None:
    """Run the command line of ``sys.argv``; an interrupt at any moment is exit status 130."""
    interrupts = Interrupts()
    interrupts.begin()
    from .audit.cli import exit_status

    sys.exit(attended(exit_status, interrupts))


def attended(run: Callable[[], int], interrupts: Interrupts) -> int:
    """Return the command's status, or that of an interrupt that the command did not answer."""
    try:
        interrupts.attend()
        status = run()
        # An interrupt from here on ends the process at once. A reader of stdout that has gone is
        # told of by Python, at exit.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        interrupts.end()
        if status == INTERRUPTED or not interrupts.unheard:
            return status
    except KeyboardInterrupt:
        interrupts.end()
    except Exception:
        # What an interrupt tears in a library may come out as any error.
        if not interrupts.unheard:
            raise
        interrupts.end()
    print("neartie: interrupted", file=sys.stderr)
    return INTERRUPTED


if __name__ == "__main__":
    main()
