"""The document of `attn tensors`: attention over arrays that were captured elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Array, Backend, Selection, choose, numbers_of
from attncli.documents import AttentionPart, EmptyRow, ModelPart, ShapeRow
from attncli.documents.header import shape_row
from attncli.errors import InputError, UsageError
from attncli.features.tensors.document import (
    BatchEntry,
    CapturedHead,
    CapturedLink,
    TensorsDocument,
)
from attncli.inputs.token import ignore
from attncli.language import listing, message
from attncli.measure.head_record import HeadRecord, LayerRecords, Sides, numbered_tokens
from attncli.measure.metric import METRICS, Measured, Tally
from attncli.measure.row_facts import Bools, Floats, TokenFacts
from attncli.measure.row_stream import RowFeeder, TopLinks, share
from attncli.measure.run_record import RunRecord, arithmetic, feed_whole, metric_values
from attncli.mechanism.attend import RowBlock, Rule, StreamResult, attend, rows_within, stream
from attncli.mechanism.attention import check_arguments
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.head_choice import choose_numbers, layer_and_heads
from attncli.mechanism.mask import Everywhere, Mask, intersection, shows_all
from attncli.mechanism.trace import SQUARE, shapes_of
from attncli.models.layout import names_text
from attncli.models.run import LONG
from attncli.version import __version__

SAME = 1e-2
"""Difference of two weights up to which low precision may account for it."""
Tensors = Mapping[str, np.ndarray[Any, Any]]

ROLES = ("q", "k", "v")
"""The arrays without which there is no attention."""
LAYER = re.compile(r"layers\.(0|[1-9][0-9]{0,17})\.q")
"""The queries of a layer, as `--save` names them."""


class Options(Struct, frozen=True):
    """How to attend: the options of `attncli.attention`, and a mask by position."""

    scale: float | None = None
    softcap: float | None = None
    mask: Mask = Everywhere()
    offset: int = 0
    key_lengths: Sequence[int] | None = None
    softmax_dtype: str | None = None


PLAIN_ATTENTION = Options()
"""Every query sees every key, scaled by 1/√dim."""


class CapturedTensors(Struct, frozen=True):
    """Arrays ready to attend: q [..., head, query, dim], k and v [..., kv, key, dim], and the rule
    between them.

    saved_weights: [..., head, query, key] that stand beside them in the file, None without any.
    """

    backend: Backend
    q: Array
    k: Array
    v: Array
    rule: Rule
    saved_weights: np.ndarray[Any, Any] | None = None

    @property
    def lead(self) -> tuple[int, ...]:
        """The sizes of the axes before head, query and dimension, such as those of a batch."""
        return np.broadcast_shapes(self.q.shape[:-3], self.k.shape[:-3])

    @property
    def long(self) -> bool:
        """Whether there are more than `LONG` queries or keys, too many for whole weights."""
        return max(self.q.shape[-2], self.k.shape[-2]) > LONG

    def entry(self, place: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """q, k and v of one batch entry, each of three axes.

        place: its index along each of the axes before head, query and dimension.
        """
        return (
            part_of_entry(self.q, place),
            part_of_entry(self.k, place),
            part_of_entry(self.v, place),
        )

    def attend(self) -> RowBlock:
        """The attention of these arrays: every stage, with their leading axes."""
        return attend(self.backend, self.q, self.k, self.v, self.rule)


def capture_attention(
    tensors: Tensors, where: str, backend: Backend, options: Options, *, layer: int | None = None
) -> CapturedTensors:
    """Check the arrays `q`, `k`, `v` of a file, or `layers.{layer}.q` … of one that `--save` wrote,
    and the options, and put them together as arrays ready to attend.

    Arrays of two axes are one head. `mask`, `bias`, `sinks`, `offset` and `key_lengths` are
    used where the file has them and the options do not say otherwise. Raises InputError for arrays
    that are missing or do not go together, UsageError for a mask that depends on the vectors of one
    text, beside leading axes.

    where: the file's name, for errors.
    layer: which layer of a file of layers; None for the first, or for a file of one attention.
    """
    # of q, k, v and weights; other arrays (mask, bias …) have plain names and hold for any layer
    prefix = _name_prefix(tensors, where, layer)
    q_k_v = [tensors[prefix + name] for name in ROLES]
    with_heads = [array[None] if array.ndim == 2 else array for array in q_k_v]
    floats = {name: backend.array(tensors[name]) for name in ("bias", "sinks") if name in tensors}
    lengths: Any = options.key_lengths
    if lengths is None:
        lengths = tensors.get("key_lengths")
    # the first value is the backend, which is known
    _, q, k, v, rule = check_arguments(
        *map(backend.array, _broadcast_leading_axes(with_heads)),
        scale=options.scale,
        softcap=options.softcap,
        # of booleans, whatever type the file has; a mask of the options is laid over it below
        mask=backend.array_as_is(tensors["mask"] != 0) if "mask" in tensors else None,
        bias=floats.get("bias"),
        causal=False,
        window=None,
        offset=options.offset or tensors.get("offset", 0),  # 0: not given
        key_lengths=None if lengths is None else np.asarray(lengths),
        sinks=floats.get("sinks"),
        softmax_dtype=options.softmax_dtype,
    )
    if options.mask.depends_on == "vectors" and q.ndim > 3:
        raise UsageError(
            "an lsh mask buckets one text at a time", where=where, expected="q without leading axes"
        )
    mask = options.mask
    if q.ndim == 3:
        # a mask such as lsh needs the vectors; others return themselves
        mask = mask.bind(backend, q, k, rule.scale, options.softcap)
    return CapturedTensors(
        backend,
        q,
        k,
        v,
        replace(rule, mask=intersection(rule.mask, mask)),
        tensors.get(f"{prefix}weights"),
    )


def _broadcast_leading_axes(arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The arrays with the axes before their last three broadcast to each other; unchanged where
    they do not broadcast, which `check_arguments` then refuses.
    """
    if any(array.ndim < 3 for array in arrays):
        return arrays
    try:
        lead = np.broadcast_shapes(*(array.shape[:-3] for array in arrays))
    except ValueError:
        return arrays
    return [np.broadcast_to(array, (*lead, *array.shape[-3:])) for array in arrays]


