"""The page of `attn explain`: the steps of one query's attention, formula, numbers and picture side
by side; where the page can run the model, it computes them itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.draw.command_lines import command_about
from attncli.draw.page import deflate, element
from attncli.draw.page.document_page import (
    WIDTH,
    answer_part,
    language_section,
    screen_part,
    table_part,
    without_places,
)
from attncli.draw.page.page_frame import as_json, page_head, page_script, page_style
from attncli.draw.page.page_words import words_by_language
from attncli.draw.safe import label, last_part, safe, safe_html
from attncli.draw.token_names import token_reference
from attncli.draw.tour import TOUR
from attncli.draw.view import GivenOptions, View
from attncli.features.explain.derivation_screen import (
    BIASED,
    CAPPED,
    LEADS,
    ROTATED,
    STEP_TITLES,
    UNSCALED,
    projection_formulas,
)
from attncli.features.explain.document import (
    AttentionTopic,
    OutputSum,
    Products,
    Projections,
    Scores,
    SoftmaxRow,
)
from attncli.features.explain.page_model import PageModel, page_model
from attncli.language import Message, contextual, languages, message
from attncli.measure.rest import resting_keys
from attncli.mechanism.spec import head_name
from attncli.models.model import Model

SKELETON = """\
<body>
<header><h1>attn explain</h1><p id="line">{line}</p><button class="link" type="button" id="language"></button></header>
<main class="plain">
<p id="sentence"></p>
{answers}
<div id="says" aria-live="polite"></div>
<p id="place"></p>
<p class="note" id="why-still"></p>
{fields}
<nav id="ways"></nav>
<div id="steps"></div>
<p class="sr" id="said" aria-live="polite"></p>
<details><summary data-word="screen"></summary>
{screens}
</details>
{table}
</main>
<footer><span>attn {version}</span></footer>
<script type="application/json" id="meta">{meta}</script>
{weights}<script>{script}</script>
</body>
</html>
"""
FIELDS = """\
<section id="model">
<label class="wide"><span data-say="field.text"></span>\
<input id="text" type="text" autocomplete="off" spellcheck="false"></label>
<label id="seed-field"><span data-say="field.seed"></span><input id="seed" type="number" min="0" step="1"></label>
<label><span data-say="field.layer"></span><select id="layer"></select></label>
<label><span data-say="field.head"></span><select id="head"></select></label>
<label><span data-say="field.mask"></span><select id="mask"></select></label>
<label id="window-field"><span data-say="field.window"></span><input id="window" type="number" min="1" step="1"></label>
<label><span data-say="field.scale"></span><input id="scale" type="text" inputmode="decimal"></label>
<label><span data-say="field.heat"></span>\
<input id="heat" type="range" min="0.1" max="4" step="0.1"><output id="heat-says"></output></label>
<button class="link" type="button" id="again" data-say="again"></button>
<p id="trouble" role="alert"></p>
<p id="command"></p>
<details><summary data-say="weights"></summary>
<label><span data-say="field.matrix"></span><select id="matrix">
<option value="q">W_Q</option><option value="k">W_K</option><option value="v">W_V</option></select></label>
<label><span data-say="field.row"></span><input id="row" type="number" min="0" step="1"></label>
<label><span data-say="field.column"></span><input id="column" type="number" min="0" step="1"></label>
<label><span id="weight-name"></span><input id="value" type="number" step="any"></label>
<button class="link" type="button" id="back" data-say="back"></button>
<div id="weight-map"></div>
</details>
</section>"""
SCRIPTS = (
    "numbers",
    "dom",
    "data",
    "shades",
    "files",
    "table",
    "streams",
    "cutting",
    "layers",
    "explain",
)
SHEETS = ("document", "explain")
"""The modules of the page's script, and its style sheets behind that of every page."""
PROJECTED = "projections"
"""The step before the numbered ones."""
TEXTS = ("pair", "ids", "source", "chat_var")
"""Options whose values are texts, and no paths."""
SIGNIFICANT = 7
"""Significant digits of numbers that the page is given."""
DIGITS = 4
"""Digits after the point, as on the screen."""


class RunOptions(Struct, frozen=True):
    """The options that a run was asked for with, for commands that give a page's numbers.

    words: those of the model and of the text, as options and values; without seed, mask and scale.
    masks: what was given as masks.
    scale: what was given as the scale, None for nothing.
    run_options: all of them, for the commands of a page that does not run the model; None where they are
        not known.
    """

    words: Sequence[str] = ()
    masks: Sequence[str] = ()
    scale: str | None = None
    run_options: GivenOptions | None = None


AS_IT_IS = RunOptions()
"""A run without options."""


