"""The screen of `attn.cost/1`: variants side by side, growth over n, a model's layers, times
measured beside computed ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from attncli.documents import members
from attncli.draw.lines import Lines, draw_parts, heading, localize, remark, sentences, stack
from attncli.draw.numbers import Series, bar, curves, percent, size_words
from attncli.draw.safe import safe, spell
from attncli.draw.screen_header import count_phrase, warning
from attncli.draw.tables import table
from attncli.draw.view import Parts, ScreenPart, View
from attncli.features.cost.document import CostDocument, LayerCost, TotalCost, Variant, variant_name
from attncli.language import contextual, message, plural, say, say_each

ROOMY = 76
"""Cells from which on large numbers are written out."""


def cost_screen(document: CostDocument, view: View) -> Lines:
    """The whole screen of an `attn.cost/1` document."""
    return draw_parts(COST_PARTS, document, view, title=_title)


def cost_rows(document: CostDocument) -> Iterable[list[object]]:
    """Yield the table for `--plain`, names of columns first: a row for each kind of attention, and
    one for a recurrent network."""
    names = [
        "name",
        "spec",
        "pairs",
        "multiply_adds",
        "score_bytes",
        "streamed_bytes",
        "steps",
        "path",
    ]
    yield [*names]
    for variant in document.variants:
        yield [getattr(variant, name) for name in names]


def _title(document: CostDocument, view: View) -> Lines:
    """The top of the screen: how many tokens, the sizes of the layer, warnings, and what a
    multiply-add is."""
    heads = localize(count_phrase(document.heads, "head"), view)
    facts = [
        f"d_model {document.d_model}",
        heads,
        f"d_k {document.d_k}",
        f"d_v {document.d_v}",
        safe(document.dtype),
    ]
    title = say(
        view,
        plural(
            "attention over {count:,} token", "attention over {count:,} tokens", count=document.n
        ),
    )
    warnings = [warning(warning_text, view) for warning_text in document.warnings]
    counted = say(
        view,
        "One layer. A multiply-add is one product, added to a sum. The projections to q, k, v "
        "and back take {count} of them in every attention variant and are not counted below.",
        count=_count_text(document.projections, view),
    )
    return stack(heading(title, " · ".join(facts), view), *warnings, remark(counted, view))


def _variants(document: CostDocument, view: View) -> Lines:
    """A table with a row for each kind of attention: pairs and multiply-adds, with the ratio to
    full attention, sequential steps, and the path from the first token to the last."""
    full = document.variants[0]  # documents begin with full attention
    # a recurrent network has no pairs, and masks of one's own grow by no formula
    rows = [
        [
            _mask_or_name(variant, view),
            _count_text(variant.pairs, view) if variant.pairs else "-",
            _count_text(variant.multiply_adds, view),
            f"{variant.multiply_adds / full.multiply_adds:.4g}" + spell("×", ascii=view.ascii),
            _steps_text(variant.steps),
            "-" if variant.path is None else _steps_text(variant.path),
            spell(variant.grows or "", ascii=view.ascii),
        ]
        for variant in document.variants
    ]
    share = contextual("cost", "of full")
    columns = say_each(
        view, "variant", "pairs", "multiply-adds", share, "steps", "path", "grows as"
    )
    align = ["left", *["right"] * 5, "left"]
    note = message("pairs per head; multiply-adds of all heads")
    meanings = message(
        "steps: what must happen one after the other. path: layers (for the rnn: steps) "
        "until the first token can influence the last; -: no fixed number: never, only by chance "
        "(lsh), or further than attn counts."
    )
    sizes = say(
        view,
        "grows as: n the tokens, d = {width} their width (d_model), w = {window} the keys of the "
        "window, c = {chunk} the tokens of lsh's chunks. The rnn's two matrices are counted: they "
        "are all it does.",
        width=f"{document.d_model:,}",
        window=f"{document.window:,}",
        chunk=f"{document.chunk:,}",
    )
    body = table(columns, rows, view, align=align, title="pairs and operations", note=note)
    return stack(body, remark(meanings, view), remark(spell(sizes, ascii=view.ascii), view))


def cost_answer(document: CostDocument, view: View) -> Lines:
    """The answer of an `attn.cost/1` document, as lines."""
    return sentences(_cost_sentences(document, view), view)


def _cost_sentences(document: CostDocument, view: View) -> Iterator[str]:
    """Yield the sentences of the answer: the n² pairs of full attention, what share of its
    multiply-adds the cheapest variant takes, the steps of a recurrent network, and what was timed.
    """
    full, *others = document.variants  # documents begin with full attention
    pairs = message("Over n = {n} tokens full attention compares n² = {pairs} pairs in every head.")
    if document.n == 1:
        pairs = message("Over one token full attention compares {pairs} pair in every head.")
    yield say(view, pairs, n=f"{document.n:,}", pairs=f"{full.pairs:,}")
    # a recurrent network compares no pairs, and has a sentence of its own
    sparse = [
        variant
        for variant in others
        if variant.pairs and variant.multiply_adds < full.multiply_adds
    ]
    if sparse:
        least = min(sparse, key=lambda variant: variant.multiply_adds)
        name = safe(_mask_or_name(least, view), ascii=view.ascii)
        share = percent(least.multiply_adds / full.multiply_adds, 1)
        yield say(view, "{variant} takes {share} of its multiply-adds.", variant=name, share=share)
    recurrent = next((variant for variant in others if variant.name == "rnn"), None)
    if recurrent is not None:
        steps = message(
            "A recurrent network takes {steps} steps, one after the other, attention {attention}."
        )
        if recurrent.steps == 1:
            steps = message("A recurrent network takes {steps} step, attention {attention}.")
        yield say(view, steps, steps=f"{recurrent.steps:,}", attention=f"{full.steps:,}")
    yield from _measured_sentences(document, view)


def _measured_sentences(document: CostDocument, view: View) -> Iterator[str]:
    """Yield a sentence for each backend that was timed: what full attention took, and what was
    quickest."""
    for backend in dict.fromkeys(row.backend for row in document.measured):
        timings = {row.name: row for row in document.measured if row.backend == backend}
        full = timings["full"]
        least = min(timings.values(), key=lambda row: row.seconds)
        template = message(
            "Measured with {backend} on this machine: full attention takes {full}; the quickest is"
            " {variant}, {least}."
        )
        if least is full:
            template = message(
                "Measured with {backend} on this machine: full attention takes {full}; nothing"
                " timed is quicker."
            )
        yield say(
            view,
            template,
            backend=backend,
            full=_duration_text(full.seconds),
            variant=variant_name(least.name, view),
            least=_duration_text(least.seconds),
        )


def _mask_or_name(variant: Variant, view: View) -> str:
    """How a row is headed: a window, and a mask that the user asked for, by how masks are spelt;
    any other kind of attention by its name in the view's language."""
    if variant.name in ("window", "mask"):
        return str(variant.spec)
    return variant_name(variant.name, view)


