"""Training against PyTorch: one step of AdamW, the loss, the forward pass; what a seed fixes; what
is refused.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch.nn import functional

from attncli.arrays.backend import numpy_backend
from attncli.arrays.gradient_backend import Variable, gradient_backend, gradients
from attncli.errors import AttnError
from attncli.features.learn.architecture import POSITIONS, Architecture, first_weights, small_model
from attncli.features.learn.compute import LearnRequest, snapshot_steps, train
from attncli.features.learn.tasks import task_class, task_names
from attncli.features.learn.tasks.own_sentence import OwnSentence
from attncli.features.learn.tasks.own_text import OwnText
from attncli.features.learn.tasks.task import even_scores, head_scores
from attncli.features.learn.training import NO_TARGET, AdamW, Trainer, cross_entropy, forward

DRAWN = np.random.default_rng(11)


def test_a_step_of_adamw_is_torchs() -> None:
    start = DRAWN.standard_normal(50)
    mine, theirs = start.copy(), torch.tensor(start, requires_grad=True)
    ours = AdamW(mine, 3e-2, decay=0.1)
    reference = torch.optim.AdamW([theirs], lr=3e-2, weight_decay=0.1)
    for _ in range(4):
        gradient = DRAWN.standard_normal(50)
        theirs.grad = torch.tensor(gradient)
        reference.step()
        ours.step(gradient)
        assert np.abs(mine - theirs.detach().numpy()).max() < 1e-12
    assert np.abs(mine - start).max() > 1e-3


def test_the_loss_is_torchs() -> None:
    scores, targets = 5 * DRAWN.standard_normal((3, 4, 6)), DRAWN.integers(0, 6, (3, 4))
    targets[0, :2] = NO_TARGET
    backend = numpy_backend("float64")
    ours = float(cross_entropy(backend, backend.array(scores), targets)[0])
    theirs = functional.cross_entropy(torch.tensor(scores.reshape(12, 6)), torch.tensor(targets.reshape(12)),
                                      ignore_index=NO_TARGET)  # fmt: skip
    assert ours == pytest.approx(float(theirs), abs=1e-12)
    nothing = cross_entropy(backend, backend.array(scores), np.full((3, 4), NO_TARGET))
    assert float(nothing[0]) == 0


TASKS = {
    "induction": lambda: task_class("induction")(),
    "lookup": lambda: task_class("lookup")(),
    "order": lambda: task_class("order")(),
    "previous": lambda: task_class("previous")(),
    "sentence": lambda: OwnSentence(("the", "cat", "sat", "on", "the", "mat"), 2, 1),
    "text": lambda: OwnText("so much depends upon a red wheel barrow glazed with rain water " * 20),
}


def test_every_task_is_found_by_its_name() -> None:
    assert tuple(TASKS) == task_names()
    assert all(task_class(name).name == name for name in task_names())
    with pytest.raises(KeyError):
        task_class("task")


@pytest.mark.parametrize("name", TASKS)
def test_texts_of_a_task(name: str) -> None:
    """They are of the length and the words that it says; a stream is the same again, and another
    one is not.
    """
    task = TASKS[name]()
    batch, again = task.draw(3, "step 1", 7), task.draw(3, "step 1", 7)
    rows = len(batch.ids)
    assert batch.ids.shape == batch.targets.shape == (rows, task.length)
    assert ((batch.ids >= 0) & (batch.ids <= len(task.words))).all()
    assert (batch.targets != NO_TARGET).any(1).all()
    assert (batch.targets[batch.targets != NO_TARGET] <= len(task.words)).all()
    assert (batch.ids == again.ids).all()
    if name != "sentence":
        assert not (batch.ids == task.draw(3, "step 2", 7).ids).all()
        assert not (batch.ids == task.draw(4, "step 1", 7).ids).all()
    pairs = task.pairs(batch)
    assert tuple(pairs) == tuple(score.name for score in task.scores)
    assert all(
        part.shape == (rows, task.length, task.length) and part.any() for part in pairs.values()
    )
    assert set(task.forms) <= set(pairs)


def by_loops(name: str, ids: list[int]) -> list[tuple[int, int, list[int]]]:
    """What is to be said after each token, and the keys that tell it: from the task's own words, in
    loops.
    """
    rows = []
    for place, token in enumerate(ids):
        if name == "induction":
            before = [j + 1 for j in range(place) if ids[j] == token]
            if before:
                rows.append((place, ids[before[-1]], before))
        elif name == "lookup" and place >= 12 and place % 2 == 0:
            at = ids[:12:2].index(token) * 2
            rows.append((place, ids[at + 1], [at + 1]))
        elif name == "previous" and place:
            rows.append((place, ids[place - 1], [place - 1]))
    return rows


@pytest.mark.parametrize(
    ("name", "score"), [("induction", "induction"), ("lookup", "value"), ("previous", "previous")]
)
def test_what_is_to_be_said_can_be_known_from_the_text(name: str, score: str) -> None:
    task = TASKS[name]()
    batch = task.draw(0, "test", 20)
    pairs = task.pairs(batch)[score]
    for text, ids in enumerate(batch.ids.tolist()):
        rows = by_loops(name, ids)
        assert {place: said for place, said, _ in rows} == {
            place: said
            for place, said in enumerate(batch.targets[text].tolist())
            if said != NO_TARGET
        }
        for place, _, keys in rows:
            assert np.flatnonzero(pairs[text, place]).tolist() == keys


def test_scores_of_heads_are_means_over_rows_that_have_such_keys() -> None:
    weights = DRAWN.random((2, 3, 4, 4))
    counted = DRAWN.random((2, 4, 4)) < 0.3
    counted[0, 1] = False
    counted[1, 2] = True
    found = head_scores([weights], {"some": counted, "none": np.zeros((2, 4, 4), bool)})
    for head in range(3):
        rows = [weights[text, head, row][counted[text, row]].sum() for text in range(2) for row in range(4)
                if counted[text, row].any()]  # fmt: skip
        assert found["some"][0, head] == pytest.approx(np.mean(rows))
    assert np.isnan(found["none"]).all()
    even = even_scores(np.tri(4, dtype=bool), {"previous": np.eye(4, k=-1, dtype=bool)[None]})
    assert even["previous"] == pytest.approx(np.mean([1 / 2, 1 / 3, 1 / 4]))


def request(name: str, steps: int, **options: object) -> LearnRequest:
    task = TASKS[name]()
    architecture = replace(task.architecture, **options)
    return LearnRequest(task, architecture, (0,), steps, task.batch, task.rate)


def trained(wanted: LearnRequest, **options: object):
    model = small_model(wanted.architecture, len(wanted.task.words) + 1, wanted.task.length)
    return train(wanted, model, wanted.seeds[0], **options)


def test_a_seed_gives_the_same_bits() -> None:
    first, second = (trained(request("previous", 6)) for _ in range(2))
    assert [moment.loss for moment in first.moments] == [moment.loss for moment in second.moments]
    for name, array in first.trainer.arrays.items():
        assert (array == second.trainer.arrays[name]).all()
    other = trained(replace(request("previous", 6), seeds=(1,)))
    assert other.moments[0].loss != first.moments[0].loss


@pytest.mark.many
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rope", "alibi", "none"])
@pytest.mark.parametrize("mlp", [False, True])
def test_every_architecture_learns(position: str, mlp: bool) -> None:
    lesson = trained(request("previous", 25, position=position, mlp=mlp, heads=2))
    assert lesson.moments[-1].loss < lesson.moments[0].loss - 0.05
    assert [moment.step for moment in lesson.moments][:5] == [0, 1, 2, 3, 4]


@pytest.mark.many
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("position", POSITIONS)
def test_gradients_of_the_loss_are_finite_differences(position: str, residual: bool) -> None:
    """Of a whole model with each kind of position: embeddings, layers and head, to the
    cross-entropy; in float64.
    """
    task = TASKS["previous"]()
    layers = 2 if residual else 1
    wanted = Architecture(
        layers=layers, heads=2, d_model=8, position=position, mlp=residual, residual=residual
    )
    model = small_model(wanted, len(task.words), task.length)
    rng = np.random.default_rng(5)
    arrays = {
        name: array + 0.3 * rng.standard_normal(array.shape)
        for name, array in first_weights(model, 0).items()
    }
    batch = task.draw(0, "step 1", 2)

    def loss(backend, weights):
        output = forward(backend, model.spec, {**weights, **model.fixed}, batch.ids)
        return cross_entropy(backend, output.logits, batch.targets)

    variables = {name: Variable(array) for name, array in arrays.items()}
    exact = gradients(loss(gradient_backend("float64"), variables), variables.values())
    plain = numpy_backend("float64")
    for (name, array), gradient in zip(arrays.items(), exact, strict=True):
        assert np.abs(gradient).max() > 1e-6 or name.endswith((".attn.k.bias", "attn.qkv.bias")), (
            name
        )
        largest = np.unravel_index(np.argmax(np.abs(gradient)), gradient.shape)
        for place in {largest, *(tuple(rng.integers(0, array.shape)) for _ in range(3))}:
            before, ends = array[place], []
            for end in (before + 1e-6, before - 1e-6):
                array[place] = end
                ends.append(float(loss(plain, arrays)[0]))
            array[place] = before
            found = (ends[0] - ends[1]) / 2e-6
            assert abs(gradient[place] - found) <= 1e-4 * max(np.abs(gradient).max(), 1e-4), (
                name,
                place,
            )


def test_what_is_not_trained_stays() -> None:
    lesson = trained(request("previous", 3, position="sinusoidal"))
    table = lesson.trainer.arrays["positions.weight"]
    assert (table == lesson.trainer.model.fixed["positions.weight"]).all()
    assert "positions.weight" not in lesson.trainer._trained


def test_without_a_residual_attention_alone_says_it() -> None:
    """What does not pass through attention stays 0 all along."""
    lesson = trained(request("sentence", 20))
    arrays, masks = lesson.trainer.arrays, lesson.trainer.model.masks
    assert masks
    for name, mask in masks.items():
        if name in arrays:
            assert (np.broadcast_to(mask, arrays[name].shape) + (arrays[name] == 0) > 0).all(), name


def test_a_loss_that_is_no_number_ends_with_the_step() -> None:
    model = small_model(Architecture(layers=1, heads=1), 17, 16)
    trainer, task = Trainer(model, 0, 1e8), TASKS["previous"]()

    def run() -> None:
        for step in range(30):
            trainer.step(task.draw(0, f"step {step}", 8))

    with pytest.raises(AttnError) as caught:
        run()
    assert "step" in caught.value.what
    assert "--learning-rate" in caught.value.hint
    assert caught.value.exit_code == 1


def test_snapshots_lie_ever_further_apart() -> None:
    assert snapshot_steps(300, 0) == []
    assert snapshot_steps(300, 1) == [300]
    for steps, count in ((300, 8), (10, 10), (10, 40), (1, 5)):
        places = snapshot_steps(steps, count)
        assert places[0] == 0
        assert places[-1] == steps
        assert places == sorted(set(places))
        assert len(places) == min(count, steps + 1)


def test_a_target_that_occurs_twice_counts_at_both_places() -> None:
    task = OwnSentence(("cat", "chases", "cat"), 1, 2)
    pairs = task.pairs(task.draw(0, "test", 1))
    assert pairs["target"][0, 1].tolist() == [True, False, True]
    assert pairs["target"].sum() == 2
    # half of the weight on each is all of it
    weights = np.asarray([[[[0.0, 0, 1], [0.5, 0.0, 0.5], [1, 0, 0]]]])
    assert head_scores([weights], pairs)["target"].tolist() == [[1.0]]
