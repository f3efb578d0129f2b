"""The screen of `attn.models/1`: which models there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncli.analysis.documents.models import CachedModel, ModelsDocument
from attncli.render.headings import heading, own, remark
from attncli.render.lines import Lines, finished, spaced, stack
from attncli.render.numbers import size_words
from attncli.render.prose import folded
from attncli.render.safe import safe
from attncli.render.screens.conclusion import models_answer
from attncli.render.screens.header import counted, fact
from attncli.render.tables import table
from attncli.render.view import View

TOKENIZER = "tokenizer.json"


def models_screen(document: ModelsDocument, view: View) -> Lines:
    """Families, aliases with where they are, and the cache."""
    answer = models_answer(document, view)
    if view.brief:
        return finished(answer, view)
    families = fact("families", [safe(name, ascii=view.ascii) for name in document.families], view)
    rows = [
        [alias.name, alias.family, "-" if alias.here is None else own("yes", view), alias.hub]
        for alias in document.aliases
    ]
    note = "here: installed, or in the hub's cache; the others are fetched"
    aliases = table(["alias", "family", "here", "on the hub"], rows, view, title=f"{len(rows)} aliases", note=note)
    held = [
        [one.name, one.family or "?", _how(one), size_words(one.bytes), one.revision[:7]] for one in document.cached
    ]
    title = counted(len(held), "model") + " in the hub's cache"
    cached = table(
        ["name", "family", "runs", "size", "revision"],
        held,
        view,
        align=["left", "left", "left", "right", "left"],
        title=title,
    )
    where = stack(remark(part, view) for part in folded(safe(document.cache, ascii=view.ascii), view.width))
    hub = stack((cached, where)) if held else stack((heading(title, "", view), where))
    return finished(spaced((families, aliases, hub, answer)), view)


def models_rows(document: ModelsDocument) -> Iterator[Sequence[object]]:
    """Families, aliases and cached models in one table for `--plain`."""
    yield ("what", "name", "family", "where", "bytes", "runs")
    for name in document.families:
        yield ("family", name, name, "", "", "natively")
    for alias in document.aliases:
        yield ("alias", alias.name, alias.family, alias.here or alias.hub, "", "natively")
    for model in document.cached:
        yield ("cached", f"{model.name}@{model.revision}", model.family, model.folder, model.bytes, _how(model))


def _how(model: CachedModel) -> str:
    if model.missing:
        return "no tokenizer" if model.missing == [TOKENIZER] else "no weights"
    return "natively" if model.native else "not natively"
