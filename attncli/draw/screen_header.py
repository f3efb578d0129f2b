"""What exactly ran, and on which tokens: the top of every screen about a text; and the screen of
every document.

`screen.py` in the folder of a feature draws `attn.<name>/1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from msgspec import UNSET, UnsetType

from attncli.documents import (
    AttentionPart,
    Document,
    ModelPart,
    TokenRow,
    folder_of,
    mask_name,
    name_of,
)
from attncli.draw.lines import (
    FAINT,
    Line,
    Lines,
    draw_parts,
    fit_to_view,
    flow,
    flow_groups,
    heading,
    line,
    localize,
    message_or_safe,
    remark,
    stack,
)
from attncli.draw.numbers import brief, root_of
from attncli.draw.safe import cells, cut, label, pad, safe, spell, wrap
from attncli.draw.token_names import name_tokens, unknown_words_note
from attncli.draw.view import View
from attncli.language import Message, contextual, listing, message, plural, say


class TextTokens(Protocol):
    """A document of a text cut into tokens."""

    @property
    def text(self) -> str:
        """The text as it was typed."""

    @property
    def tokens(self) -> Sequence[TokenRow]:
        """Its tokens, in order."""


class ModelRun(Protocol):
    """A document of which model ran, and how."""

    @property
    def model(self) -> ModelPart:
        """The model: its name, sizes, and where its weights come from."""

    @property
    def attention(self) -> AttentionPart:
        """The conventions of its attention, such as mask and positions."""

    @property
    def warnings(self) -> Sequence[str] | UnsetType:
        """Sentences of warning; UNSET for none."""


class AboutText(TextTokens, ModelRun, Protocol):
    """A document of one text through a model: `documents.Header` with its warnings."""

    @property
    def pieces(self) -> Sequence[TokenRow] | UnsetType:
        """The tokens that words were merged from; UNSET where tokens stay as they are."""


SIDE = 11
"""Cells of the words at the left edge."""
MOST = 64
"""Tokens that are listed unless the view is full."""
LONGEST_TOKEN = 24
"""Cells of a token in that list."""
SHORT = 5
"""Characters of a scale's value that is told beside its root."""


def header(document: AboutText, view: View, *, tells_position: bool = True) -> Lines:
    """The lines above a screen: the text, which weights ran and whether they are learned, the
    conventions, the sizes, and any warnings.

    tells_position: whether the conventions have the position encoding; not where several are shown.
    """
    noun = "token"
    if document.pieces is not UNSET:
        noun = "word"
    count = count_phrase(len(document.tokens), noun)
    return header_lines(
        title(document, view),
        document,
        view,
        counts=(count,),
        words=_merge_notes(document),
        tells_position=tells_position,
    )


def header_lines(
    text: str,
    document: ModelRun,
    view: View,
    *,
    counts: Sequence[str],
    words: Sequence[str] = (),
    tells_position: bool = True,
) -> Lines:
    """The header of a screen: a text, made safe, then what ran and how large it is.

    counts: how long the text or texts are, such as "12 tokens".
    words: notes on how tokens were merged to words.
    tells_position: whether the position encoding is told.
    """
    model = document.model
    attention = document.attention
    meaning = ""
    if attention.mask != "none":
        meaning = _mask_meaning(attention, view)
    run_facts = [
        *_weights(model, view),
        _layers_and_heads(model, view),
        *_conventions(attention, view, tells_position),
    ]
    number_type = f"{attention.backend} {attention.compute_dtype or attention.dtype}"
    sizes = [*counts, *_sizes(model), _scale(model, attention, view), number_type]
    blocks = [line((text, "bold")), facts(run_facts, view), facts(sizes, view, style=FAINT)]
    blocks += [remark(meaning, view), facts(words, view, style=FAINT)]
    blocks += [warning(warning_text, view) for warning_text in document.warnings or ()]
    return fit_to_view(stack(*blocks), view)


def _mask_meaning(attention: AttentionPart, view: View) -> str:
    """The sentence on what a query sees under the mask; "" where the document has none. One that was
    read from a file is English text: for another language it is made again from the mask."""
    meaning = attention.mask_says or ""
    if view.lang == "en" or not meaning or isinstance(meaning, Message):
        return meaning
    from attncli.documents.header import mask_meaning  # needs the masks, and so NumPy

    return mask_meaning(attention)


