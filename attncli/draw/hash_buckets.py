"""The buckets of an `lsh` mask on a screen: which queries and keys each holds, and how a vector gets
its bucket.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attncli.documents import TokenRow
from attncli.documents.parts import HashProducts
from attncli.draw.lines import Lines, sentences, stack, stack_spaced
from attncli.draw.tables import table
from attncli.draw.token_names import position_and_text, quoted_token
from attncli.draw.view import View
from attncli.language import listing, message, plural, say, say_each
from attncli.measure.hash_products import Floats, buckets_of_products

MOST_HEADS = 4
"""Heads whose buckets are drawn; a run of more is asked about by `--head`."""
MOST_NAMES = 8
"""Tokens of a bucket or a sentence that are named; the others are counted."""
MOST_NUMBERS = 8
"""Numbers of [xR; −xR] that are written out."""
NAME = 12
"""Cells of a token's text in the table."""


def bucket_part(
    entries: Sequence[HashProducts], tokens: Sequence[TokenRow], query: int, view: View
) -> Lines:
    """Tables of the buckets of each head, and below them how a bucket is found, worked out for one
    token.

    Args:
        entries: Of each head and `lsh` mask; one at least.
        tokens: Of the text.
        query: The token that is worked out.
        view: How it is drawn.
    """
    shown = entries[:MOST_HEADS]
    if view.full:
        shown = entries
    tables = [_bucket_table(entry, tokens, view) for entry in shown]
    texts = [
        say(
            view,
            "The bucket of a vector x is the place, from 0, of the largest number in [xR; −xR]. R is"
            " random and the same for queries and keys (a random rotation).",
        ),
        _worked_bucket(shown[0], tokens, query, view),
        say(
            view,
            "A token's query and its key are different vectors and are hashed apart, so that a word"
            " may not see itself.",
        ),
        _apart_sentence(shown[0], tokens, view),
    ]
    left_out = len(entries) - len(shown)
    if left_out:
        more = plural(
            "The buckets of {count} more head: --full, or --layer and --head",
            "The buckets of {count} more heads: --full, or --layer and --head",
            count=left_out,
        )
        texts.append(say(view, more))
    return stack(stack_spaced(*tables), sentences(texts, view))


def _bucket_table(entry: HashProducts, tokens: Sequence[TokenRow], view: View) -> Lines:
    """A row for each bucket of a head that holds anything: its queries and its keys."""
    # the bucket of each token's query and key, [round, token]
    queries = buckets_of_products(entry.query)
    keys = buckets_of_products(entry.key)
    rows = []
    for number, (of_queries, of_keys) in enumerate(zip(queries, keys, strict=True)):
        for bucket in sorted({*of_queries.tolist(), *of_keys.tolist()}):
            cells = [str(number + 1), str(bucket)]
            for buckets in (of_queries, of_keys):
                cells.append(_names_text(np.flatnonzero(buckets == bucket), tokens, view))
            rows.append(cells)
    columns = say_each(view, "round", "bucket", "queries", "keys")
    align = ["right", "right"]
    if len(queries) == 1:  # a single round needs no column
        columns = columns[1:]
        rows = [row[1:] for row in rows]
        align = ["right"]
    note = message(
        "layer {layer} head {head} · lsh shows a query the keys of its row",
        layer=entry.layer,
        head=entry.head,
    )
    return table(columns, rows, view, align=align, title=say(view, "buckets"), note=note)


def _names_text(indices: np.ndarray, tokens: Sequence[TokenRow], view: View) -> str:
    """Tokens by position and text, the first of many by name; "-" for none."""
    count = len(indices)
    if not view.full:
        indices = indices[:MOST_NAMES]
    names = [position_and_text(int(place), tokens[place].text, NAME, view) for place in indices]
    if count > len(names):
        names.append(f"+{count - len(names)}")
    if not names:
        return "-"
    return listing(names)


def _worked_bucket(entry: HashProducts, tokens: Sequence[TokenRow], query: int, view: View) -> str:
    """The sentence with the numbers that give one token's query and key their buckets, in the first
    round; "" where these are too many to read."""
    # qR and kR are [round, token, column of R]; −xR doubles the numbers
    if 2 * entry.query.shape[-1] > MOST_NUMBERS:
        return ""
    return say(
        view,
        "Worked out for {token} in layer {layer} head {head}, round 1: [qR; −qR] = ({query_numbers}),"
        " the largest in place {query_bucket}; [kR; −kR] = ({key_numbers}), the largest in place"
        " {key_bucket}.",
        layer=entry.layer,
        head=entry.head,
        token=quoted_token(tokens, query, view),
        query_numbers=_numbers_text(entry.query[0, query], view),
        query_bucket=int(buckets_of_products(entry.query)[0, query]),
        key_numbers=_numbers_text(entry.key[0, query], view),
        key_bucket=int(buckets_of_products(entry.key)[0, query]),
    )


def _numbers_text(products: Floats, view: View) -> str:
    """xR and −xR as text, such as `1.20, -0.31, -1.20, 0.31`."""
    numbers = [*products.tolist(), *(-products).tolist()]
    return ", ".join(f"{number:.{view.precision}f}" for number in numbers)


def _apart_sentence(entry: HashProducts, tokens: Sequence[TokenRow], view: View) -> str:
    """The sentence on the tokens whose query and key share a bucket in no round."""
    keys = buckets_of_products(entry.key)
    shares = (buckets_of_products(entry.query) == keys).any(0)  # of each token, in some round
    apart = np.flatnonzero(~shares).tolist()
    places = {"layer": entry.layer, "head": entry.head, "count": len(apart), "all": len(tokens)}
    if not apart:
        return say(
            view,
            "In layer {layer} head {head} the query and the key of every token share a bucket.",
            **places,
        )
    if len(apart) > MOST_NAMES:
        return say(
            view,
            "In layer {layer} head {head} the query and the key of {count} of {all} tokens share no"
            " bucket.",
            **places,
        )
    names = listing(quoted_token(tokens, place, view) for place in apart)
    return say(
        view,
        "In layer {layer} head {head} the query and the key of these tokens share no bucket:"
        " {tokens}.",
        **places,
        tokens=names,
    )
