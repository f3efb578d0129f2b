"""The screen of `attn.circuit/1`: the curve over sizes, the parts, the strongest edges, the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from attncli.draw.lines import Lines, fit_to_view, heading, remark, sentences, stack, stack_spaced
from attncli.draw.numbers import bar, format_signed, percent
from attncli.draw.safe import label
from attncli.draw.screen_header import warning
from attncli.draw.sentence import not_learned_note
from attncli.draw.tables import table
from attncli.draw.view import View
from attncli.features.circuit.circuit_words import (
    DIGITS,
    kept_text,
    looks_like,
    loss_sentence,
    share_text,
)
from attncli.features.circuit.document import (
    CircuitCompareDocument,
    CircuitDocument,
    CircuitNode,
    CircuitSide,
    CircuitSize,
    EdgeCut,
    Overlap,
)
from attncli.features.effects.difference_answer import MOVES, WRITES
from attncli.features.effects.document import Difference
from attncli.inputs.token import bytes_name
from attncli.language import Message, contextual, message, plural, say
from attncli.measure.mean_intervals import FEWEST

SHOWN = 10
"""Parts and edges that are listed, unless the view is full."""
STABLE = 0.8
"""Overlap of circuits from redrawn pairs from which on single edges may be quoted."""
LEAST = 0.05
"""Logits; a head that changes the difference by less does hardly anything by itself."""
BAR = 12


def circuit_screen(document: CircuitDocument, view: View) -> Lines:
    """The screen of a circuit: what circuits of each size keep, its parts, its heads, its strongest
    edges, and the answer in words; in a brief view the answer alone."""
    answer = sentences(circuit_sentences(document, view), view)
    if view.brief:
        return fit_to_view(answer, view)
    name = label(document.pairs.name, ascii=view.ascii)
    model = label(document.model.name or document.model.source, ascii=view.ascii)
    top = stack(heading(name, model, view), *(warning(text, view) for text in document.warnings))
    body = (
        _curve_table(document, view),
        _node_table(document, view),
        _head_table(document, view),
        _edge_table(document, view),
    )
    return fit_to_view(stack_spaced(top, *body, answer), view)


PLAIN_COLUMNS = (
    "what",
    "from",
    "to",
    "reads",
    "value",
    "low",
    "high",
    "random",
    "exact",
    "edges",
    "held",
    "moved",
    "labels",
)


def circuit_rows(document: CircuitDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each size of circuit,
    for the chosen one, for its heads and edges, and for each edge that was cut alone.
    """
    yield PLAIN_COLUMNS
    for cells in _plain_cells(document):
        yield [cells.get(column) for column in PLAIN_COLUMNS]


def _plain_cells(document: CircuitDocument) -> Iterator[dict[str, object]]:
    """Yield the cells of each row of `--plain` by the name of their column."""
    for size in document.curve:
        yield {"what": "size", **_size_cells(size), "edges": size.edges}
    chosen = document.chosen
    yield {"what": "chosen", **_size_cells(chosen), "edges": chosen.edges}
    for node in document.nodes:
        change = node.difference
        if change is UNSET:
            continue
        yield {
            "what": "head",
            "from": node.id,
            "to": node.writes,
            "value": change.all,
            "held": _number_or_none(change.writes),
            "moved": _number_or_none(change.moved),
            "labels": ",".join(node.labels or ()),
        }
    for edge in document.edges:
        yield {
            "what": "edge",
            "from": edge.writer,
            "to": edge.to,
            "reads": edge.reads,
            "value": edge.score,
        }
    for cut in document.cuts.edges:
        yield {
            "what": "cut",
            "from": cut.writer,
            "to": cut.to,
            "reads": cut.reads,
            "value": cut.score,
            "exact": cut.exact,
        }


def _number_or_none(value: float | UnsetType | None) -> float | None:
    """A number of a document as a cell of `--plain`: None where the document does not have it."""
    if value is UNSET:
        return None
    return value


def _size_cells(size: CircuitSize) -> dict[str, object]:
    """The cells of `--plain` on a circuit's size: the share of the effect that it keeps, the ends of
    its interval, and the share that as many random edges keep."""
    return {
        "value": size.faithfulness,
        "low": size.low,
        "high": size.high,
        "random": size.random,
    }


