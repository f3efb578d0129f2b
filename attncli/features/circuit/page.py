"""The page of `attn circuit`: the graph of each size, with a slider over the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from attncli.draw.numbers import percent
from attncli.draw.page.document_page import (
    answer_part,
    language_section,
    screen_part,
    table_part,
    without_places,
)
from attncli.draw.page.page_frame import as_json, page_head, page_script, page_style
from attncli.draw.page.page_words import words_by_language
from attncli.draw.safe import label, safe, safe_html
from attncli.draw.view import View
from attncli.features.circuit.circuit_words import (
    kept_text,
    looks_like,
    loss_sentence,
    share_text,
)
from attncli.features.circuit.document import (
    CircuitDocument,
    CircuitGraph,
    CircuitNode,
    CircuitSize,
    EdgeCut,
    SizedEdge,
    SizedNode,
)
from attncli.language import Message, contextual, languages, message, plural, say
from attncli.mechanism.spec import spoken_head

SKELETON = """\
<body>
<header><h1>attn circuit</h1><p id="line">{line}</p><button class="link" type="button" id="language"></button></header>
<main>
<div class="reading">
{answers}
</div>
<section class="reading">
<label for="size" data-word="size"></label>
<input type="range" id="size" min="0" step="1">
<div id="curve"></div>
<p id="keeps" aria-live="polite"></p>
</section>
<section class="all">
<p id="drawn"></p>
<p id="signs"><b data-word="for"></b><b data-word="against"></b></p>
<div id="graph" role="region" tabindex="0" aria-labelledby="drawn"><div id="picture"></div></div>
<p id="edge" aria-live="polite"></p>
</section>
<section class="detail">
<h2 id="chosen"></h2>
<div id="list"></div>
</section>
<div class="reading">
<details><summary data-word="screen"></summary>
{screens}
</details>
{table}
</div>
</main>
<footer><span>attn {version}</span></footer>
<script type="application/json" id="meta">{meta}</script>
<script>{script}</script>
</body>
</html>
"""
WIDTH = 100
"""Cells of a screen on a page."""
LISTED = 20
"""Edges of a list beside the graph."""

SCRIPTS, SHEETS = ("numbers", "dom", "files", "table", "circuit"), ("document", "circuit")
"""The modules of the page's script, and its style sheets behind that of every page."""


def page_words(document: CircuitDocument) -> dict[str, Message]:
    """The sentences of the page by the names that its script uses; numbers in braces are filled in
    by the script."""
    return {
        "size": message("size of the circuit"),
        "curve": message(
            "what circuits keep, from small to large: the line, its interval as a band; broken: as"
            " many random edges"
        ),
        "keeps": message(
            "{edges} of {all} edges ({share}) keep {kept} of the difference on held-out pairs; as"
            " many random edges keep {random}.",
            edges="{0}",
            all=f"{document.graph_edges:,}",
            share="{1}",
            kept="{2}",
            random="{3}",
        ),
        "drawn": message(
            "The {drawn} strongest of {live} edges through which something flows, between {parts} of"
            " the {all} parts that carry something.",
            drawn="{0}",
            live="{1}",
            parts="{2}",
            all="{3}",
        ),
        "graph": message("parts of the model, layers upward; arrow keys go from part to part"),
        "for": message("speaks for the answer"),
        "against": message("speaks against the answer"),
        "hint": message("Point at an edge or a part, or go to it with Tab and the arrow keys."),
        "all": message("the strongest edges of this size"),
        "into": message("it reads from"),
        "out": message("it writes to"),
        "columns": message("estimated, and by an exact cut where there is one"),
        **SIDES,
        "estimated": plural(
            "estimated {score} over {count} pair",
            "estimated {score} over {count} pairs",
            count=document.pairs.choice,
            score="{0}",
        ),
        "exact": plural(
            "cut alone on {count} pair: {exact}, estimated on it {score}",
            "cut alone on {count} pairs: {exact}, estimated on them {score}",
            count=document.cuts.pairs,
            exact="{0}",
            score="{1}",
        ),
        "uncut": plural(
            "not cut alone; {count} edge is",
            "not cut alone; {count} edges are",
            count=len(document.cuts.edges),
        ),
    }


SIDES = {
    "q": message("query"),
    "k": message("key"),
    "v": message("value"),
    "mlp": contextual("what a feed-forward part reads", "input"),
    "logits": message("logits"),
}
"""What reads an edge, by the name that the document has for it."""


def circuit_page_bytes(document: CircuitDocument, lang: str) -> bytes | None:
    """The HTML page of a circuit, in UTF-8: its graph, whose size the reader chooses. Sentences stand
    in it in all languages; `lang` is the one shown first. None for a document that was saved without
    the circuits of all sizes."""
    from attncli.version import __version__

    if document.graph is UNSET:
        return None
    document = without_places(document)
    name = label(document.model.name or document.model.source)
    line = f"{label(document.pairs.name)} · {name}"
    table, beside_table = table_part(document)
    meta = {
        "lang": lang,
        "name": "circuit",
        "words": words_by_language({**page_words(document), **beside_table}),
        **_graph_members(document),
    }
    code = page_script(*SCRIPTS)
    views = [View(lang=spoken, width=WIDTH) for spoken in languages()]
    answers = [language_section(view.lang, lang, answer_part(document, view)) for view in views]
    screens = [language_section(view.lang, lang, screen_part(document, view)) for view in views]
    body = SKELETON.format(
        line=safe_html(line[:400]),  # a heading: names of files may be longer
        answers="\n".join(answers),
        screens="\n".join(screens),
        table=table,
        version=__version__,
        meta=as_json(meta),
        script=code,
    )
    head = page_head(lang, " · ".join(("attn circuit", line)), code, page_style(*SHEETS))
    return (head + body).encode()


