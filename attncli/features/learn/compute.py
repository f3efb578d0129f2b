"""Training a small model on a task while it is watched, and the document of `attn learn` that says
what came of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import numpy_backend
from attncli.documents.header import attention_part, model_part
from attncli.errors import InputError, LimitError, UsageError
from attncli.features.learn.architecture import (
    ENCODER,
    Architecture,
    SmallModel,
    refuse_unsaved,
    roles_of,
    small_model,
)
from attncli.features.learn.document import (
    Alignment,
    BestHead,
    CurvePoint,
    Example,
    GuessingLoss,
    HeadLoss,
    HeadRemoval,
    HeadScore,
    LearnDocument,
    LearnedHead,
    LengthLoss,
    SeedRun,
    TaskRow,
    TasksDocument,
    WeightMap,
)
from attncli.features.learn.tasks import task_class, task_names
from attncli.features.learn.tasks.task import Bools, Task, even_scores, head_scores, largest_share
from attncli.features.learn.training import NO_TARGET, Batch, ForwardPass, RoleStore, Trainer
from attncli.inputs.files import refuse_half_characters
from attncli.inputs.token import Token, choose_last_token, ignore
from attncli.inputs.tokenize import IdsOnly, tokenizer
from attncli.language import choice, listing, message, plural
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.context import Kind, Zero
from attncli.mechanism.mask import visible
from attncli.mechanism.spec import Spec
from attncli.models.checkpoint_writing import (
    UNKNOWN,
    CheckpointParts,
    SideArrays,
    check_new_folder,
    write_checkpoint,
)
from attncli.models.estimate import PRODUCTS_A_SECOND, duration_words, work_of
from attncli.models.family import groups_of
from attncli.models.model import Identity, Model
from attncli.version import __version__

Floats = np.ndarray[Any, Any]

TEST_TEXTS = 64
"""Texts on which losses and scores are measured; none of them is trained on."""
POINTS = 40
"""Points of a curve, about, besides the powers of two."""
ROSE = 0.1
"""A score that rose by less has not formed."""


class LearnRequest(Struct, frozen=True):
    """What is to be trained, and how.

    task: what is learned, made of the reader's text where it takes one.
    rate: of learning.
    seeds: the first of them is shown, of the others how they ended.
    """

    task: Task
    architecture: Architecture
    seeds: tuple[int, ...]
    steps: int
    batch: int
    rate: float

    @classmethod
    def of(
        cls,
        task: str,
        text: str | None = None,
        *,
        query: str | None = None,
        target: str | None = None,
        architecture: Mapping[str, object] | None = None,
        seed: int = 0,
        seeds: int = 1,
        steps: int | None = None,
        batch: int | None = None,
        rate: float | None = None,
        bottleneck: bool = False,
        note: Callable[[str], None] = ignore,
    ) -> LearnRequest:
        """Make the request for a task by its name, with its text and words, as the user gives them.
        Of steps, batch and rate None or 0 stands for the task's own.

        architecture: what of the model is other than the task has it, such as "layers".
        seed, seeds: the first seed, and how many from there on.
        rate: of learning.
        bottleneck: of the task "translate", whether the decoder sees one vector alone.

        Raises UsageError for an unknown task, or one that takes another text; InputError for a text
        that is too short or lacks the words.
        """
        kind = task_named(task)
        options = {name: value for name, value in (architecture or {}).items() if value is not None}
        # whether there is an encoder the task says, whose texts it reads
        parts = [name for name in Architecture.__struct_fields__ if name != "encoder"]
        unknown = [name for name in options if name not in parts]
        if unknown:
            raise UsageError(
                message("no part of a small model is called {name}", name=repr(unknown[0])),
                expected=listing(parts),
            )
        if bottleneck and not kind.architecture.encoder:
            raise UsageError(
                message("--bottleneck is about a decoder that looks at an encoder"),
                expected=message("attn learn translate"),
            )
        made_task = _make_task(kind, text, query, target, note)
        made_task.bottleneck = bottleneck
        return cls(
            task=made_task,
            architecture=replace(kind.architecture, **options),
            seeds=tuple(range(seed, seed + seeds)),
            steps=steps or kind.steps,
            batch=batch or kind.batch,
            rate=rate or kind.rate,
        )


def _make_task(
    kind: type[Task],
    text: str | None,
    query: str | None,
    target: str | None,
    note: Callable[[str], None],
) -> Task:
    """Make a task of the class `kind` from the reader's text and words: a sentence with a query and
    a target for a task that takes TEXT, the content of a file for one that takes FILE, nothing for
    any other.

    note: called with a sentence where a word occurs more than once.

    Raises UsageError for what the task does not take or lacks, InputError for a text that is too
    short or has no such word.
    """
    if kind.takes != "TEXT" and (query is not None or target is not None):
        raise UsageError(
            message("--query and --target are about the task sentence"),
            expected=message("attn learn sentence"),
        )
    match kind.takes:
        case "TEXT":
            if text is None or query is None or target is None:
                raise UsageError(
                    message("the task sentence takes a sentence and two of its words"),
                    expected=message("TEXT, --query TOK and --target TOK"),
                    hint='attn learn sentence "the cat sat on the mat" --query sat --target cat',
                )
            tokens = tokenizer("whitespace").encode(text)
            if len(tokens) < 2:
                raise InputError(
                    message("the sentence has fewer than two words"),
                    expected=message("two words or more, with blanks between them"),
                )
            query_place = choose_last_token(tokens, query, note)
            target_place = choose_last_token(tokens, target, note)
            return sentence_task(tokens, query_place, target_place)
        case "FILE":
            if text is None:
                raise UsageError(
                    message("the task text takes a file"),
                    expected=message("FILE, or - for standard input"),
                    hint="attn learn text README.md",
                )
            return text_task(text)
        case _:
            if text is not None:
                raise UsageError(
                    message("the task {task} makes its own texts", task=kind.name),
                    expected=message("no text"),
                )
            return kind()


class Moment(Struct, frozen=True, eq=False):
    """The loss, the scores and the maps of a model after so many steps.

    loss: on the test texts.
    scores: [layer, head] by name, on the same.
    weights: in the example, [layer, head, query, key].
    """

    step: int
    loss: float
    scores: Mapping[str, Floats]
    weights: Floats


class Lesson(Struct, frozen=True, eq=False):
    """One seed's training: its moments (losses, scores and maps by step) in order, the trainer with
    the model as it ended, and copies of its weights on the way.

    interrupted: whether Ctrl-C ended it.
    """

    moments: Sequence[Moment]
    trainer: Trainer
    test: Batch
    snapshots: Sequence[tuple[int, Mapping[str, Floats]]]
    interrupted: bool = False


def task_named(name: str) -> type[Task]:
    """The class of the task of this name. Raises UsageError, with the closest name, where no task
    is called so."""
    try:
        return task_class(name)
    except KeyError:
        from difflib import get_close_matches

        close = get_close_matches(name, task_names(), n=1)
        raise UsageError(
            message("no task is called {name}", name=repr(name)),
            expected=choice(task_names()),
            hint=f"attn learn {close[0]}" if close else "attn learn",
        ) from None


def small_model_of(request: LearnRequest) -> SmallModel:
    """The untrained model of a request; its vocabulary is the task's words and one more for unknown
    ones.
    """
    task = request.task
    return small_model(request.architecture, len(task.words) + 1, task.length)


@checked
def learn(
    task: str | LearnRequest,
    text: str | None = None,
    *,
    query: str | None = None,
    target: str | None = None,
    architecture: Mapping[str, object] | None = None,
    seed: int = 0,
    seeds: int = 1,
    steps: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    bottleneck: bool = False,
    save: Path | None = None,
    snapshots: int = 0,
    force: bool = False,
    note: Callable[[str], None] = ignore,
    on_moment: Callable[[Moment], None] = lambda moment: None,
    on_step: Callable[[Callable[[], Moment]], None] = lambda measure: None,
    is_over: Callable[[], bool] = lambda: False,
    ends_early: bool = False,
    keep: Callable[[], bool] = lambda: True,
) -> LearnDocument:
    """Train a small model on a task, and see which heads form.

    Args:
        task: Its name, such as "induction", or a LearnRequest that says all of what is trained.
        text: Of the task "sentence" the sentence, of "text" what is learned; the others make their
            own.
        query: Of the task "sentence", the word that is to look.
        target: The word that it is to look at.
        architecture: What of the model is other than the task has it: "layers", "heads", "d_model",
            "position", "scale", "mask" (a `Mask`), "mlp", "residual"; None leaves it.
        seed: Of the weights and the texts.
        seeds: How many models are trained, from that seed on: the first is shown, of the others how
            they ended.
        steps: How many; None for the task's number, as for `batch` and `rate`.
        batch: Texts of each step.
        rate: Of learning, by AdamW.
        bottleneck: Of the task "translate", whether the decoder sees one vector of the encoder's
            alone.
        save: The folder of the checkpoint; None for none.
        snapshots: How many checkpoints are written on the way, into folders beside its files.
        force: Whether the folder may be there already.
        note: Called with a sentence where a word occurs more than once.
        on_moment: Called with the loss, scores and maps of the first seed's model, before the first
            step and then about `POINTS` times.
        on_step: Called after each other step of the first seed with a function that measures the
            model now; what that returns is not in the document.
        is_over: Called after each step: whether to end here.
        ends_early: Whether Ctrl-C ends the training, not the function, so that what was learned by
            then is returned.
        keep: Called at the end: whether the model is to be saved.

    Returns:
        What `attn learn --json` writes.

    Raises:
        UsageError: No such task, or one that takes another text; sizes do not divide, or the model
            cannot be saved.
        InputError: The sentence has no such words, or the text is too short.
        AttnError: The loss is no number any more, or the folder cannot be written.
    """
    if isinstance(task, LearnRequest):
        request = task
    else:
        request = LearnRequest.of(
            task,
            text,
            query=query,
            target=target,
            architecture=architecture,
            seed=seed,
            seeds=seeds,
            steps=steps,
            batch=batch,
            rate=rate,
            bottleneck=bottleneck,
            note=note,
        )
    model = small_model_of(request)
    if save is not None:
        _refuse_bottleneck(request.task)
        refuse_unsaved(model)
        check_new_folder(save, force=force)
        # a vocabulary with half of a character could not be read again
        refuse_half_characters(list(request.task.words), "TEXT")

    # the first seed, then the others, unless one was stopped
    lesson = train(
        request,
        model,
        request.seeds[0],
        snapshots=snapshots,
        on_moment=on_moment,
        on_step=on_step,
        is_over=is_over,
        ends_early=ends_early,
    )
    runs = [_seed_run(request, lesson, request.seeds[0])]
    lesson_of_seed = lesson
    for further_seed in request.seeds[1:]:
        # stopped by Ctrl-C, or by `is_over` before its last step
        if lesson_of_seed.interrupted or runs[-1].steps < request.steps:
            break
        lesson_of_seed = train(
            request, model, further_seed, points=1, is_over=is_over, ends_early=ends_early
        )
        runs.append(_seed_run(request, lesson_of_seed, further_seed))
    document = _learn_document(request, lesson, runs)
    if save is None or not keep():
        return document

    # checkpoints of the first seed, those on the way before the last
    folders = []
    for step, arrays in lesson.snapshots:
        folder = save / f"step-{step}"
        write_checkpoint(folder, checkpoint_parts(request, model, arrays, request.seeds[0], step))
        folders.append(str(folder))
    write_checkpoint(
        save,
        checkpoint_parts(request, model, lesson.trainer.arrays, request.seeds[0], document.steps),
    )
    return replace(document, saved=str(save), snapshots=folders)


def _refuse_bottleneck(task: Task) -> None:
    """Raise UsageError for a task whose decoder sees one vector alone: no checkpoint says so."""
    if task.bottleneck:
        raise UsageError(
            message("a model whose decoder sees one vector alone has no checkpoint format"),
            expected=message("--save or --bottleneck"),
        )


def train(
    request: LearnRequest,
    model: SmallModel,
    seed: int,
    *,
    points: int = POINTS,
    snapshots: int = 0,
    on_moment: Callable[[Moment], None] = lambda moment: None,
    on_step: Callable[[Callable[[], Moment]], None] = lambda measure: None,
    is_over: Callable[[], bool] = lambda: False,
    ends_early: bool = False,
) -> Lesson:
    """Train a model on the request's task with one seed, and return its `Lesson`: what was measured
    on the way, and the weights copied at `snapshots` steps.

    points: about how many times it is measured.
    snapshots: how many copies of the weights are kept, see `snapshot_steps`.
    on_moment: called with each moment that is kept: its loss, scores and maps.
    on_step: called after each other step with a function that measures the model now.
    is_over: called after each step: whether to end here.
    ends_early: whether Ctrl-C ends the training and returns what was learned by then.
    """
    task = request.task
    steps = request.steps
    trainer = Trainer(model, seed, request.rate, task.thrift)
    test = task.draw(seed, "test", TEST_TEXTS)
    pairs = task.pairs(test)  # of query and key, those that count for each score
    moments: list[Moment] = []
    copies: list[tuple[int, Mapping[str, Floats]]] = []  # (step, weights by role)
    steps_to_copy = set(snapshot_steps(steps, snapshots))

    def measure() -> Moment:
        """The loss, the scores and the maps of the model as it is now, after `step` steps."""
        output = trainer.run(test, keep=True)
        weights = [np.asarray(layer) for layer in output.weights]
        # maps of the first text, [layer, head, query, key]
        queries, keys = test.first_shape
        first_text = np.stack([layer[0, :, :queries, :keys] for layer in weights])
        return Moment(step, trainer.loss_of(output, test), head_scores(weights, pairs), first_text)

    def record() -> None:
        """Measure the model as it is now, keep that moment, and hand it to `on_moment`."""
        moments.append(measure())
        on_moment(moments[-1])

    interval = max(steps // points, 1)  # steps from one point of the curve to the next
    step = 0  # `measure` reads it, too
    interrupted = False
    try:
        record()
        if 0 in steps_to_copy:
            copies.append((0, _copy_weights(trainer)))
        for step in range(1, steps + 1):
            trainer.step(task.draw(seed, f"step {step}", request.batch))
            if step in steps_to_copy:
                copies.append((step, _copy_weights(trainer)))
            stops = is_over()
            is_power_of_two = step & (step - 1) == 0  # most happens early
            # a seed that is measured once, at its end, needs no early points either
            is_point = step % interval == 0 or step == steps or (points > 1 and is_power_of_two)
            if stops or is_point:
                record()
            else:
                on_step(measure)
            if stops:
                break
    except KeyboardInterrupt:
        if not ends_early or not moments:
            raise
        interrupted = True
        # the curve ends where the training did
        if moments[-1].step != step:
            record()
    return Lesson(moments, trainer, test, copies, interrupted)


def snapshot_steps(steps: int, count: int) -> list[int]:
    """The steps, ascending, at which `count` checkpoints are kept: 0 and the last, and between them
    ever further apart, for most happens early. A single one is the last; fewer than `count` where
    the training has no more steps."""
    if count < 2:
        return [steps] * count
    # powers of `steps` with exponents at even distances, up to 1: even on a logarithmic axis
    powers = {round(steps ** (place / (count - 1))) for place in range(1, count)}
    # early powers may round to the same step: fill up with the first steps that are free
    free_steps = [step for step in range(1, steps + 1) if step not in powers]
    missing = min(count - 1, steps) - len(powers)
    return [0, *sorted([*powers, *free_steps[:missing]])]


def _copy_weights(trainer: Trainer) -> Mapping[str, Floats]:
    """The weights of a model in training as they are now, by role."""
    return {name: array.copy() for name, array in trainer.arrays.items()}


def checkpoint_parts(
    request: LearnRequest, model: SmallModel, arrays: Mapping[str, Floats], seed: int, step: int
) -> CheckpointParts:
    """What a checkpoint of the trained model is written from, in a family's own layout: a missing
    feed-forward part becomes one that adds 0, and queries are multiplied so that the family's scale
    gives the trained scores.

    arrays: the weights by role; those of a layer begin with its number, as "0.attn.q.weight".
    step: after how many steps they are so.
    seed: of the training.
    """
    encoder: SideArrays | None = None
    if model.spec.decoder is not None:
        encoder_arrays = {
            name.removeprefix(ENCODER): array
            for name, array in arrays.items()
            if name.startswith(ENCODER)
        }
        encoder_arrays["tokens.weight"] = arrays["tokens.weight"]  # both sides share it
        arrays = {name: array for name, array in arrays.items() if not name.startswith(ENCODER)}
        # a bias of the output head, which transformers has in any case
        arrays["head.offsets"] = np.zeros((1, model.spec.vocabulary), np.float32)
        encoder = _side_arrays(model, model.spec, encoder_arrays)
    side = _side_arrays(model, model.decoder, arrays)
    task = request.task
    # what the checkpoint says of its training
    training_facts = {
        "task": task.name,
        "seed": str(seed),
        "steps": str(step),
        "version": __version__,
    }
    return CheckpointParts(
        kind=model.kind,
        config=model.config,
        architecture=model.class_name,
        # how many groups of heads a tensor of given roles holds
        groups=partial(groups_of, model.decoder),
        outer=side.outer,
        layers=side.layers,
        words=(*task.words, UNKNOWN),  # the vocabulary, by id
        by_character=task.by_character,
        notes=training_facts,
        encoder=encoder,
    )


def _side_arrays(model: SmallModel, spec: Spec, arrays: Mapping[str, Floats]) -> SideArrays:
    """The arrays to write of one side of the trained model, whose Spec this is, from its weights by
    role."""
    width = spec.d_model
    # all but the roles of layers, which begin with the layer's number
    outer = {name: array for name, array in arrays.items() if not name[0].isdigit()}
    if spec.embedding.types:
        outer["types.weight"] = np.zeros((spec.embedding.types, width), np.float32)
        # an encoder is saved without the head that it was trained with
        outer.pop("head.weight", None)
    layers = []
    for layer, block in enumerate(spec.blocks):
        start = f"{layer}."
        roles = {
            name.removeprefix(start): array
            for name, array in arrays.items()
            if name.startswith(start)
        }
        if model.score_factor != 1:
            for role in ("attn.q.weight", "attn.q.bias", "cross.q.weight", "cross.q.bias"):
                if role in roles:
                    roles[role] = roles[role] * np.float32(model.score_factor)
        if block.mlp is None:
            roles |= _idle_feed_forward(roles, width, _feed_forward_width(model))
        layers.append(roles)
    return SideArrays(outer, layers)


def _feed_forward_width(model: SmallModel) -> int:
    """The width of the feed-forward part that the family reads from the model's config: a saved
    checkpoint must have one of that width, even where the model was trained without."""
    from attncli.mechanism.spec import Mlp
    from attncli.models.config import Config
    from attncli.models.families import family

    definition = family(model.kind)
    assert definition is not None
    part = definition.spec(Config(model.config, "config.json")).blocks[0].mlp
    assert isinstance(part, Mlp)
    return part.width


def _idle_feed_forward(roles: Mapping[str, Floats], width: int, inner: int) -> dict[str, Floats]:
    """Arrays by role of a feed-forward part that adds 0, with the norms around it, for a layer that
    was trained without one.

    roles: the layer's trained arrays.
    width, inner: of the stream and of the feed-forward part.
    """
    added: dict[str, Floats] = {
        "mlp.up.weight": np.zeros((inner, width), np.float32),
        "mlp.up.bias": np.zeros(inner, np.float32),
        "mlp.down.weight": np.zeros((width, inner), np.float32),
        "mlp.down.bias": np.zeros(width, np.float32),
        "mlp.in.weight": np.ones(width, np.float32),
        "mlp.in.bias": np.zeros(width, np.float32),
    }
    # a family that norms after each sum norms twice, here the same vectors: the second norm gets
    # the factors that the first one learned, and undoes what the first did with factors of 1
    if "attn.sum.weight" in roles:
        added["mlp.sum.weight"] = roles["attn.sum.weight"]
        added["mlp.sum.bias"] = roles["attn.sum.bias"]
        added["attn.sum.weight"] = np.ones(width, np.float32)
        added["attn.sum.bias"] = np.zeros(width, np.float32)
    return added


# The document.


def _learn_document(
    request: LearnRequest, lesson: Lesson, runs: Sequence[SeedRun]
) -> LearnDocument:
    """The `attn.learn/1` document of the first seed and of how all of them ended.

    lesson: the training: what was measured on the way, and the trained model.
    """
    task = request.task
    model = lesson.trainer.model
    moments = lesson.moments
    seed = request.seeds[0]
    last = lesson.moments[-1]

    # the trained weights as a model, for what documents say of one
    backend = numpy_backend("float32")
    # a model that no family describes has the kind ""
    identity = Identity("seeded", family=model.kind or None, seed=seed)
    whole = Model(
        spec=model.decoder,
        store=RoleStore(model.decoder, lesson.trainer.arrays),
        tokenizer=IdsOnly(task.name),  # no text is tokenized here
        backend=backend,
        identity=identity,
    )
    attention = attention_part(whole, backend)
    architecture = request.architecture
    return LearnDocument(
        version=__version__,
        task=task.name,
        seed=seed,
        model=model_part(whole),
        attention=replace(attention, position=architecture.position),
        parameters=sum(
            math.prod(role.shape)
            for name, role in roles_of(model.spec).items()
            if name not in model.fixed
        ),
        batch=request.batch,
        learning_rate=request.rate,
        tested_apart=task.tested_apart,
        example=_example_part(task, lesson.test),
        steps=last.step,
        planned=request.steps,
        loss=last.loss,
        chance=task.chance,
        goal=task.goal,
        references=[
            GuessingLoss(name=reference.name, loss=reference.loss)
            for reference in task.references()
        ],
        learned=runs[0].learned,
        formed=runs[0].formed,
        forms=list(task.forms),
        curve=[CurvePoint(step=moment.step, loss=moment.loss) for moment in moments],
        heads=_learned_heads(task, model, lesson),
        maps=[
            WeightMap(step=moment.step, weights=moment.weights)
            for moment in moments
            # 0, the powers of two, and the last step
            if moment.step & (moment.step - 1) == 0 or moment is last
        ],
        ablation=_losses_without_heads(lesson),
        bottleneck=task.bottleneck if architecture.encoder else UNSET,
        alignment=_alignment(task, lesson),
        by_length=_losses_by_length(lesson),
        runs=list(runs),
        saved=None,
        snapshots=[],
        warnings=[],
    )


def _example_part(task: Task, test: Batch) -> Example:
    """The document's example: the first of the texts that a task is tested on, in words, with the
    word that is to be predicted at each."""
    words = (*task.words, UNKNOWN)
    queries, keys = test.first_shape
    ids = test.ids[0, :queries].tolist()
    targets = test.targets[0, :queries].tolist()
    blank = "" if task.by_character else " "
    example = Example(
        text=blank.join(words[number] for number in ids),
        tokens=[words[number] for number in ids],
        targets=[None if number == NO_TARGET else words[number] for number in targets],
    )
    if test.source is None:
        return example
    source = [words[number] for number in test.source.ids[0, :keys].tolist()]
    return replace(example, source=blank.join(source), source_tokens=source)


def _learned_heads(task: Task, model: SmallModel, lesson: Lesson) -> list[LearnedHead]:
    """The scores of each head of the trained model at each moment that was kept, beside those of
    even attention.

    lesson: the training: what was measured on the way, and the trained model.
    """
    moments = lesson.moments

    # scores of a head that attends evenly to all keys that it sees
    even = even_scores(_visible_keys(model, lesson.test), task.pairs(lesson.test))

    rows = []
    for layer, block in enumerate(model.decoder.blocks):
        for head in range(block.attention.heads):
            scores = {}
            for score in task.scores:
                values = [float(moment.scores[score.name][layer, head]) for moment in moments]
                scores[score.name] = HeadScore(
                    first=values[0],
                    last=values[-1],
                    chance=even[score.name],
                    threshold=score.threshold,
                    rose_at=_step_of_rise([moment.step for moment in moments], values),
                    values=values,
                )
            rows.append(LearnedHead(layer=layer, head=head, scores=scores))
    return rows


def _visible_keys(model: SmallModel, batch: Batch) -> Bools:
    """Which keys the heads that are watched see at each query: under the mask, [query, key]; of an
    encoder's vectors, [text, 1, source token]."""
    if batch.source is not None:
        places = np.arange(batch.source.ids.shape[-1])
        is_seen: Bools = places < batch.source.visible[:, None, None]
        return is_seen
    count = batch.ids.shape[-1]
    backend = numpy_backend("float32")
    queries = backend.arange(0, count)[:, None]
    keys = backend.arange(0, count)[None, :]
    # all layers of a small model are alike
    mask = model.spec.blocks[0].attention.mask
    is_visible = np.asarray(visible(mask, queries, keys, keys=count, backend=backend))
    return np.broadcast_to(is_visible, (count, count))


