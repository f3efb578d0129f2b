"""What `attn.model/1` says of a model's parts is what its Spec says."""

from __future__ import annotations

import json

import msgspec
import pytest

from attncli.documents import Part
from attncli.draw.encoding import json_bytes
from attncli.features.models import compute as told
from attncli.features.models.compute import AttentionRow, LayerGroup, ModelSide, side_of
from attncli.mechanism import spec

NORM = spec.Norm("rms", 1e-6, unit_offset=True)
PAIRS = {
    told.NormPart: NORM,
    told.QkNormPart: spec.QkNorm(NORM, "own", after=True),
    told.LatentPart: spec.Latent(11, 14, NORM, 6),
    told.TemperaturePart: spec.Temperature(3, 0.8),
    told.LinearPart: spec.Linear(2.0),
    told.DynamicPart: spec.Dynamic(2.0, 16),
    told.Llama3Part: spec.Llama3(8.0, 1.0, 4.0, 16),
    told.YarnPart: spec.Yarn(4.0, 16),
    told.LongRopePart: spec.LongRope((1.0, 2.0), (3.0, 4.0), 16, 1.5),
    told.RopePart: spec.Rope(8, 5e5, "adjacent", spec.Yarn(4.0, 16), 2),
    told.AlibiPart: spec.Alibi(symmetric=True),
    told.BucketsPart: spec.RelativeBuckets(32, 128, bidirectional=False),
    told.DisentangledPart: spec.Disentangled(
        8, None, asks=True, answers=False, own=True, norm=NORM
    ),
    told.RelativeSinesPart: spec.RelativeSines(7),
    told.FirstBlockAgainPart: spec.FirstBlockAgain(3, 64, 704),
    told.BoundedPart: spec.Bounded(7.0, 1.702),
    told.MlpPart: spec.Mlp(37, "silu", gated=True, bounded=spec.Bounded(7.0, 1.702)),
    told.RoutingPart: spec.Routing("sigmoid", 2.5, 4, 2, 2, corrected=True),
    told.ExpertsPart: spec.Experts(5, 2, 41, "silu", renormalise=True, shared=spec.Mlp(3, "gelu")),
    told.EmbeddingPart: spec.Embedding(14, "sum", 2.0, "learned", 2, 1, 2, NORM),
    told.OutputHeadPart: spec.Head(tied=True, scale=0.5, softcap=30.0),
}


@pytest.mark.parametrize("part", PAIRS, ids=lambda part: part.__name__)
def test_a_part_has_the_fields_of_the_spec(part: type[Part]) -> None:
    assert part.__struct_fields__ == PAIRS[part].__struct_fields__


def models() -> list[spec.Spec]:
    """Models that have every kind of part somewhere."""
    found = []
    positions = [
        PAIRS[part]
        for part in (
            told.AlibiPart,
            told.BucketsPart,
            told.DisentangledPart,
            told.RelativeSinesPart,
            told.FirstBlockAgainPart,
        )
    ]
    scalings = (
        told.LinearPart,
        told.DynamicPart,
        told.Llama3Part,
        told.YarnPart,
        told.LongRopePart,
    )
    positions += [None, *(spec.Rope(8, 97.0, "half", PAIRS[scaling]) for scaling in scalings)]
    for number, position in enumerate(positions):
        mlp = (None, PAIRS[told.MlpPart], PAIRS[told.ExpertsPart])[number % 3]
        attention = spec.Attention(
            3, 3, 8, 8, 0.5, position=position, qk_norm=PAIRS[told.QkNormPart]
        )
        block = spec.Block(attention, mlp, {"attn.in": NORM, "mlp.sum": NORM})
        found.append(
            spec.Spec(
                family="x",
                d_model=24,
                vocabulary=50,
                blocks=(block, block),
                embedding=PAIRS[told.EmbeddingPart],
                final_norm=NORM,
                head=PAIRS[told.OutputHeadPart],
            )
        )
    return found


@pytest.mark.parametrize("model", models())
def test_every_kind_is_written_read_again_and_named(model: spec.Spec) -> None:
    side = side_of(model)
    written = json.loads(json_bytes(side))
    attention = written["groups"][0]["attention"]
    position = model.blocks[0].attention.position
    if position is None:
        assert attention["position"] is None
    else:
        assert next(iter(attention["position"].items())) == (
            "kind",
            type(position).__name__.lower(),
        )
    assert attention["qk_norm"]["kind"] == "qknorm"
    assert written["embedding"]["norm"] == {
        "kind": "rms",
        "eps": 1e-6,
        "unit_offset": True,
        "affine": True,
    }
    again = msgspec.convert(written, ModelSide)
    assert json_bytes(again) == json_bytes(side)


RENAMED = {"head_dim": "d_k", "v_dim": "d_v", "own_global": "global_tokens"}
ELSEWHERE = {"hashing"}
"""Of seeded weights, never of a checkpoint."""


def test_every_field_of_an_attention_and_of_a_layer_is_told() -> None:
    fields = {RENAMED.get(name, name) for name in spec.Attention.__struct_fields__} - ELSEWHERE
    assert fields <= set(AttentionRow.__struct_fields__)
    assert set(spec.Block.__struct_fields__) <= set(LayerGroup.__struct_fields__)
