"""The screen of `attn.compare/1`: the two sides, differences by head, maps with the signed one,
what moved most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import UNSET

from attncli.documents import TokenRow
from attncli.draw.heatmap import heatmap, legend, row_names
from attncli.draw.lines import (
    Lines,
    beside,
    heading,
    line,
    localize,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.names import arrow, bare_arrow, link_label
from attncli.draw.numbers import format_fixed, percent
from attncli.draw.safe import cut, safe, spell
from attncli.draw.screen_header import SIDE, fact, mask_and_position, warning
from attncli.draw.sentence import left_out_note, sentence, shaded_sentence, words
from attncli.draw.shaded_matrix import as_matrix, matrix
from attncli.draw.tables import table
from attncli.draw.token_names import (
    claim_link,
    not_counted,
    placed_token,
    quote_text,
    quoted_ends,
    quoted_token,
    region_name,
    rest_names,
    short,
    token_reference,
    with_word,
)
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.compare.document import (
    ComparedHead,
    CompareDocument,
    ComparedRegion,
    ComparedShare,
    CompareSide,
    HeadPlace,
    MovedWeight,
    SignedDifference,
)
from attncli.features.compare_models.screen import (
    change_sentences,
    layer_table,
    next_table,
    next_text,
)
from attncli.language import Message, listing, message, plural, say, term
from attncli.measure.rest import resting_keys
from attncli.mechanism.spec import head_label, head_name


def compare_rows(document: CompareDocument) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each pair of heads.
    The columns that begin with `link` are of the link that the screen names: the one that changed
    most of those that count; `max_difference`, `query` and `key` of the one that changed most of all.
    """
    yield [
        "layer_a",
        "head_a",
        "layer_b",
        "head_b",
        "link_difference",
        "link_query",
        "link_key",
        "link_a",
        "link_b",
        "max_difference",
        "query",
        "key",
        "mean_difference",
        "js",
        "kept",
        "output_error",
    ]
    indices = {token_a: index for index, (token_a, _) in enumerate(document.aligned)}
    for head in document.heads:
        a = head.a
        b = head.b
        most = head.max_difference
        cells_of_all_links = (
            most.value,
            most.query,
            most.key,
            head.mean_difference,
            head.js,
            head.kept,
            head.output_error,
        )
        yield [a.layer, a.head, b.layer, b.head, *_link_cells(head, indices), *cells_of_all_links]


def _link_cells(head: ComparedHead, indices: Mapping[int, int]) -> list[object]:
    """The cells of `--plain` on the link of a pair of heads that changed most of those that count:
    B − A, its query and key as positions in A, its weight in A and in B; None where none counts.

    indices: of the aligned tokens, by their positions in A.
    """
    link = head.change
    if link is None:
        return [None] * 5
    row = indices[link.query]
    column = indices[link.key]
    sides = (as_matrix(weights)[row, column] for weights in (head.weights_a, head.weights_b))
    # a link that the mask hides has no weight
    weight_a, weight_b = (float(np.nan_to_num(weight)) for weight in sides)
    return [link.value, link.query, link.key, weight_a, weight_b]


def _heads_table(document: CompareDocument, view: View) -> Lines:
    """A table with a row for each pair of heads, those of the largest change first: the change and
    its link, the mean difference, the divergence, and further columns where they say something.
    Empty where nothing differs, unless `--show` asks for the table, and where all rows stand before
    the first different token.
    """
    if _is_before_difference(document) or (_is_equal(document) and view.show is None):
        return Lines()
    heads = ranked_by_change(document)
    if not view.full:
        heads = heads[: view.top]
    more_digits = view.precision + 1
    columns, explanations = _head_columns(document, heads, view)
    order = message("of the weights; the largest change first")
    if not any(head.change and head.change.value for head in heads):
        order = message("of the weights; the largest mean change first")
    title = heading("differences B − A by head", order, view)
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    # head, change and link, then six columns of numbers at most
    body = table(list(columns), rows, view, align=["left", "right", "left", *["right"] * 6])
    summary = document.summary
    largest = _signed_number(summary.max_difference, view)
    mean = f"{summary.mean_difference:.{more_digits}f}"
    js = _format_number(summary.js, view, more=1)
    rest_count = len(document.heads) - len(heads)
    over_all_heads = message(
        "over all heads and links: largest {largest}, mean {mean}, JS {js}",
        largest=largest,
        mean=mean,
        js=js,
    )
    more = Lines()
    if rest_count:
        rest = say(view, "{count} more heads; --top N or --full shows them", count=rest_count)
        more = remark(rest, view)
    cost = Lines()
    # a mask or hashing changes how many pairs of one text are computed
    if {"mask", "hashing"} & {*document.differs} and "text" not in document.differs:
        cost = _cost_remark(document.heads, view)
    left_out = remark(left_out_note(document), view)
    return stack(
        title,
        body,
        more,
        remark(listing(explanations, " · "), view),
        left_out,
        remark(over_all_heads, view),
        cost,
    )