def _saved_factor(variant: Variant, view: View) -> str:
    """By what factor the scores take less memory by blocks of rows than at once, such as "4.0×";
    "-" for a mask under which there are no scores."""
    if not variant.streamed_bytes:  # a mask that shows nothing
        return "-"
    return f"{variant.score_bytes / variant.streamed_bytes:,.1f}" + spell("×", ascii=view.ascii)


def _memory(document: CostDocument, view: View) -> Lines:
    """A table of the memory that the scores of each kind of attention take, at once and by blocks
    of query rows."""
    rows = []
    for variant in document.variants:
        sizes = map(size_words, (variant.score_bytes, variant.streamed_bytes))
        rows.append([_mask_or_name(variant, view), *sizes, _saved_factor(variant, view)])
    columns = say_each(view, "variant", "at once", contextual("cost", "by rows"), "saved")
    note = plural(
        "all heads; at once, and {count} query row at a time",
        "all heads; at once, and {count} query rows at a time",
        count=document.block_rows,
    )
    meanings = message(
        "rnn: its states, all of them or only the last. Causal attention computed at once holds the"
        " hidden half too."
    )
    body = table(
        columns, rows, view, align=["left", *["right"] * 3], title="memory for scores", note=note
    )
    return stack(body, remark(meanings, view))


def _growth(document: CostDocument, view: View) -> Lines:
    """The multiply-adds of each kind of attention over n, as curves."""
    series = []
    # every length has the same variants
    for name in document.growth[0].multiply_adds:
        points = tuple((float(row.n), float(row.multiply_adds[name])) for row in document.growth)
        series.append(Series(variant_name(name, view), points))
    title = heading(
        "growth of multiply-adds over n", "both axes logarithmic; the line marks n", view
    )
    texts = [spell(text, ascii=view.ascii) for text in _crossing_sentences(document, view)]
    return stack(
        title,
        curves(series, view, x_name="n", marked_x=float(document.n)),
        *(remark(text, view) for text in texts),
    )


def _crossing_sentences(document: CostDocument, view: View) -> Iterator[str]:
    """Yield from which length on the pairs of full attention take more than the matrices of a
    recurrent network, what its projections do to that, and that it takes one step."""
    n, width = _break_even_length(document)
    yield say(
        view,
        "From n = {n} on, full attention's work on pairs (it grows as n²·d) takes more "
        "multiply-adds than the matrices of a recurrent network of width {width} (n·d²).",
        n=n,
        width=width,
    )
    recurrent = 2 * document.n * document.d_model**2  # multiply-adds of its two matrices
    # both grow as n: what holds at this n holds at every other
    if document.projections >= recurrent:
        yield say(view, "With its projections, left out here, attention takes more at every n.")
    yield say(
        view,
        "But attention computes all tokens at once, where the network takes n steps one after the "
        "other.",
    )


