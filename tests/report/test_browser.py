"""The HTML report in a real chromium, offline: draws, filters, opens, copies, obeys nobody."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from neartie.audit.gate.result import GateResult
from neartie.audit.record import AuditRecord
from neartie.audit.report.html import render_gate_html, render_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium; .ci/run installs one")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM)
        yield running
        running.close()


class Opened:
    """A page, with all that it complained of and asked for."""

    def __init__(self, browser: Any, folder: Path, text: str, scheme: str = "light") -> None:
        self.context = browser.new_context(
            color_scheme=scheme, viewport={"width": 1280, "height": 900}
        )
        self.context.set_offline(True)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        file = folder / f"report-{scheme}.html"
        file.write_text(text, encoding="utf-8")
        self.url = file.as_uri()
        self.page.goto(self.url)

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Open a page; the contexts are closed at the end."""
    pages: list[Opened] = []

    def open_page(text: str, scheme: str = "light") -> Opened:
        pages.append(Opened(browser, tmp_path, text, scheme))
        return pages[-1]

    yield open_page
    for one in pages:
        one.context.close()


@pytest.fixture(scope="module")
def text(record: AuditRecord) -> str:
    return render_html(record)


def test_no_error_and_no_request(opened: Any, text: str, gate: GateResult) -> None:
    for content in (text, render_gate_html(gate)):
        one = opened(content)
        assert one.errors == []
        assert one.requests == [one.url]


def test_a_planted_request_is_refused_and_seen(opened: Any, text: str) -> None:
    planted = "<main><img src='https://example.invalid/x.png' onerror='window.hit=1'>"
    one = opened(text.replace("<main>", planted, 1))
    assert any("Content Security Policy" in error for error in one.errors)
    assert one.page.evaluate("window.hit") is None


def test_charts_are_drawn(opened: Any, record: AuditRecord, clean: AuditRecord) -> None:
    for judged in (record, clean):
        page = opened(render_html(judged)).page
        # Triangle, set rate and weights; margins where the audit started a gate.
        margins = judged.record["gate"] is not None
        assert page.locator("figure svg").count() == 3 + margins
        for chart in page.locator("figure svg").all():
            size = chart.evaluate("e => [e.clientWidth, e.clientHeight]")
            assert size[0] > 200
            assert size[1] > 80
            # Marks that take room on the page: rules and bars, and not the frames around them.
            drawn = chart.evaluate(
                """e => [...e.querySelectorAll("[class*=mark-] > path, [class*=mark-] > line")]
                .map(mark => mark.getBoundingClientRect())
                .filter(box => box.width + box.height > 5).length"""
            )
            assert drawn >= 3
            assert chart.get_attribute("aria-label")
            assert chart.locator("text").count() >= 3


def test_nothing_is_wider_than_the_page(opened: Any, text: str, hostile: AuditRecord) -> None:
    for content in (text, render_html(hostile)):
        for width in (1280, 420):
            page = opened(content).page
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def boxes(found: Any) -> list[tuple[float, float]]:
    """Left and right edges of the text lines in elements, not of the elements alone."""
    edges = found.evaluate_all(
        """all => all.flatMap(e => {
        const range = document.createRange();
        range.selectNodeContents(e);
        return [...range.getClientRects(), e.getBoundingClientRect()].map(b => [b.left, b.right]);
        })"""
    )
    return [(left, right) for left, right in edges]


def test_an_opened_certificate_is_read_without_scrolling_sideways(
    opened: Any, text: str, hostile: AuditRecord, gate: GateResult
) -> None:
    """Every figure and the replay line lie on the page, though the table is wider than it."""
    for content in (text, render_html(hostile), render_gate_html(gate)):
        page = opened(content).page
        page.locator("#swaps tbody tr.row").first.click()
        detail, scroll = page.locator("tr.detail"), page.locator("#browser .scroll")
        for width, expected in ((360, 1), (390, 1), (1280, 4)):
            page.set_viewport_size({"width": width, "height": 900})
            wider = scroll.evaluate("e => e.scrollWidth > e.clientWidth")
            assert wider == (expected == 1)
            found = boxes(detail.locator("dt, dd, code, button"))
            assert len(found) > 2 * 20
            # Also where the table was scrolled to its right end.
            scroll.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
            found += boxes(detail.locator("dt, dd, code, button"))
            assert min(left for left, _ in found) >= 0
            assert max(right for _, right in found) <= width
            columns = detail.locator("dl div").evaluate_all(
                "all => new Set(all.map(e => e.getBoundingClientRect().left)).size"
            )
            assert columns == expected
            scroll.evaluate("e => { e.scrollLeft = 0; }")


