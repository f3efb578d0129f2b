"""The screen of `attn.answer/1`: the answer, its regions with attention and effect, its sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from attncli.draw.columns import Column, column_table
from attncli.draw.command_lines import shell_text
from attncli.draw.lines import Lines, sentences
from attncli.draw.numbers import format_fixed, format_signed, percent
from attncli.draw.safe import safe, spell
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import not_learned_note
from attncli.draw.tables import table
from attncli.draw.token_names import quote_text, rest_names, rest_names_among, short
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.answer.answer_words import leaf_name, quoted_leaf, share_text
from attncli.features.answer.document import (
    LITTLE,
    MOST_COMPARED,
    SMALL_LOSS,
    AnswerDocument,
    AnswerEffect,
    SubsetWeight,
)
from attncli.features.answer.proof_screen import (
    carrier_sentences,
    carrier_table,
    dose_sentences,
    dose_table,
    has_carriers,
    has_doses,
)
from attncli.inputs.regions import REST
from attncli.language import listing, message, plural, say
from attncli.measure.rest import is_learned

LONGEST = 20
"""Cells of the longest bar."""
LISTED = 5
"""Lines from which on a text is shown line by line: a list, or paragraphs."""
MOST_NAMED = 4
"""Regions that the answer names."""
LETTERS = 400
"""Characters of what the model wrote that a screen shows, unless it is full."""


PLAIN_COLUMNS = (
    "region",
    "sentence",
    "tokens",
    "attention",
    "even",
    "logprob",
    "change",
    "matters",
    "layer",
    "head",
    "estimate",
    "factor",
    "other_answer",
)


def answer_rows(document: AnswerDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each region, for each
    sentence of the answer and region, for each head that was cut, and for each dose.
    """
    yield PLAIN_COLUMNS
    for cells in _plain_cells(document):
        yield [cells.get(column) for column in PLAIN_COLUMNS]


def _plain_cells(document: AnswerDocument) -> Iterator[dict[str, object]]:
    """Yield the cells of each row of `--plain` by the name of their column: a row for each region,
    for each region and sentence of the answer, for each head (with --each-head) and for each factor
    (with --weigh). What a row does not have, its dictionary leaves out."""
    for effect in document.effects:
        region = document.regions[effect.region]
        yield {
            "region": region.name,
            "tokens": len(region.tokens),
            "attention": effect.attention,
            "even": effect.even,
            "logprob": effect.logprob,
            "change": effect.change,
            "matters": effect.matters,
            "other_answer": None if effect.other_answer is None else effect.other_answer.text,
        }
    # a single sentence is the answer, whose changes stand above
    by_sentence: Sequence[AnswerEffect] = ()
    if len(document.answer.sentences) > 1:
        by_sentence = document.effects
    for effect in by_sentence:
        name = document.regions[effect.region].name
        for number, change in enumerate(effect.by_sentence):
            yield {"region": name, "sentence": number, "change": float(change)}
    if document.carriers is not UNSET:
        name = document.regions[document.carriers.region].name
        for row in document.carriers.heads:
            yield {
                "region": name,
                "attention": row.attention,
                "change": row.change,
                "layer": row.layer,
                "head": row.head,
                "estimate": row.estimate,
            }
    if document.doses is not UNSET:
        name = document.doses.weighed.name
        for dose in document.doses.doses:
            yield {
                "region": name,
                "logprob": dose.logprob,
                "change": dose.change,
                "factor": dose.factor,
            }


def _answer_part(document: AnswerDocument, view: View) -> Lines:
    """The sentence that quotes the answer as `_written_text` does, with the number of its tokens."""
    answer = document.answer
    words = _written_text(answer.text, view)
    if not answer.generated:
        template = plural(
            "The answer {answer} ({count} token) was given.",
            "The answer {answer} ({count} tokens) was given.",
            count=len(answer.tokens),
            answer=words,
        )
    elif answer.ended:
        template = plural(
            "The model answers {answer} ({count} token).",
            "The model answers {answer} ({count} tokens).",
            count=len(answer.tokens),
            answer=words,
        )
    else:
        template = plural(
            "The model begins {answer} ({count} token; --tokens lets it write more).",
            "The model begins {answer} ({count} tokens; --tokens lets it write more).",
            count=len(answer.tokens),
            answer=words,
        )
    return sentences(say(view, template).split("\n"), view)


