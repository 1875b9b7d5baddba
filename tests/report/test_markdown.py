"""report.md: made from the record alone, safe in a comment, and within GitHub's limit."""

import dataclasses
import json
import re
from html import escape

from markdown_it import MarkdownIt

from neartie.audit.gate.result import GateResult
from neartie.audit.record import AuditRecord
from neartie.audit.report.gate import render_gate
from neartie.audit.report.markdown import MAX_CHARACTERS, cell, code, render_markdown
from neartie.audit.report.mechanism import at_widths, mechanism


def html(text: str) -> str:
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return str(reader.render(text))


def test_it_has_every_part(record: AuditRecord) -> None:
    text = render_markdown(record)
    assert text.startswith("## NUMERICS-BEHAVIOURAL\n")
    headings = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert [h.split(" (")[0] for h in headings] == [
        "Expert sets, counts over row x rank",
        "Error triangle",
        "Expert weights, aligned by id",
        "Banks",
        "Hypotheses for failing rows",
        "Reasons",
        "Worst certificates",
        "Not run, and limitations",
        "Conditions",
    ]
    assert "- command: `neartie audit`\n" in text
    for bank in record.record["banks"]:
        assert f"sha256 {bank['digest']}" in text
    for limitation in record.record["limitations"]:
        assert text.count(cell(limitation)) == 1


def test_tables_are_tables(record: AuditRecord, gate: GateResult) -> None:
    for text in (render_markdown(record), render_gate(gate)):
        assert html(text).count("<table>") == text.count("\n|---")


def test_the_mechanism_is_made_from_declarations_and_findings(
    record: AuditRecord, clean: AuditRecord, gate: GateResult
) -> None:
    told = mechanism(clean.record)
    assert told.startswith(
        "Latent N-split, one rounding to BF16 instead of latent K-split, BF16 partials; "
        "paired gather, a copy, row_blocks=1 instead of all-reduce of latent "
        "(rank order, FP32 accumulation, one rounding)"
    )
    assert "latent errors fit the declared one_shot_fp32 against gather" in told
    assert "latent closer to FP64" in told
    assert "expert sets the same on all" in told
    assert "score" in mechanism(record.record)
    assert "near tie" in mechanism(record.record)
    assert "K-split" not in mechanism(gate.record)


def test_the_mechanism_follows_the_record(clean: AuditRecord) -> None:
    content = json.loads(clean.to_json())
    content["schedule"] |= {"fits": False, "nearest": "tree_bf16 against gather"}
    for width in content["widths"]:
        width["closer_to_reference"]["latent"]["answer"] = "farther"
    told = mechanism(content)
    assert "do not fit the declared one_shot_fp32 against gather, nearest is tree_bf16" in told
    assert "latent farther from FP64" in told
    content["candidate"]["declared"] = content["baseline"]["declared"]
    assert mechanism(content).startswith("Both paths declare the same arithmetic;")


def test_a_declaration_by_width_is_read_at_the_widths() -> None:
    declared = "up to 8 rows: fold; above: left"
    assert at_widths(declared, [1, 8]) == "fold"
    assert at_widths(declared, [9]) == "left"
    assert at_widths(declared, [8, 9]) == declared


def test_hostile_names_start_no_markup(hostile: AuditRecord) -> None:
    text = render_markdown(hostile)
    text.encode()
    shown = html(text)
    assert "<img" not in shown
    assert "<script" not in shown
    assert "<em>" not in shown
    assert "javascript:" not in "".join(re.findall(r'href="[^"]*"', shown))
    assert shown.count("<table>") == text.count("\n|---")
    assert "<h1>" not in shown
    # The escapes are what keeps it so: the bare name is markup.
    assert "<img" in html(hostile.record["banks"][-1]["name"].replace("\ud800", ""))


def test_a_cell_shows_its_text_and_nothing_else() -> None:
    # The closing bracket after each is the template's own: no text may open a tag for it.
    for text in ("<b", "<!--", "*b*", "_b_", "`b`", "[a](b)", "~~b~~", "&lt;", "a\\*b", "$x$"):
        shown = html(f"x {cell(text)} >")
        assert shown == f"<p>x {escape(text)} &gt;</p>\n"
    assert html(f"| a |\n|---|\n| {cell('x|y')} |").count("<td>") == 1


def test_a_code_span_holds_any_backticks() -> None:
    for text in ("a", "`", "a``b", "```", " ", "a`"):
        assert html(code(text)) == f"<p><code>{text if text.strip() else '   '}</code></p>\n"


def test_a_long_report_is_cut_and_says_where(record: AuditRecord) -> None:
    content = json.loads(record.to_json())
    content["banks"] = [{**content["banks"][0], "name": f"bank {n}"} for n in range(3000)]
    content["limitations"] = [f"limitation {n} {'x' * 50}" for n in range(3000)]
    text = render_markdown(dataclasses.replace(record, record=content))
    assert len(text) <= MAX_CHARACTERS
    assert "more of 3,000 lines are in report.html" in text
    assert html(text).count("<table>") == 5


def test_a_huge_name_is_cut_too(record: AuditRecord) -> None:
    content = json.loads(record.to_json())
    content["command"] = "neartie audit " + "y" * 200_000
    content["banks"][0]["name"] = "z" * 200_000
    text = render_markdown(dataclasses.replace(record, record=content))
    assert len(text) <= MAX_CHARACTERS
    assert "characters cut)" in text
    assert "### Conditions" in text
