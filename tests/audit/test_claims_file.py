"""Claims files: one clear error for a bad one, and the shipped one is whole."""

from pathlib import Path

import pytest

from neartie.audit.claims.check import Answer, check_claims
from neartie.audit.claims.load import load_claims
from neartie.banks.errors import InputError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = [", "claims="),
        ("name = 'x'", "claim=nothing, but should be present"),
        ("name = 'x'\nclaim = []", "claim=[], but should be a list of at least 1"),
        ("name = 'x'\nclaim = 3", "claim=3, but should be a list"),
        ("id = 'A b'", "claim.0.id=A b, but should be lower-case letters, digits and hyphens"),
        ("id = 'a\\n'", "claim.0.id=a\\n, but should be lower-case letters"),
        ("+scope = { widths = [] }", "claim.0.scope.widths=[], but should be a list of at least 1"),
        ("+scope = 3", "claim.0.scope=3, but should be a table"),
        ("name = 'x'\nclaims = 3", "claim=nothing, but should be present"),
        ("[[claim]]\nid = 'a'", "name=nothing, but should be present"),
        ("+metrik = 'x'", "claim.0.metrik=x, but should be a known key: id, text, source"),
        ("-id", "claim.0.id=nothing, but should be present"),
        ("-text", "claim.0.text=nothing, but should be present"),
        ("-metric", "claim.0=a table, but should be claim c with metric: kind audit needs it"),
        ("-number", "claim.0=a table, but should be claim c with"),
        ("metric = 'relative'", "c.metric=relative, but should be one of relative_rms, "),
        ("-tensor", "c.tensor=nothing, but should be given for relative_rms"),
        ("+path = 'route'", "c.path=route, but should be left out for relative_rms"),
        ("kind = 'gate'", "c.kind=gate, but should be audit, which relative_rms is a figure of"),
        ("kind = 'any'", "c.kind=any, but should be audit, which"),
        ("kind = 'none'", "claim.0=a table, but should be claim c with needed: kind none needs it"),
        ("number = 'closer'", "claim.0=a table, but should be claim c with"),
        ("number = nan", "claim.0.number=NaN, but should be a finite number or a word"),
        ("relation = 'is'", "claim.0=a table, but should be claim c with"),
        ("relation = 'count'", "claim.0=a table, but should be claim c with"),
        ("relation = '~'", "claim.0.relation=~, but should be '<='"),
        ("+set_class = 'swap'", "claim.0.set_class=swap, but should be one of identical"),
        (
            "+tolerance = { relative = 0.1, meaning = 'm' }",
            "claim.0=a table, but should be claim c without",
        ),
        ("+tolerance = { relative = -0.1, meaning = 'm' }", "claim.0.tolerance.relative=-0.1, but"),
        ("+tolerance = { relative = true, meaning = 'm' }", "claim.0.tolerance.relative=True, but"),
        ("+tolerance = { relative = 0.1 }", "claim.0.tolerance.meaning=nothing, but should be"),
        (
            "+tolerance = { meaning = 'm' }",
            "claim.0.tolerance=a table, but should be either relative or absolute",
        ),
        ("+scope = { width = [9] }", "claim.0.scope.width=[9], but should be a known key: geom"),
        ("+needs = { banks = 0 }", "claim.0.needs.banks=0, but should be"),
        ("twice", "file=a table, but should be each id once, and c is there twice"),
    ],
)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    good = {
        "id": "'c'", "text": "'t'", "source": "'s'", "kind": "'audit'", "metric": "'relative_rms'",
        "tensor": "'latent'", "pair": "'candidate_baseline'", "relation": "'<'", "number": "1e-3",
    }  # fmt: skip
    if text.startswith("-"):
        del good[text[1:]]
    elif "[[" not in text and not text.startswith("name") and text != "twice":
        key, _, value = text.removeprefix("+").partition(" = ")
        good[key] = value
    block = "[[claim]]\n" + "".join(f"{key} = {value}\n" for key, value in good.items())
    whole = text if text.startswith(("name", "[[")) else f"name = 'x'\n{block}"
    file = tmp_path / "claims.toml"
    file.write_text(whole + (block if text == "twice" else ""))
    with pytest.raises(InputError) as error:
        load_claims(file)
    assert str(error.value).startswith(message), str(error.value)
    assert str(error.value).isprintable()


def test_an_unknown_name_lists_the_shipped_files() -> None:
    with pytest.raises(InputError, match="claims=route, but should be a TOML file or one of route"):
        load_claims("route")


def test_the_shipped_file_answers_without_evidence() -> None:
    result = check_claims(load_claims("route-9-20"), [])
    by_id = {one.id: one for one in result.answers}
    supported = {one.id for one in result.answers if one.answer is Answer.SUPPORTED}
    assert supported == {"rows-1-to-20", "rows-21", "row-blocks-at-8", "row-blocks-elsewhere"}
    assert {one.code for one in result.answers} == {"", "not_run", "not_measured"}
    assert by_id["pull-transport"].code == "not_run"
    assert all(one.needed and one.reason for one in result.answers if not one.figures)
    assert result.exit_status == 3