def facts(parts: Iterable[str], view: View, *, style: str = "") -> Lines:
    """Short texts one after the other, with ` · ` between them, on as few lines as they need, made
    safe. Lines break between texts, or inside one that is too long; empty texts are skipped."""
    rows = [wrap(localize(part, view), view.width, ascii=view.ascii) for part in parts]
    pieces = [(row, style) for rows_of_part in rows for row in rows_of_part]
    return flow(pieces, width=view.width, gap="; " if view.ascii else " · ", ascii=view.ascii)


def title(document: TextTokens, view: View) -> str:
    """The text in one line; where token ids were given in its place, the tokens."""
    text = document.text or " ".join(token.text for token in document.tokens)
    # of a long text, more than a line can hold: a cell may have a letter and many marks on it
    beginning = text[: view.width * 16]
    return cut(safe(beginning, ascii=view.ascii), view.width, ascii=view.ascii)


def fact(name: str, parts: Iterable[str], view: View, *, is_ours: bool = True) -> Lines:
    """A name at the left edge, and short texts beside it, broken into lines between them, and within
    one that is too long.

    is_ours: whether the texts are the program's own, which are translated and made safe here; others
        must be safe.
    """
    texts = [localize(part, view) if is_ours else part for part in parts]
    pieces = [
        (row, "") for part in texts for row in wrap(part, view.width - SIDE, ascii=view.ascii)
    ]
    dot = "; " if view.ascii else " · "
    block = flow(pieces, width=view.width, indent=SIDE, gap=dot, ascii=view.ascii)
    rows = list(block.rows)
    if rows:
        # the name takes the place of the first line's indentation
        rows[0] = ((pad(localize(name, view), SIDE), FAINT), *rows[0][1:])
    return Lines(tuple(rows))


def warning(text: str, view: View) -> Lines:
    """A warning, over as many lines as it needs; it may quote the user's own words."""
    return remark("! " + localize(text, view), view, style="yellow")


def _weights(model: ModelPart, view: View) -> list[str]:
    """Short texts on which weights ran and whether they are learned, such as "bert-base", "bert",
    "learned"; "" for a name or a family that is unknown."""
    name = safe(model.name or "", ascii=view.ascii)
    family = message_or_safe(model.family or "", view)
    match model.source:
        case "seeded":
            return [message("seeded, seed {seed}", seed=model.seed), message("not learned")]
        case "random":
            return [
                message("drawn at random, seed {seed}", seed=model.seed),
                message("not learned"),
            ]
        case "checkpoint":
            kinds = []
            if model.quantization is not UNSET:
                kinds.append(safe(model.quantization, ascii=view.ascii))
            if model.adapters is not UNSET:
                kinds += [
                    message("adapter {name}", name=safe(label, ascii=view.ascii))
                    for label in model.adapters
                ]
            return [name or "checkpoint", family, *kinds, contextual("weights", "learned")]
        case "file":
            weights_note = message("from file")
            if name:
                weights_note = message("from file {name}", name=name)
            if model.seed is None:
                return [weights_note, family]
            return [weights_note, family, _seed_note(model)]
        case "tensors":
            if name:
                return [message("captured tensors {name}", name=name), family]
            return [message("captured tensors"), family]
        case source:
            return [safe(str(source), ascii=view.ascii), name]


def _seed_note(model: ModelPart) -> Message:
    """What of a weight file's model is drawn from a seed, as the file has none of it; or the seed of
    the file's own weights."""
    if model.drawn is UNSET:
        return message("seed {seed}", seed=model.seed)
    return message(
        "not in the file: {names} (seeded, seed {seed})",
        names=listing(DRAWN[name] for name in model.drawn),
        seed=model.seed,
    )


DRAWN = {"words": message("word vectors X"), "positions": message("position vectors P")}
"""What is drawn from a seed beside a weight file, as a document names it."""