def _name_prefix(tensors: Tensors, where: str, layer: int | None) -> str:
    """What stands before q, k and v in the names of a file's tensors: "", or "layers.0." for a file
    of layers, whose first is taken where none is named. Raises InputError where one of the three
    arrays is missing."""
    if layer is None and all(name in tensors for name in ROLES):
        return ""

    # a file of layers
    layers = sorted(int(match[1]) for name in tensors if (match := LAYER.fullmatch(name)))
    if layers:
        number = layers[0]
        if layer is not None:
            number = layer
        if number not in layers:
            expected = message("one of {layers}", layers=listing(map(str, layers)))
            raise InputError(
                "there is no layer {number} in this file",
                where=where,
                expected=expected,
                number=number,
            )
        lacking = [name for role in ROLES if (name := f"layers.{number}.{role}") not in tensors]
        if lacking:
            raise InputError(
                "this file has layers.{number}.q without {lacking}",
                where=where,
                expected="q, k and v",
                number=number,
                lacking=listing(lacking, " and "),
            )
        return f"layers.{number}."

    # a file without layers
    missing = [name for name in ROLES if name not in tensors]
    if not missing:  # then a layer was named
        what = message(
            "there is no layer {layer}: this file has q, k and v of no layer", layer=layer
        )
        raise InputError(what, where=where, expected="no --layer")
    tensor_names = names_text(sorted(tensors)) or "nothing"
    close = [near for name in missing for near in get_close_matches(name, tensors, n=1, cutoff=0.4)]
    if close:
        hint = f"rename {close[0]!r}"
    else:
        hint = message("attn weights show FILE lists what is there")
    raise InputError(
        "no tensor is called {missing}; found {tensor_names}",
        where=where,
        expected="q, k and v",
        hint=hint,
        missing=listing(missing, " or "),
        tensor_names=tensor_names,
    )


