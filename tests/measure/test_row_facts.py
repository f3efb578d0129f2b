"""Whole matrices are looked at by portions; what comes of it is the same however small they are."""

from __future__ import annotations

import numpy as np
import pytest
from telling import told

import attncli
from attncli.features.heads.compute import HeadsRequest
from attncli.features.heads.compute import heads as compute_heads
from attncli.features.run.compute import RunRequest, _measured_run
from attncli.measure.row_facts import portions
from attncli.mechanism.mask import Causal
from attncli.models.model import Model
from attncli.models.one_layer import Settings, seeded_model

TEXT = "the cat saw the dog and the dog saw the cat"


@pytest.fixture(scope="module")
def model() -> Model:
    base = attncli.load(seed=0)
    return seeded_model(
        Settings(d_model=30, heads=5, mask=Causal()), 0, "seeded", base.tokenizer, base.backend
    )


@pytest.mark.parametrize(
    ("heads", "rows", "keys"), [(5, 11, 13), (1, 7, 1), (3, 1, 17), (2, 5, 0), (0, 5, 5), (3, 0, 5)]
)
@pytest.mark.parametrize("at_once", [1, 40, 300, 10**6])
def test_portions_cover_everything_once(
    heads: int, rows: int, keys: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncli.measure.row_facts.AT_ONCE", at_once)
    seen = np.zeros((heads, rows), int)
    for head, row in portions(heads, rows, keys):
        seen[head, row] += 1
        size = seen[head, row].size * keys
        assert size <= at_once or seen[head, row].size == 1
    assert (seen == 1).all()


@pytest.mark.parametrize("at_once", [1, 40, 300])
@pytest.mark.parametrize("everything", [False, True])
def test_links(
    model: Model, at_once: int, everything: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> list[object]:
        document = _measured_run(
            model, TEXT, model.encode(TEXT), RunRequest(top=23, all_links=everything)
        )
        return [told(document.links), told(document.overview)]

    whole = found()
    monkeypatch.setattr("attncli.measure.row_facts.AT_ONCE", at_once)
    assert found() == whole


@pytest.mark.parametrize("at_once", [1, 40, 300])
def test_metrics(model: Model, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> dict[str, float]:
        return flat(
            told(
                compute_heads(model, TEXT, request=HeadsRequest(), tokens=model.encode(TEXT)).heads
            )
        )

    whole = found()
    monkeypatch.setattr("attncli.measure.row_facts.AT_ONCE", at_once)
    parts = found()
    assert parts.keys() == whole.keys()
    assert len(parts) > 50
    for name, value in whole.items():
        assert parts[name] == pytest.approx(value, abs=1e-12), name


def flat(value: object, name: str = "") -> dict[str, float]:
    match value:
        case dict():
            return {
                at: number
                for key, part in value.items()
                for at, number in flat(part, f"{name}.{key}").items()
            }
        case list():
            return {
                at: number
                for place, part in enumerate(value)
                for at, number in flat(part, f"{name}.{place}").items()
            }
        case bool() | str() | None:
            return {}
        case _:
            return {name: value}
