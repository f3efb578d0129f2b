"""Modules joined into one script of fewer bytes: no comments and spaces, and short names for what they declare.

It knows as much of JavaScript as the page's modules use: every statement ends in a semicolon or a brace, and a name
that a module declares stands for nothing else there. Properties keep their names; `{name}` becomes `{name:a}`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
NAME = re.compile(r"[A-Za-z_$][\w$]*")
NUMBER = re.compile(r"\d[\w.]*|\.\d[\w]*")
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
PATTERN = re.compile(r"/(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
SIGN = re.compile(
    r"\.\.\.|\?\.(?!\d)|=>|===|!==|\*\*|\?\?|&&|\|\||<<|>>>?|[-+*/%<>=!&|^]=|\+\+|--|[{}()\[\];,<>=!+\-*/%&|^~?:.]"
)
WORDS = frozenset((
    "async", "await", "break", "case", "catch", "class", "const", "continue", "default", "delete", "do", "else", "export", "extends",
    "false", "finally", "for", "function", "get", "if", "import", "in", "instanceof", "let", "new", "null", "of", "return", "set",
    "static", "super", "switch", "this", "throw", "true", "try", "typeof", "undefined", "var", "void", "while", "yield",
))  # fmt: skip
OBJECT = frozenset(("=", "(", ",", ":", "[", "return", "?", "&&", "||", "??", "const", "let", "...", "of", "in", "!"))
"""What stands before the brace of an object or a pattern, and not before that of a block."""
IMPORT = re.compile(r'^import \{ ([^}]+) \} from "\./\w+\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|const) (\w+|\{[^}]*\})", re.MULTILINE)
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class ScriptPiece(NamedTuple):
    """A piece of a script. kind: "name", "number", "sign", or "text" for strings, patterns and template pieces."""

    kind: str
    text: str


def join_modules(modules: Mapping[str, str]) -> str:
    """The modules, by name, in the order in which they run, as one script that hands out nothing.

    What a module declares at its top gets a name of its own in the whole script, everything else one that other modules
    use again. Raises ValueError for what it cannot read, and for two exports of one name.
    """
    parts_by_module = {name: list(_parts(IMPORT.sub("", source))) for name, source in modules.items()}
    taken_names = {part.text for parts in parts_by_module.values() for part in parts if part.kind == "name"}
    names = (name for name in _names() if name not in taken_names and name not in WORDS)
    tops: dict[str, dict[str, str]] = {}
    exported_names: dict[str, str] = {}
    inner = {name: _order(parts) for name, parts in parts_by_module.items()}
    local = [next(names) for _ in range(max(map(len, inner.values()), default=0))]
    for name, parts in parts_by_module.items():
        top_names = dict.fromkeys(_declared_names(parts, top=True))
        tops[name] = {export: next(names) for export in top_names}
        for export in re.findall(r"\w+", " ".join(EXPORT.findall(modules[name]))):
            if export in exported_names:
                raise ValueError(f"{export} is exported twice")
            exported_names[export] = tops[name][export]
    out = ['(()=>{"use strict";']
    for name, parts in parts_by_module.items():
        imports = [export.strip() for group in IMPORT.findall(modules[name]) for export in group.split(",")]
        mapping = dict(zip(inner[name], local, strict=False))
        mapping |= tops[name] | {export: exported_names[export] for export in imports}
        out.append(_write_parts([part for part in parts if part.text != "export"], mapping))
    return "".join(out) + "})();"


def _order(parts: Sequence[ScriptPiece]) -> list[str]:
    """What is declared, the most used first."""
    counts = Counter(part.text for part in parts if part.kind == "name")
    return sorted(dict.fromkeys(_declared_names(parts)), key=lambda name: (-counts[name], name))


def _write_parts(parts: Sequence[ScriptPiece], names: Mapping[str, str]) -> str:
    """The parts without spaces, names replaced."""
    out: list[str] = []
    braces: list[bool] = []  # for each open bracket, whether it is of an object or a pattern
    for index, (kind, text) in enumerate(parts):
        before = parts[index - 1] if index else ScriptPiece("sign", ";")
        after = parts[index + 1].text if index + 1 < len(parts) else ""
        if text in ("{", "[", "("):
            braces.append(text == "{" and (before.text in OBJECT or before.text.endswith("${")))
        elif text in ("}", "]", ")"):
            braces.pop()
        written_text = text
        if kind == "name" and text in names and before.text not in (".", "?."):
            inside = bool(braces) and braces[-1] and before.text in ("{", ",")
            if inside and after == "(":
                raise ValueError(f"{text} is a method without a colon, and a name besides")
            if inside and after in (",", "}", "="):
                written_text = f"{text}:{names[text]}"
            elif not (inside and after == ":"):
                written_text = names[text]
        last = out[-1] if out else ""
        ends = last[-1:] + written_text[:1]
        if re.fullmatch(r"[\w$]{2}", ends) or ends in ("++", "--"):
            written_text = " " + written_text
        if text == "}" and last == ";":
            out.pop()
        if text != "," or after not in ("}", ")", "]"):
            out.append(written_text)
    return "".join(out)


def _parts(script: str, start: int = 0, end: str = "") -> Iterator[ScriptPiece]:
    """The pieces of a script from `start`; up to the brace that closes a template's place, where `end` is one."""
    position, depth, before = start, 0, ScriptPiece("sign", ";")
    while position < len(script):
        if space := SPACE.match(script, position):
            position = space.end()
            continue
        if script[position] == "`":
            for part in _template(script, position):
                yield part
                before = part
            position = _after_template(script, position)
            continue
        ends = before.kind in ("number", "text") or before.text in (")", "]", "}")
        ends = ends or (before.kind == "name" and before.text not in WORDS)
        kind, space = "text", STRING.match(script, position)
        if not space and not ends:
            space = PATTERN.match(script, position)
        for token_kind, pattern in (("name", NAME), ("number", NUMBER), ("sign", SIGN)):
            if not space:
                kind, space = token_kind, pattern.match(script, position)
        if not space:
            raise ValueError(f"no JavaScript that is understood: {script[position : position + 40]!r}")
        depth += (space[0] == "{") - (space[0] == "}")
        if end and depth < 0:
            return
        before = ScriptPiece(kind, space[0])
        yield before
        position = space.end()


