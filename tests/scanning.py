"""Planning a small scan, for tests of scans."""

from __future__ import annotations

import io
from pathlib import Path

import attncli
from attncli.scan import making, plan


def planned(model: Path, corpus: Path, folder: Path, **wanted: object) -> plan.Plan:
    """The plan of a scan of two metrics, in its folder."""
    asked = making.Wanted((str(corpus),), ("entropy", "sink"), **{"shard": 6, "top": 3, **wanted})
    loaded = attncli.load(str(model), backend="torch")
    return plan.write(making.make(asked, loaded, str(model), folder, stdin=io.BytesIO()), folder)
