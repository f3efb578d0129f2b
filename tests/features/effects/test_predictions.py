"""Log-probabilities and divergences of changed runs, from their logits, term by term; the
vocabulary by portions.
"""

from __future__ import annotations

import math
from pathlib import Path
from time import process_time
from unittest.mock import Mock

import numpy as np
import pytest
from asking import ask
from msgspec import UNSET
from msgspec.structs import replace
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

import attncli
from attncli.draw.view import View
from attncli.errors import LimitError
from attncli.features.effects import measures
from attncli.features.effects.ablation import Removal, RemovalResult, remove
from attncli.features.effects.effect_answer import _beside_random, ablate_sentences
from attncli.features.effects.measures import MeasureRequest, Meter
from attncli.features.effects.screen import patch_sentences
from attncli.features.effects.sweep import SweepSize
from attncli.mechanism.context import KnockOut, Zero
from attncli.mechanism.spec import HeadSelection
from attncli.models import run
from attncli.models.model import Model

IDS = (7, 3, 3, 50, 11, 28, 5)
AT, TARGET = 4, 19


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES["gpt2 with head"], tmp_path_factory.mktemp("gpt2"))


def log_probabilities(model: Model, layer: int | None, head: int) -> np.ndarray:
    """log p of every next token at every position, [token, vocabulary], of a run without that head;
    None for none.
    """
    changes = {} if layer is None else {(layer, "self"): (Zero((head,)),)}
    tokens = model.tokenizer.ids_to_tokens(IDS)
    *_, last = model.trace(tokens, interventions=changes)
    logits = np.asarray(model.backend.numpy(model.logits(last.after)), np.float64)
    return np.array(
        [[value - math.log(sum(map(math.exp, row))) for value in row] for row in logits.tolist()]
    )


def removed(model: Model, asked: MeasureRequest, memory: int | None = None) -> RemovalResult:
    removal = Removal(HeadSelection(), baseline="none")
    return remove(model, model.tokenizer.ids_to_tokens(IDS), removal, asked, memory=memory)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_what_is_measured_of_a_prediction(
    folder: Path, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        measures, "LOGITS_AT_ONCE", 40
    )  # 61 entries: several portions, of the vocabulary too
    monkeypatch.setattr(measures, "VECTORS_AT_ONCE", 5)
    model = attncli.load(folder, backend=library, dtype="float64")
    at = removed(model, MeasureRequest(("logprob", "kl"), (AT,), AT, TARGET)).effects
    every = removed(
        model, MeasureRequest(("logprob",), (AT,), AT, every=True, following=IDS[1:])
    ).effects
    answer = IDS[AT + 1 :]  # two tokens: the sum of what stands for each where it comes
    both = removed(
        model, MeasureRequest(("logprob",), (AT,), AT, answer[0], following=answer)
    ).effects
    own = log_probabilities(model, None, 0)
    for one in both:
        other = log_probabilities(model, one.place.layer, one.place.head)
        gain = sum((other - own)[AT + step, number] for step, number in enumerate(answer))
        assert one.readings["logprob"] == pytest.approx(gain, abs=1e-10)
    follows = (range(len(IDS) - 1), list(IDS[1:]))
    assert len(at) == len(every) == sum(block.attention.heads for block in model.spec.blocks)
    for one, mean in zip(at, every, strict=True):
        other = log_probabilities(model, one.place.layer, one.place.head)
        assert one.readings["logprob"] == pytest.approx(
            other[AT, TARGET] - own[AT, TARGET], abs=1e-10
        )
        assert one.readings["kl"] == pytest.approx(
            (np.exp(own[AT]) * (own[AT] - other[AT])).sum(), abs=1e-10
        )
        assert mean.readings["logprob"] == pytest.approx(
            (other[follows] - own[follows]).mean(), abs=1e-10
        )
    assert max(abs(effect.readings["logprob"]) for effect in every) > 1e-3