def _step_of_rise(steps: Sequence[int], values: Sequence[float]) -> int | None:
    """The first step from which on a score stayed above the middle between its first and its last
    value; None where it rose by less than `ROSE`.

    steps: when each of the values was measured, ascending.
    """
    if values[-1] - values[0] < ROSE:
        return None
    middle = (values[0] + values[-1]) / 2
    below = [place for place, value in enumerate(values) if value < middle]
    return steps[below[-1] + 1]


def _losses_without_heads(lesson: Lesson) -> HeadRemoval:
    """The loss on the test texts with all heads, and with each head alone set to 0.

    lesson: the training: what was measured on the way, and the trained model.
    """
    trainer = lesson.trainer
    blocks = lesson.trainer.model.decoder.blocks
    kind: Kind = "self"
    if lesson.test.source is not None:
        kind = "cross"
    rows = [
        HeadLoss(
            layer=layer,
            head=head,
            loss=trainer.loss(lesson.test, interventions={(layer, kind): (Zero((head,)),)}),
        )
        for layer, block in enumerate(blocks)
        for head in range(block.attention.heads)
    ]
    return HeadRemoval(loss=lesson.moments[-1].loss, heads=rows)


def _alignment(task: Task, lesson: Lesson) -> Alignment | UnsetType:
    """In how many rows the decoder's head with the highest score of the task has its largest weight
    on the word in question, beside chance; UNSET without an encoder, and where the decoder sees one
    vector alone."""
    test = lesson.test
    if test.source is None or task.bottleneck:
        return UNSET
    name = task.scores[-1].name  # a task's own score is its last
    is_word = task.pairs(test)[name]  # whether a key is the word in question, [text, query, key]
    scores = lesson.moments[-1].scores[name]  # [layer, head]
    layer, head = np.unravel_index(int(scores.argmax()), scores.shape)
    output = lesson.trainer.run(test, keep=True)
    weights = np.asarray(output.weights[int(layer)])[:, head]
    return Alignment(
        layer=int(layer),
        head=int(head),
        rows=int(is_word.any(-1).sum()),
        share=largest_share(weights, is_word),
        # a key that is drawn at random is the word in question as often as even weights are on it
        chance=even_scores(_visible_keys(lesson.trainer.model, test), {name: is_word})[name],
    )