def _curve_table(document: CircuitDocument, view: View) -> Lines:
    """A row for each size of circuit: how many edges, the share of the effect that they keep with its
    interval, and the share that as many random edges keep. The chosen size stands out."""
    rows = [
        [
            percent(size.share),
            f"{size.edges:,}",
            kept_text(size),
            bar(size.faithfulness, BAR, ascii=view.ascii),
            share_text(size.random),
        ]
        for size in document.curve
    ]
    names = [
        message("share"),
        message("edges"),
        message("keeps"),
        "",
        message("random edges"),
    ]
    # the row of the chosen size; a size that was asked for may be none of the curve's
    places = [place for place, size in enumerate(document.curve) if size == document.chosen]
    title = message("what the strongest edges keep of the difference, on held-out pairs")
    return table(
        names,
        rows,
        view,
        align=["right", "right", "right", "left", "right"],
        title=title,
        bars=3,  # the column of the bars
        strong=places[0] if places else None,
    )


def circuit_page(document: CircuitDocument, lang: str) -> bytes | None:
    """The page of the graph over all sizes; None for a document that does not hold them."""
    from attncli.features.circuit.page import circuit_page_bytes

    return circuit_page_bytes(document, lang)


def _node_table(document: CircuitDocument, view: View) -> Lines:
    """The strongest parts of the circuit in the order of the model: what they read most from, and
    write most to."""
    parts = [node for node in document.nodes if node.kind != "logits"]
    shown = parts
    if not view.full:
        strongest = sorted(parts, key=lambda node: -node.strength)[:SHOWN]
        shown = [node for node in parts if node in strongest]
    rows = [_node_cells(node) for node in shown]
    names = [
        message("part"),
        message("reads most from"),
        message("writes most to"),
        message("Σ |score|"),
    ]
    title = message("the strongest parts of the circuit; H is a head, MLP a feed-forward part")
    if any("KV" in cell for row in rows for cell in row):
        title = message(
            "the strongest parts of the circuit; H is a head, KV a key-value head that several heads"
            " share, MLP a feed-forward part"
        )
    body = table(names, rows, view, align=["left", "left", "left", "right"], title=title)
    return stack(body, _hidden_rows_remark(len(parts) - len(shown), view))


def _node_cells(node: CircuitNode) -> list[str]:
    """The cells of a part's row: its name, what it reads most from, what it writes most to, and its
    strength."""
    return [node.id, node.reads or "", node.writes or "", f"{node.strength:.{DIGITS}f}"]


def _head_table(document: CircuitDocument, view: View) -> Lines:
    """The heads of the circuit that change the difference most: what their attention looks like, and
    whether they write to the answer or move where later heads look."""
    heads = _ranked_heads(document)
    if not heads:
        return Lines(())
    shown = heads
    if not view.full:
        shown = heads[:SHOWN]
    rows = [_head_cells(node, change, view) for node, change in shown]
    names = [
        message("head"),
        message("loses"),
        message("held"),
        message("moved"),
        message("acts by"),
        message("looks like"),
    ]
    title = message("heads with their values of the corrupt text: what the logit difference loses")
    # a document whose heads were measured says on how many pairs: `or 0` is for the type alone
    note = say(view, "{pairs} pairs", pairs=document.role_pairs or 0)
    align = ["left", "right", "right", "right", "left", "left"]
    meaning = message(
        "held: with attention as it was, by what the head writes; moved: the rest, by moving where"
        " later heads look"
    )
    body = table(names, rows, view, align=align, title=title, note=note)
    by_rule = ""
    if any(not node.labels and node.rule is not UNSET for node, _ in shown):
        by_rule = message(
            "a number before what it looks like: the part of the strongest rule (attn explain rule)"
        )
    remarks = (remark(meaning, view), remark(by_rule, view))
    return stack(body, *remarks, _hidden_rows_remark(len(heads) - len(shown), view))


def _ranked_heads(document: CircuitDocument) -> list[tuple[CircuitNode, Difference]]:
    """The heads of the circuit whose loss was measured, with it, the largest first."""
    heads = [
        (node, node.difference)
        for node in document.nodes
        if node.difference is not UNSET and node.difference.all is not None
    ]
    # `or 0.0` is for the type alone: each of these has a loss
    return sorted(heads, key=lambda pair: -abs(pair[1].all or 0.0))


def _head_cells(node: CircuitNode, change: Difference, view: View) -> list[str]:
    """The cells of a head's row: its name, what is lost without its values (in all, by what it
    writes, by moving attention), how it acts, and what its attention looks like."""
    numbers = [
        format_signed(value or 0.0, DIGITS) for value in (change.all, change.writes, change.moved)
    ]
    return [node.id, *numbers, say(view, acts_by(change)), looks_like(node, view)]


