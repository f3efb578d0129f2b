"""The screen of `attn.model/1`: what one model does, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from attncli.analysis.document import ranges
from attncli.analysis.documents.declaration import tag_of
from attncli.analysis.documents.model import AttentionRow, EstimatePart, LayerGroup, ModelDocument, ModelSide
from attncli.analysis.documents.model_parts import (
    AlibiPart,
    BoundedPart,
    BucketsPart,
    DisentangledPart,
    ExpertsPart,
    FirstBlockAgainPart,
    HeadPart,
    LatentPart,
    MlpPart,
    NormPart,
    PositionPart,
    QkNormPart,
    RelativeSinesPart,
    RopePart,
    TemperaturePart,
)
from attncli.render.glyphs import spell
from attncli.render.headings import heading, remark
from attncli.render.lines import Lines, fit_to_view, line, stack, stack_spaced
from attncli.render.numbers import brief, root_of, size_words
from attncli.render.prose import fold
from attncli.render.safe import cut, safe
from attncli.render.screens.conclusion import model_answer
from attncli.render.screens.header import SIDE, count_phrase, fact, warning
from attncli.render.view import View

SOURCES = {"folder": "a folder", "package": "an installed package", "cache": "the hub's local cache", "hub": "the hub"}
PLACES = {
    "attn.in": "before attention",
    "attn.out": "on attention's result",
    "attn.sum": "after the residual",
    "cross.in": "before cross-attention",
    "cross.out": "on its result",
    "cross.sum": "after its residual",
    "mlp.in": "before feed-forward",
    "mlp.out": "on feed-forward's result",
    "mlp.sum": "after the second residual",
}


def model_screen(document: ModelDocument, view: View) -> Lines:
    """Where a checkpoint is, its sizes, its layers by group, and the estimate if one was asked for."""
    if view.brief:
        return fit_to_view(model_answer(document, view), view)
    spec, types = document.spec, document.bytes
    folder = fold(safe(document.folder, ascii=view.ascii), view.width - SIDE)
    top = [
        line((cut(safe(document.name, ascii=view.ascii), view.width, ascii=view.ascii), "bold")),
        fact("from", [SOURCES[document.source], *folder, document.revision or ""], view),
        fact(
            "family", [safe(document.family, ascii=view.ascii), "encoder and decoder" if document.decoder else ""], view
        ),
        fact(
            "weights",
            [
                f"{document.parameters:,} parameters",
                *(f"{size_words(size)} {name}" for name, size in types.items()),
                "" if document.fetched else "to be fetched",
            ],
            view,
        ),
        fact("tokenizer", ["tokenizer.json" if document.tokenizer else "none: give token ids with --ids"], view),
        *(warning(warning_text, view) for warning_text in document.warnings),
    ]
    sides = [("", spec)] if document.decoder is None else [("encoder", spec), ("decoder", document.decoder)]
    blocks = [stack(top), *(_side(name, side, view) for name, side in sides)]
    if document.estimate is not None:
        blocks.append(_estimate(document.estimate, view))
    blocks.append(model_answer(document, view))
    return fit_to_view(stack_spaced(blocks), view)


def model_rows(document: ModelDocument) -> Iterator[Sequence[object]]:
    """One row per layer for `--plain`."""
    yield ("side", "layer", "heads", "kv_heads", "d_k", "d_v", "scale", "softcap", "mask", "position")
    for name, side in (("encoder" if document.decoder else "model", document.spec), ("decoder", document.decoder)):
        if side is None:
            continue
        for layer in range(side.layers):
            attention = next(group.attention for group in side.groups if layer in group.layers)
            values = (
                getattr(attention, key) for key in ("heads", "kv_heads", "d_k", "d_v", "scale", "softcap", "mask")
            )
            yield (name, layer, *values, "none" if attention.position is None else tag_of(attention.position))


def _side(name: str, side: ModelSide, view: View) -> Lines:
    embedding, limit = side.embedding, side.max_positions
    extra = [
        f"{embedding.positions} positions" if embedding.positions else "",
        "token types" if embedding.types else "",
    ]
    extra += [f"times {brief(embedding.scale)}" if embedding.scale != 1 else "", _norm(embedding.norm)]
    extra += [f"a table {embedding.width} wide" if embedding.width not in (None, side.d_model) else ""]
    head = side.head
    ends = [_norm(side.final_norm), *([] if head is None else _head(head))]
    rows = [
        heading(name, "", view),
        fact(
            "sizes",
            [f"d_model {side.d_model}", count_phrase(side.layers, "layer"), f"vocabulary {side.vocabulary:,}"],
            view,
        ),
        fact("positions", [f"at most {limit:,}" if limit else "no limit"], view),
        fact("embedding", ["token vectors", *extra], view),
        *(_group(group, view) for group in side.groups),
        fact("at the end", [part for part in ends if part] or ["nothing"], view),
    ]
    return stack(rows)


def _head(head: HeadPart) -> list[str]:
    return [
        "tied to the token table" if head.tied else "own output head",
        f"logits times {brief(head.scale)}" if head.scale != 1 else "",
        f"logits soft-cap {brief(head.softcap)}" if head.softcap else "",
        "a linear map before it" if head.projection else "",
    ]


def _group(group: LayerGroup, view: View) -> Lines:
    title = f"{'layer' if len(group.layers) == 1 else 'layers'} {ranges(group.layers)}"
    norms = [f"{PLACES[place]}: {_norm(norm)}" for place, norm in group.norms.items()]
    shape = ["attention and feed-forward side by side"] if group.parallel else []
    shape += [] if group.residual else ["no residual"]
    shape += [f"each branch times {brief(group.branch_scale)}"] if group.branch_scale != 1 else []
    shape += [f"beside it a convolution over {group.convolution} tokens"] if group.convolution else []
    rows = [heading(title, "", view), *_attention("attention", group.attention, view)]
    if group.cross is not None:
        rows += _attention("cross", group.cross, view)
    return stack((*rows, fact("then", [*_mlp(group.mlp), *shape], view), fact("norms", norms or ["none"], view)))


def _attention(name: str, attention: AttentionRow, view: View) -> list[Lines]:
    heads, kv_heads = attention.heads, attention.kv_heads
    root = root_of(attention.scale, attention.d_k, 0)
    sizes = [
        count_phrase(heads, "head"),
        f"{count_phrase(kv_heads, 'kv head')} shared by {heads // kv_heads} each" if kv_heads != heads else "",
    ]
    sizes += [
        f"d_k {attention.d_k}",
        f"d_v {attention.d_v}",
        f"scale {brief(attention.scale)}" + (spell(f" = {root}", ascii=view.ascii) if root else ""),
    ]
    sizes += [
        f"soft-cap {brief(attention.softcap)}" if attention.softcap else "",
        "learned sinks" if attention.sinks else "",
    ]
    sizes += _qk_norm(attention.qk_norm) if attention.qk_norm else []
    sizes += [
        f"queries, keys and values cut off at ±{brief(attention.clip)}" if attention.clip else "",
        _latent(attention.latent) if attention.latent else "",
        _temperature(attention.temperature, ascii=view.ascii) if attention.temperature else "",
        f"keys and values from vectors {attention.source_width} wide" if attention.source_width else "",
    ]
    if attention.global_tokens is not None:
        global_tokens = ", ".join(map(str, attention.global_tokens)) or "none named"
        sizes += [f"global tokens with projections of their own: {global_tokens}"]
    conventions = [f"mask {safe(attention.mask, ascii=view.ascii)}", f"position {_position(attention.position)}"]
    return [
        fact(name, sizes, view),
        fact("", conventions, view),
        fact("", [spell(attention.mask_says, ascii=view.ascii)], view),
    ]


def _position(position: PositionPart | None) -> str:
    match position:
        case None:
            return "none in the attention"
        case RopePart(dims=dims, theta=theta, pairing=pairing, scaling=scaling):
            return f"rotary, {dims} dims, theta {brief(theta)}, {pairing} pairs" + (
                f", {tag_of(scaling)} scaling" if scaling else ""
            )
        case AlibiPart():
            return "ALiBi"
        case BucketsPart(buckets=buckets, max_distance=most):
            return f"{buckets} relative buckets up to distance {most}"
        case DisentangledPart():
            return tag_of(position)
        case RelativeSinesPart(furthest=furthest):
            return "sinusoids of the distance" if furthest is None else f"sinusoids of the distance, up to {furthest}"
        case FirstBlockAgainPart(times=times):
            return f"keys of the first block count {1 + times} times"
        case _:
            assert_never(position)


def _norm(norm: NormPart | None) -> str:
    if norm is None:
        return ""
    name = "layer norm" if norm.kind == "layer" else "RMS norm"
    return f"{name}, eps {brief(norm.eps)}" + (", weight 1 + w" if norm.unit_offset else "")


def _qk_norm(norm: QkNormPart) -> list[str]:
    over = {"head": "", "own": "each head by norm weights of its own", "width": "all heads normed at once"}[norm.over]
    return [f"queries and keys normed ({_norm(norm.norm)})", over, "normed after the positions" if norm.after else ""]


def _latent(latent: LatentPart) -> str:
    keys = f"{latent.keys} entries, {latent.straight} of a key shared by all heads"
    if not latent.query:
        return f"latent: queries from the input at once, keys and values from {keys}"
    return f"latent: queries from {latent.query} entries, keys and values from {keys}"


def _temperature(grows: TemperaturePart, *, ascii: bool) -> str:
    return spell(f"queries times 1 + {brief(grows.scale)}·ln(1 + ⌊(p + 1)/{grows.floor}⌋)", ascii=ascii)


def _mlp(mlp: MlpPart | ExpertsPart | None) -> list[str]:
    match mlp:
        case MlpPart():
            return [f"feed-forward {mlp.width} wide, {_inner(mlp)}", _gate_bound(mlp.bounded)]
        case ExpertsPart(count=count, chosen=chosen_count, width=width):
            facts = [f"{count} experts {width} wide, {chosen_count} for each token", *_routing(mlp)]
            if mlp.shared is not None:
                facts += [
                    f"one part for every token {mlp.shared.width} wide, {_inner(mlp.shared)}",
                    _gate_bound(mlp.shared.bounded),
                    "in a share that the token decides" if mlp.shared_share else "",
                ]
            return facts
        case None:
            return ["no feed-forward"]
        case _:
            assert_never(mlp)


def _inner(mlp: MlpPart) -> str:
    return f"gated {mlp.activation}" if mlp.gated else mlp.activation


def _gate_bound(bound: BoundedPart | None) -> str:
    return "" if bound is None else f"gate bounded at {brief(bound.limit)}, slope {brief(bound.slope)}"


def _routing(experts: ExpertsPart) -> list[str]:
    """How experts are chosen, where it is not by a softmax over all of them."""
    routing = experts.routing
    score = "shares by a sigmoid of each" if routing.score == "sigmoid" else "shares by a softmax"
    facts = [experts.activation, _gate_bound(experts.bounded), score]
    if routing.groups > 1:
        facts.append(
            f"of the best {routing.groups_chosen} of {routing.groups} groups, by their best {routing.group_by}"
        )
    facts += ["a learned correction where the best are sought"] if routing.corrected else []
    facts += ["shares made to sum to 1"] if experts.renormalise else []
    facts += [f"shares times {brief(routing.factor)}"] if routing.factor != 1 else []
    return [*facts, *(["shares multiply what an expert reads"] if routing.of_input else [])]


def _estimate(estimate: EstimatePart, view: View) -> Lines:
    parts = [
        f"{name} {size_words(size)}"
        for name, size in sorted(estimate.memory.items(), key=lambda item: -item[1])
        if size
    ]
    return stack(
        (
            heading(
                f"a text of {count_phrase(estimate.tokens, 'token')} through {count_phrase(estimate.layers, 'layer')}",
                "",
                view,
            ),
            fact("reads", [size_words(estimate.bytes_read)], view),
            fact("computes", [f"{estimate.multiply_adds:,} multiply-adds"], view),
            fact("memory", [f"about {size_words(estimate.peak_memory)} besides the program", *parts], view),
            fact("takes", [f"roughly {estimate.seconds:.1f} s"], view),
            remark(estimate.rule, view),
        )
    )
