"""Chats: messages with roles, written as one text by the template that a checkpoint brings, and its
tokens.

Templates are Jinja, and anybody may have written them: they run in a process of their own
(`template_task`), within bounds of memory, time and output. What a user wrote is never read as a
control token of the template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from attncli.errors import (
    AttnError,
    InputError,
    LimitError,
    UsageError,
    first_sentence,
    refused_value,
)
from attncli.extras import install_command
from attncli.inputs import bounded_process
from attncli.inputs.bounded_process import run_bounded
from attncli.inputs.files import (
    folder_entries,
    guarded_path,
    is_folder,
    is_there,
    json_fault,
    read_object,
    read_regular,
    refuse_half_characters,
)
from attncli.inputs.task_failure import TaskError
from attncli.inputs.token import ChatPart, RenderedChat, Token, Tokenizer
from attncli.inputs.vocabulary_tokenizer import PieceTokenizer
from attncli.language import listing, message, term

TEMPLATE_LIMIT = 2**20
"""Bytes of a template; the longest in use have some 20,000."""
LONGEST_TEXT = 2**20
"""Characters that a template may write for any chat, besides `LONGEST_PER_CHARACTER` for each of
the chat's own."""
LONGEST_PER_CHARACTER = 16
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names under which a message's reasoning is handed on; templates read the first two."""


class Chat(Struct, frozen=True, eq=False):
    """The messages of a chat, and the tools, as the chat template reads them.

    where: the file they were read from, for errors.
    variables: what else the file hands to the template, by name.
    template: another template for it than the checkpoint's: a file, or a name that the checkpoint
        has; None for the checkpoint's own.
    """

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    where: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    template: Path | None = None


class ChatTemplate(Struct, frozen=True):
    """A checkpoint's chat template, Jinja source.

    special: its variables besides messages and tools: the spellings of special tokens that it may
        write, such as `bos_token`, and what a user gives.
    where: its file, for errors.
    """

    source: str
    special: Mapping[str, Any]
    where: str


def parse_chat(raw: bytes, where: str) -> Chat:
    """The chat in a JSON file: a list of {role, content}, or an object with `messages` and, maybe,
    `tools`, variables of the template, and more of these in `chat_template_kwargs`, as servers
    take them.

    raw: the file's bytes.
    where: its path, for errors.

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
            hint=_one_chat_of_lines(raw),
            reason=json_fault(error.msg),
        ) from error
    except (RecursionError, ValueError) as error:
        raise InputError(
            "this chat is no JSON: {reason}",
            where=where,
            expected=expected,
            reason=first_sentence(error),
        ) from error
    refuse_half_characters(value, where)

    # a list is one of messages; an object is taken apart into messages, tools and variables
    messages = value
    tools: Any = None
    variables: dict[str, Any] = {}
    hint = ""
    if isinstance(value, dict):
        members = _unpack_keywords(value, where)
        if "messages" not in members and isinstance(members.get("conversations"), list):
            hint = FROM_CONVERSATIONS
        messages = members.get("messages")
        tools = members.get("tools")
        variables = {
            name: member
            for name, member in members.items()
            if name not in ("messages", "tools") and VARIABLE.fullmatch(name)
        }

    if not isinstance(messages, list):
        raise InputError(
            "this chat is no list of messages", where=where, expected=expected, hint=hint
        )
    if tools is not None and not isinstance(tools, list):
        raise InputError(
            "the tools of this chat are no list", where=where, expected="a list of JSON schemas"
        )
    if not messages:
        raise InputError("this chat has no messages", where=where, expected="at least one")
    return Chat(
        [_checked_message(entry, number, where) for number, entry in enumerate(messages)],
        tools or None,  # an empty list is a chat without tools
        where,
        variables,
    )


FROM_CONVERSATIONS = (
    'jq \'[.conversations[] | {role: ({human: "user", gpt: "assistant"}[.from] // .from),'
    " content: .value}]' FILE > chat.json"
)
"""Makes a chat of the form that datasets of conversations share: turns `from` and `value`."""


def _one_chat_of_lines(raw: bytes) -> str:
    """The shell command that turns JSON Lines into one chat, for the hint of an error; "" where the
    file's first line is no JSON object."""
    try:
        line = json.loads(raw.decode("utf-8-sig").partition("\n")[0])
    except (UnicodeDecodeError, ValueError, RecursionError):
        return ""
    if not isinstance(line, dict):
        return ""
    if "role" in line:  # each line is a message of one chat
        return "jq -s . FILE > chat.json"
    # each line is a chat
    return "head -n 1 FILE > chat.json"


