"""What a text will take on a model: bytes to read, multiply-adds, memory, a rough time; and what
the machine has.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, ITEM, SCORE_ITEM, Selection, numbers_of
from attncli.inputs.files import is_folder, system_text
from attncli.language import Message, message
from attncli.mechanism.spec import Block, Experts, Head, Mlp, SelectiveScan, Spec, state_size
from attncli.models.family import Binding, TensorBinding, layer_roles

if TYPE_CHECKING:
    from attncli.inputs.checkpoint import TensorInfo


BYTES_READ_A_SECOND = 1.0e9
"""Bytes a second that are read from a disk: a plain solid-state disk, cold."""
PRODUCTS_A_SECOND = 5.0e10
"""Multiply-adds a second: two processor cores in float32, with a third to spare."""
WEIGHT_BYTES_A_SECOND = 1.0e10
"""Bytes of weights a second that two cores multiply with when the tokens are few."""
SCORES_A_SECOND = 2.0e8
"""Scores a second that are scaled, masked and turned into weights."""
DECODED_A_SECOND = 9.0e8
"""Quantised weights a second that are decoded, on two cores. Measured on Gemma's Q4_K and Q6_K."""
WIDENED_A_SECOND = 8.0e8
"""Weights a second that become float64 and are multiplied with in place of float32."""
FLOAT64_PRODUCTS_A_SECOND = 2.0e10
"""Multiply-adds a second that float64 takes more, on a slow processor."""
WIDE_UP_TO = 0.1
"""Seconds more up to which a float32 run is worth computing in float64."""
START_SECONDS = 0.3
"""Seconds until a process has started and read the headers."""
SCORE_ARRAYS_AT_ONCE = 8
"""Arrays of the size of a block of scores that are alive at once when attention runs by blocks of
query rows, of which two threads have two or three."""
TILED_FROM = 64 << 20
"""Bytes of a table, in the type that is computed in, from which on it is read some rows at a time
where it is needed once. Gemma's, 262,144 × 640, takes 1.34 GB in float64."""
TILE = 16 << 20
"""Bytes of the rows that are read at a time."""
LOGIT_BYTES = 4 + 8 + 8
"""Bytes of a logit: itself, in float64, and as a probability."""
MATRICES = frozenset(
    (
        *(
            "q",
            "k",
            "v",
            "q_down",
            "kv_down",
            "kv",
            "o",
            "up",
            "gate",
            "down",
            "router",
            "global_k",
            "global_v",
        ),
        *("input", "select", "time", "strength", "output", "time_down", "gate_down", "into", "out"),
    )
)
"""The roles that every token is multiplied with."""
NUMBER_PRODUCTS, FADING_PRODUCTS, STEP_PRODUCTS = 40, 150, 500_000
"""What a mixer's state takes for each token, in multiply-adds: for each of its numbers, some passes
over memory; for each that fades by an exponential of its own; and for the step from token to token
itself, whatever the state's size. Measured as 0.7 ns, 3 ns and 8 µs in float32."""
RULE = message(
    "reading at 1 GB/s or computing at 5e10 multiply-adds and 2e8 scores (in float64 half as many) "
    "and 10 GB of weights a second, whichever is slower, and 0.3 s to start"
)


class CostEstimate(Struct, frozen=True):
    """What running a text takes.

    tokens: length of the text.
    layers: how many are computed.
    bytes_read: of weights, a token that comes again counted again though its vector is read once.
    multiply_adds: of matrix products.
    memory: bytes at the peak besides the program itself, by what they are for.
    seconds: rough, by `RULE`.
    numbers: in the document that comes of it.
    branches: runs from some layer on, where effects are measured.
    resident: bytes of the peak that are there as soon as the model is loaded.
    """

    tokens: int
    layers: int
    bytes_read: int
    multiply_adds: int
    memory: Mapping[str, int]
    seconds: float
    numbers: int = 0
    branches: int = 0
    resident: int = 0

    @property
    def peak(self) -> int:
        """The most bytes of memory that a run takes, without the program and its libraries."""
        return sum(self.memory.values())


