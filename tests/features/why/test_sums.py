"""Parts of a score add up to it in every family, split by token too; and what is known by
construction is found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from induction_model import model as induction_model
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import InputError
from attncli.features.effects.contributions import Contributions, Link, contributions, source_parts
from attncli.features.effects.logit_parts import Attributor, LogitTerm, attribute
from attncli.features.effects.sweep import SweepText
from attncli.features.why.compute import head_output_parts, why
from attncli.features.why.document import support
from attncli.models import residual_stream
from attncli.models.residual_stream import StreamPart

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13)
SOURCE = (33, 12, 3, 41, 29, 55, 10, 7)
EVERY = bool(os.environ.get("ATTN_EVERY_HEAD"))
ALL = [
    name
    for name in CASES
    if EVERY or name in {case.model_type: name for name, case in CASES.items()}.values()
]
FEW = (
    "bert",
    "deberta-v2 with projections",
    "longformer",
    "gpt2",
    "gemma2",
    "deepseek_v3",
    "llama4_text",
    "bart",
    "xlnet",
)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


def texts(folder: Path) -> Iterator[tuple[SweepText, str]]:
    """The checkpoint's sides, and the attentions of the last layer of each."""
    model = attncli.load(folder, backend="numpy", dtype="float64")
    models = [(model, "self")]
    if model.spec.decoder is not None:
        side = model.decoder(model.tokenizer.ids_to_tokens(SOURCE))
        models += [(side, "self"), (side, "cross")]
    elif any(block.cross is not None for block in model.spec.blocks):
        side = model.decoder_over(np.random.default_rng(2).standard_normal((9, 30)))
        models = [(side, "self"), (side, "cross")]
    for side, kind in models:
        yield SweepText(side, side.tokenizer.ids_to_tokens(IDS), side.backend), kind


def links(text: SweepText, kind: str, *, every: bool) -> Iterator[Contributions]:
    for layer, block in enumerate(text.model.spec.blocks):
        attention = block.attention if kind == "self" else block.cross
        if (
            attention is None
            or block.instead
            or not (every or layer == text.model.spec.attending()[-1])
        ):
            continue
        for head in range(attention.heads) if every else (attention.heads - 1,):
            for query, key in ((6, 5), (0, 0)):
                with suppress(InputError):  # a window, or the order of a decoder, hides the key
                    yield contributions(text, Link(layer, kind, head, query, key), by_token=True)


def off(found: Contributions) -> float:
    """The largest difference between any sum over parts and what the run has."""
    seen = found.row.visible
    scores = (found.row.scaled + found.row.added)[seen]
    pairs = found.pairs()
    return max(
        abs(found.query_sums.sum(0)[seen] - scores).max(),
        abs(found.key_sums.sum(0)[seen] - scores).max(),
        abs(pairs.sum(1) - found.centre(found.query_sums)).max(),
        abs(pairs.sum(0) - found.centre(found.key_sums)).max(),
        abs(pairs.sum() - found.total()),
        abs(found.row.weights_without(np.zeros(len(seen))) - found.row.weights).max(),
    )


@pytest.mark.parametrize("name", FEW)
def test_every_sum_holds(name: str, folder_of: Callable[[str], Path]) -> None:
    count = 0
    for text, kind in texts(folder_of(name)):
        for found in links(text, kind, every=False):
            assert off(found) < 1e-9
            _sources_add_up(text, found)
            _than_is_the_ratio(found)
            count += 1
    assert count


@pytest.mark.thorough
@pytest.mark.parametrize("name", ALL)
def test_every_sum_holds_in_every_family(name: str, folder_of: Callable[[str], Path]) -> None:
    for text, kind in texts(folder_of(name)):
        for found in links(text, kind, every=True):
            assert off(found) < 1e-9
            _than_is_the_ratio(found)
        for found in links(text, kind, every=False):
            _sources_add_up(text, found)


def _than_is_the_ratio(found: Contributions) -> None:
    """Over another key that is seen, parts add up to the logarithm of both weights' ratio, unless a
    cap follows.
    """
    row, key = found.row, found.link.key
    others = [int(other) for other in row.keys[row.visible] if other != key]
    for other in others[:1] if row.softcap is None else ():
        weight = float(row.weights[row.keys == other][0])
        ratio = np.log(found.weight / weight)
        assert found.total(other) == pytest.approx(ratio, abs=1e-9)
        for sums in (found.query_sums, found.key_sums):
            assert found.centre(sums, other).sum() == pytest.approx(ratio, abs=1e-9)
        assert found.pairs(other).sum() == pytest.approx(ratio, abs=1e-9)


def _sources_add_up(text: SweepText, found: Contributions) -> None:
    by_source = source_parts(text, found)
    sides = {"query": found.centre(found.query_sums), "key": found.centre(found.key_sums)}
    for index, part in enumerate(found.parts):
        for side, whole in sides.items():
            if part.kind == "head" and part.side in ("both", side):
                values = [
                    getattr(source, f"{side}_side") or 0.0 for source in by_source.get(part, [])
                ]
                assert sum(values) == pytest.approx(whole[index], abs=1e-9)


