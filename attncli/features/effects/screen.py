"""The screens of effects: of `attn ablate`, over one text and over many, of `attn logits`, of `attn
patch`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import UNSET, UnsetType

from attncli.documents import TokenRow
from attncli.draw.columns import bar_column, column_table, text_column
from attncli.draw.lines import Lines, heading, remark, sentences, stack, stack_spaced
from attncli.draw.numbers import format_signed, percent, writer
from attncli.draw.safe import label, spell
from attncli.draw.screen_header import header, shown_tokens, warning
from attncli.draw.sentence import not_learned_note, sentence, shaded_sentence, words
from attncli.draw.tables import table
from attncli.draw.token_names import (
    TEXT_CELLS,
    capitalize_sentences,
    quote_text,
    quoted_token,
    rest_names,
    short,
    short_token,
    words_at,
)
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.effects.difference_answer import (
    bracketed_interval,
    logit_probability_sentence,
    pairs_sentences,
    patch_probability_sentences,
    probability_caveats,
)
from attncli.features.effects.document import (
    AblateDocument,
    DeletionStep,
    Difference,
    DifferenceDocument,
    EffectRow,
    EffectsDocument,
    Interval,
    LinkPlace,
    LogitPart,
    LogitsDocument,
    MeanEffect,
    MeanMeasures,
    Measure,
    PatchDocument,
    PatchRow,
    Reading,
    WordPart,
    logit_part_name,
    reading_of,
    readings_of,
    telling_look,
)
from attncli.features.effects.effect_answer import (
    GRID_TITLES,
    HEAD_SENTENCES,
    LINK_SENTENCES,
    MEASURE_COLUMNS,
    SIGN_NOTES,
    ablate_answer,
    by_attention,
    effect_columns,
    effect_size,
    effect_text,
    grid,
    grids,
    heads_table,
    interval_column,
    lens_sentences,
    lens_table,
    look_tint,
    range_text,
    size_text,
    subject,
)
from attncli.features.effects.effect_answer import (
    ablate_sentences as ablate_sentences,
)  # `attn.ablate/1` answers so
from attncli.features.effects.head_phrase import head_phrase
from attncli.language import Message, contextual, message, say
from attncli.measure.rest import resting_keys


def effects_rows(document: EffectsDocument) -> Iterator[Sequence[object]]:
    """Yield the rows of `--plain` for mean effects: column names, one row a head, last that of all
    heads at once.
    """
    names = readings_of(document.measures)
    columns = [f"{name}{end}" for name in names for end in ("", "_low", "_high", "_texts")]
    yield ("attention", "layer", "head", *columns)
    for effect in document.effects:
        yield (effect.attention, effect.layer, effect.head, *_plain_means(effect.measures, names))
    yield ("together", None, None, *_plain_means(document.together, names))


def _plain_means(measures: MeanMeasures, names: Sequence[Reading]) -> Iterator[object]:
    """Yield for each number in `names` its mean, both ends of its interval, and how many texts
    define it.
    """
    for name in names:
        interval = measures.mean(name)
        if interval is None:
            yield from (None, None, None, None)
        else:
            yield from (interval.mean, interval.low, interval.high, interval.texts)


def _first_reading(document: EffectsDocument) -> Reading:
    """The name of the number that heads are ranked by: of the first measure, such as "cosine"."""
    return readings_of(document.measures)[0]


def _effects_header(document: EffectsDocument, view: View) -> Lines:
    """Lines on the model, the number of texts that means are taken over, and warnings."""
    name = label(
        document.model.name or document.model.family or document.model.source, ascii=view.ascii
    )
    count = document.texts
    if count == 1:
        note = say(view, "one text")
    else:
        note = say(view, "mean over {count} texts", count=count)
    top = heading(name, note, view)
    return stack(top, *(warning(warning_text, view) for warning_text in document.warnings))


def _effects_grid(document: EffectsDocument, view: View) -> Lines:
    """A map of the heads, layer × head, by their mean effect."""
    means: list[tuple[MeanEffect, float | None]] = []
    for effect in document.effects:
        interval = effect.measures.mean(_first_reading(document))
        means.append((effect, None if interval is None else interval.mean))
    values = by_attention(means)
    title = say(view, GRID_TITLES[document.measures[0]])
    return grids(values, view, title, signed=document.measures[0] == "logprob")


def _effects_heads(document: EffectsDocument, view: View) -> Lines:
    """A table of the heads with the largest mean effects and their intervals."""
    if view.full:
        shown = document.effects
    else:
        shown = document.effects[: view.top]
    if not shown:
        return Lines()
    intervals = [effect.measures.mean(_first_reading(document)) for effect in shown]
    means, lows, highs = effect_columns(
        [None if interval is None else interval.mean for interval in intervals],
        [None if interval is None else interval.low for interval in intervals],
        [None if interval is None else interval.high for interval in intervals],
    )
    first = MEASURE_COLUMNS[document.measures[0]]
    ends = message("95% interval")
    columns: dict[str, list[str]] = {first: means, ends: list(map(range_text, lows, highs))}
    body = heads_table(
        shown, columns, view, title=_effects_title(document, view), count=len(document.effects)
    )
    return stack(body, remark(SIGN_NOTES.get(document.measures[0], ""), view))


EFFECTS_TITLES = {
    "zero": message("what changes in {subject} when one head is taken away, mean over texts"),
    "mean": message("what changes in {subject} when one head passes on a mean, mean over texts"),
    "resample": message(
        "what changes in {subject} when one head passes on another text's values, mean over texts"
    ),
    "knockout": message(
        "{query} no longer sees {key}, in one head at a time: what changes in {subject}, mean over"
        " texts"
    ),
}
"""The title of the heads, by what stands for the one that is taken away."""


def _effects_title(document: EffectsDocument, view: View) -> str:
    """A title in words: what was taken away from the texts, and what is measured."""
    link = document.link
    ends = {}
    if link is not None:
        ends = {
            "query": label(link.query, ascii=view.ascii),
            "key": label(link.key, ascii=view.ascii),
        }
    return say(view, EFFECTS_TITLES[document.by], subject=effects_subject(document, view), **ends)


def effects_subject(document: EffectsDocument, view: View) -> str:
    """What is measured in every text, as a noun phrase: a token's vector or a prediction."""
    match document.measures[0], document.place:
        case "vector", "mean":
            return say(view, "the mean of all vectors")
        case "vector", "last":
            return say(view, "the last vector")
        case "vector", word:
            return quote_text(word, view)
        case "kl", _:
            return say(view, "the next token's distribution")
        case _:
            return say(view, "a log-probability")