@checked
def tensors(
    arrays: CapturedTensors | Tensors,
    *,
    name: str = "arrays",
    options: Options = PLAIN_ATTENTION,
    layer: int | None = None,
    heads: Selection = EVERY,
    top: int = 10,
    stages: bool = False,
    by_blocks: bool | None = None,
    progress: Callable[[float], None] = ignore,
    on_trace: Callable[[RowBlock], None] = ignore,
) -> TensorsDocument:
    """Attention over q, k and v, with every option of the core.

    Args:
        arrays: q [..., heads, query, dim], k [..., kv_heads, key, dim] and v [..., kv_heads, key,
            v_dim] by name, with mask, bias, sinks, offset and key_lengths where there are such; or
            what `capture_attention` makes of them.
        name: What they are called in the document.
        options: Scale, soft cap, mask and the like.
        layer: Which layer, of arrays called `layers.L.q` as `--save` writes them.
        heads: Which heads: 11, [0, 3], "2-5", or "L5H11" and (5, 11) of arrays that name layers; see
            `HeadSelection`.
        top: How many links the document holds, the largest weights over all batch entries.
        stages: Whether it holds every stage by name.
        by_blocks: Whether to go by blocks of query rows, which leaves metrics and links, and
            nothing that is n × n; None for where there are more than 2,048 queries or keys, and no
            stages are wanted.
        progress: Called with the share done of what runs by blocks, 0 to 1.
        on_trace: Called with every stage, where it does not run by blocks.

    Returns:
        What `attn tensors --json` writes.

    Raises:
        InputError: For arrays that are missing or do not fit each other.
    """
    layer, heads = layer_and_heads(layer, heads)  # "L5H11" names its layer, too
    if not isinstance(arrays, CapturedTensors):
        arrays = {role: np.asarray(array) for role, array in arrays.items()}
        # how many numbers there are stands for the multiply-adds of the job
        work = sum(array.size for array in arrays.values())
        backend = choose("auto", device=None, dtype="float32", work=work)
        arrays = capture_attention(arrays, name, backend, options, layer=layer)
    if by_blocks is None:
        by_blocks = arrays.long and not stages
    trace = None
    if not by_blocks:
        trace = arrays.attend()
        on_trace(trace)
    chosen = choose_numbers(heads, arrays.q.shape[-3], "head")
    return _tensors_document(
        name, arrays, trace, options.mask, heads=chosen, top=top, stages=stages, progress=progress
    )


def _tensors_document(
    file: str,
    arrays: CapturedTensors,
    trace: RowBlock | None,
    mask: Mask,
    *,
    heads: Sequence[int],
    top: int,
    stages: bool,
    progress: Callable[[float], None] = ignore,
) -> TensorsDocument:
    """The `attn.tensors/1` document. Links are the largest weights over all batch entries.

    file: what the arrays are called in the document.
    trace: every stage; None to attend by blocks of query rows, which leaves metrics and links, and
        nothing that is n × n.
    heads: which, in rising order.
    top: how many links.
    stages: every stage by name.
    progress: told the share that is done of what runs by blocks.
    """
    backend = arrays.backend
    lead = arrays.lead
    places = list(np.ndindex(lead))  # the index of each batch entry; one, (), without leading axes
    stage_values = {}  # by stage, of all batch entries; none by blocks of rows
    if trace is not None:
        stage_values = {name: backend.numpy(trace.stages[name]) for name in SQUARE}
        stage_values["mixed"] = backend.numpy(trace.mixed)
    batch = []
    links = []
    empties = []
    for number, place in enumerate(places):
        # measure the heads of this batch entry
        entry_rule = of_entry(arrays.rule, place)
        offset = entry_rule.offset
        assert isinstance(offset, int)  # `of_entry` takes the entry's own from an array of offsets
        captured_heads = CapturedHeads(backend, arrays.k.shape[-2], heads, top, offset=offset)
        if trace is None:
            on_share = partial(_report_share, progress, number, len(places))
            streamed = captured_heads.stream_rows(
                backend, arrays.entry(place), entry_rule, on_share
            )
            empty = backend.numpy(streamed.empty)[list(heads)]
        else:
            weights = stage_values["weights"][place][list(heads)]
            captured_heads.add_weights(
                weights, stage_values["masked"][place][list(heads)] != -np.inf
            )
            empty = backend.numpy(trace.empty)[place][list(heads)]

        # each head's numbers, its strongest links, its rows in which no key is visible
        results = captured_heads.metrics()
        parts = []
        for index, head in enumerate(heads):
            # the head's matrix of each stage; none by blocks of rows
            head_stages = {name: values[place][head] for name, values in stage_values.items()}
            parts.append(
                CapturedHead(
                    head=head,
                    scores=head_stages.get("masked", UNSET),
                    weights=head_stages.get("weights", UNSET),
                    output=head_stages.get("mixed", UNSET),
                    stages=head_stages if stages and head_stages else UNSET,
                    metrics=metric_values(results, index, "value"),
                    baseline=metric_values(results, index, "baseline"),
                )
            )
            links += [
                CapturedLink(index=list(place), head=head, query=query, key=key, weight=weight)
                for query, key, weight in captured_heads.links()[index]
            ]
            empties += [
                # captured arrays are one layer
                EmptyRow(layer=0, head=head, query=int(query))
                for query in np.flatnonzero(empty[index])
            ]
        batch.append(BatchEntry(index=list(place), heads=parts))
    rule = arrays.rule
    warnings = visibility_notes(rule, backend)
    if trace is not None:
        warnings += _saved_weights_notes(arrays.saved_weights, stage_values["weights"])
    # the largest weight first, equal ones in the order of the arrays
    links.sort(key=lambda link: (-link.weight, link.index, link.head, link.query, link.key))
    return TensorsDocument(
        version=__version__,
        file=file,
        queries=arrays.q.shape[-2],
        keys=arrays.k.shape[-2],
        model=_model_part(arrays, file),
        attention=AttentionPart(
            scale=rule.scale,
            softcap=rule.softcap,
            mask=mask.spec(),
            position="none",
            backend=backend.name,
            dtype=backend.dtype,
        ),
        shapes=_shapes(arrays, trace),
        batch=batch,
        links=links[:top],
        empty_rows=empties,
        warnings=warnings,
    )


