"""Chinese as it is written: what the catalogue, the guide's pages and errors may not have."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from asking import ask
from babel.messages.pofile import read_po

import attncli.language
from attncli.draw.lines import markdown
from attncli.draw.view import View

FOLDER = Path(attncli.language.__path__[0])
PAGES = sorted((FOLDER / "guide" / "zh").glob("*.md"))
HAN = re.compile("[\u3400-\u9fff]")
FAULTS = {
    "no space before 个": re.compile("[0-9A-Za-z}_`%)*]个"),
    "a space behind a full-width sign": re.compile("[，。；：？！、] (?! )"),
    "straight quotes around a word": re.compile(
        r"(?<![\w=#.{])'[\w\u3400-\u9fff ]+'(?!\w)|(?<![\w={:\[ ])\"[\w\u3400-\u9fff]+\"(?![\w:])"
    ),
    "half-width signs between ideographs": re.compile("[\u3400-\u9fff][,;?!][\u3400-\u9fff]"),
    "a second word for a sink": re.compile("汇点|汇聚点|停留"),
    "a sentence that nobody says": re.compile(
        "离开此头|没有可说的|最多相差 \\{least\\} 到|也没有一个里"
    ),
}


def sentences() -> list[str]:
    """The Chinese sentences of the catalogue."""
    with (FOLDER / "zh.po").open("rb") as file:
        catalogue = read_po(file)
    texts = [
        text
        for entry in catalogue
        if entry.id
        for text in (entry.string if isinstance(entry.string, tuple | list) else (entry.string,))
    ]
    return [text for text in texts if HAN.search(text)]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_catalogue_has_no(fault: str) -> None:
    texts = sentences()
    assert len(texts) > 4000
    faulty = [text for text in texts if FAULTS[fault].search(text) and "attn run" not in text]
    assert not faulty, f"attncli/language/zh.po has {fault}: {faulty}"


def test_the_patterns_can_fail() -> None:
    wrong = ("共 3个头", "好。 是", "没有 '词' ", "是,否", "汇点", "其总和离开此头")
    for text in wrong:
        assert any(pattern.search(text) for pattern in FAULTS.values()), text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.parametrize("width", [60, 80])
def test_a_page_cuts_no_cell_and_breaks_lines_as_they_are_written(page: Path, width: int) -> None:
    text = page.read_text("utf-8")
    shown = markdown(text, View(lang="zh", width=width)).plain
    cells = re.findall(r"^\|(.*)\|$", text, re.M)
    lost = Counter(HAN.findall("".join(cells))) - Counter(HAN.findall(shown))
    assert not lost
    cut = [row for row in shown.splitlines() if row.rstrip().endswith("…")]
    assert all(row.rstrip()[-8:].replace(" ", "") in re.sub(r"[`\s]", "", text) for row in cut)
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    # a line of an example may be cut anywhere; cells of a table stand beside each other
    examples = set(re.findall(r"[^\n]+", "".join(re.findall(r"```.*?```", text, re.S))))
    rows = [row for row in shown.splitlines() if row.strip() not in examples]
    starts = [part.strip() for row in rows for part in re.split("  +", row) if part.strip()]
    assert [part for part in starts if part[0] in "。，、；：？！）”》」"] == []
    if "？  " not in prose:
        blanks = re.findall("[，。；：、] (?! ).", re.sub(r"\n", "\u2028", shown))
        assert blanks == []


def test_a_cell_too_narrow_for_its_code_folds_it_before_the_last_sign() -> None:
    page = "| 选项 | 说明 |\n| --- | --- |\n| `--precision-of-all`。 | " + "长" * 40 + " |\n"
    for width in range(24, 40):
        shown = markdown(page, View(lang="zh", width=width)).plain
        assert "。" in shown
        assert not [row for row in shown.splitlines() if row.strip().startswith("。")], width


def test_the_guide_has_one_word_for_a_sink() -> None:
    # the glossary alone names the others, to be found by them
    texts = {page.stem: page.read_text("utf-8") for page in PAGES if page.stem != "words"}
    second = FAULTS["a second word for a sink"]
    assert [name for name, text in texts.items() if second.search(text)] == []


def test_errors_have_the_quotes_of_the_language() -> None:
    found = ask("run", "我爱你", "--query", "他", "--lang", "zh").err
    assert "没有词元“他”" in found
    named = ask("run", "我爱你", "--query", "#9", "--lang", "zh").err
    assert "'" not in named
    copied = ask("run", "a b", "c d", "--lang", "zh").err
    assert "'a b' 'c d' | attn run --lines" in copied
