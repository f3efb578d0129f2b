"""The screen of `attn.scan_verify/1`: shards computed again beside their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncli.analysis.documents.scan_verify import ScanVerifyDocument
from attncli.render.headings import remark
from attncli.render.lines import Lines, clip_lines, stack_spaced
from attncli.render.phrases import say, say_each
from attncli.render.safe import safe
from attncli.render.tables import table
from attncli.render.view import View


def scan_verify_screen(document: ScanVerifyDocument, view: View) -> Lines:
    """The whole screen, its verdict last."""
    verdict = remark(say(view, "scan.verify.passed" if document.passed else "scan.verify.failed"), view, style="")
    if view.brief:
        return clip_lines(verdict, view.width, ascii=view.ascii)
    rows = [
        [str(shard.shard), say(view, "scan.same" if shard.same_bits else "scan.different"), f"{shard.difference:.1e}"]
        for shard in document.shards
    ]
    names = say_each(view, "scan.column", "shard", "bits", "difference")
    body = table(names, rows, view, align=["right", "left", "right"], title=say(view, "scan.verify.title"))
    warnings = [remark(safe(warning_text), view) for warning_text in document.warnings]
    return clip_lines(stack_spaced((body, *warnings, verdict)), view.width, ascii=view.ascii)


def scan_verify_rows(document: ScanVerifyDocument) -> Iterator[Sequence[object]]:
    """Every shard, for `--plain`."""
    yield ("shard", "same_bits", "difference", "counts_equal")
    for shard in document.shards:
        yield (shard.shard, shard.same_bits, shard.difference, shard.counts_equal)