def test_what_a_token_brings_by_loops(folder_of: Callable[[str], Path]) -> None:
    """A head's part from one token, with its values, weights and output matrix multiplied out by
    hand (GPT-2).
    """
    ((text, _),) = texts(folder_of("gpt2"))
    link = Link(1, "self", 2, 6, 5)
    found = contributions(text, link, by_token=True)
    first, _ = list(text.model.trace(text.tokens, layers=[0, 1]))
    second = text.model.store.layer(text.backend, 1)
    own = text.model.store.layer(text.backend, 0)
    entering = np.asarray(first.after)
    spec = text.model.spec.blocks[1]
    dim, head, source = 10, 1, 3
    deviation = np.sqrt(entering.var(-1) + spec.norms["attn.in"].eps)
    written = (
        own("attn.o.weight")[:, head * dim : (head + 1) * dim] @ first.stages["v"][head, source]
    )
    rows = slice(link.head * dim, (link.head + 1) * dim)
    query = found.queries.sum(0)
    scores = np.zeros(7)
    for key in range(7):
        vector = first.stages["weights"][head, key, source] * written
        normed = (vector - vector.mean()) / deviation[key] * second("attn.in.weight")
        scores[key] = found.scale * float(query @ (second("attn.k.weight")[rows] @ normed))
    part = next(part for part in found.parts if part.stream == StreamPart("head", 0, "self", head))
    (split,) = [one for one in source_parts(text, found)[part] if one.part.stream.source == source]
    assert split.key_side == pytest.approx(
        scores[link.key] - scores @ found.row.weights[:7], abs=1e-12
    )


@pytest.mark.parametrize("name", ["gpt2 with head", "gemma2", "qwen3_next", "bart"])
def test_what_a_head_writes_adds_up_to_its_part_of_the_logit(
    name: str, folder_of: Callable[[str], Path]
) -> None:
    """In one run with the score, and of every attention: as the other run has it that follows all
    parts.
    """
    *_, (text, kind) = texts(folder_of(name))
    layer = text.model.spec.attending()[-1]
    chosen = LogitTerm("head", layer, kind, 1)
    attributor = Attributor(text, 6, chosen)
    written = head_output_parts(
        text, contributions(text, Link(layer, kind, 1, 6, 5), follower=attributor), attributor, 4
    )
    known = dict(attribute(text, 6, 4, None).parts)[chosen]
    assert written.logit == pytest.approx(known, abs=1e-9)
    assert sum(row.logit or 0.0 for row in written.sources) == pytest.approx(known, abs=1e-9)
    assert abs(known) > 1e-6


def test_negative_control(
    folder_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With deviations of another vector nothing adds up."""
    ((text, _),) = texts(folder_of("gpt2"))
    right = residual_stream.deviation
    monkeypatch.setattr(residual_stream, "deviation", lambda norm, x: right(norm, x) * 1.01)
    assert max(map(off, links(text, "self", every=False))) > 1e-4


def test_the_induction_head_is_explained_by_the_head_before_it() -> None:
    """By construction: layer 1 head 0 finds the place that layer 0 head 0 wrote the token before
    into.
    """
    document = why(induction_model(), "eabcda", "#5", "#2", heads=[0], layers=[1])
    parts = {(row.kind, row.head): row for row in document.parts}
    writes = parts["head", 0]
    assert writes.key_side == pytest.approx(document.total, abs=1e-9)
    assert parts["token", None].query_side == pytest.approx(document.total, abs=1e-9)
    assert all(abs(row.key_side) < 1e-9 for name, row in parts.items() if name != ("head", 0))


@pytest.mark.thorough
def test_the_induction_head_that_was_learned_is_explained_by_the_head_before_it(
    tmp_path: Path,
) -> None:
    """`attn learn induction`: what answers is what the previous-token head brought, and the screen
    says so.
    """
    folder = tmp_path / "induction"
    assert ask("learn", "induction", "--save", str(folder)).code == 0
    line = (
        "why",
        "f p e h a n c f p e h a n c",
        "--model",
        str(folder),
        "--from",
        "#12",
        "--to",
        "#6",
        "--layer",
        "1",
    )
    document = ask(*line, "--by", "token", "--json").json
    ranked = sorted(document["parts"], key=lambda row: -row["key_side"])
    first, second = ranked[:2]
    assert (first["kind"], first["layer"], first["source"]) == ("head", 0, 5)
    assert first["key_side"] > 1.9 * second["key_side"]
    assert first["weight_without"]["key"] < 0.05 < 0.9 < second["weight_without"]["key"]
    shown = " ".join(ask(*line, "--by", "token", "--brief").out.split())
    assert 'above all what layer 0 head 1 brought to "c" (6) from "n" (5)' in shown
    shown = " ".join(ask(*line, "--brief").out.split())
    assert 'above all what layer 0 head 1 brought to "c" (6):' in shown


def test_a_reason_is_half_of_what_speaks_for_a_link() -> None:
    """Not of a difference that cancels: 3 of 3 + 2 + 2 is no reason, though the sum is 1."""
    cancelling = support([3.0, 2.0, 2.0, -4.0, -2.0])
    assert (cancelling.total, cancelling.share, cancelling.half) == (7.0, 3 / 7, 2)
    assert support([4.0, 2.0, 2.0]).share == 0.5
    assert support([1.0] * 9).half == 5
    assert support([-1.0, -2.0]) == (0.0, 0.0, 0)
    assert support([]) == (0.0, 0.0, 0)
