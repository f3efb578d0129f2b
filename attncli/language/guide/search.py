"""Where the guide's pages have a word: the sections, those first that are about it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from msgspec import Struct

from attncli.language.guide import PAGES, page

CHANGES = "changes"
"""The page of what is new, which mentions everything and explains nothing."""
RECIPES = "cookbook"
"""The page whose sections answer a question by one command."""
EMPHASIS = re.compile(r"(?<![\w*])\*(?=\S)([^*\n]+?)(?<=\S)\*(?![\w*])")
"""Words between two stars that touch them, `*so*`; the group is the words."""
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
"""A link or a picture, `[words](address)`; the group is the words."""


class Section(Struct, frozen=True):
    """A section of a page in which a word stands.

    name: of the page.
    heading: of the section.
    line: the first paragraph or command that has the word, without marks of Markdown.
    count: how many times the section has it.
    in_heading: whether the heading has it.
    """

    name: str
    heading: str
    line: str
    count: int
    in_heading: bool


def sections_with(word: str, lang: str) -> list[Section]:
    """The sections of the guide that have a word, or words in this order.

    Capitals, accents and the spellings -ise and -ize count alike. A word of Latin letters is found
    whole, or in the plural; where no section has it so, at the beginning of longer words, and then
    within them. One of other letters is found within others.

    Args:
        word: What is looked for.
        lang: The language of the pages.

    Returns:
        Sections whose heading has it, recipes of the cookbook before others, then those that have it
        most often; of equals those of the page that is offered first. What commands print counts
        where nothing else has the word.
    """
    # the strictest pattern that matches anything, first without what commands print, then with it
    for pattern in _patterns(word):
        for outputs in (False, True):
            if sections := _matches(pattern, lang, outputs=outputs):
                return sections
    return []


def _matches(pattern: re.Pattern[str], lang: str, *, outputs: bool) -> list[Section]:
    """The sections of the guide that a pattern matches, in the order of `sections_with`.

    outputs: whether what commands print is searched, too.
    """
    matches = []
    for name in PAGES:
        if name == CHANGES:
            continue
        for heading, lines in _sections(page(name, lang), outputs=outputs):
            lines_with_word = [line for line in lines if pattern.search(fold(line))]
            in_heading = pattern.search(fold(heading)) is not None
            if lines_with_word or in_heading:
                count = sum(len(pattern.findall(fold(line))) for line in lines_with_word)
                first_line = ""
                if lines_with_word:
                    first_line = _without_marks(lines_with_word[0])
                matches.append(
                    Section(name, _without_marks(heading), first_line, count, in_heading)
                )

    def order(section: Section) -> tuple[bool, bool, int]:
        """What comes first: a recipe that answers, then a heading, then many mentions."""
        is_recipe = section.in_heading and section.name == RECIPES
        return not is_recipe, not section.in_heading, -section.count

    return sorted(matches, key=order)


def fold(text: str) -> str:
    """A text for comparing: small letters without accents, and -ise for -ize.

    Args:
        text: Any text.
    """
    apart = unicodedata.normalize("NFKD", text).casefold()
    letters = "".join(sign for sign in apart if not unicodedata.combining(sign))
    return letters.replace("iza", "isa").replace("ize", "ise").replace("izi", "isi")


def _patterns(word: str) -> list[re.Pattern[str]]:
    """The patterns by which to search a folded text (see `fold`) for a word, the strictest first: as
    a whole word, at the beginning of a word, anywhere; none for a word of blanks alone."""
    words = fold(word).split()
    if not words:
        return []
    anywhere = r"\s+".join(map(re.escape, words))
    # not in the middle of a word; Chinese does not part its words
    at_beginning = anywhere
    if words[0][0].isascii() and words[0][0].isalnum():
        at_beginning = rf"(?<![a-z0-9]){anywhere}"
    # and nothing but the ending of a plural behind it
    as_word = at_beginning
    if words[-1][-1].isascii() and words[-1][-1].isalnum():
        as_word = rf"{at_beginning}(?:s|es)?(?![a-z0-9])"
    # each once, as two may be the same
    return [re.compile(text) for text in dict.fromkeys((as_word, at_beginning, anywhere))]


def _sections(text: str, *, outputs: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield each heading of a page with the paragraphs and commands below it, up to the next heading;
    with `outputs` also the lines that commands print."""
    heading = ""
    paragraphs: list[str] = []
    in_block = False  # between the fences of a block of code
    goes_on = False  # whether the next line may go on with the paragraph
    for line in text.splitlines():
        if line.startswith("```"):
            in_block = not in_block
            goes_on = False
        elif in_block:
            if outputs or line.startswith(("$ ", ">>> ")):
                paragraphs.append(line)
        elif re.match(r"#{1,4} ", line):
            yield heading, paragraphs
            heading = line.lstrip("#").strip()
            paragraphs = []
            goes_on = False
        elif goes_on and not BEGINNING.match(line):
            paragraphs[-1] = _join_lines(paragraphs[-1], line.strip())
        else:
            paragraphs.append(line)
            goes_on = not line.startswith("|")  # each row of a table stands for itself
        if not line.strip():
            goes_on = False
    yield heading, paragraphs


BEGINNING = re.compile(r"\s*$|\s*[-*>|] |\s*\d+\. |\|")
"""What a line begins with that does not go on with the one before: nothing, or the mark of a list,
a quotation or a table."""


def _join_lines(before: str, after: str) -> str:
    """Two lines of a paragraph as one: Chinese goes on without a blank."""
    meeting = f"{before[-1:]}{after[:1]}"
    if all(unicodedata.east_asian_width(sign) in "WF" for sign in meeting):
        return before + after
    return f"{before} {after}"


def _without_marks(line: str) -> str:
    """A line of Markdown as it reads: without the marks of lists, tables, code and links. The bars
    of a table go, those of a command stay."""
    text = LINK.sub(r"\1", line.lstrip("-#> ")).replace("`", "").replace("**", "")
    text = EMPHASIS.sub(r"\1", text).replace("\\<", "<")
    if line.lstrip().startswith("|"):
        text = text.replace("|", " ")
    return " ".join(text.split())
