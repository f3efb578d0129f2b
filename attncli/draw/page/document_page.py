"""The page of a document that tells of no head alone: its answer, its figure, its screen and its
table, in every language; closed like the page of a run."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from itertools import islice, pairwise
from pathlib import PurePath
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from attncli.documents import Document, name_of
from attncli.draw.figures import figure
from attncli.draw.figures.drawing import DARK, LIGHT
from attncli.draw.lines import FAINT, Line, Lines
from attncli.draw.numbers import even_bars
from attncli.draw.page.page_frame import (
    FIRST_STRONG_ISOLATE,
    LETTERS,
    POP_ISOLATE,
    as_json,
    page_head,
    page_script,
    page_style,
)
from attncli.draw.page.page_words import table_words, words_by_language
from attncli.draw.safe import last_part, safe, safe_html
from attncli.draw.screen_header import screen_of
from attncli.draw.shaded_matrix import tint
from attncli.draw.token_names import name_tokens
from attncli.draw.view import View
from attncli.errors import InputError
from attncli.language import Message, languages, say

AnyPart = TypeVar("AnyPart", bound=Struct)
SKELETON = """\
<body>
<header><h1>attn {name}</h1><p id="line">{line}</p><button class="link" type="button" id="language"></button></header>
<main class="plain">
{sections}
{table}
</main>
<footer><span>attn {version}</span></footer>
<script type="application/json" id="meta">{meta}</script>
<script>{script}</script>
</body>
</html>
"""
TABLE = """\
<details id="table"><summary data-word="table"></summary>
<p class="share"><button class="link" type="button" id="csv" data-word="csv"></button>{cut}</p>
<div class="scroll" tabindex="0" role="region" id="table-rows"><table class="figures"><thead><tr>{columns}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
</details>"""
CUT = '<span data-word="cut"></span>'
SECTION = """\
<section class="reading" lang="{lang}"{hidden}>
<div class="answer">{answer}</div>
{figure}
{screen}
</section>"""
SCREEN = """\
<div class="scroll" tabindex="0" role="region" aria-label="{label}"><pre class="wide">{wide}</pre>\
<pre class="narrow">{narrow}</pre></div>"""
WIDTH = 100
"""Cells of a screen on a page."""
UNBROKEN = 40 * WIDTH
"""Cells of a line in which no sentence is broken."""
NARROW = 44
"""Cells of the same screen in a window too narrow for the other, such as a telephone's."""
LONGEST_LINE = 400
"""Characters of the text that stand above the page."""
MOST_ROWS = 2000
"""Rows of a table that a page holds."""


SCRIPTS, SHEETS = ("numbers", "dom", "files", "table", "document"), ("document",)
"""The modules of the page's script, and its style sheets behind that of every page."""


def document_page(document: Document, lang: str, precision: int = 2) -> bytes:
    """The HTML page of a document's answer, figure, screen and table, as bytes. Every text of the
    document is made safe and can never act as HTML.

    Args:
        document: Of any kind.
        lang: The language that the page begins in; it holds all languages, and a button to change.
        precision: Digits after the point, as on a screen.
    """
    from attncli.version import __version__

    name = name_of(document.schema)
    document = without_places(document)
    table, words = table_part(document)
    meta = {"lang": lang, "words": words_by_language(words), "name": name}
    line = safe(str(getattr(document, "text", "")))
    title = " · ".join(part for part in (f"attn {name}", line) if part)
    code = page_script(*SCRIPTS)
    head = page_head(lang, title, code, page_style(*SHEETS), policy="img-src data:; ")
    page = SKELETON.format(
        name=name,
        line=safe_html(line[:LONGEST_LINE]),
        version=__version__,
        meta=as_json(meta),
        script=code,
        sections="\n".join(
            _language_section(
                document, View(lang=spoken, width=WIDTH, precision=precision), hidden=spoken != lang
            )
            for spoken in languages()
        ),
        table=table,
    )
    return (head + page).encode()