def _losses_by_length(lesson: Lesson) -> list[LengthLoss] | UnsetType:
    """The loss on the test texts by the length of what the encoder read; UNSET without one."""
    source = lesson.test.source
    if source is None:
        return UNSET
    output = lesson.trainer.run(lesson.test)
    rows = []
    for length in sorted(set(source.lengths.tolist())):
        is_text = source.lengths == length
        texts_of_length = Batch(lesson.test.ids[is_text], lesson.test.targets[is_text])
        output_of_length = ForwardPass(logits=np.asarray(output.logits)[is_text], weights=())
        rows.append(
            LengthLoss(
                tokens=length,
                texts=int(is_text.sum()),
                loss=lesson.trainer.loss_of(output_of_length, texts_of_length),
            )
        )
    return rows


def _seed_run(request: LearnRequest, lesson: Lesson, seed: int) -> SeedRun:
    """The document's row on how one seed ended: its loss, whether the task is learned, and for each
    score the head that has most of it.

    lesson: the training: what was measured on the way, and the trained model.
    """
    task = request.task
    last = lesson.moments[-1]
    best = []
    for score in task.scores:
        # [layer, head]; NaN for a score that no test text can show
        values = last.scores[score.name]
        layer, head = np.unravel_index(int(np.nanargmax(values)), values.shape)
        best.append(
            BestHead(
                score=score.name, layer=int(layer), head=int(head), value=float(values[layer, head])
            )
        )
    thresholds = {score.name: score.threshold for score in task.scores}
    return SeedRun(
        seed=seed,
        steps=last.step,
        loss=last.loss,
        learned=last.loss < task.goal,
        formed=all(row.value >= thresholds[row.score] for row in best if row.score in task.forms),
        best=best,
    )


