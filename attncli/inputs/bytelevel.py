"""The alphabet in which byte-level vocabularies write bytes: every byte as a printable character (`Ġ` is the space)."""

from __future__ import annotations

from functools import cache


@cache
def alphabet() -> dict[str, int]:
    """Character to byte, 256 entries. Source: GPT-2's `bytes_to_unicode` (OpenAI, 2019)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


def bytes_of_piece(piece: str) -> bytes | None:
    """The bytes that a piece of a byte-level vocabulary stands for; None where it is not written in that alphabet."""
    byte_of = alphabet()
    return bytes(byte_of[char] for char in piece) if all(char in byte_of for char in piece) else None


def bytes_text(raw: bytes) -> str:
    """Bytes as text without leading spaces where they are UTF-8, else as `<0xE4><0xB8>`."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in raw)
    return text.lstrip(" ") or text
