"""What to read: Markdown pages in the package, shown by `attn guide` and linked from the README.

A page is `guide/<language>/<name>.md`; its first line is its title. Every `$ attn …` block in it is run by a test.
"""

from __future__ import annotations

from pathlib import Path

from attncli.errors import UsageError

PAGES = (
    "learners", "engineers", "researchers", "explore", "views", "importance", "corpora", "operators", "models",
    "weights", "masks", "json", "python", "cost", "changes",
)  # fmt: skip
"""Names of the pages, in the order in which they are offered."""
FOLDER = Path(__file__).parent


def page(name: str, lang: str) -> str:
    """A page's Markdown in a language. Raises UsageError for a name that no page has, with the nearest."""
    if name not in PAGES:
        from difflib import get_close_matches

        near = get_close_matches(name, PAGES, 1, 0.5)
        raise UsageError(
            f"there is no page {name!r} in the guide",
            expected=", ".join(PAGES),
            hint=f"attn guide {near[0]}" if near else "attn guide",
        )
    return (FOLDER / lang / f"{name}.md").read_text("utf-8")


def titles(lang: str) -> dict[str, str]:
    """Every page's title in a language, by name."""
    return {name: page(name, lang).partition("\n")[0].removeprefix("# ") for name in PAGES}
