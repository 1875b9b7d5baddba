"""Do the figures of a record follow from its tables, and the tables from each other?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jinja2

from ..certificates import SWAP_SCHEMA
from ..counts import Histograms
from ..environment import code_digest
from ..gate.result import GateResult
from ..histograms import HISTOGRAMS_SCHEMA
from ..metrics.swaps import SetClass
from ..metrics.values import relative_rms
from ..metrics.weights import EXACT_BINS
from ..record import AuditRecord
from ..value_table import VALUES_SCHEMA
from .check_groups import group_problems
from .load import Evidence
from .manifest import document_text
from .problems import Code, Problem
from .reclassify import classes_of
from .rejudge import recorded_facts, recorded_policy, rejudge
from .write import NOT_IN_EARLIER_GATES, RENDERED, RENDERED_GATE

SCHEMAS: Final = {
    "swaps": SWAP_SCHEMA,
    "values": VALUES_SCHEMA,
    "histograms": HISTOGRAMS_SCHEMA,
}
MOST_SHOWN: Final = 20
"""Differing figures of one record that are named; the others are counted."""
_SAME_SET: Final = frozenset({SetClass.IDENTICAL, SetClass.REORDERED, SetClass.INVALID})
_ADDITIVE: Final = ("set_class", "weight_class", "input_flag", "weight_ulp", "margin_ulp")


def check_tables(evidence: Evidence) -> Iterator[Problem]:
    """Every table is there and has the columns of its schema."""
    for name, schema in SCHEMAS.items():
        if name == "values" and evidence.kind == "gate":
            continue
        file = f"{name}.parquet"
        if name not in evidence.tables:
            yield Problem(Code.MISSING_FILE, file, "not there")
        elif not evidence.tables[name].schema.equals(schema):
            yield Problem(Code.SCHEMA, file, "columns are not those of this version")


def check_record(evidence: Evidence) -> Iterator[Problem]:
    """Every figure that follows from tables, facts and policy; every file rendered from them."""
    file = f"{evidence.kind}.json"
    # Bytes: a text reader takes other line ends, and no broken UTF-8.
    if (evidence.directory / file).read_bytes() != _encoded(document_text(evidence.record)):
        yield Problem(Code.CHANGED_FILE, file, "not laid out as it was written")
    try:
        again = rejudge(evidence)
        made = _plain(again)
    # An edited table may hold counts and sums that no arithmetic takes.
    except (ValueError, ArithmeticError) as error:
        yield Problem(Code.FIGURE, file, f"the tables give no record: {error}")
        return
    wrong = list(differences(evidence.record, made))
    for place, text in wrong[:MOST_SHOWN]:
        yield Problem(Code.FIGURE, f"{file}: {place}", text)
    if len(wrong) > MOST_SHOWN:
        yield Problem(Code.FIGURE, file, f"and {len(wrong) - MOST_SHOWN:,} more figures")
    if not wrong:
        yield from _rendered(evidence, again)


def _plain(result: AuditRecord | GateResult) -> Any:
    """The record as JSON gives it back."""
    import json

    return json.loads(result.to_json())


def _rendered(evidence: Evidence, again: AuditRecord | GateResult) -> Iterator[Problem]:
    same_code = evidence.manifest.get("code") == code_digest()
    absent = frozenset() if same_code else _not_written(evidence)
    for name, text in render(again):
        path = evidence.directory / name
        if name in absent:
            continue
        if isinstance(text, Exception):
            yield Problem(Code.RENDERED, name, f"the record cannot be rendered: {text!r}")
        elif not path.is_file():
            yield Problem(Code.MISSING_FILE, name, "not there")
        elif path.read_bytes() != _encoded(text) and same_code:
            yield Problem(Code.RENDERED, name, "not what record and tables give")


def _not_written(evidence: Evidence) -> frozenset[str]:
    """Files that the version that wrote this evidence did not have: its manifest lists none."""
    listed = NOT_IN_EARLIER_GATES & set(evidence.manifest.get("files", ()))
    return frozenset() if evidence.kind == "audit" or listed else NOT_IN_EARLIER_GATES


def _encoded(text: str) -> bytes:
    """A text as bytes; one that UTF-8 does not hold was never written."""
    return text.encode("utf-8", "surrogatepass")


def render(result: AuditRecord | GateResult) -> Iterator[tuple[str, str | Exception]]:
    """Yield every rendered file's name and text; the error of one that an edited record breaks."""
    made: list[tuple[str, Any]]
    made = list(RENDERED_GATE if isinstance(result, GateResult) else RENDERED)
    for name, renderer in made:
        try:
            yield name, renderer(result)
        except (jinja2.TemplateError, LookupError, TypeError, ValueError, AttributeError) as error:
            yield name, error


