"""`attn circuit`: the document, what its command writes, and every family of decoders."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path
from threading import Barrier, get_ident
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from asking import ask
from msgspec import UNSET
from msgspec.json import encode
from msgspec.structs import replace
from processes import finish
from scipy.stats import spearmanr
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

import attncli
from attncli.cli.declarations import RunSetup, TextOptions
from attncli.draw.figures import figure
from attncli.draw.numbers import percent
from attncli.draw.view import View
from attncli.errors import InputError, UsageError
from attncli.explore.command import _document_in, _text_of_circuit
from attncli.explore.loaded_run import LiveSource
from attncli.features.circuit import compute
from attncli.features.circuit.circuit_overlap import compare_circuits
from attncli.features.circuit.circuit_roles import _strongest_rules
from attncli.features.circuit.circuit_words import looks_like, loss_sentence
from attncli.features.circuit.compute import _refuse_other_places, edge_count, split_pairs
from attncli.features.circuit.document import CircuitDocument, CircuitNode
from attncli.features.circuit.edge_graph import edge_graph
from attncli.features.circuit.edge_run import CircuitModel
from attncli.features.circuit.faithfulness import areas, overlap_of_resamples, smallest_size
from attncli.features.circuit.figure import shared_name
from attncli.features.circuit.screen import circuit_compare_sentences, circuit_sentences
from attncli.features.effects.ablation import text_for_sweep
from attncli.features.effects.circuit_heads import heads_of_circuit, read_circuit
from attncli.features.effects.document import Difference
from attncli.features.effects.sweep import resample_from
from attncli.inputs.pairs import Pair, read_pairs
from attncli.inputs.token import Token
from attncli.measure.kept_results import KeptArray, KeptArrays
from attncli.measure.pair_measure import TokenPair, fit_pairs, measured_differences
from attncli.mechanism.spec import HeadSelection
from attncli.models.aliases import local_folder
from attncli.models.load import hold_weights

SAMPLES = Path(__file__).parents[3] / "sample_inputs" / "pairs.jsonl"
DECODERS = (
    "gpt2", "gptj", "bloom", "opt", "llama", "mistral", "qwen2", "qwen3", "gemma2", "phi", "olmo2", "olmo", "cohere",
    "falcon new", "stablelm parallel", "glm4", "granite", "starcoder2",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("circuit") / "gpt2")


def test_all_edges_keep_all_and_none_nothing(folder: Path) -> None:
    told: list[float] = []
    model = attncli.load(folder, dtype="float64")
    document = attncli.circuit(model, SAMPLES, seed=1, progress=told.append)
    assert document.all == pytest.approx(1, abs=1e-9)
    assert document.none == pytest.approx(0, abs=1e-9)
    assert (document.pairs.choice, document.pairs.held_out) == (2, 1)
    assert document.curve[-1].faithfulness == pytest.approx(1)
    assert document.curve[-1].edges == document.graph_edges
    chosen = document.chosen
    assert chosen in document.curve
    assert len(document.edges) == chosen.live <= chosen.edges
    assert {edge.writer for edge in document.edges} <= {node.id for node in document.nodes}
    scores = [abs(edge.score) for edge in document.edges]
    assert scores == sorted(scores, reverse=True)
    assert 0 < document.stability <= 1
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    again = attncli.circuit(model, SAMPLES, seed=1)
    assert encode(again) == encode(document)


def test_the_command_writes_it(folder: Path) -> None:
    line = ("circuit", "--model", str(folder), "--pairs", str(SAMPLES), "--size", "30")
    document = ask(*line, "--json").json
    assert document["schema"] == "attn.circuit/1"
    assert document["chosen"]["edges"] == 30
    assert document["chosen_by"] == "size"
    assert set(document["edges"][0]) == {"from", "to", "reads", "score"}
    assert set(document["exact"]) == {"pairs", "edges", "correlation"}
    shown = ask(*line).out
    assert "30 of " in shown
    assert "Below 20 held-out pairs there is no interval." in shown
    assert "All edges keep 1.0000, none 0.0000." in shown
    assert "from pairs drawn again share" in " ".join(shown.split())
    rows = ask(*line, "--plain").out.splitlines()
    heads = [node for node in document["nodes"] if node["kind"] == "head"]
    assert heads
    tail = len(document["edges"]) + len(document["exact"]["edges"])
    assert len(rows) == 1 + 10 + 1 + len(heads) + tail


def test_what_is_known_is_kept_until_all_is(folder: Path, tmp_path: Path) -> None:
    """An interruption after each result: the next call computes what is missing, and the document
    has the same bytes."""
    model = attncli.load(folder, dtype="float64")
    whole = attncli.circuit(model, SAMPLES)
    done: list[int] = []

    def stop(count: int, runs: int) -> None:
        assert count <= runs
        if count > len(done):
            done.append(count)
            raise KeyboardInterrupt

    computed = []
    known = KeptArrays.load_or_compute

    def counted(self, name, compute):
        return known(self, name, lambda: computed.append(name) or compute())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeptArrays, "load_or_compute", counted)
        for _ in range(40):
            try:
                again = attncli.circuit(model, SAMPLES, kept=tmp_path, on_result=stop)
            except KeyboardInterrupt:
                continue
            break
    assert encode(again) == encode(whole)
    assert len(computed) == len(set(computed)) == len(done)
    assert not list(tmp_path.iterdir())


def test_several_workers_give_the_same_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = hold_weights(attncli.load(folder, dtype="float64"))
    threads: set[int] = set()
    meeting = Barrier(2, timeout=60)
    gradients = CircuitModel.pair_gradients

    def met(self, pair, steps):
        threads.add(get_ident())
        meeting.wait()  # two pairs are run at the same time, or this one waits in vain
        return gradients(self, pair, steps)

    alone = attncli.circuit(model, SAMPLES, workers=1)
    monkeypatch.setattr(CircuitModel, "pair_gradients", met)
    beside = attncli.circuit(model, SAMPLES, workers=2)
    assert len(threads) == 2
    assert encode(beside) == encode(alone)
    with pytest.raises(UsageError):
        attncli.circuit(model, SAMPLES, workers=0)


def test_there_are_as_many_workers_as_memory_holds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = hold_weights(attncli.load(folder, dtype="float64"))
    monkeypatch.setattr(compute, "cores", lambda: 2)
    peaks: list[int] = []

    def stop(expected, tokens: int) -> None:
        peaks.append(expected.peak)
        raise KeyboardInterrupt

    for given in ({"workers": 1}, {"workers": 2}, {}, {"memory": 0}):
        with pytest.raises(KeyboardInterrupt):
            attncli.circuit(model, SAMPLES, on_cost=stop, **given)
    assert peaks[0] < peaks[1]
    assert peaks == [peaks[0], peaks[1], peaks[1], peaks[0]]


def test_a_damaged_kept_array_is_computed_again(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(2, 3)
    assert KeptArrays(tmp_path).load_or_compute("a", lambda: values) is not None
    assert KeptArrays(tmp_path).load_or_compute("a", lambda: -values).tolist() == values.tolist()
    (tmp_path / "a.json").write_bytes(b"x")
    assert KeptArrays(tmp_path).load_or_compute("a", lambda: -values).tolist() == (-values).tolist()
    assert KeptArray("float64", (2, 2), b"1234").array() is None


def test_the_figure_joins_the_parts_that_the_strongest_edges_do(folder: Path) -> None:
    document = attncli.circuit(attncli.load(folder, dtype="float64"), SAMPLES, size="20")
    drawing = figure(document)
    heights = {
        box.text: box.top
        for box in drawing.boxes
        if box.text in {node.id for node in document.nodes}
    }
    strongest = document.edges[:40]
    assert {edge.writer for edge in strongest} <= set(heights)
    assert heights["logits"] == min(heights.values())
    assert heights["embed"] == max(heights.values())
    for edge in strongest:  # no key-value head is shared here: an edge is a line
        assert heights[edge.to] < heights[edge.writer]
    fewer = figure(replace(document, edges=strongest[1:]))
    lines, less = (
        [piece for piece in one.pieces if piece.startswith("<path")] for one in (drawing, fewer)
    )
    assert len(lines) == len(less) + 1 > len(strongest)
    # the curve below: a mark for each size, as high as what it keeps, and its areas
    texts = {box.text: box for box in drawing.boxes}
    assert f"CPR {document.cpr:.3f}, CMD {document.cmd:.3f}" in texts
    assert "as many random edges" in texts
    assert {percent(size.share) for size in document.curve} <= set(texts)
    with pytest.raises(InputError):
        figure(replace(document, edges=[]))


def test_an_edge_to_shared_keys_is_drawn_to_each_head() -> None:
    nodes = [
        CircuitNode(
            id=f"L1H{head}", kind="head", layer=1, head=head, strength=1, reads=None, writes=None
        )
        for head in (0, 1, 3)
    ]
    assert [shared_name(node, 2) for node in nodes] == ["L1KV0", "L1KV0", "L1KV1"]


def test_heads_have_the_roles_that_ablation_gives_them(folder: Path) -> None:
    model = attncli.load(folder, dtype="float64")
    document = attncli.circuit(model, SAMPLES, size="40%", holdout=1)
    heads = [node for node in document.nodes if node.kind == "head"]
    pairs = split_pairs(fit_pairs(model, read_pairs(SAMPLES)), 1, 0).choice
    assert document.role_pairs == len(pairs) == 2
    last = max(node.layer for node in heads)
    moves = 0
    for node in heads:
        difference = node.difference
        assert difference.all == pytest.approx(difference.writes + difference.moved, abs=1e-12)
        if node.layer == last:
            assert difference.moved == pytest.approx(0, abs=1e-9)
        moves += abs(difference.moved) > 1e-6
        alone = [
            attncli.ablate(
                model,
                pair.pair.clean,
                by=resample_from(text_for_sweep(model, pair.corrupt, [])),
                heads=HeadSelection(pairs=[(node.layer, node.head)]),
                target=f"id:{pair.answer}",
                versus=f"id:{pair.versus}",
                baseline="none",
            ).effects[0]
            for pair in pairs
        ]
        assert difference.all == pytest.approx(
            np.mean([row.difference.all for row in alone]), abs=1e-9
        )
    assert moves  # else the split says nothing
    assert all(node.labels is UNSET for node in document.nodes if node.kind != "head")


@pytest.fixture(scope="module")
def saved(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A circuit of the small model, of half of its heads."""
    document = attncli.circuit(attncli.load(folder, dtype="float64"), SAMPLES, size="40%")
    heads = [node for node in document.nodes if node.kind == "head"]
    file = tmp_path_factory.mktemp("saved") / "circuit.json"
    file.write_bytes(encode(replace(document, nodes=[*heads[1:4], document.nodes[-1]])))
    return file