def _head_columns(
    document: CompareDocument, heads: Sequence[ComparedHead], view: View
) -> tuple[dict[str, list[str]], list[str]]:
    """The columns of the table of heads, the texts of each by its title, and sentences that explain
    some of them. Columns that would say the same of all heads are left out."""
    more_digits = view.precision + 1
    changes = [_change_text(head, view) for head in heads]
    ends = [_change_place(head, document.a.tokens, view) for head in heads]
    columns: dict[str, list[str]] = {
        message("head"): [_head_names(head, view) for head in heads],
        message("max diff"): changes,
        message("at"): ends,
        message("mean |diff|"): [f"{head.mean_difference:.{more_digits}f}" for head in heads],
        "JS": [_format_number(head.js, view, more=1) for head in heads],
    }
    explanations: list[str] = [
        message("JS: mean Jensen–Shannon divergence of the rows, nats, at most 0.69")
    ]
    has_outside = any(max(head.outside.a, head.outside.b) > 0 for head in heads)
    if any(head.kept is not None and head.kept < 1 for head in heads):
        columns[message("kept")] = [_format_number(head.kept, view) for head in heads]
        explanations.append(message("kept: share of A's weight on keys that B sees"))
    if any(head.output_error is not None for head in heads):
        # beside two columns more there is room for a short name
        name = message("output error")
        explanation = message("output error: |O_B − O_A| / |O_A|")
        if has_outside:
            name = message("error")
            explanation = message("error: |O_B − O_A| / |O_A|")
        columns[name] = [_format_number(head.output_error, view) for head in heads]
        explanations.append(explanation)
    if has_outside:
        columns[message("else A")] = [_format_number(head.outside.a, view) for head in heads]
        columns[message("else B")] = [_format_number(head.outside.b, view) for head in heads]
        explanations.append(message("else: mean weight on tokens that the other text lacks"))
    return columns, explanations


def _cost_remark(heads: Sequence[ComparedHead], view: View) -> Lines:
    """The remark on how many pairs of query and key A and B compute, over all heads; empty where both
    compute as many, or where that is not known.
    """
    pair_counts = [head.pairs for head in heads if head.pairs is not None]
    a = sum(pairs.a for pairs in pair_counts)
    b = sum(pairs.b for pairs in pair_counts)
    if not pair_counts or a == b or a == 0:
        return Lines()
    share = percent(b / a, 1)
    change = percent(abs(1 - b / a), 1)
    if b < a:
        text = message(
            "pairs: A {a:,}, B {b:,}: B computes {share} of A's, {change} saved",
            a=a,
            b=b,
            share=share,
            change=change,
        )
    else:
        text = message(
            "pairs: A {a:,}, B {b:,}: B computes {share} of A's, {change} more",
            a=a,
            b=b,
            share=share,
            change=change,
        )
    return remark(text, view)


def _signed_number(value: float, view: View) -> str:
    """A difference with its sign, or without one for 0. One that is too small for the digits shown
    is written as a power of ten, such as `-6e-08`."""
    text = f"{value:+.{view.precision}f}"
    if value == 0:
        return text[1:]
    if text.strip("+-0."):
        return text
    return f"{value:+.0e}"


