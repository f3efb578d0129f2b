"""`attn scan show --html`: the page of a scan, its sentences shaded by the scan's own model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.cli.progress import progress
from attncli.errors import AttnError, InputError
from attncli.inputs.atomic import atomic_writer

if TYPE_CHECKING:
    from pathlib import Path

    from attncli.analysis.documents.scan import ScanDocument
    from attncli.cli.output import Environment
    from attncli.scan.plan import Plan
    from attncli.scan.shading import Shading


def write(environment: Environment, made: Plan, document: ScanDocument, file: Path, lang: str) -> None:
    """Write the page of a scan. Without the scan's model its sentences are not shaded, and the page says so."""
    from attncli.render.scan_page.writer import scan_page

    try:
        found = _shading(environment, made, document)
    except AttnError as error:
        environment.note(f"the page's sentences are not shaded: {error.what}")
        found = {}, {}
    with atomic_writer(file) as stream:
        stream.write(scan_page(document, *found, lang=lang))


def _shading(environment: Environment, made: Plan, document: ScanDocument) -> Shading:
    from attncli.cli.checkpoint_option import fetched
    from attncli.cli.options import ComputeOptions
    from attncli.render.scan_page.writer import examples_of
    from attncli.scan.plan_making import check, digest_of
    from attncli.scan.shading import shading

    loaded = fetched(environment, made.model.name, ComputeOptions())
    check(loaded)
    if digest_of(loaded) != made.model.digest:
        raise InputError("the model of this name is another one now", where=made.model.name)
    wanted = {
        (head.layer, head.head): [one for some in examples_of(document, head).values() for one in some]
        for head in document.heads
    }
    with progress(environment, f"{len(wanted)} heads") as tell:
        return shading(made, loaded, wanted, told=tell)
