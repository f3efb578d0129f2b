"""Weight files of classes that people have: what attn computes is what the class's own forward
computes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_classes as classes
from torch import nn

import attncli.language
from attncli.arrays.backend import choose
from attncli.errors import UsageError
from attncli.inputs.tensors import write_tensors
from attncli.inputs.tokenize import tokenizer
from attncli.mechanism.mask import Causal, Everywhere, MatrixMask
from attncli.models.layout import LayoutRequest, mask_buffers
from attncli.models.one_layer import Settings
from attncli.models.weight_file import layout_tensors, model_of, read_weight_file

WORDS = "a b c d e f g"
TOKENS = len(WORDS.split())


@dataclass(frozen=True)
class Case:
    """A class, what its layout is called, and what must be said beside its file."""

    make: Callable[[], nn.Module]
    layout: str
    d_model: int
    heads: int | None = None
    prefix: str = ""


CASES = {
    "single head": Case(lambda: classes.SingleHead(13, 7, 5), "single-head class", 13),
    "list of heads": Case(lambda: classes.ListOfHeads(13, 3, 5), "heads.i", 13),
    "shared maps": Case(lambda: classes.SharedMaps(15, 5), "values keys queries", 15),
    "shared maps with bias": Case(
        lambda: classes.SharedMaps(15, 3, bias=True), "values keys queries", 15
    ),
    "whole maps": Case(lambda: classes.WholeMaps(15, 5), "values keys queries", 15, heads=5),
    "matrices": Case(lambda: classes.Matrices(13, 7, 5), "matrices", 13),
    "matrices with output and bias": Case(
        lambda: classes.Matrices(13, 7, 5, output=True, bias=True), "matrices", 13
    ),
    "matrices per head": Case(lambda: classes.MatricesPerHead(13, 3, 7, 5), "matrices", 13),
    "kernels": Case(lambda: classes.Kernels(13, 3, 7, 5), "Keras", 13, prefix="part."),
    "fused convolution": Case(lambda: classes.Fused(15, 3), "fused c_attn", 15, heads=3),
    "fused linear": Case(lambda: classes.LinearFused(15, 5), "fused qkv", 15, heads=5),
    "torch": Case(
        lambda: classes.Torch(15, 3), "torch.nn.MultiheadAttention", 15, heads=3, prefix="inner."
    ),
    "torch without bias": Case(
        lambda: classes.Torch(15, 5, bias=False), "torch.nn.MultiheadAttention", 15, heads=5
    ),
    "torch with bias_kv": Case(
        lambda: classes.Torch(15, 3, add_bias_kv=True), "torch.nn.MultiheadAttention", 15, heads=3
    ),
    "torch apart": Case(
        lambda: classes.Torch(15, 3, apart=True), "torch.nn.MultiheadAttention", 15, heads=3
    ),
}

TRIL = torch.tril(torch.ones(9, 9))
LATER = torch.triu(torch.ones(9, 9), diagonal=1)
HIDDEN = torch.zeros(9, 9).masked_fill(LATER.bool(), float("-inf"))


def projections(names: str, heads: int = 3, **around: Any) -> Callable[[], nn.Module]:
    """A function that makes a class whose projections are called so."""
    return lambda: classes.Projections(15, heads, tuple(names.split()), **around)


TYPED_IN = {
    "lecture head": Case(lambda: classes.LectureHead(13, 5, 9), "query key value", 13),
    "lecture heads": Case(lambda: classes.LectureHeads(13, 3, 5, 9), "heads.i (query", 13),
    "c_attn as linear": Case(
        lambda: classes.LinearConvolution(15, 3, 9), "fused c_attn", 15, heads=3
    ),
    "book bare": Case(lambda: classes.BookMatrices(13, 5), "matrices W_query", 13),
    "book single": Case(
        projections("W_query W_key W_value", 1, bias=False, width=4), "W_query W_key", 15
    ),
    "book wrapper": Case(lambda: classes.BookHeads(13, 3, 5, 9), "heads.i (W_query", 13),
    "book": Case(
        projections("W_query W_key W_value out_proj", buffers={"mask": LATER}),
        "W_query W_key W_value",
        15,
        heads=3,
    ),
    "book of two widths": Case(
        projections(
            "W_query W_key W_value out_proj", width=12, leaving=12, buffers={"mask": LATER}
        ),
        "W_query W_key W_value",
        15,
        heads=3,
    ),
    "wider output": Case(projections("q k v o", width=6, leaving=20), "canonical", 15, heads=3),
    "annotated": Case(
        projections("linears.0 linears.1 linears.2 linears.3"), "linears.0 linears.1", 15, heads=3
    ),
    "W_q with mask": Case(
        projections("W_q W_k W_v W_o", buffers={"mask": TRIL.bool()}), "W_q W_k W_v", 15, heads=3
    ),
    "wq dense": Case(
        projections("wq wk wv dense", buffers={"attn_mask": HIDDEN[None]}), "wq wk wv", 15, heads=3
    ),
    "w_q w_concat": Case(projections("w_q w_k w_v w_concat", 5), "w_q w_k w_v", 15, heads=5),
}
"""Classes of lectures, books and tutorials, under the names that these use."""

MASKS = {
    "all": (Everywhere(), None),
    "causal": (Causal(), np.tril(np.ones((TOKENS, TOKENS), bool))),
    "given": (
        MatrixMask(np.eye(TOKENS, dtype=bool) | (np.arange(TOKENS) % 3 == 0)),
        np.eye(TOKENS, dtype=bool) | (np.arange(TOKENS) % 3 == 0),
    ),
}


def state(module: nn.Module, prefix: str = "") -> dict[str, np.ndarray[Any, Any]]:
    return {
        name.removeprefix(prefix): tensor.numpy() for name, tensor in module.state_dict().items()
    }


def inputs(d_model: int, batch: int = 2) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).normal(size=(batch, TOKENS, d_model))


def outputs(
    path: Path,
    x: np.ndarray[Any, Any],
    asked: LayoutRequest,
    mask: Any,
    backend: str = "numpy",
    **around: Any,
) -> np.ndarray[Any, Any]:
    """attn's output for each text of a batch, in float64."""
    chosen = choose(backend, device=None, dtype="float64")
    found = []
    for text in x:
        weights = read_weight_file(path, asked)
        settings = Settings(mask=mask, **around)
        model = model_of(weights, path.name, tokenizer("word"), chosen, settings, embedding=text)
        found.append(chosen.numpy(next(iter(model.trace(WORDS))).stages["out"]))
    return np.stack(found)


