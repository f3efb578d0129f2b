"""Chats: messages with roles, written as one text by the template that a checkpoint brings, and its
tokens.

Templates are Jinja, and anybody may have written them: they run in Jinja's immutable sandbox, on
plain data, within bounds of time and output. What a user wrote is never read as a control token of
the template.

Source: the templates' environment (blocks trimmed, `tojson`, `raise_exception`, `strftime_now`, the
`generation` tag) is the one that Hugging Face's chat templating documents; the tests compare with
it token for token.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

from attncli.errors import AttnError, InputError, LimitError, UsageError, first_sentence
from attncli.extras import install_command
from attncli.inputs.files import is_there, read_object, read_regular, refuse_half_characters
from attncli.inputs.rendered_chat import ChatPart, RenderedChat
from attncli.inputs.token import TEXT_LIMIT, Token, Tokenizer
from attncli.inputs.vocabulary_tokenizer import PieceTokenizer
from attncli.language import message, term

TEMPLATE_LIMIT = 2**20
"""Bytes of a template; the longest in use have some 20,000."""
SECONDS = 5.0
OUTPUT_LIMIT = TEXT_LIMIT
LONGEST_PRODUCT = 10**6
"""What `*`, `**` and a width may make: templates of models that are in use repeat nothing."""
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names under which a message's reasoning is handed on; templates read the first two."""