def test_ablate_keeps_the_heads_of_a_circuit(folder: Path, saved: Path) -> None:
    model = attncli.load(folder)
    document = read_circuit(saved)
    inside = {(node.layer, node.head) for node in document.nodes if node.kind == "head"}
    outside = [
        (layer, head) for layer in (0, 1) for head in range(3) if (layer, head) not in inside
    ]
    assert len(inside) == len(outside) == 3
    line = ("ablate", "the cat sat", "--model", str(folder), "--target", "id:5", "--json")
    own = attncli.ablate(
        model, "the cat sat", heads=HeadSelection(pairs=outside), together=True, target="id:5"
    )
    told = ask(*line, "--circuit", str(saved)).json["together"]
    assert told["logprob"] == own.together.logprob != 0
    pairs = ("ablate", "--pairs", str(SAMPLES), "--model", str(folder), "--json")
    over = ask(*pairs, "--circuit", str(saved))
    assert over.json["together"]["difference"]["all"] != 0
    assert "3 heads are not in the circuit" in over.err
    for option in (("--head", "1"), ("--layer", "0"), ("--from", "cat", "--to", "the")):
        assert ask(*line, "--circuit", str(saved), *option).code == 2


def test_a_file_that_is_no_circuit_of_the_model_is_refused(
    folder: Path, saved: Path, tmp_path: Path
) -> None:
    deeper = small_gpt2(tmp_path / "deeper", layers=3)
    run = tmp_path / "run.json"
    run.write_text(ask("run", "a b", "--json").out)
    whole = saved.read_bytes()
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) // 2])
    all_heads = [
        replace(CIRCUIT_HEAD, id=f"L{layer}H{head}", layer=layer, head=head)
        for layer in (0, 1)
        for head in range(3)
    ]
    (tmp_path / "all.json").write_bytes(encode(replace(read_circuit(saved), nodes=all_heads)))
    text = ("ablate", "the cat sat", "--model")
    for model, file, says in (
        (folder, tmp_path / "empty.json", "empty"),
        (folder, tmp_path / "cut.json", "JSON"),
        (folder, run, "no circuit"),
        (folder, tmp_path / "none.json", "none.json"),
        (folder, tmp_path / "all.json", "there is none to take away"),
        (deeper, saved, "another model"),
    ):
        refused = ask(*text, str(model), "--circuit", str(file))
        assert (refused.code, refused.out) == (3, ""), file
        assert says in refused.err