def _graph_members(document: CircuitDocument) -> dict[str, Any]:
    """What the page's script draws, by the names that it uses: circuits of each size, the parts of
    the model, and the edges, each with the smallest size that contains it."""
    graph = document.graph
    assert graph is not UNSET
    sizes = {size.edges: size for size in (*document.curve, document.chosen)}
    by_edges = sorted(sizes)
    exact = {(cut.writer, cut.to, cut.reads): cut for cut in document.cuts.edges}
    names = {node.id for node in graph.nodes}
    # edges between parts that are drawn
    entries = []
    for edge in graph.edges:
        ends = _ends(document, edge) & names
        if edge.writer in names and ends:
            cut = exact.get((edge.writer, edge.to, edge.reads))
            entries.append(_edge_entry(edge, ends, cut))
    return {
        "sizes": [_size_entry(sizes[edges], graph) for edges in by_edges],
        "start": by_edges.index(document.chosen.edges),
        "range": _range(list(sizes.values())),
        "most": graph.most,
        "listed": LISTED,
        "columns": document.model.heads + 1,
        "nodes": {node.id: _node_entry(node, document.model.heads) for node in graph.nodes},
        "edges": entries,
        "roles": {safe(node.id): _role(node) for node in document.nodes if node.kind == "head"},
    }


def _size_entry(size: CircuitSize, graph: CircuitGraph) -> dict[str, Any]:
    """The entry of a circuit's size for the page's script: the values of its curve as numbers, and
    what its sentence says as text written as on the screen."""
    carrying = sum(node.least <= size.edges for node in graph.nodes)
    return {
        "edges": size.edges,
        "live": f"{size.live:,}",
        "carrying": f"{carrying:,}",
        "said": [
            f"{size.edges:,}",
            percent(size.share),
            kept_text(size),
            share_text(size.random),
        ],
        "keeps": size.faithfulness,
        "low": size.low,
        "high": size.high,
        "random": size.random,
    }


def _node_entry(node: SizedNode, heads: int) -> dict[str, Any]:
    """The entry of a circuit's node for the page's script: `least`, the smallest size it belongs
    to; `layer`, and `column`, the middle of its column; `up`, whether it stands above the heads of
    its layer, or above all layers; `text`, the label of its box; and its name by language."""
    # L5H3 becomes "5", "H", "3"; all others have no "H"
    layer, letter, number = node.id.removeprefix("L").partition("H")
    # a column for each head and one for feed-forward parts; all else stands in the middle
    entry: dict[str, Any] = {"least": node.least, "layer": None, "column": (heads + 1) / 2}
    if letter:
        name = spoken_head(layer, number)
        entry |= {"text": number, "layer": int(layer), "column": int(number) + 0.5, "up": False}
    elif node.id.endswith("MLP"):
        layer = layer.removesuffix("MLP")
        name = message("layer {layer} MLP, a feed-forward part", layer=layer)
        entry |= {"text": "MLP", "layer": int(layer), "column": heads + 0.5, "up": True}
    elif node.id == "logits":
        name = message("logits")
        entry |= {"text": "logits", "up": True}
    else:
        name = message("embed, the embedding")
        entry |= {"text": "embed", "up": False}
    return entry | {lang: say(View(lang=lang), name) for lang in languages()}


def _edge_entry(edge: SizedEdge, ends: set[str], cut: EdgeCut | None) -> dict[str, Any]:
    """The entry of an edge for the page's script: where it is drawn, its score over the pairs of the
    choice, and of one that was cut alone the exact change and the score on the same pairs.

    ends: the ids of the parts that read it.
    cut: the cut of this edge alone; None where there was none.
    """
    entry: dict[str, Any] = {
        "from": edge.writer,
        "to": edge.to,
        "ends": sorted(ends),
        "reads": edge.reads,
        "score": _round_number(edge.score),
        "least": edge.least,
    }
    if cut is None:
        return entry
    return entry | {"exact": _round_number(cut.exact), "alone": _round_number(cut.score)}


def _round_number(value: float) -> float:
    """A number to five significant digits, which is more than a page shows."""
    return float(f"{value:.5g}")


def _ends(document: CircuitDocument, edge: SizedEdge) -> set[str]:
    """The ids of the parts that read an edge: of shared keys and values every head of their group."""
    layer, letters, number = edge.to.partition("KV")
    if not letters:
        return {edge.to}
    # a document that was read from a file may have 0 key-value heads, or more than heads
    group = max(document.model.heads // max(document.model.kv_heads, 1), 1)
    first = int(number) * group
    return {f"{layer}H{head}" for head in range(first, first + group)}


def _role(node: CircuitNode) -> dict[str, list[str]]:
    """What the page says about a head when it is chosen: its sentences by language."""
    return {lang: _facts(node, View(lang=lang)) for lang in languages()}


def _facts(node: CircuitNode, view: View) -> list[str]:
    """The sentences on what a head's attention looks like, and on what is lost without its values;
    [] where neither is known."""
    facts = []
    looks = looks_like(node, view)
    if looks:
        facts.append(say(view, "Its attention: {labels}.", labels=safe(looks)))
    change = node.difference
    if change is UNSET or change.all is None:
        return facts
    return [*facts, safe(loss_sentence(node, change, view))]


def _range(sizes: Sequence[CircuitSize]) -> list[float]:
    """The ends of the vertical axis of the curve: the least and the largest of all values and ends of
    intervals, and at least from 0 to 1."""
    values = [0.0, 1.0]
    for size in sizes:
        # 0, which is on the axis anyway, where there is no interval
        values += [size.faithfulness, size.random, size.low or 0.0, size.high or 0.0]
    return [min(values), max(values)]
