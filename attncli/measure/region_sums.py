"""What of the weights goes from region to region: sums over blocks of query rows, so that nothing
is n × n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.inputs.regions import Region
from attncli.measure.row_facts import Bools, WeightRows

Floats = np.ndarray[Any, np.dtype[np.float64]]


class RegionShares(Struct, frozen=True, eq=False):
    """How the weights of one layer's heads are shared out between regions (named sets of tokens).

    between: [head, region, region], of what the queries of a region look at, the mean part in a
        region.
    between_even: the same with even attention to all that a query sees.
    query, query_even: [head, region], of one query alone. A query that sees nothing counts in no
        mean; NaN where none is left. The members that end in _beyond are the same over those keys
        of a region where heads do not rest.
    query_rest, query_rest_even: [head, 1], of the others.
    """

    between: Floats
    between_even: Floats
    query: Floats
    query_even: Floats
    between_beyond: Floats
    between_even_beyond: Floats
    between_rest: Floats
    query_beyond: Floats
    query_even_beyond: Floats
    query_rest: Floats
    query_rest_even: Floats


class RegionSums:
    """Sums the weights of one layer's heads by region (named sets of tokens); a consumer of
    `RowFeeder`.

    regions: of the text; they may overlap.
    count: tokens.
    query: the position of the query whose row is kept by itself.
    rest: the keys on which heads put weight whatever the text says (the first, special ones,
        separators), booleans [key].
    """

    def __init__(
        self, heads: int, regions: Sequence[Region], count: int, query: int, rest: Bools
    ) -> None:
        """Make the sums, for so many heads and a text of `count` tokens.

        query: the position of the query whose row is kept by itself.
        rest: the keys on which heads put weight whatever the text says, such as the first token,
            booleans [key].
        """
        # [token, region]: 1 where the token belongs to the region
        self._members = np.zeros((count, len(regions)))
        for place, region in enumerate(regions):
            self._members[list(region.tokens), place] = 1
        # [key, column]: each region, then each without the keys of `rest`, then these keys
        self._keys = np.concatenate(
            [self._members, self._members * ~rest[:, None], rest[:, None]], axis=1
        )
        self._query = query

        # [head, column, region of the query] sums of weight, of the heads and of even attention,
        # the rows that they are taken over, and the same for the one query
        shape = (heads, self._keys.shape[1], len(regions))
        self._sums = np.zeros(shape)
        self._even = np.zeros(shape)
        self._rows = np.zeros((heads, len(regions), 1))
        self._single = np.full(shape[:2], np.nan)
        self._single_even = np.full(shape[:2], np.nan)

    def add(self, rows: WeightRows, *, first_head: int = 0) -> None:
        """Add a block of rows of heads first_head, first_head + 1, … to the sums.

        A column stands for a set of keys: each region, then each region without the keys on which
        heads put weight whatever the text says, then these keys.
        """
        weights = rows.numpy(rows.weights)  # [head, row, key], of the keys low..high-1
        heads = slice(first_head, first_head + weights.shape[0])
        high = rows.low + weights.shape[-1]
        keys = self._keys[rows.low : high]  # [key, column], 1 for the keys of a column
        queries = self._members[rows.i]  # [row, region], 1 for the queries of a region
        shares = weights @ keys  # [head, row, column]

        # the same of even attention over the keys that a row sees; the visibility may begin at an
        # earlier key than the block's weights
        visibility = rows.sight.visibility_matrix(high)[..., rows.low - rows.sight.low :]
        sees = ~rows.sight.empty  # [head or 1, row]
        # [head or 1, row, column]
        even = (visibility @ keys) / np.maximum(rows.sight.count, 1)[..., None]

        # add up the rows of each region's tokens, [head, column, region], and keep the row of the
        # one query, [head, column]
        self._sums[heads] += np.swapaxes(shares, -1, -2) @ queries
        self._even[heads] += np.swapaxes(even, -1, -2) @ queries
        self._rows[heads, :, 0] += sees @ queries
        for row in np.flatnonzero(rows.i == self._query):  # one row, or none of this block
            self._single[heads] = np.where(sees[:, row, None], shares[:, row], np.nan)
            self._single_even[heads] = np.where(sees[:, row, None], even[:, row], np.nan)

    def shares(self) -> RegionShares:
        """The shares of weight between regions over all rows added so far."""
        # how many rows each sum is taken over, [head, region, 1]; over none, a mean is NaN
        rows = np.where(self._rows > 0, self._rows, np.nan)
        # the columns: regions, regions without the keys of `rest`, and these
        count = self._members.shape[1]
        whole = slice(count)
        beyond = slice(count, 2 * count)
        rest = slice(2 * count, None)
        between = np.swapaxes(self._sums, -1, -2) / rows
        even = np.swapaxes(self._even, -1, -2) / rows
        return RegionShares(
            between=between[..., whole],
            between_even=even[..., whole],
            query=self._single[:, whole],
            query_even=self._single_even[:, whole],
            between_beyond=between[..., beyond],
            between_even_beyond=even[..., beyond],
            between_rest=between[..., rest],
            query_beyond=self._single[:, beyond],
            query_even_beyond=self._single_even[:, beyond],
            query_rest=self._single[:, rest],
            query_rest_even=self._single_even[:, rest],
        )
