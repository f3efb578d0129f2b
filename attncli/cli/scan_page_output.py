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
    from attncli.scan.plan import ScanPlan
    from attncli.scan.report import Shading


def write(environment: Environment, plan: ScanPlan, document: ScanDocument, file: Path, lang: str) -> None:
    """Write the page of a scan. Without the scan's model its sentences are not shaded, and the page says so."""
    from attncli.render.scan_page.writer import scan_page

    try:
        shading = _shading(environment, plan, document)
    except AttnError as error:
        environment.note(f"the page's sentences are not shaded: {error.what}")
        shading = {}, {}
    with atomic_writer(file) as stream:
        stream.write(scan_page(document, *shading, lang=lang))


def _shading(environment: Environment, plan: ScanPlan, document: ScanDocument) -> Shading:
    from attncli.cli.checkpoint_option import load_checkpoint
    from attncli.cli.options import ComputeOptions
    from attncli.render.scan_page.writer import examples_of
    from attncli.scan.plan_making import check, digest_of
    from attncli.scan.report import shading

    loaded_model = load_checkpoint(environment, plan.model.name, ComputeOptions())
    check(loaded_model)
    if digest_of(loaded_model) != plan.model.digest:
        raise InputError("the model of this name is another one now", where=plan.model.name)
    examples = {
        (head.layer, head.head): [example for rows in examples_of(document, head).values() for example in rows]
        for head in document.heads
    }
    with progress(environment, f"{len(examples)} heads") as on_progress:
        return shading(plan, loaded_model, examples, progress=on_progress)
