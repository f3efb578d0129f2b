"""Waiting for a key between parts of what is shown at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.cli import delivery
from attncli.cli.environment import Environment

if TYPE_CHECKING:
    from attncli.draw.view import View

ENDS = ("q", "Q", "\x03", "\x04", "\x1b", "")
"""Keys that end what is shown: q, Ctrl-C, Ctrl-D, Escape, and no key at all."""


def wait_for_key(question: str, view: View, environment: Environment) -> bool:
    """Say what is waited for, by the name of its phrase, until a key is pressed; whether it ends what is shown."""
    from attncli.draw.headings import remark
    from attncli.language import say

    assert environment.keys is not None
    prompt = delivery.render_text(remark(say(view, question), view), view, environment).rstrip("\n")
    environment.write(prompt.encode())
    try:
        return environment.keys() in ENDS
    finally:  # also where Ctrl-C ends it
        environment.write(b"\r\x1b[2K")
