"""The answer of `attn find` in words: how much of its weight a query gives a key, with and without
the keys where heads rest, and why a link cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from attncli.draw.command_lines import command_about, command_lines, options_note, reference
from attncli.draw.lines import Lines, remark, sentences, stack
from attncli.draw.numbers import percent, softmax_percent
from attncli.draw.sentence import not_learned_note, sentence, words
from attncli.draw.token_names import claim, quote_text, quoted_token, rest_names, resting_key
from attncli.draw.view import View
from attncli.features.find.document import (
    BeyondRest,
    FindDocument,
    FoundHead,
    OtherKey,
    counted_weight,
)
from attncli.language import message, plural, say
from attncli.mechanism.spec import spoken_head


def shaded_answer(document: FindDocument, answer_sentences: Sequence[str], view: View) -> Lines:
    """The answer of an `attn.find/1` document: the text, shaded by the link's weight, the sentences
    that say it, and a command that says more.

    answer_sentences: of the answer, in the view's language.
    """
    visible = _heads_by_weight(document)
    answer_lines = sentences(answer_sentences, view)
    if not visible:
        return stack(answer_lines, find_hint(document, view))
    first = visible[0]
    shares: list[float | None] = [0.0] * len(document.tokens)
    shares[document.key] = counted_weight(first)
    tinted_sentence = sentence(
        words(document.text, document.tokens, shares, frozenset({document.query})), view
    )
    head = say(view, spoken_head(first.layer, first.head))
    tint = remark(say(view, "tint: the weight of this link in {head}", head=head), view)
    return stack(tinted_sentence, tint, answer_lines, find_hint(document, view))


def rests_on_key(document: FindDocument) -> bool:
    """Whether the key is a resting key: the first token or a special token, on which heads put weight
    when they look for nothing, whatever the token says."""
    return document.rest is not UNSET and document.key in document.rest


def holds_rest(document: FindDocument) -> bool:
    """Whether the key is a word that holds both resting keys (the first token, special tokens) and
    other tokens; the weights shown are then on the others.
    """
    return any(
        head.beyond_rest is not UNSET and head.beyond_rest.weight is not UNSET
        for head in document.heads
    )


def _heads_by_weight(document: FindDocument) -> list[FoundHead]:
    """The heads in which the query sees the key, that of the largest weight first."""
    visible = [head for head in document.heads if head.rank is not None]
    return sorted(visible, key=lambda head: (-counted_weight(head), head.layer, head.head))


def link_sentences(document: FindDocument, view: View) -> list[str]:
    """The answer in words: in which head the link is strongest, and in how many the key is what the
    query looks at most; or why it cannot be said: the mask hides the key, it is the only one, or a
    resting key (the first token or a special one, on which heads put weight whatever it is).
    """
    visible = _heads_by_weight(document)
    if not document.heads:  # of pairs of tokens, which have an answer of their own
        return [not_learned_note(document.model, view)]
    if not visible:
        answer_sentences = list(_hidden_sentences(document, view))
    elif all(head.visible == 1 for head in visible):
        query, key = _ends(document, view)
        answer_sentences = [
            say(
                view,
                "{query} sees {key} alone: all of its weight is there, whatever a head does.",
                query=query,
                key=key,
            )
        ]
    elif rests_on_key(document):
        answer_sentences = list(_resting_sentences(document, visible, view))
    else:
        answer_sentences = list(_weight_sentences(document, visible, view))
    answer_sentences += _verified_sentences(document, view)
    return [*answer_sentences, not_learned_note(document.model, view)]


def _is_of_one_head(document: FindDocument) -> bool:
    """Whether a single head was looked at: there is no other in which a weight could be less."""
    return len(document.heads) == 1


def _ends(document: FindDocument, view: View) -> list[str]:
    """The query and the key in quotes."""
    ends = (document.query, document.key)
    return [quoted_token(document.tokens, index, view) for index in ends]


def find_hint(document: FindDocument, view: View) -> Lines:
    """A command to try next: for a hidden link that in the other direction, for a link to a resting
    key (such as the first token) the same with another word in front of the text, for one to a
    neighbour what the heads of that layer look at. Nothing in a brief answer, and for other links.
    """
    if view.brief or not document.heads:
        return Lines()
    query = reference(document, document.query, view)
    key = reference(document, document.key, view)
    if not _heads_by_weight(document):
        if all(head.reverse.rank is None for head in document.heads):  # hidden both ways
            return Lines()
        command = command_about(document, "find", ["--from", key, "--to", query], view)
        tried = command_lines(command, view, before=say(view, "Try:"))
        return stack(tried, options_note(view))
    if rests_on_key(document) and document.word_before is UNSET:
        options = ["--from", query, "--to", key, "--verify"]
        command = command_about(document, "find", options, view)
        verified = command_lines(command, view, before=say(view, "Does it rest there?"))
        return stack(verified, options_note(view))
    if _is_of_neighbours(document) and not rests_on_key(document):
        layer = str(_heads_by_weight(document)[0].layer)
        command = command_about(document, "heads", ["--layer", layer, "--labels"], view)
        tried = command_lines(command, view, before=say(view, "Is it such a head?"))
        return stack(tried, options_note(view))
    return Lines()


def _hidden_sentences(document: FindDocument, view: View) -> Iterator[str]:
    """Yield sentences on a link that the mask hides: that the query cannot see the key, and the
    weight of the link in the other direction, if that is not hidden, too."""
    query, key = _ends(document, view)
    if document.key > document.query:
        yield say(
            view,
            "{query} cannot see {key}, which comes after it: the mask hides it in every head.",
            query=query,
            key=key,
        )
    else:
        yield say(
            view,
            "{query} cannot see {key}: the mask hides it in every head.",
            query=query,
            key=key,
        )
    back = [head for head in document.heads if head.reverse.rank is not None]
    if back:
        best = max(back, key=lambda head: counted_weight(head.reverse))
        template = message(
            "The other way {key} gives {query} most in layer {layer} head {head}: {share}."
        )
        if _is_of_one_head(document):
            template = message("The other way {key} gives {query} {share} of its weight.")
        yield say(
            view,
            template,
            query=query,
            key=key,
            share=percent(counted_weight(best.reverse)),
            layer=best.layer,
            head=best.head,
        )


def _resting_sentences(
    document: FindDocument, visible: list[FoundHead], view: View
) -> Iterator[str]:
    """Yield sentences on a link to a resting key (the first token or a special token, on which heads
    put weight when they look for nothing): its weight, which says little, and what the query looks
    at most without such keys.

    visible: the heads in which the query sees the key, that of the largest weight first.
    """
    query, key = _ends(document, view)
    first = visible[0]
    yield resting_key(document.tokens, document.key, view)
    linked = claim(
        key, view, layer=first.layer, head=first.head, query=document.query, key=document.key
    )
    template = message(
        "{query} leaves most weight on {key} in layer {layer} head {head}, {share}; that does not"
        " say that it looks at {key}."
    )
    if _is_of_one_head(document):
        template = message(
            "In layer {layer} head {head} {query} leaves {share} of its weight on {key}; that does"
            " not say that it looks at {key}."
        )
    yield say(
        view,
        template,
        query=query,
        key=linked,
        share=softmax_percent(first.weight, first.visible),
        layer=first.layer,
        head=first.head,
    )
    tops = Counter(
        head.beyond_rest.top_key
        for head in document.heads
        if head.beyond_rest is not UNSET and head.beyond_rest.top_key is not None
    )
    if tops:
        other_key, count = tops.most_common(1)[0]  # keys of None are not counted above
        if _is_of_one_head(document):
            template = message("With {rest} left out it looks most at {other} there.")
            if other_key == document.query:
                template = message("With {rest} left out it looks most at itself there.")
            yield say(
                view,
                template,
                rest=rest_names(document.tokens),
                other=quoted_token(document.tokens, other_key or 0, view),
            )
            return
        if other_key == document.query:
            yield say(
                view,
                plural(  # alike in English, not in every language
                    "With {rest} left out it looks most at itself in {count} of {heads} heads.",
                    "With {rest} left out it looks most at itself in {count} of {heads} heads.",
                    count=count,
                    heads=len(document.heads),
                    rest=rest_names(document.tokens),
                ),
            )
            return
        yield say(
            view,
            plural(  # alike in English, not in every language
                "With {rest} left out it looks most at {other} in {count} of {heads} heads.",
                "With {rest} left out it looks most at {other} in {count} of {heads} heads.",
                count=count,
                heads=len(document.heads),
                rest=rest_names(document.tokens),
                other=quoted_token(document.tokens, other_key or 0, view),
            ),
        )


def _weight_sentences(
    document: FindDocument, visible: list[FoundHead], view: View
) -> Iterator[str]:
    """Yield sentences on the head in which the link is strongest, and on how many heads there are in
    which the key is what the query looks at most.

    visible: the heads in which the query sees the key, that of the largest weight first.
    """
    query, key = _ends(document, view)
    first, *others = visible
    # the key's share of the weight that is not on resting keys, said where it is another number
    share = None
    if first.beyond_rest is not UNSET:
        share = first.beyond_rest.share
    has_other_share = share is not None and percent(share) != percent(first.weight)
    if holds_rest(document) and _is_of_one_head(document):
        template = message(
            "{query} gives {key}, without the tokens where heads rest, {share} of its weight, and"
            " {whole} with them."
        )
    elif holds_rest(document):
        template = message(
            "{query} gives {key}, without the tokens where heads rest, most in layer {layer} head"
            " {head}: {share} of its weight, and {whole} with them."
        )
    elif others and has_other_share:
        template = message(
            "{query} gives {key} most in layer {layer} head {head}: {share} of its weight,"
            " {beyond} without {rest}."
        )
    elif others:
        template = message(
            "{query} gives {key} most in layer {layer} head {head}: {share} of its weight."
        )
    elif has_other_share:
        template = message("{query} gives {key} {share} of its weight, {beyond} without {rest}.")
    else:
        template = message("{query} gives {key} {share} of its weight.")
    yield say(
        view,
        template,
        query=query,
        key=claim(
            key, view, layer=first.layer, head=first.head, query=document.query, key=document.key
        ),
        layer=first.layer,
        head=first.head,
        share=softmax_percent(counted_weight(first), first.visible),
        whole=softmax_percent(first.weight, first.visible),
        beyond=percent(share or 0.0),  # no sentence has it where it is None
        rest=rest_names(document.tokens),
    )
    if holds_rest(document) and document.effect_together is not UNSET:
        yield say(view, "What is cut is the link to all of {key}, with these tokens.", key=key)
    if others:
        yield _count_sentence(document, visible, view)
    if _is_of_neighbours(document):
        if document.key < document.query:
            template = message(
                "{key} stands directly before {query}: a head that looks at the token before,"
                " whatever it is, gives the same."
            )
        else:
            template = message(
                "{key} stands directly after {query}: a head that looks at the token after,"
                " whatever it is, gives the same."
            )
        yield say(view, template, query=query, key=key)


def _is_of_neighbours(document: FindDocument) -> bool:
    """Whether the key is the token before or after the query in a model that learned, whose heads may
    look at neighbours whatever they are."""
    is_beside = abs(document.query - document.key) == 1
    return is_beside and document.model.source == "checkpoint"


def _count_sentence(document: FindDocument, visible: list[FoundHead], view: View) -> str:
    """The sentence on how many heads there are in which the key is what the query looks at most,
    resting keys (the first token and special tokens) left out.

    visible: the heads in which the query sees the key.
    """
    query, key = _ends(document, view)
    ranks = [_rank(head.rank, head.beyond_rest) for head in visible]
    count = sum(rank == 1 for rank in ranks)
    places = {"count": count, "heads": len(document.heads), "key": key, "query": query}
    if document.rest is UNSET:
        if count:
            template = message("In {count} of {heads} heads {key} is what {query} looks at most.")
        else:
            template = message("In none of the {heads} heads is {key} what {query} looks at most.")
        return say(view, template, **places)
    if count:
        template = message(
            "In {count} of {heads} heads {key} is what {query} looks at most, with {rest}, where"
            " heads rest, left out."
        )
    else:
        template = message(
            "In none of the {heads} heads is {key} what {query} looks at most, with {rest}, where"
            " heads rest, left out."
        )
    return say(view, template, rest=rest_names(document.tokens), **places)


def other_key_sentences(document: FindDocument, view: View) -> Iterator[str]:
    """Yield sentences for each key but the first: in which head the query gives it most, and in how
    many heads it gets more than the first key. Nothing for a single key."""
    query, first = _ends(document, view)
    for place, key in enumerate(document.other_keys or ()):
        name = quoted_token(document.tokens, key, view)
        visible_links = [
            (head, head.others[place])
            for head in document.heads
            if head.others is not UNSET and head.others[place].rank is not None
        ]
        if not visible_links:
            yield say(
                view,
                "{query} cannot see {key}: the mask hides it in every head.",
                query=query,
                key=name,
            )
            continue

        def weight_first(head_and_link: tuple[FoundHead, OtherKey]) -> tuple[float, int, int]:
            """Sort by weight; of equal ones the head that comes first is the largest."""
            head, link = head_and_link
            return link.weight, -head.layer, -head.head

        best, most = max(visible_links, key=weight_first)
        linked = claim(name, view, layer=best.layer, head=best.head, query=document.query, key=key)
        if document.rest is not UNSET and key in document.rest:
            yield resting_key(document.tokens, key, view)
        is_partly_at_rest = most.whole is not UNSET
        if _is_of_one_head(document):
            yield from _only_head_sentences(document, key, linked, best, most, view)
            continue
        if is_partly_at_rest:
            yield from _partly_resting_sentences(query, linked, visible_links, best, most, view)
        else:
            yield say(
                view,
                "{query} gives {key} most in layer {layer} head {head}: {share} of its weight.",
                query=query,
                key=linked,
                layer=best.layer,
                head=best.head,
                share=softmax_percent(most.weight, best.visible),
            )
        if not _heads_by_weight(document):  # beside a hidden key any other has more
            continue
        more = sum(counted_weight(head) > link.weight for head, link in visible_links)
        less = sum(counted_weight(head) < link.weight for head, link in visible_links)
        compared = message(
            "{first} gets more than {other} in {more} of {heads} heads, less in {less}."
        )
        if is_partly_at_rest:
            compared = message(
                "{first} gets more than {other} without it in {more} of {heads} heads, less in"
                " {less}."
            )
        yield say(
            view,
            compared,
            first=first,
            other=name,
            more=more,
            less=less,
            heads=len(document.heads),
        )


def _only_head_sentences(
    document: FindDocument, key: int, linked: str, head: FoundHead, link: OtherKey, view: View
) -> Iterator[str]:
    """Yield what a query gives a further key in the only head looked at, and whether the first key
    gets more there.

    linked: the name of the key, which on a page points at the link.
    """
    query, first = _ends(document, view)
    places = {
        "layer": str(head.layer),
        "head": str(head.head),
        "query": query,
        "first": first,
        "key": linked,
        "share": softmax_percent(link.weight, head.visible),
    }
    templates = ONLY_HEAD_SENTENCES
    if link.whole is not UNSET:
        templates = PARTLY_RESTING_SENTENCES
        places["whole"] = softmax_percent(link.whole or 0.0, head.visible)
    weight = counted_weight(head)
    if head.rank is None:  # beside a hidden key any other has more
        name = "gives"
    elif link.weight < weight:
        name = "less"
    elif link.weight > weight:
        name = "more"
    else:
        name = "equal"
    yield say(view, templates[name], **places)


ONLY_HEAD_SENTENCES = {
    "gives": message("In layer {layer} head {head} {query} gives {key} {share} of its weight."),
    "less": message(
        "In layer {layer} head {head} {query} gives {key} {share} of its weight, less than {first}."
    ),
    "more": message(
        "In layer {layer} head {head} {query} gives {key} {share} of its weight, more than {first}."
    ),
    "equal": message(
        "In layer {layer} head {head} {query} gives {key} {share} of its weight, as much as"
        " {first}."
    ),
}
"""What a query gives a further key in the only head looked at, beside the first key."""
PARTLY_RESTING_SENTENCES = {
    "gives": message(
        "{key} holds a token where heads rest whatever it is, such as the first of the text: with it"
        " {query} gives {whole}; without it {share}."
    ),
    "less": message(
        "{key} holds a token where heads rest whatever it is, such as the first of the text: with it"
        " {query} gives {whole}; without it {share}, less than {first}."
    ),
    "more": message(
        "{key} holds a token where heads rest whatever it is, such as the first of the text: with it"
        " {query} gives {whole}; without it {share}, more than {first}."
    ),
    "equal": message(
        "{key} holds a token where heads rest whatever it is, such as the first of the text: with it"
        " {query} gives {whole}; without it {share}, as much as {first}."
    ),
}
"""The same of a key that holds both tokens where heads rest, and others."""


def _partly_resting_sentences(
    query: str,
    key: str,
    links: Sequence[tuple[FoundHead, OtherKey]],
    best: FoundHead,
    most: OtherKey,
    view: View,
) -> Iterator[str]:
    """Yield what a query gives a further key that holds both tokens where heads rest, such as the
    first of the text, and others: with the former, and without them.

    links: each head that sees the key, with what it gives it.
    best, most: of these the one that gives most without the tokens where heads rest.
    """

    def whole_first(head_and_link: tuple[FoundHead, OtherKey]) -> tuple[float, int, int]:
        """Sort by the weight on all tokens; of equal ones the head that comes first is the largest."""
        head, link = head_and_link
        return link.whole or 0.0, -head.layer, -head.head

    head, link = max(links, key=whole_first)
    yield say(
        view,
        "{key} holds a token where heads rest whatever it is, such as the first of the text: with it"
        " {query} gives most in layer {layer} head {head}, {whole}; without it in layer"
        " {other_layer} head {other_head}, {share}.",
        query=query,
        key=key,
        layer=head.layer,
        head=head.head,
        whole=softmax_percent(link.whole or 0.0, head.visible),
        other_layer=best.layer,
        other_head=best.head,
        share=softmax_percent(most.weight, best.visible),
    )


def _rank(rank: int | None, beyond: BeyondRest | UnsetType) -> int | None:
    """The rank of a key among keys that are no resting keys; among all where the text has none.

    rank: among all keys; None where the mask hides the key.
    beyond: the numbers without resting keys; UNSET where there are none.
    """
    if beyond is UNSET:
        return rank
    return beyond.rank


def _verified_sentences(document: FindDocument, view: View) -> Iterator[str]:
    """Yield the sentence on the link's weight in the run with another word in front of the text;
    nothing without `--verify`."""
    verified = [head for head in document.heads if head.verified is not UNSET]
    if document.word_before is UNSET or not verified:
        return
    query, key = _ends(document, view)

    def weight_in_front(head: FoundHead) -> float:
        """The link's weight in a head, in the run with the word in front."""
        if head.verified is UNSET:  # not among `verified`: for the type checker
            return 0.0
        return head.verified.weight

    best = max(verified, key=weight_in_front)
    if _is_of_one_head(document):
        if best.verified is not UNSET and best.verified.rank is not None:
            yield say(
                view,
                "With {word} in front {query} gives {key} {share} of its weight in layer {layer} head"
                " {head}, rank {after} among all keys; without {word} its rank is {before}.",
                word=quote_text(document.word_before, view),
                query=query,
                key=key,
                share=softmax_percent(weight_in_front(best), best.visible),
                layer=best.layer,
                head=best.head,
                after=best.verified.rank,
                before=best.rank,
            )
        return
    before = sum(head.rank == 1 for head in verified)
    after = sum(head.verified is not UNSET and head.verified.rank == 1 for head in verified)
    yield say(
        view,
        "With {word} in front {query} gives {key} most in layer {layer} head {head}: {share}. Of all"
        " keys {key} has the largest weight in {after} of {heads} heads; without {word} in"
        " {before}.",
        word=quote_text(document.word_before, view),
        query=query,
        key=key,
        share=softmax_percent(weight_in_front(best), best.visible),
        layer=best.layer,
        head=best.head,
        after=after,
        before=before,
        heads=len(document.heads),
    )
