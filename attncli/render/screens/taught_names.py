"""The names that the texts on attention have for what screens show: `--show` takes these too."""

TAUGHT = {
    "E": ("embedding",),
    "P": ("positions",),
    "X": ("input", "matrices"),
    "Q": ("q", "projections"),
    "K": ("k", "projections"),
    "V": ("v", "projections"),
    "S": ("raw", "similarity"),
    "A": ("weights", "softmax"),
    "O": ("output",),
    "X+O": ("sum", "residual"),
    "concat": ("concat", "residual"),
}
"""By each name, the parts that it means, of which a screen has one."""


def part_of_name(name: str, parts: tuple[str, ...]) -> str:
    """The part of a screen that a name means; the name itself where it means none of them."""
    if name in parts:
        return name
    return next((part for part in TAUGHT.get(name, ()) if part in parts), name)
