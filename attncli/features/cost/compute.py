"""The document of `attn cost`: pairs, operations and bytes of attention and its relatives, by
formula.

A multiply-add is one multiplication with its addition. q·k and w·v take d_k and d_v of them per
visible pair and head; exponentials, scaling and the projections (the same for all) are left out
of a variant's own count, the projections are told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import (
    ITEM,
    Array,
    Backend,
    choose,
    numpy_backend,
    torch_is_installed,
)
from attncli.arrays.numpy_backend import normal
from attncli.documents.header import model_part, position_name
from attncli.errors import LimitError, UsageError, refused_value
from attncli.features.cost.document import (
    ATTENTION_NAMES,
    CostDocument,
    GrowthRow,
    LayerCost,
    Timing,
    TotalCost,
    Variant,
    VariantName,
)
from attncli.inputs.token import ignore
from attncli.language import listing, message, plural
from attncli.measure.visibility import pairs_of
from attncli.mechanism.attend import Rule, attend, ignore_block, span, stream
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.mask import (
    AllOf,
    Causal,
    Chunk,
    Everywhere,
    Mask,
    Window,
    parse_mask,
    visible,
)
from attncli.mechanism.spec import Attention
from attncli.models.model import Model
from attncli.version import __version__

ENCODER_ONLY = message(
    "this is an encoder-decoder: the layers are those of its encoder, and its decoder is not"
    " counted"
)
BLOCKS = 256
"""How many blocks of rows `reach` looks at from the start, from the end, and in between; it looks at
all blocks where there are at most three times as many.
"""
POINTS = 13
"""Lengths at which the growth is computed."""


class Sizes(Struct, frozen=True):
    """What the costs are computed for.

    n: tokens.
    d_model: width of the token vectors, and of the recurrent network.
    heads, d_k, d_v: of the attention layer; widths of a head's queries and keys, and of its values.
    dtype: the type of the numbers, whose bytes are counted.
    window: keys of a decoder's window, the query's own included.
    chunk, rounds: tokens of a chunk of hash attention, and how often it hashes.
    rows: query rows at a time when streaming.
    masks: more masks to compare.
    """

    n: int
    d_model: int
    heads: int
    d_k: int
    d_v: int
    dtype: str = "float32"
    window: int = 128
    chunk: int = 64
    rounds: int = 1
    rows: int = 128
    masks: tuple[Mask, ...] = ()

    @property
    def buckets(self) -> int:
        """How many hash buckets there are, by Reformer's rule: two for every chunk, the last of
        which may be partly filled.
        """
        return 2 * -(-self.n // self.chunk)


def check_sizes(sizes: Sizes) -> None:
    """Raise UsageError for a size below 1."""
    for name in ("n", "d_model", "heads", "d_k", "d_v", "window", "chunk", "rounds", "rows"):
        if getattr(sizes, name) < 1:
            raise refused_value(name, getattr(sizes, name), "at least 1")


def variant_costs(sizes: Sizes) -> list[Variant]:
    """The cost of one layer with full, causal and windowed attention, under each mask asked for,
    with hashing (LSH), and as a recurrence of the same width.

    Of each: the visible pairs per head; multiply-adds of all heads; bytes of all scores at once,
    and of those of `rows` query rows; sequential steps; and the path, through how many layers (or
    steps) information must go from the first token to the last, as `layers_between_ends` has it.
    """
    n = sizes.n
    item = ITEM[sizes.dtype]
    per_pair = sizes.d_k + sizes.d_v  # multiply-adds of q·k and w·v
    growth_laws = {"full": "n²", "causal": "n²/2", "window": "n·w"}  # any other mask has none
    window = Window(sizes.window - 1, 0)  # keys before the query, and none after it
    masks: list[tuple[VariantName, Mask]] = [
        ("full", Everywhere()),
        ("causal", Causal()),
        ("window", window),
    ]
    masks += [("mask", mask) for mask in sizes.masks]
    rows = []
    for name, mask in masks:
        pairs = pairs_of(mask, n)
        # dense attention computes every score and hides those that are masked; a window keeps its
        # band
        scores = n * n
        if name == "window":
            scores = n * min(sizes.window, n)
        block_rows = min(sizes.rows, n)
        block_keys = reach(mask, n, sizes.rows)  # the most that any block of rows looks at
        rows.append(
            Variant(
                name=name,
                spec=mask.spec(),
                pairs=pairs,
                multiply_adds=sizes.heads * pairs * per_pair,
                score_bytes=sizes.heads * item * scores,
                streamed_bytes=sizes.heads * item * block_rows * block_keys,
                steps=1,
                path=layers_between_ends(mask, n),
                grows=growth_laws.get(name),
            )
        )
    return [*rows, _hash_variant(sizes), _recurrent_variant(sizes)]


MOST_VISITED = 2**26
"""Pairs that are looked at to find how many layers lie between the first token and the last: more
would take seconds.
"""


def layers_between_ends(mask: Mask, n: int) -> int | None:
    """Through how many layers with this mask information must go until the first of n tokens can
    influence the last: in each layer a token takes up what the tokens that it sees hold.

    None where it never can, where chance decides, and where the way is too long to be found by
    looking at each pair.
    """
    match mask:
        case Everywhere() | Causal():
            return 1
        case Window(left=int(left), right=0):  # a decoder's: back by its length a layer, rounded up
            if n == 1:
                return 1
            return -(-(n - 1) // left) if left else None
        case _:
            return _layers_looked_up(mask, n)


def _layers_looked_up(mask: Mask, n: int) -> int | None:
    """The layers of `layers_between_ends` for any mask, found from the last token backwards: first
    the tokens that it sees, then those that these see; each token's row is looked at once."""
    if mask.depends_on == "vectors":
        return None
    backend = numpy_backend("float64")
    keys = np.arange(n)[None, :]
    earlier = np.zeros(n, bool)
    frontier = np.array([n - 1])  # those that the last layer has added
    looked_at = 0
    layers = 0
    while len(frontier):
        layers += 1
        sources = np.zeros(n, bool)  # the tokens that the frontier sees
        # rows in blocks, so that no array of them is n × n
        for start in range(0, len(frontier), BLOCKS):
            rows = frontier[start : start + BLOCKS]
            looked_at += len(rows) * n
            if looked_at > MOST_VISITED:
                return None
            visibility = backend.numpy(visible(mask, rows[:, None], keys, keys=n, backend=backend))
            # any head and any of these rows may hand it on; where all are alike, the mask gives one
            sources |= visibility.reshape(-1, visibility.shape[-1]).any(axis=0)
        if sources[0]:
            return layers
        frontier = np.flatnonzero(sources & ~earlier)
        earlier |= sources
    return None