def page_words(title: Mapping[str, Message], *, computes: bool) -> dict[str, Message]:
    """The sentences of the page by the names that its script uses; the script fills in what stands
    in braces.

    title: the title of each step, by the step's name.
    computes: whether the page runs the model, and so shows every head.
    """
    steps = {step.name: step for step in TOUR}
    leads = {name: step.lead or step.words for name, step in steps.items()}
    leads[PROJECTED] = LEADS[PROJECTED]
    leads["heads"] = Message("", {})  # a page with stored numbers has those of one head
    if computes:
        leads["heads"] = message(
            "The same words in every head; the number is the weight of {query} on {key}. Press one"
            " to go to it."
        )
    words = {f"title.{name}": text for name, text in title.items()}
    words |= {f"lead.{name}": text for name, text in leads.items()}
    return {
        **words,
        "title.projections.short": Message("Q, K, V", {}),
        "lead.rotated": ROTATED,
        "lead.unscaled": UNSCALED,
        "lead.cap": CAPPED,
        "lead.bias": BIASED,
        "quoted": message('"{text}"'),
        "comma": contextual("between", ", "),
        "numbers": message("the numbers of this step"),
        "key": message("key"),
        "more": message("{count} more"),
        "sum": message("sum"),
        "weight": message("weight w"),
        "score": message("score s"),
        "times": message("× scale"),
        "capped": message("soft-capped"),
        "bias": message("+ bias"),
        "visible": message("visible"),
        "axes": message("queries in rows, keys in columns"),
        "axis.key": message("key →"),
        "axis.query": message("query ↓"),
        "for": message("for {key}: {work}"),
        "strips.keys": message(
            "the query and each key, entry by entry: blue above 0, orange below"
        ),
        "strips.values": message("each value times its weight, and their sum"),
        "formula.similarity": message("S = Q·Kᵀ, s = Σ q_i·k_i"),
        "formula.root": message("s = q·k × {scale} = q·k / √{root}"),
        "formula.scale": message("s = q·k × {scale}"),
        "formula.mask": message("s = −∞ where hidden"),
        "formula.softmax": message("w = exp(s − max) / sum"),
        "formula.output": message("O = A·V, o = Σ w_j·v_j"),
        "mask.nothing": message("Nothing is hidden: {query} may look at all {keys} keys."),
        "mask.hidden": message(
            "Hidden from {query}: {count} of {keys} keys, their score becomes −∞ ({names})."
        ),
        "empty": message(
            "This query sees no key: its weights and its weighted sum A·V are 0 by definition."
        ),
        "one.head": message("there are none: this model has one head"),
        "all.layers": message("the heads of the other layers, of {count} in all"),
        "effect.turn": message(
            "Without this head the last vector of {query} turns by 1 − cos = {turn}."
        ),
        "effect.none": message(
            "Without this head nothing is left of the vector: there is no angle to tell."
        ),
        "blind": message("{query} can see no word: its weights and its weighted sum A·V are 0."),
        "alone": message(
            "{query} sees {key} alone: all of its weight is there, whatever a head does."
        ),
        "alone.itself": message(
            "{query} sees nothing but itself: all of its weight is there, whatever a head does."
        ),
        "looks": message("{query} looks most at {key}: {share} of its weight."),
        "looks.itself": message("{query} looks most at itself: {share} of its weight."),
        "rests": message("{share} of the weight of {query} is on {key}."),
        "resting": message("{key} is the first token: heads rest there whatever it is."),
        "not.learned": message(
            "The weights are seeded ({seed}), not learned: the arithmetic is real, the pattern"
            " means nothing."
        ),
        "place": message("layer {layer} head {head} · query {index} {query}"),
        "arrows": message("← and → go from step to step"),
        "field.text": message("text"),
        "field.seed": message("seed"),
        "field.layer": message("layer"),
        "field.head": message("head"),
        "field.mask": message("mask"),
        "field.window": message("keys that a query sees"),
        "field.scale": message("scale"),
        "field.heat": message("temperature, which divides the scores"),
        "field.matrix": message("matrix"),
        "field.row": message("row"),
        "field.column": message("column"),
        "again": message("as at first"),
        "back": message("put the weights back"),
        "weights": message("change a single weight"),
        "weights.map": message("the matrix of this head: entries of the input in rows"),
        "mask.own": message("that of the model"),
        "mask.none": message("none"),
        "mask.causal": message("causal"),
        "mask.window": message("window"),
        "changed": message("weights changed here: {count}; no command gives these numbers"),
        "no.tokens": message("the text has no tokens"),
        "too.long": message("the text has {count} tokens, the page computes at most {most}"),
        "no.vector": message("the model has no vector for {word}; it knows: {words}"),
    }


