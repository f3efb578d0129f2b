"""Reading ahead: what is fetched before it is taken, and products of matrices stored turned."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from attncli.arrays.backend import choose
from attncli.inputs import checkpoint as module
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.files import PositionedFile

RANDOM = np.random.default_rng(11)


def make(folder: Path, tensors: dict[str, np.ndarray]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    return folder


def test_what_is_not_in_memory_yet_is_fetched_before_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte at most once, whatever the takers do meanwhile, and nothing once reading has ended."""
    monkeypatch.setattr(module, "WORTH_A_PLAN", 1)
    monkeypatch.setattr(PositionedFile, "at_hand", lambda self, place: False)
    fetched: list[tuple[int, int]] = []
    fill = PositionedFile.fill

    def noted(self: PositionedFile, view: memoryview, start: int, about: str) -> None:
        fill(self, view, start, about)
        if not about:
            fetched.append((start, start + len(view)))

    monkeypatch.setattr(PositionedFile, "fill", noted)
    weights = {name: RANDOM.standard_normal((1009, 1031)) for name in ("a", "b")}
    with Checkpoint.open(make(tmp_path / "m", weights)) as found:
        found.ahead(["a", "b"])
        assert found._plan is not None
        found._plan._thread.join()  # all of it is less than it may be ahead
        places = [(info.start, info.stop) for info in found.names().values()]
        assert sum(stop - start for start, stop in fetched) == sum(
            stop - start for start, stop in places
        )
        assert fetched == sorted(set(fetched))
        for name, weight in weights.items():
            assert np.array_equal(found.read(name), weight)
        found.ahead(["a", "b"])
    assert found._plan is None


@pytest.mark.parametrize("stored", ["bfloat16", "float64"])
def test_a_product_while_reading_is_that_of_a_matrix_stored_turned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    monkeypatch.setattr(module, "WORTH_A_PLAN", 2**20)
    chance = np.random.default_rng(0)
    weight = chance.standard_normal((2003, 1031)).astype(
        ml_dtypes.bfloat16 if stored == "bfloat16" else stored
    )
    x, bias = (
        chance.standard_normal((40, 2003)).astype(np.float32),
        chance.standard_normal(1031).astype(np.float32),
    )
    wanted = x.astype(np.float64) @ weight.astype(np.float64) + bias
    with Checkpoint.open(make(tmp_path / "m", {"a": weight})) as found:
        backend = choose("numpy", device=None, dtype="float32")
        found.ahead(["a"])
        assert found.product("a", x[:7], backend) is None  # it would be of the wrong axis
        assert (
            found.product("a", x, backend, bias, in_out=True) is None
        )  # many rows are multiplied faster whole
        several = []
        for _ in range(3):
            found.ahead(["a"])
            several.append(np.asarray(found.product("a", x[:7], backend, bias, in_out=True)))
            assert np.abs(several[0] - wanted[:7]).max() < 1e-3
        # whichever thread took which piece
        assert several[0].tobytes() == several[1].tobytes() == several[2].tobytes()