def test_two_circuits_are_compared_at_equal_sizes(
    folder: Path, saved: Path, tmp_path: Path
) -> None:
    document = attncli.circuit(attncli.load(folder, dtype="float64"), SAMPLES, size="40")
    edges = document.edges[:12]
    # the other has the first eight, in another order of strength, and one of its own
    scores = [edge.score for edge in edges]
    others = [replace(edges[place], score=scores[8 - place]) for place in (7, 6, 5, 4, 3, 2, 1, 0)]
    added = replace(edges[8], writer="L1H2", to="logits", reads="logits")
    other = replace(document, edges=[added, *others], stability=None)
    compared = compare_circuits(replace(document, edges=edges), other, ("a", "b"))
    assert compared.size == 9
    own = {(edge.writer, edge.to, edge.reads) for edge in edges[:9]}
    theirs = {(edge.writer, edge.to, edge.reads) for edge in other.edges}
    assert compared.edges.both == len(own & theirs)
    assert compared.edges.either == len(own | theirs)
    assert compared.edges.share == len(own & theirs) / len(own | theirs)
    both = [edge for edge in edges[:9] if (edge.writer, edge.to, edge.reads) in theirs]
    by_edge = {(edge.writer, edge.to, edge.reads): abs(edge.score) for edge in other.edges}
    expected = spearmanr(
        [abs(edge.score) for edge in both],
        [by_edge[edge.writer, edge.to, edge.reads] for edge in both],
    ).statistic
    assert compared.correlation == pytest.approx(expected, abs=1e-12)
    assert compared.chance == pytest.approx(9 / (2 * document.graph_edges - 9))
    same = compare_circuits(document, document, ("a", "a"))
    assert (same.edges.share, same.heads.share, same.only_a) == (1, 1, [])
    assert same.correlation == pytest.approx(1)
    # larger circuits overlap by more: theirs are not set beside a small one's
    few = replace(document, edges=document.edges[:4], stability=None)
    smaller = compare_circuits(document, few, ("a", "b"))
    said = " ".join(circuit_compare_sentences(smaller, View()))
    assert f"is known of {len(document.edges)} edges: it says nothing of 4." in said
    assert "Circuits from pairs drawn again share" not in said
    headless = replace(document, edges=[replace(edges[0], writer="embed", to="L0MLP")])
    bare = compare_circuits(headless, headless, ("a", "b"))
    assert (bare.heads.both, bare.heads.share, bare.edges.share) == (0, None, 1)
    assert "no head writes to them" in " ".join(circuit_compare_sentences(bare, View()))
    with pytest.raises(InputError) as refused:
        compare_circuits(document, replace(document, edges=[]), ("a", "b"))
    assert "'b'" in str(refused.value)
    file = tmp_path / "a.json"
    file.write_bytes(encode(document))
    line = ("circuit", "compare", str(file), str(file))
    assert ask(*line, "--json").json["schema"] == "attn.circuit_compare/1"
    assert "no more than other pairs would make" in " ".join(ask(*line).out.split())
    assert ask(*line, "--plain").out.startswith("what\tname\tboth\teither\tshare\n")
    assert ask(*line[:3]).code == 2
    assert ask(*line, "--pairs", str(SAMPLES)).code == 2
    assert ask(*line, "--html", str(tmp_path / "x.html"), "--quiet").code == 0
    wider = replace(document, model=replace(document.model, layers=3))
    with pytest.raises(InputError):
        compare_circuits(document, wider, ("a", "b"))


