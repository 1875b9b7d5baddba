"""The entry of the command line, also as ``python -P -m neartie``.

It imports nothing heavy: an interrupt while the rest is imported is told as any other.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line; as ``audit.cli.main``, from the first import on."""
    # Who cancels a job, such as CI, sends SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from .audit.cli import main as run
    except KeyboardInterrupt:
        print("neartie: interrupted; nothing was written", file=sys.stderr)
        # As ``audit.cli.INTERRUPTED``, which may not be there.
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
