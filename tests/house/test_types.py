"""The types that a caller's own checker sees: the public names under `mypy --strict`, from outside."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.thorough  # reading the package and torch's types takes ten seconds

CALLER = """
from typing import Any, assert_type

import numpy as np

import attncli
from attncli import AttentionTrace, AttnError
from attncli.metrics import entropy, measure

Array = np.ndarray[Any, Any]
q = np.ones((2, 3, 4))
found = attncli.attention(q, q, q, causal=True, window=(1, None), offset=2, mask=np.ones((3, 3), bool))
assert_type(found, AttentionTrace[Array])
assert_type(found.weights, Array)
assert_type(found.empty_rows, Array)
rows: list[float] = found.weights.sum(-1)[0].tolist()
assert_type(entropy(found.weights, [[True] * 3] * 3), np.ndarray[Any, np.dtype[np.float64]])
spread: list[float] = measure(found.weights, metrics=["entropy"])["entropy"].value.tolist()

try:
    model = attncli.load(seed=0)
    for layer in model.trace("a b c", layers=[0]):
        number: int = layer.layer
        weights = model.backend.numpy(layer.stages["weights"])
        assert_type(weights, Array)
        shape: tuple[int, ...] = layer.stages["q"].shape
        middle = layer.stages["weights"].mean(axis=0)
        least, sharpest = float(middle.min()), float(layer.stages["weights"].max())
        sums = layer.stages["weights"].sum(axis=-1)
        plain = np.asarray(layer.stages["weights"])[0].mean(axis=0)
    trace = model.trace("a b c")
    over_heads = trace.weights.mean(axis=1)
    first_head = trace.weights[0, 0]
    said: str = repr(trace)
    shown: str | None = trace._repr_html_()
    for text in model.traces(["a b", "c d"]):
        layers: tuple[int, ...] = text.layers
    zero, knocked = attncli.Zero(heads=(0,)), attncli.KnockOut(heads=(0,), queries=(2,), keys=(0,))
    for changed in model.trace("a b c", interventions={(0, "self"): (zero, knocked)}):
        after = changed.after.mean(axis=-1)
except AttnError as error:
    what: str = error.what
"""

FAR = """
[mypy]
[mypy-IPython.*,sympy.*,torch._decomp.*,torch._dynamo.*,torch._export.*,torch._functorch.*,torch._higher_order_ops.*]
follow_imports = skip
[mypy-torch._inductor.*,torch._prims.*,torch._refs.*,torch._subclasses.*,torch.ao.*,torch.distributed.*,torch.export.*]
follow_imports = skip
[mypy-torch.fx.*,torch.onnx.*,torch.testing.*,torch.utils.*]
follow_imports = skip
"""
"""What is far from a tensor's own type, and takes as long to read as all the rest."""

WRONG = {
    "attncli.attention([1], q, q)": "Value of type variable",
    "attncli.attention(q, q, q, causal='yes')": "incompatible type",
    "attncli.attention(q, q, q, softmax='float32')": "Unexpected keyword",
    "found: int = attncli.attention(q, q, q).weights": "Incompatible types in assignment",
    "attncli.attention(q, q, q).wieghts": "has no attribute",
    "next(iter(attncli.load(seed=0).trace('a'))).stages['q'].sgape": "has no attribute",
    "attncli.nothing": "has no attribute",
    "attncli.metrics.entropy(q, special=1)": "incompatible type",
    "attncli.metrics.entropy(q).valeu": "has no attribute",
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What the checker says about each file: its answer for the caller, then for every mistake."""
    folder = tmp_path_factory.mktemp("caller")
    (folder / "caller.py").write_text(CALLER, "utf-8")
    for number, mistake in enumerate(WRONG):
        lines = ("import numpy as np", "import attncli", "q = np.ones((2, 3, 4))", mistake)
        (folder / f"wrong_{number}.py").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "caller.ini").write_text(FAR, "utf-8")
    told = [f"--config-file={folder / 'caller.ini'}", f"--cache-dir={folder / 'cache'}"]
    command = [sys.executable, "-m", "mypy", "--strict", *told]
    # other packages' own types are not the subject
    quiet = ["--follow-imports=silent", "--ignore-missing-imports"]
    files = sorted(map(str, folder.glob("*.py")))
    return subprocess.run(
        [*command, *quiet, *files], capture_output=True, text=True, check=False
    ).stdout


def test_a_caller_is_checked(checked):
    assert [line for line in checked.splitlines() if "caller.py" in line] == []
    assert "Found" in checked, checked


@pytest.mark.parametrize("number", range(len(WRONG)), ids=list(WRONG))
def test_a_mistake_is_told(checked, number):
    told = [line for line in checked.splitlines() if f"wrong_{number}.py" in line]
    assert any(list(WRONG.values())[number] in line for line in told), told