CIRCUIT_HEAD = CircuitNode(
    id="L0H0", kind="head", layer=0, head=0, strength=1.0, reads=None, writes=None
)


def test_the_explorer_shows_the_heads_of_a_circuit(folder: Path, saved: Path) -> None:
    model = attncli.load(folder)
    places = heads_of_circuit(read_circuit(saved), model, "")
    source = LiveSource.of(model, "the cat sat").with_places(places)
    record = source.record(lambda share: None)
    assert [(head.layer, head.head) for head in record.heads] == list(places)
    with pytest.raises(InputError):
        source.with_places([])
    document = read_circuit(saved)
    task = saved.with_name("task.json")
    task.write_bytes(
        encode(replace(document, pairs=replace(document.pairs, name="indirect-object")))
    )
    assert isinstance(_document_in(task), CircuitDocument)
    text, setup = _text_of_circuit(task, TextOptions(), RunSetup())
    assert text.text == read_pairs("indirect-object", count=1).pairs[0].clean
    assert setup.model.model == document.model.name
    with pytest.raises(InputError) as error:  # the folder of the pairs is not known
        _text_of_circuit(saved, TextOptions(), RunSetup())
    assert "explore TEXT --circuit" in error.value.hint


def test_what_cannot_be_done_is_refused(folder: Path) -> None:
    line = ("circuit", "--model", str(folder))
    assert ask(*line).code == 2
    pairs = (*line, "--pairs", str(SAMPLES))
    unequal = folder.with_name("unequal.jsonl")
    unequal.write_text(SAMPLES.read_text().replace('"corrupt": "', '"corrupt": "the '))
    refused = ask(*line, "--pairs", str(unequal))
    assert (refused.code, refused.out) == (3, "")
    assert "tokens, the corrupt one" in refused.err
    for size in ("0", "x", "2.5", "101%", "-3", "1e3"):
        assert ask(*pairs, "--size", size).code == 2, size
    assert ask(*pairs, "--holdout", "3").code == 2
    assert ask(*pairs, "--count", "1").code == 3
    assert ask(*pairs, "--dtype", "bfloat16").code == 4
    refused = ask(*pairs, "--max-memory", "1kb")
    assert refused.code == 5
    assert "--steps" in refused.err
    assert ask("circuit", "--model", "minilm", "--pairs", str(SAMPLES)).code == 4


