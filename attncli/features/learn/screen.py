"""The screens of `attn.learn/1` and `attn.tasks/1`: loss and scores by step, where heads look, what
they are worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

import numpy as np
from msgspec import UNSET

from attncli.documents import Numbers, mask_name
from attncli.draw.heatmap import Map, side_by_side
from attncli.draw.lines import Lines, heading, localize, remark, sentences, stack, stack_spaced
from attncli.draw.names import arrow
from attncli.draw.numbers import Series, curves, percent
from attncli.draw.safe import safe
from attncli.draw.tables import table
from attncli.draw.token_names import quote_text
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.learn.document import (
    BestHead,
    Example,
    HeadScore,
    LearnDocument,
    LearnedHead,
    TasksDocument,
    curve_note,
    reference_name,
    score_name,
)
from attncli.features.learn.tasks import task_class, task_names
from attncli.features.learn.tasks.task import Task
from attncli.language import Message, listing, message, plural, say
from attncli.measure.labels import LABELS
from attncli.mechanism.spec import head_name

PLOT_LINES = 12
"""Lines of the plot of the loss."""
CHANCE = 0.95
"""A loss above this share of chance is no better than it."""
MOST_MAPS = 8
"""Heads whose maps are drawn; more where the view is full."""


def learn_rows(document: LearnDocument) -> Iterator[Sequence[object]]:
    """The rows of `--plain` for a training: column names, then one row for each point of the curve
    with the loss and every score of every head."""
    names = [(head, name) for head in document.heads for name in head.scores]
    yield ("step", "loss", *(f"{head_name(head.layer, head.head)} {name}" for head, name in names))
    for place, point in enumerate(document.curve):
        yield (point.step, point.loss, *(head.scores[name].values[place] for head, name in names))


def _model_and_task(document: LearnDocument, view: View) -> Lines:
    """The task, the sizes of the model, and one of the texts."""
    model = document.model
    attention = document.attention
    facts = listing(
        (
            *_sizes(document),
            message("d_model {d_model}", d_model=model.d_model),
            message("positions {position}", position=safe(attention.position)),
            *_mask_names(document),
            message("{count:,} numbers", count=document.parameters),
            message("seed {seed}", seed=document.seed),
        ),
        " · ",
    )
    title = message("learning {task}", task=safe(document.task, ascii=view.ascii))
    example = document.example
    text = quote_text(example.text, view)
    if example.source is not UNSET:
        text = f"{quote_text(example.source, view)}{arrow(view)}{quote_text(_said(example), view)}"
    notes = [facts, message("one of the texts: {text}", text=text)]
    if document.bottleneck is True:
        notes.append(
            message("bottleneck: the decoder sees the encoder's vector of the first word alone")
        )
    if document.task in task_names() and task_class(document.task).thrift:
        notes.append(
            message(
                "each step also shortens what every head writes, so that one does what several"
                " would"
            )
        )
    return stack(heading(title, "", view), *(remark(note, view) for note in notes))


def _sizes(document: LearnDocument) -> list[Message]:
    """How many layers and heads the model has."""
    layers = document.model.layers
    sizes = [
        plural("{count} layer", "{count} layers", count=layers),
        plural("{count} head", "{count} heads", count=document.model.heads),
    ]
    if document.example.source is not UNSET:
        sizes[0] = message(
            "encoder and decoder of {layers}",
            layers=plural("{count} layer", "{count} layers", count=layers),
        )
    return sizes


def _mask_names(document: LearnDocument) -> list[str]:
    """The mask of the heads that are shown; none beside an encoder, at which they look unmasked."""
    if document.example.source is not UNSET:
        return []
    return [mask_name(safe(document.attention.mask))]


def _said(example: Example) -> str:
    """What is said over an example, the words that are to be predicted."""
    return " ".join(word for word in example.targets if word is not None)


def _query_names(example: Example) -> list[str]:
    """The names of the queries: the tokens that are read, or beside an encoder, where queries look at
    another text, the words that are said there."""
    if example.source is UNSET:
        return example.tokens
    return [word or "" for word in example.targets]


def _key_names(example: Example) -> list[str] | None:
    """The names of the keys that an encoder read; None for the queries' own tokens."""
    if example.source_tokens is UNSET:
        return None
    return example.source_tokens