def _break_even_length(document: CostDocument) -> tuple[str, str]:
    """The length from which the pairs of full attention cost more than a recurrent network, and
    d_model, as texts.

    That is where n·heads·(d_k + d_v) > 2·d_model².
    """
    per_token = document.heads * (document.d_k + document.d_v)
    return f"{2 * document.d_model**2 // per_token + 1:,}", f"{document.d_model:,}"


def _layers(document: CostDocument, view: View) -> Lines:
    """A table of what a model's layers cost, a row for each run of layers that cost the same, and
    the total; no lines where no model was named."""
    rows: list[list[str]] = []
    layers = document.layers
    if not layers:
        return Lines()
    first = 0  # of the layers that share the next row
    for index, layer in enumerate(layers):
        if index + 1 < len(layers) and _costs_alike(layer, layers[index + 1]):
            continue  # the next layer belongs to the same row
        if first == index:
            place = f"{first}"
        else:
            place = f"{first}–{index}"
        rows.append([spell(place, ascii=view.ascii), layer.mask, *_layer_cells(layer, view)])
        first = index + 1
    if document.total is not None:
        rows.append([say(view, "total"), "", *_layer_cells(document.total, view)])
    by_rows = contextual("cost", "by rows")
    columns = say_each(
        view, "layers", "mask", "multiply-adds", "projections", "at once", by_rows, "cache"
    )
    name = ""
    if document.model is not None:
        name = document.model.name or document.model.source
    title = say(view, "attention of {model} by layer", model=name)
    align = ["left", "left", *["right"] * 5]
    meanings = message(
        "Scores are held one layer at a time, so the total shows the largest. cache: keys "
        "and values kept while generating."
    )
    body = table(
        columns, rows, view, align=align, title=title, note="feed-forward parts not counted"
    )
    return stack(body, remark(meanings, view))


def _layer_cells(layer: LayerCost | TotalCost, view: View) -> list[str]:
    """A layer's operations and bytes, or those of all layers, as the last five cells of a row."""
    return [
        _count_text(layer.multiply_adds, view),
        _count_text(layer.projections, view),
        *(size_words(getattr(layer, f"{name}_bytes")) for name in ("score", "streamed", "cache")),
    ]


def _measured_times(document: CostDocument, view: View) -> Lines:
    """The times measured on this machine, with their ratios to full attention; nothing where none
    were.
    """
    timings = document.measured
    if not timings:
        return Lines()
    longest = max(row.seconds for row in timings)
    room = max(min(view.width - 62, 24), 0)  # for bars: the other columns take 62 cells
    rows = [
        [
            row.backend,
            variant_name(row.name, view),
            _duration_text(row.seconds),
            f"{row.ratio:.3g}" + spell("×", ascii=view.ascii),
            f"{row.computed:.3g}" + spell("×", ascii=view.ascii),
            bar(row.seconds / longest, room, ascii=view.ascii),
        ]
        for row in timings
    ]
    columns = [
        *say_each(view, "backend", "variant", "time", "measured", contextual("cost", "computed")),
        "",
    ]
    align = ["left", "left", *["right"] * 3, "left"]
    note = message("median; ratios to full on the same backend")
    meanings = message(
        "computed: the same ratio of multiply-adds. streamed, causal and window run by "
        "blocks of query rows and keep nothing n × n. numpy uses one thread "
        "(OPENBLAS_NUM_THREADS changes that), torch its own."
    )
    body = table(
        columns,
        rows,
        view,
        align=align,
        title="measured on this machine",
        note=note,
        bars=5,  # the sixth column
    )
    return stack(body, remark(meanings, view))


def _count_text(value: int, view: View) -> str:
    """A whole number with separators; in scientific notation where it is too large, or the screen
    too narrow, to be read so."""
    longest = 10**6
    if view.width >= ROOMY:
        longest = 10**10
    if value < longest:
        return f"{value:,}"
    return f"{value:.2e}"


def _steps_text(value: int) -> str:
    """A number of steps with separators; in scientific notation from 10⁸ on."""
    if value < 10**8:
        return f"{value:,}"
    return f"{value:.2e}"


def _duration_text(seconds: float) -> str:
    """A time as written, such as "1.25 s" or, below a second, "12.50 ms"."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.2f} ms"


def _costs_alike(layer: LayerCost, second: LayerCost) -> bool:
    """Whether two layers are equal in all that the table shows: mask, sizes and cost, but for their
    numbers."""
    return dict(members(replace(layer, layer=second.layer))) == dict(members(second))


COST_PARTS: Parts[CostDocument] = (
    ScreenPart("variants", _variants),
    ScreenPart("memory", _memory),
    ScreenPart("growth", _growth),
    ScreenPart("layers", _layers),
    ScreenPart("measured", _measured_times),
    ScreenPart("answer", cost_answer),
)
