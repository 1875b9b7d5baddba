"""The HTML report as text: what is in it, what cannot get in, and that its bytes are fixed."""

import base64
import dataclasses
import hashlib
import json
import re
import subprocess
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from neartie import run_audit
from neartie.audit.gate.result import GateResult
from neartie.audit.record import AuditRecord
from neartie.audit.report import html
from neartie.audit.report.html import render_gate_html, render_html


def data(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_verdict_comes_first_and_all_parts_follow(record: AuditRecord) -> None:
    text = render_html(record)
    body = text[text.index("<main>") :]
    order = [
        '<p class="state FAIL">FAIL</p>', "<h1>NUMERICS-BEHAVIOURAL</h1>", "Mechanism.", "Reasons",
        "Charts", "Tables", "Swap certificates", "Not run, and limitations", "Conditions",
        "Banks by digest", "Policy", "Environment",
    ]  # fmt: skip
    places = [body.index(part) for part in order]
    assert places == sorted(places)
    for bank in record.record["banks"]:
        assert bank["digest"] in text
    for reason in record.record["verdict"]["reasons"]:
        assert reason["text"] in text


def test_the_same_record_gives_the_same_bytes(record: AuditRecord) -> None:
    assert render_html(record) == render_html(record)


def test_another_process_gives_the_same_bytes(record: AuditRecord, tmp_path: Path) -> None:
    """No ids that count up, no order of a set: hashes of another seed change nothing."""
    for name, table in (("swaps", record.swaps), ("values", record.values)):
        with (
            pa.OSFile(str(tmp_path / name), "wb") as sink,
            pa.ipc.new_file(sink, table.schema) as w,
        ):
            w.write_table(table)
    (tmp_path / "audit.json").write_text(record.to_json())
    program = f"""
import json, pathlib, pyarrow as pa
from neartie.audit.record import AuditRecord
from neartie.audit.report.html import render_html
place = pathlib.Path({str(tmp_path)!r})
swaps, values = (pa.ipc.open_file(place / n).read_all() for n in ("swaps", "values"))
record = AuditRecord(json.loads((place / "audit.json").read_text()), swaps, values, None, None)
print(render_html(record), end="")
"""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == render_html(record)


def test_it_is_one_file_without_network(record: AuditRecord, gate: GateResult) -> None:
    for text in (render_html(record), render_gate_html(gate)):
        for tag, attributes in Elements(text).found:
            assert tag not in ("link", "img", "iframe", "object", "embed", "base", "image", "use")
            assert not {"src", "href", "xlink:href", "style"} & set(attributes), (tag, attributes)
            assert not any(name.startswith("on") for name in attributes)
            # Ids that Vega counts up would differ from one drawing to the next.
            assert not (attributes.get("id") or "").startswith(("clip", "gradient"))
        assert "url(" not in text
        assert len(text.encode()) < 500_000


def test_the_policy_admits_this_style_and_script_alone(record: AuditRecord) -> None:
    text = render_html(record)
    policy = next(
        a["content"] for t, a in Elements(text).found if t == "meta" and "http-equiv" in a
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert found is not None
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_the_json_holds_all_fields_of_the_gravest(
    record: AuditRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = data(render_html(record))
    assert whole["columns"] == record.swaps.column_names
    assert len(whole["rows"]) == record.swaps.num_rows
    assert "left out of this page" not in render_html(record)
    monkeypatch.setattr(html, "MAX_CERTIFICATES", 3)
    text = render_html(record)
    assert data(text)["rows"] == whole["rows"][:3]
    assert f"{record.swaps.num_rows - 3:,} are left out of this page" in text


def test_figures_that_json_cannot_hold_are_words(record: AuditRecord) -> None:
    rows = record.swaps.to_pylist()
    rows[0] |= {"gap_abs": float("inf"), "gap_logit": float("nan")}
    swaps = pa.Table.from_pylist(rows, schema=record.swaps.schema)
    whole = data(render_html(dataclasses.replace(record, swaps=swaps)))
    at = whole["columns"].index
    (found,) = [row for row in whole["rows"] if row[at("gap_abs")] == "inf"]
    assert found[at("gap_logit")] == "nan"


def test_a_hostile_name_stays_text(hostile: AuditRecord, record: AuditRecord) -> None:
    text = render_html(hostile)
    text.encode()
    tags = [tag for tag, _ in Elements(text).found]
    assert tags == [tag for tag, _ in Elements(render_html(record)).found]
    for character in "\u2028\x00\x1b\ud800\u202e":
        assert character not in text
    assert "</script><script>window" not in text


def test_an_audit_that_was_not_run_says_so() -> None:
    result = run_audit("k3-mini/layer0", rows=[9], ranks=2, device="cuda")
    text = render_html(result)
    assert '<p class="state NOT_RUN">NOT RUN</p>' in text
    assert "k3-mini/layer0 at width 9 (general: device cuda: no CUDA device" in text
    assert "<svg" not in text


def test_a_margin_chart_that_is_not_there_says_why(clean: AuditRecord) -> None:
    reason = "the verdict is FAIL without it: far_swap"
    content = json.loads(clean.to_json()) | {"gate": None, "no_gate": reason}
    for bank in content["banks"]:
        bank["boundary"] = {name: 0 for name in bank["boundary"]}
    without = dataclasses.replace(clean, record=content)
    why = (
        f"No margin chart: no near-tie gate was run ({reason}), and no row of the banks was seen "
        "with a margin of 64 ULP or less."
    )
    assert f'<p class="absent">{why}</p>' in render_html(without)
    assert "Margins at the boundary" not in render_html(without)
    content["banks"][0]["boundary"] |= {"at_most_16": 1, "at_most_64": 1}
    for drawn in (without, clean):
        assert "Margins at the boundary" in render_html(drawn)
        assert "No margin chart" not in render_html(drawn)


def test_an_audit_that_was_not_run_has_no_margin_chart_and_says_why() -> None:
    result = run_audit("k3-mini/layer0", rows=[9], ranks=2, device="cuda")
    assert f"no near-tie gate was run ({escape(result.record['no_gate'])})" in render_html(result)


def columns(text: str, title: str) -> list[str]:
    """The heads of a table, and that none of its columns is empty."""
    table = text[text.index(f">{title}</h3>") :]
    table = table[: table.index("</table>")]
    heads = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", table)
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
    for number, head in enumerate(heads):
        assert any(row[number] != "-" for row in rows if row), head
    return heads


def test_the_table_of_banks_has_no_column_without_a_figure(clean: AuditRecord) -> None:
    content = json.loads(clean.to_json())
    densities = [bank["margin_density"] for bank in content["banks"]]
    assert densities == [None]
    found = columns(render_html(clean), "Banks")
    assert found[0] == "bank"
    assert "margin density (recorded)" not in found
    content["banks"][0]["margin_density"] = {"resampled": 12.0, "recorded": 11.0}
    more = columns(render_html(dataclasses.replace(clean, record=content)), "Banks")
    assert [name for name in more if name not in found] == ["margin density (recorded)"]


def test_a_gate_has_its_own_tables(gate: GateResult) -> None:
    text = render_gate_html(gate)
    assert "Near ties (A&#39;s own keys) and the swap rate they predict" in text
    assert gate.record["plan"]["digest"] in text
    assert len(data(text)["rows"]) == gate.swaps.num_rows > 0