def _axes_note(document: LearnDocument) -> Message:
    """What the rows and columns of the maps are."""
    if document.example.source is UNSET:
        return message("rows: queries, columns: keys")
    return message("rows: the words that are said, columns: the text that was read")


def _loss_curve(document: LearnDocument, view: View) -> Lines:
    """A plot of the loss by step, with the losses to compare it with as flat lines."""
    # a loss that is no number stands at 0
    points = tuple((float(point.step), point.loss or 0.0) for point in document.curve)
    ends = (1.0, float(max(document.curve[-1].step, 2)))  # the axis of steps is logarithmic
    flat: list[tuple[str, float]] = [(message("chance"), document.chance)]
    flat += [(reference_name(reference.name), reference.loss) for reference in document.references]
    series = [Series(localize(message("loss"), view), points)]
    series += [Series(localize(name, view), tuple((x, loss) for x in ends)) for name, loss in flat]
    title = heading(message("loss by step"), curve_note(document), view)
    return stack(
        title, curves(series, view, height=PLOT_LINES, x_name=localize(message("step"), view))
    )


def _step_table(document: LearnDocument, view: View) -> Lines:
    """A table with a row for each step that is a power of two, and the last (in a full view, for
    each point of the curve): the loss, and for each score that of the head which has most of it in
    the end. The last row is of even attention.
    """
    # of the first seed, whose model is shown
    best = document.runs[0].best
    heads = {(head.layer, head.head): head for head in document.heads}
    columns = [localize(message("step"), view), localize(message("loss"), view)]
    columns += [
        f"{safe(localize(score_name(row.score), view))} {head_name(row.layer, row.head)}"
        for row in best
    ]
    last = document.curve[-1].step
    rows = []
    for place, point in enumerate(document.curve):
        is_power_of_two = point.step & (point.step - 1) == 0
        if not view.full and not is_power_of_two and point.step != last:
            continue
        scores = [heads[row.layer, row.head].scores[row.score].values[place] for row in best]
        rows.append(
            [f"{point.step:,}", _loss_text(point.loss), *(f"{score:.2f}" for score in scores)]
        )
    chances = [f"{heads[row.layer, row.head].scores[row.score].chance:.2f}" for row in best]
    rows.append([localize(message("chance"), view), _loss_text(document.chance), *chances])
    note = message(
        "scores: the weight that rows give to the keys in question, of the head with most in"
        " the end"
    )
    body = table(
        columns,
        rows,
        view,
        align=["right"] * len(columns),
        title=message("by step"),
        note=note,
        strong=len(rows) - 2,  # the last step: after it comes the row of chance
    )
    return stack(body, remark(_meanings(document), view))


def _meanings(document: LearnDocument) -> Message | str:
    """The note on which keys the task's scores count; "" where their names say it."""
    kind = _known_task(document.task)
    if kind is None:
        return ""
    return listing((row.meaning for row in kind.scores if row.meaning), "; ")