def _format_number(value: float | None, view: View, more: int = 0) -> str:
    """A number with as many digits as the view says, and so many more; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.{view.precision + more}f}"


def _head_names(head: ComparedHead, view: View) -> str:
    """Both heads of a pair, such as `L0 H1 → L0 H2`; one name where they stand in the same place."""
    a = head.a
    b = head.b
    first = head_label(a.layer, a.head)
    same = (a.layer, a.head) == (b.layer, b.head)
    if same:
        return first
    return f"{first}{arrow(view)}{head_label(b.layer, b.head)}"


def _change_text(head: ComparedHead, view: View) -> str:
    """The largest change of a pair of heads with its sign; "-" where no link counts."""
    if head.change:
        return _signed_number(head.change.value, view)
    return "-"


def _change_place(head: ComparedHead, tokens: Sequence[TokenRow], view: View) -> str:
    """The ends of a head's link that changed most, such as `it → animal`; "-" where no link that
    counts changed, as the first of many zeros means nothing."""
    if head.change and head.change.value:
        return _end_names(head.change, tokens, view)
    return "-"


def _end_names(link: SignedDifference, tokens: Sequence[TokenRow], view: View) -> str:
    """The names of a link's query and key by their texts in A, such as `it → animal`; a text that
    stands at several places is followed by the position."""
    places = (link.query, link.key)
    return arrow(view).join(placed_token(tokens, place, END, view) for place in places)


def _heads_to_draw(document: CompareDocument, view: View) -> list[ComparedHead]:
    """The pairs of heads that are drawn: the one whose link changed most; all of them in a full
    view.
    """
    if view.full:
        return list(document.heads)
    return ranked_by_change(document)[:1]


def _maps(document: CompareDocument, view: View) -> Lines:
    """Maps of weights [query, key] for the heads that are drawn: A, B and the signed difference side
    by side, with one scale for all weights and one for all differences. Empty where nothing differs,
    unless `--show` asks for maps, and where all rows stand before the first different token.
    """
    if _is_before_difference(document) or (_is_equal(document) and view.show is None):
        return Lines()
    heads = _heads_to_draw(document, view)
    # differences that print as 0.00 are not drawn as if they were large
    far = max(max(abs(head.max_difference.value) for head in heads), 10.0**-view.precision)

    # the names of the rows, and the room for each map
    rows = document.measured_rows()
    places = [place for place, _ in document.aligned]  # of A
    names = row_names([document.a.tokens[places[index]].text for index in rows], view)
    # columns of the terminal for each of the three maps, which stand 3 apart and 1 from the names;
    # four cells (8 columns) at least
    slot = max((view.width - names.width - 7) // 3, 8)
    # a map that does not fit (a cell is 2 columns wide) is pooled: its lines are no longer one word
    # each, and have no names
    if 2 * len(document.aligned) > slot:
        names = Lines()
        slot = max((view.width - 6) // 3, 8)

    blocks = []
    for head in heads:
        title_a = "A"
        if len(document.heads) > 1:
            title_a = f"A {_head_names(head, view)}"
        pictures = _three_maps(head, rows, title_a, far, slot, view)
        blocks.append(beside(pictures, width=view.width, side=names))

    rest = Lines()
    rest_count = len(document.heads) - len(heads)
    if rest_count:
        rest_note = plural(
            "{count} other pair not drawn; --full draws all",
            "{count} other pairs not drawn; --full draws all",
            count=rest_count,
        )
        rest = remark(rest_note, view)
    scales = stack(legend(view, 0.0, 1.0), legend(view, -far, far, scale="signed"), rest)
    return stack(
        heading("maps", "rows: queries, columns: keys; difference B − A", view),
        stack_spaced(*blocks, scales),
    )


def _three_maps(
    head: ComparedHead, rows: Sequence[int], title_a: str, far: float, slot: int, view: View
) -> list[Lines]:
    """Three maps [query, key] of a pair of heads under their titles: A's weights, B's, and B − A.

    rows: the indices of the queries that are drawn.
    title_a: the title of A's map, which names the heads where there are several pairs.
    far: the size of the difference that has the strongest colour.
    slot: columns of the terminal for each map.
    """
    size = len(head.weights_a)  # the tokens that both texts have
    # the title, numbers, colour scale ("" is that of weights) and its ends of each map
    maps = (
        (title_a, head.weights_a, "", (0.0, 1.0)),
        ("B", head.weights_b, "", (0.0, 1.0)),
        (spell("B − A", ascii=view.ascii), head.difference, "signed", (-far, far)),
    )
    pictures = []
    for title, numbers, scale, limits in maps:
        picture = heatmap(
            as_matrix(numbers)[rows],
            view,
            max_width=min(2 * size, slot),  # a cell is 2 columns wide
            max_height=size,
            scale=scale,
            limits=limits,
        )
        pictures.append(stack(line((cut(title, slot, ascii=view.ascii), "bold")), picture))
    return pictures


def _difference_tables(document: CompareDocument, view: View) -> Lines:
    """A table of B − A, [query, key], for each head that is drawn. Numbers alone: the maps show the
    same in colours."""
    columns = [index for index, _ in document.aligned]
    rows = document.measured_rows()
    texts = [document.a.tokens[index].text for index in columns]
    tables = []
    for head in _heads_to_draw(document, view):
        differences = matrix(
            as_matrix(head.difference)[rows],
            [texts[index] for index in rows],
            texts,
            view,
            shade=False,
            mark_max=False,
            by_size=True,  # of many rows those with the largest changes, up or down, are shown
            title=message("difference {head}", head=_head_names(head, view)),
            note="B − A · rows: queries, columns: keys",
            row_numbers=[columns[index] for index in rows],
            column_numbers=columns,
        )
        tables.append(differences)
    return stack_spaced(*tables)


def _moved_weights(document: CompareDocument, view: View) -> Lines:
    """A table of the links whose weight differs most between the two runs, with the weight in A, in
    B, and B − A; or the remark that none differs. Empty where none can.
    """
    if _is_before_difference(document):
        return Lines()

    # nothing to list: all changes are rounding, no link that counts changed, or none at all did
    moved = [weight for weight in document.moved if abs(weight.difference) > SAME]
    if document.moved and not moved:
        no_change = message("nothing by more than 1e-06, which is rounding")
        return stack(heading("what moved most", "", view), remark(no_change, view))
    if not document.moved:
        if document.summary.max_difference:
            text = left_out_note(document)
        else:
            text = message("nothing: the weights are equal")
        return stack(heading("what moved most", "", view), remark(text, view))

    texts = [_shown_text(document, index, view) for index in range(len(document.a.tokens))]
    arrow_text = arrow(view)
    room = max((view.width - BESIDE_ENDS) // 2, LEAST_END)
    rows = []
    for weight in moved:
        places = (weight.query, weight.key)
        ends = [f"{place} {short(texts[place], room, view)}" for place in places]
        row = [
            head_label(weight.layer, weight.head),
            arrow_text.join(ends),
            f"{weight.a:.{view.precision}f}",
            f"{weight.b:.{view.precision}f}",
            _signed_number(weight.difference, view),
        ]
        rows.append(row)
    columns = ["head", f"query{arrow_text}key", "A", "B", "B − A"]
    align = ["left", "left", "right", "right", "right"]
    if len(document.heads) == 1:
        # the column that names the head says nothing
        columns = columns[1:]
        rows = [row[1:] for row in rows]
        align = align[1:]
    return table(columns, rows, view, align=align, title="what moved most")


END = 14
"""Cells of a word beside the largest change of a head."""
BESIDE_ENDS = 50
"""Cells of a row of what moved most that the two words do not take."""
LEAST_END = 10
"""Cells that each of them has at least."""


# What is compared: the two sides, the words that differ, what ran.

DIFFERS = 0.6
"""The tint of words that differ."""
MOST_NAMES = 8
"""Words that only one side has that are named."""


def compared_sides(document: CompareDocument, view: View) -> Lines:
    """The lines that say what is compared: both texts, with their different words tinted; what ran
    them, written once where it is the same; and in what the sides differ."""
    blocks = []
    same_run = _run_facts(document.a, view) == _run_facts(document.b, view)
    has_two_texts = "text" in document.differs
    sides = (("a", document.a, document.only.a), ("b", document.b, document.only.b))
    for letter, side, only_here in sides:
        blocks.append(line((letter.upper(), "bold"), "  ", (localize(side.name, view), "bold")))
        if has_two_texts:
            different = {*only_here, *_substituted_tokens(document, letter)}
            shares = [DIFFERS if index in different else 0.0 for index in range(len(side.tokens))]
            # (no word is marked as a query)
            blocks.append(sentence(words(side.text, side.tokens, shares, frozenset()), view))
        if not same_run:
            blocks.append(fact("ran", _run_facts(side, view), view))
    if not has_two_texts:
        text = cut(
            safe(document.a.text, ascii=view.ascii), max(view.width - SIDE, 10), ascii=view.ascii
        )
        # `is_ours`: a user's text, not one to translate
        blocks.append(fact("text", [text], view, is_ours=False))
    blocks += _alignment_notes(document, view)
    if same_run:
        blocks.append(fact("ran", _run_facts(document.a, view), view))
    blocks.append(fact("differs in", difference_names(document.differs), view))
    blocks += [warning(warning_text, view) for warning_text in document.warnings]
    return stack(*blocks)


def _run_facts(side: CompareSide, view: View) -> list[str]:
    """The model and the settings that computed a side's weights, as short texts such as "seed 0" and
    "mask causal"."""
    model = side.model
    attention = side.attention
    facts: list[str] = [term(safe(model.source, ascii=view.ascii))]
    if model.source in ("seeded", "random"):
        facts.append(message("seed {seed}", seed=model.seed))
    facts.append(safe(model.name or "", ascii=view.ascii))
    if attention.scale is not None:
        facts.append(message("scale {scale:.6g}", scale=attention.scale))
    facts += mask_and_position(attention.mask, attention.position, view)
    if attention.hashing:
        hashing = safe(attention.hashing, ascii=view.ascii)
        facts.append(message("hash attention {hashing}", hashing=hashing))
    facts.append(f"{attention.backend} {attention.compute_dtype or attention.dtype}")
    return [fact_text for fact_text in facts if fact_text]


def _alignment_notes(document: CompareDocument, view: View) -> Iterator[Lines]:
    """Yield remarks on which tokens are compared with which, where they are not simply equal: words
    in each other's place, another order, and tokens that only one text has."""
    only = document.only
    pairs = [
        (
            quoted_token(document.a.tokens, index, view),
            quoted_token(document.b.tokens, partner, view),
        )
        for index, partner in document.aligned
        if document.a.tokens[index].text != document.b.tokens[partner].text
    ]
    # each pair once: pieces of one word may read alike
    for word, partner_word in dict.fromkeys(pairs):
        yield remark(
            message(
                "{word} in A is compared with {other} in B, which stands in its place",
                word=word,
                other=partner_word,
            ),
            view,
        )

    # all tokens have a partner
    if not only.a and not only.b:
        places_in_b = [place for _, place in document.aligned]
        if places_in_b != sorted(places_in_b):
            yield remark(
                "the same tokens in another order: each is compared with itself, in the order of A",
                view,
            )
        return

    # tokens without a partner
    sides = (
        (message("only in A"), document.a.tokens, only.a),
        (message("only in B"), document.b.tokens, only.b),
    )
    for title, tokens, places in sides:
        if not places:
            continue
        most = MOST_NAMES
        if view.full:
            most = len(places)
        token_names = [quoted_token(tokens, index, view) for index in places[:most]]
        more = len(places) - len(token_names)
        if more:
            token_names.append(f"… (+{more})")
        yield fact(title, [" ".join(token_names)], view, is_ours=False)
    shared = plural(
        "compared: {count} token that both texts have",
        "compared: {count} tokens that both texts have",
        count=len(document.aligned) - len(_substituted_tokens(document, "a")),
    )
    yield remark(shared, view)


