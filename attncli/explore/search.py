"""Search: which heads send one word to another."""

from __future__ import annotations

import re
from dataclasses import replace

from attncli.errors import UsageError
from attncli.explore.held import LoadedRun
from attncli.explore.pane import Pane
from attncli.explore.ranking import RankingRow, ranking
from attncli.explore.state import State
from attncli.inputs.token_name import find_token
from attncli.render.headings import remark
from attncli.render.phrases import say
from attncli.render.safe import cut, label
from attncli.render.unknown_words import word_name
from attncli.render.view import View


def find_pair(text: str, loaded_run: LoadedRun) -> tuple[int, int]:
    """The positions of the words in "it → animal", "it animal" or "#7 #2". Raises UsageError for another number of
    words, InputError for a word that there is not."""
    parts = [part.strip() for part in re.split(r"→|->", text)]
    parts = parts if len(parts) == 2 else text.split()
    if len(parts) != 2 or not all(parts):
        raise UsageError(f"{text!r} does not name two words", expected="FROM → TO, such as it → animal")
    return find_token(loaded_run.queries, parts[0]).index, find_token(loaded_run.keys, parts[1]).index


def search_rows(state: State, loaded_run: LoadedRun) -> list[RankingRow]:
    """Every head by the weight of the chosen link."""
    weights = loaded_run.search(state.query, state.key)
    return [RankingRow(layer, head, weight, f"{weight:.3f}") for weight, (layer, head) in weights]


def search(state: State, loaded_run: LoadedRun, view: View, width: int, height: int) -> Pane:
    """The ranking; each row's head is chosen as one moves along it."""
    ranking_rows = search_rows(state, loaded_run)
    if not ranking_rows:
        return Pane.of(remark(say(view, "explore.search.none"), replace(view, width=width)))
    return ranking(ranking_rows, min(state.row, len(ranking_rows) - 1), view, width, height)


def link_name(state: State, loaded_run: LoadedRun, view: View) -> str:
    """The chosen link as it is written."""
    ends = (loaded_run.queries[state.query], loaded_run.keys[state.key])
    texts = [cut(label(word_name(token), ascii=view.ascii), 16, ascii=view.ascii) for token in ends]
    return (" -> " if view.ascii else " → ").join(texts)
