"""A page's heads are taken from the run that the answer is made of, and are the same as those of a
run of its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask

from attncli.arrays.backend import EVERY
from attncli.arrays.numpy_backend import NumpyBackend
from attncli.features.find.compute import SearchRequest, _found_heads
from attncli.features.heads.compute import HeadsRequest
from attncli.features.heads.compute import heads as compute_heads
from attncli.features.run.compute import RunRequest, _measured_run
from attncli.inputs.tokenize import tokenizer
from attncli.measure.head_record import STEPS, HeadRecord, to_fixed_point
from attncli.measure.run_record import Recording, recorded_run, run_record
from attncli.mechanism.mask import Window
from attncli.models.model import Model
from attncli.models.one_layer import Settings, seeded_model

TEXT = " ".join(f"w{at}" for at in range(37))
RUNS = {
    "run": lambda model, tokens, taken: _measured_run(
        model, TEXT, tokens, RunRequest(), recording=taken
    ),
    "run of a head": lambda model, tokens, taken: _measured_run(
        model, TEXT, tokens, RunRequest(heads=[1], stages=True), recording=taken
    ),
    "run by rows": lambda model, tokens, taken: _measured_run(
        model, TEXT, tokens, RunRequest(query=3), rows=5, recording=taken
    ),
    "heads": lambda model, tokens, taken: compute_heads(
        model, TEXT, request=HeadsRequest(), tokens=tokens, recording=taken
    ),
    "find": lambda model, tokens, taken: _found_heads(
        model, TEXT, tokens, SearchRequest(3, 2), recording=taken
    ),
}


def told(record: HeadRecord) -> tuple[Any, ...]:
    """What a page tells of a head, its numbers rounded to what two orders of summing agree in."""
    metrics = {
        name: None if value is None else round(value, 5) for name, value in record.metrics.items()
    }
    bits = None if record.visibility_bits is None else record.visibility_bits.tobytes()
    links = [(query, key, round(weight, 5)) for query, key, weight in record.links]
    return (
        record.layer,
        record.head,
        record.labels,
        metrics,
        links,
        bits,
        type(record.recipe).__name__,
    )


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(
    "given", [{}, {"position": "alibi", "softcap": 2.0}], ids=["plain", "bias"]
)
def test_records_are_those_of_a_run_of_its_own(name: str, given: dict[str, Any]) -> None:
    settings = Settings(d_model=24, heads=3, mask=Window(9, 4), **given)
    model = seeded_model(settings, 3, "seeded", tokenizer("whitespace"), NumpyBackend("float32"))
    tokens = model.encode(TEXT)
    taken = Recording(model, tokens, [1] if name == "run of a head" else EVERY)
    RUNS[name](model, tokens, taken)
    found = list(recorded_run(model, TEXT, taken).heads)
    expected = list(
        run_record(model, TEXT, tokens, heads=[1] if name == "run of a head" else EVERY).heads
    )
    assert list(map(told, found)) == list(map(told, expected))
    for one, other in zip(found, expected, strict=True):
        assert np.abs(one.small - other.small).max() < 1e-6
        assert one.terms is not None
        assert other.terms is not None
        assert np.nanmax(np.abs(np.nan_to_num(one.terms.lse - other.terms.lse))) < 1e-5
    assert list(taken.take_records()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", TEXT),
        ("heads", TEXT),
        ("find", TEXT, "--from", "#3", "--to", "#2"),
        ("compare", TEXT, TEXT[:80]),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_page_adds_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    asked: list[int] = []
    trace = Model.trace

    def counted(self: Model, *given: Any, **named: Any) -> Any:
        asked.append(1)
        return trace(self, *given, **named)

    monkeypatch.setattr(Model, "trace", counted)
    without = ask(*arguments)
    alone = len(asked)
    file = tmp_path / "page.html"
    both = ask(*arguments, "--html", str(file))
    assert both.code == 0, both.err
    assert len(asked) == 2 * alone
    assert both.out == without.out
    assert re.search(r'id="w0-0-0"|id="q0-0-0"', file.read_text("utf-8"))


@pytest.mark.parametrize("steps", [255, STEPS])
def test_numbers_on_even_steps_are_off_by_half_a_step(steps: int) -> None:
    values = np.random.default_rng(0).standard_normal((17, 3)).astype(np.float32) * [1, 30, 0] + [
        5,
        -7,
        2,
    ]
    found = to_fixed_point(values.astype(np.float32), steps)
    half = (values.max(0) - values.min(0)) / steps / 2
    assert (np.abs(found.numbers() - values) <= half * 1.01 + 1e-5).all()
    assert (found.codes.min(0).tolist(), found.codes.max(0).tolist()) == (
        [0, 0, 0],
        [steps, steps, 0],
    )
