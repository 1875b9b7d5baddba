"""Draw docs/report.svg, what ``make audit`` prints: ``python -P docs/pictures.py``."""

import io
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

import neartie
from neartie.audit.report.terminal import print_report


def main() -> None:
    """Run the default audit and save its terminal report."""
    console = Console(record=True, width=158, highlight=False, file=io.StringIO())
    print_report(neartie.run_audit(command="neartie audit"), console)
    target = Path(__file__).with_name("report.svg")
    console.save_svg(str(target), title="neartie audit", theme=MONOKAI)


if __name__ == "__main__":
    main()