def reach(mask: Mask, n: int, rows: int) -> int:
    """The most keys that any block of `rows` query rows has to look at; of very many blocks, the
    first, the last and some between stand for all, so that millions of tokens take no time."""
    starts: Sequence[int] = range(0, n, rows)  # the first row of each block
    if len(starts) > 3 * BLOCKS:
        step = (len(starts) - 2 * BLOCKS) // BLOCKS
        between = starts[BLOCKS:-BLOCKS:step]
        starts = [*starts[:BLOCKS], *between, *starts[-BLOCKS:]]
    # keys [low, high) outside which no row of the block sees anything
    key_ranges = (span(mask, start, min(start + rows, n) - 1, n) for start in starts)
    return max(high - low for low, high in key_ranges)


def _hash_variant(sizes: Sizes) -> Variant:
    """The cost of hash attention (LSH) as Reformer does it: tokens are hashed and sorted, and each
    chunk of them sees itself and the chunk before."""
    n = sizes.n
    item = ITEM[sizes.dtype]
    keys_per_query = min(2 * sizes.chunk, n)  # its own chunk and the one before
    pairs = n * keys_per_query * sizes.rounds
    # a direction and its opposite are two buckets: half as many products as buckets
    hashing = n * sizes.d_k * (sizes.buckets // 2) * sizes.rounds
    return Variant(
        name="lsh",
        spec=plural(
            "chunks of {chunk}, {count} round, {buckets} buckets",
            "chunks of {chunk}, {count} rounds, {buckets} buckets",
            count=sizes.rounds,
            chunk=sizes.chunk,
            buckets=sizes.buckets,
        ),
        pairs=pairs,
        multiply_adds=sizes.heads * (pairs * (sizes.d_k + sizes.d_v) + hashing),
        score_bytes=sizes.heads * item * pairs,
        streamed_bytes=sizes.heads * item * min(sizes.rows, n) * keys_per_query,
        steps=1,
        path=None,  # two tokens meet in a layer where their hashes happen to agree
        grows="n·c + n²/c",  # the pairs, and each token's products with n/c directions
    )


def _recurrent_variant(sizes: Sizes) -> Variant:
    """The cost of a recurrent network of the same width, h = tanh(W·x + U·h): two products of a
    matrix and a vector per token, one token after the other. It has no scores: the bytes are those
    of all its states, and of one state.
    """
    return Variant(
        name="rnn",
        spec=f"width {sizes.d_model}",
        pairs=0,
        multiply_adds=2 * sizes.n * sizes.d_model**2,
        score_bytes=ITEM[sizes.dtype] * sizes.n * sizes.d_model,
        streamed_bytes=ITEM[sizes.dtype] * sizes.d_model,
        steps=sizes.n,
        path=sizes.n,
        grows="n·d²",
    )


def lengths(n: int) -> list[int]:
    """`POINTS` lengths around n, each twice the one before; n is among them, those below it are 8
    at least.
    """
    # how many are below n: as often as n can be halved while 4 bits (8 or more) are left of it, yet
    # so that n and four lengths above it always fit
    below = min(max(n.bit_length() - 4, 0), POINTS - 5)
    shorter = [n // 2**halvings for halvings in range(below, 0, -1)]
    n_and_longer = [n * 2**doublings for doublings in range(POINTS - below)]
    return shorter + n_and_longer


def growth(sizes: Sizes) -> list[GrowthRow]:
    """Multiply-adds at several lengths around n, for full, causal, window and hash attention and
    for a recurrent network.
    """
    rows = []
    for n in lengths(sizes.n):
        # without masks of one's own: one from a file has a single length
        variants = variant_costs(replace(sizes, n=n, masks=()))
        counts: dict[str, int] = {variant.name: variant.multiply_adds for variant in variants}
        rows.append(GrowthRow(n=n, multiply_adds=counts))
    return rows


def layer_cost(
    layer: int, spec: Attention, n: int, d_model: int, dtype: str, rows: int
) -> LayerCost:
    """The cost of one attention layer of a model for n tokens; its projections, to queries, keys
    and values and back, are counted apart.

    layer: its number, from 0.
    n: tokens.
    d_model: width of the token vectors.
    dtype: the type of the numbers, such as "float32", whose bytes are counted.
    rows: query rows at a time when streaming.
    """
    pairs = pairs_of(spec.mask, n)
    item = ITEM[dtype]
    # the widths of queries, of keys and values, and of what goes back
    projected_width = (
        spec.heads * spec.head_dim
        + spec.kv_heads * (spec.head_dim + spec.v_dim)
        + spec.heads * spec.v_dim
    )
    return LayerCost(
        layer=layer,
        mask=spec.mask.spec(),
        position=position_name(spec.position),
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        pairs=pairs,
        multiply_adds=spec.heads * pairs * (spec.head_dim + spec.v_dim),
        projections=n * d_model * projected_width,
        score_bytes=spec.heads * n * n * item,
        # rows of a block, times the most keys that any block looks at
        streamed_bytes=spec.heads * min(rows, n) * reach(spec.mask, n, rows) * item,
        cache_bytes=cache_numbers(spec, n) * item,
    )


def cache_numbers(spec: Attention, n: int) -> int:
    """How many numbers of keys and values one layer keeps when n tokens have been generated.

    It keeps those that a later query can still see, such as a window's. With latent attention
    these are the narrow vector (as wide as `keys`) and the rotated part of the key that all heads
    share (as wide as `straight`), from which all heads' keys and values are computed again. A
    layer that reads another layer's keys and values keeps 0.

    Source: DeepSeek-AI, DeepSeek-V2, 2024, 2.1.2.
    """
    if spec.shared is not None:
        return 0
    if spec.latent is not None:
        width = spec.latent.keys + spec.latent.straight
    else:
        width = spec.kv_heads * (spec.head_dim + spec.v_dim)
    return kept_keys(spec.mask, n) * width


def kept_keys(mask: Mask, n: int) -> int:
    """How many of n keys a later query can still see: a window's, a chunk's, or all."""
    match mask:
        case Window(left=int(left), right=0):  # a decoder's; open to the left, `left` is None
            return min(n, left + 1)  # the query's own key, too
        case Chunk(size=size):
            return min(n, size)
        case AllOf(parts=parts):
            # a key must be visible under every part, so the narrowest part decides
            return min(kept_keys(part, n) for part in parts)
        case _:  # every other mask may show any key to a later query
            return n


def model_cost(model: Model, n: int, rows: int) -> tuple[list[LayerCost], TotalCost]:
    """The cost of every layer of a model that attends, for n tokens, and their total: sums of
    operations and caches, but the largest layer's scores, since these are held one layer at a time.

    rows: query rows at a time when streaming.
    """
    # `instead` names what a layer without attention does
    layers = [
        layer_cost(number, block.attention, n, model.spec.d_model, model.backend.dtype, rows)
        for number, block in enumerate(model.spec.blocks)
        if not block.instead
    ]
    total = TotalCost(
        multiply_adds=sum(layer.multiply_adds for layer in layers),
        projections=sum(layer.projections for layer in layers),
        score_bytes=max(layer.score_bytes for layer in layers),
        streamed_bytes=max(layer.streamed_bytes for layer in layers),
        cache_bytes=sum(layer.cache_bytes for layer in layers),
    )
    return layers, total


@checked
def cost(
    n: int,
    *,
    d_model: int | None = None,
    heads: int | None = None,
    window: int = 128,
    chunk: int = 64,
    rounds: int = 1,
    rows: int = 128,
    dtype: str = "float32",
    masks: Sequence[str | Mask] = (),
    model: Model | None = None,
    timed: bool = False,
    note: Callable[[str], None] = ignore,
) -> CostDocument:
    """Pairs, operations and bytes of attention over n tokens, full, causal, in a window and hashed,
    and of a recurrent network, by formula.

    Args:
        n: How many tokens.
        d_model: Width of the token vectors; None for 512, or the model's.
        heads: Number of heads; None for 8, or the model's.
        window: Keys of a decoder's window, the query's own included.
        chunk: Tokens of a chunk of hash attention.
        rounds: Rounds of hashing.
        rows: Query rows at a time when streaming.
        dtype: The type of the numbers.
        masks: Further variants, as `--mask` spells them.
        model: A model whose layers are counted as well, each with its own sizes.
        timed: Whether one layer is also timed on this machine.
        note: Called with a message on what is timed next.

    Returns:
        What `attn cost --json` writes.

    Raises:
        UsageError: For sizes below 1, a width that the heads do not divide, and sizes beside a
            model.
        LimitError: Where dense scores would not fit, if they are to be timed.
    """
    parsed = tuple(parse_mask(item) if isinstance(item, str) else item for item in masks)
    if dtype not in ITEM:
        raise refused_value("dtype", dtype, listing(ITEM))
    if model is None:
        width, head_count, d_k, d_v = _plain_widths(d_model, heads)
    elif d_model is not None or heads is not None:
        raise UsageError(
            "--d-model and --num-heads do not go with --model, which has its own",
            expected="one or the other",
        )
    else:
        # the variants that are compared have the sizes of the model's first layer with attention
        first = model.spec.blocks[model.spec.attending()[0]].attention
        width = model.spec.d_model
        head_count = first.heads
        d_k = first.head_dim
        d_v = first.v_dim
    sizes = Sizes(n, width, head_count, d_k, d_v, dtype, window, chunk, rounds, rows, parsed)
    check_sizes(sizes)
    timings: Sequence[Timing] = ()
    if timed:
        timings = measure(sizes, note=note)
    return _cost_document(sizes, model=model, timings=timings)


def _plain_widths(d_model: int | None, heads: int | None) -> tuple[int, int, int, int]:
    """(d_model, heads, d_k, d_v) without a model, whose heads share d_model evenly; 512 and 8, as in
    the first Transformer, for None. Raises UsageError where they cannot share it."""
    width = 512
    if d_model is not None:
        width = d_model
    count = 8
    if heads is not None:
        count = heads
    if count < 1 or width % count:
        what = message(
            "d_model {width} is not divisible by {count} heads", width=width, count=count
        )
        raise UsageError(what, expected="d_model divisible by the number of heads")
    return width, count, width // count, width // count


def _cost_document(
    sizes: Sizes, *, model: Model | None = None, timings: Sequence[Timing] = ()
) -> CostDocument:
    """The `attn.cost/1` document for sizes that `check_sizes` let pass.

    model: one whose layers are counted as well, None for none.
    timings: times from `measure`.
    """
    layers: list[LayerCost] = []
    total: TotalCost | None = None
    if model is not None:
        layers, total = model_cost(model, sizes.n, sizes.rows)
    # multiply-adds of W_Q and W_K (d_k columns each) and of W_V and W_O (d_v each) in all heads
    projections = sizes.n * sizes.d_model * sizes.heads * (2 * sizes.d_k + 2 * sizes.d_v)
    return CostDocument(
        version=__version__,
        n=sizes.n,
        d_model=sizes.d_model,
        heads=sizes.heads,
        d_k=sizes.d_k,
        d_v=sizes.d_v,
        dtype=sizes.dtype,
        window=sizes.window,
        chunk=sizes.chunk,
        rounds=sizes.rounds,
        block_rows=sizes.rows,
        projections=projections,
        variants=variant_costs(sizes),
        growth=growth(sizes),
        model=None if model is None else model_part(model),
        layers=layers,
        total=total,
        measured=list(timings),
        warnings=[ENCODER_ONLY] if model is not None and model.spec.decoder is not None else [],
    )


# What attention and its relatives take on this machine, measured: `attn cost --time`.

MOST_BYTES = 4 * 2**30
"""Dense scores with their copies may take this much."""
COPIES = 4
"""Arrays [head, query, key] that dense attention holds at once: scores, weights and their copies."""
ENOUGH = 0.4
"""Seconds after which a run is not repeated again, so that all variants take a few seconds."""
REPEATS = 7
"""How often a run is timed at most."""


def measure(sizes: Sizes, *, seed: int = 0, note: Callable[[str], None] = ignore) -> list[Timing]:
    """Median times of one layer's attention on seeded q, k, v, with NumPy and, where it is
    installed, torch: dense, by row blocks, causal, in a window, a recurrent network, torch's fused.

    Each time has its ratio to the dense run of the same backend, and the same ratio of
    multiply-adds; each is run once before it is timed. Raises LimitError where the dense scores
    would not fit.

    seed: of q, k and v.
    note: called with a message on what is timed next.
    """
    least_bytes = COPIES * sizes.heads * sizes.n**2 * ITEM[sizes.dtype]
    if least_bytes > MOST_BYTES:
        raise LimitError(
            "dense attention over {n} tokens and {heads} heads takes about {least_bytes:.1f} GiB",
            expected="at most {most_bytes:.0f} GiB to measure",
            hint="a smaller -n or fewer --num-heads",
            n=sizes.n,
            heads=sizes.heads,
            least_bytes=least_bytes / 2**30,
            most_bytes=MOST_BYTES / 2**30,
        )
    work: dict[str, int] = {variant.name: variant.multiply_adds for variant in variant_costs(sizes)}
    # the streamed and the fused run compute what the dense one computes
    work_ratios = {"full": 1.0, "streamed": 1.0, "fused": 1.0} | {
        name: work[name] / work["full"] for name in ("causal", "window", "rnn")
    }
    timings = []
    backend_names = []
    if sizes.dtype not in ("bfloat16", "float16"):
        # NumPy has no bfloat16, and computes with float16 slowly
        backend_names.append("numpy")
    if torch_is_installed():
        backend_names.append("torch")
    for name in backend_names:
        backend = choose(name, device=None, dtype=sizes.dtype)
        dense = 0.0  # seconds
        for what, run_variant in _timed_variants(backend, sizes, seed):
            spoken = ATTENTION_NAMES.get(what, what)
            note(message("timing {what} on {backend} …", what=spoken, backend=name))
            durations = _durations(run_variant)
            seconds = median(durations)
            repeats = len(durations)
            if what == "full":  # which comes first
                dense = seconds
            ratio = seconds / dense
            computed = work_ratios[what]  # by multiply-adds
            timings.append(
                Timing(
                    name=what,
                    backend=name,
                    seconds=seconds,
                    repeats=repeats,
                    ratio=ratio,
                    computed=computed,
                )
            )
    return timings


def _durations(run: Callable[[], object]) -> list[float]:
    """Seconds of each of several runs, after one that is not timed: the first also loads libraries
    and asks for memory."""
    run()
    durations: list[float] = []
    while len(durations) < REPEATS and sum(durations) < ENOUGH:
        start = perf_counter()
        run()
        durations.append(perf_counter() - start)
    return durations


def _timed_variants(
    backend: Backend, sizes: Sizes, seed: int
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each variant that is timed as (its name, such as "full" or "rnn", and a function that
    runs it once on seeded q, k and v).

    seed: of q, k and v.
    """
    # each of q, k, v [head, token, width] from its own stream of seeded numbers
    q, k, v = (
        backend.array(normal(seed, f"cost\0{name}", (sizes.heads, sizes.n, width)))
        for name, width in (("q", sizes.d_k), ("k", sizes.d_k), ("v", sizes.d_v))
    )

    def rule(mask: Mask) -> Rule:
        """An attention's rule under this mask: scores scaled by 1/√d_k."""
        return Rule(scale=sizes.d_k**-0.5, mask=mask)

    def stream_mask(mask: Mask) -> Callable[[], object]:
        """A function that attends under this mask by blocks of query rows."""
        return partial(
            stream, backend, q, k, v, rule(mask), rows=sizes.rows, keep=(), on_block=ignore_block
        )

    # first: the others are compared with it. It keeps its weights, as dense attention does
    yield "full", lambda: attend(backend, q, k, v, rule(Everywhere()), keep=("weights",))
    yield "streamed", stream_mask(Everywhere())
    yield "causal", stream_mask(Causal())
    yield "window", stream_mask(Window(sizes.window - 1, 0))
    yield "rnn", _recurrent_network(backend, sizes, seed)
    if backend.name == "torch":
        from attncli.arrays.torch_backend import fused_attention

        yield "fused", lambda: fused_attention(q, k, v, scale=sizes.d_k**-0.5)


def _recurrent_network(backend: Backend, sizes: Sizes, seed: int) -> Callable[[], Array]:
    """A function that runs h = tanh(W·x + U·h) over seeded tokens, one after the other, and returns
    the last h.

    seed: of the weights and the tokens.
    """
    width = sizes.d_model
    x = backend.array(normal(seed, "cost\0x", (sizes.n, width)))
    # entries of variance 1 / width keep the sums, and so the states, of the same size
    w, u = (
        backend.array(normal(seed, f"cost\0{name}", (width, width)) * np.float32(width**-0.5))
        for name in "wu"
    )

    def run_steps() -> Array:
        """Run the network over all tokens, and return the last state, [1, width]."""
        inputs = backend.matmul(x, w)
        state = backend.array(np.zeros((1, width), np.float32))
        for step in range(sizes.n):
            state = backend.tanh(inputs[step : step + 1] + backend.matmul(state, u))
        return state

    return run_steps