def _interval_text(interval: Interval) -> str:
    """The ends of a mean's 95% interval as "low … high"; "-" where it has none."""
    if interval.low is None or interval.high is None:
        return "-"
    return range_text(effect_text(interval.low), effect_text(interval.high))


@capitalize_sentences
def mean_effect_sentences(document: EffectsDocument, view: View) -> Iterator[str]:
    """Yield the answer in sentences: the head whose mean effect is largest, whether the next one's
    interval lies apart from it, and the effect of all at once. The document has the heads in this
    order, the largest first."""
    means = [
        (effect, effect.measures.mean(_first_reading(document))) for effect in document.effects
    ]
    known_means = [(effect, mean) for effect, mean in means if mean is not None]
    if known_means:
        effect, first = known_means[0]
        if first.low is None:
            template = message(
                "In the one text there is {head} changes most: {size}. One text has no interval."
            )
        else:
            template = message(
                "On average over {count} texts {head} changes most: {size} (95% interval"
                " {interval})."
            )
        head = head_phrase(effect, view)
        mean = size_text(first.mean, document.measures[0], view)
        yield say(
            view,
            template,
            head=head,
            size=mean,
            interval=_interval_text(first),
            count=document.texts,
        )
        if len(known_means) > 1 and first.low is not None:
            effect, second = known_means[1]
            if second.high is not None and second.high < first.low:
                template = message("The next one, {head}, lies below that interval.")
            else:
                template = message(
                    "The interval of the next one, {head}, overlaps it: these texts do not tell"
                    " them apart."
                )
            yield say(view, template, head=head_phrase(effect, view))
    together = document.together.mean(_first_reading(document))
    if together is not None and len(document.effects) != 1:  # of one head it is the same
        size = size_text(together.mean, document.measures[0], view)
        if together.low is not None:
            size = say(view, "{size} ({interval})", size=size, interval=_interval_text(together))
        if document.link is None:
            templates = HEAD_SENTENCES
        else:
            templates = LINK_SENTENCES
        yield say(view, templates["together"], size=size, count=len(document.effects))


def effects_answer(document: EffectsDocument, view: View) -> Lines:
    """The answer of an `attn.effects/1` document in words."""
    answer_sentences = (
        *mean_effect_sentences(document, view),
        not_learned_note(document.model, view),
    )
    return sentences(answer_sentences, view)


# The screen of `attn.difference/1`: how effects of heads differ between two sets of texts, or two
# models.


def difference_rows(document: DifferenceDocument) -> Iterator[Sequence[object]]:
    """All heads as a table for `--plain`, its first row the names of the columns."""
    yield ("attention", "layer", "head", "a", "b", "difference", "low", "high")
    for head in document.heads:
        yield (
            head.attention,
            head.layer,
            head.head,
            head.a,
            head.b,
            head.difference,
            head.low,
            head.high,
        )


def _difference_header(document: DifferenceDocument, view: View) -> Lines:
    """Lines that name both documents, A and B, with the number of texts of each, and warnings."""
    sides = [label(side.name, ascii=view.ascii) for side in (document.a, document.b)]
    note = say(view, "effects over {a} and {b} texts", a=document.a.texts, b=document.b.texts)
    top = heading(f"A {sides[0]} · B {sides[1]}", note, view)
    return stack(top, *(warning(warning_text, view) for warning_text in document.warnings))


def _difference_heads(document: DifferenceDocument, view: View) -> Lines:
    """A table of the heads: the effect in A, in B, and the difference with its interval."""
    if view.full:
        shown = document.heads
    else:
        shown = document.heads[: view.top]
    a, b, difference, lows, highs = effect_columns(
        [head.a for head in shown],
        [head.b for head in shown],
        [head.difference for head in shown],
        [head.low for head in shown],
        [head.high for head in shown],
    )
    columns = {
        "A": a,
        "B": b,
        "B - A": difference,
        message("95% interval"): list(map(range_text, lows, highs)),
    }
    return heads_table(
        shown, columns, view, title=message("effects of heads, B less A"), count=len(document.heads)
    )


DIFFERENCE_MEASURES: dict[str, Measure] = {
    "cosine": "vector",
    "logprob": "logprob",
    "kl": "kl",
    "difference": "difference",
}
"""The measure that a reading is of."""


@capitalize_sentences
def _difference_sentences(document: DifferenceDocument, view: View) -> Iterator[str]:
    """Yield sentences on how many heads have an interval of their difference without 0, and which
    differs most: the first, since a document has its heads by the size of the difference.
    """
    first = document.heads[0]
    head = head_phrase(first, view)
    measure = DIFFERENCE_MEASURES[document.measure]
    a = size_text(first.a, measure, view)
    b = size_text(first.b, measure, view)
    yield say(view, "{head} differs most: {a} in A, {b} in B.", head=head, a=a, b=b)
    intervals = [
        (head.low, head.high)
        for head in document.heads
        if head.low is not None and head.high is not None
    ]
    if intervals:
        yield say(
            view,
            "{count} of {heads} heads differ by more than their 95% interval.",
            count=sum(low > 0 or high < 0 for low, high in intervals),
            heads=len(intervals),
        )
        chance = len(intervals) * 0.05  # a 95% interval misses so often
        if chance >= 1:
            count = f"{chance:.0f}"
        else:
            count = f"{chance:.1g}"
        yield say(view, "About {count} would by chance alone.", count=count)


# The screen of `attn.ablate/1`: what changes when a head is taken away, the largest change first.

LONGEST_ABLATE, NAME_ABLATE = 20, 12
"""Cells of the longest bar, and of the text of a key."""


