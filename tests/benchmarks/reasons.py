"""Counts what `attn why` says of strong links drawn at random: how often it names a part above all,
and what share of what speaks for the link that part has; how often it says that the reason is
spread.

python tests/benchmarks/reasons.py MODEL [LINKS] [SEED]

A link is strong from 0.3 on, beside its neighbours and the first token, where heads rest. A part is
named from a half of what speaks for the link on its side.
"""

from __future__ import annotations

import sys

import numpy as np

import attncli
from attncli.features.why.document import HALF, support
from attncli.measure.rest import rest_keys

TEXTS = (
    "The animal didn't cross the street because it was too tired",
    "When Mary and John went to the store, John gave a drink to Mary",
    "The key that opens this door is the one with the round head",
    "Our teacher said that the students who finished early were allowed to leave the room",
    "The dog that bit the postman belongs to the woman next door",
)
STRONG = 0.3


def main(name: str, count: int = 112, seed: int = 0) -> None:
    """Draw links, ask why of each, and print the counts."""
    model = attncli.load(name)
    links = []
    for text in TEXTS:
        tokens = model.encode(text)
        rest = rest_keys(tokens)
        for trace in model.trace(tokens, keep=("weights",)):
            weights = np.asarray(model.backend.numpy(trace.stages["weights"]))
            for head, query, key in np.argwhere(weights >= STRONG).tolist():
                if not rest[key] and not rest[query] and query - key > 1:
                    links.append((text, trace.layer, head, query, key))
    drawn = np.random.default_rng(seed).permutation(len(links))[:count]
    shares: list[float] = []
    spread = 0
    for place in drawn.tolist():
        text, layer, head, query, key = links[place]
        document = attncli.why(model, text, f"#{query}", f"#{key}", layers=[layer], heads=[head])
        for side in ("query_side", "key_side"):
            values = [getattr(part, side) for part in document.parts]
            backing = support(values)
            if backing.share >= HALF:
                shares.append(backing.share)
            else:
                spread += 1
    print(f"{len(drawn)} of {len(links)} links with {STRONG} or more, {2 * len(drawn)} sides")
    print(
        f"a part named: {len(shares)}, with {min(shares, default=0):.0%} at least and "
        f"{np.median(shares) if shares else 0:.0%} in the median of what speaks for the link"
    )
    print(f"the reason is spread: {spread}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
