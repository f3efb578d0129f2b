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
from attncli.features.learn.tasks.task import Task, even_scores, head_scores, largest_share
from attncli.features.learn.training import (
    NO_TARGET,
    AdamW,
    Batch,
    SourceTexts,
    Trainer,
    cross_entropy,
    forward,
)

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
    "translate": lambda: task_class("translate")(),
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


def sentences(seed: int, stream: str, size: int) -> list[tuple[list[str], list[str], list[str]]]:
    """What is read, what the decoder reads, and what it is to say, in words without padding."""
    task = TASKS["translate"]()
    batch = task.draw(seed, stream, size)
    rows = []
    for ids, targets, source, length in zip(
        batch.ids.tolist(), batch.targets.tolist(), batch.source.ids.tolist(), batch.source.lengths,
        strict=True,
    ):  # fmt: skip
        assert targets[length:] == [NO_TARGET] * (len(targets) - length)
        rows.append(
            tuple([task.words[number] for number in row[:length]] for row in (source, ids, targets))
        )
    return rows


FRENCH = {
    "the": "le", "a": "un", "black": "noir", "white": "blanc", "red": "rouge", "green": "vert", "grey": "gris",
    "cat": "chat", "dog": "chien", "horse": "cheval", "wolf": "loup", "fish": "poisson", "rabbit": "lapin",
    "sees": "voit", "hears": "entend", "follows": "suit", "eats": "mange", "with": "avec", "under": "sous",
    "before": "devant", ".": ".",
}  # fmt: skip


def test_a_translation_is_word_by_word_with_the_adjective_behind() -> None:
    """Against a dictionary and a swap in loops; the pairs that count join each word to its own."""
    task = TASKS["translate"]()
    pairs = task.pairs(task.draw(0, "test", 40))["aligned"]
    lengths = set()
    for text, (source, read, said) in enumerate(sentences(0, "test", 40)):
        order = list(range(len(source)))
        for place, word in enumerate(source):
            if FRENCH[word] in ("noir", "blanc", "rouge", "vert", "gris"):
                order[place : place + 2] = [place + 1, place]
        assert said == [FRENCH[source[place]] for place in order]
        assert read == ["<s>", *said[:-1]]
        assert source[-1] == "."
        found = [np.flatnonzero(row).tolist() for row in pairs[text]]
        assert found == [[place] for place in order] + [[]] * (task.length - len(order))
        lengths.add(len(source))
    assert {4, 8, 12} <= lengths


def test_no_sentence_that_is_tested_is_trained_on() -> None:
    tested = {" ".join(source) for source, _, _ in sentences(0, "test", 400)}
    trained_on = {
        " ".join(source)
        for step in range(1, 60)
        for source, _, _ in sentences(0, f"step {step}", 32)
    }
    assert len(tested) > 200
    assert not tested & trained_on


def test_the_loss_of_knowing_french_is_the_entropy_of_its_sentences() -> None:
    """Of a guesser in loops, which counts what follows in many sentences what stood before."""
    (reference,) = TASKS["translate"]().references()
    counts: dict[tuple[int, int, str], dict[str, int]] = {}
    kinds = {"le": "a", "un": "a", "avec": "p", "sous": "p", "devant": "p", ".": "."}
    kinds |= dict.fromkeys(("voit", "entend", "suit", "mange"), "v")
    kinds |= dict.fromkeys(("noir", "blanc", "rouge", "vert", "gris"), "j")
    words = []
    for step in range(1, 200):
        for _, _, said in sentences(1, f"step {step}", 32):
            phrase, before = 0, ""
            for word in said:
                context = (phrase, before)
                row = counts.setdefault(context, {})
                row[word] = row.get(word, 0) + 1
                words.append((context, word))
                before = kinds.get(word, "n")
                phrase += before == "a"
    loss = -np.mean(
        [np.log(counts[context][word] / sum(counts[context].values())) for context, word in words]
    )
    assert loss == pytest.approx(reference.loss, rel=0.02)