def test_predictions_take_the_memory_of_an_output_head(folder: Path) -> None:
    model = attncli.load(folder, dtype="float64")
    without, along = (
        SweepSize(model.spec, len(IDS), "float64", predicts).least_bytes
        for predicts in (False, True)
    )
    assert along - without > model.spec.vocabulary * model.spec.d_model * 8
    removed(model, MeasureRequest(("vector",), (AT,), AT), without)
    with pytest.raises(LimitError, match="memory"):
        removed(model, MeasureRequest(("kl",), (AT,), AT), without)
    assert len(removed(model, MeasureRequest(("kl",), (AT,), AT), along).effects) > 1


def test_the_mean_of_many_tokens_takes_no_time_for_each_pair_of_them() -> None:
    model, many = attncli.load(seed=0), 20_000
    begun = process_time()
    Meter(
        model,
        model.backend,
        MeasureRequest(("vector",), tuple(range(many)), 0),
        np.zeros((many, 64), np.float32),
        0,
    )
    assert process_time() - begun < 1.0


@pytest.mark.parametrize("link", [None, ("#1", "#0")])
def test_what_comes_next_is_that_of_runs_of_their_own(
    folder: Path, link: tuple[str, str] | None
) -> None:
    """Measured after the last token, where the sweep's vectors are taken, or at a link's query."""
    model = attncli.load(folder, dtype="float64")
    tokens = model.tokenizer.ids_to_tokens(IDS)
    document = attncli.ablate(model, "text", tokens=tokens, link=link)
    told = document.predictions
    first = document.effects[0]

    def probability(heads: dict[int, tuple[int, ...]]) -> float:
        changes = {}
        for layer, numbers in heads.items():
            change = Zero(numbers) if link is None else KnockOut(numbers, (1,), (0,))
            changes[layer, "self"] = (change,)
        *_, last = model.trace(tokens, interventions=changes)
        row = np.asarray(model.backend.numpy(model.logits(last.after)), np.float64)[-1]
        return float((np.exp(row) / np.exp(row).sum())[told.target.id])

    every = {
        layer: tuple(range(block.attention.heads)) for layer, block in enumerate(model.spec.blocks)
    }
    assert told.own.probability == pytest.approx(probability({}), abs=1e-12)
    assert told.without.probability == pytest.approx(
        probability({first.layer: (first.head,)}), abs=1e-12
    )
    assert told.together.probability == pytest.approx(probability(every), abs=1e-12)
    assert told.without.probability != told.own.probability != told.together.probability