def ablate_rows(document: AblateDocument) -> Iterator[Sequence[object]]:
    """Yield the rows of `--plain` for one text's effects: column names, one row a head, last that
    of all heads at once."""
    names = readings_of(document.measures)
    has_difference = "difference" in names
    # with one value for each effect, and one for all of these heads at once
    chances = _effect_probabilities(document)
    yield (
        "attention",
        "layer",
        "head",
        *names,
        *(("probability",) if chances else ()),
        *(f"random_{name}" for name in names),
        "weight",
        "looks_at",
        "looks_weight",
        *(DIFFERENCE_COLUMNS if has_difference else ()),
    )
    for number, effect in enumerate(document.effects):
        looks = effect.looks
        yield (
            effect.attention,
            effect.layer,
            effect.head,
            *(reading_of(effect, name) for name in names),
            *chances[number : number + 1],  # none where the column is missing, too
            *(None if effect.random is None else reading_of(effect.random, name) for name in names),
            effect.weight,
            None if looks is None else looks.key,
            None if looks is None else looks.weight,
            *(_difference_cells(effect.difference) if has_difference else ()),
        )
    together = [reading_of(document.together, name) for name in names]
    no_random = [None for _ in names]
    no_link_or_look = (None, None, None)
    cells = _difference_cells(document.together.difference) if has_difference else ()
    yield ("together", None, None, *together, *chances[-1:], *no_random, *no_link_or_look, *cells)


def _effect_probabilities(document: AblateDocument) -> list[float | None]:
    """The probability of the target without each head, in the order of effects, then that without
    all at once; None for one that was not computed, and an empty list of a document that tells no
    probability."""
    predictions = document.predictions
    if predictions is UNSET:
        return []
    chances: list[float | None] = [None for _ in document.effects]
    if predictions.probabilities is not UNSET:
        chances = list(predictions.probabilities)
    elif predictions.without is not None:
        chances[0] = predictions.without.probability
    return [*chances, predictions.together.probability]


DIFFERENCE_COLUMNS = ("held", "moved", "low", "high", "sign_share")
"""The columns of `--plain` on a difference of logits besides what is lost."""


def _difference_cells(difference: Difference | UnsetType) -> Iterator[object]:
    """Yield the cells of `DIFFERENCE_COLUMNS` for one row, None where something was not measured."""
    if difference is UNSET:
        yield from (None for _ in DIFFERENCE_COLUMNS)
        return
    values = (
        difference.writes,
        difference.moved,
        difference.low,
        difference.high,
        difference.sign_share,
    )
    for value in values:
        yield None if value is UNSET else value


ABLATE_TITLES = {
    "zero": message("what changes in {subject} when one head is taken away"),
    "mean": message("what changes in {subject} when one head passes on a mean"),
    "resample": message("what changes in {subject} when one head passes on another text's values"),
    "knockout": message(
        "{query} no longer sees {key}, in one head at a time: what changes in {subject}"
    ),
}
"""The title of the heads, by what stands for the one that is taken away."""


def effect_grid(document: AblateDocument, view: View) -> Lines:
    """Draw the layer × head grid of the first measure, one for self- and one for cross-attention; no
    lines for an attention of which a single layer or a single head was measured."""
    values = by_attention((effect, effect_size(effect, document)) for effect in document.effects)
    first = GRID_TITLES[document.measures[0]]
    signed = document.measures[0] in ("logprob", "difference")
    if values["self"]:
        cross = message("the same for the heads that look at the other text")
    else:
        cross = first
    titles = {"self": first, "cross": cross}
    return stack(
        *(
            grid(values[kind], view, say(view, title), signed=signed)
            for kind, title in titles.items()
        )
    )


def _ablate_heads(document: AblateDocument, view: View) -> Lines:
    """A table of the heads by what taking each away changes, the largest first: the change with a
    bar, what a random change does, further measures, and where the head looks."""
    effects = document.effects
    if not effects:
        return Lines()
    if view.full:
        shown = effects
    else:
        shown = effects[: view.top]
    changes, random_changes = effect_columns(
        [effect_size(effect, document) for effect in shown],
        [
            None if effect.random is None else effect_size(effect.random, document)
            for effect in shown
        ],
    )
    columns: dict[str, list[str]] = {MEASURE_COLUMNS[document.measures[0]]: changes}
    columns[""] = [""] * len(shown)  # where `heads_table` puts the bars
    if any(effect.random is not None for effect in shown):
        columns[message("random")] = random_changes
    columns |= _difference_columns(shown)
    for name in document.measures[1:]:
        readings = [reading_of(effect, readings_of([name])[0]) for effect in shown]
        columns[MEASURE_COLUMNS[name]] = effect_columns(readings)[0]
    if document.link is not None:
        columns[message("weight")] = [f"{effect.weight:.2f}" for effect in shown]
    elif any(telling_look(effect) is not None for effect in shown):
        columns[message("looks most at")] = [
            _key_and_weight(document, effect, view) for effect in shown
        ]
    # no bar where the change is not defined
    sizes = [abs(effect_size(effect, document) or 0.0) for effect in shown]
    title = _ablate_title(document, view)
    body = heads_table(
        shown, columns, view, title=title, count=len(effects), sizes=sizes, longest=LONGEST_ABLATE
    )
    sign_note = remark(SIGN_NOTES.get(document.measures[0], ""), view)
    if message("looks most at") not in columns:
        return stack(body, sign_note)
    return stack(body, sign_note, remark(_looks_note(document, shown), view))


def _looks_note(document: AblateDocument, effects: Sequence[EffectRow]) -> Message | str:
    """The note that the column of what heads look at leaves out resting keys (the first token and
    special tokens, on which heads put weight when they look for nothing), and names them; "" where
    the text has none.
    """
    if all(effect.looks_beyond_rest is UNSET for effect in effects):
        return ""
    return message(
        "what a head looks at most leaves out where heads rest: {rest}",
        rest=rest_names(document.tokens),
    )


def _difference_columns(effects: Sequence[EffectRow]) -> dict[str, list[str]]:
    """The columns of a difference of logits besides what is lost, cells by title: what the head
    writes itself (with attention held) and what it moves, and over pairs the interval and the share
    of pairs with the same sign. Those that were not measured are left out.
    """
    rows = [effect.difference for effect in effects if effect.difference is not UNSET]
    if len(rows) < len(effects) or not rows:
        return {}
    # all heads were measured alike: what the first has, the others have
    columns: dict[str, list[str]] = {}
    if rows[0].writes is not UNSET:
        writes, moves = effect_columns(
            [row.writes or 0.0 for row in rows], [row.moved or 0.0 for row in rows]
        )
        columns |= {message("held"): writes, message("moved"): moves}
    if rows[0].sign_share is not UNSET:
        columns |= interval_column((row.low, row.high) for row in rows)
        # `or` is for the type alone, here and above
        columns[message("same sign")] = [percent(row.sign_share or 0.0) for row in rows]
    return columns