def _model_part(arrays: CapturedTensors, file: str) -> ModelPart:
    """The document's part about the model, of which captured arrays tell the sizes of one layer."""
    return ModelPart(
        source="tensors",
        name=file,
        family=None,
        seed=None,
        d_model=None,
        layers=1,
        heads=arrays.q.shape[-3],
        kv_heads=arrays.k.shape[-3],
        d_k=arrays.q.shape[-1],
        d_v=arrays.v.shape[-1],
        digest=None,
    )


def _report_share(
    progress: Callable[[float], None], entry: int, entries: int, share: float
) -> None:
    """Call `progress` with the share of all batch entries that is done.

    entry: which of them is running, from 0.
    entries: how many there are.
    share: the share of the running one that is done.
    """
    progress((entry + share) / entries)


def _shapes(arrays: CapturedTensors, trace: RowBlock | None) -> list[ShapeRow]:
    """The document's shape trace: a row for each array from q, k and v to the output. Attention by
    blocks of rows has no n × n arrays, so that only what goes in and comes out has a row.

    trace: every stage; None for attention by blocks of rows.
    """
    arrays_shown = {"q": arrays.q, "k": arrays.k, "v": arrays.v}
    if trace is None:
        out = (*arrays.lead, *arrays.q.shape[-3:-1], arrays.v.shape[-1])
        # an array of this shape that takes no memory: only its shape is told
        arrays_shown["mixed"] = np.broadcast_to(np.float32(0), out)
    else:
        # stages that change nothing here are left out
        rule = arrays.rule
        hides = not shows_all(rule.mask) or any(
            array is not None for array in (rule.visibility, rule.key_lengths, rule.bias)
        )
        changes = {
            "capped": rule.softcap is not None,
            "biased": rule.bias is not None,
            "masked": hides,
        }
        arrays_shown |= {
            name: array for name, array in trace.stages.items() if changes.get(name, True)
        }
        arrays_shown["mixed"] = trace.mixed
    count = len(arrays.lead)
    names = tuple(f"batch {axis}" if count > 1 else "batch" for axis in range(count))
    rows = shapes_of(arrays_shown, leading=names)
    return [shape_row(row, "given" if row.step in ROLES else row.formula) for row in rows]


