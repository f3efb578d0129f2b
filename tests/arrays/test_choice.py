"""Which backend a job gets, by a stated rule, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attncli.arrays import backend
from attncli.arrays.backend import TORCH_PAYS_FROM, backend_of, choose
from attncli.errors import UnsupportedError, UsageError
from attncli.extras import install_command


@pytest.mark.parametrize(
    ("name", "dtype", "work", "wanted"),
    [
        ("auto", "float32", 0, "numpy"),
        ("auto", "float64", TORCH_PAYS_FROM - 1, "numpy"),
        ("auto", "float32", TORCH_PAYS_FROM, "torch"),
        ("auto", "bfloat16", 0, "torch"),
        ("auto", "float16", 0, "torch"),
        ("numpy", "float16", 10**15, "numpy"),
        ("torch", "float32", 0, "torch"),
    ],
)
@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_rule(name, dtype, work, wanted, device):
    chosen = choose(name, device=device, dtype=dtype, work=work)
    assert (chosen.name, chosen.dtype, chosen.device) == (wanted, dtype, "cpu")


def test_without_torch(monkeypatch):
    monkeypatch.setattr(backend, "torch_is_installed", lambda: False)
    assert choose("auto", device=None, dtype="bfloat16", work=TORCH_PAYS_FROM).name == "numpy"
    for name, device in (("torch", None), ("auto", "cuda")):
        with pytest.raises(UnsupportedError, match="not installed") as caught:
            choose(name, device=device, dtype="float32")
        assert caught.value.hint == install_command("torch")


REFUSED = [
    (("jax", None, "float32"), UsageError, "'jax'", "auto numpy torch"),
    (("auto", None, "float8"), UsageError, "'float8'", "bfloat16"),
    (("numpy", "cuda", "float32"), UnsupportedError, "'cuda'", ""),
    (("torch", "nonsense", "float32"), UnsupportedError, "'nonsense'", "cuda"),
]


@pytest.mark.parametrize(("asked", "kind", "found", "wanted"), REFUSED)
def test_refused(asked, kind, found, wanted):
    name, device, dtype = asked
    with pytest.raises(kind) as caught:
        choose(name, device=device, dtype=dtype)
    assert found in caught.value.what
    assert wanted in caught.value.expected


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device here")
def test_a_device_that_is_not_there():
    with pytest.raises(UnsupportedError, match="cuda"):
        choose("auto", device="cuda", dtype="float32")


def test_the_backend_of_arrays():
    assert backend_of(np.ones(2, np.float32)).dtype == "float32"
    assert backend_of([[1, 2]]).dtype == "float64"
    assert backend_of(np.arange(3)).dtype == "float64"
    assert backend_of(torch.ones(2, dtype=torch.bfloat16)).dtype == "bfloat16"
    with pytest.raises(UsageError, match="mixed"):
        backend_of(np.ones(2), torch.ones(2))
    with pytest.raises(UsageError, match=r"cpu, meta"):
        backend_of(torch.ones(2), torch.ones(2, device="meta"))
