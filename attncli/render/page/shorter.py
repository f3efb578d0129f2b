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


class Part(NamedTuple):
    """A piece of a script. kind: "name", "number", "sign", or "text" for strings, patterns and template pieces."""

    kind: str
    text: str


def joined(modules: Mapping[str, str]) -> str:
    """The modules, by name, in the order in which they run, as one script that hands out nothing.

    What a module declares at its top gets a name of its own in the whole script, everything else one that other modules
    use again. Raises ValueError for what it cannot read, and for two exports of one name.
    """
    read = {name: list(_parts(IMPORT.sub("", source))) for name, source in modules.items()}
    used = {part.text for parts in read.values() for part in parts if part.kind == "name"}
    names = (name for name in _names() if name not in used and name not in WORDS)
    tops: dict[str, dict[str, str]] = {}
    exported: dict[str, str] = {}
    inner = {name: _order(parts) for name, parts in read.items()}
    local = [next(names) for _ in range(max(map(len, inner.values()), default=0))]
    for name, parts in read.items():
        own = dict.fromkeys(_declared(parts, top=True))
        tops[name] = {one: next(names) for one in own}
        for one in re.findall(r"\w+", " ".join(EXPORT.findall(modules[name]))):
            if one in exported:
                raise ValueError(f"{one} is exported twice")
            exported[one] = tops[name][one]
    out = ['(()=>{"use strict";']
    for name, parts in read.items():
        imported = [one.strip() for group in IMPORT.findall(modules[name]) for one in group.split(",")]
        mapping = dict(zip(inner[name], local, strict=False))
        mapping |= tops[name] | {one: exported[one] for one in imported}
        out.append(_written([part for part in parts if part.text != "export"], mapping))
    return "".join(out) + "})();"


def _order(parts: Sequence[Part]) -> list[str]:
    """What is declared, the most used first."""
    used = Counter(part.text for part in parts if part.kind == "name")
    return sorted(dict.fromkeys(_declared(parts)), key=lambda name: (-used[name], name))


def _written(parts: Sequence[Part], names: Mapping[str, str]) -> str:
    """The parts without spaces, names replaced."""
    out: list[str] = []
    braces: list[bool] = []  # for each open bracket, whether it is of an object or a pattern
    for at, (kind, text) in enumerate(parts):
        before = parts[at - 1] if at else Part("sign", ";")
        after = parts[at + 1].text if at + 1 < len(parts) else ""
        if text in ("{", "[", "("):
            braces.append(text == "{" and (before.text in OBJECT or before.text.endswith("${")))
        elif text in ("}", "]", ")"):
            braces.pop()
        shown = text
        if kind == "name" and text in names and before.text not in (".", "?."):
            inside = bool(braces) and braces[-1] and before.text in ("{", ",")
            if inside and after == "(":
                raise ValueError(f"{text} is a method without a colon, and a name besides")
            if inside and after in (",", "}", "="):
                shown = f"{text}:{names[text]}"
            elif not (inside and after == ":"):
                shown = names[text]
        last = out[-1] if out else ""
        both = last[-1:] + shown[:1]
        if re.fullmatch(r"[\w$]{2}", both) or both in ("++", "--"):
            shown = " " + shown
        if text == "}" and last == ";":
            out.pop()
        if text != "," or after not in ("}", ")", "]"):
            out.append(shown)
    return "".join(out)


def _parts(script: str, start: int = 0, end: str = "") -> Iterator[Part]:
    """The pieces of a script from `start`; up to the brace that closes a template's place, where `end` is one."""
    at, depth, before = start, 0, Part("sign", ";")
    while at < len(script):
        if found := SPACE.match(script, at):
            at = found.end()
            continue
        if script[at] == "`":
            for part in _template(script, at):
                yield part
                before = part
            at = _after_template(script, at)
            continue
        ends = before.kind in ("number", "text") or before.text in (")", "]", "}")
        ends = ends or (before.kind == "name" and before.text not in WORDS)
        kind, found = "text", STRING.match(script, at)
        if not found and not ends:
            found = PATTERN.match(script, at)
        for other, pattern in (("name", NAME), ("number", NUMBER), ("sign", SIGN)):
            if not found:
                kind, found = other, pattern.match(script, at)
        if not found:
            raise ValueError(f"no JavaScript that is understood: {script[at : at + 40]!r}")
        depth += (found[0] == "{") - (found[0] == "}")
        if end and depth < 0:
            return
        before = Part(kind, found[0])
        yield before
        at = found.end()


