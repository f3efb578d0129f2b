"""The screen of `attn.next/1`: the likeliest next tokens with bars, by layer, and without heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from attncli.documents.parts import NextToken, Weighed
from attncli.draw.lines import Lines, remark, sentences, stack
from attncli.draw.numbers import bar, percent
from attncli.draw.safe import spell
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import not_learned_note, shaded_sentence
from attncli.draw.tables import table
from attncli.draw.token_names import quote_text, quoted_row, quoted_token, short
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.effects.difference_answer import quoted_target
from attncli.features.next.document import Dose, LayerChoice, NextDocument
from attncli.language import Message, choice, listing, message, say
from attncli.mechanism.spec import spoken_head

DOSE_BAR, CONTINUED_CELLS = 12, 28
"""Cells of the bar of a dose, and of the text that follows it."""
BAR = 24
"""Cells of a bar of probability 1."""


def next_rows(document: NextDocument) -> Iterator[Sequence[object]]:
    """Yield the rows of `--plain`: the likeliest tokens, by layer, and of each position."""
    yield ("what", "place", "token", "id", "probability", "rank")
    for rank, row in enumerate(document.top, 1):
        yield ("next", document.position, row.token.text, row.token.id, row.probability, rank)
    target = document.target
    entry = target.token
    position = document.position
    yield ("target", position, entry.text, entry.id, target.probability, target.rank)
    for lead in document.layers:  # the token that comes first after a layer: its rank is 1
        entry = lead.token
        yield ("layer", lead.layer, entry.text, entry.id, lead.probability, 1)
    for following in document.following or ():
        token = document.tokens[following.token]
        place = following.token
        yield ("each", place, token.text, token.id, following.probability, following.rank)
    for dose in document.doses or ():
        entry = target.token
        yield ("dose", dose.factor, entry.text, entry.id, dose.probability, None)
        yield ("random", dose.factor, entry.text, entry.id, dose.random, None)
    if document.without is not UNSET:
        for rank, row in enumerate(document.without.top, 1):
            entry = row.token
            yield ("without", document.position, entry.text, entry.id, row.probability, rank)


def _likeliest_table(document: NextDocument, view: View) -> Lines:
    """A table of the likeliest tokens with a bar each; where heads are taken away, the likeliest
    tokens without them stand beside these."""
    # each (name, cells, alignment)
    columns: list[tuple[str, list[str], str]] = _columns(document.top, view)
    bars = 2  # the index of the column of bars
    if document.without is not UNSET:
        # the third column, of bars, stands once
        (_, tokens, left), (_, shares, right), _bars = _columns(document.without.top, view)
        columns += [(say(view, "without"), tokens, left), ("", shares, right)]
    title = _place_title(document, view)
    cells_by_column = [cells for _, cells, _ in columns]
    rows = [list(row) for row in zip(*cells_by_column, strict=True)]
    return table(
        [name for name, _, _ in columns],
        rows,
        view,
        align=[align for _, _, align in columns],
        title=title,
        bars=bars,
    )


def _place_title(document: NextDocument, view: View) -> str:
    """The title of the table of the likeliest tokens: what would come after a token, or stand in
    place of a mask."""
    token = quoted_token(document.tokens, document.position, view)
    if document.masked:
        return say(view, "what would stand in place of {token}", token=token)
    return say(view, "what would come after {token}", token=token)


def _columns(rows: Sequence[NextToken], view: View) -> list[tuple[str, list[str], str]]:
    """The columns of one distribution, each as name, cells and alignment: token, probability, bar."""
    return [
        (say(view, "token"), [quote_text(row.token.text, view) for row in rows], "left"),
        (say(view, "probability"), [percent(row.probability) for row in rows], "right"),
        ("", [bar(row.probability, BAR, ascii=view.ascii) for row in rows], "left"),
    ]


def _layer_table(document: NextDocument, view: View) -> Lines:
    """A table of which token would be the likeliest if the model ended after a layer, a row for
    each layer at which that changes; the last ones unless the view is full."""
    shown: Sequence[LayerChoice] = document.layers
    if not view.full:
        shown = document.layers[-view.top :]
    rows = [
        [f"L{row.layer}", quote_text(row.token.text, view), percent(row.probability)]
        for row in shown
    ]
    title = message("the likeliest token if the model ended after a layer, where it changes")
    align = ["left", "left", "right"]
    names = [say(view, "from layer"), say(view, "token"), say(view, "probability")]
    more = ""
    if len(shown) < len(document.layers):
        more = say(
            view,
            "the last {count} of {total} changes shown; --full shows all",
            count=len(shown),
            total=len(document.layers),
        )
    note = ""
    if rows:
        note = say(
            view,
            "The choice after an earlier layer (logit lens) is not the model's: later layers may"
            " change it, and it can be sure and wrong.",
        )
    body = table(names, rows, view, align=align, title=title)
    return stack(body, remark(note, view), remark(more, view))


def _each_table(document: NextDocument, view: View) -> Lines:
    """A table of how likely every token was after those before it: the least likely ones, in the
    order of the text, unless the view is full; no lines where that was not asked for."""
    if document.following is UNSET or not document.following:
        return Lines()
    rows = list(document.following)
    if not view.full and len(rows) > view.top:
        least_likely = sorted(rows, key=lambda row: row.probability)[: view.top]
        rows = sorted(least_likely, key=lambda row: row.token)
    cells = [
        [
            str(row.token),
            quoted_row(document.tokens[row.token], view),
            percent(row.probability),
            f"{row.rank:,}",
        ]
        for row in rows
    ]
    names = ["", say(view, "token"), say(view, "probability"), say(view, "rank")]
    title = message("how likely each token was after those before it; the least likely")
    if view.full or len(rows) == len(document.following):
        title = message("how likely each token was after those before it")
    return table(names, cells, view, align=["right", "left", "right", "right"], title=title)


def _dose_table(document: NextDocument, view: View) -> Lines:
    """A table with a row for each dose, the factor by which attention on the region is multiplied:
    how likely the target is, the same with random tokens weighed, and how the text goes on; no
    lines where nothing is weighed."""
    if document.doses is UNSET or document.weighed is UNSET:
        return Lines()
    rows = [
        [
            f"{spell('×', ascii=view.ascii)}{dose.factor:g}",
            percent(dose.probability),
            bar(dose.probability, DOSE_BAR, ascii=view.ascii),
            _random_text(dose),
            short(dose.text.strip(), CONTINUED_CELLS, view),
        ]
        for dose in document.doses
    ]
    names = [
        say(view, "factor"),
        say(view, "probability"),
        "",
        say(view, "random tokens"),
        say(view, "in its place") if document.masked else say(view, "goes on"),
    ]
    title = say(
        view,
        "how likely {target} is with attention on {name} weighed",
        target=quote_text(document.target.token.text, view),
        name=quote_text(document.weighed.name, view),
    )
    align = ["right", "right", "left", "right", "left"]
    return table(names, rows, view, align=align, title=title, bars=2)


def _random_text(dose: Dose) -> str:
    """The probability with random tokens weighed, from the least to the largest of the draws, such
    as "3%–5%"; "-" where there were no draws."""
    if dose.random_low is None or dose.random_high is None:
        return "-"
    low, high = percent(dose.random_low), percent(dose.random_high)
    if low == high:
        return low
    return f"{low}–{high}"


def _dose_template(weighed: Weighed) -> Message:
    """The template of the sentence on the dose that was asked for: the target's probability there,
    with attention as it is (×1) and without it (×0)."""
    if weighed.heads is None and weighed.factor == 0.0:
        return message(
            "Without attention on {name} in all heads (×0), {target} has {share}, as it is (×1)"
            " {own}."
        )
    if weighed.factor == 0.0:
        return message(
            "Without attention on {name} in the chosen heads (×0), {target} has {share}, as it is"
            " (×1) {own}."
        )
    if weighed.heads is None:
        return message(
            "With attention on {name} weighed ×{factor} in all heads, {target} has {share}, as it is"
            " (×1) {own}, with none of it (×0) {none}."
        )
    return message(
        "With attention on {name} weighed ×{factor} in the chosen heads, {target} has {share}, as"
        " it is (×1) {own}, with none of it (×0) {none}."
    )


def _dose_sentences(document: NextDocument, view: View) -> Iterator[str]:
    """Yield how likely the target is at the dose asked for and without the region, and at how many
    doses that lies outside what random tokens give."""
    if document.doses is UNSET or document.weighed is UNSET:
        return
    by_factor = {dose.factor: dose for dose in document.doses}  # ×0 and ×1 are in every curve
    weighed = document.weighed
    dose = by_factor[weighed.factor]
    values = {
        "name": quote_text(weighed.name, view),
        "target": quote_text(document.target.token.text, view),
        "own": percent(by_factor[1.0].probability),
        "share": percent(dose.probability),
        "factor": f"{weighed.factor:g}",
        "none": percent(by_factor[0.0].probability),
    }
    yield say(view, _dose_template(weighed), **values)
    if not document.draws:
        yield say(view, "There are not as many other tokens: nothing random stands beside it.")
        return
    others = [dose for dose in document.doses if dose.factor != 1.0]
    outside = sum(_is_outside(dose) for dose in others)
    # a value is as likely the least or the largest of itself and the draws as any other of them
    chance = len(others) * 2 / (document.draws + 1)
    counts = {
        "outside": outside,
        "doses": len(others),
        "draws": document.draws,
        "chance": f"{chance:.0f}",
    }
    if outside:
        template = message(
            "At {outside} of {doses} doses that lies outside what {draws} draws of as many random"
            " tokens give; by chance alone it would at about {chance}."
        )
    else:
        template = message(
            "At none of {doses} doses does that lie outside what {draws} draws of as many random"
            " tokens give: nothing says that the answer reads it."
        )
    yield say(view, template, **counts)


def _is_outside(dose: Dose) -> bool:
    """Whether a dose of the region gives less than every draw of random tokens, or more than every
    draw.
    """
    if dose.random_low is None or dose.random_high is None:
        return False
    return not dose.random_low <= dose.probability <= dose.random_high


def next_sentences(document: NextDocument, view: View) -> Iterator[str]:
    """The answer in words: the likeliest token, from which layer on it comes first, the token asked
    about, and what becomes of it without the heads."""
    first = document.top[0]
    name = quote_text(first.token.text, view)
    share = percent(first.probability)
    # `layers` lists only layers at which the leading token changes, so the last of them is that from
    # which on the winner leads; where that is layer 0, it is not worth saying
    leads_from = None
    if document.layers:
        last = document.layers[-1]
        if last.token.id == first.token.id and last.layer > 0:
            leads_from = last.layer
    yield _first_sentence(document, name, share, leads_from, view)
    target = document.target
    if target.token.id != first.token.id:
        yield say(
            view,
            "{token} has {share}, place {rank}.",
            token=quoted_target(target.token, view),
            share=percent(target.probability),
            rank=f"{target.rank:,}",
        )
    if document.without is not UNSET:
        after = percent(document.without.target.probability)
        template = message("Without {heads}, {token} has {share} (now: {now}).")
        if after == percent(target.probability):
            template = message("Without {heads}, {token} stays at {share} (now: {now}).")
        heads = [say(view, spoken_head(row.layer, row.head)) for row in document.without.heads]
        yield say(
            view,
            template,
            heads=choice(heads, last=" and "),
            token=quote_text(target.token.text, view),
            share=after,
            # the three likeliest without the heads
            now=listing(
                f"{quote_text(row.token.text, view)} {percent(row.probability)}"
                for row in document.without.top[:3]
            ),
        )
    yield from _dose_sentences(document, view)
    if document.following is not UNSET and not document.following:
        yield say(view, "The text has one token: none stands after another.")
    if document.following is not UNSET and document.following:
        least = min(document.following, key=lambda row: row.probability)
        yield say(
            view,
            "The least likely token of the text is {token}: {share} after those before it.",
            token=quoted_token(document.tokens, least.token, view),
            share=percent(least.probability),
        )
    yield not_learned_note(document.model, view)


def _first_sentence(
    document: NextDocument, name: str, share: str, leads_from: int | None, view: View
) -> str:
    """The sentence on the likeliest token, next or behind the mask.

    name: the token, quoted.
    share: its probability in percents.
    leads_from: the layer from which on it comes first; None where that is the first layer, or not
        known.
    """
    if leads_from is None and document.masked:
        template = message("The likeliest in place of {mask} is {token} ({share}).")
    elif leads_from is None:
        template = message("The likeliest next token is {token} ({share}).")
    elif document.masked:
        template = message(
            "The likeliest in place of {mask} is {token} ({share}), in the first place from layer"
            " {layer} on."
        )
    else:
        template = message(
            "The likeliest next token is {token} ({share}), in the first place from layer {layer}"
            " on."
        )
    values = {"token": name, "share": share}
    if leads_from is not None:
        values["layer"] = f"{leads_from}"
    if document.masked:
        values["mask"] = quoted_token(document.tokens, document.position, view)
    return say(view, template, **values)


def _answer(document: NextDocument, view: View) -> Lines:
    """The end of the screen: the text, shaded by how likely each token was where the document has
    that, and the answer in sentences."""
    shares = [0.0] * len(document.tokens)
    for row in document.following or ():
        shares[row.token] = row.probability
    tint = message("tint: how likely each token was after those before it")
    shaded = shaded_sentence(
        document.text, document.tokens, shares, view, query=document.position, tint=tint
    )
    return stack(shaded, sentences(next_sentences(document, view), view))


NEXT_PARTS: Parts[NextDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("layers", _layer_table),
    ScreenPart("each", _each_table),
    ScreenPart("doses", _dose_table),
    ScreenPart("next", _likeliest_table),
    ScreenPart("answer", _answer),
)