def _maps_before_and_after(document: LearnDocument, view: View) -> Lines:
    """Maps of each head's attention weights in the example, [query, key], after training; in a full
    view also before it."""
    first = document.maps[0]
    last = document.maps[-1]
    heads = [(head.layer, head.head) for head in document.heads]
    if view.full:
        heads_shown = heads
    else:
        heads_shown = heads[:MOST_MAPS]
    maps = [
        Map(
            head_name(layer, head),
            np.asarray(last.weights)[layer, head],
            _reached_scores(document, layer, head, view),
        )
        for layer, head in heads_shown
    ]
    names = _query_names(document.example)
    note = _axes_note(document)
    blocks = []
    if view.full:
        before = [
            Map(head_name(layer, head), np.asarray(first.weights)[layer, head])
            for layer, head in heads_shown
        ]
        blocks = [
            heading(message("maps before training"), note, view),
            side_by_side(
                before, view, limits=(0.0, 1.0), names=names, in_a_row=document.model.heads
            ),
        ]
    title = heading(message("maps after step {step:,}", step=last.step), note, view)
    picture = side_by_side(
        maps, view, limits=(0.0, 1.0), names=names, in_a_row=document.model.heads
    )
    return stack(*blocks, title, picture)


def _reached_scores(document: LearnDocument, layer: int, head: int, view: View) -> tuple[str, ...]:
    """The lines below a head's map, one for each score that has reached its threshold, such as
    `induction 0.83`."""
    return tuple(
        f"{safe(localize(score_name(name), view))} {score.last:.2f}"
        for row in document.heads
        if (row.layer, row.head) == (layer, head)
        for name, score in row.scores.items()
        if score.last >= score.threshold
    )


def _head_table(document: LearnDocument, view: View) -> Lines:
    """A table of the heads: each score before and after training, the step at which one rose, and
    the loss without the head."""
    losses = {(row.layer, row.head): row.loss for row in document.ablation.heads}
    # all heads have the same scores
    names = list(document.heads[0].scores)
    arrow_text = arrow(view)
    rows = []
    for head in document.heads:
        cells = [head_name(head.layer, head.head)]
        cells += [
            f"{head.scores[name].first:.2f}{arrow_text}{head.scores[name].last:.2f}"
            for name in names
        ]
        cells += [_rise_step(head), _loss_text(losses.get((head.layer, head.head)))]
        rows.append(cells)
    columns = [
        localize(message("head"), view),
        *(safe(localize(score_name(name), view)) for name in names),
        localize(message("rose at step"), view),
        localize(message("loss without it"), view),
    ]
    note = message(
        "scores untrained → trained, and the step at which half of that rise was reached"
    )
    return table(
        columns,
        rows,
        view,
        align=["left", *["right"] * (len(columns) - 1)],
        title=message("heads"),
        note=note,
    )


def _rise_step(head: LearnedHead) -> str:
    """The step by which the score of a head that rose most had risen half of the way; "-" where none
    rose."""
    rises = [
        (score.last - score.first, score.rose_at)
        for score in head.scores.values()
        if score.rose_at is not None
    ]
    if not rises:
        return "-"
    _, step = max(rises)
    return f"{step:,}"


def _length_table(document: LearnDocument, view: View) -> Lines:
    """A table of the loss by the length of what the encoder read; nothing without an encoder."""
    if document.by_length is UNSET:
        return Lines()
    columns = [
        localize(message("tokens"), view),
        localize(message("texts"), view),
        localize(message("loss"), view),
    ]
    rows = [[f"{row.tokens}", f"{row.texts}", _loss_text(row.loss)] for row in document.by_length]
    return table(
        columns,
        rows,
        view,
        align=["right"] * len(columns),
        title=message("loss by the length of the text that was read"),
        note=message("means over the texts of a length: of few texts they vary by chance"),
    )


def _seed_table(document: LearnDocument, view: View) -> Lines:
    """A table with the result of each seed; nothing for a single seed."""
    if len(document.runs) < 2:
        return Lines()
    # all seeds have the same scores
    names = [row.score for row in document.runs[0].best]
    columns = [
        localize(message("seed"), view),
        localize(message("steps"), view),
        localize(message("loss"), view),
    ]
    columns += [
        *(safe(localize(score_name(name), view)) for name in names),
        localize(message("learned"), view),
    ]
    rows = []
    for run in document.runs:
        best = {row.score: row for row in run.best}
        cells = []
        for name in names:
            head = best.get(name)
            if head is None:  # in a document that was changed by hand
                cells.append("")
            else:
                cells.append(f"{head.value:.2f} {head_name(head.layer, head.head)}")
        learned = localize(message("yes") if run.learned else message("no"), view)
        rows.append([f"{run.seed}", f"{run.steps:,}", _loss_text(run.loss), *cells, learned])
    title = message("seeds")
    note = message("of each score the highest, and its head")
    return table(columns, rows, view, align=["right"] * (len(columns) - 1), title=title, note=note)


