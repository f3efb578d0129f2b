"""A command to try next, whole: with the model and the text that a document is about, so that it
can be copied as it stands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isclose
from typing import TYPE_CHECKING, Any

from attncli.draw.lines import FAINT, Lines, line, remark, stack
from attncli.draw.safe import cells, safe, spell
from attncli.draw.token_names import token_reference
from attncli.draw.view import View
from attncli.inputs.tokenize import words

if TYPE_CHECKING:
    from attncli.documents import TokenRow

UNKNOWN_OPTIONS = "OPTIONS"
"""Stands in a command for the options that a document does not hold."""
WITHOUT_HASHING = ("find",)
"""Commands that refuse hash attention."""
LINKS_ALONE = ("find",)
"""Commands that refuse what changes no link."""
AFTER_HEADS = ("output_projection", "residual", "layer_norm")
"""The options of what becomes of the heads' output, which changes no link."""
CHAT = ("chat", "chat_template", "chat_var", "generation_prompt")
"""The options of a chat."""
OF_TEXT = ("file", "pair", "ids", *CHAT)
"""The options that give a text."""
LIMITS = ("max_memory",)
"""The options that may refuse a run and change no number."""
LONGEST_TEXT = 400
"""Characters of a text that a command holds; a longer one is a file of the reader's."""
CONTINUED = " \\"
"""Ends a line of a command that goes on."""
QUOTED_PART = ("'\\", '"\\')
"""How a part of a text ends that the next line goes on with."""
ESCAPE = re.compile(r"\\(?:U([0-9a-f]{8})|(.))", re.DOTALL)
"""What stands in `$'...'` for a sign."""
TOKENIZERS: dict[str, Callable[[str], list[tuple[int, int]]]] = {
    "": lambda text: list(words(text)),
    "whitespace": lambda text: [match.span() for match in re.finditer(r"\S+", text)],
    "char": lambda text: [match.span() for match in re.finditer(r"\S", text)],
}
"""What `--tokenizer` says for seeded weights, and where it cuts a text; the first without it."""


def command_about(document: Any, name: str, options: Sequence[str], view: View) -> list[str]:
    """The words of a command about a document's own text and model, computed as it was.

    Args:
        document: Of one text.
        name: The command's.
        options: The other words, as a shell reads them.
        view: What was given on the command line; and whether only ASCII may be written: no other
            text can then be copied.

    Returns:
        The words, quoted as a shell needs them: command, model, what changes the computation, text,
        options. A text that was given as token ids is `--ids`; a long one, or one that cannot be
        written, is `--file FILE` for the reader to fill in. Where only the document is known,
        `OPTIONS` stands for the options that it does not hold. Nothing where no such command
        computes the same.
    """
    if name in WITHOUT_HASHING and document.attention.hashing:
        return []
    if view.run_options is None:
        known = [*_model_words(document), *_stated_words(document), UNKNOWN_OPTIONS]
        return ["attn", name, *known, *_text_words(document, view), *options]
    run_options = dict(view.run_options)  # by name, the option and its value as they were typed
    # weights that `--weigh` has changed, the command would not compute; nor can all be copied
    if "weigh" in run_options or not _can_be_written(run_options, view):
        return []
    # `--seed random` without the seed that was drawn: no command computes the same again; the
    # words of an option are its name and then its value, none where it was not given
    if run_options.get("seed", ())[-1:] == ("random",) and document.model.seed is None:
        return []
    # what was given, but for the text, which follows at the end, and options without effect here
    left_out = {*OF_TEXT, *LIMITS}
    if name in LINKS_ALONE:
        left_out.update(AFTER_HEADS)
    if document.model.source in ("seeded", "random"):
        model_words = _seeded_words(document)
        left_out.update(("num_heads", "seed", "d_model"))
    elif "model" in run_options or "weights" in run_options:
        model_words = []
    else:
        model_words = _model_words(document)
    carried: list[str] = []
    for option, option_words in run_options.items():
        if option not in left_out:
            carried += map(_quoted, option_words)
    text = _given_text(document, run_options, view)
    return ["attn", name, *model_words, *carried, *text, *options]


def reference(document: Any, index: int, view: View) -> str:
    """A token of a document as a command's option names it: `cat`, or `'#3'` by its position. A word
    that was merged from tokens is named by their positions, `'#3-5'`: a new run does not merge."""
    tokens: Sequence[TokenRow] = document.tokens
    name = token_reference(tokens, index, view)
    pieces = getattr(document, "pieces", None)  # the tokens themselves, where they were merged
    if not name.startswith("'#") or not pieces:
        return name
    word = tokens[index]
    token_indices = [
        piece.index
        for piece in pieces
        if None not in (piece.start, word.start, piece.end, word.end)
        and word.start <= piece.start
        and piece.end <= word.end
    ]
    if token_indices:
        return f"'#{token_indices[0]}-{token_indices[-1]}'"
    return name


