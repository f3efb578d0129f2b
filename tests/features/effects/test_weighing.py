"""Attention on a region weighed: against a loop over rows, against hooks on transformers, and what
a dose curve holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from counting import tokens_run
from hooked_transformers import Weighed, last_vectors
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import InputError, UsageError
from attncli.features.effects.weighing import Weighing, find_weighing
from attncli.features.next import doses
from attncli.features.next.doses import dose_passes
from attncli.models.estimate import CostEstimate
from attncli.models.model import Model
from attncli.models.passes import seconds_of_passes
from attncli.models.run import finish
from attncli.models.verify import reference_model

FAMILIES = (
    "llama", "gpt2", "gemma2", "gemma3_text", "qwen2", "qwen3", "gpt_neox", "opt post-norm", "mistral", "gpt_oss",
    "falcon alibi", "bert",
)  # fmt: skip
"""Grouped queries, windows, soft caps, norms after and within, parallel blocks, biases, sinks."""
IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13)
TEXT = "it was too the"
KEYS = (1, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("weighing") / "gpt2")


@pytest.fixture(scope="module", params=["numpy", "torch"])
def model(folder: Path, request: pytest.FixtureRequest) -> Model:
    return attncli.load(folder, dtype="float64", backend=request.param)


def weighed_by_hand(weights: np.ndarray, factor: float) -> np.ndarray:
    """[head, query, key]: each row with its weights on `KEYS` times the factor, scaled to sum to 1;
    a row that has nothing else stays."""
    result = weights.copy()
    for head in range(len(weights)):
        for query in range(weights.shape[1]):
            row = [
                weight * factor if key in KEYS else weight
                for key, weight in enumerate(weights[head, query].tolist())
            ]
            if sum(row) > 0:
                result[head, query] = np.asarray(row) / sum(row)
    return result


@pytest.mark.parametrize("factor", [0.0, 0.25, 4.0, 100.0])
def test_weights_are_multiplied_and_rows_scaled(model: Model, factor: float) -> None:
    weighing = Weighing("x", KEYS, factor, ((0, 1),))
    own = next(iter(model.trace(TEXT)))
    changed = next(iter(model.trace(TEXT, interventions=weighing.interventions(model.spec))))
    before, after = (np.asarray(trace.stages["weights"]) for trace in (own, changed))
    assert np.allclose(after[1], weighed_by_hand(before, factor)[1], atol=1e-12)
    assert np.array_equal(np.delete(after, 1, 0), np.delete(before, 1, 0))
    # the negative control: another factor gives others
    assert not np.allclose(after[1], weighed_by_hand(before, factor * 1.1 + 0.1)[1], atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if place % 6 == 0 else pytest.mark.thorough)
        for place, name in enumerate(FAMILIES)
    ],
)
def test_ten_families_against_transformers(name: str, tmp_path: Path) -> None:
    folder = make(CASES[name], tmp_path)
    model = attncli.load(folder, dtype="float64")
    tokens = model.tokenizer.ids_to_tokens(IDS)
    heads = min(block.attention.heads for block in model.spec.blocks)
    with reference_model(folder, both=False) as reference:
        for chosen, factor in ((list(range(heads)), 4.0), ([0], 0.3)):
            pairs = tuple((layer, head) for layer in model.spec.attending() for head in chosen)
            changes = Weighing("x", KEYS, factor, pairs).interventions(model.spec)
            *_, trace = model.trace(tokens, interventions=changes)
            outer = model.store.outer(model.backend)
            ours = np.asarray(finish(model.spec, outer, model.backend, trace.after))
            with Weighed(KEYS, chosen, factor):
                known = last_vectors(reference, IDS)
            assert np.abs(ours - known).max() < 1e-10
            # the negative control: without the weighing it is another
            assert np.abs(ours - last_vectors(reference, IDS)).max() > 1e-5


def test_blocks_of_rows_and_kept_keys_give_the_same(model: Model) -> None:
    changes = Weighing("x", KEYS, 4.0).interventions(model.spec)
    tokens = model.encode(TEXT)
    whole = [trace.after for trace in model.trace(tokens, interventions=changes)][-1]
    by_rows = [
        trace.after for trace in model.trace(tokens, keep=(), rows=2, interventions=changes)
    ][-1]
    assert np.allclose(by_rows, whole, atol=1e-12)
    past: dict = {}
    list(model.trace(tokens[:-1], past=past, interventions=changes))
    last = [trace.after for trace in model.trace(tokens[-1:], past=past, interventions=changes)][-1]
    assert np.allclose(last[-1], whole[-1], atol=1e-12)


def test_a_dose_curve_holds_exact_runs_beside_random_tokens(model: Model) -> None:
    document = attncli.next_word(model, TEXT, target="id:9", weigh="was=×3")
    assert [dose.factor for dose in document.doses] == [0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0]
    tokens = model.encode(TEXT)
    key = next(token.index for token in tokens if token.text == "was")
    assert document.weighed.keys == [key]
    for dose in document.doses:
        changes = Weighing("was", (key,), dose.factor).interventions(model.spec)
        *_, trace = model.trace(TEXT, interventions=changes)
        scores = np.asarray(model.backend.numpy(model.logits(trace.after)))[-1]
        shares = np.exp(scores - scores.max())
        assert dose.probability == pytest.approx(shares[9] / shares.sum(), abs=1e-12)
        assert dose.random_low <= dose.random <= dose.random_high
    own = next(dose for dose in document.doses if dose.factor == 1.0)
    assert own.probability == pytest.approx(document.target.probability, abs=1e-12)
    assert own.random_low == own.random_high == own.probability


def test_what_names_no_weighing_is_refused(model: Model) -> None:
    tokens = model.encode(TEXT)
    for text in ("was", "was=", "was=×101", "was=1/0", "=×2", "was=-1"):
        with pytest.raises(UsageError):
            find_weighing(text, tokens)
    with pytest.raises(InputError, match="no token"):
        find_weighing("zebra=×2", tokens)
    with pytest.raises(InputError, match="whole text"):
        find_weighing(f"#0-{len(tokens) - 1}=×2", tokens)
    assert find_weighing("was = 1/4", tokens).factor == 0.25


def test_run_and_generate_weigh_and_say_so(folder: Path) -> None:
    base = ["run", "--model", str(folder), TEXT]
    plain = ask(*base, "--json").json
    weighed = ask(*base, "--json", "--weigh", "was=×4", "--heads", "L0H1").json
    assert "weighed" not in plain
    assert weighed["weighed"] == {
        "name": "was", "keys": [2], "factor": 4.0, "heads": [{"layer": 0, "head": 1}],
    }  # fmt: skip
    own, other = (document["layers"][0]["heads"] for document in (plain, weighed))
    assert own[0] == other[0]
    assert own[1]["weights"] != other[1]["weights"]
    assert plain["next"] != weighed["next"]
    assert any("does not run so" in text for text in weighed["warnings"])
    continued = ask(*base, "--generate", "2", "--weigh", "was=×50", "--json").json
    assert continued["weighed"]["factor"] == 50.0
    assert [row["token"]["id"] for row in continued["steps"][0]["likeliest"]]
    other = ask(*base, "--generate", "2", "--json").json
    assert continued["steps"][0]["probability"] != other["steps"][0]["probability"]
    assert ask(*base, "--heads", "L0H1").code == 2
    assert ask(*base, "--weigh", "was=×4", "--html", "x.html").code == 2


def test_the_last_line_of_a_run_tells_what_comes_next(folder: Path) -> None:
    document = ask("next", "--model", str(folder), TEXT, "--json").json
    run = ask("run", "--model", str(folder), TEXT, "--json").json
    assert run["next"][0]["token"] == document["top"][0]["token"]
    assert run["next"][0]["probability"] == pytest.approx(document["top"][0]["probability"])
    assert "The likeliest next token" in ask("run", "--model", str(folder), TEXT).out
    # a run that ends before the last layer does not know
    assert "next" not in ask("run", "--model", str(folder), TEXT, "--layer", "0", "--json").json


def test_a_region_that_is_weighed_is_not_said_to_be_summed(folder: Path) -> None:
    """Each weight is multiplied: notes on sums, and on shares of regions that overlap, have no
    place; of a region that is taken out the share is told once."""
    regions = ("--region", "x=tokens:1-2", "--region", "y=tokens:2-3")
    for command in ("run", "next"):
        told = ask(command, "--model", str(folder), TEXT, *regions, "--weigh", "x=×0")
        assert told.code == 0
        assert "summed" not in told.err
        assert "shares add up" not in told.err
    assert 'Without attention on "x" in all heads (×0)' in told.out
    assert told.out.count("(×0)") == 1
    halved = ask("next", "--model", str(folder), TEXT, *regions, "--weigh", "x=×0.5").out
    assert "weighed ×0.5 in all heads" in halved
    assert "(×0)" in halved


@pytest.mark.parametrize("query", [None, "was"])
def test_the_runs_of_a_curve_are_counted_before(
    folder: Path, query: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs at each dose, of random tokens, and of what the text goes on with, token by token."""
    monkeypatch.setattr(doses, "FACTORS", (0.0, 1.0))
    model = attncli.load(folder, hold=True)
    told = []
    run = tokens_run(
        lambda: attncli.next_word(
            model, TEXT, query=query, weigh="it=×3", on_cost=lambda cost, _: told.append(cost)
        )
    )
    tokens = model.encode(TEXT)
    position = len(tokens) - 1
    if query is not None:
        position = next(token.index for token in tokens if token.text == query)
    weighing = find_weighing("it=×3", tokens)
    passes = dose_passes(model, tokens, weighing, position, masked=False)
    clean = len(tokens)
    counted = clean + sum(count.tokens_run for count in passes)
    assert run == counted * len(model.spec.blocks)
    # the negative control: a curve is far more than a run
    assert counted > 10 * clean
    alone: list[CostEstimate] = []
    attncli.next_word(model, TEXT, query=query, on_cost=lambda cost, _: alone.append(cost))
    assert told[0].seconds - alone[0].seconds == pytest.approx(seconds_of_passes(model, passes))