def table_part(document: Document) -> tuple[str, dict[str, Message]]:
    """A document's table as HTML, folded and with a button that saves it; and the texts of its
    button and its notes by the name that the page's script asks for.
    """
    # the heading, and one row more than are shown, which tells that some are left out
    rows = list(islice(screen_of(document.schema).rows(name_tokens(document)), MOST_ROWS + 2))
    columns: Sequence[object] = ()
    if rows:
        columns = rows[0]
    body = rows[1:]
    cut = ""
    if len(body) > MOST_ROWS:
        cut = CUT
    table = TABLE.format(
        columns="".join(f'<th scope="col">{safe_html(str(column))}</th>' for column in columns),
        rows="\n".join(map(_table_row, body[:MOST_ROWS])),
        cut=cut,
    )
    return table, table_words(min(len(body), MOST_ROWS))


def screen_part(document: Document, view: View) -> str:
    """What the terminal shows of a document, as HTML, without the answer at its end, with which the
    page begins. It is written for wide and for narrow windows; the style sheet shows one of them.
    """
    return SCREEN.format(
        label=safe_html(say(view, "what the terminal shows")),
        wide=_screen_text(document, view),
        narrow=_screen_text(document, replace(view, width=NARROW)),
    )


def _screen_text(document: Document, view: View) -> str:
    """The screen of a document without the answer at its end, as HTML."""
    screen = screen_of(document.schema).screen
    answer = screen(document, replace(view, brief=True, alone=True))
    rows = _without_answer(screen(document, view), answer)
    return _preformatted_text(even_bars(rows))


TEXTS = frozenset({"text", "clean", "corrupt", "query_text", "key_text", "token"})
"""Members of documents that are the user's own words, whatever they look like."""


def without_places(part: AnyPart) -> AnyPart:
    """A document with every path cut to its last part, so that a page does not tell where files lie
    on this machine.
    """
    changes = {
        name: _without_place(getattr(part, name), may_be_path=name not in TEXTS)
        for name in part.__struct_fields__
    }
    # members without a path came back as the same objects, so that they need no replacing
    changes = {name: value for name, value in changes.items() if value is not getattr(part, name)}
    if changes:
        return replace(part, **changes)
    return part


def _without_place(value: Any, *, may_be_path: bool) -> Any:
    """A value of a document with every absolute path in it cut to its last part, at any depth.

    Where nothing is cut, texts, parts and lists come back as the same object, by which
    `without_places` sees that nothing changed; only dicts, and what holds one, are built anew.
    may_be_path: whether texts in it may be paths; the user's own words are not. Keys of dicts are
        no words of the user and are cut in any case.
    """
    match value:
        case Struct():
            return without_places(value)
        case str():
            if may_be_path and PurePath(value).name:
                return last_part(value)
            return value
        # a list is judged by its first entry, as all are of one type: those of numbers, which may be
        # long, are passed over
        case list() if value and (
            isinstance(value[0], Struct | dict) or (may_be_path and isinstance(value[0], str))
        ):
            entries = [_without_place(entry, may_be_path=may_be_path) for entry in value]
            if any(new is not old for new, old in zip(entries, value, strict=True)):
                return entries
            return value
        case dict():
            return {
                last_part(str(key)): _without_place(entry, may_be_path=may_be_path)
                for key, entry in value.items()
            }
        case _:
            return value


def _language_section(document: Document, view: View, *, hidden: bool) -> str:
    """The HTML of what the page says in the view's language: the answer, the figure and the screen.

    hidden: whether it is hidden until the reader changes to this language.
    """
    answer = " ".join(sentence.plain for sentence in _answer_lines(document, view))
    return SECTION.format(
        lang=view.lang,
        hidden=" hidden" if hidden else "",
        screen=screen_part(document, view),
        answer=answer_part(document, view),
        figure=_figure(document, view.lang, answer),
    )


def language_section(lang: str, shown: str, content: str) -> str:
    """HTML in one language as a section of a page; hidden unless that is the language shown first."""
    hidden = ""
    if lang != shown:
        hidden = " hidden"
    return f'<section lang="{lang}"{hidden}>{content}</section>'


def answer_part(document: Document, view: View) -> str:
    """The answer of a document's screen as HTML, a paragraph for each sentence."""
    rows = _answer_lines(document, view)
    return "".join(f"<p>{_preformatted_text(sentence)}</p>" for sentence in rows)


def _answer_lines(document: Document, view: View) -> list[Lines]:
    """The answer of a document's screen, unbroken: a row for each sentence."""
    screen = screen_of(document.schema).screen
    # in colour, of which the page shows bold, faint and tinted parts in its own
    answer = screen(document, replace(view, width=UNBROKEN, brief=True, alone=True, color=True))
    return [Lines((row,)) for row in answer.rows if any(text.strip() for text, _ in row)]


