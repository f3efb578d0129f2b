"""The guide's pictures of screens: in both languages beside their commands, self-contained, and
current.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from screen_pictures import CHINESE, SCREENS, THEMES, drawn

from attncli.language.guide import FOLDER

FILES = [(name, "en", f"{name}.svg") for name in SCREENS] + [
    (name, "zh", f"{name}.zh.svg") for name in CHINESE
]
SLOW = {name for name, command in SCREENS.items() if "minilm" in command}


@pytest.mark.parametrize(
    ("name", "lang", "file"),
    [
        pytest.param(*each, marks=[pytest.mark.thorough] if each[0] in SLOW else [], id=each[2])
        for each in FILES
    ],
)
def test_a_picture_shows_what_its_command_prints_now(name: str, lang: str, file: str) -> None:
    """Its texts, place by place; a colour may differ by a rounding."""
    assert texts((FOLDER / "pictures" / file).read_text("utf-8")) == texts(drawn(name, lang=lang))


def texts(svg: str) -> list[tuple[str, str, str]]:
    return re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)<', svg)


def test_there_are_ten_and_every_page_that_shows_one_names_its_command() -> None:
    assert len(SCREENS) >= 10
    pages = {
        lang: [page.read_text("utf-8") for page in sorted((FOLDER / lang).glob("*.md"))]
        for lang in ("en", "zh")
    }
    for name, command in SCREENS.items():
        for lang, found in pages.items():
            shown = [
                page for page in found if re.search(rf"\.\./pictures/{name}(\.zh)?\.svg", page)
            ]
            assert shown, f"no page in {lang} shows {name}"
            assert all(f"`{command}" in page for page in shown), name


def test_pictures_are_whole_and_ask_for_nothing() -> None:
    for path in sorted((FOLDER / "pictures").glob("*.svg")):
        svg = path.read_text("utf-8")
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert len(texts(svg)) > 10, path.name
        assert not re.search(r"(href|src)=|@import|url\(http", svg), path.name


def test_both_themes_draw_the_same_words_in_other_colours() -> None:
    light, dark = (drawn("weights", theme=theme) for theme in THEMES.values())
    assert texts(light) == texts(dark)
    assert light != dark
