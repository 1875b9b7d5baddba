"""One rank of a launch: rank 0 is the command line, the others compute what it orders."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from ...interrupts import INTERRUPTED, Interrupts
from ...kernels.ranks.group import RankGroup, join_group, leave_group
from ...kernels.ranks.paths import Rank, serve, stop
from .here import be
from .settings import RankSettings, parse_settings

_FAILED: Final = 1


def main() -> None:
    """Be the rank that torchrun's variables name: ``worker STATUS_FILE SETTINGS ARGUMENTS...``.

    Rank 0 writes its exit status to the file. A failed rank tells its error to the launcher and
    ends with status 1, at which the launcher ends the others.
    """
    if os.environ["RANK"] == "0":
        # It may be writing evidence, which it takes away again first.
        Interrupts().attend(signal.SIGINT)
    else:
        signal.signal(signal.SIGINT, _interrupted)
    status, settings, arguments = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    errors = get_error_handler()
    errors.initialize()
    try:
        _run(status, parse_settings(settings), arguments)
    # Whatever a rank dies of is told by the launcher, in one line.
    except Exception as error:
        errors.record_exception(error)
        sys.stdout.flush()
        # At once: an orderly exit waits for collectives that the lost rank never joins.
        os._exit(_FAILED)
    except KeyboardInterrupt:
        os._exit(_FAILED)


def _interrupted(number: int, frame: object) -> None:
    """Stop without a word: the launcher is interrupted too, and tells it once."""
    os._exit(_FAILED)


def _run(status: Path, settings: RankSettings, arguments: list[str]) -> None:
    group = join_group(settings.device, settings.timeout_s)
    rank = Rank(group)
    if group.rank:
        serve(rank)
    else:
        be(rank)
        code = _command_line(group, arguments)
        status.write_text(str(code), encoding="utf-8")
    leave_group()


def _command_line(group: RankGroup, arguments: list[str]) -> int:
    """Run the command line as if it had been started here; return its exit status."""
    from ..cli import exit_status

    sys.argv = ["neartie", *arguments]
    code = exit_status(tells_interrupt=False)
    if code == INTERRUPTED:
        os._exit(_FAILED)
    stop(group)
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    main()