def _ablate_title(document: AblateDocument, view: View) -> str:
    """A title in words: what was taken away, and what is measured."""
    if document.link is None:
        ends = {}
    else:
        ends = _end_texts(document, document.link, view)
    return say(view, ABLATE_TITLES[document.by], subject=subject(document, view), **ends)


def _end_texts(document: AblateDocument, link: LinkPlace, view: View) -> dict[str, str]:
    """The texts of a link's ends by "query" and "key", with their positions where both are the same
    word.
    """
    query = _token_texts(document, link.query, view)
    keys = link.key if isinstance(link.key, list) else [link.key]
    if link.attention == "cross":  # s0, s1, … are encoder states whose text is not known
        states = ", ".join(f"s{key}" for key in keys)
        return {
            "query": query,
            "key": states if link.text is UNSET else label(link.text, ascii=view.ascii),
        }
    key = _token_texts(document, keys, view)
    if query == key and link.query != link.key:  # two tokens of the same text
        first_query = link.query[0] if isinstance(link.query, list) else link.query
        query = say(view, "{name} ({place})", name=query, place=first_query)
        key = say(view, "{name} ({place})", name=key, place=keys[0])
    return {"query": query, "key": key}


def _token_texts(document: AblateDocument, places: int | list[int], view: View) -> str:
    """The texts of the tokens at one position, or at several, joined by blanks and cut."""
    if isinstance(places, int):
        positions = [places]
    else:
        positions = places
    words = words_at(positions, document.tokens, document.text)
    return short(" ".join(words), TEXT_CELLS, view)


def _key_and_weight(document: AblateDocument, effect: EffectRow, view: View) -> str:
    """The key that the measured token looks at most in a head, and its weight there."""
    looks = telling_look(effect)
    if looks is None:
        return "-"
    name = _key_name(document.keys(effect.attention), looks.key, view)
    return f"{name} {looks.weight:.2f}"


def _key_name(keys: Sequence[TokenRow], key: int, view: View) -> str:
    """A key in a cell of a table: its token's text, or its number where no token is known."""
    if key >= len(keys):
        return f"{spell('#', ascii=view.ascii)}{key}"
    return short_token(keys[key], NAME_ABLATE, view)


# The screen of `attn.logits/1`: what each part adds to a token's logit.

PAIR_COLUMNS = ("low", "high", "sign_share")
"""The columns of `--plain` that means over pairs have besides."""
LONGEST_LOGITS = 24
"""Cells of the longest bar."""


def logits_rows(document: LogitsDocument) -> Iterator[Sequence[object]]:
    """All parts as a table for `--plain`, its first row the names of the columns."""
    of_pairs = document.pairs is not UNSET
    yield ("part", "attention", "layer", "head", "value", *(PAIR_COLUMNS if of_pairs else ()))
    for part in document.parts:
        cells = (part.low, part.high, part.sign_share) if of_pairs else ()
        yield (part.part, part.attention, part.layer, part.head, part.value, *cells)


def _logit_grid(document: LogitsDocument, view: View) -> Lines:
    """A map of the heads, layer × head, by what each adds to the logit."""
    heads = by_attention((part, part.value) for part in document.parts if part.part == "head")
    return grids(heads, view, _logit_title(document, view), signed=True)


def _logit_title(document: LogitsDocument, view: View) -> str:
    """A title in words: whose logit is split, after which token."""
    target = quote_text(document.target_name(), view)
    if document.pairs is not UNSET:
        return say(view, "what each part adds to the logit of the answer less that of versus, mean")
    place = quoted_token(document.tokens, document.position, view)
    if document.versus is None:
        return say(
            view,
            "what each part adds to the logit of {target} after {place}",
            target=target,
            place=place,
        )
    versus = quote_text(document.versus.text, view)
    return say(
        view,
        "what each part adds to the logit of {target} less that of {versus}, after {place}",
        target=target,
        place=place,
        versus=versus,
    )


def _logit_table(document: LogitsDocument, view: View) -> Lines:
    """A table of what parts add to the logit: those that add or take away most, all others as one
    row, and the sum, so that the column adds up."""
    parts = sorted(document.parts, key=lambda part: -abs(part.value))
    if view.full:
        parts_shown = parts
    else:
        parts_shown = parts[: view.top]
    rest = parts[len(parts_shown) :]
    rows = [(say(view, logit_part_name(part)), part.value) for part in parts_shown]
    if rest:
        others = say(view, contextual("parts of a logit", "{count} others"), count=len(rest))
        rows.append((others, sum(part.value for part in rest)))
    write = writer([value for _, value in rows], max(view.precision, 2))
    names = [name for name, _ in rows] + [say(view, "sum")]
    numbers = [write(value) for _, value in rows] + [write(document.sum)]
    origins = [_origin(part, document, view) for part in parts_shown]
    columns = [
        text_column(message("part"), names, align="left"),
        text_column(message("adds"), numbers),
        bar_column([part.value for part in parts_shown], LONGEST_LOGITS),
        *(text_column(title, cells) for title, cells in interval_columns(parts_shown).items()),
    ]
    if any(origins):
        columns.append(text_column(message("most from"), origins, align="left"))
    return column_table(
        columns,
        range(len(names)),
        view,
        title=_logit_title(document, view),
        strong=len(rows),
    )


def _measure_name(document: LogitsDocument, view: View) -> str:
    """What is split, as a noun phrase: a logit, or one less another."""
    target = quote_text(document.target_name(), view)
    versus = document.versus_name()
    if versus is None:
        return say(view, "the logit of {target}", target=target)
    return say(
        view,
        "the logit of {target} less {versus}",
        target=target,
        versus=quote_text(versus, view),
    )