def learn_answer(document: LearnDocument, view: View) -> Lines:
    """Draw the answer: whether the task was learned, which heads do it and since when, what
    removing one of them costs, and what to do next."""
    return sentences([say(view, sentence) for sentence in answer_sentences(document, view)], view)


def answer_sentences(document: LearnDocument, view: View) -> list[str]:
    """Sentences with the answer: whether the task was learned, which heads do it, what removing one
    of them costs, and what to do next."""
    loss = _loss_text(document.loss)
    texts: list[str] = [
        _outcome(document),
        _goal_sentence(document),
        *_chance_sentences(document),
    ]
    texts += [
        message(
            "For comparison, {way}: a loss of {loss}.",
            way=reference_name(reference.name),
            loss=_loss_text(reference.loss),
        )
        for reference in document.references
    ]
    heads = {(head.layer, head.head): head for head in document.heads}
    # of the first seed, whose model is shown, the best head of each score
    for row in document.runs[0].best:
        score = heads[row.layer, row.head].scores[row.score]
        if score.last >= score.threshold and score.rose_at is not None:
            texts.append(_head_sentence(row, score, document))
            texts += _label_sentences(row, score)
            texts += _others_sentences(row, document)
        elif _is_missed(row.score, document):
            texts.append(
                message(
                    "It did not form {kind}: the highest score is {value:.2f}.",
                    kind=_score_phrase(document.task, row.score),
                    value=row.value,
                )
            )
            texts += _elsewhere_sentences(row, document, view)
    texts += _alignment_sentences(document)
    # the head without which the loss is highest; one that is no number counts as 0
    worth = max(document.ablation.heads, key=lambda row: row.loss or 0.0)
    if document.loss is not None and worth.loss is not None and document.learned:
        texts.append(
            message(
                "Without layer {layer} head {head} the loss is {without} in place of {loss}.",
                layer=worth.layer,
                head=worth.head,
                without=_loss_text(worth.loss),
                loss=loss,
            )
        )
    if len(document.runs) > 1:
        texts.append(_seeds_sentence(document))
    return [*texts, *_next_steps(document, view)]


def _outcome(document: LearnDocument) -> Message:
    """The sentence on whether the model that is shown learned the task; of several seeds it names the
    one that is."""
    loss = _loss_text(document.loss)
    steps = plural("{count} step", "{count} steps", count=document.steps)
    is_one_of_several = len(document.runs) > 1
    if document.learned and is_one_of_several:
        return message(
            "Seed {seed} learned it: a loss of {loss} after {steps}.",
            seed=document.seed,
            loss=loss,
            steps=steps,
        )
    if document.learned:
        return message(
            "The model learned it: a loss of {loss} after {steps}.", loss=loss, steps=steps
        )
    if is_one_of_several:
        return message(
            "Seed {seed} has not learned it: a loss of {loss} after {steps}.",
            seed=document.seed,
            loss=loss,
            steps=steps,
        )
    return message(
        "The model has not learned it: a loss of {loss} after {steps}.", loss=loss, steps=steps
    )


