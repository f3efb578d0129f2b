"""`attn.scan_verify/1`: shards of a scan computed again."""

from __future__ import annotations

from typing import Annotated

from attncli.analysis.documents.declaration import Count, Document, Part, describe


class VerifiedShard(Part, frozen=True, kw_only=True):
    """A shard computed again beside its file."""

    shard: Count
    same_bits: Annotated[bool, describe("Whether every number is the same, to the last bit.")]
    difference: Annotated[float, describe("The largest |difference| of a mean over the shard's texts.")]
    counts_equal: Annotated[bool, describe("Whether texts, tokens and skipped records are as many.")]


class ScanVerifyDocument(Document, tag="attn.scan_verify/1", frozen=True, kw_only=True):
    """Whether a scan's numbers are what its plan gives on this machine."""

    plan: Annotated[str, describe("sha256 of the plan.")]
    shards: list[VerifiedShard]
    same_machine: Annotated[
        bool, describe("Whether this machine is of the kind that computed them; else bits may differ.")
    ]
    tolerance: Annotated[float, describe("What a mean may differ by where bits may.")]
    passed: bool
    warnings: list[str]
