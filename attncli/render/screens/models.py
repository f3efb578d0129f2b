"""The screen of `attn.models/1`: which models there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncli.analysis.documents.models import CachedModel, ModelsDocument
from attncli.render.headings import heading, localize, remark
from attncli.render.lines import Lines, fit_to_view, stack, stack_spaced
from attncli.render.numbers import size_words
from attncli.render.prose import fold
from attncli.render.safe import safe
from attncli.render.screens.conclusion import models_answer
from attncli.render.screens.header import count_phrase, fact
from attncli.render.tables import table
from attncli.render.view import View

TOKENIZER = "tokenizer.json"


def models_screen(document: ModelsDocument, view: View) -> Lines:
    """Families, aliases with where they are, and the cache."""
    answer = models_answer(document, view)
    if view.brief:
        return fit_to_view(answer, view)
    families = fact("families", [safe(name, ascii=view.ascii) for name in document.families], view)
    rows = [
        [alias.name, alias.family, "-" if alias.here is None else localize("yes", view), alias.hub]
        for alias in document.aliases
    ]
    note = "here: installed, or in the hub's cache; the others are fetched"
    aliases = table(["alias", "family", "here", "on the hub"], rows, view, title=f"{len(rows)} aliases", note=note)
    rows_cached = [
        [model.name, model.family or "?", _run_support(model), size_words(model.bytes), model.revision[:7]]
        for model in document.cached
    ]
    title = count_phrase(len(rows_cached), "model") + " in the hub's cache"
    cache_table = table(
        ["name", "family", "runs", "size", "revision"],
        rows_cached,
        view,
        align=["left", "left", "left", "right", "left"],
        title=title,
    )
    where = stack(remark(part, view) for part in fold(safe(document.cache, ascii=view.ascii), view.width))
    hub = stack((cache_table, where)) if rows_cached else stack((heading(title, "", view), where))
    return fit_to_view(stack_spaced((families, aliases, hub, answer)), view)


def models_rows(document: ModelsDocument) -> Iterator[Sequence[object]]:
    """Families, aliases and cached models in one table for `--plain`."""
    yield ("what", "name", "family", "where", "bytes", "runs")
    for name in document.families:
        yield ("family", name, name, "", "", "natively")
    for alias in document.aliases:
        yield ("alias", alias.name, alias.family, alias.here or alias.hub, "", "natively")
    for model in document.cached:
        yield ("cached", f"{model.name}@{model.revision}", model.family, model.folder, model.bytes, _run_support(model))


def _run_support(model: CachedModel) -> str:
    if model.missing:
        return "no tokenizer" if model.missing == [TOKENIZER] else "no weights"
    return "natively" if model.native else "not natively"