def _goal_sentence(document: LearnDocument) -> Message:
    """The sentence on the loss below which a model has learned the task."""
    chance = _loss_text(document.chance)
    goal = _loss_text(document.goal)
    # of a text of one's own the goal is what can be guessed without attention
    ways = [row.name for row in document.references if row.loss == document.goal]
    if ways:
        return message(
            "It counts as learned below {goal}, the loss of {way}; chance is {chance}.",
            goal=goal,
            way=reference_name(ways[0]),
            chance=chance,
        )
    return message(
        "It counts as learned below {goal}, a tenth of the loss by chance ({chance}).",
        goal=goal,
        chance=chance,
    )


def _chance_sentences(document: LearnDocument) -> list[Message]:
    """One sentence where all steps were made and the loss is no better than chance; else empty."""
    is_over = document.steps >= document.planned
    if document.learned or not is_over or document.loss is None or document.saved is not None:
        return []
    if document.loss <= CHANCE * document.chance:
        return []
    return [message("A loss of {loss} is no better than chance.", loss=_loss_text(document.loss))]


def _is_missed(score: str, document: LearnDocument) -> bool:
    """Whether it is told that no head reached the threshold of a score: one by which the task is known
    to be done, or a single head that did it otherwise. A decoder that sees one vector alone has
    nothing to choose from, so that none is missed."""
    if document.bottleneck is True:
        return False
    if document.forms:
        return score in document.forms
    # a single head that has learned a task has done so in another way
    return document.learned and len(document.heads) == 1


def _alignment_sentences(document: LearnDocument) -> list[Message]:
    """Sentences on how often the decoder looks most at the word that it translates, and on the loss
    of the shortest and the longest texts; none without an encoder."""
    texts = []
    if document.alignment is not UNSET:
        row = document.alignment
        texts.append(
            message(
                "At {share} of the words that are said, the largest weight of layer {layer} head"
                " {head} is on the word that is translated; at {chance} by chance.",
                share=percent(row.share),
                layer=row.layer,
                head=row.head,
                chance=percent(row.chance),
            )
        )
    if document.by_length is not UNSET and len(document.by_length) > 1:
        shortest = document.by_length[0]
        longest = document.by_length[-1]
        texts.append(
            message(
                "Texts of {few} tokens have a loss of {low}, texts of {many} tokens {high}.",
                few=shortest.tokens,
                low=_loss_text(shortest.loss),
                many=longest.tokens,
                high=_loss_text(longest.loss),
            )
        )
    return texts


def _head_sentence(row: BestHead, score: HeadScore, document: LearnDocument) -> Message:
    """A sentence on the best head of a score: what it has become, and by which step."""
    return message(
        "Layer {layer} head {head} became {kind}: {last:.2f}, untrained {first:.2f}; "
        "by step {step:,} it had risen half of the way.",
        layer=row.layer,
        head=row.head,
        kind=_score_phrase(document.task, row.score),
        last=score.last,
        first=score.first,
        step=score.rose_at,
    )


def _label_sentences(row: BestHead, score: HeadScore) -> list[Message]:
    """One sentence where the head's score reaches the threshold of its task but not that of the
    label of the same score in `attn heads`; else empty."""
    label = next((label for label in LABELS.values() if label.score == row.score), None)
    if label is None or not score.threshold <= score.last < label.threshold:
        return []
    return [
        message(
            "Here it counts as one from {here:.2f} on; attn heads labels one from {label:.2f} on.",
            here=score.threshold,
            label=label.threshold,
        )
    ]


def _elsewhere_sentences(row: BestHead, document: LearnDocument, view: View) -> list[Message]:
    """One sentence on the word that a head looks at most, in an example where one word alone is to
    be said; empty elsewhere, and where that is the word itself."""
    example = document.example
    places = [place for place, target in enumerate(example.targets) if target is not None]
    if len(places) != 1 or example.source is not UNSET:  # of a source the keys are other words
        return []
    query = places[0]
    weights = np.asarray(document.maps[-1].weights, np.float64)[row.layer, row.head, query]
    key = int(weights.argmax())
    if example.tokens[key] == example.targets[query]:
        return []
    return [
        message(
            "At {query} layer {layer} head {head} looks most at {key}: {share} of its weight.",
            query=quote_text(example.tokens[query], view),
            layer=row.layer,
            head=row.head,
            key=quote_text(example.tokens[key], view),
            share=percent(float(weights[key])),
        )
    ]