def test_the_forecast_of_memory_is_what_a_run_takes(folder: Path) -> None:
    model = attncli.load(folder, dtype="float64")
    peaks: list[int] = []

    def on_cost(expected, tokens: int) -> None:
        assert tokens == 13
        peaks.append(expected.peak)
        tracemalloc.start()

    try:
        attncli.circuit(model, SAMPLES, on_cost=on_cost)
        peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert peaks[0] == pytest.approx(peaks[1], rel=0.15)


MEMORY = """
import sys
import attncli
from attncli.models.estimate import peak_memory
from attncli.models.load import hold_weights
model = attncli.load(sys.argv[1])
if sys.argv[2] == "kept":
    model = hold_weights(model)
before = []
attncli.circuit(
    model,
    "indirect-object",
    count=2,
    on_cost=lambda cost, tokens: before.extend((cost.peak, peak_memory())),
)
print(before[0], peak_memory() - before[1])
"""


@pytest.mark.thorough
@pytest.mark.parametrize("weights", ["kept", "read anew"])
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_the_forecast_of_memory_holds_for_real_models(name: str, weights: str) -> None:
    if local_folder(name) is None:
        pytest.skip(f"{name} is not installed")
    line = [sys.executable, "-c", MEMORY, name, weights]
    forecast, taken = map(int, finish(line).stdout.split())
    assert forecast == pytest.approx(taken, rel=0.15)


def test_sizes_are_numbers_or_shares() -> None:
    assert edge_count("200", 1000) == 200
    assert edge_count("2%", 1000) == 20
    assert edge_count("0.15%", 1000) == 2


def test_a_pair_stands_in_one_group_alone(folder: Path) -> None:
    fitted = fit_pairs(attncli.load(folder), read_pairs(SAMPLES))
    doubled = replace(fitted, pairs=fitted.pairs * 2)
    split = split_pairs(doubled, None, 0)
    assert split.left_out == 3
    assert not set(split.choice) & set(split.held_out)