class Chat(Struct, frozen=True, eq=False):
    """The messages of a chat, and the tools, as the chat template reads them. where: the file they
    were read from, for errors."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    where: str


class ChatTemplate(Struct, frozen=True):
    """A checkpoint's chat template, Jinja source. special: the spellings of special tokens that it
    may write, by the name of the variable, such as `bos_token`. where: its file, for errors."""

    source: str
    special: Mapping[str, str]
    where: str


def parse_chat(raw: bytes, where: str) -> Chat:
    """The chat in a JSON file: a list of {role, content}, or an object with `messages` and, maybe,
    `tools`.

    Raises InputError for what is no such chat, naming the message.
    """
    expected = message(
        "a list of messages such as {example}", example='[{"role": "user", "content": "…"}]'
    )
    try:
        value = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InputError("this chat is not UTF-8", where=where, expected=expected) from error
    except json.JSONDecodeError as error:
        raise InputError(
            "this chat is no JSON: {reason}",
            where=message(
                "{file}, line {line}, column {column}",
                file=where,
                line=error.lineno,
                column=error.colno,
            ),
            expected=expected,
            reason=error.msg,
        ) from error
    except (RecursionError, ValueError) as error:
        raise InputError(
            "this chat is no JSON: {reason}",
            where=where,
            expected=expected,
            reason=first_sentence(error),
        ) from error
    refuse_half_characters(value, where)
    tools: Any = None
    if isinstance(value, dict):
        tools = value.get("tools")
        value = value.get("messages")
    if not isinstance(value, list):
        raise InputError("this chat is no list of messages", where=where, expected=expected)
    if tools is not None and not isinstance(tools, list):
        raise InputError(
            "the tools of this chat are no list", where=where, expected="a list of JSON schemas"
        )
    if not value:
        raise InputError("this chat has no messages", where=where, expected="at least one")
    return Chat(
        [_checked_message(entry, number, where) for number, entry in enumerate(value)],
        tools or None,
        where,
    )


def _refuse_constant(word: str) -> float:
    """Raises ValueError: the callback of the JSON parser for NaN and Infinity, which JSON does not
    have.
    """
    raise ValueError(word)


def _checked_message(entry: Any, number: int, where: str) -> dict[str, Any]:
    """A message as templates read it, without what is null. number: its place, for errors. Raises
    InputError for one without a role or a text."""
    place = message("{file}, message {number}", file=where, number=number)
    if not isinstance(entry, dict) or not isinstance(entry.get("role"), str) or not entry["role"]:
        raise InputError(
            "this message has no role",
            where=place,
            expected='an object with "role" and "content", both texts',
        )
    content = entry.get("content")
    if isinstance(content, list):
        parts: list[Any] = content
    else:
        parts = [{"type": "text", "text": content}]
    for part in parts:
        if isinstance(part, dict):
            text = part.get("text")
        else:
            text = None
        if content is not None and not isinstance(text, str):
            expected = message('a text, or a list of {"type": "text", "text": "…"}')
            raise InputError(
                "the content of this message is no text", where=place, expected=expected
            )
    fields = {key: value for key, value in entry.items() if value is not None}
    reasoning = next((fields[key] for key in REASONING if key in fields), None)
    if reasoning is None:
        return fields
    return {"thinking": reasoning, **fields, "reasoning_content": reasoning}


def read_template(tokenizer: Tokenizer, tools: bool, file: Path | None = None) -> ChatTemplate:
    """The chat template of a tokenizer's checkpoint: the one in `file`, else `chat_template.jinja`
    in its folder, else that of tokenizer_config.json.

    Args:
        tokenizer: One that was read from a checkpoint's folder.
        tools: Whether the chat has tools: some checkpoints have a template for these alone.
        file: A template to take in place of the checkpoint's.

    Raises:
        InputError: Where there is none, and for a file that cannot be read.
    """
    path = Path(tokenizer.name)
    folder = (
        path.parent if isinstance(tokenizer, PieceTokenizer) or path.suffix == ".json" else None
    )
    settings: dict[str, Any] = {}
    if folder is not None and is_there(folder / "tokenizer_config.json"):
        settings = read_object(
            folder / "tokenizer_config.json", what=message("a tokenizer_config.json")
        )
    special = _special_tokens(settings)
    if file is not None:
        return ChatTemplate(_template_text(file), special, str(file))
    if folder is not None and is_there(folder / "chat_template.jinja"):
        return ChatTemplate(
            _template_text(folder / "chat_template.jinja"), special, "chat_template.jinja"
        )
    template = settings.get("chat_template")
    if isinstance(template, list):
        templates = {
            part.get("name"): part.get("template") for part in template if isinstance(part, dict)
        }
        if tools and "tool_use" in templates:
            template = templates.get("tool_use")
        else:
            template = templates.get("default")
    if not isinstance(template, str):
        raise InputError(
            "this model has no chat template",
            where="" if folder is None else str(folder),
            expected="a chat_template.jinja, or a chat_template in tokenizer_config.json",
            hint="--chat-template FILE for a template of your own, or a text in place of --chat",
        )
    return ChatTemplate(template, special, "tokenizer_config.json")


def _template_text(path: Path) -> str:
    """The source of a template in a file. Raises InputError."""
    try:
        return read_regular(path, what=message("a chat template"), limit=TEMPLATE_LIMIT).decode(
            "utf-8-sig"
        )
    except UnicodeDecodeError as error:
        raise InputError(
            "this template is not UTF-8", where=str(path), expected="a Jinja template"
        ) from error


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """The spellings of special tokens in a tokenizer_config.json, by name, such as `bos_token`."""
    extra = settings.get("extra_special_tokens")
    special = {**settings, **(extra if isinstance(extra, dict) else {})}
    return {
        name: text
        for name, value in special.items()
        if name.endswith("_token")
        and isinstance(text := value.get("content") if isinstance(value, dict) else value, str)
    }


def render(
    template: ChatTemplate,
    chat: Chat,
    control: Sequence[str] = (),
    *,
    generation_prompt: bool = True,
) -> RenderedChat:
    """The text that a template makes of a chat, and where in it each message stands.

    Args:
        template: As `read_template` returns it.
        chat: As `parse_chat` returns it.
        control: Spellings that are special tokens: in what a message says they are text.
        generation_prompt: Whether the text ends where the assistant's answer begins.

    Returns:
        The text; messages that the template leaves out have no part.

    Raises:
        InputError: For a template that is no Jinja, does what the sandbox refuses, or refuses these
            messages.
        LimitError: For one that takes too long or writes too much.
    """
    with _template_errors(template):
        text = _rendered_text(template, chat.messages, chat.tools, generation_prompt)
        marked, contents = _mark_contents(chat.messages)
        pattern = _rendered_text(template, marked, chat.tools, generation_prompt)
    spans = _find_contents(text, pattern, [content for _, content in contents])
    names = _message_names(chat.messages)
    parts = []
    unplaced = []
    for (number, content), places in zip(contents, spans, strict=True):
        name = names[number]
        if places is None:
            unplaced.append(name)
        parts += [
            ChatPart(name, start, end) for start, end in places or () if content and start < end
        ]
    longest_first = sorted(filter(None, control), key=len, reverse=True)
    spelled = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
    quoted = [
        (part.start + match.start(), part.start + match.end())
        for part in parts
        for match in spelled.finditer(text[part.start : part.end])
    ]
    parts.sort(key=lambda part: part.start)
    return RenderedChat(text, tuple(parts), tuple(dict.fromkeys(unplaced)), tuple(sorted(quoted)))


def _message_names(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The name of each message in order: its role, and with a number from the second of that role
    on, such as `user:2`."""
    counts: dict[str, int] = {}
    names = []
    for entry in messages:
        role = entry["role"]
        counts[role] = counts.get(role, 0) + 1
        names.append(role if counts[role] == 1 else f"{role}:{counts[role]}")
    return names