def command_lines(
    command_words: Sequence[str], view: View, *, before: str = "", style: str = FAINT
) -> Lines:
    """A command on as few lines as the width allows: each but the last ends in a backslash, so that
    a shell reads on; a text longer than a line is cut into quoted parts.

    before: one of the program's own texts, in front of it or on a line above it.
    style: of that text.

    Nothing for no words.
    """
    if not command_words:
        return Lines()
    # 4 cells less than a line: for what ends it where the command goes on
    parts = [part for word in _with_values(command_words) for part in _parts(word, view.width - 4)]
    rows = [parts[0]]
    for previous, part in pairwise(parts):
        # a part of a cut text ends its line: the next part begins the next line without a space
        is_inside_text = previous.endswith(QUOTED_PART)
        if not is_inside_text and cells(f"{rows[-1]} {part}") + len(CONTINUED) <= view.width:
            rows[-1] += f" {part}"
        else:
            rows.append(part)
    # a row that ends inside a text has its backslash, right behind the quote; the last needs none
    *rows_before, last_row = rows
    lines = [row if row.endswith(QUOTED_PART) else row + CONTINUED for row in rows_before]
    lines.append(last_row)
    shown = [line((safe(text, ascii=view.ascii), FAINT)) for text in lines]
    if not before:
        return stack(*shown)
    name = spell(before, ascii=view.ascii)
    if len(lines) == 1 and cells(f"{name}  {lines[0]}") <= view.width:
        return line((name, style), (f"  {safe(lines[0], ascii=view.ascii)}", FAINT))
    return stack(line((name, style)), *shown)


def options_note(view: View) -> Lines:
    """A remark on what `OPTIONS` stands for in the commands above; no lines where the options of the
    run are known and the commands hold them all."""
    if view.run_options is not None:
        return Lines()
    return remark("OPTIONS: those that this was run with and its document does not hold", view)


def _model_words(document: Any) -> list[str]:
    """The options that name a document's model: `--model`, `--weights`, or those of seeded weights.
    MODEL or FILE stands for a name that the document does not hold."""
    model = document.model
    if model.source == "checkpoint":
        adapters = [
            word for adapter in model.adapters or () for word in ("--adapter", shlex.quote(adapter))
        ]
        return ["--model", shlex.quote(model.name or "MODEL"), *adapters]
    if model.source == "file":
        return ["--weights", shlex.quote(model.name or "FILE")]
    return [*_seeded_words(document), *_tokenizer_words(document)]


def _seeded_words(document: Any) -> list[str]:
    """`--num-heads`, `--seed` and `--d-model` of seeded weights: commands differ in their defaults of
    these. Seed 0 and a width of 64 are left out."""
    model = document.model
    options = ["--num-heads", str(model.heads)]
    if model.seed:
        options += ["--seed", str(model.seed)]
    if model.d_model != 64:
        options += ["--d-model", str(model.d_model)]
    return options


def _stated_words(document: Any) -> list[str]:
    """The options for what a document of seeded weights states and a command would not do by itself:
    head widths, mask, scale, cap and positions. None for other weights."""
    model = document.model
    attention = document.attention
    if model.source not in ("seeded", "random"):
        return []
    words = []
    for option, width in (("--d-k", model.d_k), ("--d-v", model.d_v)):
        if width != model.d_model // model.heads:
            words += [option, str(width)]
    if attention.mask != "none":
        words += ["--mask", shlex.quote(attention.mask)]
    if attention.scale is not None and not isclose(attention.scale, model.d_k**-0.5):
        words += ["--scale", repr(attention.scale)]
    if attention.softcap is not None:
        words += ["--softcap", repr(attention.softcap)]
    if attention.position != "none":
        words += ["--position", shlex.quote(attention.position)]
    return words


def _can_be_written(run_options: Mapping[str, tuple[str, ...]], view: View) -> bool:
    """Whether a reader can copy the options that were given: not with a zero byte in them, nor with
    letters beyond ASCII on an ASCII screen, which shows them as escapes."""
    words_given = [word for option_words in run_options.values() for word in option_words]
    return not any("\0" in word or (view.ascii and not word.isascii()) for word in words_given)


def _quoted(word: str) -> str:
    """A word as a shell reads it."""
    if word.isprintable():
        return shlex.quote(word)
    return shell_text(word)