def float32_outputs(path: Path, x: Any, heads: int | None, mask: Any) -> np.ndarray[Any, Any]:
    """attn's output for a text in float32, as a reader gets it."""
    chosen = choose("numpy", device=None, dtype="float32")
    weights = read_weight_file(path, LayoutRequest(heads=heads))
    model = model_of(
        weights, path.name, tokenizer("word"), chosen, Settings(mask=mask), embedding=x
    )
    return next(iter(model.trace(WORDS))).stages["out"]


def expected(
    module: nn.Module, x: np.ndarray[Any, Any], visible: np.ndarray[Any, Any] | None
) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        return module(
            torch.from_numpy(x), None if visible is None else torch.from_numpy(visible)
        ).numpy()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_of_the_class_itself(name: str, mask: str, tmp_path: Path) -> None:
    case = CASES[name]
    module = classes.filled(case.make(), seed=11)
    path = tmp_path / "class.npz"
    write_tensors(path, state(module, case.prefix), {})
    ours, (rule, visible) = LayoutRequest(heads=case.heads), MASKS[mask]
    x = inputs(case.d_model)
    reference = expected(module, x, visible)
    assert np.abs(outputs(path, x, ours, rule) - reference).max() < 1e-10
    # the comparison would notice one weight that moved
    with torch.no_grad():
        next(module.parameters()).flatten()[0] += 0.5
    assert np.abs(expected(module, x, visible) - reference).max() > 1e-4


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("ending", [".pt", ".pth", ".safetensors", ".npz"])
def test_every_kind_of_file_gives_the_same_numbers(
    ending: str, backend: str, tmp_path: Path
) -> None:
    module = classes.filled(classes.ListOfHeads(13, 3, 5), seed=2)
    path = tmp_path / f"class{ending}"
    if ending.startswith(".p"):
        torch.save(module.state_dict(), path)
    else:
        write_tensors(path, state(module), {})
    x = inputs(13)
    assert (
        np.abs(
            outputs(path, x, LayoutRequest(), Everywhere(), backend) - expected(module, x, None)
        ).max()
        < 1e-10
    )