def _word_names(words: Sequence[WordPart], view: View) -> dict[int, str]:
    """The words in quotes, by the position of their first token, which tells two of the same text
    apart."""
    counts = Counter(word.word for word in words)
    names: dict[int, str] = {}
    for word in words:
        names[word.first] = quote_text(word.word, view)
        if counts[word.word] > 1:
            names[word.first] = say(
                view, "{name} ({place})", name=names[word.first], place=word.first
            )
    return names


def _word_table(document: LogitsDocument, view: View) -> Lines:
    """A table of what each word adds to the logit, all but the first rows as one, with the biases
    and the sum; below, a table of what the logit becomes as words are taken out of the text. Empty
    without `--by word`."""
    part = document.words
    if part is UNSET:
        return Lines()
    words_by_size = sorted(part.words, key=lambda word: -abs(word.value))
    shown = words_by_size
    if not view.full:
        shown = words_by_size[: view.top]
    rest = words_by_size[len(shown) :]
    names_of_words = _word_names(part.words, view)
    rows = [(names_of_words[word.first], word.value) for word in shown]
    if rest:
        others = say(view, contextual("parts of a logit", "{count} others"), count=len(rest))
        rows.append((others, sum(word.value for word in rest)))
    rows.append((say(view, "biases"), part.biases))
    write = writer([value for _, value in rows], max(view.precision, 2))
    names = [name for name, _ in rows] + [say(view, "sum")]
    numbers = [write(value) for _, value in rows] + [write(part.sum)]
    columns = [
        text_column(message("word"), names, align="left"),
        text_column(message("adds"), numbers),
        bar_column([value for _, value in rows], LONGEST_LOGITS),
    ]
    body = column_table(
        columns,
        range(len(names)),
        view,
        title=say(
            view,
            "what each word adds to {target}, with attention held",
            target=_measure_name(document, view),
        ),
        strong=len(rows),
    )
    curve = table(
        [say(view, "taken out"), say(view, "these first"), say(view, "random order")],
        [[str(step.removed), f"{step.value:.2f}", f"{step.random:.2f}"] for step in part.deletion],
        view,
        align=["right", "right", "right"],
        title=message("the model's own logit as words are taken out of the text"),
    )
    return stack_spaced(body, curve)


def _word_sentences(document: LogitsDocument, view: View) -> Iterator[str]:
    """Yield sentences on what each word adds to the target's logit: the word that adds most, a
    resting key that adds more (the first token or a special one, on which heads put weight when
    they look for nothing), which parts of the run are held fixed, and how well the ranking does
    when words are deleted."""
    part = document.words
    if part is UNSET or not part.words:
        return
    names = _word_names(part.words, view)
    rest = resting_keys(document.tokens, document.model.source)
    largest = max(part.words, key=lambda word: word.value)
    other_words = [word for word in part.words if not rest[word.first]]
    first = max(other_words or part.words, key=lambda word: word.value)
    yield say(
        view,
        "Of the words {word} adds most: {value}; words and biases add up to {logit}.",
        word=names[first.first],
        value=format_signed(first.value, 2),
        logit=f"{part.logit:.2f}",
    )
    if largest.value > first.value:
        yield say(
            view,
            "Not counted: {word}, where heads rest, with {value}.",
            word=names[largest.first],
            value=format_signed(largest.value, 2),
        )
    yield say(
        view,
        "Attention weights, the statistics of norms and gates are held as they were: what a word does"
        " to them is not counted. Such sums say little of what heads do: attn ablate tests them.",
    )
    yield from _deletion_sentence(part.deletion, view)


def _deletion_sentence(deletion: Sequence[DeletionStep], view: View) -> Iterator[str]:
    """Yield the sentence on whether taking words out in the order of what they add leaves less of
    the logit than each of the random orders; nothing where all orders leave the same, or the random
    ones are not in the document."""
    steps = [step for step in deletion if step.removed]
    orders = [step.random_orders for step in steps if step.random_orders is not UNSET]
    if not steps or len(orders) < len(steps):
        return
    own = float(np.mean([step.value for step in steps]))
    random = np.mean(orders, axis=0)  # of each random order over the steps, [order]
    if np.ptp([own, *random]) == 0:
        return
    if own < random.min():
        template = message(
            "Taken out in this order, the words leave {own} on average over the steps, in {count}"
            " random orders {low} to {high}: the order stands the test, as one in {odds} does by"
            " chance."
        )
    else:
        template = message(
            "Taken out in this order, the words leave {own} on average over the steps, in {count}"
            " random orders {low} to {high}: the order does not stand the test."
        )
    places = {"low": f"{random.min():.2f}", "high": f"{random.max():.2f}"}
    count = len(random)
    # by chance each of all the orders, this one included, is as often the lowest
    yield say(view, template, own=f"{own:.2f}", count=count, odds=count + 1, **places)


def _origin(part: LogitPart, document: LogitsDocument, view: View) -> str:
    """The token through which a head adds most to the logit, and how much; "" for a document
    without a split by token."""
    if part.sources is UNSET or not part.sources:
        return ""
    first = part.sources[0]  # the largest
    # only heads have sources, and an attention: `or` is for the type alone
    name = _key_name(document.keys(part.attention or "self"), first.source, view)
    return f"{name} {format_signed(first.value, 2)}"


def _gain_template(value: float, logit: float) -> Message:
    """The sentence on the head that adds most: "2.1 of 3.4" where it adds no more than the whole
    logit, else its number alone, since 2.1 of 1.5 would make no sense."""
    if value <= logit:
        return message("Of the heads {head} adds most to {target}: {value} of {logit}.")
    return message("Of the heads {head} adds most to {target}: {value}.")