KEYWORDS = "chat_template_kwargs"
"""The key of a chat under which servers take the variables of its template."""


def _unpack_keywords(value: dict[str, Any], where: str) -> dict[str, Any]:
    """A copy of a chat's JSON object in which the template variables under `chat_template_kwargs`
    stand beside the other keys.

    value: the object.
    where: its file, for errors.

    Raises InputError where `chat_template_kwargs` is no object of variables, and for a variable
    with two values.
    """
    keywords = value.get(KEYWORDS)
    members = {name: member for name, member in value.items() if name != KEYWORDS}
    if keywords is None:
        return members
    expected = message(
        "an object of variables such as {example}", example='{"enable_thinking": false}'
    )
    if not isinstance(keywords, dict):
        raise InputError(
            "the {key} of this chat are no object", where=where, expected=expected, key=KEYWORDS
        )
    for name, setting in keywords.items():
        if not VARIABLE.fullmatch(name) or name in (*RESERVED, KEYWORDS):
            raise InputError(
                "{name} is no variable of a chat's template",
                where=message("{file}, {key}", file=where, key=KEYWORDS),
                expected=expected,
                name=repr(name),
            )
        if name in members and members[name] != setting:
            raise InputError(
                "{name} is {first} beside the messages and {second} in {key}",
                where=where,
                expected=message("one value for it"),
                name=repr(name),
                first=json.dumps(members[name], ensure_ascii=False)[:80],
                second=json.dumps(setting, ensure_ascii=False)[:80],
                key=KEYWORDS,
            )
    return {**members, **keywords}


PROMPT = "add_generation_prompt"
"""The variable that says whether the text ends where an answer begins."""
VARIABLE = re.compile(r"[A-Za-z]\w{0,99}", re.ASCII)
"""The name of a template's variable; those that begin with an underscore are Jinja's own."""
TOOLS = "tools"
"""The variable that holds the tools of a chat."""
RESERVED = ("messages",)
"""Names that no variable may have, as the chat itself gives them."""
PYTHON_WORDS = {"True": True, "False": False, "None": None}
"""Values as Python writes them, which JSON writes small."""