def test_parts_side_by_side_are_one_after_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = attncli.load(folder, backend="numpy", dtype="float64")
    asked = MeasureRequest(("vector", "kl"), (AT,), AT)
    alone = removed(model, asked)
    monkeypatch.setattr(run, "cores", lambda: 2)
    monkeypatch.setattr(run, "PART_ROWS", 1)
    monkeypatch.setattr(run, "share_work", shared := Mock(wraps=run.share_work))
    beside = removed(model, asked)
    assert shared.call_count
    for one, other in zip(alone.effects, beside.effects, strict=True):
        assert one.place == other.place
        assert one.readings == pytest.approx(other.readings, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_each_head_has_the_probability_of_a_run_without_it(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "LOGITS_AT_ONCE", 1000)  # several portions
    model = attncli.load(small_gpt2(tmp_path / "gpt2"), backend=library, dtype="float64")
    text = "the cat sat on the mat"

    def probabilities(changes: dict[tuple[int, str], tuple[Zero, ...]]) -> np.ndarray:
        """Of every next token after the text, [vocabulary], in a run with these changes."""
        *_, last = model.trace(text, interventions=changes)
        logits = np.asarray(model.backend.numpy(model.logits(last.after[-1:])), np.float64)[0]
        return np.exp(logits) / np.exp(logits).sum()

    target = int(probabilities({}).argmax())
    document = attncli.ablate(model, text)  # of vectors: nothing else reads logits
    rows = document.rows()
    assert len(rows) == len(document.effects) + 1
    for row in rows[:-1]:
        without = probabilities({(row["layer"], "self"): (Zero((row["head"],)),)})
        assert row["probability"] == pytest.approx(without[target], abs=1e-10)
    assert rows[-1]["probability"] == document.predictions.together.probability
    # measured at another token, effects tell nothing of what comes after the text
    assert "probability" not in attncli.ablate(model, text, query="cat").rows()[0]


def test_the_following_tokens_of_a_model_without_a_head_are_refused() -> None:
    for options in ((), ("--every",)):
        answer = ask("ablate", "the cat sat", "--measure", "logprob", *options)
        assert answer.code == 4
        assert "predicts no next token" in answer.err


def test_beside_a_difference_random_changes_are_measured_by_the_probability(folder: Path) -> None:
    """The same random changes as of a log-probability: the probability is told of both."""
    model = attncli.load(folder, dtype="float64")
    tokens = model.tokenizer.ids_to_tokens(IDS)
    names = {"tokens": tokens, "target": "id:19", "layers": 1, "heads": 0}
    alone = attncli.ablate(model, "text", measures=("logprob",), **names)
    document = attncli.ablate(model, "text", versus="id:7", **names)
    assert alone.effects[0].random.logprob
    assert document.predictions.random == pytest.approx(alone.effects[0].random.logprob, abs=1e-12)
    assert alone.predictions.random is UNSET
    assert document.effects[0].random.logprob is UNSET
    none = attncli.ablate(model, "text", versus="id:7", baseline="none", **names)
    assert none.predictions.random is UNSET


@pytest.mark.parametrize(
    ("random", "said"), [(-1.0, "1.1 times what a random change"), (-0.1, None)]
)
def test_a_random_change_of_the_probability_is_told_beside_a_difference(
    folder: Path, random: float, said: str | None
) -> None:
    model = attncli.load(folder, dtype="float64")
    tokens = model.tokenizer.ids_to_tokens(IDS)
    document = attncli.ablate(model, "text", tokens=tokens, target="id:19", versus="id:7")
    predictions = document.predictions
    predictions = replace(
        predictions,
        own=replace(predictions.own, probability=0.3),
        without=replace(predictions.without, probability=0.3 * math.exp(-1.1)),
        random=random,
    )
    text = " ".join(ablate_sentences(replace(document, predictions=predictions), View(width=400)))
    assert ("nats)." in text) == (said is not None)
    assert said is None or f"{said} of the same size makes ({random:.3f} nats)" in text
    assert f"Without the {len(document.effects)} heads at once it" in text


@pytest.mark.parametrize(
    ("clean", "corrupt", "patched", "said"),
    [
        (0.33, 0.38, 0.40, 'Yet the probability of "{}" moves away from that after the clean text'),
        (0.33, 0.38, 0.38, 'Yet by the probability of "{}" it brings back nothing.'),
        (0.33, 0.38, 0.35, None),
        (0.77, 0.001, 0.75, None),
    ],
)
def test_a_share_that_the_probability_gainsays_is_told(
    folder: Path, clean: float, corrupt: float, patched: float, said: str | None
) -> None:
    model = attncli.load(folder, dtype="float64")
    texts = [model.tokenizer.ids_to_tokens(ids) for ids in (IDS, (*IDS[:2], 19, *IDS[3:]))]
    document = attncli.patch(model, "a", "b", tokens=(texts[0], texts[1]))
    first = replace(document.effects[0], recovered=0.56)
    runs = {
        name: replace(getattr(document.predictions, name), probability=share)
        for name, share in (("clean", clean), ("corrupt", corrupt), ("patched", patched))
    }
    for is_first in (True, False):
        top = document.predictions.clean.top
        other = top if is_first else top[1:]
        runs["corrupt"] = replace(runs["corrupt"], top=other)
        whole = replace(
            document, effects=[first], predictions=replace(document.predictions, **runs)
        )
        text = " ".join(patch_sentences(whole, View(width=400)))
        assert ("Yet " in text) == (said is not None)
        name = document.predictions.target.text
        assert said is None or said.format(name) in text
        assert (f'"{name}" comes first after both texts' in text) == is_first


def test_an_effect_of_the_size_of_a_random_change_is_not_told_as_a_multiple() -> None:
    view = View()
    assert "about as much" in _beside_random(0.0260, 0.0250, "logprob", view)[0]
    assert "1.5 times" in _beside_random(0.03, 0.02, "logprob", view)[0]
    assert "less than" in _beside_random(0.01, 0.02, "logprob", view)[0]
    assert _beside_random(0.1, 0.02, "logprob", view) == []