@capitalize_sentences
def logits_sentences(document: LogitsDocument, view: View) -> Iterator[str]:
    """The answer in words: how likely the target is, the head that adds most, the one that takes
    away most, and the sum."""
    yield from logit_probability_sentence(document, view)
    if document.words is not UNSET:
        yield from _word_sentences(document, view)
        yield not_learned_note(document.model, view)
        return
    heads = sorted(
        (part for part in document.parts if part.part == "head"), key=lambda part: -part.value
    )
    target = quote_text(document.target_name(), view)
    yield from pairs_sentences(document.pairs, view)
    if document.versus is not None:
        # a document with `versus` has a name for it
        versus = quote_text(document.versus_name() or "", view)
        target = say(view, "the logit of {target} less {versus}", target=target, versus=versus)
    if document.pairs is not UNSET:  # each pair has an answer and a versus of its own
        target = say(view, "the logit of the answer less that of versus")
    logit = f"{document.logit:.2f}"
    has_gain = bool(heads) and heads[0].value > 0
    if has_gain:
        head = head_phrase(heads[0], view)
        value = format_signed(heads[0].value, 2)
        gain = _gain_template(heads[0].value, document.logit)
        yield say(view, gain, head=head, target=target, value=value, logit=logit)
    if heads and heads[-1].value < 0:
        if has_gain:
            template = message("Of the heads {head} speaks most against it: {value}.")
        else:
            template = message(
                "None of the heads adds to {target}; {head} speaks most against it: {value}."
            )
        head = head_phrase(heads[-1], view)
        value = format_signed(heads[-1].value, 2)
        yield say(view, template, head=head, value=value, target=target)

    def sum_text(*kinds: str) -> str:
        """What all parts of these kinds add together, as text."""
        return format_signed(sum(part.value for part in document.parts if part.part in kinds), 2)

    sums = {
        "heads": sum_text("head"),
        "mixers": sum_text("mixer"),
        "mlps": sum_text("mlp"),
        "rest": sum_text("embedding", "bias"),
    }
    has_mixers = any(part.part == "mixer" for part in document.parts)
    if has_mixers:
        whole = message(
            "All heads {heads}, mixers {mixers}, feed-forward parts {mlps}, embedding and biases"
            " {rest}: {logit}, the model's own logit."
        )
    else:
        whole = message(
            "All heads {heads}, feed-forward parts {mlps}, embedding and biases {rest}: {logit},"
            " the model's own logit."
        )
    if document.versus is not None and has_mixers:
        whole = message(
            "All heads {heads}, mixers {mixers}, feed-forward parts {mlps}, embedding and biases"
            " {rest}: {logit}, the difference of the model's own logits."
        )
    elif document.versus is not None:
        whole = message(
            "All heads {heads}, feed-forward parts {mlps}, embedding and biases {rest}: {logit},"
            " the difference of the model's own logits."
        )
    yield say(view, whole, **sums, logit=logit)
    yield from lens_sentences(document, view)
    yield say(
        view,
        "Norms keep the statistics of this run: what a head adds through later layers is not"
        " counted here.",
    )
    yield not_learned_note(document.model, view)


def logits_answer(document: LogitsDocument, view: View) -> Lines:
    """The text tinted by what each word adds to the logit, or else by what the token attends to
    most in the head that adds most, and the answer in sentences."""
    shares = [0.0] * len(document.tokens)
    heads = [part for part in document.parts if part.part == "head"]
    tint = message("")
    if document.words is not UNSET:
        tint = message("tint: what each word adds")
        most = max((word.value for word in document.words.words), default=0.0)
        for word in document.words.words:
            for place in range(word.first, word.last + 1):
                shares[place] = max(word.value, 0.0) / most if most > 0 else 0.0
    elif heads:
        first = max(heads, key=lambda part: part.value)
        tint = look_tint(first, view)
        looks = telling_look(first)
        is_own = first.attention == "self" and first.value > 0
        # a learned key stands for no token
        if is_own and looks is not None and looks.key < len(shares):
            shares[looks.key] = looks.weight
    tinted_sentence = shaded_sentence(
        document.text, document.tokens, shares, view, query=document.position, tint=tint
    )
    return stack(tinted_sentence, sentences(logits_sentences(document, view), view))


# The screen of `attn.patch/1`: which heads carry the difference between two texts.

LONGEST_PATCH = 30
"""Cells of the longest bar."""
DIFFERS = 0.6
"""The tint of words that differ, of 0 to 1."""
LITTLE = 0.1
"""A head that recovers no more than this share carries little of the difference."""


def patch_rows(document: PatchDocument) -> Iterator[Sequence[object]]:
    """All heads as a table for `--plain`, its first row the names of the columns."""
    of_pairs = document.pairs is not UNSET
    yield ("attention", "layer", "head", "recovered", *(PAIR_COLUMNS if of_pairs else ()))
    for effect in document.effects:
        cells = (effect.low, effect.high, effect.sign_share) if of_pairs else ()
        yield (effect.attention, effect.layer, effect.head, effect.recovered, *cells)


def interval_columns(rows: Sequence[PatchRow | LogitPart]) -> dict[str, list[str]]:
    """The columns of means over pairs, cells by title: the interval, where there is one, and the
    share of pairs whose value has the sign of the mean; empty for a single text."""
    if any(row.sign_share is UNSET for row in rows):
        return {}
    # every row has a share here
    columns = interval_column((row.low, row.high) for row in rows)
    columns[message("same sign")] = [percent(row.sign_share or 0.0) for row in rows]
    return columns


def _patch_grid(document: PatchDocument, view: View) -> Lines:
    """A map of the heads, layer × head, by the share that each recovers."""
    heads = by_attention((row, row.recovered) for row in document.effects)
    return grids(heads, view, say(view, "recovered share"), signed=True)


def _recovered_title(measure: str) -> Message:
    """The title of the shares that heads bring back: of the clean text's answer, or of the way to
    its vector where a cosine is measured."""
    if measure == "cosine":
        return message("how much of the way to the clean text's vector one head brings back")
    return message("how much of the clean text's answer one head brings back")


def _patch_heads(document: PatchDocument, view: View) -> Lines:
    """A table of the heads with the largest shares, in the order of the document: the share, a bar,
    and over pairs its interval."""
    effects = document.effects
    by_size = sorted(range(len(effects)), key=lambda index: -abs(effects[index].recovered))
    if not view.full:
        by_size = by_size[: view.top]
    shown = [effects[index] for index in sorted(by_size)]
    shares = [effect.recovered for effect in shown]
    (share_cells,) = effect_columns(shares)
    columns: dict[str, list[str]] = {message("recovered"): share_cells}
    columns[""] = [""] * len(shown)  # where `heads_table` puts the bars
    columns |= interval_columns(shown)
    return heads_table(
        shown,
        columns,
        view,
        title=_recovered_title(document.measure),
        count=len(effects),
        sizes=list(map(abs, shares)),
        longest=LONGEST_PATCH,
    )