# In words, what two compared sides differ in.

SIDES_DIFFER = {
    "text": message("the text"),
    "tokens": message("how the text is split into tokens"),
    "weights": message("the weights"),
    "layer": message("the layer"),
    "head": message("the head"),
    "scale": message("the scale of the scores"),
    "softcap": message("the soft cap"),
    "mask": message("the mask"),
    "position": message("the position encoding"),
    "backend": message("what computed"),
    "dtype": message("the type of the numbers"),
    "compute_dtype": message("the type that was computed in"),
    "hashing": message("hash attention"),
}
"""In words, what two sides may differ in."""
UNTOLD = ("mask_says",)
"""Differences that another one says already."""


def difference_names(names: Sequence[str]) -> list[str]:
    """The names of what differs between the sides, from a document's `differs`, as texts to read,
    each once; where nothing differs, a text that says so.
    """
    differences = list(
        dict.fromkeys(SIDES_DIFFER.get(name, name) for name in names if name not in UNTOLD)
    )
    return differences or [message("nothing that was asked for")]


# The answer of a comparison: the link that changed most; for two ways to attend, what they do and
# what they take.

ROUNDING = 1e-4
"""Differences of float32 between runs of texts of different length: 3e-5 in a published decoder whose
scores reach the hundreds."""
SAME = 1e-6
"""Differences up to this are called none: float32 rounds weights by less."""


