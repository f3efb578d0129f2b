"""What to read: Markdown pages in the package, shown by `attn guide` and linked from the README.

A page is `guide/<language>/<name>.md`; its first line is its title. Every `$ attn …` block in it is
run by a test.
"""

from __future__ import annotations

import re
from pathlib import Path

PAGES = (
    "cookbook", "learners", "lessons", "teachers", "engineers", "long", "researchers", "explore", "views", "why", "importance", "evidence", "circuits", "rules", "claims", "corpora", "operators", "models",
    "weights", "masks", "json", "python", "cost", "words", "changes",
)  # fmt: skip
"""Names of the pages, in the order in which they are offered."""
FOLDER = Path(__file__).parent


def page(name: str, lang: str) -> str:
    """The Markdown of one of `PAGES` in a language; in English where it is not translated."""
    path = FOLDER / lang / f"{name}.md"
    if not path.exists():
        path = FOLDER / "en" / f"{name}.md"
    return path.read_text("utf-8")


def titles(lang: str) -> dict[str, str]:
    """Every page's title in a language, by name."""
    return {name: page(name, lang).partition("\n")[0].removeprefix("# ") for name in PAGES}


GLOSSARY = "words"
"""The page that explains single words."""
ENTRY = "### "
"""What a line of that page begins with that names a word, and behind dots its other names."""


def word_entries(lang: str) -> dict[str, str]:
    """The Markdown of every entry of the glossary in a language, by each of the entry's names in
    small letters; entries in other languages have their English names as well."""
    entries: dict[str, str] = {}
    _, *sections = page(GLOSSARY, lang).split(f"\n{ENTRY}")  # the page's introduction comes first
    for section in sections:
        title, _, rest = section.partition("\n")
        # the last entry of a group ends where the heading of the next group begins
        meaning = rest.partition("\n## ")[0].strip()
        entry = f"# {title}\n\n{meaning}\n"
        names = title.replace("\\<", "<")  # a mark of Markdown that begins no tag
        for name in names.replace(" · ", ", ").split(", "):
            entries.setdefault(name.lower(), entry)
    return entries


def spelling(word: str) -> str:
    """A word of the glossary as it is compared: in small letters, with a blank for each dash."""
    return " ".join(re.sub("[-‐‑–—]", " ", word.lower()).split())


def word_entry(word: str, lang: str) -> str | None:
    """The Markdown of the glossary's entry on a word, whatever dashes it is typed with; None where
    there is none."""
    entries = word_entries(lang)
    entry = entries.get(word.strip().lower())
    if entry is not None:
        return entry
    by_spelling = {spelling(name): text for name, text in entries.items()}
    return by_spelling.get(spelling(word))