def _merge_notes(document: AboutText) -> list[str]:
    """How tokens were merged to words; nothing where they were not."""
    if document.pieces is UNSET:
        return []
    pieces = count_phrase(len(document.pieces), "token")
    words = count_phrase(len(document.tokens), "word")
    merge_note = message("{pieces} merged to {tokens}", pieces=pieces, tokens=words)
    return [merge_note, message("weights to a word are added up, weights from it averaged")]


def _layers_and_heads(model: ModelPart, view: View) -> str:
    """How many layers attend, and their heads, such as `6 layers × 12 heads`."""
    by = spell(" × ", ascii=view.ascii)
    if model.attending < model.layers:
        layers = message(
            "{attending} of {layers} layers attend", attending=model.attending, layers=model.layers
        )
    else:
        layers = count_phrase(model.layers, "layer")
    return by.join(localize(phrase, view) for phrase in (layers, count_phrase(model.heads, "head")))


def _sizes(model: ModelPart) -> list[str]:
    """How many key heads there are, where that is not the number of heads; and the widths d_model
    (where it is known), d_k and d_v."""
    sizes: list[str] = []
    if model.kv_heads != model.heads:
        sizes.append(count_phrase(model.kv_heads, "kv head"))
    if model.d_model is not None:
        sizes.append(f"d_model {model.d_model}")
    if model.d_k == model.d_v:
        sizes.append(f"d_k = d_v = {model.d_k}")
    else:
        sizes += [f"d_k {model.d_k}", f"d_v {model.d_v}"]
    return sizes


def _scale(model: ModelPart, attention: AttentionPart, view: View) -> str:
    """The factor of the scores as text: `scale 0.125 = 1/√64`, `scale 1/√48` where the number is
    long, `scale 0.3` where it is no root of a width."""
    scale = attention.scale
    # as 1/√d_k or 1/√d_model, of which 0 stands for a width that the document does not state
    root = ""
    if scale is not None:
        root = root_of(scale, model.d_k or 0, model.d_model or 0)
    value = brief(scale)
    if root and len(value) <= SHORT:
        text = f"{value} = {root}"
    else:
        text = root or value
    return message("scale {text}", text=spell(text, ascii=view.ascii))


def _conventions(attention: AttentionPart, view: View, tells_position: bool) -> list[str]:
    """Short texts on the mask, the positions, and, where there are any, soft-cap and hashing."""
    mask_text, position_text = mask_and_position(attention.mask, attention.position, view)
    parts = [mask_text]
    if tells_position:
        parts.append(position_text)
    if attention.softcap is not None:
        parts.append(message("soft-cap {softcap}", softcap=brief(attention.softcap)))
    if attention.hashing:
        parts.append(
            message("hash attention {hashing}", hashing=safe(attention.hashing, ascii=view.ascii))
        )
    return parts


def mask_and_position(mask: str, position: str, view: View) -> tuple[str, str]:
    """The mask and the position encoding in words, such as `mask causal`, `position none`."""
    position_text = message("position none")
    if position != "none":
        safe_position = safe(position, ascii=view.ascii)
        position_text = message("position {position}", position=safe_position)
    return mask_name(safe(mask, ascii=view.ascii)), position_text


COUNTS = {
    "layer": plural("{count} layer", "{count} layers", count=1),
    "head": plural("{count} head", "{count} heads", count=1),
    "kv head": plural("{count} kv head", "{count} kv heads", count=1),
    "token": plural("{count} token", "{count} tokens", count=1),
    "word": plural("{count} word", "{count} words", count=1),
    "query": plural("{count} query", "{count} queries", count=1),
    "key": plural("{count} key", "{count} keys", count=1),
    "vector": plural("{count} vector", "{count} vectors", count=1),
    "tensor": plural("{count} tensor", "{count} tensors", count=1),
    "model": plural(
        "{count} model in the hub's cache", "{count} models in the hub's cache", count=1
    ),
}
"""What is counted on screens, by the noun of one."""


def count_phrase(count: int, noun: str) -> Message:
    """A count with its noun, such as `1 layer`, `8 heads`.

    noun: one of `COUNTS`.
    """
    return Message(COUNTS[noun].template, {"count": count}, COUNTS[noun].plurals)