def test_float32_outputs_are_within_a_millionth(tmp_path: Path) -> None:
    """The promise as a reader meets it: the class in float32 against attn in float32."""
    module = classes.filled(classes.SharedMaps(16, 4), seed=3, spread=0.25).float()
    path = tmp_path / "class.pt"
    torch.save(module.state_dict(), path)
    x = inputs(16).astype(np.float32)
    with torch.no_grad():
        reference = module(torch.from_numpy(x)).numpy()
    chosen = choose("numpy", device=None, dtype="float32")
    model = model_of(read_weight_file(path), path.name, tokenizer("word"), chosen, embedding=x[1])
    assert np.abs(next(iter(model.trace(WORDS))).stages["out"] - reference[1]).max() < 1e-6


@pytest.mark.parametrize("name", CASES | TYPED_IN)
def test_a_layout_is_told_in_words_and_every_tensor_has_a_role(name: str, tmp_path: Path) -> None:
    case = (CASES | TYPED_IN)[name]
    path = tmp_path / "class.npz"
    write_tensors(path, state(classes.filled(case.make(), seed=1), case.prefix), {})
    found = read_weight_file(path, LayoutRequest(heads=case.heads))
    assert case.layout in found.layout
    buffers = dict(case.make().named_buffers())
    assert all(bool(role) != (tensor in buffers) for tensor, role in found.roles.items())
    assert found.facts.d_model == case.d_model


@pytest.mark.parametrize(
    "around", ["", "module.", "self_attn.", "encoder.layers.0.self_attn.", "my_block.inner."]
)
def test_modules_around_it_do_not_matter(around: str, tmp_path: Path) -> None:
    module = classes.filled(classes.Torch(15, 3), seed=4)
    path = tmp_path / "wrapped.npz"
    write_tensors(
        path, {f"{around}{name}": array for name, array in state(module, "inner.").items()}, {}
    )
    x = inputs(15)
    assert (
        np.abs(
            outputs(path, x, LayoutRequest(heads=3), Everywhere()) - expected(module, x, None)
        ).max()
        < 1e-10
    )


def test_the_class_that_divides_by_the_embeddings_root_can_be_read_the_other_way(
    tmp_path: Path,
) -> None:
    module = classes.filled(classes.SharedMaps(15, 5), seed=6)
    path = tmp_path / "class.npz"
    write_tensors(path, state(module), {})
    x = inputs(15)
    reference = expected(module, x, None)
    chosen = choose("numpy", device=None, dtype="float64")
    said = model_of(read_weight_file(path), path.name, tokenizer("word"), chosen).warnings
    assert any("√d_model" in note and "--scale" in note for note in said)
    assert (
        np.abs(
            outputs(path, x, LayoutRequest(), Everywhere(), scale="sqrt-dmodel") - reference
        ).max()
        < 1e-10
    )
    assert (
        np.abs(outputs(path, x, LayoutRequest(), Everywhere(), scale="sqrt-dk") - reference).max()
        > 1e-3
    )


@pytest.mark.parametrize("mask", ["all", "causal"])
@pytest.mark.parametrize("name", TYPED_IN)
def test_a_typed_in_class_is_saved_as_pt_and_read(name: str, mask: str, tmp_path: Path) -> None:
    """state_dict of the class itself, buffers and all, in float32: within a millionth."""
    case = TYPED_IN[name]
    module = classes.filled(case.make(), seed=12, spread=0.3).float()
    path = tmp_path / "class.pt"
    torch.save(module.state_dict(), path)
    rule, visible = MASKS[mask]
    x = inputs(case.d_model, batch=1).astype(np.float32)
    found = float32_outputs(path, x[0], case.heads, rule)
    assert np.abs(found - expected(module, x, visible)[0]).max() <= 1e-6