def _without_answer(screen: Lines, answer: Lines) -> Lines:
    """A screen without the answer, where it ends with that; else as it is."""
    screen_texts = [Lines((row,)).plain.rstrip() for row in screen.rows]
    answer_texts = [Lines((row,)).plain.rstrip() for row in answer.rows]
    if answer_texts and screen_texts[-len(answer_texts) :] == answer_texts:
        return Lines(screen.rows[: -len(answer_texts)])
    return screen


def _figure(document: Document, lang: str, answer: str) -> str:
    """A document's figure as HTML, embedded in light and in dark colours; "" for a kind of document
    without one, or with nothing to draw.

    answer: the text in place of the image for those who do not see it.
    """
    sources = []
    for theme in (LIGHT, DARK):
        try:
            drawing = figure(document, theme=theme, lang=lang)
        except InputError:  # it was shortened, and holds nothing to draw
            return ""
        if drawing is None:
            return ""
        sources.append(
            f"data:image/svg+xml;base64,{b64encode(drawing.svg(title=answer).encode()).decode()}"
        )
    light, dark = sources
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{safe_html(answer)}"></picture></figure>'
    )


def _preformatted_text(lines: Lines) -> str:
    """Lines of a screen as HTML text, its bold, faint and tinted parts marked."""
    return "\n".join(_row_of_pieces(row) for row in lines.rows)


LEFTWARD_RUN = re.compile(rf"\[?{LETTERS}+(?:[ \[\]]{{1,2}}{LETTERS}+)*\]?")
"""Words from the right one blank apart: isolated, so that the columns of a table stay in their
order.
"""


def _row_of_pieces(row: Line) -> str:
    """A line of a screen as HTML: each piece in its style, and each run of Hebrew or Arabic words
    isolated, also where it goes on from one piece to the next."""
    # by its index in the line: the character that isolates a run, or ends one, to write there
    line = "".join(text for text, _ in row)
    isolates: dict[int, str] = {}
    for run in LEFTWARD_RUN.finditer(line):
        # the run before may end where this one begins: its end is written first
        isolates[run.start()] = isolates.get(run.start(), "") + FIRST_STRONG_ISOLATE
        isolates[run.end()] = POP_ISOLATE

    spans: list[str] = []
    start = 0
    for text, style in row:
        stop = start + len(text)
        inside = [index for index in sorted(isolates) if start < index < stop]
        parts = [
            isolates.get(left, "") + safe_html(line[left:right])
            for left, right in pairwise([start, *inside, stop])
        ]
        spans.append(_marked_span("".join(parts), text, style))
        start = stop
    # a run may end at the end of the line, behind the last piece
    return "".join(spans).rstrip() + isolates.get(start, "")


def _marked_span(content: str, text: str, style: str) -> str:
    """HTML that shows a text in its style: tinted, bold or faint; unmarked for any other style.

    content: the same text as HTML, escaped.
    """
    if " on " in style and text.strip():
        return f'<mark class="t{_tint_step(style)}">{content}</mark>'
    if "bold" in style.split():
        return f"<b>{content}</b>"
    if style == FAINT and text.strip():
        return f'<span class="quiet">{content}</span>'
    return content


@cache
def _tint_step(style: str) -> int:
    """The number, 1 to 8, of the style sheet's tint that is nearest in lightness to the background
    of this Rich style."""

    def distance(step: int) -> int:
        """How much lighter or darker the middle of a step is."""
        return abs(_lightness(tint((step - 0.5) / 8, View())) - _lightness(style))

    return min(range(1, 9), key=distance)


def _lightness(style: str) -> int:
    """The sum of the RGB bytes of the background in a Rich style such as `#000000 on #fde725`: it
    grows with the share that the tint stands for."""
    ground = style.rpartition("#")[2]
    return sum(bytes.fromhex(ground))


def _cell_text(cell: object) -> str:
    """A cell of a document's table as text, "" for None."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return str(cell)


def _table_row(cells: Sequence[object]) -> str:
    """A row of the document's table in HTML."""
    first, *rest = [safe_html(_cell_text(cell)) for cell in cells]
    return (
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{text}</td>" for text in rest) + "</tr>"
    )