MOST_OTHERS = 6
"""Heads beside the first that a sentence names one by one."""


def _others_sentences(row: BestHead, document: LearnDocument) -> list[Message]:
    """One sentence that names the other heads that reached the threshold of the best head's score;
    empty if there are none."""
    others: list[LearnedHead] = []
    for head in document.heads:
        score = head.scores[row.score]
        is_best = (head.layer, head.head) == (row.layer, row.head)
        if not is_best and score.rose_at is not None and score.last >= score.threshold:
            others.append(head)
    if not others:
        return []
    others.sort(key=lambda head: -head.scores[row.score].last)
    names = [
        message(
            "layer {layer} head {head} ({value:.2f})",
            layer=head.layer,
            head=head.head,
            value=head.scores[row.score].last,
        )
        for head in others[:MOST_OTHERS]
    ]
    rest = len(others) - len(names)
    if rest:
        names.append(message("{count} more", count=rest))
    return [message("So did {heads}.", heads=listing(names))]


def _own_score(document: LearnDocument) -> str:
    """The name of the score that is the task's own: the last of those that some head must reach, or
    the last of all where any way will do."""
    names = [row.score for row in document.runs[0].best]
    needed = [name for name in names if name in document.forms]
    return (needed or names)[-1]


def _seeds_sentence(document: LearnDocument) -> Message:
    """A sentence on how many seeds learned the task, and in how many of them a head reached the
    threshold of the task's score."""
    count = len(document.runs)
    learned = sum(run.learned for run in document.runs)
    name = _own_score(document)
    # all heads have the same threshold
    threshold = document.heads[0].scores[name].threshold
    best_values = [row.value for run in document.runs for row in run.best if row.score == name]
    doing = sum(value >= threshold for value in best_values)
    seeds = plural("{count} seed", "{count} seeds", count=count)
    kind = _score_phrase(document.task, name)
    if not learned and not doing:
        return message(
            "Of {seeds} none learned it, and in none of them is there {kind}.",
            seeds=seeds,
            kind=kind,
        )
    if not doing:
        return message(
            "Of {seeds} {learned} learned it, and in none of them is there {kind}: it was learned"
            " without one.",
            seeds=seeds,
            learned=learned,
            kind=kind,
        )
    if learned == count > 1:
        return message(
            "All {seeds} learned it, and in {doing} there is {kind}.",
            seeds=seeds,
            doing=doing,
            kind=kind,
        )
    return message(
        "Of {seeds} {learned} learned it, and in {doing} there is {kind}.",
        seeds=seeds,
        learned=learned,
        doing=doing,
        kind=kind,
    )


def _next_steps(document: LearnDocument, view: View) -> list[Message]:
    """Sentences on what to do next: commands for the trained model, or settings with which it may
    learn the task."""
    texts: list[Message] = []
    if document.steps < document.planned:
        texts = [message("It was stopped before its {planned:,} steps.", planned=document.planned)]
    if document.saved is not None:
        folder = safe(quote(document.saved), ascii=view.ascii)
        example = document.example
        if example.source is not UNSET:
            said = safe(quote(_said(example)), ascii=view.ascii)
            source = safe(quote(example.source), ascii=view.ascii)
            return [
                *texts,
                message(
                    "It is saved. Try:  attn cross --model {folder} {said} {source}",
                    folder=folder,
                    said=said,
                    source=source,
                ),
            ]
        text = safe(quote(example.text), ascii=view.ascii)
        return [
            *texts,
            message(
                "It is saved. Try:  attn heads --model {folder} {text}", folder=folder, text=text
            ),
        ]
    if document.learned or texts:
        return texts

    # all steps were made and it has not learned: another seed, or the task's own settings
    kind = _known_task(document.task)
    if kind is None or len(document.runs) > 1:
        return texts
    command = f"attn learn {kind.name}"
    if kind.takes:
        command += " …"
    changes = _changed_settings(document, kind)
    if not changes:
        texts.append(
            message("Another seed may: {command}", command=f"{command} --seed {document.seed + 1}")
        )
    elif kind.takes != "FILE":  # what a text of one's own allows nobody knows
        texts.append(
            message(
                "This run had {changes}. With the task's own settings most seeds learn it: {command}",
                changes=listing(changes),
                command=command,
            )
        )
    return texts