def acts_by(change: Difference) -> Message:
    """Whether a head acts by moving (where later heads look) or by writing, judged by the bounds of
    `attn ablate --hold attention`."""
    # a loss that is not known counts as none; from here on it is `LEAST` or more, and not None
    if abs(change.all or 0.0) < LEAST:
        return message("hardly")
    # the share of the loss that comes by what the head writes; all of it is 1, and as far above 1 as
    # `WRITES` is below still counts as writing
    share = (change.writes or 0.0) / (change.all or 1.0)
    if abs(share) <= MOVES:
        return message("moving")
    if WRITES <= share <= 2 - WRITES:
        return message("writing")
    return message("both")


def _edge_table(document: CircuitDocument, view: View) -> Lines:
    """A row for each of the strongest edges: what the logit difference changes by when it alone is
    cut, as estimated and by an exact run."""
    cuts = document.cuts.edges
    shown = cuts
    if not view.full:
        shown = cuts[:SHOWN]
    rows = [
        [
            cut.writer,
            cut.to,
            cut.reads,
            format_signed(cut.score, DIGITS),
            format_signed(cut.exact, DIGITS),
            *_strongest_position(document, cut, view),
        ]
        for cut in shown
    ]
    names = [
        message("from"),
        message("to"),
        message("reads"),
        message("estimated"),
        message("exact"),
    ]
    align = ["left", "left", "left", "right", "right"]
    if document.tokens is not UNSET:
        names.append(message("most at"))
        align.append("left")
    title = message("the strongest edges, cut one at a time: change of the logit difference")
    note = say(view, "{pairs} pairs", pairs=document.cuts.pairs)
    body = table(names, rows, view, align=align, title=title, note=note)
    places = ""
    if document.tokens is not UNSET:
        places = message("most at: the place, and the token that the first clean text has there")
    return stack(
        body,
        remark(places, view),
        remark(_caution(document) or "", view),
        _hidden_rows_remark(len(cuts) - len(shown), view),
    )


def _strongest_position(document: CircuitDocument, edge: EdgeCut, view: View) -> Iterator[str]:
    """Yield the cell that names the token at which an edge's |score| is largest, such as "#3 animal";
    nothing without scores by token.
    """
    if document.tokens is UNSET or edge.positions is UNSET:
        return
    sizes = [abs(score) for score in edge.positions]
    place = sizes.index(max(sizes))
    yield f"#{place} {label(bytes_name(document.tokens[place]), ascii=view.ascii)}"


def _caution(document: CircuitDocument) -> Message | None:
    """The warning that other pairs of texts would give other edges; None where they would not."""
    if document.stability is None:
        return message("One pair chose these edges: do not quote single ones.")
    if document.stability < STABLE:
        return message("Other pairs choose other edges: do not quote single ones.")
    return None


def _hidden_rows_remark(count: int, view: View) -> Lines:
    """The remark that `count` rows are not shown; no lines for 0."""
    if count <= 0:
        return remark("", view)
    return remark(message("{count} more; --full shows all", count=f"{count:,}"), view)


UNSTEADY = 0.1
"""By how much less a larger circuit keeps where it is said that more edges do not keep more."""


def _weaker_larger_size(document: CircuitDocument) -> CircuitSize | None:
    """The size above the chosen one that keeps least of the difference; None where each keeps about
    as much as the chosen one, or as the whole."""
    larger = [size for size in document.curve if size.edges > document.chosen.edges]
    bound = min(document.chosen.faithfulness, 1) - UNSTEADY
    weaker = [size for size in larger if size.faithfulness < bound]
    return min(weaker, key=lambda size: size.faithfulness, default=None)


