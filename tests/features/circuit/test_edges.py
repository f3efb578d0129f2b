"""Scores and exact replacement of edges: against loops, finite differences, and on every family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from oracles_circuit import HookedGpt2, LoopedGpt2, edge_scores, replaced_measure
from small_gpt2 import HEADS, small_gpt2
from tiny_checkpoints import Case, make
from tiny_sizes import GPT2

import attncli
from attncli.features.circuit.edge_graph import (
    edge_graph,
    live_edges,
    random_edges,
)
from attncli.features.circuit.edge_run import CircuitModel
from attncli.inputs.pairs import Pair, read_pairs
from attncli.inputs.token import Token
from attncli.measure.pair_measure import TokenPair, fit_pairs

SAMPLES = Path(__file__).parents[3] / "sample_inputs" / "pairs.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("edges") / "gpt2", layers=2)


@pytest.fixture(scope="module")
def circuit_model(folder: Path) -> CircuitModel:
    model = attncli.load(folder, dtype="float64")
    return CircuitModel(model, edge_graph(model.spec), "float64")


@pytest.fixture(scope="module")
def pair(circuit_model: CircuitModel):
    return fit_pairs(circuit_model.model, read_pairs(SAMPLES)).pairs[0]


def ids_of(pair) -> tuple[list[int], list[int]]:
    return [token.id for token in pair.clean], [token.id for token in pair.corrupt]


def test_scores_are_those_of_the_published_formula(folder, circuit_model, pair) -> None:
    steps = 3
    run = circuit_model.pair_gradients(pair, steps)
    scores = run.scores(circuit_model.graph)
    expected = edge_scores(
        LoopedGpt2(folder, HEADS), *ids_of(pair), pair.answer, pair.versus, steps
    )
    graph = circuit_model.graph
    assert len(expected) == graph.mask.sum()
    largest = max(map(abs, expected.values()))
    for number, reader in enumerate(graph.readers):
        for writer in range(reader.count):
            told = expected[graph.writers[writer].id, reader.id, reader.reads]
            assert scores[number, writer] == pytest.approx(told, abs=1e-10 * largest)


def test_replaced_edges_give_what_loops_give(folder, circuit_model, pair) -> None:
    graph = circuit_model.graph
    masks = np.stack([graph.mask, np.zeros_like(graph.mask), random_edges(graph, 40, 3)])
    measured = circuit_model.measure_circuits(pair, masks)
    oracle = LoopedGpt2(folder, HEADS)
    places = {node.id: place for place, node in enumerate(graph.writers)}
    rows = {(reader.id, reader.reads): number for number, reader in enumerate(graph.readers)}
    for mask, value in zip(masks, measured[1:], strict=True):
        kept = lambda edge, mask=mask: mask[rows[edge[1:]], places[edge[0]]]  # noqa: E731
        told = replaced_measure(oracle, *ids_of(pair), pair.answer, pair.versus, kept)
        assert value == pytest.approx(told, abs=1e-10)
    live = live_edges(graph, masks[2])
    assert live.sum() < masks[2].sum()  # else nothing was dropped
    assert circuit_model.measure_circuits(pair, live[None])[1] == pytest.approx(
        measured[3], abs=1e-12
    )


GPT2_SHAPES = (
    # layers, heads, width, seed
    (1, 2, 20, 1),
    (2, 3, 30, 2),
    (3, 4, 24, 3),
    (4, 2, 16, 4),
)


@pytest.mark.thorough
@pytest.mark.parametrize("shape", GPT2_SHAPES, ids=str)
def test_scores_are_those_of_transformers_with_hooks(shape, tmp_path: Path) -> None:
    layers, heads, width, seed = shape
    sizes = {**GPT2, "n_layer": layers, "n_head": heads, "n_embd": width}
    folder = make(Case("gpt2", sizes, "AutoModelForCausalLM"), tmp_path / "gpt2", seed)
    model = attncli.load(folder, dtype="float64")
    drawn = np.random.default_rng(seed)
    ids = drawn.integers(0, model.spec.vocabulary, (2, 9))
    ids[1, :3] = ids[0, :3]
    texts = [
        tuple(
            Token(place, str(number), int(number), None, None) for place, number in enumerate(row)
        )
        for row in ids
    ]
    pair = TokenPair(Pair("", "", "", ""), *texts, 4, 8, 3)
    graph = edge_graph(model.spec)
    scores = CircuitModel(model, graph, "float64").pair_gradients(pair, 5).scores(graph)
    expected = HookedGpt2(folder).edge_scores(*ids.tolist(), pair.answer, pair.versus, 5)
    assert len(expected) == graph.mask.sum()
    largest = max(map(abs, expected.values()))
    for number, reader in enumerate(graph.readers):
        told = [
            expected[graph.writers[writer].id, reader.id, reader.reads]
            for writer in range(reader.count)
        ]
        assert scores[number, : reader.count] == pytest.approx(told, abs=1e-8 * largest)