def _saved_weights_notes(
    saved_weights: np.ndarray[Any, Any] | None, weights: np.ndarray[Any, Any]
) -> list[str]:
    """One warning, in a list, where the file holds weights that differ from the computed ones; an
    empty list where they do not, and where the file holds none of that shape.

    saved_weights: those of the file; None where it holds none.
    weights: the computed ones.
    """
    if saved_weights is None or saved_weights.shape != weights.shape:
        return []
    # NaN, as of saved rows that see nothing, counts as no difference
    differences = np.nan_to_num(np.abs(saved_weights - weights.astype(np.float64)))
    apart = float(differences.max(initial=0.0))
    if apart <= SAME:
        return []
    return [
        message(
            "the weights that the file holds differ from these by up to {apart:.2g}: the run that"
            " saved it had another mask, scale, soft cap or position bias; --mask, --scale and"
            " --softcap set them here",
            apart=apart,
        )
    ]


# Captured attention in numbers: metrics and strongest links of every head, from whole weights or by
# blocks.

MOST_LENGTHS = 8
"""Numbers of `key_lengths` that are told."""

KNOWN = tuple(name for name, metric in METRICS.items() if not metric.needs)
"""The metrics that need nothing but weights: captured arrays come without tokens."""


class CapturedHeads:
    """The chosen heads of one attention: their metrics, and the `top` strongest links of each.

    keys: how many keys there are.
    heads: the numbers of the chosen heads.
    top: how many links are kept of each head; 0 for none.
    offset: position of query 0.
    """

    def __init__(
        self, backend: Backend, keys: int, heads: Sequence[int], top: int, *, offset: int
    ) -> None:
        self._tally = Tally(len(heads), KNOWN, TokenFacts())
        self._links = TopLinks(len(heads), top)
        consumers: list[Tally | TopLinks] = [self._tally]
        if top:
            consumers.append(self._links)
        self._feeder = RowFeeder(backend, consumers, TokenFacts(), keys, heads=heads, offset=offset)
        self._offset = offset

    def add_weights(self, weights: Floats, visible: Bools) -> None:
        """Add the whole weights of the chosen heads, [head, query, key], to metrics and links.

        visible: which keys each query sees, booleans [head, query, key].
        """
        self._feeder.take_layer(np.nan_to_num(weights.astype(np.float64)), visible)

    def stream_rows(
        self,
        backend: Backend,
        arrays: tuple[Array, Array, Array],
        rule: Rule,
        progress: Callable[[float], None],
    ) -> StreamResult:
        """Compute the attention by blocks of query rows, and add the weights of each block to
        metrics and links; returns what is left at the end, such as which rows see no key.

        arrays: q [head, query, dim], k and v [kv, key, dim].
        progress: called with the share that is done.
        """
        q, k, _ = arrays
        heads = q.shape[-3]
        queries = q.shape[-2]

        def on_block(block: RowBlock) -> None:
            """Add a block of query rows, and report the share that is done."""
            self._feeder.on_block(block)
            progress(share(block, heads, queries))

        rows = rows_within(heads, queries, k.shape[-2])
        return stream(
            backend,
            *arrays,
            rule,
            rows=rows,
            # entropy and largest weight come with the softmax: metrics need not compute them again
            keep=("weights", "entropy", "peak"),
            on_block=on_block,
        )

    def metrics(self) -> dict[str, Measured]:
        """Each metric's values for the chosen heads, by its name."""
        return self._tally.result()

    def links(self) -> list[list[tuple[int, int, float]]]:
        """For each head its links as (query row, key, weight), strongest first."""
        # `TopLinks` numbers queries by position, which begins at the offset
        return [
            [(query - self._offset, key, weight) for query, key, weight in head_links]
            for head_links in self._links.sorted_links()
        ]


def part_of_entry(array: Array, place: tuple[int, ...]) -> Array:
    """The part of an array [..., a, b, c] that belongs to one entry of the batch; a leading axis of
    size 1 serves every entry.

    place: the entry's index along each leading axis of the batch, of which the array may have the
        last ones only.
    """
    leading = array.shape[:-3]
    if not leading:
        return array
    own_place = place[len(place) - len(leading) :]
    sizes_and_indexes = zip(leading, own_place, strict=True)
    return array[tuple(0 if size == 1 else index for size, index in sizes_and_indexes)]