PATCH_MEASURES = {
    "logit difference": message("logit of {target} less that of {versus}"),
    "log probability": message("log-probability of {target}"),
}
"""What each measure of a next token is called in the answer."""


def _patch_measure(document: PatchDocument, view: View) -> str:
    """What is measured, as a noun phrase: a next token's logit or probability, or the cosine of a
    vector, with the tokens that it is of."""
    if document.measure != "cosine":
        ends = {"target": document.target, "versus": document.versus}
        names = {name: quote_text(token.text, view) for name, token in ends.items() if token}
        return say(view, PATCH_MEASURES[document.measure], **names)
    if len(document.query) == 1:
        place = quoted_token(document.tokens, document.query[0], view)
        return say(view, "cosine to the clean vector of {place}", place=place)
    if len(document.query) == len(document.tokens):
        return say(view, "cosine of the mean of all vectors to the clean one")
    comma = say(view, contextual("between", ", "))
    places = comma.join(quoted_token(document.tokens, index, view) for index in document.query)
    return say(view, "cosine of the mean vector of {places} to the clean one", places=places)


TOLD_BY = {
    "q": message("the queries of layer {layer} head {head}"),
    "k": message("the keys of layer {layer} head {head}"),
    "v": message("the values of layer {layer} head {head}"),
}
"""Which projection of a receiving head reads the clean text's values, by the side of `--into`."""


def _distinct_number_texts(a: float, b: float) -> list[str]:
    """Write two numbers with three digits, or with as many as make their texts differ; 18 tell any
    two of float64 apart."""
    texts = [f"{a:.3g}", f"{b:.3g}"]
    digits = 3
    while texts[0] == texts[1] and a != b and digits < 18:
        digits += 1
        texts = [f"{a:.{digits}g}", f"{b:.{digits}g}"]
    return texts


def _patch_pair_sentences(document: PatchDocument, view: View) -> Iterator[str]:
    """Yield the answer over pairs: how they were measured, and which head brings back most."""
    yield from pairs_sentences(document.pairs, view)
    yield say(
        view,
        "A head of the corrupt text is given its values of the clean one; measured: the logit of the"
        " answer less that of versus, {clean} in the clean texts and {corrupt} in the corrupt ones.",
        clean=f"{document.m_clean:.2f}",
        corrupt=f"{document.m_corrupt:.2f}",
    )
    if document.effects:
        first, last = document.effects[0], document.effects[-1]
        templates = PAIR_SHARES[_patched_scope(document)]
        places = {"count": str(len(document.effects)), **_recovered_places(first, view)}
        yield say(view, templates[_share_name(document)], **places)
        if last.recovered < -LITTLE and len(document.effects) > 1:
            yield say(view, templates["away"], **_recovered_places(last, view))
    if len(document.effects) > 1:
        yield say(view, "Heads are put in one at a time: these shares do not add up.")
    yield not_learned_note(document.model, view)


def _recovered_places(row: PatchRow, view: View) -> dict[str, str]:
    """The values for a sentence over pairs on a patched head: its name, the share that it recovers
    and the interval of that, and the share of pairs with the same sign, which every row over pairs
    has."""
    return {
        "head": head_phrase(row, view),
        "share": percent(row.recovered),
        "interval": _share_interval(row, view),
        "same": percent(row.sign_share or 0.0),
    }


def _share_interval(row: PatchRow, view: View) -> str:
    """A 95% interval of shares in brackets behind a number; "" for none."""
    if not isinstance(row.low, float) or not isinstance(row.high, float):
        return ""
    return bracketed_interval(percent(row.low), percent(row.high), view)


def _patched_scope(document: PatchDocument) -> str:
    """Of which heads a sentence on patched ones may speak: of the "only" one that was put in, of the
    "chosen" ones, or of "all" heads of the model. A head that was not put in may bring back more.
    """
    count = len(document.effects)
    if count == 1:
        return "only"
    kinds = len({row.attention for row in document.effects})
    if count < document.model.attending * document.model.heads * kinds:
        return "chosen"
    return "all"


def _share_name(document: PatchDocument) -> str:
    """The name of the sentence on the largest share that a head brings back: "most", "little" where
    it is no more than a tenth, "none", and of a single head "away" where it does the opposite."""
    share = document.effects[0].recovered
    if share > LITTLE:
        return "most"
    if share > 0:
        return "little"
    if share < -LITTLE and len(document.effects) == 1:
        return "away"
    return "none"


SHARES = {
    "all": {
        "most": message(
            "Of single heads {head} brings back most: {share} of the difference ({clean} in the"
            " clean text, {corrupt} in the corrupt one)."
        ),
        "little": message(
            "No single head brings back more than a tenth of the difference ({clean} clean, "
            "{corrupt} corrupt); {head} most: {share}."
        ),
        "none": message(
            "No single head brings back any of the difference ({clean} clean, {corrupt} corrupt)."
        ),
        "away": message("Put in alone, {head} leads away from the clean text most: {share}."),
    },
    "chosen": {
        "most": message(
            "Of the {count} heads put in, {head} brings back most: {share} of the difference"
            " ({clean} in the clean text, {corrupt} in the corrupt one)."
        ),
        "little": message(
            "None of the {count} heads put in brings back more than a tenth of the difference"
            " ({clean} clean, {corrupt} corrupt); {head} most: {share}."
        ),
        "none": message(
            "None of the {count} heads put in brings back any of the difference ({clean} clean,"
            " {corrupt} corrupt)."
        ),
        "away": message("Of these heads {head} leads away from the clean text most: {share}."),
    },
    "only": {
        "most": message(
            "{head}, the only head put in, brings back {share} of the difference ({clean} in the"
            " clean text, {corrupt} in the corrupt one)."
        ),
        "little": message(
            "{head}, the only head put in, brings back no more than {share} of the difference"
            " ({clean} clean, {corrupt} corrupt)."
        ),
        "none": message(
            "{head}, the only head put in, brings back none of the difference ({clean} clean,"
            " {corrupt} corrupt)."
        ),
        "away": message(
            "{head}, the only head put in, brings back nothing: it leads away from the clean text by"
            " {away} of the difference ({clean} clean, {corrupt} corrupt)."
        ),
    },
}
"""What patched heads bring back between two texts, by the scope and the name of the sentence."""
PAIR_SHARES = {
    "all": {
        "most": message(
            "{head} brings back most: {share} of the difference{interval}; {same} of the pairs"
            " have this sign."
        ),
        "little": message(
            "No single head brings back more than a tenth of the difference; {head} most:"
            " {share}{interval}; {same} of the pairs have this sign."
        ),
        "none": message("No single head brings back any of the difference."),
        "away": message(
            "Put in alone, {head} leads away from the clean texts most: {share}{interval}; {same}"
            " of the pairs have this sign."
        ),
    },
    "chosen": {
        "most": message(
            "Of the {count} heads put in, {head} brings back most: {share} of the"
            " difference{interval}; {same} of the pairs have this sign."
        ),
        "little": message(
            "None of the {count} heads put in brings back more than a tenth of the difference;"
            " {head} most: {share}{interval}; {same} of the pairs have this sign."
        ),
        "none": message("None of the {count} heads put in brings back any of the difference."),
        "away": message(
            "Of these heads {head} leads away from the clean texts most: {share}{interval}; {same}"
            " of the pairs have this sign."
        ),
    },
    "only": {
        "most": message(
            "{head}, the only head put in, brings back {share} of the difference{interval}; {same}"
            " of the pairs have this sign."
        ),
        "little": message(
            "{head}, the only head put in, brings back no more than {share} of the"
            " difference{interval}; {same} of the pairs have this sign."
        ),
        "none": message("{head}, the only head put in, brings back none of the difference."),
        "away": message(
            "{head}, the only head put in, brings back nothing: it leads away from the clean texts,"
            " {share} of the difference{interval}; {same} of the pairs have this sign."
        ),
    },
}
"""The same over pairs of texts."""