def test_scores_by_position_are_those_of_each_token(folder: Path, tmp_path: Path) -> None:
    model = attncli.load(folder, dtype="float64")
    pairs = fit_pairs(model, read_pairs(SAMPLES)).pairs
    graph = edge_graph(model.spec)
    gradients = CircuitModel(model, graph, "float64").pair_gradients(pairs[0], 2)
    scores = gradients.scores_by_position(graph)
    assert scores.sum(0) == pytest.approx(gradients.scores(graph), abs=1e-12)
    for reader, writer in np.argwhere(graph.mask)[::17]:
        for token in range(len(pairs[0].clean)):
            own = sum(gradients.slopes[reader, token] * gradients.change[writer, token])
            assert scores[token, reader, writer] == pytest.approx(own, abs=1e-12)
    first = SAMPLES.read_text().splitlines()[0]
    aligned = tmp_path / "pairs.jsonl"
    swapped = first.replace('"answer": ', '"x": ').replace('"versus": ', '"answer": ')
    aligned.write_text(f"{first}\n{swapped.replace('x', 'versus')}\n")
    line = ("circuit", "--model", str(folder), "--by-position", "--pairs")
    document = ask(*line, str(aligned), "--json").json
    assert len(document["tokens"]) == len(document["edges"][0]["positions"])
    for edge in (*document["edges"], *document["exact"]["edges"]):
        assert sum(edge["positions"]) == pytest.approx(edge["score"], abs=1e-5)
    assert "the token that the first clean text has there" in ask(*line, str(aligned)).out
    pair = pairs[0]
    shorter = replace(pair, clean=pair.clean[:-1], corrupt=pair.corrupt[:-1])
    elsewhere = replace(pair, corrupt=(*pair.clean[:-1], replace(pair.clean[-1], id=7)))
    _refuse_other_places([pair, pair])
    for other in (shorter, elsewhere):
        with pytest.raises(InputError) as error:
            _refuse_other_places([pair, other])
        assert "without --by-position" in error.value.hint


def test_areas_sizes_and_overlaps() -> None:
    assert areas((0.0, 0.5, 1.0), (0.0, 1.0, 1.0)) == pytest.approx((0.75, 0.25))
    assert smallest_size((0.1, 0.5, 1.0), (0.2, 0.85, 0.7)) == 1
    scores = np.asarray([[[3.0, 2.0, 1.0]], [[3.0, 1.0, 2.0]]])
    weights = np.asarray([[1.0, 0.0], [0.0, 1.0]])

    def choose(mean):
        return mean >= 2

    assert overlap_of_resamples(scores, choose, weights) == pytest.approx(1 / 3)
    assert overlap_of_resamples(scores[:1], choose, weights[:, :1]) is None


@pytest.mark.thorough
@pytest.mark.parametrize("name", DECODERS)
def test_every_family_keeps_all_and_has_true_gradients(name: str, tmp_path: Path) -> None:
    case = replace(CASES[name], saved_by="AutoModelForCausalLM")
    model = attncli.load(make(case, tmp_path / "model"), dtype="float64")
    texts = [[5, 9, 14, 3, 7, 11, 2], [5, 9, 21, 3, 17, 11, 2]]
    clean, corrupt = (
        tuple(Token(place, str(number), number, None, None) for place, number in enumerate(ids))
        for ids in texts
    )
    pair = TokenPair(Pair("", "", "", ""), clean, corrupt, 4, 8, 2)
    graph = edge_graph(model.spec)
    circuit = CircuitModel(model, graph, "float64")
    measured = circuit.measure_circuits(pair, np.stack([graph.mask, np.zeros_like(graph.mask)]))
    own = measured_differences(model, [(clean, 4, 8), (corrupt, 4, 8)])
    assert measured == pytest.approx([own[1], own[0], own[1]], abs=1e-9)
    assert abs(own[0] - own[1]) > 0.01  # else the shares say nothing
    shares = (measured[1:] - own[1]) / (own[0] - own[1])
    assert shares == pytest.approx([1, 0], abs=1e-6)
    # with clean and corrupt nearly the same, a score is the change by an exact cut
    near = NearModel(circuit)
    scores = near.pair_gradients(pair, 1).scores(graph)
    edges = np.argwhere(graph.mask)
    drawn = edges[np.random.default_rng(3).permutation(len(edges))[:12]]
    masks = np.repeat(graph.mask[None], 13, 0)
    for number, (reader, writer) in enumerate(drawn):
        masks[number, reader, writer] = False
    cut = near.measure_circuits(pair, masks)[1:]
    exact = cut[:-1] - cut[-1]
    largest = np.abs(exact).max()
    assert scores[drawn[:, 0], drawn[:, 1]] == pytest.approx(exact, abs=1e-3 * largest)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models_keep_all_and_nothing(name: str) -> None:
    folder = local_folder(name)
    if folder is None:
        pytest.skip(f"{name} is not installed")
    model = attncli.load(folder, dtype="float64")
    pair = fit_pairs(model, read_pairs("indirect-object", count=4)).pairs[0]
    graph = edge_graph(model.spec)
    circuit = CircuitModel(model, graph, "float64")
    masks = np.stack([graph.mask, np.zeros_like(graph.mask)])
    corrupt, whole, nothing = circuit.measure_circuits(pair, masks)
    texts = [(text, pair.answer, pair.versus) for text in (pair.clean, pair.corrupt)]
    own = measured_differences(model, texts)
    assert own[0] - own[1] > 1
    assert corrupt == pytest.approx(own[1], abs=1e-6)
    shares = (np.asarray([whole, nothing]) - own[1]) / (own[0] - own[1])
    assert shares == pytest.approx([1, 0], abs=1e-6)