def _written_text(text: str, view: View) -> str:
    """What a model wrote, in quotes: in a brief or a full view the whole text, line by line where it
    has `LISTED` or more in a brief one; else its first `LETTERS` characters in one line."""
    text = text.strip()
    lines = [row for row in text.splitlines() if row.strip()]
    if view.brief and len(lines) < LISTED:
        return quote_text(text, view)
    if view.brief or view.full:
        whole = "\n".join(safe(row, ascii=view.ascii) for row in text.splitlines())
        return say(view, '"{text}"', text=whole)
    return quote_text(short(text, LETTERS, view), view)


def _effect_table(document: AnswerDocument, view: View) -> Lines:
    """A row for each region: the answer's attention on it, its share of even attention, the
    probability of a token of the answer without it, and the change of its logarithm."""
    effects = document.effects
    greatest = max((-effect.change for effect in effects), default=0.0)

    def loss(effect: AnswerEffect) -> float:
        """The loss of the answer without the region, as a share of the largest loss."""
        if greatest <= 0:
            return 0.0
        return max(-effect.change, 0.0) / greatest

    columns: list[Column[AnswerEffect]] = [
        Column(message("region"), lambda row: leaf_name(document, row, view), align="left"),
        Column("tokens", lambda row: f"{len(document.regions[row.region].tokens):,}"),
        Column(message("attention"), lambda row: percent(row.attention, 1)),
        Column(message("even"), lambda row: percent(row.even, 1)),
        Column(message("a token"), lambda row: share_text(row.logprob)),
        Column("change", lambda row: format_signed(row.change, 2)),
        Column(share=loss, longest=LONGEST, align="left"),
    ]
    if document.cut == "links":
        title = message("without the links to a region, in all heads")
    else:
        title = message("without the text of a region")
    own = share_text(document.answer.logprob)
    note = message(
        "a token: the probability of a token of the answer (geometric mean; {own} with all); change:"
        " of its logarithm, in nats; attention: of the answer on the region; even: what even"
        " attention would give it",
        own=own,
    )
    if is_learned(document.model.source):
        note = message(
            "a token: the probability of a token of the answer (geometric mean; {own} with all);"
            " change: of its logarithm, in nats; attention: of the answer on the region; even: what"
            " even attention would give it; both as parts of what is not on {rest}, where heads"
            " rest",
            own=own,
            rest=rest_names(document.tokens),
        )
    return column_table(columns, effects, view, title=title, note=note)


def _has_sentences(document: AnswerDocument, view: View) -> bool:
    """Whether the answer has several sentences."""
    return len(document.answer.sentences) > 1