def shown_tokens(document: AboutText, view: View) -> Lines:
    """The tokens of a document, or the words that they were merged to."""
    return tokens_part(document.tokens, view, noun="token" if document.pieces is UNSET else "word")


def tokens_part(tokens: Sequence[TokenRow], view: View, *, noun: str = "token") -> Lines:
    """The tokens with their positions, special ones named and in italics; the first `MOST` unless
    the view is full.
    """
    if view.full:
        tokens_shown = tokens
    else:
        tokens_shown = tokens[:MOST]

    # the heading: how many there are, and the positions of the special ones
    special = listing(str(token.index) for token in tokens if token.special)
    special_note = ""
    if special:
        special_note = message("special: {special}", special=special)
    top = heading(count_phrase(len(tokens), noun), special_note, view)

    groups: list[Line] = []
    for token in tokens_shown:
        if view.ascii:
            index = f"{token.index}:"
        else:
            index = f"{token.index} "
        room = min(LONGEST_TOKEN, view.width - len(index))
        text = cut(label(token.text, ascii=view.ascii), room, ascii=view.ascii)
        groups.append(((index, FAINT), (text, "italic" if token.special else "")))

    rest = Lines()
    if len(tokens_shown) < len(tokens):
        template = message("first {shown} of {tokens} words shown; --full shows all")
        if noun == "token":
            template = message("first {shown} of {tokens} tokens shown; --full shows all")
        # the sentence that was chosen, with its numbers filled in
        rest_note = Message(template.template, {"shown": len(tokens_shown), "tokens": len(tokens)})
        rest = remark(rest_note, view)
    return fit_to_view(stack(top, flow_groups(groups, width=view.width), rest), view)


def numbered_title(place: int, document: Document, view: View) -> Lines:
    """The line above one of several texts: its number, from 0, and the text where the screen does
    not begin with it.
    """
    number = say(view, "text {number}", number=place)
    if view.show is None and not view.brief:  # the screen's own header begins with the text
        return heading(number, "", view)
    room = max(view.width - cells(number) - 2, 8)  # two blanks stand before the text
    text = cut(safe(str(getattr(document, "text", "")), ascii=view.ascii), room, ascii=view.ascii)
    return line((number, "bold"), ("  " + text, ""))


class Screen(NamedTuple):
    """The functions that show a kind of document.

    screen: its lines for a terminal.
    rows: its table for `--plain`, the first row naming the columns.
    sentences: its answer in words, None for a kind without one.
    page: its HTML page in a language, for a kind with a page of its own; that returns None for a
        document that lacks what the page shows.
    count_lines: about how many lines the whole screen has, for a kind that shows less than its
        document holds.
    """

    screen: Callable[[Any, View], Lines]
    rows: Callable[[Any], Iterable[Sequence[object]]]
    sentences: Callable[[Any, View], list[str]] | None
    page: Callable[[Any, str], bytes | None] | None = None
    count_lines: Callable[[Any], int] | None = None


def screen_of(schema: str) -> Screen:
    """The functions that show the documents of a schema, such as `attn.run/1`. On the screen, words
    that the model does not know are marked, and counted below it."""
    name = name_of(schema)
    # the functions of kind "run" are `run_screen` (or the list RUN_PARTS), `run_rows`,
    # `run_sentences`, `run_page` and `run_lines`; all but the screen and the rows may be missing
    module = import_module(f"{folder_of(name)}.screen")
    draw = getattr(module, f"{name}_screen", None) or partial(
        draw_parts, getattr(module, f"{name.upper()}_PARTS")
    )

    def screen(document: Any, view: View) -> Lines:
        """The screen of a document with its unknown words marked and counted below."""
        marked_document = name_tokens(document)
        lines: Lines = draw(marked_document, view)
        if marked_document is document:
            return lines
        return fit_to_view(stack(lines, unknown_words_note(document, lines, view)), view)

    return Screen(
        screen,
        rows=getattr(module, f"{name}_rows"),
        sentences=getattr(module, f"{name}_sentences", None),
        page=getattr(module, f"{name}_page", None),
        count_lines=getattr(module, f"{name}_lines", None),
    )
