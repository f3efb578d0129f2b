"""Results in a notebook: executed for real, shown as a page in a closed frame, as text where
scripts are off.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli

CELLS = [
    "import numpy as np, attncli\nrng = np.random.default_rng(0)",
    "attncli.attention(*(rng.standard_normal((2, 4, 6, 8)) for _ in 'qkv'), causal=True)",
    "attncli.load(seed=0).trace('the cat sat on the mat')",
]


@pytest.mark.thorough
def test_text_is_always_there() -> None:
    q = np.zeros((1, 3, 4))
    found = attncli.attention(q, q, q)._repr_mimebundle_()
    assert attncli.attention(q, q, q)._repr_html_() == found["text/html"]
    assert found["text/plain"] == repr(attncli.attention(q, q, q))
    assert '<iframe sandbox="allow-scripts"' in found["text/html"]
    large = attncli.attention(
        np.zeros((1, 5000, 1)), np.zeros((1, 5000, 1)), np.zeros((1, 5000, 1))
    )
    assert set(large._repr_mimebundle_()) == {"text/plain"}


def test_a_notebook_shows_a_document_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich, in a notebook, displays what it prints: a screen for a cell's value is only recorded."""
    from IPython import display
    from rich import console

    shown: list[object] = []
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(display, "display", lambda *values, **_: shown.extend(values))
    document = attncli.tokens("the cat")
    found = document._repr_mimebundle_()
    assert "cat" in found["text/html"]
    assert shown == []


@pytest.mark.thorough
def test_a_notebook_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chromium: Any
) -> None:
    nbformat = pytest.importorskip("nbformat", reason="no nbformat here (a Python package)")
    nbclient = pytest.importorskip("nbclient", reason="no nbclient here (a Python package)")
    nbconvert = pytest.importorskip("nbconvert", reason="no nbconvert here (a Python package)")
    pytest.importorskip("ipykernel", reason="no ipykernel here (a Python package)")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(attncli.__file__).parents[1])]))
    monkeypatch.setenv(
        "JUPYTER_PATH", str(Path(nbconvert.__file__).parents[4] / "share" / "jupyter")
    )
    note = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(note, timeout=240, kernel_name="python3").execute()
    shown = [cell.outputs[-1].data for cell in note.cells[1:]]
    assert all("<" in one["text/plain"] and "iframe" in one["text/html"] for one in shown)
    assert json.dumps(shown)
    file = tmp_path / "note.html"
    file.write_text(nbconvert.HTMLExporter().from_notebook_node(note)[0], "utf-8")
    _frames_are_drawn(chromium, file)


def _frames_are_drawn(started: Any, file: Path) -> None:
    window = started.new_page()
    window.goto(file.as_uri(), wait_until="domcontentloaded")
    frames = [one for one in window.frames if one is not window.main_frame]
    assert len(frames) == 2
    for frame in frames:
        for _ in range(1200):
            if frame.evaluate("() => document.querySelectorAll('#grid .tile canvas').length"):
                break
            window.wait_for_timeout(50)
        assert frame.evaluate("() => document.querySelector('#chosen').textContent.length")