def test_the_largest_weight_is_counted_where_keys_count() -> None:
    weights = np.asarray([[[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]]])
    counted = np.asarray([[[False, True], [False, True], [False, False]]])
    assert largest_share(weights, counted) == 0.5


def test_what_stands_behind_a_text_changes_nothing() -> None:
    """Padding is neither read nor looked at, and one vector is one vector."""
    task = TASKS["translate"]()
    model = small_model(task.architecture, len(task.words) + 1, task.length)
    trainer = Trainer(model, 0, 1e-2)
    batch = task.draw(0, "test", 20)
    whole = trainer.run(batch, keep=True)
    source = batch.source
    places = np.arange(source.ids.shape[-1])
    other = np.where(places < source.lengths[:, None], source.ids, 3)
    assert (other != source.ids).any()
    again = trainer.run(Batch(batch.ids, batch.targets, replace(source, ids=other)), keep=True)
    assert np.abs(whole.logits - again.logits).max() < 1e-6
    (weights,) = whole.weights
    hidden = np.broadcast_to((places >= source.lengths[:, None])[:, None, None], weights.shape)
    assert (weights[hidden] == 0).all()
    text = -1  # the shortest, alone
    length = source.lengths[text]
    alone = trainer.run(
        Batch(
            batch.ids[text:, :length],
            batch.targets[text:, :length],
            SourceTexts(source.ids[text:, :length], source.lengths[text:], source.visible[text:]),
        )
    )
    assert np.abs(alone.logits[0] - whole.logits[text, :length]).max() < 1e-5
    task.bottleneck = True
    narrow = trainer.run(task.draw(0, "test", 20), keep=True)
    assert (narrow.weights[0][..., 0] == 1).all()


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


WITHOUT_GRADIENT = (".attn.k.bias", ".cross.k.bias", "attn.qkv.bias")
"""A number added to all keys changes no softmax."""


@pytest.mark.many
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("position", POSITIONS)
def test_gradients_of_the_loss_are_finite_differences(position: str, residual: bool) -> None:
    """Of a whole model with each kind of position: embeddings, layers and head, to the
    cross-entropy; in float64.
    """
    layers = 2 if residual else 1
    wanted = Architecture(
        layers=layers, heads=2, d_model=8, position=position, mlp=residual, residual=residual
    )
    check_gradients(TASKS["previous"](), wanted)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_gradients_pass_through_the_attention_to_an_encoder(bottleneck: bool) -> None:
    task = TASKS["translate"]()
    task.bottleneck = bottleneck
    check_gradients(task, Architecture(layers=2, heads=2, d_model=8, encoder=True, mlp=True))


def check_gradients(task: Task, wanted: Architecture) -> None:
    """Each weight's gradient against finite differences of the loss of two texts."""
    model = small_model(wanted, len(task.words), task.length)
    rng = np.random.default_rng(5)
    arrays = {
        name: array + 0.3 * rng.standard_normal(array.shape)
        for name, array in first_weights(model, 0).items()
    }
    batch = task.draw(0, "step 1", 2)

    def loss(backend, weights):
        output = forward(
            backend, model.spec, {**weights, **model.fixed}, batch.ids, source=batch.source
        )
        return cross_entropy(backend, output.logits, batch.targets)

    variables = {name: Variable(array) for name, array in arrays.items()}
    exact = gradients(loss(gradient_backend("float64"), variables), variables.values())
    plain = numpy_backend("float64")
    for (name, array), gradient in zip(arrays.items(), exact, strict=True):
        has_gradient = np.abs(gradient).max() > 1e-6
        is_alone = task.bottleneck and ".cross." in name  # one key has all weight
        assert has_gradient or is_alone or name.endswith(WITHOUT_GRADIENT), name
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
    assert "positions.weight" not in lesson.trainer._views


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