def tasks_document() -> TasksDocument:
    """The `attn.tasks/1` document: the tasks that can be learned, with what each is learned with."""
    kinds = [task_class(name) for name in task_names()]
    return TasksDocument(
        version=__version__,
        tasks=[
            TaskRow(
                name=kind.name,
                takes=kind.takes,
                texts=kind.summary,
                shows=kind.lesson,
                steps=kind.steps,
                layers=kind.architecture.layers,
                heads=kind.architecture.heads,
            )
            for kind in kinds
        ],
    )


def kept_numbers(spec: Spec, rows: int, length: int) -> int:
    """About how many numbers a forward pass keeps of one layer for the gradients: some 24 vectors of
    each token in attention, 8 arrays of the size of the scores, and 24 vectors more in a
    feed-forward part.

    rows: tokens of all texts together.
    length: tokens of each text.
    """
    # all layers of a small model are alike
    heads = spec.blocks[0].attention.heads
    width = spec.d_model
    per_token = 24 * width + 8 * heads * length
    if spec.blocks[0].mlp is not None:
        per_token += 24 * width
    return rows * per_token


def training_bytes(request: LearnRequest) -> int:
    """About how much memory a step of training takes, in bytes: what it keeps of its forward pass,
    the gradients, and the weights with what AdamW keeps of each."""
    spec = small_model_of(request).spec
    length = request.task.length
    rows = max(request.batch, TEST_TEXTS) * length
    attentions = len(spec.blocks) * _attentions(request)
    # about 6 arrays of the size of the logits, and 8 of the size of the weights
    logits = 6 * rows * spec.vocabulary
    parameters = sum(math.prod(role.shape) for role in roles_of(spec).values())
    numbers = attentions * kept_numbers(spec, rows, length) + logits + 8 * parameters
    return 4 * numbers  # float32