def of_entry(rule: Rule, place: tuple[int, ...]) -> Rule:
    """The rule of attention (mask, bias, offset and so on) of one batch entry.

    rule: of all entries, whose arrays may have leading axes.
    place: the entry's index along each of them.
    """

    def take_entry(array: Array | None) -> Array | None:
        """The array of one batch entry, where it has batch axes."""
        if array is None or array.ndim <= 3:
            return array
        return part_of_entry(array, place)

    if isinstance(rule.offset, int):
        offset = rule.offset
    else:
        # an array has one offset for each entry
        offset = int(part_of_entry(rule.offset, place).reshape((-1,))[0])
    arrays = {
        name: take_entry(getattr(rule, name)) for name in ("visibility", "bias", "key_lengths")
    }
    return replace(rule, **arrays, offset=offset)


def visibility_notes(rule: Rule, backend: Backend) -> list[str]:
    """Notes on what hides keys besides the mask that is named: the file's array `mask`, and
    `key_lengths`.
    """
    if rule.visibility is None:
        notes: list[str] = []
    else:
        notes = [message("keys are also hidden by the file's array mask")]
    if rule.key_lengths is not None:
        lengths = np.ravel(backend.numpy(rule.key_lengths)).tolist()
        if len(lengths) > MOST_LENGTHS:
            more = " …"
        else:
            more = ""
        length_text = listing(map(str, lengths[:MOST_LENGTHS]))
        notes.append(
            message(
                "keys are also hidden by key_lengths {length_text}{more}",
                length_text=length_text,
                more=more,
            )
        )
    return notes


# Records of captured queries and keys: every leading index of the arrays stands as a layer.


def captured_record(
    arrays: CapturedTensors, trace: RowBlock, document: TensorsDocument, *, heads: Selection = EVERY
) -> RunRecord:
    """What the page of `attn tensors` shows: the weights and scores of each head, with the queries
    and keys that give them. Each batch entry stands as a layer.

    arrays: the captured queries, keys and values.
    trace: every stage of the attention over `arrays`.
    document: the `attn.tensors/1` document of it.
    heads: which heads the record has.
    """
    backend = arrays.backend
    queries = numbered_tokens(int(arrays.q.shape[-2]))
    keys = numbered_tokens(int(arrays.k.shape[-2]))
    # the same list on both sides stands for one text that looks at itself
    if len(queries) == len(keys):
        keys = queries
    sides = Sides(queries, keys)
    stage_arrays = {
        name: np.asarray(backend.numpy(trace.stages[name]))
        for name in ("weights", "masked", "capped", "biased")
    }
    lead = stage_arrays["weights"].shape[:-3]  # of the axes before [head, query, key]
    # in float32, since scores of a narrower type were computed from wider products
    for name, array in (("q", arrays.q), ("k", arrays.k)):
        wide = np.asarray(backend.numpy(array), np.float32)
        stage_arrays[name] = np.broadcast_to(wide, (*lead, *wide.shape[-3:]))

    # all arrays are NumPy's by now: the records are made with it, whichever backend computed them
    if backend.name == "numpy":
        numpy = backend
    else:
        numpy = choose("numpy", device=None, dtype="float32")

    def head_records() -> Iterator[HeadRecord]:
        """Yield the record of each head, one batch entry after the other; the number of the entry
        stands for the layer."""
        for layer, place in enumerate(np.ndindex(lead)):
            head_numbers = numbers_of(heads, stage_arrays["weights"].shape[-3])
            stages = {name: array[place] for name, array in stage_arrays.items()}
            records = LayerRecords(numpy, layer, sides, head_numbers)
            feed_whole(numpy, records, stages, words=None)
            # q and k with scale and soft cap, from which the page computes scores term by term
            terms = arithmetic(numpy, stages, arrays.rule.scale, arrays.rule.softcap)
            yield from records.records(terms)

    name = PurePath(document.file).name
    return RunRecord(
        name=name,
        text=name,  # arrays have no text
        sides=sides,
        model=document.model,
        attention=document.attention,
        heads=head_records(),
        warnings=document.warnings,
    )