def circuit_sentences(document: CircuitDocument, view: View) -> Iterator[str]:
    """Yield the answer in words: what the circuit keeps on held-out pairs, how its size was chosen,
    how stable it is, its strongest head, how well estimates agree with exact cuts, the logit
    differences that all this explains, and the areas of the curve."""
    chosen = document.chosen
    kept = plural(
        "{edges} of {all} edges ({share}) keep {kept} of the difference between clean and corrupt"
        " texts on {count} held-out pair; as many random edges keep {random}.",
        "{edges} of {all} edges ({share}) keep {kept} of the difference between clean and corrupt"
        " texts on {count} held-out pairs; as many random edges keep {random}.",
        count=document.pairs.held_out,
        edges=f"{chosen.edges:,}",
        all=f"{document.graph_edges:,}",
        share=percent(chosen.share),
        kept=kept_text(chosen),
        random=share_text(chosen.random),
    )
    yield say(view, kept)
    if document.pairs.held_out < FEWEST:  # 20
        yield say(view, "Below 20 held-out pairs there is no interval.")
    if document.chosen_by == "keeps":
        size = plural(
            "It is the smallest of {sizes} sizes that keeps 80% on the {count} pair that edges were"
            " chosen on.",
            "It is the smallest of {sizes} sizes that keeps 80% on the {count} pairs that edges"
            " were chosen on.",
            count=document.pairs.choice,
            sizes=len(document.curve),
        )
        yield say(view, size)
    weaker = _weaker_larger_size(document)
    if weaker is not None:
        yield say(
            view,
            "More edges do not always keep more: {edges} ({share}) keep {kept}.",
            edges=f"{weaker.edges:,}",
            share=percent(weaker.share),
            kept=kept_text(weaker),
        )
    if document.stability is not None:
        yield say(
            view,
            "Two circuits of this size from pairs drawn again share {overlap} of the edges that"
            " either has.",
            overlap=percent(document.stability),
        )
    caution = _caution(document)
    if caution is not None:
        yield say(view, caution)
    yield from _head_sentence(document, view)
    if document.cuts.correlation is not None:
        yield say(
            view,
            "Of the {edges} strongest edges, estimates and exact cuts correlate by {value}.",
            edges=len(document.cuts.edges),
            value=f"{document.cuts.correlation:.2f}",
        )
    yield say(
        view,
        "The logit difference is {clean} after clean texts and {corrupt} after corrupt ones; it is"
        " above 0 after {right} of the clean ones.",
        clean=format_signed(document.measure.clean, DIGITS),
        corrupt=format_signed(document.measure.corrupt, DIGITS),
        right=percent(document.measure.right),
    )
    yield say(
        view,
        "All edges keep {all}, none {none}. The curve of what each share of the edges keeps has an"
        " area of {cpr} below it (CPR), and of {cmd} between it and 1 (CMD).",
        all=f"{document.all:.4f}",
        none=f"{abs(document.none):.4f}",
        cpr=f"{document.cpr:.3f}",
        cmd=f"{document.cmd:.3f}",
    )
    yield not_learned_note(document.model, view)


def _head_sentence(document: CircuitDocument, view: View) -> Iterator[str]:
    """Yield the sentence on the head whose loss is largest; nothing where none was measured."""
    for node, change in _ranked_heads(document)[:1]:
        yield loss_sentence(node, change, view)


# The screen of `attn.circuit_compare/1`: what two circuits share.


def circuit_compare_screen(document: CircuitCompareDocument, view: View) -> Lines:
    """The screen of two circuits: what each is, what they share, and the answer in words; in a brief
    view the answer alone."""
    answer = sentences(circuit_compare_sentences(document, view), view)
    if view.brief:
        return fit_to_view(answer, view)
    warnings = [warning(text, view) for text in document.warnings]
    parts = (_side_table(document, view), _overlap_table(document, view))
    return fit_to_view(stack_spaced(*warnings, *parts, _only_lines(document, view), answer), view)