def _attentions(request: LearnRequest) -> int:
    """How many attentions a layer has: with an encoder three, its own, the decoder's, and that of the
    decoder to the encoder."""
    if request.architecture.encoder:
        return 3
    return 1


NUMBERS, UPDATES, LAYER_STEPS = 4.0e8, 8.0e7, 1.2e3
"""How many of these a training does in a second: numbers that the forward pass keeps, with their
gradients; parameters that AdamW changes; layers whose products are too small to count. Measured with
two idle cores on models of 10⁴ to 10⁷ parameters: within a factor of two."""
LONGEST_TRAINING = 7 * 86400.0
"""Seconds above which a training is refused before it starts."""


class TrainingCost(Struct, frozen=True):
    """About how long a training takes, in seconds.

    step: each of its steps.
    rest: what is drawn, measured on the way and measured without each head at the end.
    all: everything, of every seed.
    """

    step: float
    rest: float
    all: float


def training_cost(request: LearnRequest) -> TrainingCost:
    """About how long a training will take, from its sizes alone."""
    spec = small_model_of(request).spec
    length = request.task.length
    work = work_of(spec, spec.blocks, length)
    parameters = sum(math.prod(role.shape) for role in roles_of(spec).values())
    attentions = len(spec.blocks) * _attentions(request)
    # a training step takes as long as so many forward passes: the gradients of a product are two
    # more
    passes = 3

    def forward_seconds(texts: int) -> float:
        """About how many seconds a forward pass of so many texts takes."""
        rows = texts * length
        products = _attentions(request) * texts * work.products
        products += rows * spec.vocabulary * spec.d_model
        # NUMBERS and LAYER_STEPS were measured of whole training steps, of which this is a part
        numbers = attentions * kept_numbers(spec, rows, length)
        step_seconds = numbers / NUMBERS + attentions / LAYER_STEPS
        return products / PRODUCTS_A_SECOND + step_seconds / passes

    test = forward_seconds(TEST_TEXTS)
    step = passes * forward_seconds(request.batch) + parameters / UPDATES
    heads = sum(block.attention.heads for block in spec.blocks)
    seeds = len(request.seeds)
    # the first seed is measured at points and powers of two, the others at their start and end
    moments = min(POINTS, request.steps) + math.log2(request.steps + 1) + 2 * (seeds - 1)
    # first weights are drawn as fast as they change; a test without each head tells what it is
    # worth
    rest = seeds * (parameters / UPDATES + heads * test) + moments * test
    return TrainingCost(step=step, rest=rest, all=seeds * request.steps * step + rest)