def test_the_filter_works_and_a_click_opens_a_row(
    opened: Any, text: str, record: AuditRecord
) -> None:
    page = opened(text).page
    records = record.swaps.to_pylist()
    rows = page.locator("#swaps tbody tr.row")
    assert rows.count() == min(100, len(records))
    page.locator("#class").select_option("far_swap")
    page.locator("#width").select_option("20")
    wanted = [c for c in records if c["set_class"] == "far_swap" and c["width"] == 20]
    assert rows.count() == len(wanted) > 0
    assert page.locator("#count").inner_text().startswith(f"{len(wanted)} of {len(records)} match")
    gravest = max(wanted, key=lambda c: c["gap_ulp"])
    rows.first.click()
    detail = page.locator("tr.detail")
    assert gravest["snippet"] == detail.locator("code").inner_text()
    for name in record.swaps.column_names:
        assert (
            name == "snippet" or detail.get_by_text(name.replace("_", " "), exact=True).count() == 1
        )
    rows.first.click()
    assert detail.count() == 0
    page.locator("#filter").fill("no such text")
    assert rows.count() == 0


def test_search_and_sort(opened: Any, text: str, record: AuditRecord) -> None:
    page = opened(text).page
    records = record.swaps.to_pylist()
    row = records[0]["row"]
    page.locator("#filter").fill(f"tie-witness {row}")
    found = page.locator("#swaps tbody tr.row").all_inner_texts()
    assert all("tie-witness" in line for line in found)
    page.locator("#filter").fill("")
    column = page.locator("#swaps thead th").all_inner_texts().index("gap ulp")
    head = page.locator("#swaps thead th").nth(column)
    for expected, way in ((min, "ascending"), (max, "descending")):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == way
        first = page.locator("#swaps tbody tr.row").first.locator("td").nth(column).inner_text()
        assert int(first) == expected(c["gap_ulp"] for c in records if c["gap_ulp"] is not None)


def test_the_keyboard_opens_a_row(opened: Any, text: str) -> None:
    page = opened(text).page
    button = page.locator("#swaps tbody tr.row button").first
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    assert page.locator(f"#{button.get_attribute('aria-controls')}").is_visible()


def test_copy_takes_the_snippet(opened: Any, text: str) -> None:
    one = opened(text)
    one.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = one.page
    page.locator("#swaps tbody tr.row").first.click()
    page.locator(".detail .copy").click()
    snippet = page.locator(".detail code").inner_text()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == snippet


def test_more_rows_come_on_demand(opened: Any, record: AuditRecord) -> None:
    many = pa.concat_tables([record.swaps] * 10)
    page = opened(render_html(dataclasses.replace(record, swaps=many))).page
    rows = page.locator("#swaps tbody tr.row")
    assert (rows.count(), many.num_rows > 200) == (100, True)
    page.get_by_role("button", name="Show more").click()
    assert rows.count() == 200


def test_light_and_dark_differ(opened: Any, text: str) -> None:
    def colours(page: Any) -> tuple[str, str, str]:
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        mark = page.locator("figure svg [class*=mark-rect] path").first
        label = page.locator("figure svg text").first
        return (
            background,
            mark.evaluate("e => getComputedStyle(e).fill"),
            label.evaluate("e => getComputedStyle(e).fill"),
        )

    light, dark = opened(text, "light").page, opened(text, "dark").page
    first, second = colours(light), colours(dark)
    assert all(a != b for a, b in zip(first, second, strict=True))
    light.get_by_role("button", name="Switch between light and dark").click()
    dark.get_by_role("button", name="Switch between light and dark").click()
    assert (colours(light), colours(dark)) == (second, first)


def test_a_hostile_name_does_nothing(opened: Any, hostile: AuditRecord) -> None:
    one = opened(render_html(hostile))
    one.page.locator("#swaps tbody tr.row").first.click()
    assert one.page.evaluate("window.hit") is None
    assert one.errors == []
    assert one.requests == [one.url]
    assert one.page.locator("img").count() == 0
    assert "<img src=x onerror=" in one.page.locator("#swaps").inner_text()