def lines_of_the_page(lang: str, first: str) -> str:
    """The block of Python on the page about weight files that holds a text."""
    page = (Path(attncli.language.__path__[0]) / "guide" / lang / "weights.md").read_text("utf-8")
    [block] = [part for part in re.findall("```python\n(.*?)```", page, re.S) if first in part]
    return block


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_fused_class_by_head_is_told_of_and_reordered_as_the_page_says(
    lang: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = classes.filled(classes.FusedByHead(16, 4), seed=8)
    monkeypatch.chdir(tmp_path)
    torch.save(module.state_dict(), "plain.pt")
    x = inputs(16)
    reference = expected(module, x, None)
    told = read_weight_file(Path("plain.pt"), LayoutRequest(heads=4)).notes
    assert any("all queries, then all keys" in note for note in told)
    assert read_weight_file(Path("plain.pt"), LayoutRequest(heads=1)).notes == ()
    wrong = outputs(Path("plain.pt"), x, LayoutRequest(heads=4), Everywhere())
    assert np.abs(wrong - reference).max() > 1e-2
    exec(lines_of_the_page(lang, "qkv_proj"), {"module": module, "torch": torch})
    found = outputs(Path("mine.pt"), x, LayoutRequest(heads=4), Everywhere())
    assert np.abs(found - reference).max() < 1e-10


def test_an_output_of_another_width_has_no_residual_and_no_fused_layout(tmp_path: Path) -> None:
    module = classes.filled(TYPED_IN["book of two widths"].make(), seed=8)
    path = tmp_path / "class.npz"
    write_tensors(path, state(module), {})
    read = read_weight_file(path, LayoutRequest(heads=3))
    chosen = choose("numpy", device=None, dtype="float64")
    for around in ({"residual": True}, {"layer_norm": True}):
        with pytest.raises(UsageError, match="an output of width 12"):
            model_of(read, "w", tokenizer("word"), chosen, Settings(**around))
    for layout in ("torch", "fused"):
        with pytest.raises(UsageError, match="layout"):
            layout_tensors(read.weights, read.facts, layout)
    module = classes.filled(classes.Projections(12, 3, ("q", "k", "v", "o"), leaving=5), seed=8)
    write_tensors(path, state(module), {})
    read = read_weight_file(path, LayoutRequest(heads=3))
    for layout in ("torch", "fused"):
        with pytest.raises(UsageError, match="this one is 5 wide"):
            layout_tensors(read.weights, read.facts, layout)


@pytest.mark.parametrize("name", TYPED_IN)
def test_a_causal_buffer_is_said_and_not_applied_unless_asked(name: str, tmp_path: Path) -> None:
    case = TYPED_IN[name]
    module = classes.filled(case.make(), seed=12)
    path = tmp_path / "class.npz"
    write_tensors(path, state(module), {})
    weights = read_weight_file(path, LayoutRequest(heads=case.heads))
    chosen = choose("numpy", device=None, dtype="float64")
    buffers = list(dict(module.named_buffers()))
    for rule, is_told in ((Everywhere(), bool(buffers)), (Causal(), False)):
        model = model_of(weights, path.name, tokenizer("word"), chosen, Settings(mask=rule))
        told = [note for note in model.warnings if "--mask causal" in note]
        assert bool(told) == is_told
        assert all(buffers[0] in note for note in told)
    assert bool(weights.every_note) >= bool(buffers)


def test_a_lecture_class_that_divides_by_the_whole_width_is_read_with_its_scale(
    tmp_path: Path,
) -> None:
    """Some forms of it multiply by C ** -0.5, C being d_model: the screen says how to ask."""
    module = classes.filled(classes.LectureHeads(12, 3, 4, 9), seed=3)
    path = tmp_path / "class.npz"
    write_tensors(path, state(module), {})
    chosen = choose("numpy", device=None, dtype="float64")
    for scale in (None, "sqrt-dk"):
        settings = Settings(scale=scale)
        weights = read_weight_file(path)
        told = model_of(weights, path.name, tokenizer("word"), chosen, settings).warnings
        assert any("--scale sqrt-dmodel" in note for note in told) == (scale is None)
    x = inputs(12)
    found = outputs(path, x, LayoutRequest(), Everywhere(), scale="sqrt-dmodel")
    for head in module.heads:
        head.key.weight.data *= (4 / 12) ** 0.5
    assert np.abs(found - expected(module, x, None)).max() < 1e-10


@pytest.mark.parametrize(
    ("mask", "hides"),
    [
        (TRIL, True),
        (TRIL.bool()[None, None], True),
        (LATER, True),
        (HIDDEN, True),
        (TRIL.T, False),
        (torch.ones(9, 9), False),
        (torch.eye(9), False),
        (torch.ones(1, 1), False),
    ],
)
def test_which_masks_are_causal(mask: torch.Tensor, hides: bool) -> None:
    found = mask_buffers({"inner.mask": mask.numpy(), "q.weight": np.ones((3, 3))})
    assert found.names == {"inner.mask"}
    assert found.causal == ("inner.mask" if hides else "")


def test_only_square_tensors_of_a_masks_name_are_masks() -> None:
    arrays = {"mask": np.ones((3, 4)), "a.mask": np.ones((2, 3, 3)), "bias": np.ones((3, 3))}
    assert mask_buffers(arrays).names == frozenset()
    assert mask_buffers({"a.bias": np.ones((1, 1, 3, 3))}).names == {"a.bias"}
    assert mask_buffers({"masked_bias": np.array(-1e4)}).names == {"masked_bias"}
