"""The next word: against plain products, layer by layer, and without heads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from msgspec.structs import replace
from small_gpt2 import small_gpt2

import attncli
from attncli.draw.view import View
from attncli.features.next.screen import next_sentences
from attncli.mechanism.context import Zero
from attncli.models.aliases import local_folder
from attncli.models.model import Model

TEXT = "it was too the"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("next") / "gpt2", layers=4)


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return attncli.load(folder, dtype="float64")


def softmax(x: np.ndarray) -> np.ndarray:
    shares = np.exp(x - x.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def shares_of(model: Model, **how: object) -> np.ndarray:
    """[layer, token, vocabulary]: what each layer would say after each token."""
    return np.stack(
        [softmax(np.asarray(model.logits(trace.after))) for trace in model.trace(TEXT, **how)]
    )


def test_probabilities_are_the_softmax_of_the_logits(model: Model) -> None:
    known = shares_of(model)
    document = attncli.next_word(model, TEXT, top=7, target="id:9", each_token=True)
    last = known[-1, -1]
    order = np.argsort(-last)[:7]
    assert [row.token.id for row in document.top] == order.tolist()
    assert np.allclose([row.probability for row in document.top], last[order], atol=1e-12)
    assert document.entropy == pytest.approx(-(last * np.log(last)).sum(), abs=1e-12)
    assert document.target.probability == pytest.approx(last[9], abs=1e-12)
    assert document.target.rank == (last > last[9]).sum() + 1
    tokens = model.encode(TEXT)
    for place, row in enumerate(document.following):
        follows = tokens[place + 1].id
        assert row.token == place + 1
        assert row.probability == pytest.approx(known[-1, place, follows], abs=1e-12)


def test_layers_are_told_where_the_first_place_changes(model: Model) -> None:
    counts = []
    for place in range(len(model.encode(TEXT))):
        known = shares_of(model)[:, place]
        first = known.argmax(-1).tolist()
        changes = [at for at, entry in enumerate(first) if at == 0 or entry != first[at - 1]]
        document = attncli.next_word(model, TEXT, query=f"#{place}")
        assert [row.layer for row in document.layers] == changes
        assert [row.token.id for row in document.layers] == [first[at] for at in changes]
        counts.append(len(changes))
    assert max(counts) > 1


def test_without_heads_is_the_run_in_which_they_are_zero(model: Model) -> None:
    changes = {(0, "self"): (Zero((1, 2)),), (2, "self"): (Zero((0,)),)}
    known = shares_of(model, interventions=changes)[-1, -1]
    heads = [(0, 1), (0, 2), (2, 0)]
    document = attncli.next_word(model, TEXT, without=heads)
    entry = document.target.token.id
    assert document.without.target.probability == pytest.approx(known[entry], abs=1e-12)
    own = document.target.probability
    assert abs(document.without.target.probability - own) > 1e-4  # the heads matter


def test_the_command_says_it(folder: Path) -> None:
    line = ("next", TEXT, "--model", str(folder))
    document = ask(*line, "--json").json
    assert len(document["top"]) == 5
    assert len(ask(*line, "--top", "3", "--json").json["top"]) == 3
    shown = ask(*line, "--without", "L0H1", "--each").out
    assert "The likeliest next token is" in shown
    assert "Without layer 0 head 1" in shown
    assert "The least likely token of the text" in shown
    assert ask("next", TEXT, "--model", "minilm").code == 4
    assert ask(*line, "--without", "L9H0").code == 3


def test_humpty_dumpty_sat_on_a_wall() -> None:
    if (folder := local_folder("gemma3")) is None:
        pytest.skip("gemma3 is not installed")
    document = attncli.next_word(attncli.load(folder), "Humpty Dumpty sat on a")
    assert document.target.token.text.strip() == "wall"
    assert document.target.probability == pytest.approx(0.83, abs=0.02)


def test_of_one_token_it_is_told_that_none_stands_after_another(folder: Path) -> None:
    document = attncli.next_word(attncli.load(folder), "it", tokens=None, each_token=True)
    alone = replace(document, tokens=document.tokens[:1], following=[])
    assert "none stands after another" in " ".join(next_sentences(alone, View(width=300)))
    assert "none stands after" not in " ".join(next_sentences(document, View(width=300)))


@pytest.mark.parametrize(
    ("shares", "heads", "said"),
    [
        ((0.19, 0.191), 1, 'Without layer 0 head 0, "the" stays at 19% (now'),
        ((0.19, 0.28), 1, 'Without layer 0 head 0, "the" has 28% (now'),
        ((0.19, 0.28), 3, 'Without layer 0 head 0, layer 1 head 1 and layer 2 head 2, "the" has'),
    ],
)
def test_what_heads_taken_away_change_is_told(
    model: Model, shares: tuple[float, float], heads: int, said: str
) -> None:
    places = [(number, number) for number in range(heads)]
    document = attncli.next_word(model, TEXT, without=places, target="the")
    before, after = shares
    without = document.without
    changed = replace(
        document,
        target=replace(document.target, probability=before),
        without=replace(without, target=replace(without.target, probability=after)),
    )
    assert said in " ".join(next_sentences(changed, View(width=400)))
