"""The catalogues of sentences: `python tests/catalogues.py` brings every one up to date and
compiles it.

    python tests/catalogues.py        new sentences are added without a translation, those that are
    gone go
    python tests/catalogues.py fr     the same, after beginning a catalogue for a language that has
    none

Each is `attncli/language/LANG.po`, sorted by its English, without dates and line numbers: two
people who add sentences seldom touch the same lines. The `.mo` beside it is what the program reads.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import IO, Any

import syntax
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "attncli"
FOLDER = PACKAGE / "language"
HEADER = "# attn in another language; see tests/catalogues.py"
KEYWORDS = {
    "message": (1,),
    "plural": (1, 2),
    "contextual": ((1, "c"), 2),
    "say": (2,),
    "say_each": (2,),
}
"""The functions whose literals are sentences, and which of their arguments are."""
ARGUMENTS: dict[str, tuple[int | str, ...]] = {
    **dict.fromkeys(("AttnError", "UsageError", "InputError", "UnsupportedError", "LimitError", "VerdictError"),
                    (0, "expected", "hint")),
    "heading": (0, 1), "remark": (0,), "localize": (0,), "translate": (0,), "fact": (0,), "progress": (1,),
    **dict.fromkeys(("table", "ledger", "matrix", "vectors", "vector_sum", "links", "draw_grid", "heatmap",
                     "column_table"), ("title", "note")),
    "Column": (0,),
    "shaded_sentence": ("tint",), "tinted_answer": ("tint",), "lead": (0, 1),
    "Metric": (1, 5, 6, 7, 9, "needs"), "Stage": (2, 3), "StageTable": (1, 2), "Map": (0,),
    "FixedValue": (1,), "refuse": (1,), "Spelling": (1,),
    "refuse_memory": (2,), "refuse_run": (4,), "refuse_over": (2,), "foretell_work": (3,),
    "refused_value": (2, "hint"),
    "system_errors": (0,), **dict.fromkeys(("read_object", "open_regular", "read_regular"), ("what",)),
}  # fmt: skip
"""Functions and declarations whose arguments, by place or name, are sentences where they are
literals.
"""

WORDS = (
    "alias", "all", "at", "attention", "axes", "batch", "biases", "bytes", "checkpoint", "concat", "conf", "copying",
    "dim", "dist", "embeddings", "folder", "given", "global", "head", "heads", "here", "id", "index", "kept", "key",
    "keys", "kv", "layer", "learned", "links", "log probability", "logit difference", "max", "measure", "min",
    "largest", "name", "nats", "neighbours", "new", "no ending", "a file without an ending", "norm", "notes",
    "nothing", "other pair", "prev", "previous", "prob", "query → key", "rank", "reverse", "revision", "reversed",
    "no", "runs", "seeded", "self", "shape", "share", "sink", "size", "span", "special", "std", "step", "strength",
    "tensor", "text", "through", "token", "type", "v_dim", "values", "half", "adjacent", "vectors",
    "learned positions",
    "sinusoidal positions", "halves positions", "timescales positions", "vocabulary", "width", "words", "yes",
    "answer", "row scale", "log scale", "signed scale", "feed-forward", "prompt", "parameters", "head dims",
    "aliases", "duplicate", "induction", "retrieval", "successor", "short convolution", "gated delta rule", "Mamba",
    "Mamba 2",
    "lightning attention", "Kimi delta attention", "feed-forward part alone", "experts alone",
    "instead", "beside it",
    "No such file or directory", "Permission denied", "Is a directory", "Not a directory",
    "No space left on device", "File exists",
)  # fmt: skip
"""Words that reach the screen as data: names of columns, parts, stages, axes; and what systems say
of files.
"""


def literals(
    file: IO[bytes], keywords: Mapping[str, object], comment_tags: object, options: object
) -> Iterator[tuple[int, str, list[str | None], list[str]]]:
    """Every call of one of these functions, with the literals that are its arguments, as Babel asks
    for them.

    Babel's own reader goes by tokens: it loses a call inside a call and glues `"a" if … else "b"`
    to one text.
    """
    for node in syntax.nodes(file.read().decode()):
        if isinstance(node, ast.Call):
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            if name == "say_each":  # each of its arguments is a sentence
                for sentence in node.args[1:]:
                    for text in alternatives(sentence):
                        yield node.lineno, name, [None, text], []
            elif name in keywords:
                for texts in product(*map(alternatives, node.args)):
                    if "" not in texts:
                        yield node.lineno, name, list(texts), []
            for place in ARGUMENTS.get(name, ()):
                for text in filter(None, alternatives(argument(node, place))):
                    yield node.lineno, "message", [text], []


def argument(call: ast.Call, place: int | str) -> ast.expr | None:
    """The argument at this place, or of this name; None without one."""
    if isinstance(place, int):
        return call.args[place] if place < len(call.args) else None
    return next((keyword.value for keyword in call.keywords if keyword.arg == place), None)


def alternatives(node: ast.expr | None) -> list[str | None]:
    """The literals that an argument may be; None for what is no literal."""
    match node:
        case ast.Constant(str(text)):
            return [text]
        case ast.IfExp(_, body, other):
            return alternatives(body) + alternatives(other)
        case _:
            return [None]


class PlainCatalog(Catalog):
    """A catalogue whose header holds only what a program reads: no dates, no names, no versions."""

    @property
    def mime_headers(self) -> list[tuple[str, str]]:
        return [
            ("Language", str(self.locale_identifier or "")),
            ("MIME-Version", "1.0"),
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Transfer-Encoding", "8bit"),
            ("Plural-Forms", self.plural_forms),
        ]

    @mime_headers.setter
    def mime_headers(self, headers: list[tuple[str, str]]) -> None:
        """What a file says of itself is not read: it is derived from the language."""


def help_sentences() -> Iterator[str]:
    """What help pages say: every paragraph of a command, every option's sentence and what stands in
    brackets behind it, every group. Paragraphs that are commands to type stay as they are."""
    from attncli.cli import app, help_page

    def walk(command: Any, path: str) -> Iterator[str]:
        for text in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
            if not text.startswith("attn "):
                yield re.sub(r"\s+", " ", text).strip()
        context = command.make_context(path, [], resilient_parsing=True)
        for parameter in command.get_params(context):
            yield getattr(parameter, "rich_help_panel", None) or ""
            text = getattr(parameter, "help", None) or ""
            yield help_page.TAIL.sub("", text)
            behind = help_page.TAIL.search(text)
            for bracket in help_page.BRACKETS.findall(behind[0]) if behind else ():
                value = bracket.strip()[1:-1].removeprefix("default: ").removeprefix("env: ")
                if " " in value and not help_page.RANGE.fullmatch(value):
                    yield value
        for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
            yield from walk(command.get_command(context, name), f"{path} {name}")

    yield from walk(app.command(), "attn")
    yield from (
        *app.COMMANDS.values(),
        *map(app.group_of, app.COMMANDS),
        app.ABOUT,
        app.MORE,
        app.TRY,
    )
    yield from (
        "Arguments",
        "Options",
        "Commands",
        "required",
        "-h shows one screen, --help everything.",
    )


def sentences() -> Catalog:
    """Every sentence of the source, without a translation."""
    template = Catalog()
    found = extract_from_dir(PACKAGE, method_map=[("**.py", literals)], keywords=KEYWORDS)
    for _, _, text, _, context in found:
        template.add(text, context=context)
    for text in (*WORDS, *help_sentences()):
        if re.search(r"[^\W\d_]{2}", text):
            template.add(text)
    return template


def languages() -> list[str]:
    """The languages that have a catalogue."""
    return sorted(path.stem for path in FOLDER.glob("*.po"))


def read(lang: str) -> Catalog:
    """The catalogue of a language as it lies there; an empty one where there is none."""
    catalogue = PlainCatalog(
        locale=lang,
        header_comment="# attn in another language; see tests/catalogues.py",
        fuzzy=False,
    )
    path = FOLDER / f"{lang}.po"
    if path.exists():
        with path.open("rb") as file:
            for entry in read_po(file, locale=lang):
                if entry.id:
                    catalogue.add(entry.id, entry.string, flags=entry.flags, context=entry.context,
                                  user_comments=entry.user_comments)  # fmt: skip
    return catalogue


def updated(lang: str, template: Catalog) -> Catalog:
    """The catalogue of a language with exactly the sentences of the source."""
    before = read(lang)
    after = PlainCatalog(locale=lang, header_comment=HEADER, fuzzy=False)
    for entry in template:
        if not entry.id:
            continue
        past = before.get(entry.id if isinstance(entry.id, str) else entry.id[0], entry.context)
        same = past is not None and past.id == entry.id
        after.add(entry.id, past.string if same else None, context=entry.context,
                  user_comments=past.user_comments if same else ())  # fmt: skip
    return after


def po_bytes(catalogue: Catalog) -> bytes:
    """A catalogue as a translator reads it."""
    stream = BytesIO()
    write_po(stream, catalogue, width=0, no_location=True, sort_output=True)
    return stream.getvalue()


def mo_bytes(catalogue: Catalog) -> bytes:
    """A catalogue as the program reads it."""
    stream = BytesIO()
    write_mo(stream, catalogue)
    return stream.getvalue()


def main(*new: str) -> int:
    """Update and compile every catalogue, and begin those of new languages. Returns how many
    sentences lack one.
    """
    template, without = sentences(), 0
    for lang in sorted({*languages(), *new}):
        catalogue = updated(lang, template)
        (FOLDER / f"{lang}.po").write_bytes(po_bytes(catalogue))
        (FOLDER / f"{lang}.mo").write_bytes(mo_bytes(catalogue))
        missing = [entry.id for entry in catalogue if entry.id and not is_translated(entry.string)]
        without += len(missing)
        print(f"{lang}: {len(catalogue)} sentences, {len(missing)} without a translation")  # noqa: T201
        for text in missing[:20]:
            print(f"    {text!r}")  # noqa: T201
    return without


def is_translated(string: str | tuple[str, ...]) -> bool:
    """Whether a sentence has its translation, in all its numbers."""
    return bool(string) if isinstance(string, str) else bool(string) and all(string)


if __name__ == "__main__":
    sys.exit(bool(main(*sys.argv[1:])))