def ranked_by_change(document: CompareDocument) -> list[ComparedHead]:
    """The pairs of heads, ordered by how much their link changed; pairs without a link that counts
    follow, ordered by how much their weights changed."""

    def size(head: ComparedHead) -> tuple[float, float]:
        """How much a pair of heads changed: (the change of its link, the mean change of all its
        weights)."""
        link_change = 0.0
        if head.change:
            link_change = abs(head.change.value)
        return link_change, head.mean_difference

    return sorted(document.heads, key=size, reverse=True)


def _is_equal(document: CompareDocument) -> bool:
    """Whether weights and outputs of all heads compared are the same in A and B."""
    errors = [head.output_error for head in document.heads if head.output_error is not None]
    return max(abs(document.summary.max_difference), *errors, 0.0) <= SAME


def compare_answer(document: CompareDocument, view: View) -> Lines:
    """The text of A with its words tinted by how much the weight on each differs, in the row of the
    link that changed most, and the answer in words; the latter alone where nothing changed."""
    answer_lines = sentences(
        [*_side_names(document, view), *compare_sentences(document, view)], view
    )
    link = _changed_most(document)
    if link is None:
        return answer_lines
    return stack(
        _shaded_text(document, _compared_head(document, link), link.query, view), answer_lines
    )


def _side_names(document: CompareDocument, view: View) -> Iterator[str]:
    """Yield a sentence that names A and B, in a brief view alone; none for two texts, which are
    named by their places, and none where nothing differs."""
    has_sides = bool(document.differs) or document.models is not UNSET
    if not view.brief or not has_sides or "text" in document.differs:
        return
    a, b = (localize(side.name, view) for side in (document.a, document.b))
    yield say(view, "A: {a}; B: {b}.", a=safe(a, ascii=view.ascii), b=safe(b, ascii=view.ascii))


def _is_before_difference(document: CompareDocument) -> bool:
    """Whether no weight can differ: only the texts do, the model reads from left to right, and every
    row compared stands before the first different token."""
    beginning = document.common_beginning
    if beginning is UNSET or not {"text", "tokens"}.issuperset(document.differs):
        return False
    if not document.differs or abs(document.summary.max_difference) > ROUNDING:
        return False
    places = [place for place, _ in document.aligned]  # of A
    return all(places[row] < beginning for row in document.measured_rows())


def _substituted_tokens(document: CompareDocument, letter: str) -> list[int]:
    """The positions of the tokens on one side that are compared with a different one.

    letter: "a" or "b", the side.
    """
    places = []
    for place_a, place_b in document.aligned:
        if document.a.tokens[place_a].text != document.b.tokens[place_b].text:
            places.append({"a": place_a, "b": place_b}[letter])
    return places


def _shown_text(document: CompareDocument, index: int, view: View) -> str:
    """The name of a token of A, by its index; "cat/dog" where B has another token in its place."""
    token = document.a.tokens[index]
    partner = token
    place = dict(document.aligned).get(index)
    if place is not None:
        partner = document.b.tokens[place]
    if token.text == partner.text:
        return with_word(token, view)
    return f"{token.text}/{partner.text}"


def _before_difference_sentences(document: CompareDocument, view: View) -> Iterator[str]:
    """Yield why no compared row differs and, where rows were chosen and a later one may differ, the
    option to compare the last one."""
    # said only of texts with a common beginning, whose length the document then holds
    beginning = document.common_beginning or 0
    yield say(
        view,
        plural(
            "A and B begin with the same token, and the model reads from left to right: no row"
            " compared sees what differs.",
            "A and B begin with the same {count} tokens, and the model reads from left to right: no"
            " row compared sees what differs.",
            count=beginning,
        ),
    )
    later = [index for index, _ in document.aligned if index >= beginning]
    # rows were chosen by --query, or a later one would have been compared
    if later and document.queries:
        name = token_reference(document.a.tokens, later[-1], view)
        yield say(view, "A row that does: --query {query}", query=name)


def _changed_most(document: CompareDocument) -> MovedWeight | None:
    """The link that counts and changed most; None where none changed by more than rounding."""
    if not document.heads or abs(document.summary.max_difference) <= SAME:
        return None
    if not document.moved or abs(document.moved[0].difference) <= SAME:
        return None
    return document.moved[0]


