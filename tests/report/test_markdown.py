"""report.md: made from the record alone, safe in a comment, and within GitHub's limit."""

import dataclasses
import json
import re
from collections import Counter
from html import escape

from markdown_it import MarkdownIt

from neartie.audit.gate.result import GateResult
from neartie.audit.metrics.swaps import SetClass
from neartie.audit.record import AuditRecord
from neartie.audit.report.gate import render_gate
from neartie.audit.report.markdown import MAX_CHARACTERS, cell, code, render_markdown
from neartie.audit.report.mechanism import MOST_LEAD_WORDS, at_widths, mechanism


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
    rows = sum(width["rows"] for width in clean.record["widths"])
    assert told.lead == (
        "The candidate changes the projection, exchange between ranks and normalisation, and the "
        f"expert set is the same in all {rows:,} results (row x rank x width)."
    )
    assert told.details[:2] == (
        "Projection: latent N-split, one rounding to BF16. Baseline: latent K-split, BF16 "
        "partials.",
        "Exchange between ranks: paired gather, a copy, row_blocks=1. Baseline: all-reduce of "
        "latent (rank order, FP32 accumulation, one rounding), all-gather of logits.",
    )
    fit = "The latent errors fit the declared schedules, one_shot_fp32 against gather."
    assert fit in told.details
    assert "The candidate's latent is closer to FP64." in told.details
    sets: Counter[str] = Counter()
    for width in record.record["widths"]:
        sets.update(width["counts"])
    assert (sets["near_tie"], sets["far_swap"]) == (52, 4)
    told = mechanism(record.record)
    assert told.lead.endswith(
        "slot order, and 56 of 240 results (row x rank x width) have another expert set, at worst "
        "far swap."
    )
    assert "The other expert sets by class: near tie 52, far swap 4." in told.details
    assert "K-split" not in " ".join(mechanism(gate.record).details)


def test_the_mechanism_follows_the_record(clean: AuditRecord) -> None:
    content = json.loads(clean.to_json())
    content["schedule"] |= {"fits": False, "nearest": "tree_bf16 against gather"}
    for width in content["widths"]:
        width["closer_to_reference"]["latent"]["answer"] = "farther"
        width["counts"]["near_tie"] = 3
    told = mechanism(content)
    assert (
        "The latent errors do not fit the declared schedules, one_shot_fp32 against gather."
    ) in told.details
    assert "The nearest schedules are tree_bf16 against gather." in told.details
    assert "The candidate's latent is farther from FP64." in told.details
    assert "The other expert sets by class: near tie 6." in told.details
    content["candidate"]["declared"] = content["baseline"]["declared"]
    assert mechanism(content).lead.startswith("Both paths declare the same arithmetic, but 6 of ")
    content["widths"] = []
    assert mechanism(content).lead == (
        "Both paths declare the same arithmetic; no row was compared."
    )


def test_the_leading_sentence_is_short_whatever_changed(clean: AuditRecord) -> None:
    """Every part declared otherwise, a set of every class, figures of any size."""
    content = json.loads(clean.to_json())
    for part in content["baseline"]["declared"]:
        content["candidate"]["declared"][part] = "another; arithmetic"
    for kind in SetClass:
        for width in content["widths"]:
            width["counts"] = {kind: 10**15}
            width["rows"] = 10**18
        told = mechanism(content)
        assert len(told.lead.split()) <= MOST_LEAD_WORDS
        assert ";" not in told.lead
        assert told.lead.count(".") == 1
        assert len(told.details) >= 6


def test_the_mechanism_is_a_sentence_and_a_list(clean: AuditRecord, gate: GateResult) -> None:
    for text, content in (
        (render_markdown(clean), clean.record),
        (render_gate(gate), gate.record),
    ):
        told = mechanism(content)
        shown = html(text)
        assert f"<p>{escape(told.lead)}</p>\n<ul>" in shown
        for detail in told.details:
            assert f"<li>{escape(detail, quote=False)}</li>" in shown


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