class NearModel(CircuitModel):
    """A circuit whose corrupt embeddings lie close to the clean ones."""

    def __init__(self, circuit: CircuitModel) -> None:
        super().__init__(circuit.model, circuit.graph, "float64")

    def embed(self, pair, tokens):
        clean = super().embed(pair, pair.clean)
        return clean + 1e-5 * (super().embed(pair, tokens) - clean)


def test_a_larger_circuit_that_keeps_less_is_told(folder: Path) -> None:
    document = attncli.circuit(attncli.load(folder), file=SAMPLES, size="30", steps=1)

    def said(*kept: float) -> str:
        """The answer where the chosen circuit and larger ones keep these shares."""
        sizes = [
            replace(document.chosen, edges=30 + place, share=(30 + place) / 100, faithfulness=share)
            for place, share in enumerate(kept)
        ]
        return " ".join(
            circuit_sentences(replace(document, chosen=sizes[0], curve=sizes), View(lang="en"))
        )

    assert "More edges do not always keep more: 32 (32%) keep 55%." in said(1.28, 0.95, 0.55, 0.8)
    for steady in ((0.88, 0.87, 0.92, 1.0), (1.28, 1.01, 0.95, 1.0), (0.9,)):
        assert "always keep more" not in said(*steady)


def test_the_parts_of_a_gain_have_the_sign_of_the_gain() -> None:
    node = CircuitNode(
        id="L2H6", kind="head", layer=2, head=6, strength=1.0, reads=None, writes=None
    )
    said = loss_sentence(node, Difference(all=-3.4, writes=-3.7, moved=0.3), View())
    assert "gains 3.40: +3.70 by what it writes, -0.30 by moving" in said
    said = loss_sentence(node, Difference(all=3.4, writes=3.7, moved=-0.3), View())
    assert "loses 3.40: +3.70 by what it writes, -0.30 by moving" in said


def test_a_head_without_a_label_looks_like_its_strongest_rule(folder: Path) -> None:
    model = attncli.load(folder, dtype="float64")
    texts = [f"the cat sat on the mat, {word} the dog" for word in "abcdefg"]
    pairs: list[Any] = [SimpleNamespace(clean=model.encode(text)) for text in texts]
    assert _strongest_rules(model, pairs[:5]) == {}  # too few to fit to and to measure on
    strongest = _strongest_rules(model, pairs)
    document = attncli.rules(model, texts, shares=())
    assert set(strongest) == {(head.layer, head.head) for head in document.heads if head.has_rule}
    (place, rule), *_ = strongest.items()
    node = CircuitNode(
        id="L0H0", kind="head", layer=0, head=0, strength=1.0, reads=None, writes=None, rule=rule
    )
    part = next(head for head in document.heads if (head.layer, head.head) == place).parts[0]
    assert looks_like(node, View()).startswith(f"{part.weight:.2f} ")
    assert looks_like(replace(node, labels=["self"]), View()) == "self"
    assert looks_like(replace(node, rule=UNSET), View()) == ""