def _compared_head(document: CompareDocument, link: MovedWeight) -> ComparedHead:
    """The pair of heads that a changed weight belongs to."""
    return next(
        head for head in document.heads if (head.a.layer, head.a.head) == (link.layer, link.head)
    )


def _regions_table(document: CompareDocument, view: View) -> Lines:
    """A table with a row for each region, and one for the tokens where heads rest (put weight when
    they look for nothing): the share of attention that goes there in A and in B, and the head in
    which it changes most. Empty without regions."""
    if document.region_changes is UNSET:
        return Lines()
    rows = [
        [region_name(region.name, view), *_region_cells(region.change, view)]
        for region in document.region_changes
    ]
    if document.region_rest is not UNSET:
        rows.append([say(view, "rest"), *_region_cells(document.region_rest, view)])
    note = _regions_note(document)
    columns = [message("region"), "A", "B", "B − A", message("most in")]
    return table(columns, rows, view, align=["left", *["right"] * 4], title="regions", note=note)


def _regions_note(document: CompareDocument) -> Message:
    """The note of the table of regions: whose attention its shares are of, and what "rest" is: the
    tokens on which heads put weight when they look for nothing."""
    if document.region_rest is UNSET and document.queries:
        return message(
            "of what the rows compared look at, means over heads; most in: the heads that change it"
            " most"
        )
    if document.region_rest is UNSET:
        return message(
            "of what the last token looks at, means over heads; most in: the heads that change"
            " it most"
        )
    rest = rest_names([*document.a.tokens, *document.b.tokens])
    if document.queries:
        return message(
            "of what the rows compared look at, means over heads; of regions the part of what does"
            " not rest; rest: of all, on {rest}; most in: the heads that change it most, of all"
            " their weight",
            rest=rest,
        )
    return message(
        "of what the last token looks at, means over heads; of regions the part of what"
        " does not rest; rest: of all, on {rest}; most in: the heads that change it most,"
        " of all their weight",
        rest=rest,
    )


def _region_cells(change: ComparedRegion | ComparedShare, view: View) -> list[str]:
    """The cells of a region's row behind its name: its share in A and in B, the difference, and the
    heads that change it most with their difference."""
    most = "-"
    if change.most is not None and change.most.difference:
        heads = _short_head_names(change.most.a, change.most.b, view)
        most = f"{heads} {_share_difference(change.most.difference)}"
    return [_share(change.a), _share(change.b), _share_difference(change.difference), most]


def _share(value: float | None) -> str:
    """A share in percent; "-" for None."""
    if value is None:
        return "-"
    return percent(value, 1)


def _share_difference(value: float | None) -> str:
    """A difference of shares in percent, with its sign; "-" for None."""
    if value is None:
        return "-"
    sign = "+"
    if value < 0:
        sign = "−"
    return sign + percent(abs(value), 1)


def _short_head_names(a: HeadPlace, b: HeadPlace, view: View) -> str:
    """A head as `L0H1`, or as `L0H1→L2H3` where the sides have different ones."""
    first, second = (head_name(place.layer, place.head) for place in (a, b))
    if first == second:
        return first
    return f"{first}{bare_arrow(view)}{second}"


def _region_sentences(document: CompareDocument, view: View) -> list[str]:
    """A list of one sentence, on the region whose share changed most from A to B; [] where no
    difference of regions is known.
    """
    # the largest difference comes first
    changed = [
        region for region in document.region_changes or () if region.change.difference is not None
    ]
    if not changed:
        return []
    region = changed[0]
    places = {
        "region": quote_text(region_name(region.name, view), view),
        "a": _share(region.change.a),
        "b": _share(region.change.b),
    }
    if region.beyond_rest is not UNSET:
        template = message(
            "The region whose share changed most: {region}, from {a} in A to {b} in B, of what does"
            " not rest."
        )
        return [say(view, template, **places)]
    return [
        say(
            view,
            "The region whose share changed most: {region}, from {a} in A to {b} in B.",
            **places,
        )
    ]


def compare_sentences(document: CompareDocument, view: View) -> list[str]:
    """The answer in words: which link changed most; for two ways to attend to one text, what that
    does to the output and to the cost; for two forms of one model, how many heads moved."""
    if document.models is UNSET:
        return [*_link_sentences(document, view), *_next_sentences(document, view)]
    is_part = document.queries is not UNSET
    changes = change_sentences(document.models, texts=1, view=view, is_part=is_part)
    return [*_link_sentences(document, view), *changes]


def _next_sentences(document: CompareDocument, view: View) -> Iterator[str]:
    """Yield the sentence on the likeliest next token of either side; nothing where a side predicts
    none, or both the same."""
    next_a = document.a.next_tokens
    next_b = document.b.next_tokens
    if not next_a or not next_b:
        return
    a = next_text(next_a[0], view)
    b = next_text(next_b[0], view)
    if a != b:
        yield say(view, "The likeliest next token: {a} in A, {b} in B.", a=a, b=b)