def circuit_compare_rows(document: CircuitCompareDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`: the names of its columns, what both circuits share, how stable
    each is, and the heads that one alone has."""
    yield ("what", "name", "both", "either", "share")
    for name, overlap in (("edges", document.edges), ("heads", document.heads)):
        yield (name, None, overlap.both, overlap.either, overlap.share)
    for name, side in (("a", document.a), ("b", document.b)):
        yield (f"stability {name}", side.name, None, None, side.stability)
    yield ("chance", None, None, None, document.chance)
    yield ("correlation", None, None, None, document.correlation)
    for name, heads in (("only_a", document.only_a), ("only_b", document.only_b)):
        for head in heads:
            yield (name, head, None, None, None)


def _side_table(document: CircuitCompareDocument, view: View) -> Lines:
    """A row for each of the two circuits: its file, model, pairs, seed, edges and stability."""
    rows = [
        [
            label(side.name, ascii=view.ascii),
            label(side.model, ascii=view.ascii),
            label(side.pairs, ascii=view.ascii),
            str(side.seed),
            f"{side.edges:,}",
            _stability_text(side),
        ]
        for side in (document.a, document.b)
    ]
    names = [
        message("circuit"),
        message("model"),
        message("file of pairs"),
        message("seed"),
        message("edges"),
        message("drawn again"),
    ]
    align = ["left", "left", "left", "right", "right", "right"]
    note = message("drawn again: what circuits from pairs drawn again share of their edges")
    return stack(table(names, rows, view, align=align), remark(note, view))


def _stability_text(side: CircuitSide) -> str:
    """How much circuits from pairs drawn again overlap with each other, in percent; a dash where
    that is not known."""
    if side.stability is None:
        return "-"
    return percent(side.stability)


def _overlap_table(document: CircuitCompareDocument, view: View) -> Lines:
    """A table of the edges and heads that two circuits share."""
    rows = [
        [say(view, name), f"{part.both:,}", f"{part.either:,}", overlap_text(part)]
        for name, part in ((message("edges"), document.edges), (message("heads"), document.heads))
    ]
    names = ["", message("in both"), message("in either"), message("share")]
    title = plural(
        "the {count} strongest edge of each",
        "the {count} strongest edges of each",
        count=document.size,
    )
    return table(names, rows, view, align=["left", "right", "right", "right"], title=title)


def overlap_text(overlap: Overlap) -> str:
    """The share of two sets that both have; a dash where neither has anything."""
    if overlap.share is None:
        return "-"
    return percent(overlap.share)


def _only_lines(document: CircuitCompareDocument, view: View) -> Lines:
    """For each circuit a line with the heads that it has and the other has not, at most `SHOWN`
    unless the view is full; no line for none."""
    between = say(view, contextual("between", ", "))
    lines = []
    for side, heads in ((document.a, document.only_a), (document.b, document.only_b)):
        if view.full:
            shown = heads
        else:
            shown = heads[:SHOWN]
        if not shown:
            continue
        names = between.join(shown)
        if len(shown) < len(heads):
            names += between + "…"
        text = message(
            "heads of {name} alone: {heads}",
            name=label(side.name, ascii=view.ascii),
            heads=names,
        )
        lines.append(remark(text, view))
    return stack(*lines)


ALIKE_SIZE = 1.25
"""How many times as many edges a circuit may have whose overlaps with others are set beside these:
larger circuits overlap by more."""


def circuit_compare_sentences(document: CircuitCompareDocument, view: View) -> Iterator[str]:
    """Yield the answer in words: how much of their edges and heads two circuits share, beside what
    circuits from other pairs, and edges drawn at random, would share."""
    edges, heads = document.edges.share, document.heads.share
    if edges is None or heads is None:
        yield say(
            view,
            "Of their {size} strongest edges the two circuits share {edges} of those that either"
            " has; no head writes to them.",
            size=f"{document.size:,}",
            edges=overlap_text(document.edges),
        )
    else:
        yield say(
            view,
            "Of their {size} strongest edges the two circuits share {edges} of those that either"
            " has; of the heads that write to them, {heads}.",
            size=f"{document.size:,}",
            edges=percent(edges),
            heads=percent(heads),
        )
    # how much circuits of a side from pairs drawn again overlap is set beside this overlap where they
    # have about as many edges as are compared here
    sides = [side for side in (document.a, document.b) if side.stability is not None]
    stabilities = [
        side.stability
        for side in sides
        if side.stability is not None and side.edges <= ALIKE_SIZE * document.size
    ]
    if stabilities and edges is not None:
        yield say(view, _beside_stability(edges, min(stabilities), max(stabilities)))
    elif sides and edges is not None:
        # as many edges are compared as the smaller circuit has, so `sides` is the larger one alone
        yield say(
            view,
            "What circuits from pairs drawn again share is known of {edges} edges: it says nothing"
            " of {size}.",
            edges=f"{sides[0].edges:,}",
            size=f"{document.size:,}",
        )
    yield say(view, "Drawn at random, they would share {chance}.", chance=percent(document.chance))
    if document.correlation is not None:
        yield say(
            view,
            "Over the edges of both, the ranks of their scores correlate by {value}.",
            value=f"{document.correlation:.2f}",
        )


def _beside_stability(share: float, low: float, high: float) -> Message:
    """The sentence that compares the overlap of two circuits with how much circuits of the same kind
    overlap when their pairs are drawn again.

    share: of the two circuits.
    low, high: of circuits from pairs drawn again.
    """
    places = {"low": percent(low), "high": percent(high)}
    if share < low:
        return message(
            "Circuits from pairs drawn again share {low} to {high}: these two differ by more than"
            " that.",
            **places,
        )
    return message(
        "Circuits from pairs drawn again share {low} to {high}: these two differ by no more than"
        " other pairs would make.",
        **places,
    )
