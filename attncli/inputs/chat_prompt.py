"""A chat as a model reads it: its text, its tokens, and the regions that its messages are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import UsageError
from attncli.inputs.chat import (
    PROMPT,
    RESERVED,
    TOOLS,
    VARIABLE,
    Chat,
    control_tokens,
    encode_chat,
    parse_chat,
    read_template,
    render,
    unread_variables,
    with_variables,
)
from attncli.inputs.regions import Region, find_regions, parse_region
from attncli.inputs.token import RenderedChat, Text, Token, Tokenizer, ignore
from attncli.language import listing, message, plural
from attncli.mechanism.checked_arguments import checked


class ChatPrompt(Struct, frozen=True):
    """A chat as a model reads it, for the functions that take a text, its tokens and regions.

    text: what the chat template writes.
    tokens: its tokens, no special token added.
    regions: the messages by their roles (`user`, `user:2`), those that were defined, and `rest`.
    """

    text: str
    tokens: tuple[Token, ...]
    regions: tuple[Region, ...]


@checked
def chat_prompt(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    regions: Mapping[str, str] | None = None,
    tools: Sequence[Any] | None = None,
    template: str | Path | None = None,
    variables: Mapping[str, Any] | None = None,
    note: Callable[[str], None] = ignore,
) -> ChatPrompt:
    """The prompt that a chat becomes by a chat template: its text, tokens and regions.

    tokenizer: cuts the text; its checkpoint has the template.
    messages: each a dictionary with "role" and "content".
    regions: specifications of named sets of tokens, by name; None for the messages alone.
    tools: JSON schemas that are handed to the template; None for none.
    template: a file or the name of one of the checkpoint's templates; None for its default.
    variables: further variables of the template, by name.
    note: called with a sentence for each thing that is not read as it is written.

    Raises UsageError for arguments of another kind, InputError for a chat or a template that cannot
    be used, LimitError for a template that takes too long.
    """
    # as the JSON file of a chat would hold it, so that it is checked in the same way; the loop
    # below refuses a variable that would take the place of the messages or the tools
    value: dict[str, Any] = {"messages": messages, **(variables or {})}
    if tools is not None and len(tools):
        value[TOOLS] = tools
    for name in variables or ():
        if not isinstance(name, str) or not VARIABLE.fullmatch(name) or name in (*RESERVED, TOOLS):
            raise UsageError(
                "{name} is {value}",
                expected=message("names of variables, not messages and not tools"),
                name="variables",
                value=repr(name)[:80],
            )
    for region_name, specification in (regions or {}).items():
        if not isinstance(region_name, str) or not isinstance(specification, str):
            raise UsageError(
                "{name} is {value}",
                expected=message(
                    "names with specifications, such as {example}",
                    example='{"doc1": "[[doc1]]…[[/doc1]]"}',
                ),
                name="regions",
                value=repr(regions)[:80],
            )
    try:
        raw = json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            "this chat is not plain data: {reason}",
            expected=message(
                "a list of messages such as {example}", example='[{"role": "user", "content": "…"}]'
            ),
            reason=str(error)[:200],
        ) from error

    chat = parse_chat(raw, "messages")
    if template is not None:
        chat = replace(chat, template=Path(template))
    rendered = write_messages(tokenizer, chat, note=note)
    tokens = encode_chat(tokenizer, rendered)

    rules = [parse_region(f"{name}={spec}") for name, spec in (regions or {}).items()]
    text = Text(rendered.text, "messages", chat=rendered)
    return ChatPrompt(rendered.text, tuple(tokens), tuple(find_regions(rules, text, tokens, note)))


def write_messages(
    tokenizer: Tokenizer,
    chat: Chat,
    *,
    generation_prompt: bool | None = None,
    note: Callable[[str], None] = ignore,
) -> RenderedChat:
    """A chat as one text, written out by its template, or by the tokenizer's where it names none.

    Args:
        tokenizer: Whose template is taken, and whose control tokens are text within a message.
        chat: As `parse_chat` returns it; its variables are handed to the template.
        generation_prompt: Whether the text ends where the assistant's answer begins; None for what
            the chat's variable `add_generation_prompt` says, else yes.
        note: Called with a sentence for each thing in the chat that the model does not read as it
            is written, such as a variable that the template ignores.

    Returns:
        The text, and where in it each message stands.

    Raises:
        InputError, LimitError: As `render` and `read_template` raise them.
    """
    variables = dict(chat.variables)
    if TOOLS in variables:
        # (an empty list is a chat without tools)
        chat = replace(chat, tools=variables.pop(TOOLS) or None)
    template = read_template(tokenizer, chat.tools is not None, chat.template)
    stated_prompt = variables.pop(PROMPT, None)
    if generation_prompt is None:
        generation_prompt = stated_prompt is not False
    handed_names = [*variables]
    if chat.tools is not None:
        handed_names.append(TOOLS)
    for name in unread_variables(template, handed_names):
        note(message("the chat template does not read the variable {name}", name=repr(name)))
    rendered = render(
        with_variables(template, variables),
        chat,
        control_tokens(tokenizer),
        generation_prompt=generation_prompt,
    )
    if rendered.unplaced:
        note(
            message(
                "the template changes what {names} say, so that their tokens have no region",
                names=listing(rendered.unplaced),
            )
        )
    if rendered.quoted:
        start, end = rendered.quoted[0]
        note(
            plural(
                "{count} control token that a message spells is read as text: {spelling}",
                "{count} control tokens that messages spell are read as text, such as {spelling}",
                count=len(rendered.quoted),
                spelling=repr(rendered.text[start:end]),
            )
        )
    return rendered