def _link_sentences(document: CompareDocument, view: View) -> list[str]:
    """Sentences on the link that changed most, or on why none is named, and on the region that did;
    for two ways to attend, also on the output and the cost."""
    if not document.heads:
        return []
    if _is_before_difference(document):
        return [*_before_difference_sentences(document, view)]

    # nothing changed, or nothing that counts
    link = _changed_most(document)
    if abs(document.summary.max_difference) <= SAME:
        has_unshared_tokens = len(document.aligned) < max(
            len(document.a.tokens), len(document.b.tokens)
        )
        same = message("The weights of A and B are the same (no difference above 1e-06).")
        if not document.differs:
            same = message(
                "Text and settings of A and B come to the same, and so does their attention (no"
                " difference above 1e-06)."
            )
        elif document.queries:
            same = message(
                "In the rows compared the weights of A and B are the same (no difference above"
                " 1e-06)."
            )
        elif has_unshared_tokens:
            same = message(
                "On the tokens that both texts have, the weights of A and B are the same (no"
                " difference above 1e-06)."
            )
        return [say(view, same), *_output_and_cost(document, view)]
    if link is None:
        kinds = document.links_leave_out or ()
        none = say(view, "No link that counts differs.")
        left_out = not_counted(kinds, document.a.tokens, view)
        return [none, left_out, *_output_and_cost(document, view)]

    # the ends of the link, and its weight in A and in B
    head = _compared_head(document, link)
    query_name, key_name = quoted_ends(document.a.tokens, document.a.tokens, link, view)
    partners = dict(document.aligned)
    query = _with_partner(document, query_name, link.query, partners, view)
    key_claim = claim_link(key_name, link, view)
    key = _with_partner(document, key_claim, link.key, partners, view)
    a, b = (f"{value:.{view.precision}f}" for value in (link.a, link.b))
    # a change must not read "from 0.50 to 0.50"
    for digits in range(3, 9):
        if a != b:
            break
        a, b = (f"{value:.{digits}g}" for value in (link.a, link.b))

    ends = {"link": link_label(query, key, view), "a": a, "b": b}
    # names of both templates: one place for A and B, or one for either
    places = {
        "layer": head.a.layer,
        "head": head.a.head,
        "a_layer": head.a.layer,
        "a_head": head.a.head,
        "b_layer": head.b.layer,
        "b_head": head.b.head,
    }
    if (head.a.layer, head.a.head) == (head.b.layer, head.b.head):
        template = message(
            "The link that changed most: {link}, from {a} in A to {b} in B (layer {layer}"
            " head {head})."
        )
    else:
        template = message(
            "The link that changed most: {link}, from {a} in layer {a_layer} head "
            "{a_head} of A to {b} in layer {b_layer} head {b_head} of B."
        )
    sentence_text = say(view, template, **ends, **places)
    left_out = not_counted(document.links_leave_out or (), document.a.tokens, view)
    return [
        sentence_text,
        left_out,
        *_region_sentences(document, view),
        *_output_and_cost(document, view),
    ]


def _with_partner(
    document: CompareDocument, name: str, index: int, partners: dict[int, int], view: View
) -> str:
    """The name of a token of A, with that of the word that stands in its place in B, if another
    does."""
    partner = partners[index]
    if document.a.tokens[index].text == document.b.tokens[partner].text:
        return name
    partner_name = quoted_token(document.b.tokens, partner, view)
    return say(view, "{name} (in B {other})", name=name, other=partner_name)


WAYS = frozenset({"mask", "hashing", "scale", "softcap", "position"})
"""What makes another way to attend of the same text and weights."""


def _output_and_cost(document: CompareDocument, view: View) -> Iterator[str]:
    """Yield what another way to attend (a mask, scale, position or the like) does to one text: how
    much weight it keeps, by how much the output differs, how many pairs it computes. Nothing for two
    texts, and where the way is the same.
    """
    if "text" in document.differs or not WAYS.intersection(document.differs):
        return
    kept_shares = [head.kept for head in document.heads if head.kept is not None]
    if kept_shares and min(kept_shares) < 1:
        share = percent(sum(kept_shares) / len(kept_shares))
        yield say(view, "Of the weight in A, {share} is on keys that B sees too.", share=share)
    errors = [head.output_error for head in document.heads if head.output_error is not None]
    if errors:
        if len(errors) == 1:
            template = message(
                "Output error: the difference of the two outputs is {error} times as large as A's."
            )
        else:
            template = message(
                "Output error: the difference of the two outputs is {error} times as large as A's,"
                " on average over {count} heads."
            )
        error = format_fixed(sum(errors) / len(errors), view.precision)
        yield say(view, template, count=len(errors), error=error)
    yield from _blind_queries(document, view)
    pairs = [head.pairs for head in document.heads if head.pairs is not None]
    a = sum(pair_count.a for pair_count in pairs)
    b = sum(pair_count.b for pair_count in pairs)
    if a and a == b:
        yield say(view, "Cost: A and B compute the same number of pairs, {pairs}.", pairs=f"{a:,}")
        yield from _why_hashing_saves_nothing(document, view)
    elif a:
        ratio = percent(b / a, 1)
        yield say(
            view,
            "Cost: A computes {a} pairs, B {b} ({ratio} of A's).",
            a=f"{a:,}",
            b=f"{b:,}",
            ratio=ratio,
        )