def _pieces(script: str, start: int) -> Iterator[tuple[int, int, bool]]:
    """A template's pieces from its first backquote: where each begins and ends, and whether it is a place to fill."""
    position = begin = start + 1
    while script[position] != "`":
        if script.startswith("${", position):
            yield begin, position, False
            begin = position = position + 2
            depth = 1
            while depth:
                if script[position] == "`":
                    position = _after_template(script, position)
                    continue
                string = STRING.match(script, position)
                if string:
                    position = string.end()
                    continue
                depth += (script[position] == "{") - (script[position] == "}")
                position += 1
            yield begin, position - 1, True
            begin = position
        else:
            position += 2 if script[position] == "\\" else 1
    yield begin, position, False


def _after_template(script: str, start: int) -> int:
    """The place after the backquote that closes a template."""
    return max(stop for _, stop, _ in _pieces(script, start)) + 1


def _template(script: str, start: int) -> Iterator[ScriptPiece]:
    """A template as pieces: its own text, and the pieces of what fills it."""
    text = "`"
    for begin, stop, place in _pieces(script, start):
        if place:
            yield ScriptPiece("text", text + "${")
            yield from _parts(script[begin:stop])
            text = "}"
        else:
            text += script[begin:stop]
    yield ScriptPiece("text", text + "`")


def _names() -> Iterator[str]:
    for length in count(1):
        for number in range(len(LETTERS) ** length):
            name = ""
            for _ in range(length):
                number, letter = divmod(number, len(LETTERS))
                name += LETTERS[letter]
            yield name


def _declared_names(parts: Sequence[ScriptPiece], *, top: bool = False) -> Iterator[str]:
    """The names after const, let and function, and those of parameters; top: only what stands in no brace."""
    depth = 0
    for index, part in enumerate(parts):
        depth += (part.text in ("{", "[", "(")) - (part.text in ("}", "]", ")"))
        if top and depth:
            continue
        if part.text in ("const", "let"):
            yield from _bound_names(parts, index + 1)
        elif part.text == "function":
            opening = next(place for place in range(index, len(parts)) if parts[place].text == "(")
            yield from (piece.text for piece in parts[index + 1 : opening] if piece.kind == "name")
            yield from () if top else _bound_names(parts, opening)
        elif part.text == "=>" and not top:
            if parts[index - 1].kind == "name":
                yield parts[index - 1].text
            else:
                yield from _bound_names(parts, _opening(parts, index - 1))


def _bound_names(parts: Sequence[ScriptPiece], start: int) -> Iterator[str]:
    """The names that a pattern or a list of parameters binds, or the plain name that stands here."""
    if parts[start].kind == "name":
        yield parts[start].text
        return
    depth = 0
    for index in range(start, len(parts)):
        part, before, after = (
            parts[index],
            parts[index - 1].text,
            parts[index + 1].text if index + 1 < len(parts) else "",
        )
        depth += (part.text in ("{", "[", "(")) - (part.text in ("}", "]", ")"))
        # what follows "=" is a default, what stands before ":" the name of a property
        if part.kind == "name" and after != ":" and before in ("{", "[", "(", ",", ":", "..."):
            yield part.text
        if depth == 0:
            return


def _opening(parts: Sequence[ScriptPiece], closing: int) -> int:
    """Where the bracket opens that closes here."""
    depth = 0
    for index in range(closing, -1, -1):
        depth += (parts[index].text in ("}", "]", ")")) - (parts[index].text in ("{", "[", "("))
        if depth == 0:
            return index
    raise ValueError("a bracket closes that was never opened")