def parse_variables(texts: Sequence[str]) -> dict[str, Any]:
    """The variables in NAME=VALUE: a value is JSON if it can be read so, or True, False or None as
    Python writes them; else a text.

    Raises UsageError for another form, and for a name that the chat itself gives.
    """
    variables: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not VARIABLE.fullmatch(name) or name in RESERVED:
            expected = message("NAME=VALUE, such as enable_thinking=false; not messages")
            raise refused_value("--chat-var", text, expected)
        try:
            variables[name] = json.loads(value, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            variables[name] = PYTHON_WORDS.get(value, value)
    refuse_half_characters(variables, "--chat-var")
    if not isinstance(variables.get(TOOLS, []), list | None):
        raise refused_value("--chat-var", f"{TOOLS}=…", message("a list of JSON schemas"))
    return variables


def with_variables(template: ChatTemplate, variables: Mapping[str, Any]) -> ChatTemplate:
    """The template with these variables handed to it besides its own."""
    return replace(template, special={**template.special, **variables})


def unread_variables(template: ChatTemplate, variables: Iterable[str]) -> list[str]:
    """The variables that occur nowhere in the template, so that setting them has no effect."""
    return [name for name in variables if not re.search(rf"\b{name}\b", template.source)]


def _refuse_constant(word: str) -> float:
    """Raise ValueError: the JSON parser calls this for the words NaN and Infinity, which are not
    JSON."""
    raise ValueError(word)


def _checked_message(entry: Any, number: int, where: str) -> dict[str, Any]:
    """A message of a chat as templates read it: members that are null left out, its reasoning under
    the names that templates look for.

    entry: any JSON value.
    number: its index in the chat, for errors.
    where: the chat's file, for errors.

    Raises InputError for one without a role, or whose content is neither null, a text nor a list
    of texts.
    """
    place = message("{file}, message {number}", file=where, number=number)
    if not isinstance(entry, dict) or not isinstance(entry.get("role"), str) or not entry["role"]:
        raise InputError(
            "this message has no role",
            where=place,
            expected='an object with "role" and "content", both texts',
        )
    content = entry.get("content")
    if content is None:
        parts: list[Any] = []
    elif isinstance(content, list):
        parts = content
    else:  # a text alone is checked as a list of one part
        parts = [{"type": "text", "text": content}]
    for part in parts:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            expected = message('a text, or a list of {"type": "text", "text": "…"}')
            raise InputError(
                "the content of this message is no text", where=place, expected=expected
            )
    fields = {key: value for key, value in entry.items() if value is not None}
    reasonings = [fields[key] for key in REASONING if key in fields]
    if not reasonings:
        return fields
    # templates read one of these two names, whichever the chat used; where it used several, the
    # first of `REASONING` counts, but its own `thinking` stays
    reasoning = reasonings[0]
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
    if tokenizer.name.lower().endswith(".gguf"):
        stated = _gguf_settings(Path(tokenizer.name))
        where = f"{tokenizer.name}: tokenizer.chat_template"
        return _template_of(stated, tools, file, folder=None, where=where)
    # a tokenizer that was not read from a folder, such as "word", has no template of its own
    path = Path(tokenizer.name)
    if isinstance(tokenizer, PieceTokenizer) or path.suffix == ".json":
        folder = path.parent
    else:
        folder = None
    if folder is None:
        return _template_of({}, tools, file, folder=None, where=SETTINGS)
    return _template_of(_folder_settings(folder), tools, file, folder=folder, where=SETTINGS)


SETTINGS = "tokenizer_config.json"
SPECIAL_MAP = "special_tokens_map.json"
TEMPLATE = "chat_template.jinja"
PROCESSOR_TEMPLATE = "chat_template.json"
"""The template of a model with a processor, as it was written until 2025."""


def _folder_settings(folder: Path) -> dict[str, Any]:
    """What a checkpoint's folder says of chats, under the keys of a tokenizer_config.json: that
    file, the older special_tokens_map.json, and chat_template.json where it states no template."""

    def read_settings(name: str) -> dict[str, Any]:
        """The object in this file of the folder; an empty one where it is not there."""
        path = guarded_path(folder.resolve(), name)
        if not is_there(path):
            return {}
        return read_object(path, what=name)

    # newer files have the special tokens themselves, under added_tokens_decoder
    settings = read_settings(SETTINGS)
    if "added_tokens_decoder" not in settings:
        settings = {**settings, **read_settings(SPECIAL_MAP)}
    if not settings.get("chat_template"):
        processor_template = read_settings(PROCESSOR_TEMPLATE).get("chat_template")
        settings = {**settings, "chat_template": processor_template}
    return settings


GGUF_SPECIALS = {
    "bos_token_id": "bos_token",
    "eos_token_id": "eos_token",
    "unknown_token_id": "unk_token",
    "padding_token_id": "pad_token",
}
"""A GGUF file's keys of special tokens, and those of a tokenizer_config.json."""


def _gguf_settings(path: Path) -> dict[str, Any]:
    """What a GGUF file says of chats, under the keys of a tokenizer_config.json: its template, or
    several with names, and the spellings of the tokens that begin and end texts."""
    from attncli.inputs.gguf_file import Metadata, read_gguf
    from attncli.inputs.string_table import StringTable

    metadata = Metadata(read_gguf(path).metadata, str(path))
    prefix = "tokenizer.chat_template"
    by_name = {
        key.removeprefix(f"{prefix}."): value
        for key, value in metadata.values.items()
        if key.startswith(f"{prefix}.") and isinstance(value, str)
    }
    default = metadata.values.get(prefix)
    if isinstance(default, str):
        by_name["default"] = default
    tokens = metadata.values.get("tokenizer.ggml.tokens")
    settings: dict[str, Any] = {}
    for key, name in GGUF_SPECIALS.items():
        number = metadata.values.get(f"tokenizer.ggml.{key}")
        if not isinstance(tokens, StringTable) or not isinstance(number, int):
            continue
        if 0 <= number < len(tokens):
            settings[name] = str(tokens[number])
    if by_name:
        parts = [{"name": name, "template": source} for name, source in by_name.items()]
        settings["chat_template"] = parts
    return settings


def _template_of(
    settings: Mapping[str, Any], tools: bool, file: Path | None, folder: Path | None, where: str
) -> ChatTemplate:
    """Choose one of the chat templates that a checkpoint has.

    settings: the tokenizer's settings, with `chat_template`.
    tools: whether the chat has tools, for which a template named "tool_use" is preferred.
    file: what the user asked for in place of the checkpoint's default: a file, or the name of one
        of the checkpoint's templates; None for the default.
    folder: where a chat_template.jinja may stand; None for no folder.
    where: the file that the settings were read from.

    Raises InputError where there is no template, or none of the name asked for.
    """
    special = _special_tokens(settings)
    templates = _named_templates(settings, folder)
    if folder is None:  # the file alone of "model.gguf: tokenizer.chat_template"
        place = where.partition(": ")[0]
    else:
        place = str(folder)

    # the one that the user asked for
    if file is not None:
        name = str(file)
        if name in templates and not is_there(file):
            return ChatTemplate(templates[name], special, f"{where}: {file}")
        # without an ending it was meant as a name; else reading the file says that it is not there
        if templates and not is_there(file) and file.suffix == "":
            raise InputError(
                "this model has no chat template of the name {name}",
                where=place,
                expected=message("a file, or one of {names}", names=listing(map(repr, templates))),
                name=repr(name),
            )
        return ChatTemplate(_template_text(file), special, name)

    # the checkpoint's own for this use
    if tools and "tool_use" in templates:
        purpose = "tool_use"
    else:
        purpose = "default"
    if purpose in templates:
        # errors name the file that the template is in
        is_file = folder is not None and purpose == "default" and is_there(folder / TEMPLATE)
        return ChatTemplate(templates[purpose], special, TEMPLATE if is_file else where)

    # none fits
    if templates:
        raise InputError(
            "this model has chat templates for special uses only: {names}",
            where=place,
            expected="one of them by its name",
            hint=f"--chat FILE@{next(iter(templates))}",
            names=listing(map(repr, templates)),
        )
    if SETTINGS in where:
        expected = message(
            "a chat_template.jinja, additional_chat_templates, a chat_template.json, or a"
            " chat_template in tokenizer_config.json"
        )
    else:
        expected = message("a tokenizer.chat_template among its keys")
    raise InputError(
        "this model has no chat template",
        where=place,
        expected=expected,
        hint="--chat FILE@TEMPLATE for a template of your own, or a text in place of --chat",
    )


def _named_templates(settings: Mapping[str, Any], folder: Path | None) -> dict[str, str]:
    """The templates of a checkpoint by name; "default" is that of a plain chat. As in transformers,
    templates in files (`chat_template.jinja`, and named ones in `additional_chat_templates`)
    replace those in the settings.
    """
    files: dict[str, str] = {}
    if folder is not None and is_there(folder / TEMPLATE):
        files["default"] = _template_text(folder / TEMPLATE)
    if folder is not None and is_folder(folder / ADDITIONAL):
        for path in folder_entries(folder / ADDITIONAL):
            if path.suffix == ".jinja":
                files[path.stem] = _template_text(path)
    if "default" in files:  # then those in the settings count for nothing
        return files
    stated = settings.get("chat_template")
    if isinstance(stated, list):  # [{"name": "default", "template": "…"}, …]
        parts = [(part.get("name"), part.get("template")) for part in stated if type(part) is dict]
    elif isinstance(stated, dict):
        parts = list(stated.items())
    else:
        parts = [("default", stated)]
    templates = {
        name: source for name, source in parts if isinstance(name, str) and isinstance(source, str)
    }
    return {**templates, **files}


ADDITIONAL = "additional_chat_templates"
"""The folder of templates with names, as transformers writes it since 2025."""


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
    entries = dict(settings)
    extra = settings.get("extra_special_tokens")
    if isinstance(extra, dict):
        entries.update(extra)
    spellings = {}
    for name, value in entries.items():
        if isinstance(value, dict):  # {"content": "<s>", "lstrip": false, …}
            value = value.get("content")
        if name.endswith("_token") and isinstance(value, str):
            spellings[name] = value
    return spellings


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
        control: The spellings of special tokens. Where a message contains one, it is marked as
            quoted, so that the tokenizer reads it as plain text.
        generation_prompt: Whether the text ends where the assistant's answer begins.

    Returns:
        The text; messages that the template leaves out have no part.

    Raises:
        InputError: For a template that is no Jinja, does what the sandbox refuses, or refuses these
            messages.
        LimitError: For one that takes too long or writes too much.
    """
    # rendered twice, the second time with a mark for each content, to see where contents stand
    marked, contents = _mark_contents(chat.messages)
    text, pattern = _rendered_texts(
        template, (chat.messages, marked), chat.tools, generation_prompt
    )
    # of each content the spans [start, end) in the text; None where the template changed it
    spans = _find_contents(text, pattern, [content for _, content in contents])

    names = _message_names(chat.messages)
    parts = []
    unplaced = []
    for (number, content), places in zip(contents, spans, strict=True):
        name = names[number]
        if places is None:
            unplaced.append(name)
            continue
        if not content:  # an empty text stands nowhere, though its mark did
            continue
        parts += [ChatPart(name, start, end) for start, end in places if start < end]
    parts.sort(key=lambda part: part.start)

    quoted = sorted(span for part in parts for span in _spelled_in(part, text, control))
    return RenderedChat(text, tuple(parts), tuple(dict.fromkeys(unplaced)), tuple(quoted))


def _spelled_in(part: ChatPart, text: str, control: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the character spans [start, end) in which a message spells a control token, the longest
    at each place; spans do not overlap.

    part: where the message stands in the text.
    text: the whole rendered chat.
    control: the spellings of control tokens. There may be thousands, so the text is searched only
        once, for their first letters.
    """
    spellings = {*control} - {""}
    if not spellings:
        return
    lengths = sorted({len(spelling) for spelling in spellings}, reverse=True)
    first_letters = "".join({re.escape(spelling[0]) for spelling in spellings})
    last_end = part.start
    for match in re.finditer(f"[{first_letters}]", text[part.start : part.end]):
        start = part.start + match.start()
        if start < last_end:
            continue  # within the control token before
        ends = (start + length for length in lengths if start + length <= part.end)
        end = next((end for end in ends if text[start:end] in spellings), None)
        if end is not None:
            yield start, end
            last_end = end


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

# between two characters of Unicode's private use, which texts hardly hold
MARK = "\ue123{number}\ue124"
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

    pattern: the same text with a numbered mark in place of each content. The text is gone through
        once, from mark to mark.
    """
    # "<user>{mark 0}</user>" splits into the literals ["<user>", "</user>"] and the numbers [0]
    split_pattern = _MARKED.split(pattern)
    literals = split_pattern[::2]
    numbers = [int(number) for number in split_pattern[1::2]]
    if any(number >= len(contents) for number in numbers) or not text.startswith(literals[0]):
        # the text itself spells a mark, or the template writes marks otherwise than contents
        return _find_in_order(text, contents)
    spans: list[list[tuple[int, int]] | None] = [[] for _ in contents]
    place = len(literals[0])
    for mark_index, number in enumerate(numbers):
        # a content ends where the literal behind its mark begins, with the next content behind that;
        # of a content that the template changed, no spelling is in the text
        spellings = _spellings(contents[number], text, place)
        literal = literals[mark_index + 1]
        following = [literal]
        is_last = mark_index + 1 == len(numbers)
        if not is_last:  # ("" for a next content that the template changed)
            next_content = contents[numbers[mark_index + 1]]
            next_spellings = _spellings(next_content, text, place) or ("",)
            following = [literal + spelling for spelling in next_spellings]
        end = _end_of_content(text, place, spellings, following, is_last)
        if end is None:
            return _find_in_order(text, contents)
        # a template may write a content twice, or a piece of it; anything else is a changed content
        is_part = bool(spellings) or text[place:end].strip() in contents[number]
        if is_part:
            # (None so far if the template has changed this content where it wrote it before)
            spans[number] = [*(spans[number] or ()), (place, end)]
        else:
            spans[number] = None
        place = end + len(literal)
    return spans


def _spellings(content: str, text: str, place: int) -> tuple[str, ...]:
    """The ways in which a template may write a content: as it is, or without blanks at one or both
    ends; empty where the rendered text does not contain it from the character `place` on."""
    if text.find(content.strip(), place) < 0:
        return ()
    return tuple(dict.fromkeys((content, content.strip(), content.lstrip(), content.rstrip())))


def _end_of_content(
    text: str, place: int, spellings: Sequence[str], following: Sequence[str], is_last: bool
) -> int | None:
    """The position behind a content that begins at the character `place` of the rendered text; None
    if the content is not there.

    spellings: how it may be written; empty for a content that the template changes.
    following: texts of which one comes behind the content.
    is_last: whether the rendered text ends with that.
    """
    if spellings:
        ends = [place + len(spelling) for spelling in spellings if text.startswith(spelling, place)]
        if is_last:
            fitting = [end for end in ends if text[end:] in following]
        else:
            fitting = [end for end in ends if any(text.startswith(word, end) for word in following)]
        if fitting:
            return fitting[0]
        return None
    # a changed content reaches to what follows
    if is_last:
        end = len(text) - len(following[0])
        if end >= place and text.endswith(following[0]):
            return end
        return None
    starts = [start for word in following if (start := text.find(word, place)) >= 0]
    return min(starts, default=None)


def _find_in_order(text: str, contents: Sequence[str]) -> list[list[tuple[int, int]] | None]:
    """Find each content in the text, behind the one found before it: a list with its one character
    span [start, end), or None where it is not found. Used for templates that change their input, in
    which markers around the contents do not survive."""
    place = 0
    spans: list[list[tuple[int, int]] | None] = []
    for content in contents:
        bare = content.strip()
        start = text.find(bare, place)
        if start < 0:
            spans.append(None)
            continue
        place = start + len(bare)
        spans.append([(start, place)])
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
        # the text is cut at the quoted spans, which alone are encoded without control tokens
        edges = sorted({0, len(chat.text), *(edge for span in chat.quoted for edge in span)})
        tokens = []
        for start, stop in pairwise(edges):
            is_quoted = (start, stop) in chat.quoted
            piece = tokenizer.encode_written(
                chat.text[start:stop], after=start > 0, as_text=is_quoted
            )
            # to their indices in the whole chat, and the characters that they stand at there
            tokens += [
                token.relocate(len(tokens) + place, start) for place, token in enumerate(piece)
            ]
    if not tokens:
        raise InputError(
            "the template writes nothing for this chat", expected="a text of at least one token"
        )
    return tokens


# Templates are rendered in a process of their own, for they are programs that come with models.

NO_MORE = message("a template that reads messages and writes text")
"""What errors expect of a template that asks for more."""
BEYOND = {
    "power": message("a power too large"),
    "product": message("a product too large"),
    "width": message("a width too large"),
    "name": message("a name that begins with an underscore"),
}
"""What a template does that none needs, by what the task reports."""


def _rendered_texts(
    template: ChatTemplate,
    chats: Sequence[list[dict[str, Any]]],
    tools: list[Any] | None,
    prompt: bool,
) -> list[str]:
    """The texts that the template renders from several lists of messages, one for each list.

    chats: the lists.
    tools: the JSON schemas of the tools; None for none.
    prompt: whether the beginning of an assistant's answer is added at the end.

    Raises InputError for a template that is no Jinja, does what no template may, or refuses these
    messages; LimitError for one that takes too long or writes too much.
    """
    common = {"tools": tools, "add_generation_prompt": prompt}
    # as in transformers, where templates may ask whether there are documents
    variables = {"documents": None, **template.special}
    values = [{**variables, "messages": messages, **common} for messages in chats]
    limit = LONGEST_TEXT + LONGEST_PER_CHARACTER * len(json.dumps(values))
    try:
        texts: list[str] = run_bounded(
            "template", {"source": template.source, "values": values, "limit": limit}
        )
    except TaskError as error:
        # the first list is the chat as the user gave it, and the one that errors are about
        raise _template_error(error, template, chats[0], limit) from error
    return texts


def _template_error(
    error: TaskError, template: ChatTemplate, messages: Sequence[Mapping[str, Any]], limit: int
) -> AttnError:
    """The error, returned and not raised, for a template that was not rendered.

    error: what the bounded process reports: a kind (the cases below), a reason, maybe a line.
    messages: the chat.
    limit: characters that its text may have.
    """
    where = template.where
    if error.place is not None:
        where = message("{file}, line {line}", file=template.where, line=error.place)
    reason = first_sentence(error)
    match error.kind:
        case "lacking":
            hint = install_command("chat")
            what = message("--chat needs Jinja, which is not installed")
            return UsageError(what, expected="Jinja2", hint=hint)
        case "time":
            what = message(
                "this chat template took more than {seconds:.0f} seconds",
                seconds=bounded_process.SECONDS,
            )
            return LimitError(what, where=where, expected=NO_MORE)
        case "memory":
            what = message("this chat template needs more memory than a template may have")
            return LimitError(what, where=where, expected=NO_MORE)
        case "long":
            what = message("this template writes more than {limit:,} characters", limit=limit)
            return LimitError(what, where=where, expected=NO_MORE)
        case "syntax":
            what = message("this chat template is no Jinja: {reason}", reason=reason)
            return InputError(what, where=where, expected="a template that Jinja can read")
        case "beyond" | "unsafe":
            what = message(
                "this chat template does what no template may: {reason}",
                reason=BEYOND.get(str(error), reason),
            )
            return InputError(what, where=where, expected=NO_MORE)
        case "refused":
            what = message("the chat template refuses this chat: {reason}", reason=term(reason))
            expected = message("roles and an order that this model was trained on")
            return InputError(what, where=where, expected=expected)
        case "failed":
            what = message("this chat template fails on this chat: {reason}", reason=reason)
            return InputError(what, where=where, expected=_expected_content(messages))
        case _:
            what = message(
                "the process that renders the chat template ended: {reason}", reason=reason
            )
            return AttnError(what, where=where)


def _expected_content(messages: Sequence[Mapping[str, Any]]) -> str:
    """The last sentence of the error for a template that failed on a chat: it expects a text as the
    content of the first message that has none; messages of another kind where all have one."""
    for number, entry in enumerate(messages):
        if isinstance(entry.get("content"), str):
            continue
        content = message("a list of parts" if "content" in entry else "null, or nothing")
        return message(
            "a text as the content of each message; that of message {number} is {given}",
            number=number,
            given=content,
        )
    return message("messages that the template can write")