def _given_text(document: Any, run_options: Mapping[str, tuple[str, ...]], view: View) -> list[str]:
    """The words of a document's text as it was given: ids, a chat, a text of two segments, a file,
    or the text itself. FILE stands for what the reader fills in: the standard input ("-") of the
    run, or a file for a text that is too long for a command.

    run_options: by name, the option and its value as they were typed.
    """
    if "ids" in run_options:
        return [*map(_quoted, run_options["ids"])]
    if "chat" in run_options:
        return [
            word if word != "-" else "FILE"
            for option in CHAT
            for word in map(_quoted, run_options.get(option, ()))
        ]
    if "pair" in run_options:
        # the document's text is the two segments on lines of their own; where it does not end in the
        # second as it was typed, the first is not known
        first = document.text.removesuffix("\n" + run_options["pair"][-1])
        if first == document.text or len(first) > LONGEST_TEXT:
            return ["--file", "FILE", *map(_quoted, run_options["pair"])]
        return [shell_text(first), *map(_quoted, run_options["pair"])]
    text_words = _text_words(document, view)
    file_words = run_options.get("file")
    if text_words == ["--file", "FILE"] and file_words and file_words[-1] != "-":
        return [*map(_quoted, file_words)]
    return text_words


def _tokenizer_words(document: Any) -> list[str]:
    """The `--tokenizer` option with the kind that cuts the document's text into its tokens: none for
    words, the default; `--tokenizer PATH` where no built-in kind does."""
    spans = [(row.start, row.end) for row in getattr(document, "pieces", None) or document.tokens]
    for name, cut in TOKENIZERS.items():
        if cut(document.text) == spans:
            if name:  # "" is the default
                return ["--tokenizer", name]
            return []
    return ["--tokenizer", "PATH"]


def _text_words(document: Any, view: View) -> list[str]:
    """A document's text as words of a command: quoted; `--ids` where only token ids are known; or
    `--file FILE` for one that is long or cannot be written."""
    text = document.text
    ids = [row.id for row in getattr(document, "pieces", None) or document.tokens]
    if not text and ids and None not in ids:
        numbers = " ".join(map(str, ids))
        if len(numbers) <= LONGEST_TEXT:
            return ["--ids", f'"{numbers}"']
    is_shown = text.isascii() or not view.ascii
    if not is_shown or "\0" in text or not 0 < len(text) <= LONGEST_TEXT:
        return ["--file", "FILE"]
    return [shell_text(text)]


def shell_text(text: str) -> str:
    """A text quoted for a shell: in double quotes, or in single ones where a character in it means
    something to a shell; as `$'...'`, which bash, zsh and ksh read, where it has line breaks or
    characters that cannot be printed."""
    if not text.isprintable():
        escaped = "".join(map(_escape, text))
        return f"$'{escaped}'"
    if any(sign in text for sign in '"$`!\\'):
        return shlex.quote(text)
    return f'"{text}"'


def _escape(character: str) -> str:
    """A character as a shell's `$'...'` spells it: `\\n`, `\\'`, `\\U0000001b`, or itself."""
    if character == "\n":
        return r"\n"
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    return f"\\U{ord(character):08x}"


def _shell_words(word: str) -> list[str]:
    """The words that a shell reads: one of a quoted word such as `"a b"`, two of an option with its
    value such as `--file 'a b'`."""
    if not word.startswith("$'"):
        return shlex.split(word)
    return [ESCAPE.sub(_unescape, word[2:-1])]


def _unescape(escape: re.Match[str]) -> str:
    """The character that a match of `ESCAPE` stands for: undoes `_escape`."""
    if escape[1]:
        return chr(int(escape[1], 16))
    if escape[2] == "n":
        return "\n"
    return escape[2]


def _with_values(command_words: Sequence[str]) -> Iterator[str]:
    """The words of a command, each option joined with its value, so that no line breaks between:
    "--top", "5" becomes "--top 5"."""
    option = ""  # an option whose value may be the next word
    for word in command_words:
        if option and not word.startswith("--"):
            yield f"{option} {word}"
            option = ""
            continue
        if option:
            yield option
            option = ""
        if word.startswith("--"):
            option = word
        else:
            yield word
    if option:
        yield option


def _parts(word: str, room: int) -> list[str]:
    """A word of a command as it is, or, where it takes more than `room` cells, in quoted parts: all
    but the last end in a backslash after the closing quote, and a shell joins them."""
    if cells(word) <= room:
        return [word]
    first, *values = _shell_words(word)
    if values:  # `first` is an option, with its value
        return [first, *_parts(shell_text(values[0]), room)]
    text = first
    parts = [""]
    # cut after words with the spaces behind them; where one word is too long, anywhere
    pieces = re.findall(r"\S+\s*|\s+", text)
    if any(cells(shell_text(piece)) > room for piece in pieces):
        pieces = list(text)
    for piece in pieces:
        if parts[-1] and cells(shell_text(parts[-1] + piece)) > room:
            parts.append("")
        parts[-1] += piece
    return [*(shell_text(part) + "\\" for part in parts[:-1]), shell_text(parts[-1])]