MOST_BLIND = 4
"""Queries that see nothing and are named one by one."""


def _blind_queries(document: CompareDocument, view: View) -> Iterator[str]:
    """Yield for either side which of the measured queries see no key in some head, by name. Both
    sides have the same text, so that all keys of a row are known.
    """
    rows = document.measured_rows()
    for side, part, weights in (
        ("A", document.a, [head.weights_a for head in document.heads]),
        ("B", document.b, [head.weights_b for head in document.heads]),
    ):
        # [head, query]; a key that the mask hides has no weight
        blind = np.stack([np.isnan(as_matrix(values)[rows]).all(axis=-1) for values in weights])
        places = [rows[place] for place in np.flatnonzero(blind.any(axis=0)).tolist()]
        if not places:
            continue
        # a row's token in this side
        names = []
        for row in places[:MOST_BLIND]:
            token_a, token_b = document.aligned[row]
            token = token_a if side == "A" else token_b
            names.append(quoted_token(part.tokens, token, view))
        if len(places) > MOST_BLIND:
            names.append(message("{count} more", count=len(places) - MOST_BLIND))
        template = plural(
            "In {side} {queries} sees no key: its weights and its weighted sum A·V are 0.",
            "In {side} {queries} see no key: their weights and weighted sums A·V are 0.",
            count=len(places),
            side=side,
            queries=listing(names),
        )
        is_blind_in_every_head = blind.sum() == len(places) * len(weights)
        if not is_blind_in_every_head:
            template = plural(
                "In some heads of {side} {queries} sees no key: its weights and its weighted sum A·V"
                " are 0 there.",
                "In some heads of {side} {queries} see no key: their weights and weighted sums A·V"
                " are 0 there.",
                count=len(places),
                side=side,
                queries=listing(names),
            )
        yield say(view, template)


def _why_hashing_saves_nothing(document: CompareDocument, view: View) -> Iterator[str]:
    """Yield a sentence where one side hashed a text of at most two chunks, in which all pairs are
    computed as in dense attention: why, and chunks with which some are saved, where there are such.
    """
    hashed = [side for side in (document.a, document.b) if side.attention.hashing]
    if len(hashed) != 1:
        return
    # "reformer:BUCKETS,ROUNDS,CHUNK"; the last may be left out
    side = hashed[0]
    _, _, settings = str(side.attention.hashing).partition(":")
    numbers = [int(number) for number in settings.split(",")]
    buckets = numbers[0]
    count = len(side.tokens)
    # a chunk is as large as two buckets on average, rounded up, where it is not given
    chunk = -(-2 * count // buckets)
    if len(numbers) == 3:
        _, _, chunk = numbers
    if count > 2 * chunk:
        return
    # pairs are saved from a third chunk on: the largest chunk, 4 at most, of which two do not hold
    # the whole text
    smaller = min((count - 1) // 2, 4)
    if smaller < 1:
        return
    yield say(
        view,
        "A chunk, of {chunk} tokens here, looks at itself and the one before, the first at the last:"
        " a text of no more than two chunks saves nothing. Try: --attention {hashing}",
        chunk=chunk,
        hashing=f"reformer:{buckets},1,{smaller}",
    )


def _models_part(document: CompareDocument, view: View) -> Lines:
    """Tables of how two models differ by layer, and in the next token; empty where the sides are not
    two models."""
    if document.models is UNSET:
        return Lines()
    return stack_spaced(layer_table(document.models, view), next_table(document.models, view))


COMPARE_PARTS: Parts[CompareDocument] = (
    ScreenPart("sides", compared_sides),
    ScreenPart("models", _models_part),
    ScreenPart("moved", _moved_weights),
    ScreenPart("heads", _heads_table),
    ScreenPart("regions", _regions_table),
    ScreenPart("maps", _maps),
    ScreenPart("difference", _difference_tables, never),
    ScreenPart("answer", compare_answer),
)


def _shaded_text(document: CompareDocument, head: ComparedHead, query: int, view: View) -> Lines:
    """The text of A with the query in brackets, and each word tinted by how much the weight on it
    differs in the query's row of this head. Words on which heads rest (put weight when they look
    for nothing) are not tinted.

    query: the position in A of the query of the link that changed most.
    """
    # rows and columns of differences are those tokens of A that have a partner in B
    places = [index_a for index_a, _ in document.aligned]
    row = as_matrix(head.difference)[places.index(query)]
    differences = np.zeros(len(document.a.tokens))
    # the row's further columns are of keys that are no tokens, such as a learned one: left out
    differences[places] = np.abs(np.nan_to_num(row))[: len(places)]
    tint = message("tint: by how much the word's weight differs")
    rest = resting_keys(document.a.tokens, document.a.model.source)
    # with --all-links nothing is left out, here neither
    if document.links_leave_out and rest.any():
        differences[rest] = 0.0
        tint = message("tint: by how much the word's weight differs; where heads rest is left out")
    return shaded_sentence(
        document.a.text, document.a.tokens, differences, view, query=query, tint=tint
    )
