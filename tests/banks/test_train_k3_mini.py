"""The k3-mini recipe, in a size of seconds: it trains, keeps documents apart and records them."""

from pathlib import Path

import numpy as np
import pytest
import torch

import neartie
from neartie.banks.errors import InputError
from neartie.banks.recipes.k3_mini_corpus import END, default_paths, read_corpus
from neartie.banks.recipes.k3_mini_model import TINY, K3Mini
from neartie.banks.recipes.train_k3_mini import Plan, main, make

pytestmark = pytest.mark.usefixtures("one_thread")

PLAN = Plan(steps=8, batch=2, rows=25)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred different documents from a grammar that a model learns at once."""
    place = tmp_path_factory.mktemp("text")
    for number in range(120):
        words = [f"the {number} of {other} is the {number * other}\n" for other in range(8)]
        (place / f"{number}.txt").write_text("".join(words), encoding="utf-8")
    return place


def test_the_recipe_makes_banks_that_are_audited(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "k3-mini"
    figures = make(out, [text], TINY, PLAN, "cpu")
    assert figures["final_loss"] < figures["first_loss"]
    assert figures["rows"] == {0: 20, 1: 20}
    # The load moved the biases.
    assert all(low < 0 < high for low, high in figures["bias"])
    for layer in range(2):
        bank = neartie.open_bank(out / f"layer{layer}")
        g = bank.geometry
        assert (g.experts, g.top_k, g.hidden, g.latent) == (32, 4, 32, 16)
        assert (bank.name, bank.stage) == (f"k3-mini/layer{layer}", "hidden")
        assert bank.independence_unit == "doc"
        assert dict(bank.recorded_widths) == {"model": 20}
        keys = bank.read(0, 20).keys
        assert len(set(keys["doc"].tolist())) == 20
        assert bank.provenance["corpus"]["source"].startswith("120 documents")
        assert "router_weight" in bank.weights
        assert bank.weights["latent_down_weight"].shape == (16, 32)
    result = neartie.run_audit(
        str(out), baseline="general:select=hf", candidate="recorded:name=model", rows=[20],
        ranks=2, gate=False,
    )  # fmt: skip
    assert result.record["widths"][0]["counts"]["identical"] == 2 * 20 * 2


def test_held_out_documents_are_not_trained_on(text: Path) -> None:
    corpus = read_corpus([text, text / "0.txt"], shortest=33)
    assert "120 documents" in corpus.source
    stream = bytes(token for token in corpus.training.tolist() if token != END)
    for held in corpus.held_out:
        assert held[0] == END
        assert bytes(held[1:].tolist()) not in stream
    assert 15 < len(corpus.held_out) < 50
    whole = sum(len(path.read_bytes()) + 1 for path in text.iterdir())
    assert whole == len(corpus.training) + sum(map(len, corpus.held_out))
    assert default_paths()[0].joinpath("argparse.py").is_file()


def test_the_model_routes_as_its_rule_says() -> None:
    torch.manual_seed(1)
    gate = K3Mini(TINY).eval().gates()[0]
    with torch.no_grad():
        gate.bias.copy_(torch.randn(32) / 8)
        x = torch.randn(7, 32).bfloat16()
        logits, weights, ids = gate(x)
    scores = 1 / (1 + np.exp(-logits.numpy().astype(np.float64)))
    expected = np.argsort(-(scores + gate.bias.numpy()), axis=-1)[:, :4]
    assert (np.sort(ids.numpy(), -1) == np.sort(expected, -1)).all()
    chosen = np.take_along_axis(scores, ids.numpy(), -1)
    # A function within 4 u, a sum of 4, a quotient.
    np.testing.assert_allclose(weights, chosen / chosen.sum(-1, keepdims=True), rtol=10 * 2.0**-24)


def test_bad_input_is_one_line(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "out"), "--tiny", "--text", str(tmp_path / "none")]) == 2
    assert "but should be a file or folder [k3-mini recipe]" in capsys.readouterr().err
    with pytest.raises(InputError, match="1 documents"):
        read_corpus([text / "0.txt"], 33)
    assert not (tmp_path / "out").exists()
