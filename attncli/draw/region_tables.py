"""Where attention goes by region, as tables and in words: of a run, of the heads of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from attncli.documents import ModelPart, Numbers, RegionRow, TokenRow
from attncli.documents.parts import HeadRegions, RegionPart
from attncli.draw.columns import Column, column_table
from attncli.draw.lines import Lines
from attncli.draw.names import link_label
from attncli.draw.numbers import percent
from attncli.draw.safe import spell
from attncli.draw.sentence import not_learned_note
from attncli.draw.shaded_matrix import matrix
from attncli.draw.tables import table
from attncli.draw.token_names import quote_text, quoted_token, region_name, rest_names
from attncli.draw.view import View
from attncli.inputs.regions import REST
from attncli.language import listing, message, say
from attncli.measure.rest import resting_keys
from attncli.mechanism.spec import head_name

MOST_REGIONS = 6
"""Regions that the answer names."""
RANKS = (message("first"), message("second"), message("third"))
"""The heads that are named of each region."""


class WithRegions(Protocol):
    """A document that may hold regions (named sets of tokens) of its text, and the shares of
    attention that they get."""

    @property
    def tokens(self) -> list[TokenRow]:
        """The tokens of the text."""

    @property
    def model(self) -> ModelPart:
        """The model that ran."""

    @property
    def regions(self) -> list[RegionRow] | UnsetType:
        """The regions; UNSET where there are none."""

    @property
    def region_shares(self) -> RegionPart | UnsetType:
        """The shares of the query's attention that the regions get; UNSET for a document without
        regions."""


def has_regions(document: WithRegions, view: View) -> bool:
    """Whether the document holds shares of regions. `view` is not used: conditions of screen parts
    are called with both."""
    return document.region_shares is not UNSET


def regions_part(document: WithRegions, view: View) -> Lines:
    """A table of the regions (named sets of tokens): their tokens, the share of the query's
    attention that each gets, the share under uniform attention, and the head that gives most."""
    if document.region_shares is UNSET or document.regions is UNSET:
        return Lines()
    part = part_beyond_rest(document.region_shares)
    columns = [
        message("region"),
        "tokens",
        message("share"),
        message("even"),
        message("share / even"),
        message("most in"),
    ]
    rows = []
    for place in region_order(part):
        region = document.regions[place]
        head = _strongest_head(part, place)
        most_in = "-"
        if head is not None:
            most_in = f"{head_name(head.layer, head.head)} {_percent_or_dash(head.share[place])}"
        rows.append(
            [
                region_name(region.name, view),
                f"{len(region.tokens):,}",
                _percent_or_dash(part.share[place]),
                _percent_or_dash(part.even[place]),
                _times_text(part.share[place], part.even[place]),
                most_in,
            ]
        )
    token = document.tokens[part.query]
    note = message(
        "of what {token} ({index}) looks at, means over layers and heads; even: its share of what"
        " it sees",
        index=token.index,
        token=quote_text(token.text, view),
    )
    if part.rest:
        # a last row for the keys on which heads put weight when they look for nothing
        note = message(
            "of what {token} ({index}) looks at, means over layers and heads; of regions the part"
            " of what does not rest, even: its share of what it sees; rest: of all, on {rest};"
            " most in: of all of that head's weight",
            index=token.index,
            token=quote_text(token.text, view),
            rest=rest_names(document.tokens),
        )
        count = int(resting_keys(document.tokens, document.model.source).sum())
        if isinstance(part.even_rest, float):
            even = part.even_rest
        else:  # the document does not say it
            even = np.nan
        numbers = [
            _percent_or_dash(part.rest),
            _percent_or_dash(even),
            _times_text(part.rest, even),
        ]
        rows.append([say(view, "rest"), f"{count:,}", *numbers, "-"])
    align = ["left", *["right"] * (len(columns) - 1)]
    return table(columns, rows, view, align=align, title="regions", note=note)


def part_beyond_rest(part: RegionPart) -> RegionPart:
    """The shares of regions, counted without the keys on which heads rest (the first token, special
    tokens and separators, which get weight when a head looks for nothing). Means over heads are
    divided by the weight that is left; shares of single heads stay parts of all their weight.
    Unchanged where nothing rests, or where the document does not say how much does.
    """
    share = part.share_beyond_rest
    even = part.even_beyond_rest
    if not part.rest or share is UNSET or even is UNSET:
        return part
    left = 1 - part.rest
    # a document that does not state even attention's part on resting keys: as if it were 0
    even_left = 1 - (part.even_rest or 0.0)
    return replace(
        part,
        share=share / left if left > 0 else share * np.nan,
        even=even / even_left if even_left > 0 else even * np.nan,
        by_layer=_shares_beyond_rest(part.by_layer, part.by_layer_beyond_rest, part.rest_by_layer),
        between=_shares_beyond_rest(part.between, part.between_beyond_rest, part.rest_between),
        heads=[
            replace(head, share=head.share_beyond_rest, even=head.even_beyond_rest)
            for head in part.heads
            if head.share_beyond_rest is not UNSET and head.even_beyond_rest is not UNSET
        ],
    )


def _shares_beyond_rest(
    whole: Numbers, beyond: Numbers | UnsetType, rest: Numbers | UnsetType
) -> Numbers:
    """Shares of each region among the weight that is not on resting keys (see `part_beyond_rest`),
    [row, region]; NaN for rows with all weight on resting keys.

    whole: shares of all weight, returned for a document without the two others.
    beyond: the weight on each region without its resting keys, [row, region].
    rest: the weight on resting keys, [row].
    """
    if beyond is UNSET or rest is UNSET:
        return whole
    left = (1 - rest)[:, None]
    return np.divide(beyond, left, out=np.full_like(beyond, np.nan), where=left > 0)


def region_order(part: RegionPart) -> list[int]:
    """The indices of the regions by their share of the query's attention, the largest first;
    unknown shares last.
    """
    shares = np.nan_to_num(part.share, nan=-1)
    return np.argsort(-shares, kind="stable").tolist()


def _strongest_head(part: RegionPart, place: int) -> HeadRegions | None:
    """The head that gives a region the largest share of its weight; None where no head's share is
    known.

    place: the region's index.
    """
    heads = [head for head in part.heads if np.isfinite(head.share[place])]
    return max(heads, key=lambda head: float(head.share[place]), default=None)


def _percent_or_dash(value: float) -> str:
    """A share in percents with a digit after the point; "-" where it is unknown."""
    if np.isfinite(value):
        return percent(float(value), 1)
    return "-"


def _times_text(value: float, even: float) -> str:
    """How many times an even share a share is, such as `1.50`; "-" where that is unknown."""
    if np.isfinite(value) and np.isfinite(even) and even > 0:
        return f"{value / even:.2f}"
    return "-"


def region_layers_part(document: WithRegions, view: View) -> Lines:
    """A matrix of layers × regions: the share of the query's attention that each region gets in
    each layer, without resting keys (see `part_beyond_rest`). Empty for one layer.
    """
    if document.region_shares is UNSET or document.regions is UNSET:
        return Lines()
    part = part_beyond_rest(document.region_shares)
    if len(part.layers) == 1:
        return Lines()
    note = message("rows: layers, columns: regions; means over the heads of a layer")
    if part.rest:
        note = message(
            "rows: layers, columns: regions; of what does not rest, means over the heads of a layer"
        )
    return matrix(
        part.by_layer,
        [say(view, "layer {layer}", layer=layer) for layer in part.layers],
        [region_name(region.name, view) for region in document.regions],
        view,
        limits=(0.0, 1.0),
        title="regions by layer",
        note=note,
    )


def region_pairs_part(document: WithRegions, view: View) -> Lines:
    """A matrix of regions × regions: the mean weight that a token of the one (row) gives to all
    tokens of the other (column), without resting keys (see `part_beyond_rest`)."""
    if document.region_shares is UNSET or document.regions is UNSET:
        return Lines()
    part = part_beyond_rest(document.region_shares)
    note = message(
        "rows: regions that look, columns: regions looked at; means over tokens, layers and heads"
    )
    if part.rest:
        note = message(
            "rows: regions that look, columns: regions looked at; of what does not rest, means over"
            " tokens, layers and heads"
        )
    names = [region_name(region.name, view) for region in document.regions]
    return matrix(
        part.between,
        names,
        names,
        view,
        limits=(0.0, 1.0),
        title="region to region",
        note=note,
    )


def ranked_heads(part: RegionPart, place: int) -> list[HeadRegions]:
    """The heads that give a region any attention, by the ratio to its share under uniform
    attention, the largest first.

    place: the region's index.
    """
    heads = [
        head for head in part.heads if np.isfinite(head.share[place]) and head.share[place] > 0
    ]
    return sorted(
        heads,
        key=lambda head: (-_times_even(head.share[place], head.even[place]), head.layer, head.head),
    )


def _times_even(share: float, even: float) -> float:
    """The ratio of a region's share of a head's attention to its share under uniform attention; 0
    where that is 0 or unknown."""
    if np.isfinite(even) and even > 0:
        return float(share / even)
    return 0.0


def region_heads_part(document: WithRegions, view: View) -> Lines:
    """A table with a row per region: the three heads that give it most of the query token's
    attention, measured by the ratio to uniform attention; fewer where they do not fit the width.
    Empty for one head or without regions.
    """
    if document.region_shares is UNSET or document.regions is UNSET:
        return Lines()
    part = part_beyond_rest(document.region_shares)
    if len(part.heads) == 1:
        return Lines()
    regions = document.regions
    times = spell("×", ascii=view.ascii)

    def head_text(rank: int, place: int) -> str:
        """The head of this rank (0 for the first) of the region at `place`, with its share and its
        ratio to even attention, such as `L5H11 31.2% ×2.40`; "-" where there is none."""
        heads = ranked_heads(part, place)
        if rank >= len(heads):
            return "-"
        head = heads[rank]
        share = head.share[place]
        ratio = _times_text(share, head.even[place])
        return f"{head_name(head.layer, head.head)} {_percent_or_dash(share)} {times}{ratio}"

    columns = [
        Column[int](
            message("region"), lambda place: region_name(regions[place].name, view), align="left"
        )
    ]
    for rank, name in enumerate(RANKS):  # the third is left out first, the first never
        columns.append(Column(name, partial(head_text, rank), align="left", leave_out=rank))
    note = message(
        "the heads in which {token} ({index}) looks most at a region beside even attention: its share"
        " of their weight, and how many times even attention that is",
        index=part.query,
        token=quote_text(document.tokens[part.query].text, view),
    )
    return column_table(
        columns, region_order(part), view, title=message("heads by region"), note=note
    )


def region_links_part(document: WithRegions, view: View) -> Lines:
    """A table of the strongest links between regions: the mean weight that a token of one gives to
    all of another, in one head."""
    part = document.region_shares
    if part is UNSET or document.regions is UNSET or part.links is UNSET:
        return Lines()
    if view.full:
        links = part.links  # the strongest first
    else:
        links = part.links[: view.top]
    title = message("links between regions")
    note = message(
        "weight of a region in the rows of another; elsewhere, and where heads rest, left out"
    )
    if not links:
        return table([], [], view, title=title, note=message("no region looks at another"))
    names = [region_name(region.name, view) for region in document.regions]
    rows = [
        [
            head_name(link.layer, link.head),
            link_label(names[link.query], names[link.key], view),
            _percent_or_dash(link.weight),
            _percent_or_dash(link.even),
            _times_text(link.weight, link.even),
        ]
        for link in links
    ]
    columns = [
        message("head"),
        message("link"),
        message("share"),
        message("even"),
        message("share / even"),
    ]
    return table(
        columns,
        rows,
        view,
        align=["left", "left", "right", "right", "right"],
        title=title,
        note=note,
    )


REGION_PARTS: dict[str, Callable[[WithRegions, View], Lines]] = {
    "regions": regions_part,
    "region-heads": region_heads_part,
    "region-layers": region_layers_part,
    "region-pairs": region_pairs_part,
    "region-links": region_links_part,
}
"""What draws each part about regions, by its name in `--show`."""


def region_sentences(document: WithRegions, view: View) -> list[str]:
    """Sentences on the shares of the query's attention that the regions get, and which get most and
    least beside uniform attention."""
    assert document.region_shares is not UNSET
    assert document.regions is not UNSET
    part = part_beyond_rest(document.region_shares)
    names = [quote_text(region_name(region.name, view), view) for region in document.regions]
    order = [place for place in region_order(part) if np.isfinite(part.share[place])]
    query = quoted_token(document.tokens, part.query, view)

    # uniform attention gives 0 to a region of which the query sees nothing
    is_seen = np.asarray(document.region_shares.even) != 0
    unseen = _unseen_sentences(document, [place for place in order if not is_seen[place]], view)
    order = [place for place in order if is_seen[place]]
    if not order:
        return unseen or [
            say(
                view,
                "{query} can see no word: its weights and its weighted sum A·V are 0.",
                query=query,
            )
        ]

    # the first sentence lists the shares, the next ones compare them
    shares = [
        message(
            "{share} is in {region}", share=_percent_or_dash(part.share[place]), region=names[place]
        )
        for place in order[:MOST_REGIONS]
    ]
    template = message("Of what {query} looks at, {shares}.")
    if part.rest:
        template = message(
            "Of the weight of {query} {rest_share} rests on {rest}; of the other weight {shares}."
        )
    # values that the first template, which stands where nothing rests, has no place for
    places_of_rest = {
        "rest_share": percent(part.rest or 0.0, 1),
        "rest": rest_names(document.tokens),
    }
    answer_sentences = [say(view, template, query=query, shares=listing(shares), **places_of_rest)]
    answer_sentences += unseen
    answer_sentences += _ratio_sentences(document, part, order, view)
    return [*answer_sentences, not_learned_note(document.model, view)]


def _unseen_sentences(document: WithRegions, places: Sequence[int], view: View) -> list[str]:
    """A sentence that a query sees nothing of the regions at these places; empty where none of
    these regions has a name.
    """
    assert document.region_shares is not UNSET
    assert document.regions is not UNSET
    names = [document.regions[place].name for place in places]
    quoted = [quote_text(name, view) for name in names if name != REST]
    if not quoted:
        return []
    query = quoted_token(document.tokens, document.region_shares.query, view)
    regions = listing(quoted[:MOST_REGIONS])
    return [say(view, "{query} sees nothing of {regions}.", query=query, regions=regions)]


def _ratio_sentences(
    document: WithRegions, part: RegionPart, order: Sequence[int], view: View
) -> Iterator[str]:
    """Yield a sentence on which of the regions get most and least in ratio to even attention; none
    for fewer than two regions.

    part: as `part_beyond_rest` returns it.
    order: the indices of the regions to compare.
    """
    assert document.regions is not UNSET
    ratios = {
        place: float(part.share[place] / part.even[place])
        for place in order
        if part.even[place] > 0 and document.regions[place].name != REST
    }
    if len(ratios) > 1:
        names = [quote_text(region_name(region.name, view), view) for region in document.regions]
        most = max(ratios, key=lambda place: ratios[place])
        least = min(ratios, key=lambda place: ratios[place])
        template = message(
            "Beside even attention {most} gets {most_ratio} times its share, {least} {least_ratio}"
            " times."
        )
        yield say(
            view,
            template,
            most=names[most],
            most_ratio=f"{ratios[most]:.2f}",
            least=names[least],
            least_ratio=f"{ratios[least]:.2f}",
        )


def region_heads_sentences(document: WithRegions, view: View) -> list[str]:
    """Sentences on which head's attention to each region is largest beside uniform attention."""
    if document.region_shares is UNSET or document.regions is UNSET:
        return []
    part = part_beyond_rest(document.region_shares)
    parts: list[str] = []
    for place in region_order(part):
        heads = ranked_heads(part, place)
        if heads and document.regions[place].name != REST and len(parts) < MOST_REGIONS:
            head = heads[0]
            head_phrase = message(
                "{region} in {head} ({share}, {ratio} times)",
                region=quote_text(region_name(document.regions[place].name, view), view),
                head=head_name(head.layer, head.head),
                share=_percent_or_dash(head.share[place]),
                ratio=_times_text(head.share[place], head.even[place]),
            )
            parts.append(head_phrase)
    query = quoted_token(document.tokens, part.query, view)
    if not parts:
        return []
    return [
        say(
            view,
            "Beside even attention, {query} looks most at {parts}.",
            query=query,
            parts=listing(parts),
        )
    ]