def with_runs(cost: CostEstimate, runs: float) -> CostEstimate:
    """The cost of `runs` runs one after the other, from the cost of one; the process starts only
    once."""
    return replace(cost, seconds=START_SECONDS + runs * (cost.seconds - START_SECONDS))


def with_held_weights(cost: CostEstimate, resident: int) -> CostEstimate:
    """The estimate for a model that keeps all its weights in memory, `resident` bytes; unchanged
    for 0.
    """
    if not resident:
        return cost
    memory = {message("all weights at once"): resident, **cost.memory}
    memory.pop(message("weights at a time"), None)  # they are among those that are there
    return replace(cost, memory=memory, resident=resident)


class StoredSizes(Struct, frozen=True):
    """Bytes of a checkpoint's tensors.

    layers: of each layer.
    feed_forward: of each layer's feed-forward part.
    row: of one token's embedding.
    head: of the matrix that predicts, 0 where the file has none.
    """

    layers: Sequence[int]
    feed_forward: Sequence[int]
    row: int
    head: int = 0


def stored_sizes(
    tensors: Mapping[str, TensorInfo], binding: Binding, head: Head | None = None
) -> StoredSizes:
    """The bytes that the tensors of a model, encoder or decoder take in the files, from the headers
    alone: each layer, its feed-forward part, a token's embedding and the output head.

    tensors: by name. binding: which of them plays which role. head: the model's output head; None
        for none.
    """

    def bytes_of(bindings: Iterable[TensorBinding]) -> int:
        """How many bytes of the file these bindings' tensors take."""
        return sum(tensors[name].bytes for bound in bindings for name in bound.tensors)

    layers = [bytes_of(layer) for layer in binding.layers]
    feed_forward = [bytes_of(bound for bound in layer if bound.feeds) for layer in binding.layers]
    roles = ("tokens.weight", "positions.weight", "types.weight")
    # a table, [entry, width], is one tensor; a token takes one row of each
    tables = [tensors[binding.outer[role].tensors[0]] for role in roles if role in binding.outer]
    # (a damaged file's table may have 0 entries)
    row = sum(table.bytes // max(table.shape[0], 1) for table in tables)
    predicting = binding.outer.get("head.weight")
    if predicting is None and head is not None and head.tied:
        predicting = binding.outer.get("tokens.weight")
    return StoredSizes(
        layers, feed_forward, row, 0 if predicting is None else bytes_of([predicting])
    )


def compute_dtype(spec: Spec, tokens: int, dtype: str) -> str:
    """The data type in which a text of `tokens` tokens is computed, perhaps wider than `dtype`, the
    type of the results.

    Sums of hundreds of float32 products, layer after layer, are off by several times what rounding
    the result costs. Where there is little to compute, float64 does it, and what remains is that
    one rounding. The whole model decides, not the layers asked for: a layer's numbers do not depend
    on what else is shown.
    """
    if dtype != "float32":
        return dtype
    work = work_of(spec, spec.blocks, tokens)
    extra_seconds = work.weights / WIDENED_A_SECOND + work.products / FLOAT64_PRODUCTS_A_SECOND
    if extra_seconds <= WIDE_UP_TO:
        return "float64"
    return dtype


def estimate(
    spec: Spec,
    tokens: int,
    *,
    sizes: StoredSizes | None = None,
    layers: Selection = EVERY,
    kept_stages: int = 2,
    rows: int | None = None,
    dtype: str = "float32",
    last_rows: int | None = None,
) -> CostEstimate:
    """Estimate the bytes read, the time and the memory of a run on one text of `tokens` tokens.

    sizes: the checkpoint's sizes, None for weights already in memory.
    layers: those asked for; what follows the attention of the last is not read.
    kept_stages: n × n stages kept of each layer asked for.
    rows: query rows at a time, None for all.
    dtype: what it is computed in.
    last_rows: how many query rows of the last layer are computed, None for all.
    """
    layer_numbers = set(numbers_of(layers, len(spec.blocks)))
    last = max(layer_numbers, default=-1)  # −1: none is asked for, so that none is read
    blocks: tuple[Block, ...] = ()
    if layer_numbers:  # the last layer asked for runs without its feed-forward part
        blocks = (*spec.blocks[:last], replace(spec.blocks[last], mlp=None))
    bytes_read = 0
    if sizes is not None:
        bytes_read = sum(sizes.layers[: last + 1]) + tokens * sizes.row
        if layer_numbers:
            bytes_read -= sizes.feed_forward[last]

    work = work_of(spec, blocks, tokens)
    if last_rows is not None and blocks and last_rows < tokens:
        work = _without_rows(work, blocks[-1], tokens, tokens - last_rows)

    # bytes of scores for each head and key: all rows at once take one array, and 1 byte a pair for
    # the mask; blocks of rows take several arrays, of which nothing is kept
    item = SCORE_ITEM[dtype]
    if rows is None:
        key_bytes = tokens * (item + 1)
        kept_heads = sum(spec.blocks[index].attention.heads for index in layer_numbers)
    else:
        key_bytes = SCORE_ARRAYS_AT_ONCE * min(rows, tokens) * item
        kept_heads = 0
    heads = max((block.attention.heads for block in blocks), default=0)
    weights = max((_weights_at_once(spec, block) for block in blocks), default=0)
    token_numbers = max((_numbers_per_token(spec, block) for block in blocks), default=0)
    memory = {
        message("weights at a time"): weights * item,
        message("reading ahead"): _reading_ahead(bytes_read),
        "vectors": tokens * token_numbers * item,
        message("scores of one layer"): heads * tokens * key_bytes,
        message("scores that are kept"): kept_stages * kept_heads * tokens * tokens * item,
    }
    seconds = START_SECONDS + max(bytes_read / BYTES_READ_A_SECOND, seconds_of(work, dtype))
    return CostEstimate(tokens, len(blocks), bytes_read, work.products, memory, seconds)


def _reading_ahead(size: int) -> int:
    """Bytes of memory that reading ahead takes for files of `size` bytes: two pieces of a file, one
    being read while the other is used; 0 for files too small for it."""
    if not size:
        return 0
    from attncli.inputs.read_ahead import PIECE, WORTH_A_PLAN

    if size < WORTH_A_PLAN:
        return 0
    return 2 * PIECE


def with_predictions(
    cost: CostEstimate,
    spec: Spec,
    rows: int,
    dtype: str,
    sizes: StoredSizes | None = None,
    *,
    rows_at_once: int | None = None,
) -> CostEstimate:
    """The estimate of a run that also predicts the next token after each of `rows` tokens: with the
    feed-forward part of the last layer, and the product with the output head's matrix, which is read
    in pieces if it is large.

    cost: the estimate of the run alone.
    sizes: the checkpoint's sizes, None for weights already in memory.
    dtype: of the logits.
    rows_at_once: how many tokens' logits are in memory together, None for all.
    """
    # `cost` leaves out the last layer's feed-forward part: its work is the difference of the two
    last = spec.blocks[-1]
    before = work_of(spec, [replace(last, mlp=None)], cost.tokens)
    after = work_of(spec, [last], cost.tokens)
    table = spec.vocabulary * spec.d_model
    work = ComputeWork(
        weights=after.weights - before.weights + table,
        products=after.products - before.products + rows * table,
        scores=0,
    )

    # bytes that are read for it, and that its table and logits take in memory
    further_bytes = 0
    if sizes is not None:
        further_bytes = sizes.head + sizes.feed_forward[-1]
    logit_rows = rows if rows_at_once is None else min(rows, rows_at_once)
    head_bytes = table_bytes_at_once(table, dtype) + LOGIT_BYTES * logit_rows * spec.vocabulary

    # logits become probabilities as fast as scores become weights; reading goes on meanwhile
    softmax_seconds = rows * spec.vocabulary / SCORES_A_SECOND
    read_seconds = further_bytes / BYTES_READ_A_SECOND
    further_seconds = max(read_seconds, seconds_of(work, dtype) + softmax_seconds)
    return replace(
        cost,
        bytes_read=cost.bytes_read + further_bytes,
        multiply_adds=cost.multiply_adds + work.products,
        memory={**cost.memory, message("output head"): head_bytes},
        seconds=cost.seconds + further_seconds,
    )


def table_bytes_at_once(numbers: int, dtype: str) -> int:
    """Bytes of memory that a product with a table takes: those of the table, or of a tile where it
    is large and read in tiles.
    """
    size = numbers * ITEM[dtype]
    if size < TILED_FROM:
        return size
    return TILE


class ComputeWork(Struct, frozen=True):
    """What there is to compute.

    weights: numbers in the matrices that are read.
    products: multiply-adds of matrix products.
    scores: pairs of query and key, of all heads.
    """

    weights: int
    products: int
    scores: int


def work_of(spec: Spec, blocks: Sequence[Block], tokens: int) -> ComputeWork:
    """How many weights, multiply-adds and scores there are in these layers for a text of `tokens`
    tokens."""
    # (all weights, those that take part for one token) of each layer; most layers are equal, and
    # counting equal ones once saves 15 ms for thirty layers
    counts: list[tuple[int, int]] = []
    for number, block in enumerate(blocks):
        if number and block == blocks[number - 1]:
            counts.append(counts[-1])
        else:
            counts.append(_weight_counts(spec, block))
    products = sum(
        tokens * active + _attention_products(block, tokens)
        for block, (_, active) in zip(blocks, counts, strict=True)
    )
    heads = sum(
        block.attention.heads + (block.cross.heads if block.cross is not None else 0)
        for block in blocks
    )
    return ComputeWork(sum(total for total, _ in counts), products, heads * tokens * tokens)


def _without_rows(work: ComputeWork, block: Block, tokens: int, rows: int) -> ComputeWork:
    """The work less that of `rows` query rows in a layer's attention, for a text of `tokens`
    tokens."""
    pair_products = _attention_products(block, tokens) * rows // tokens
    return ComputeWork(
        work.weights,
        work.products - pair_products,
        work.scores - block.attention.heads * tokens * rows,
    )


def seconds_of(work: ComputeWork, dtype: str) -> float:
    """Rough seconds of computing: products and scores, twice as long in float64 as in float32, and
    the passing of all weights through the processor, the faster the fewer bytes they have.
    """
    float32_seconds = work.products / PRODUCTS_A_SECOND + work.scores / SCORES_A_SECOND
    slowdown = max(1.0, ITEM[dtype] / ITEM["float32"])  # types of 16 bits compute no faster
    weight_seconds = work.weights * ITEM[dtype] / WEIGHT_BYTES_A_SECOND
    return float32_seconds * slowdown + weight_seconds


def _weight_counts(spec: Spec, block: Block) -> tuple[int, int]:
    """How many weights a layer has, and how many of them take part for one token (of experts, the
    chosen ones).
    """
    total = active = 0
    for role in layer_roles(spec, block):
        count = prod(role.shape)
        total += count
        # only global tokens use these weights, and () says that this text has none
        if block.attention.own_global == () and role.module.startswith("attn.global_"):
            continue
        # matrices that every token is multiplied with: no norms, biases and tables
        if role.suffix == ".weight" and role.module.rpartition(".")[2] in MATRICES:
            if isinstance(block.mlp, Experts) and len(role.shape) == 3:
                count = count * block.mlp.chosen // block.mlp.count
            active += count
    return total, active


def _weights_at_once(spec: Spec, block: Block) -> int:
    """The most weights that are in memory at once: of the layer's largest group of matrices that
    one tensor may hold together, such as q, k and v, or all experts."""
    together = Counter[str]()
    for role in layer_roles(spec, block):
        part, _, kind = role.module.rpartition(".")
        if len(role.shape) == 3:  # [expert, out, in]
            group = "experts"
        elif kind in ("q", "k", "v"):
            group = f"{part}.qkv"
        elif kind in ("up", "gate"):
            group = f"{part}.in"
        else:
            group = role.module
        together[group] += prod(role.shape)
    return max(together.values(), default=0)


def _attention_products(block: Block, tokens: int) -> int:
    """How many multiply-adds a layer's attentions take (scores and weighted values), and its
    mixer's states.
    """
    products = 0
    if block.mixer is not None and state_size(block.mixer):
        # in multiply-adds: for each token a constant part, and so many for each number of the state
        each_number = NUMBER_PRODUCTS
        if isinstance(block.mixer, SelectiveScan):  # an exponential for each number of its state
            each_number += FADING_PRODUCTS
        products = tokens * (STEP_PRODUCTS + state_size(block.mixer) * each_number)
    for attention in (block.attention, block.cross):
        if attention is not None:
            products += attention.heads * tokens * tokens * (attention.head_dim + attention.v_dim)
    return products


def _numbers_per_token(spec: Spec, block: Block) -> int:
    """Numbers per token that are in memory at once while a layer runs: the vectors in and out, the
    attention's result, the feed-forward part."""
    attention = block.attention
    # queries twice (side by side and by head), keys and values, counted as wide as keys, and what
    # the heads mix
    projection_width = 2 * (attention.heads + attention.kv_heads) * attention.head_dim
    projection_width += attention.heads * attention.v_dim
    match block.mlp:
        case Mlp(width, _, gated):
            # what "up" and, if gated, "gate" put out; activations work in two arrays of their own
            inner = width * (4 if gated else 3)
        case Experts(_, per_token, width):  # each expert of a token as a gated part
            inner = per_token * width * 4
        case None:
            inner = 0
        case _:
            assert_never(block.mlp)
    mixing = 0
    if block.mixer is not None:  # what its matrices put out, once more after each step
        roles = [
            role
            for role in layer_roles(spec, block)
            if role.name.startswith("mixer.") and len(role.shape) > 1
        ]
        mixing = 2 * sum(role.shape[0] for role in roles)
    # vectors of d_model numbers: what enters, the same normed, what comes out, and the sum
    return 4 * spec.d_model + projection_width + inner + mixing


YEAR = 365 * 86400
"""Seconds of a year."""


def duration_words(seconds: float) -> Message:
    """How long something takes in words, such as `45 s`, `3 min 20 s`, `5 h 10 min` or `12 days`."""
    # compared once rounded: 59.7 s are written as a minute, not as 60 s
    whole_seconds = round(seconds)
    if whole_seconds < 60:
        return message("{seconds:.0f} s", seconds=seconds)
    if whole_seconds < 3600:
        minutes, rest = divmod(whole_seconds, 60)
        return message("{minutes} min {seconds} s", minutes=minutes, seconds=rest)
    whole_minutes = round(seconds / 60)
    if whole_minutes < 2 * 24 * 60:
        hours, rest = divmod(whole_minutes, 60)
        return message("{hours} h {minutes} min", hours=hours, minutes=rest)
    if seconds < 2 * YEAR:
        return message("{days:,} days", days=round(seconds / 86400))
    return message("{years:,} years", years=round(seconds / YEAR))


# What this machine and its limits allow a process: memory that is free, memory that was used.

UNKNOWN = 4 * 2**30
"""What is assumed to be free where the system does not say: 4 GiB."""
UNLIMITED = 2**60
"""Control groups without a limit say "max" or a number near 2**63; nothing real is above this."""


class MemoryBudget(Struct, frozen=True):
    """Memory that may still be used.

    bytes: how much.
    source: what sets the limit, in words.
    """

    bytes: int
    source: str


def free_memory(root: Path = Path("/")) -> MemoryBudget:
    """The memory that this process may still use: the least of what the system has available
    without swapping, what the control group allows, RLIMIT_AS and RLIMIT_DATA.

    root: where /proc and /sys are, for tests.
    """
    assumption = MemoryBudget(UNKNOWN, message("an assumption: this system does not say"))
    budgets = (*_system_memory(root), *_control_groups(root), *_process_limits(root))
    # below 0 where a limit was lowered under what is in use already
    free = min(budgets, key=lambda budget: max(budget.bytes, 0), default=assumption)
    return replace(free, bytes=max(free.bytes, 0))


def peak_memory(root: Path = Path("/")) -> int | None:
    """The most memory that this process has had resident, in bytes, libraries included; None where
    the system does not say.

    root: where /proc is, for tests.
    """
    peak = _byte_table(root / PROCESS_STATUS).get("VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return None

    # in bytes on macOS, in KiB elsewhere
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return usage
    return usage * 1024


def _system_memory(root: Path) -> Iterator[MemoryBudget]:
    """The memory that the system has available without swapping; yields nothing where it does not
    say.
    """
    available = _byte_table(root / "proc/meminfo").get("MemAvailable")
    if available is not None:
        yield MemoryBudget(available, message("memory available on this machine"))


def _control_groups(root: Path) -> Iterator[MemoryBudget]:
    """The memory that the process's control groups (Linux's limits for containers, version 2 or 1)
    and the groups above them still allow, one for each limit.

    root: where /proc and /sys are, for tests.
    """
    for line in system_text(root / "proc/self/cgroup").splitlines():
        parts = line.split(":", 2)  # "0::/user.slice" (2) or "4:memory:/docker/abc" (1)
        if len(parts) != 3:
            continue
        _, controllers, place = parts
        if controllers == "":
            base = root / "sys/fs/cgroup"
            limit = "memory.max"
            usage_file = "memory.current"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            limit = "memory.limit_in_bytes"
            usage_file = "memory.usage_in_bytes"
        else:
            continue

        folder = base / place.lstrip("/")
        if is_folder(folder):
            groups = [folder, *folder.parents]
        else:  # inside a container the named group may be mounted as the root
            groups = [base]
        for group in groups:
            if not group.is_relative_to(base):
                break  # the parents above all groups
            allowance = _whole_number(group / limit)
            usage = _whole_number(group / usage_file)
            if allowance is not None and usage is not None and allowance < UNLIMITED:
                # cached file pages count as used, but give way
                reclaimable = _byte_table(group / "memory.stat", unit=1).get("inactive_file", 0)
                yield MemoryBudget(
                    allowance - usage + reclaimable,
                    message("the memory limit of this control group"),
                )


def _process_limits(root: Path) -> Iterator[MemoryBudget]:
    """The memory that this process may still use under RLIMIT_AS and RLIMIT_DATA, one for each
    limit that is set.

    root: where /proc is, for tests.
    """
    try:
        import resource
    except ImportError:  # not a Unix
        return
    status = _byte_table(root / PROCESS_STATUS)
    for name, status_key, source in (
        ("RLIMIT_AS", "VmSize", message("the limit on this process's address space")),
        ("RLIMIT_DATA", "VmData", message("the limit on this process's data")),
    ):
        # the soft limit is the one in force; the hard one is how far it may be raised
        soft_limit, _ = resource.getrlimit(getattr(resource, name))
        if soft_limit != resource.RLIM_INFINITY and status_key in status:
            yield MemoryBudget(soft_limit - status[status_key], source)


PROCESS_STATUS = "proc/self/status"
"""What Linux says of this process."""


def _byte_table(path: Path, unit: int = 1024) -> dict[str, int]:
    """The entries of a file of lines "name: number kB" or "name number", in bytes by name; empty
    where it cannot be read.

    unit: the bytes that a number counts.
    """
    rows = (line.replace(":", " ").split() for line in system_text(path).splitlines())
    return {row[0]: int(row[1]) * unit for row in rows if len(row) > 1 and row[1].isdigit()}


def _whole_number(path: Path) -> int | None:
    """The number that a file holds; None where it cannot be read or holds none."""
    text = system_text(path).strip()
    if text.isdigit():
        return int(text)
    return None