def derivation_page(
    document: AttentionTopic,
    lang: str,
    model: Model | None = None,
    options: RunOptions = AS_IT_IS,
    precision: int = DIGITS,
) -> bytes:
    """The HTML page of a derivation, in UTF-8. Texts of the user stand in it escaped, never as HTML.

    Args:
        document: The derivation.
        lang: The language that the page begins in; it holds all.
        model: What computed the derivation; the page runs it where its script can, and shows the
            document's numbers otherwise.
        options: The options of the run, for the commands that the page shows.
        precision: Digits after the point.
    """
    from attncli.version import __version__

    # the model as the page runs it, or why the page does not run it; None without a model
    runnable: PageModel | Message | None = None
    if model is not None:
        runnable = _model_of_page(model, document)
    # the page tells no folder of this machine
    document = without_places(document)
    table, beside_table = table_part(document)
    # the first step of the tour, the sentence, is the page's answer
    titles = {step.name: step.heading or step.title for step in TOUR[1:]}
    words = {
        "formula.projections": Message(projection_formulas(document), {}),
        **page_words(
            {**titles, PROJECTED: STEP_TITLES[PROJECTED]}, computes=isinstance(runnable, PageModel)
        ),
        **beside_table,
    }

    # what the script reads; the model, or the numbers that it would compute
    meta = {
        "lang": lang,
        "words": words_by_language(words),
        "name": "explain",
        "tour": [step.name for step in TOUR[1:]],
        "start": _start(document),
        "model": None,
        "shown": None,
        "commands": {},
        "digits": precision,
        "rotated": document.rotated,
    }
    weights = b""
    if isinstance(runnable, PageModel):
        meta |= {
            "model": runnable.facts,
            "options": [safe(word) for word in options.words],
            "masks": list(options.masks),
            "scale": options.scale,
        }
        if runnable.numbers.size:
            # float32, the low byte first, as the script reads them
            weights = element("weights", deflate(runnable.numbers.astype("<f4").tobytes()))
        answers = ""  # the script writes it
        fields = FIELDS
    else:
        meta |= {
            "shown": _stored_numbers(document),
            "commands": _commands(document, options.run_options),
        }
        if runnable is not None:
            reason = message("The page does not run the model: {reason}.", reason=runnable)
            meta["reason"] = {spoken: safe(reason.translation(spoken)) for spoken in languages()}
        answers = _in_languages(
            lang, precision, lambda view: f'<div class="answer">{answer_part(document, view)}</div>'
        )
        fields = ""

    line = safe(document.text)
    title = " · ".join(part for part in ("attn explain", line) if part)
    code = page_script(*SCRIPTS)
    head = page_head(lang, title, code, page_style(*SHEETS))
    body = SKELETON.format(
        line=safe_html(line[:400]),  # a heading: the page holds the whole text elsewhere
        answers=answers,
        fields=fields,
        screens=_in_languages(lang, precision, lambda view: screen_part(document, view)),
        table=table,
        version=__version__,
        meta=as_json(meta),
        weights=weights.decode(),
        script=code,
    )
    return (head + body).encode()


def _in_languages(lang: str, precision: int, content: Callable[[View], str]) -> str:
    """Draw a part of the page in every language, joined; all but `lang` are hidden at first.

    content: draws the part for a view, whose language it takes.
    """
    return "\n".join(
        language_section(spoken, lang, content(View(lang=spoken, width=WIDTH, precision=precision)))
        for spoken in languages()
    )


def _model_of_page(model: Model, document: AttentionTopic) -> PageModel | Message:
    """The model as the page runs it, or a sentence on why the page does not run it."""
    if document.extra_keys:
        return message("it has learned keys besides the text's")
    # without a text the page has nothing to cut into tokens
    if not document.text:
        return message("the tokens are not those of the text alone")
    runnable = page_model(model)
    if not isinstance(runnable, PageModel):
        return runnable
    # the page cuts the text itself, and must get the same tokens
    texts = [token.text for token in document.tokens]
    if [token.text for token in model.encode(document.text)] != texts:
        return message("the tokens are not those of the text alone")
    return runnable


def _start(document: AttentionTopic) -> dict[str, Any]:
    """What the page's fields show at first: the text, layer, head and query of the derivation, the
    model's own mask and scale, and the temperature 1 ("heat"); a window, once it is chosen, begins
    with 3 keys."""
    return {
        "text": document.text,
        "layer": document.layer,
        "head": document.head,
        "query": document.query,
        "mask": "own",
        "window": 3,
        "scale": None,
        "heat": 1,
    }


