"""Scores and exact replacement of edges: against loops, finite differences, and on every family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from oracles_circuit import LoopedGpt2, edge_scores, replaced_measure
from small_gpt2 import HEADS, small_gpt2

import attncli
from attncli.features.circuit.edge_graph import (
    edge_graph,
    live_edges,
    random_edges,
)
from attncli.features.circuit.edge_run import CircuitModel
from attncli.inputs.pairs import read_pairs
from attncli.measure.pair_measure import fit_pairs

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
    measured = circuit_model.replaced(pair, masks)
    oracle = LoopedGpt2(folder, HEADS)
    places = {node.id: place for place, node in enumerate(graph.writers)}
    rows = {(reader.id, reader.reads): number for number, reader in enumerate(graph.readers)}
    for mask, value in zip(masks, measured[1:], strict=True):
        kept = lambda edge, mask=mask: mask[rows[edge[1:]], places[edge[0]]]  # noqa: E731
        told = replaced_measure(oracle, *ids_of(pair), pair.answer, pair.versus, kept)
        assert value == pytest.approx(told, abs=1e-10)
    live = live_edges(graph, masks[2])
    assert live.sum() < masks[2].sum()  # else nothing was dropped
    assert circuit_model.replaced(pair, live[None])[1] == pytest.approx(measured[3], abs=1e-12)
