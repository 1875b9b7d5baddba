"""Draw the pictures of the README from one default audit: ``python -P docs/pictures.py``.

``report.svg`` is what ``make audit`` prints, ``report-html.png`` the top of ``report.html`` in a
chromium, which must be installed.
"""

import io
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI

import neartie
from neartie.audit.record import AuditRecord
from neartie.audit.report.html import render_html
from neartie.audit.report.terminal import print_report

FOLDER = Path(__file__).parent
SIZE = {"width": 1240, "height": 1640}


def main() -> None:
    """Run the default audit and save both pictures."""
    result = neartie.run_audit(command="neartie audit")
    terminal_picture(result)
    html_picture(result)


def terminal_picture(result: AuditRecord) -> None:
    """Save the terminal report."""
    console = Console(record=True, width=158, highlight=False, file=io.StringIO())
    print_report(result, console)
    console.save_svg(str(FOLDER / "report.svg"), title="neartie audit", theme=MONOKAI)


def html_picture(result: AuditRecord) -> None:
    """Save the top of the HTML report, in light."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder) / "report.html"
        file.write_text(render_html(result), encoding="utf-8")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(file.as_uri())
        page.screenshot(path=FOLDER / "report-html.png")
        browser.close()


if __name__ == "__main__":
    main()