def refuse_long(request: LearnRequest) -> TrainingCost:
    """Estimate how long a training will take, in seconds: a step, what is not steps, and all of it.
    Raises LimitError where the whole takes longer than `LONGEST_TRAINING`.
    """
    expected = training_cost(request)
    if expected.all > LONGEST_TRAINING:
        # the hint is a number of steps that takes about an hour, in seconds as all times here
        hour = 3600.0
        fewer = int((hour - expected.rest) / (len(request.seeds) * expected.step))
        raise LimitError(
            message(
                "{steps:,} steps would take about {time}",
                steps=request.steps * len(request.seeds),
                time=duration_words(expected.all),
            ),
            expected=message(
                "{limit} at most: fewer steps or seeds, a smaller model or batch",
                limit=duration_words(LONGEST_TRAINING),
            ),
            hint=f"--steps {fewer}" if fewer > 0 else "--d-model 32 --layers 2",
        )
    return expected


# Tasks of the reader's own text.


def sentence_task(tokens: Sequence[Token], query: int, target: int) -> Task:
    """Make the task `sentence`: to predict the word at the position `target` after the word at the
    position `query`.

    Raises InputError where both are the same position.
    """
    from attncli.features.learn.tasks.own_sentence import OwnSentence

    if query == target:
        raise InputError(
            message("query and target are the same word, {word}", word=repr(tokens[query].text)),
            expected=message("two words of the sentence"),
        )
    return OwnSentence(tuple(token.text for token in tokens), query, target)


def text_task(text: str) -> Task:
    """Make the task `text`: to predict each next character of this text. Raises InputError for a
    text too short to be cut into pieces of which some are kept apart to test on."""
    from attncli.features.learn.tasks.own_text import WINDOW, OwnText

    least = 4 * WINDOW
    if len(text) < least:
        raise InputError(
            plural(
                "the text has {count} character, and pieces of {window} are read at once",
                "the text has {count} characters, and pieces of {window} are read at once",
                count=len(text),
                window=WINDOW,
            ),
            expected=message(
                "{least} characters or more; some thousands to learn anything", least=least
            ),
        )
    return OwnText(text)
