"""All options of all commands as one table: `python tests/options_table.py` writes it to
tests/golden/options.tsv.

A line for each meaning of a spelling: what is typed, what it means in English, and the commands
that mean that by it. One spelling on several lines is worth a look: it should be one thing, said
for each command in its own words.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from commands import commands

from attncli.cli.help_page import TAIL, spelling_of
from attncli.cli.option import OLD_SPELLINGS

GOLDEN = Path(__file__).parent / "golden" / "options.tsv"


class Meaning(NamedTuple):
    """An option as some commands have it. kind: what its value is, "flag" for none."""

    name: str
    kind: str
    typed: str
    sentence: str


def meanings() -> dict[Meaning, list[str]]:
    """Every option, and the commands that have it so."""
    table: dict[Meaning, list[str]] = {}
    for path, command in commands():
        for one in command.params:
            if one.param_type_name == "option":
                kind = "flag" if one.is_flag else one.metavar or (one.name or "").upper()
                name = next(
                    (spelled for spelled in one.opts if spelled.startswith("--")), one.opts[0]
                )
                meaning = Meaning(name, kind, spelling_of(one), TAIL.sub("", one.help or ""))
                table.setdefault(meaning, []).append(path.replace(" start", ""))
    return dict(sorted(table.items()))


def spellings() -> dict[str, set[str]]:
    """What each spelling's value may be, of all commands; those that are only kept for who knows
    them are left out.
    """
    kinds: dict[str, set[str]] = {}
    for _, command in commands():
        for one in command.params:
            for spelled in one.opts if one.param_type_name == "option" else ():
                if spelled not in OLD_SPELLINGS.get(one.opts[0], ()):
                    kinds.setdefault(spelled, set()).add(
                        "flag" if one.is_flag else one.metavar or ""
                    )
    return kinds


def text() -> str:
    """The table, a tab between columns."""
    lines = [
        f"{meaning.typed}\t{meaning.sentence}\t{', '.join(paths)}"
        for meaning, paths in meanings().items()
    ]
    return "".join(f"{line}\n" for line in ("option\tmeaning\tcommands", *lines))


if __name__ == "__main__":
    GOLDEN.write_text(text(), "utf-8")
