"""The screen of `attn find --pairs`, and what `--versus` says: means over pairs of what heads send
from one token to another, and what the difference of two logits loses without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from attncli.draw.lines import Lines, remark, stack
from attncli.draw.names import bare_arrow
from attncli.draw.numbers import format_signed, percent
from attncli.draw.sentence import not_learned_note
from attncli.draw.tables import table
from attncli.draw.token_names import claim, quote_text, quoted_token
from attncli.draw.view import View
from attncli.features.effects.difference_answer import (
    interval_text,
    loss_interval,
    loss_text,
    pairs_sentences,
)
from attncli.features.effects.document import Difference
from attncli.features.effects.effect_answer import effect_columns, interval_column
from attncli.features.find.document import FindDocument, FoundHead, PairLink
from attncli.language import contextual, message, say
from attncli.mechanism.spec import head_label


def pair_rows(links: Sequence[PairLink]) -> Iterator[Sequence[object]]:
    """All heads over pairs as a table for `--plain`, its first row the names of the columns.

    `change` is how much the weight differs between the two texts; the `lost` columns, there where
    links were cut, are how much the answer loses without the link. Links were cut in all heads or
    in none.
    """
    names = ["layer", "head", "weight", "corrupt", "versus", "change", "low", "high", "sign_share"]
    has_cuts = any(link.difference is not UNSET for link in links)
    yield [*names, *(["lost", "lost_low", "lost_high", "lost_sign_share"] if has_cuts else [])]
    for link in links:
        row = [
            link.layer,
            link.head,
            link.weight,
            link.corrupt,
            _member_or_none(link.versus),
            link.change,
            _member_or_none(link.low),
            _member_or_none(link.high),
            _member_or_none(link.sign_share),
        ]
        loss = link.difference
        if loss is not UNSET:
            row += [
                loss.all,
                _member_or_none(loss.low),
                _member_or_none(loss.high),
                _member_or_none(loss.sign_share),
            ]
        yield row


def _member_or_none(value: object) -> object:
    """A member of a document, None for one that is absent."""
    return None if value is UNSET else value


def pair_table(document: FindDocument, links: Sequence[PairLink], view: View) -> Lines:
    """A table of the heads whose weight on the key differs most between the clean and the corrupt
    texts.

    links: of all heads, the largest change first.
    """
    shown = links
    if not view.full:
        shown = links[: view.top]
    weights, corrupt = effect_columns(
        [link.weight for link in shown], [link.corrupt for link in shown]
    )
    columns = {
        message("head"): [head_label(link.layer, link.head) for link in shown],
        contextual("column", "clean"): weights,
        contextual("column", "corrupt"): corrupt,
        message("change"): effect_columns([link.change for link in shown])[0],
        **interval_column((link.low, link.high) for link in shown),
    }
    # over pairs this share is always measured
    columns[message("same sign")] = [percent(link.sign_share or 0.0) for link in shown]
    costs = [link.difference.all if link.difference is not UNSET else None for link in shown]
    if any(value is not None for value in costs):
        columns[message("m loses")] = effect_columns(costs)[0]
    body = table(
        [say(view, name) for name in columns],
        [list(row) for row in zip(*columns.values(), strict=True)],
        view,
        align=["left", *["right"] * (len(columns) - 1)],
        title=say(
            view,
            "weights of the link, in the first pair {query} {arrow} {key}; means over pairs, the"
            " largest change first",
            query=quoted_token(document.tokens, document.query, view),
            arrow=bare_arrow(view),
            key=quoted_token(document.tokens, document.key, view),
        ),
    )
    more = say(
        view, "{count} more heads; --top N or --full shows them", count=len(links) - len(shown)
    )
    return stack(body, remark(more if len(links) > len(shown) else "", view))


def pair_link_sentences(document: FindDocument, view: View) -> list[str]:
    """The answer over pairs in words: in which head the link's weight differs most between the clean
    and the corrupt texts, and in which head cutting it costs most."""
    links = document.pair_links
    if links is UNSET or not links:
        return []
    return [
        *pairs_sentences(document.pairs, view),
        *_change_sentences(links[0], view),
        *_cut_sentences(document, links, view),
        not_learned_note(document.model, view),
    ]


def _phrase(link: PairLink | FoundHead, view: View) -> str:
    """A head as sentences name it, such as `layer 5 head 11`; on a page the phrase also points at
    the head."""
    phrase = say(view, "layer {layer} head {head}", layer=link.layer, head=link.head)
    return claim(phrase, view, layer=link.layer, head=link.head)


def _change_sentences(first: PairLink, view: View) -> Iterator[str]:
    """Yield sentences on the head whose weight on the link differs most (`first`): its mean weight
    in the clean and in the corrupt texts, and on the other answer."""
    if first.change == 0:
        yield say(view, "No head gives this link another weight in the corrupt texts.")
        return
    yield say(
        view,
        "The weight of this link differs most in {head}: {clean} on average in the clean texts,"
        " {corrupt} at the same places in the corrupt ones, a change of {change}{interval}; {share}"
        " of the pairs have this sign.",
        head=_phrase(first, view),
        clean=percent(first.weight),
        corrupt=percent(first.corrupt),
        change=format_signed(first.change, 2),
        interval=interval_text(_end(first.low), _end(first.high), view),
        share=percent(first.sign_share or 0.0),
    )
    if first.versus is not UNSET:
        yield say(view, "On the other answer it puts {share}.", share=percent(first.versus))


def _end(value: object) -> float | None:
    """An end of an interval as a number; None where the document has none (None or UNSET)."""
    if isinstance(value, float):
        return value
    return None


def _cut_sentences(document: FindDocument, links: Sequence[PairLink], view: View) -> Iterator[str]:
    """Yield sentences on the head in which cutting the link changes m (the logit of the answer less
    that of the other answer) most, and on what cutting it in all heads changes; nothing where it was
    not cut. A change that is not known counts as 0."""
    cut = [(link.difference, link) for link in links if link.difference is not UNSET]
    if not cut:
        return
    change, link = max(cut, key=lambda pair: abs(pair[0].all or 0.0))
    yield say(
        view,
        "Cut in {head} alone, m {lost}{interval}; {share} of the pairs have this sign.",
        head=_phrase(link, view),
        lost=loss_text(change.all or 0.0, view),
        interval=loss_interval(change.all or 0.0, _end(change.low), _end(change.high), view),
        share=percent(change.sign_share or 0.0),
    )
    yield from _sentences_on_all_heads(document, view)


def _sentences_on_all_heads(document: FindDocument, view: View) -> Iterator[str]:
    """Yield what m loses when the link is cut in all heads at once."""
    together = document.difference_together
    if together is UNSET or together.all is None:
        return
    yield say(
        view,
        "Cut in all of these heads at once, m {lost}{interval}.",
        lost=loss_text(together.all, view),
        interval=loss_interval(together.all, _end(together.low), _end(together.high), view),
    )


def lost_sentences(document: FindDocument, view: View) -> Iterator[str]:
    """Yield what the difference of two logits (m) loses where the link is cut: in the head in which
    it loses most, and in all heads at once. Nothing where that was not measured; a change that is
    not known counts as 0."""
    if document.target is UNSET or document.versus is UNSET:
        return
    cut: list[tuple[Difference, FoundHead]] = [
        (head.difference, head) for head in document.heads if head.difference is not UNSET
    ]
    if not cut:
        return
    change, head = max(cut, key=lambda pair: abs(pair[0].all or 0.0))
    yield say(
        view,
        "m is the logit of {target} less that of {versus} after the last token. Cut in {head} alone,"
        " m {lost}.",
        target=quote_text(document.target.text, view),
        versus=quote_text(document.versus.text, view),
        head=_phrase(head, view),
        lost=loss_text(change.all or 0.0, view),
    )
    yield from _sentences_on_all_heads(document, view)