def _round_numbers(numbers: Any) -> Any:
    """Numbers of any shape as lists, to as many digits as a page shows; None where there are none."""
    if numbers is None:
        return None
    array = np.asarray(numbers, np.float64)
    flat = [float(f"{value:.{SIGNIFICANT}g}") for value in array.reshape(-1).tolist()]
    return np.asarray(flat).reshape(array.shape).tolist()


def _stored_numbers(document: AttentionTopic) -> dict[str, Any]:
    """The numbers of a derivation for a page that does not run the model, by the names of its
    script.

    Vectors, what comes before the scores, and weights are rounded to the digits that a page shows;
    the row of scores and the numbers of its softmax are the document's own. Of a hidden key the
    script reads null in `scores` and `shifted` as −∞.
    """
    projected = document.step(Projections)
    scores = document.step(Scores)
    softmax = document.step(SoftmaxRow)
    # that of a hidden key, null in the document, adds nothing to the sum: 0
    exponentials = [value or 0.0 for value in softmax.exponentials]
    # where the token before each ends: one that begins there is joined to it without a blank; the
    # last end is before no token
    previous_ends = [None, *(token.end for token in document.tokens)]
    return {
        "tokens": [
            {
                "text": label(token.text),
                "unknown": token.unknown is True,
                "joined": token.start is not None and token.start == previous_end,
            }
            for token, previous_end in zip(document.tokens, previous_ends, strict=False)
        ],
        "layer": document.layer,
        "head": document.head,
        "query": document.query,
        "scale": scores.scale,
        "cap": scores.softcap,
        "q": _round_numbers(projected.q),
        "k": _round_numbers(projected.k),
        "v": _round_numbers(projected.v),
        "raw": _round_numbers(document.step(Products).raw),
        "scaled": _round_numbers(scores.scaled),
        "capped": _round_numbers(scores.capped),
        "bias": _round_numbers(scores.bias),
        "visible": scores.visible,
        "scores": scores.scores,
        "highest": softmax.highest,
        "shifted": softmax.shifted,
        "exponentials": exponentials,
        "sink": softmax.sink,
        "sum": softmax.sum,
        "weights": _round_numbers(softmax.weights),
        "output": _round_numbers(document.step(OutputSum).output),
        "square": {"weights": _round_numbers(document.matrices.weights)},
    }


def _commands(document: AttentionTopic, run_options: GivenOptions | None) -> dict[str, str]:
    """The commands that the last two steps of the page show, by the step's name: the run without
    this head, and the same link in other heads, where there are any. Of paths only the last part is
    shown.

    run_options: those of the run; None where they are not known.
    """
    if run_options is not None:
        # (an option's name, its words); words of options that are texts (`TEXTS`) hold no paths
        run_options = tuple(
            (name, words if name in TEXTS else tuple(map(last_part, words)))
            for name, words in run_options
        )
    view = View(run_options=run_options)
    weights = np.asarray(document.step(SoftmaxRow).weights)[: len(document.tokens)]
    # a key where heads rest whatever it is would be found in all of them: another, if any has weight
    word_weights = np.where(resting_keys(document.tokens, document.model.source), 0.0, weights)
    if word_weights.max(initial=0.0) > 0:
        weights = word_weights
    query, key = (
        token_reference(document.tokens, index, view)
        for index in (document.query, int(np.argmax(weights)))
    )
    # the only head of a model needs no name, and has no others beside it
    is_only_head = document.model.attending == document.model.heads == 1
    has_other_heads = not is_only_head
    effect = ["--query", query]
    if has_other_heads:
        effect += ["--head", head_name(document.layer, document.head)]
    commands = {"effect": command_about(document, "ablate", effect, view)}
    if has_other_heads:
        commands["heads"] = command_about(document, "find", ["--from", query, "--to", key], view)
    return {name: safe(" ".join(words)) for name, words in commands.items()}


def option_words(options: Struct, *, without: Sequence[str] = ()) -> list[str]:
    """The command-line words of a group of options, such as ["--num-heads", "8"]: those that differ
    from their defaults. Of paths only the last part is kept, as no page says where files lie.

    without: names of options to leave out.
    """
    words: list[str] = []
    defaults = dict(zip(options.__struct_fields__, options.__struct_defaults__, strict=True))
    for field, default in defaults.items():
        value = getattr(options, field)
        name = field.replace("_", "-")
        if field in without or value == default:
            continue
        if value is True:
            words.append(f"--{name}")
        elif value is False:
            words.append(f"--no-{name}")
        else:
            values = [value]
            if isinstance(value, list):
                # an option that was given several times
                values = value
            for part in values:
                words += [f"--{name}", last_part(str(part))]
    return words
