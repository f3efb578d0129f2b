"""What `attn cache` says is kept, with and without the first token, where heads rest."""

from __future__ import annotations

import numpy as np
import pytest
import resting_model
from msgspec.structs import replace

from attncli.draw.lines import Lines
from attncli.draw.view import View
from attncli.features.cache.compute import cache
from attncli.features.cache.document import CacheDocument
from attncli.features.cache.screen import CACHE_PARTS, cache_sentences
from attncli.inputs.regions import Region

TEXT = "cdbeacfd"


def region_part(document: CacheDocument) -> Lines:
    (part,) = [part for part in CACHE_PARTS if part.name == "regions"]
    return part.draw(document, View(width=100))


def test_what_a_cache_keeps_is_told_without_the_first_token() -> None:
    model = resting_model.model()
    document = cache(model, TEXT, ["sinks:1,3"])
    (trace,) = model.trace(model.encode(TEXT))
    rows = np.asarray(trace.stages["weights"])[:, -1]
    kept = np.zeros(len(TEXT), bool)
    kept[[0, 5, 6, 7]] = True
    (policy,) = document.policies
    assert document.rest == pytest.approx(rows[:, 0].mean())
    assert policy.kept == pytest.approx(rows[:, kept].sum(1).mean())
    kept[0] = False
    assert policy.kept_beyond_rest == pytest.approx(rows[:, kept].sum() / rows[:, 1:].sum())
    said = " ".join(cache_sentences(document, View(width=300)))
    assert f"weight {100 * document.rest:.1f}% rests on the first token" in said
    assert f"{100 * policy.kept_beyond_rest:.1f}% with sinks" in said


def test_regions_and_heads_are_told_without_the_first_token() -> None:
    model = resting_model.model()
    regions = [Region("front", (0, 1, 2, 3)), Region("back", (4, 5, 6, 7))]
    document = cache(model, TEXT, ["sinks:1,3"], regions=regions)
    (trace,) = model.trace(model.encode(TEXT))
    rows = np.asarray(trace.stages["weights"])[:, -1]
    bare = [[1, 2, 3], [4, 5, 6, 7]]
    means = [rows[:, keys].sum(1).mean() for keys in bare]
    assert document.shares_beyond_rest == pytest.approx(means)
    assert document.shares[0] == pytest.approx(means[0] + document.rest)
    (policy,) = document.policies
    kept = [0.0, rows[:, 5:].sum() / rows[:, 4:].sum()]
    assert [region.kept_beyond_rest for region in policy.regions] == pytest.approx(kept)
    for head, row in zip(policy.heads, rows, strict=True):
        assert head.kept_beyond_rest == pytest.approx(row[5:].sum() / row[1:].sum())
    # the region whose first token alone is kept is empty, not the best kept
    said = " ".join(cache_sentences(document, View(width=300)))
    assert '"front" with sinks (0.0%)' in said
    screen = ["".join(piece for piece, _ in row) for row in region_part(document).rows]
    share = 100 * means[0] / (1 - document.rest)
    (line,) = [line for line in screen if line.startswith("front ")]
    assert line.split()[1:] == ["4", f"{share:.1f}%", "0.0%"]


def test_a_cache_of_weights_that_are_not_learned_is_told_as_before() -> None:
    document = cache(resting_model.model(source="file"), TEXT, ["sinks:1,3"])
    assert not document.rest
    assert "rests" not in " ".join(cache_sentences(document, View(width=300)))


@pytest.mark.parametrize(("change", "is_less"), [(0.0099, True), (0.01, False), (-0.01, False)])
def test_less_than_a_hundredth_of_a_nat_is_less(change: float, is_less: bool) -> None:
    document = cache(resting_model.model(), TEXT, ["sinks:1,3"], target="a")
    policies = [replace(policy, change=change) for policy in document.policies]
    said = " ".join(cache_sentences(replace(document, policies=policies), View(width=300)))
    assert ("by less than 0.01 nats" in said) == is_less