def _share_sentences(document: PatchDocument, view: View) -> Iterator[str]:
    """Yield what patched heads bring back of the difference between two texts: which of them most,
    what next tokens say of that, and which leads away."""
    first, last = document.effects[0], document.effects[-1]
    templates = SHARES[_patched_scope(document)]
    clean, corrupt = _distinct_number_texts(document.m_clean, document.m_corrupt)
    yield say(
        view,
        templates[_share_name(document)],
        count=len(document.effects),
        head=head_phrase(first, view),
        share=percent(first.recovered),
        away=percent(abs(first.recovered)),
        clean=clean,
        corrupt=corrupt,
    )
    yield from probability_caveats(document, view)
    if last.recovered < -LITTLE and len(document.effects) > 1:
        yield say(
            view, templates["away"], head=head_phrase(last, view), share=percent(last.recovered)
        )


@capitalize_sentences
def patch_sentences(document: PatchDocument, view: View) -> Iterator[str]:
    """Yield the answer in sentences: how likely the target is, at which tokens clean values were put
    in, what was measured, and which head brings back most."""
    if document.pairs is not UNSET:
        yield from _patch_pair_sentences(document, view)
        return
    yield from patch_probability_sentences(document, view)
    comma = say(view, contextual("between", ", "))
    is_everywhere = len(document.places) == len(document.tokens)
    if is_everywhere:
        put_in = message(
            "the clean text's heads are put in at every token of the corrupt one; measured:"
            " {measure}."
        )
    else:
        put_in = message(
            "the clean text's heads are put in at {place} of the corrupt one; measured: {measure}."
        )
    yield say(
        view,
        put_in,
        place=comma.join(quoted_token(document.tokens, index, view) for index in document.places),
        measure=_patch_measure(document, view),
    )
    if document.into is not UNSET:
        receivers = comma.join(
            say(view, TOLD_BY[receiver.side], layer=receiver.layer, head=receiver.head)
            for receiver in document.into
        )
        yield say(
            view, "only {heads} read what is put in; norms as in the corrupt text.", heads=receivers
        )
    if document.effects:
        yield from _share_sentences(document, view)
    if len(document.effects) > 1:
        yield say(view, "Heads are put in one at a time: these shares do not add up.")
    yield not_learned_note(document.model, view)


def patch_answer(document: PatchDocument, view: View) -> Lines:
    """Both texts, tinted where their words differ, and the answer in sentences."""
    # of a mean over all tokens none is marked
    if len(document.query) < len(document.tokens):
        query_indices = frozenset(document.query)
    else:
        query_indices = frozenset()
    # both texts have as many tokens when they are patched; a document from elsewhere may not
    texts = [(document.clean, document.tokens), (document.corrupt, document.corrupt_tokens)]
    tints = [
        DIFFERS if clean.text != corrupt.text else 0.0
        for clean, corrupt in zip(document.tokens, document.corrupt_tokens, strict=False)
    ]
    tints += [0.0] * (max(len(tokens) for _, tokens in texts) - len(tints))
    return stack(
        *(
            sentence(words(text, tokens, tints[: len(tokens)], query_indices), view)
            for text, tokens in texts
        ),
        remark("tint: words that differ" if any(tints) else "", view),
        sentences(patch_sentences(document, view), view),
    )


def _has_no_words(document: LogitsDocument, view: View) -> bool:
    """Whether the screen shows heads without being asked to: where the document has no sum over
    words, which belongs to no head.
    """
    return document.words is UNSET


EFFECTS_PARTS: Parts[EffectsDocument] = (
    ScreenPart("header", _effects_header),
    ScreenPart("grid", _effects_grid),
    ScreenPart("heads", _effects_heads),
    ScreenPart("answer", effects_answer),
)

DIFFERENCE_PARTS: Parts[DifferenceDocument] = (
    ScreenPart("header", _difference_header),
    ScreenPart("heads", _difference_heads),
    ScreenPart(
        "answer", lambda document, view: sentences(_difference_sentences(document, view), view)
    ),
)

ABLATE_PARTS: Parts[AblateDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("grid", effect_grid),
    ScreenPart("heads", _ablate_heads),
    ScreenPart("answer", ablate_answer),
)

LOGITS_PARTS: Parts[LogitsDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("grid", _logit_grid, _has_no_words),
    ScreenPart("parts", _logit_table, _has_no_words),
    ScreenPart("words", _word_table),
    ScreenPart("lens", lens_table),
    ScreenPart("answer", logits_answer),
)

PATCH_PARTS: Parts[PatchDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("grid", _patch_grid),
    ScreenPart("heads", _patch_heads),
    ScreenPart("answer", patch_answer),
)
