"""What a `tokenizer.json` may ask for: a hostile one could fill the memory, where the library ends the process."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

from attncli.errors import InputError

if TYPE_CHECKING:
    import tokenizers

GROWTH_LIMIT = 1000
"""No tokenizer in use lengthens a text much, or adds more than a few tokens to it."""

_ESCAPE = re.compile(rb"\\u00([2-7][0-9A-Fa-f])")
_CHARSMAP = re.compile(rb'"precompiled_charsmap"\s*:\s*"([A-Za-z0-9+/]{0,8})')


def check_file(raw: bytes, where: str) -> None:
    """Raise InputError for a file that names a table of characters larger than the file: the library makes room for it
    first."""
    if b"charsmap" not in raw and b"\\u00" not in raw:
        return
    # any letter of a name or value may be written as an escape
    plain = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), raw).replace(b"\\/", b"/")
    for match in _CHARSMAP.finditer(plain):
        size = int.from_bytes(base64.b64decode(match[1].ljust(8, b"A"))[:4], "little")
        if size > len(raw):
            raise InputError(
                f"a table of {size:,} bytes in a file of {len(raw):,}",
                where=where,
                expected="a whole precompiled_charsmap",
            )


def check(hf: tokenizers.Tokenizer, name: str) -> None:
    """Raise InputError for a tokenizer that would lengthen a text beyond reason."""
    growth = 1 if hf.normalizer is None else _growth(json.loads(hf.normalizer.__getstate__()))
    if growth > GROWTH_LIMIT:
        raise InputError(
            f"this tokenizer's replacements can make a text {growth} times as long",
            where=name,
            expected=f"at most {GROWTH_LIMIT} times",
        )
    special_count = max(hf.num_special_tokens_to_add(is_pair) for is_pair in (False, True))
    if special_count > GROWTH_LIMIT:
        raise InputError(
            f"this tokenizer adds {special_count:,} special tokens to a text",
            where=name,
            expected=f"at most {GROWTH_LIMIT:,}",
        )
    if hf.post_processor is not None and _repeats(json.loads(hf.post_processor.__getstate__())):
        raise InputError("this tokenizer's template repeats the text", where=name, expected="each text once")


def _growth(normalizer: Any) -> int:
    """How many times longer the replacements of a normalizer, one after the other, can make a text."""
    growth = 1
    for part in normalizer.get("normalizers", [normalizer]):
        match part.get("type"):
            case "Sequence":
                growth *= _growth(part)
            case "Replace":
                growth *= _lengthening(part["pattern"].get("String", ""), part["content"])
            case "Prepend":
                growth *= 1 + len(part["prepend"])
            case "Precompiled":
                growth *= _longest(base64.b64decode(part["precompiled_charsmap"]))
            case _:
                pass  # the others lengthen nothing
    return growth


def _lengthening(pattern: str, content: str) -> int:
    if pattern:
        return max(1, -(-len(content) // len(pattern)))
    return 1 + len(content)  # a regular expression may match between any two characters


def _longest(table: bytes) -> int:
    """Bytes of the longest text that one character can become: texts follow the table's tree, each with a 0 at its
    end."""
    tree = int.from_bytes(table[:4], "little")
    return max(1, *map(len, table[4 + tree :].split(b"\0")))


def _repeats(processor: Any) -> bool:
    """Whether a template names one text twice."""
    for part in processor.get("processors", [processor]):
        match part.get("type"):
            case "Sequence" if _repeats(part):
                return True
            case "TemplateProcessing":
                for side in (part["single"], part["pair"]):
                    texts = [piece["Sequence"]["id"] for piece in side if "Sequence" in piece]
                    if len(texts) > len(set(texts)):
                        return True
            case _:
                pass
    return False