def _changed_settings(document: LearnDocument, kind: type[Task]) -> list[Message]:
    """What is another in a training than the task has where no option says otherwise: each as the
    option with its value here, and the task's own.
    """
    model = document.model
    attention = document.attention
    own = kind.architecture
    # without a residual the vectors have two halves as wide as the option says: what enters, and what
    # attention writes
    width = model.d_model
    if not own.residual and width is not None:
        width //= 2
    rows: list[tuple[str, object, object]] = [
        ("--layers", model.layers, own.layers),
        ("--num-heads", model.heads, own.heads),
        ("--d-model", width, own.d_model),
        ("--position", attention.position, own.position),
        ("--mask", attention.mask, own.mask.spec()),
        ("--steps", document.steps, kind.steps),
        ("--batch", document.batch, kind.batch),
        ("--learning-rate", document.learning_rate, kind.rate),
    ]
    # a learned model has both sizes, which of other models may be unknown
    scale = ((model.d_model or 1) // (model.heads or 1)) ** -0.5
    if attention.scale is not None and abs(attention.scale - scale) >= 1e-6:
        rows.append(("--scale", f"{attention.scale:.3g}", f"{scale:.3g}"))
    changes = [
        message(
            "{option} {value} in place of {own}", option=name, value=safe(f"{value}"), own=of_task
        )
        for name, value, of_task in rows
        if value != of_task
    ]
    if document.bottleneck is True:
        changes.append(_verbatim("--bottleneck"))
    return changes


def _known_task(name: str) -> type[Task] | None:
    """The class of the task of this name; None for one that a saved document names and this version
    does not have.
    """
    if name in task_names():
        return task_class(name)
    return None


def _score_phrase(task: str, score: str) -> str:
    """What a head with a high value of a task's score is called, such as "an induction head"."""
    kind = _known_task(task)
    if kind is not None:
        names = {row.name: row.head for row in kind.scores}
    else:
        names = {}
    return names.get(score, message("a head of the score {score}", score=safe(score)))


def _verbatim(name: str) -> Message:
    """A name as a message that is the same in every language, made safe for the screen."""
    return listing((safe(name),))  # a list of one is that one, and no catalogue has it


def _loss_text(loss: float | None) -> str:
    """A loss in nats, with four digits where it is small; "-" where it is no number."""
    if loss is None:
        return "-"
    loss = max(0.0, loss)  # in this order -0.0, the logarithm of a sure token, becomes 0.0
    if loss >= 0.1:
        return f"{loss:.2f}"
    return f"{loss:.4f}"


def learn_page(
    document: LearnDocument, lang: str, maps: Mapping[int, Numbers] | None = None
) -> bytes | None:
    """The HTML page of a training, with a slider over its steps; None where there is no map of any
    step.

    lang: the page's language, such as "en".
    maps: attention weights in the example by step, [layer, head, query, key]; None for those that
        the document has.
    """
    from attncli.draw.page.document_page import without_places
    from attncli.draw.page.steps_page import StepsPage, steps_page

    document = without_places(document)  # a page does not tell in which folder a model lies
    model = document.model
    attention = document.attention
    steps = [point.step for point in document.curve]
    facts = (
        *_sizes(document),
        message("d_model {d_model}", d_model=model.d_model),
        message("positions {position}", position=attention.position),
        *_mask_names(document),
        message("seed {seed}", seed=document.seed),
    )
    flat: list[tuple[str, float]] = [(message("chance"), document.chance)]
    flat += [(reference_name(row.name), row.loss) for row in document.references]
    maps = maps or {weight_map.step: weight_map.weights for weight_map in document.maps}
    if not maps:
        return None
    title = message("learning {task}", task=document.task)
    # all heads have the same scores
    names = list(document.heads[0].scores)
    return steps_page(
        StepsPage(
            title=f"attn: {document.task}",
            line=listing((title, *facts), " · "),
            tokens=_query_names(document.example),
            heads=[(head.layer, head.head) for head in document.heads],
            steps=steps,
            lines=[
                (message("loss"), [point.loss for point in document.curve]),
                *((name, [loss] * len(steps)) for name, loss in flat),
            ],
            scores=[
                (score_name(name), [head.scores[name].values for head in document.heads])
                for name in names
            ],
            # of each step with maps the place on the slider, and its maps
            maps=(
                list(map(steps.index, maps)),
                np.stack(list(map(_heads_of_all_layers, maps.values()))),
            ),
            document=document,
            notes=answer_sentences(document, View(lang=lang)),
            lang=lang,
            keys=_key_names(document.example),
        )
    )


def _heads_of_all_layers(weights: Numbers) -> Numbers:
    """Put the heads of all layers in one row: weights [layer, head, query, key] as float64 [layer ·
    head, query, key]."""
    array = np.asarray(weights, np.float64)
    return array.reshape((-1, *array.shape[2:]))


# The list of tasks.


def tasks_screen(document: TasksDocument, view: View) -> Lines:
    """The screen of the tasks, with what their texts are and what each shows: a table, or one block
    for each task where the screen is narrow."""
    rows = [
        [
            f"{safe(row.name)} {row.takes}".rstrip(),
            localize(_task_words(row.name, "summary", row.texts), view),
            localize(_task_words(row.name, "lesson", row.shows), view),
        ]
        for row in document.tasks
    ]
    columns = [
        localize(message("task"), view),
        localize(message("texts"), view),
        localize(message("what it shows"), view),
    ]
    if view.width < ROOMY:
        blocks = [
            stack(
                heading(_verbatim(name), "", view),
                remark(texts, view, style=""),
                remark(lesson, view),
            )
            for name, texts, lesson in rows
        ]
        return stack_spaced(
            *blocks, remark(message("attn learn TASK trains a small model on it."), view)
        )
    return stack_spaced(
        table(columns, rows, view),
        remark(message("attn learn TASK trains a small model on it."), view),
    )


ROOMY = 150
"""Cells from which on the tasks fit a table."""


def tasks_rows(document: TasksDocument) -> Iterator[Sequence[object]]:
    """One line per task, for `--plain`."""
    yield ("task", "takes", "texts", "shows")
    for row in document.tasks:
        yield (row.name, row.takes, row.texts, row.shows)


def _task_words(name: str, part: str, text: str) -> str:
    """What a document says of a task, so that it can be translated: the task's own message where
    the text is still the same, else (in a document of another version) the text, made safe.

    part: the attribute of the task's class, "summary" or "lesson".
    """
    kind = _known_task(name)
    own = getattr(kind, part, None)
    if isinstance(own, Message) and own == text:
        return own
    return safe(text)


LEARN_PARTS: Parts[LearnDocument] = (
    ScreenPart("header", _model_and_task),
    ScreenPart("curve", _loss_curve, never),
    ScreenPart("steps", _step_table),
    ScreenPart("maps", _maps_before_and_after),
    ScreenPart("heads", _head_table),
    ScreenPart("lengths", _length_table),
    ScreenPart("seeds", _seed_table),
    ScreenPart("answer", learn_answer),
)
