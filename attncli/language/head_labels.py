"""What kinds of head are called in Chinese; in JSON, and where a label is looked up, they keep their English names."""

from __future__ import annotations

CHINESE = {
    "previous-token": "前一词元",
    "next-token": "后一词元",
    "self": "自身",
    "positional": "固定偏移",
    "first-token sink": "首词元汇点",
    "special-token": "特殊词元",
    "punctuation": "标点",
    "duplicate-token": "重复词元",
    "induction": "归纳",
    "broad": "分散",
}

FOR_PAGES = {
    "en": {f"label.{name}": name for name in CHINESE},
    "zh": {f"label.{name}": chinese for name, chinese in CHINESE.items()},
}
"""The same for the scripts of pages, by name."""


def label_name(label: str, lang: str) -> str:
    """A label in this language; behind a positional one its offset stays: `positional -2` is `固定偏移 -2`."""
    if lang != "zh":
        return label
    if label in CHINESE:
        return CHINESE[label]
    name, _, detail = label.rpartition(" ")
    return f"{CHINESE[name]} {detail}" if name in CHINESE else label
