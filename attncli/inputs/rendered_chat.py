"""`RenderedChat`: a chat as the one text that a template wrote of it, and where each message stands."""

from __future__ import annotations

from msgspec import Struct


class ChatPart(Struct, frozen=True):
    """The place of one message in the rendered text: its name, such as `user` or `user:2` for the
    second of that role, and its characters [start, end)."""

    name: str
    start: int
    end: int


class RenderedChat(Struct, frozen=True):
    """A chat as one text.

    parts: what the messages say, in the order of the text. unplaced: names of messages whose text
        the template changed,
    so that their place is not known. quoted: characters [start, end) that a user wrote and that
    spell a control token.
    """

    text: str
    parts: tuple[ChatPart, ...] = ()
    unplaced: tuple[str, ...] = ()
    quoted: tuple[tuple[int, int], ...] = ()