# Where a message stands in the text: the template writes a second text of marks, which shows what
# it wrote around them.

MARK = "\ue123{number}\ue124"
MOST_CHANGED = 6
"""Messages that a template may change and that are still looked for between the others."""
_MARKED = re.compile("\ue123([0-9]+)\ue124")


def _mark_contents(
    messages: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """The messages with a numbered mark in place of each text content; and the contents in the
    marks' order, each with the index of its message."""
    contents: list[tuple[int, str]] = []

    def mark(number: int, text: str) -> str:
        """The mark to put in place of a text of the message with this index; both are added to
        `contents`.
        """
        contents.append((number, text))
        return MARK.format(number=len(contents) - 1)

    marked = []
    for number, entry in enumerate(messages):
        content = entry.get("content")
        if isinstance(content, str):
            entry = {**entry, "content": mark(number, content)}
        elif isinstance(content, list):
            entry = {
                **entry,
                "content": [{**part, "text": mark(number, part["text"])} for part in content],
            }
        marked.append(entry)
    return marked, contents


def _find_contents(
    text: str, pattern: str, contents: Sequence[str]
) -> list[list[tuple[int, int]] | None]:
    """For each content its character spans [start, end) in the rendered text; None for one that the
    template changed beyond recognition.

    pattern: the same text with marks in place of the contents.
    """
    literals = _MARKED.split(pattern)
    numbers = [int(number) for number in literals[1::2]]
    if any(number >= len(contents) for number in numbers):  # a text that spells a mark
        return _find_in_order(text, contents)
    groups = []
    changed = set[int]()
    for number in numbers:
        content = contents[number]
        spellings = dict.fromkeys((content, content.strip(), content.lstrip(), content.rstrip()))
        if content.strip() in text:
            groups.append(f"({'|'.join(map(re.escape, spellings))})")
        else:
            changed.add(number)
            groups.append("(.*?)")
    if len(changed) > MOST_CHANGED:
        return _find_in_order(text, contents)
    pieces_written = "".join(
        re.escape(literal) + group
        for literal, group in zip(literals[::2], [*groups, ""], strict=True)
    )
    match = re.fullmatch(pieces_written, text, re.DOTALL)
    if match is None:
        return _find_in_order(text, contents)
    spans: list[list[tuple[int, int]] | None] = [[] for _ in contents]
    for group, number in enumerate(numbers, 1):
        is_part = number not in changed or match[group].strip() in contents[number]
        spans[number] = [*(spans[number] or ()), match.span(group)] if is_part else None
    return spans


def _find_in_order(text: str, contents: Sequence[str]) -> list[list[tuple[int, int]] | None]:
    """For each content its character span in the text, each looked for after the one before it;
    None for one that is not found."""
    place = 0
    spans: list[list[tuple[int, int]] | None] = []
    for content in contents:
        bare = content.strip()
        start = text.find(bare, place)
        spans.append(None if start < 0 else [(start, start + len(bare))])
        if start < 0:
            place = place
        else:
            place = start + len(bare)
    return spans


# The tokens of a chat.


def control_tokens(tokenizer: Tokenizer) -> list[str]:
    """The spellings that the tokenizer recognises as special tokens anywhere in a text."""
    if not isinstance(tokenizer, PieceTokenizer):
        return []
    return list(tokenizer.special_tokens.values())


def encode_chat(tokenizer: Tokenizer, chat: RenderedChat) -> list[Token]:
    """The tokens of a chat: no special token is added, for the template writes them; control tokens
    that a user spells are read as text.

    Raises InputError for a chat that gives no tokens.
    """
    if not isinstance(tokenizer, PieceTokenizer):
        tokens = tokenizer.encode(chat.text)
    elif not chat.quoted:
        tokens = tokenizer.encode_written(chat.text)
    else:
        edges = sorted({0, len(chat.text), *(edge for span in chat.quoted for edge in span)})
        tokens = []
        for start, stop in pairwise(edges):
            is_quoted = (start, stop) in chat.quoted
            piece = tokenizer.encode_written(
                chat.text[start:stop], after=start > 0, as_text=is_quoted
            )
            tokens += [token.moved(len(tokens) + place, start) for place, token in enumerate(piece)]
    if not tokens:
        raise InputError(
            "the template writes nothing for this chat", expected="a text of at least one token"
        )
    return tokens


# Jinja, bounded.


def _rendered_text(
    template: ChatTemplate, messages: list[dict[str, Any]], tools: list[Any] | None, prompt: bool
) -> str:
    """The text that the template renders from the messages. prompt: whether the beginning of an
    assistant's answer is added at the end. Raises what Jinja raises, and LimitError."""
    values = {
        **template.special,
        "messages": messages,
        "tools": tools,
        "add_generation_prompt": prompt,
    }
    pieces_written: list[str] = []
    size = 0
    with _time_limit(template):
        for piece in (
            _jinja_environment().from_string(template.source).generate(**values, documents=None)
        ):
            size += len(piece)
            if size > OUTPUT_LIMIT:
                raise LimitError(
                    "this template writes more than {limit:,} characters",
                    where=template.where,
                    limit=OUTPUT_LIMIT,
                )
            pieces_written.append(piece)
    return "".join(pieces_written)


@contextmanager
def _template_errors(template: ChatTemplate) -> Iterator[None]:
    """A context manager that turns whatever the template raises in its block into an AttnError.
    Raises UsageError without Jinja."""
    try:
        from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
    except ImportError as error:
        raise UsageError(
            "--chat needs Jinja, which is not installed",
            expected="Jinja2",
            hint=install_command("chat"),
        ) from error
    try:
        yield
    except AttnError:
        raise
    except TemplateSyntaxError as error:
        raise InputError(
            "this chat template is no Jinja: {reason}",
            where=message("{file}, line {line}", file=template.where, line=error.lineno),
            expected="a template that Jinja can read",
            reason=first_sentence(error),
        ) from error
    except (SecurityError, _BeyondError) as error:
        raise InputError(
            "this chat template does what no template may: {reason}",
            where=template.where,
            expected="a template that reads messages and writes text",
            reason=error.args[0] if isinstance(error, _BeyondError) else first_sentence(error),
        ) from error
    except _RefusedError as error:
        what = message(
            "the chat template refuses this chat: {reason}", reason=term(first_sentence(error))
        )
        expected = message("roles and an order that this model was trained on")
        raise InputError(what, where=template.where, expected=expected) from error
    except (
        TemplateError,
        RecursionError,
        MemoryError,
        OverflowError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        AssertionError,
    ) as error:
        raise InputError(
            "this chat template fails on this chat: {reason}",
            where=template.where,
            expected="messages that the template can write",
            reason=f"{type(error).__name__}: {first_sentence(error)}",
        ) from error


class _BeyondError(Exception):
    """Raised in the sandbox where a template does what none needs: repeats or pads text without
    bound, or uses a name that begins with an underscore."""


class _RefusedError(Exception):
    """Raised where a template calls `raise_exception`, with the reason that it states."""


@contextmanager
def _time_limit(template: ChatTemplate) -> Iterator[None]:
    """A context manager that raises LimitError in its block once the template has run too long; the
    clock is looked at for each line, as endless loops may write nothing."""
    end = time.monotonic() + SECONDS
    before = sys.gettrace()

    def on_line(frame: object, event: str, argument: object) -> Any:
        """Raise LimitError once the time is up; called at every line that the template runs."""
        del frame, event, argument
        if time.monotonic() > end:
            raise LimitError(
                "this chat template took more than {seconds:.0f} seconds",
                where=template.where,
                seconds=SECONDS,
            )
        return on_line

    sys.settrace(on_line)
    try:
        yield
    finally:
        sys.settrace(before)


def _jinja_environment() -> Any:
    """Jinja as chat templates expect it: immutable, sandboxed, and with nothing that fills the
    memory in one step.
    """
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """A Jinja extension that reads the tag `{% generation %}` around an assistant's text, which
        only training needs, and keeps what is inside."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            """The node of what stands between the tags, in a scope of its own."""
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    class TemplateSandbox(ImmutableSandboxedEnvironment):
        """A sandbox in which nothing is repeated or padded beyond reason."""

        intercepted_binops = frozenset(("*", "**", "%"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            """The value of an operator of the template. Raises _BeyondError where it would be too
            large.
            """
            sizes = [
                len(side) if isinstance(side, str | list | tuple) else abs(side or 0)
                for side in (left, right)
            ]
            if operator == "**" and (sizes[0] > 1000 or sizes[1] > 100):
                raise _BeyondError(message("a power too large"))
            if operator == "*" and sizes[0] * sizes[1] > LONGEST_PRODUCT:
                raise _BeyondError(message("a product too large"))
            if operator == "%" and isinstance(left, str) and re.search(r"[0-9*]{6}|\*", left):
                raise _BeyondError(message("a width too large"))
            return super().call_binop(context, operator, left, right)

        def wrap_str_format(self, value: Any) -> Any:
            """`str.format` within the sandbox. Raises _BeyondError for widths too large."""
            wrapped = super().wrap_str_format(value)
            if wrapped is not None and re.search(r"[0-9]{6}|\{[^}]*\{", value.__self__):
                raise _BeyondError(message("a width too large"))
            return wrapped

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            """Whether a template may use this attribute of an object: what Jinja's sandbox allows,
            without methods that pad a text."""
            pads = ("center", "expandtabs", "ljust", "rjust", "zfill")
            if isinstance(obj, str) and attr in pads:
                return False
            return bool(super().is_safe_attribute(obj, attr, value))

    class Variables(Namespace):
        """Jinja's namespace, which raises _BeyondError for a name that begins with an underscore."""

        def __init__(*args: Any, **values: Any) -> None:
            self = args[0]
            args = args[1:]
            names = dict(*args, **values)
            if any(str(name).startswith("_") for name in names):
                raise _BeyondError(message("a name that begins with an underscore"))
            Namespace.__init__(self, names)

        def __setitem__(self, name: str, value: Any) -> None:
            if str(name).startswith("_"):
                raise _BeyondError(message("a name that begins with an underscore"))
            super().__setitem__(name, value)

    class Dictionary:
        """What templates get in place of the class `dict`: it can be called and has `fromkeys`,
        nothing else.
        """

        def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
            return dict(*args, **values)

        def fromkeys(self, *args: Any) -> dict[Any, Any]:
            return dict.fromkeys(*args)

    def refuse(reason: str) -> None:
        """The function `raise_exception` of templates: raises _RefusedError with the template's
        reason.
        """
        raise _RefusedError(reason)

    def to_json(
        value: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        """A value as JSON, characters beyond ASCII as they are: the filter `tojson` of templates."""
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    environment = TemplateSandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    for name in ("center", "format"):
        environment.filters.pop(name)
    environment.globals.pop("lipsum")
    environment.filters["tojson"] = to_json
    environment.globals.update(
        raise_exception=refuse,
        strftime_now=lambda form: datetime.now().strftime(form),
        dict=Dictionary(),
        namespace=Variables,
    )
    return environment