def _sentence_table(document: AnswerDocument, view: View) -> Lines:
    """A row for each sentence of the answer, a column for each of the `MOST_NAMED` regions that
    matter most to any sentence: what the sentence loses without the region.
    """
    effects = [effect for effect in document.effects if effect.is_source]
    places = range(len(document.answer.sentences))
    # those of the largest loss of any sentence (a loss is below 0), in the order of the document
    largest = sorted(effects, key=lambda effect: min(effect.by_sentence))[:MOST_NAMED]
    regions_shown = [effect for effect in effects if effect in largest]
    # cells of a sentence: a third, which leaves some ten for each of `MOST_NAMED` changes
    width = max(view.width // 3, 16)
    rows = [
        [
            quote_text(short(document.answer.sentences[place].text, width, view), view),
            *(format_signed(float(effect.by_sentence[place]), 2) for effect in regions_shown),
        ]
        for place in places
    ]
    return table(
        [message("sentence"), *(leaf_name(document, effect, view) for effect in regions_shown)],
        rows,
        view,
        align=["left", *["right"] * len(regions_shown)],
        title=message("which sentence used which region"),
        note=message("change of the mean log probability a token, in nats"),
    )


def _has_subsets(document: AnswerDocument, view: View) -> bool:
    """Whether random sets of regions were taken away together (--subsets)."""
    return document.subsets is not UNSET


def _subset_table(document: AnswerDocument, view: View) -> Lines:
    """A row for each region: its weight in the linear model that was fitted on random subsets of
    regions, beside the change without it alone. Empty without --subsets."""
    if document.subsets is UNSET:
        return Lines()
    effects = {effect.region: effect for effect in document.effects}
    rows = document.subsets.weights
    greatest = max((abs(row.weight) for row in rows), default=0.0)

    def share(row: SubsetWeight) -> float:
        """The weight of a region as a share of the largest weight, by size; 0 for one below 0, which
        has no bar."""
        if not greatest:
            return 0.0
        return max(row.weight, 0.0) / greatest

    columns: list[Column[SubsetWeight]] = [
        Column(
            message("region"),
            lambda row: leaf_name(document, effects[row.region], view),
            align="left",
        ),
        Column(message("alone"), lambda row: format_signed(effects[row.region].change, 2)),
        Column(message("over subsets"), lambda row: format_signed(row.weight, 2)),
        Column(share=share, longest=LONGEST, align="left"),
    ]
    return column_table(
        columns,
        rows,
        view,
        title=message("what a region adds over random subsets"),
        note=message(
            "nats a token of the logit of the whole answer's probability (Lasso); alone: the change"
            " without it"
        ),
    )


def _subset_sentences(document: AnswerDocument, view: View) -> Iterator[str]:
    """Yield what random subsets of regions add: which regions hide each other since they say the
    same, and how well the fitted model predicts other subsets. Nothing without --subsets."""
    subsets = document.subsets
    if subsets is UNSET:
        return
    effects = {effect.region: effect for effect in document.effects}
    if subsets.hidden is not UNSET:
        hidden = [effects[region] for region in subsets.hidden.regions]
        names = [quoted_leaf(document, effect, view) for effect in hidden]
        yield say(
            view,
            "{names} hide each other: without one of them the answer loses at most {most} nats a token,"
            " without all of them its mean log probability changes by {change}.",
            names=listing(names, " and "),
            most=format_fixed(max(-effect.change for effect in hidden), 2),
            change=format_signed(subsets.hidden.change, 2),
        )
    if subsets.lds is None or subsets.low is None or subsets.high is None:
        yield say(view, "The linear model of subsets predicts the same for all: it says nothing.")
        return
    yield say(
        view,
        "The linear model, fitted on {fitted} subsets, ranks {tested} others with a correlation of"
        " {lds} (95% interval {low} to {high}).",
        fitted=subsets.fitted,
        tested=subsets.tested,
        lds=format_fixed(subsets.lds, 2),
        low=format_fixed(subsets.low, 2),
        high=format_fixed(subsets.high, 2),
    )
    if subsets.low <= 0:
        yield say(view, "That may be chance: do not go by its weights.")


def answer_sentences(document: AnswerDocument, view: View) -> Iterator[str]:
    """Yield the sentences of the answer in words: which regions the answer rests on, or that it
    rests on none; then regions left open, regions that change little, subsets, the frame around the
    regions, doses, heads, and the next command to try."""
    sources = [effect for effect in document.effects if effect.is_source]
    used = [effect for effect in sources if effect.matters is True]
    undecided = [effect for effect in sources if effect.matters is None]
    rests_on_none = not used and not undecided and not _rests_on_hidden(document)
    if used:
        yield from _used_sentences(document, used, view)
    elif rests_on_none:
        yield from _none_sentences(document, sources, view)
    if undecided:
        yield from _open_sentences(document, undecided, view)
    yield from _other_sentences(document, view)
    unnamed = sources
    if rests_on_none:
        unnamed = sources[1:]  # `_none_sentences` has told of the first
    yield from _unused_sentences(document, unnamed, view)
    if used or undecided:
        yield from _idle_sentences(document, sources, view)
    yield from _subset_sentences(document, view)
    yield from _frame_sentences(document, view)
    yield from dose_sentences(document, view)
    yield from carrier_sentences(document, view)
    if used and document.doses is UNSET and document.carriers is UNSET:
        yield _next_step(document, used, view)
    yield not_learned_note(document.model, view)


def _next_step(document: AnswerDocument, used: Sequence[AnswerEffect], view: View) -> str:
    """The sentence that names options which would test the result: --weigh for the first region that
    is listed whole, and --each-head; --each-head alone where no region can be named.
    """
    # a region that holds others was cut without these, but --weigh would take all of its tokens
    whole = [effect for effect in used if not effect.without]
    names = [document.regions[effect.region].name for effect in whole]
    if not names or names[0] == REST:
        return say(view, "--each-head tells which heads carry it.")
    dose = names[0] + spell("=×0.5", ascii=view.ascii)
    if not re.fullmatch(r"[\w.-]+", names[0]):  # a name that a shell would take apart
        dose = shell_text(dose)
    return say(
        view,
        "A dose on {region} is the counter-proof: the same with --weigh {dose}; --each-head tells"
        " which heads carry it.",
        region=quoted_leaf(document, whole[0], view),
        dose=dose,
    )


def _rests_on_hidden(document: AnswerDocument) -> bool:
    """Whether the answer needs at least one of several regions that hide each other: without all of
    them it loses `LITTLE` or more."""
    if document.subsets is UNSET or document.subsets.hidden is UNSET:
        return False
    return document.subsets.hidden.change <= -LITTLE


def _none_sentences(
    document: AnswerDocument, sources: Sequence[AnswerEffect], view: View
) -> Iterator[str]:
    """Yield that the answer rests on no region and how little it loses without one; or that this is
    not clear, where it loses more, but not twice what random spans change.

    sources: the effects of the regions that are compared, the largest loss first.
    """
    random: list[float] | UnsetType = UNSET
    if sources and sources[0].change <= -LITTLE:
        random = sources[0].random
    if random is not UNSET:
        first = sources[0]
        yield say(view, "It is not clear whether the answer rests on one of these regions.")
        yield say(
            view,
            "Without {region} its mean log probability falls by {loss} nats a token, and without"
            " random spans of as many tokens it rises or falls by up to {most}: a region counts"
            " from twice that on.",
            region=quoted_leaf(document, first, view),
            loss=format_fixed(-first.change, 2),
            most=format_fixed(max(map(abs, random)), 2),
        )
        return
    yield say(view, "The answer rests on none of these regions.")
    if not sources:
        return
    yield say(
        view,
        "Without any one of them its mean log probability falls by less than {least} nats a"
        " token; two that say the same hide each other.",
        least=format_fixed(LITTLE, 2),
    )


def _used_sentences(
    document: AnswerDocument, used: Sequence[AnswerEffect], view: View
) -> Iterator[str]:
    """Yield which regions the answer rests on, what it loses without them, and what it loses without
    random spans of as many tokens.

    used: the effects of these regions, the largest loss first; at least one.
    """
    names = listing([quoted_leaf(document, effect, view) for effect in used], " and ")
    first = used[0]
    values: dict[str, object] = {
        "region": quoted_leaf(document, first, view),
        "names": names,
        "before": share_text(document.answer.logprob),
        "after": share_text(first.logprob),
        "loss": format_fixed(-first.change, 2),
    }
    if -first.change < SMALL_LOSS:
        template = message(
            "The answer changes most without {region}, and not much: the probability of its tokens"
            " falls from {before} to {after} on average ({loss} nats a token, below {small}). Regions"
            " that say the same hide each other: --subsets, or one region over both, takes them away"
            " together.",
            small=format_fixed(SMALL_LOSS, 2),
            **values,
        )
    elif len(used) == 1:
        template = message(
            "The answer rests on {region}: without it the probability of its tokens falls from"
            " {before} to {after} on average ({loss} nats a token).",
            **values,
        )
    else:
        template = message(
            "The answer rests on {names}: without {region} the probability of its tokens falls from"
            " {before} to {after} on average ({loss} nats a token).",
            **values,
        )
    yield say(view, template)
    random = first.random or []  # it may be UNSET
    if len(used) > 1:
        yield from _compared_sentences(document, used, view)
    elif random:
        yield say(
            view,
            plural(
                "Without {count} random span of as many tokens it changes by {most} nats.",
                "Without {count} random spans of as many tokens it changes by at most {most} nats.",
                count=len(random),
                most=format_fixed(max(map(abs, random)), 2),
            ),
        )
    yield from _attention_sentences(document, first, view)
    rest = rest_names_among(document.tokens, document.regions[first.region].tokens)
    if rest and is_learned(document.model.source):
        yield say(
            view,
            "Heads rest on some tokens of {region} ({rest}): part of its loss may come of cutting"
            " these off.",
            region=quoted_leaf(document, first, view),
            rest=rest,
        )


def _attention_sentences(
    document: AnswerDocument, first: AnswerEffect, view: View
) -> Iterator[str]:
    """Yield which region gets most attention of the answer for its length, since what is looked at
    need not be what is needed; nothing for a single region.

    first: the effect of the region that the answer rests on most.
    """
    sources = [effect for effect in document.effects if effect.is_source and effect.even > 0]
    # an even share of 0 is that of a region where heads rest alone, which is left out of both
    if len(sources) < 2 or first.even == 0:
        return
    most = max(sources, key=lambda effect: effect.attention / effect.even)
    places = {
        "region": quoted_leaf(document, first, view),
        "attention": percent(first.attention, 1),
        "even": percent(first.even, 1),
    }
    if most is first and first.attention < first.even:
        yield say(
            view,
            "Of these regions {region} gets most attention for its length, but less than an even"
            " share: {attention} where that is {even}.",
            **places,
        )
        return
    if most is first:
        yield say(
            view,
            "{region} also gets most attention for its length: {attention}, where an even share is"
            " {even}.",
            **places,
        )
        return
    yield say(
        view,
        "Most attention for its length goes to {other}: {most}, where an even share is {share};"
        " {region} gets {attention} ({even}).",
        other=quoted_leaf(document, most, view),
        most=percent(most.attention, 1),
        share=percent(most.even, 1),
        **places,
    )


def _compared_sentences(
    document: AnswerDocument, used: Sequence[AnswerEffect], view: View
) -> Iterator[str]:
    """Yield for each region that the answer rests on what it loses without it, and without random
    spans of as many tokens."""
    for effect in used:
        if effect.random:
            yield say(
                view,
                "Without {region} its mean log probability falls by {loss} nats a token; without"
                " random spans of as many tokens it changes by at most {most}.",
                region=quoted_leaf(document, effect, view),
                loss=format_fixed(-effect.change, 2),
                most=format_fixed(max(map(abs, effect.random)), 2),
            )


def _open_sentences(
    document: AnswerDocument, effects: Sequence[AnswerEffect], view: View
) -> Iterator[str]:
    """Yield the regions whose loss was compared with no random spans, and why.

    effects: theirs, the largest loss first.
    """
    # those that were to be compared, as in `answer.compute`: the largest losses, which come first
    losses = [
        effect for effect in document.effects if effect.is_source and effect.change <= -LITTLE
    ]
    tried = losses[:MOST_COMPARED]
    too_large = [effect for effect in effects if effect in tried]
    beyond = [effect for effect in effects if effect not in tried]
    if too_large:
        yield say(
            view,
            "Not compared with random spans, as the prompt has too few other tokens: {regions}.",
            regions=_changes_text(document, too_large, view),
        )
    if beyond:
        yield say(
            view,
            "Not compared with random spans, as only the {count} regions of the largest loss are:"
            " {regions}.",
            count=MOST_COMPARED,
            regions=_changes_text(document, beyond, view),
        )


def _other_sentences(document: AnswerDocument, view: View) -> Iterator[str]:
    """Yield what the model answers without each region whose other answer is known."""
    for effect in document.effects:
        answer = effect.other_answer
        if answer is None:
            continue
        region = quoted_leaf(document, effect, view)
        words = _written_text(answer.text, view)
        if answer.text.strip() == document.answer.text.strip():
            template = message("Without {region} the model still answers the same.", region=region)
        elif not answer.text.strip():
            template = message("Without {region} the model answers nothing.", region=region)
        elif answer.ended:
            template = message(
                "Without {region} the model answers {answer}.", region=region, answer=words
            )
        else:
            template = message(
                "Without {region} the model begins {answer}.", region=region, answer=words
            )
        yield from say(view, template).split("\n")


def _unused_sentences(
    document: AnswerDocument, sources: Sequence[AnswerEffect], view: View
) -> Iterator[str]:
    """Yield which of these regions change the answer and do not count: those without which it is
    likelier, and those without which it loses less than twice what random spans change."""
    likelier = [effect for effect in sources if effect.change >= LITTLE]
    weak = [effect for effect in sources if effect.matters is False and effect.change <= -LITTLE]
    if weak:
        yield say(
            view,
            "Less than twice what random spans of as many tokens change: {regions}.",
            regions=_changes_text(document, weak, view),
        )
    if likelier:
        yield say(
            view,
            "Without these the answer is likelier: {regions}.",
            regions=_changes_text(document, likelier[::-1], view),  # the largest gain first
        )


def _changes_text(document: AnswerDocument, effects: Sequence[AnswerEffect], view: View) -> str:
    """The names of these regions with their changes, such as "'doc1' (+0.12 nats)", joined: the first
    `MOST_NAMED` of them, and how many more there are."""
    names = [
        say(
            view,
            "{region} ({change} nats)",
            region=quoted_leaf(document, effect, view),
            change=format_signed(effect.change, 2),
        )
        for effect in effects[:MOST_NAMED]
    ]
    rest = len(effects) - MOST_NAMED
    if rest > 0:
        names.append(say(view, "{count} more", count=rest))
    return say(view, listing(names))


def _idle_sentences(
    document: AnswerDocument, sources: Sequence[AnswerEffect], view: View
) -> Iterator[str]:
    """Yield which regions change the answer by less than `LITTLE`: by name, or where they are more
    than `MOST_NAMED`, how many; and that two of them may hide each other, where no subsets of regions
    were taken away together."""
    idle = [effect for effect in sources if abs(effect.change) < LITTLE]
    least = format_fixed(LITTLE, 2)
    if not idle:
        return
    if len(idle) == 1:
        yield say(
            view,
            "Without {name} it changes by less than {least} nats.",
            name=quoted_leaf(document, idle[0], view),
            least=least,
        )
        return
    if len(idle) > MOST_NAMED:
        yield say(
            view,
            plural(
                "{count} region changes it by less than {least} nats.",
                "{count} regions change it by less than {least} nats.",
                count=len(idle),
                least=least,
            ),
        )
    else:
        names = listing([quoted_leaf(document, effect, view) for effect in idle])
        yield say(
            view,
            "Without any one of {names} it changes by less than {least} nats.",
            names=names,
            least=least,
        )
    # where the answer changes little without any region, `_used_sentences` has said so
    first = sources[0]
    is_said = first.matters is True and -first.change < SMALL_LOSS
    if document.subsets is UNSET and not is_said:
        yield say(
            view,
            "If two of them say the same, they hide each other: --subsets takes them away together.",
        )


def _frame_sentences(document: AnswerDocument, view: View) -> Iterator[str]:
    """Yield what is lost without the tokens around the compared regions, such as the question and the
    template of a chat; nothing where that is little."""
    # the largest loss comes first
    frame = [effect for effect in document.effects if not effect.is_source]
    if not frame or frame[0].change > -LITTLE:
        return
    effect = frame[0]
    region = document.regions[effect.region]
    yield say(
        view,
        "It needs what stands around them, too: without {region} it falls by {loss} nats a token.",
        region=quoted_leaf(document, effect, view),
        loss=format_fixed(-effect.change, 2),
    )
    rest = rest_names_among(document.tokens, region.tokens)
    if region.name == REST and rest and is_learned(document.model.source):
        yield say(
            view,
            "Heads rest on some tokens of {region} ({rest}): part of its loss may come of cutting"
            " these off.",
            region=quote_text(leaf_name(document, effect, view), view),
            rest=rest,
        )


def _answer_lines(document: AnswerDocument, view: View) -> Lines:
    """The answer in words, as lines."""
    return sentences(answer_sentences(document, view), view)


def answer_page(document: AnswerDocument, lang: str) -> bytes:
    """The page of the prompt in bands of regions, and of what each sentence loses without each."""
    from attncli.features.answer.page import answer_page_bytes

    return answer_page_bytes(document, lang)


ANSWER_PARTS: Parts[AnswerDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("text", _answer_part, in_brief=True),
    ScreenPart("regions", _effect_table),
    ScreenPart("sentences", _sentence_table, _has_sentences),
    ScreenPart("subsets", _subset_table, _has_subsets),
    ScreenPart("doses", dose_table, has_doses),
    ScreenPart("carriers", carrier_table, has_carriers),
    ScreenPart("answer", _answer_lines),
)
