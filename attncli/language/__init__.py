"""Every sentence that explains something, once per language. Screens ask for them by name.

English is complete; a test holds the other languages to the same names and the same places to fill.
"""

from __future__ import annotations

from typing import Protocol


class Speech(Protocol):
    """The language that sentences are in, and whether only ASCII may be written; a `View` has both."""

    @property
    def lang(self) -> str:
        """The language, "en" or "zh"."""
        ...

    @property
    def ascii(self) -> bool:
        """Whether only ASCII leaves the program."""
        ...


def say(view: Speech, name: str, *values: object) -> str:
    """The phrase of this name in the view's language, its places {0}, {1} … filled with `values`.

    Where the first value is 1 and there is a phrase `name.one`, that is taken: "1 pair", "2 pairs".

    A screen in ASCII has no Chinese; it speaks English. Raises KeyError for a name that no language has.
    """
    if view.lang == "zh" and not view.ascii:
        from attncli.language.zh import PHRASES
    else:
        from attncli.language.en import PHRASES
    is_single = bool(values) and str(values[0]) == "1" and f"{name}.one" in PHRASES
    phrase = PHRASES[f"{name}.one" if is_single else name].format(*values)
    return phrase.replace(" “", "“").replace("” ", "”").replace("） ", "）") if "“" in phrase else phrase


def say_each(view: Speech, group: str, *names: str) -> list[str]:
    """The phrases of these names in a group, such as the columns of a table: `group.name`."""
    return [say(view, f"{group}.{name}") for name in names]