def differences(recorded: Any, found: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the place of every value that is not the same, and both values in words."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in dict.fromkeys((*recorded, *found)):
            where = f"{place}.{key}" if place else str(key)
            if key not in recorded or key not in found:
                missing = "missing" if key not in recorded else "not given by the tables"
                yield where, missing
            else:
                yield from differences(recorded[key], found[key], where)
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for number, pair in enumerate(zip(recorded, found, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    # repr, so that True is not 1 and -0.0 is not 0.0.
    elif repr(recorded) != repr(found):
        yield place, f"{recorded!r}, but the tables give {found!r}"


def check_certificates(evidence: Evidence) -> Iterator[Problem]:
    """Each certificate's class follows from its gaps; each class has as many as were counted."""
    policy = recorded_policy(evidence.record, evidence.name)
    histograms = Histograms(evidence.tables["histograms"])
    held: dict[tuple[str, int], Counter[str]] = {}
    for number, certificate in enumerate(evidence.tables["swaps"].to_pylist()):
        where = f"swaps.parquet: row {number}"
        text = _certificate(certificate)
        if text is None and certificate["set_class"] not in classes_of(certificate, policy):
            allowed = " or ".join(classes_of(certificate, policy))
            text = f"{certificate['set_class']}, but its gap makes it {allowed}"
        if text is not None:
            yield Problem(Code.CERTIFICATE, where, text)
        place = (certificate["bank"], certificate["width"])
        held.setdefault(place, Counter())[certificate["set_class"]] += certificate["replicas"]
    for bank, width in dict.fromkeys((*histograms.places(), *held)):
        if width is None:
            continue
        counted = histograms.named(bank, width, "set_class")
        mine = held.get((bank, width), Counter())
        left_out = histograms.named(bank, width, "gate")["left_out"]
        for kind in SetClass:
            missing = counted[kind] - mine[kind]
            if kind not in _SAME_SET and (missing < 0 or (missing and not left_out)):
                text = (
                    f"{mine[kind]:,} rows have a certificate of {kind}, {counted[kind]:,} counted"
                )
                yield Problem(Code.CERTIFICATE, f"{bank} at width {width}", text)


def _certificate(certificate: Mapping[str, Any]) -> str | None:
    dropped, added = certificate["dropped"], certificate["added"]
    if not dropped or len(dropped) != len(added):
        return f"drops {len(dropped)} experts and adds {len(added)}"
    if (certificate["gap_ulp"] is None) != (certificate["gap_abs"] is None):
        return "one gap is defined and the other is not"
    return None


def check_counts(evidence: Evidence) -> Iterator[Problem]:
    """Counts that must agree whatever the audit saw."""
    histograms = Histograms(evidence.tables["histograms"])
    units = {bank["name"]: bank["independence_unit"] for bank in evidence.record["banks"]}
    rows: dict[tuple[str, int], set[int]] = {}
    for item in evidence.tables["swaps"].select(["bank", "width", "row"]).to_pylist():
        rows.setdefault((item["bank"], item["width"]), set()).add(item["row"])
    for bank, width in histograms.places():
        where = f"histograms.parquet: {bank}" + ("" if width is None else f" at width {width}")
        for text in (*_place(histograms, bank, width), *group_problems(histograms, bank, width)):
            yield Problem(Code.COUNTS, where, text)
        differing = len(rows.get((bank, width or 0), ()))
        for text in _units(histograms, bank, width, units.get(bank), differing):
            yield Problem(Code.COUNTS, where, text)
        if width is None:
            for text in (*_boundary(histograms, bank), *_all_widths(histograms, bank)):
                yield Problem(Code.COUNTS, where, text)
    yield from _coverage(evidence, histograms)
    if evidence.kind == "audit":
        yield from _values(evidence)
        yield from _row_errors(evidence, histograms)


def _place(histograms: Histograms, bank: str, width: int | None) -> Iterator[str]:
    classes = histograms.named(bank, width, "set_class")
    sample = histograms.named(bank, width, "sample")
    if classes.total() != sample["rows"]:
        yield f"{classes.total():,} rows have a class, {sample['rows']:,} were compared"
    rate = histograms.named(bank, width, "rate_sample")
    if rate and any(rate[key] != sample[key] for key in ("units", "differing_units")):
        yield "the rows that bound the rate are not the rows compared"
    differing = sum(n for kind, n in classes.items() if kind not in _SAME_SET)
    equal = histograms.named(bank, width, "bits_equal")
    if not set(equal.values()) <= {0, 1}:
        yield "bits are equal or not, and no number of times"
    if equal["ids"] and (differing or classes[SetClass.REORDERED]):
        yield "ids are bit-equal, and rows differ"
    bins = histograms.steps(bank, width, "weight_ulp")
    for item in histograms.lines(bank, width, "worst_weight"):
        steps = item["steps"]
        if item["count"] != 1:
            yield f"{item['count']:,} rows are the first with the largest distance"
        if steps is None or not bins[steps if steps <= EXACT_BINS else 1 << steps.bit_length() - 1]:
            yield f"no weight is in the bin of the largest distance, {steps} FP32 ULP"


def _units(
    histograms: Histograms, bank: str, width: int | None, unit: str | None, differing: int
) -> Iterator[str]:
    """Where each row is a unit, the units that differ are the rows with a certificate."""
    sample = histograms.named(bank, width, "sample")
    unclear = histograms.named(bank, width, "set_class")[SetClass.INVALID]
    unclear += histograms.named(bank, width, "gate")["left_out"]
    if unit != "row" or width is None or unclear:
        return
    if sample["differing_units"] != differing:
        yield f"{sample['differing_units']:,} units differ, {differing:,} rows have a certificate"
    if sample and sample["units"] != sample["unique_rows"]:
        yield f"{sample['units']:,} units, {sample['unique_rows']:,} rows that are one each"


def _boundary(histograms: Histograms, bank: str) -> Iterator[str]:
    if any(item["count"] != 1 for item in histograms.lines(bank, None, "independence_unit")):
        yield "the independence unit is not counted once"
    counts = histograms.named(bank, None, "boundary")
    gaps = histograms.steps(bank, None, "boundary_ulp")
    if counts["rows"] != gaps.total() + counts["undefined"]:
        yield f"{counts['rows']:,} boundary gaps, {gaps.total():,} in bins"
    for key, count in counts.items():
        limit = key.removeprefix("at_most_")
        if not limit.isdecimal():
            continue
        # No gap has twenty digits: a longer limit is above all of them.
        most = int(limit) if len(limit) < 20 else max(gaps, default=0)
        if count != sum(n for gap, n in gaps.items() if gap <= most):
            yield f"{count:,} boundary gaps are at most {limit[:20]}, and not as many in the bins"


def _all_widths(histograms: Histograms, bank: str) -> Iterator[str]:
    """A gate counts a bank at all widths too."""
    if not histograms.named(bank, None, "sample"):
        return
    widths = [width for name, width in histograms.places() if name == bank and width is not None]
    for metric in _ADDITIVE:
        whole = Counter[Any](histograms.named(bank, None, metric))
        whole.update(histograms.steps(bank, None, metric))
        parts: Counter[Any] = Counter()
        for width in widths:
            parts.update(histograms.named(bank, width, metric))
            parts.update(histograms.steps(bank, width, metric))
        if whole != parts:
            yield f"{metric} over all widths is not the sum of the widths"


def _coverage(evidence: Evidence, histograms: Histograms) -> Iterator[Problem]:
    """What was run has counts, and what was not has none; banks stand in one order."""
    # As the verdict reads them: a field that is left out has its default.
    coverage = recorded_facts(evidence.record, evidence.name).coverage
    ran = {(item.bank, item.width) for item in coverage if item.ran}
    for item in coverage:
        if item.ran == bool(item.reason):
            text = "a reason stands where, and only where, it was not run"
            yield Problem(Code.COUNTS, f"{item.bank} at width {item.width}", text)
    counted = {place for place in histograms.places() if place[1] is not None}
    for bank, width in sorted(ran ^ counted, key=str):
        text = "told as run, and nothing was counted"
        if (bank, width) in counted:
            text = "counted, and not told as run"
        yield Problem(Code.COUNTS, f"{bank} at width {width}", text)
    named = [bank["name"] for bank in evidence.record["banks"]]
    order = [bank for bank in dict.fromkeys(item.bank for item in coverage) if bank in named]
    if order != named:
        text = "in another order than they were run in"
        yield Problem(Code.BANKS_SWAPPED, f"{evidence.kind}.json: banks", text)


def _values(evidence: Evidence) -> Iterator[Problem]:
    for number, row in enumerate(evidence.tables["values"].to_pylist()):
        squares = row["error_square"], row["reference_square"]
        if min(squares) < 0.0 or row["relative_rms"] != relative_rms(*squares):
            where = f"values.parquet: row {number}"
            yield Problem(Code.COUNTS, where, "its relative RMS is not that of its squares")


def _row_errors(evidence: Evidence, histograms: Histograms) -> Iterator[Problem]:
    """Rows told by the smaller error are the rows of the triangle."""
    sides: dict[tuple[str, int, str], list[int]] = {}
    for row in evidence.tables["values"].to_pylist():
        if row["rank"] is None and row["pair"] != "candidate_baseline":
            sides.setdefault((row["bank"], row["width"], row["tensor"]), []).append(row["rows"])
    rows = {place: max(found) for place, found in sides.items() if len(found) == 2}
    told: Counter[tuple[str, int, str]] = Counter()
    for bank, width in histograms.places():
        for key, count in histograms.named(bank, width, "row_error").items():
            told[bank, width or 0, key.partition("/")[0]] += count
    for place in dict.fromkeys((*rows, *told)):
        if told[place] != rows.get(place, 0):
            bank, width, tensor = place
            text = f"{tensor} has {told[place]:,} rows by the smaller error, and others in values"
            yield Problem(Code.COUNTS, f"{bank} at width {width}", text)