def _pieces(script: str, start: int) -> Iterator[tuple[int, int, bool]]:
    """A template's pieces from its first backquote: where each begins and ends, and whether it is a place to fill."""
    at = begin = start + 1
    while script[at] != "`":
        if script.startswith("${", at):
            yield begin, at, False
            begin = at = at + 2
            depth = 1
            while depth:
                if script[at] == "`":
                    at = _after_template(script, at)
                    continue
                string = STRING.match(script, at)
                if string:
                    at = string.end()
                    continue
                depth += (script[at] == "{") - (script[at] == "}")
                at += 1
            yield begin, at - 1, True
            begin = at
        else:
            at += 2 if script[at] == "\\" else 1
    yield begin, at, False


def _after_template(script: str, start: int) -> int:
    """The place after the backquote that closes a template."""
    return max(stop for _, stop, _ in _pieces(script, start)) + 1


def _template(script: str, start: int) -> Iterator[Part]:
    """A template as pieces: its own text, and the pieces of what fills it."""
    text = "`"
    for begin, stop, place in _pieces(script, start):
        if place:
            yield Part("text", text + "${")
            yield from _parts(script[begin:stop])
            text = "}"
        else:
            text += script[begin:stop]
    yield Part("text", text + "`")


def _names() -> Iterator[str]:
    for length in count(1):
        for number in range(len(LETTERS) ** length):
            name = ""
            for _ in range(length):
                number, letter = divmod(number, len(LETTERS))
                name += LETTERS[letter]
            yield name


def _declared(parts: Sequence[Part], *, top: bool = False) -> Iterator[str]:
    """The names after const, let and function, and those of parameters; top: only what stands in no brace."""
    depth = 0
    for at, part in enumerate(parts):
        depth += (part.text in ("{", "[", "(")) - (part.text in ("}", "]", ")"))
        if top and depth:
            continue
        if part.text in ("const", "let"):
            yield from _bound(parts, at + 1)
        elif part.text == "function":
            opening = next(place for place in range(at, len(parts)) if parts[place].text == "(")
            yield from (one.text for one in parts[at + 1 : opening] if one.kind == "name")
            yield from () if top else _bound(parts, opening)
        elif part.text == "=>" and not top:
            if parts[at - 1].kind == "name":
                yield parts[at - 1].text
            else:
                yield from _bound(parts, _opening(parts, at - 1))


def _bound(parts: Sequence[Part], start: int) -> Iterator[str]:
    """The names that a pattern or a list of parameters binds, or the plain name that stands here."""
    if parts[start].kind == "name":
        yield parts[start].text
        return
    depth = 0
    for at in range(start, len(parts)):
        part, before, after = parts[at], parts[at - 1].text, parts[at + 1].text if at + 1 < len(parts) else ""
        depth += (part.text in ("{", "[", "(")) - (part.text in ("}", "]", ")"))
        # what follows "=" is a default, what stands before ":" the name of a property
        if part.kind == "name" and after != ":" and before in ("{", "[", "(", ",", ":", "..."):
            yield part.text
        if depth == 0:
            return


def _opening(parts: Sequence[Part], closing: int) -> int:
    """Where the bracket opens that closes here."""
    depth = 0
    for at in range(closing, -1, -1):
        depth += (parts[at].text in ("}", "]", ")")) - (parts[at].text in ("{", "[", "("))
        if depth == 0:
            return at
    raise ValueError("a bracket closes that was never opened")
