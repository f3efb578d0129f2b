"""The screen of one model: whatever a Spec says of its layers can be read there."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from attncli.draw.view import View
from attncli.features.models.compute import model_document
from attncli.features.models.screen import model_screen
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.hub import ModelLocation
from attncli.mechanism import spec
from attncli.mechanism.mask import Causal

NORM = spec.Norm("rms", 1e-6)
BASE = spec.Block(spec.Attention(4, 2, 8, 8, 0.5), spec.Mlp(37, "silu"), {"attn.in": NORM})
EXPERTS = spec.Experts(6, 2, 41, "silu", renormalise=False)
TURNED: list[spec.Block | spec.Head] = [
    *(
        replace(BASE, attention=replace(BASE.attention, **{name: value}))
        for name, value in {
            "clip": 0.7, "latent": spec.Latent(11, 14, NORM, 6), "temperature": spec.Temperature(3, 0.8),
            "own_global": (0, 5), "shared": 2,
            "source_width": 36, "softcap": 2.0, "sinks": True, "qk_norm": spec.QkNorm(NORM, "own", after=True),
            "position": spec.FirstBlockAgain(2, 3, 27), "mask": Causal(),
        }.items()
    ),
    *(replace(BASE, **told) for told in ({"branch_scale": 0.7}, {"parallel": True}, {"residual": False})),
    replace(BASE, factors={"attn.o.weight": 0.7}),
    replace(BASE, normed=True),
    replace(BASE, mlp=replace(BASE.mlp, bounded=spec.Bounded(7.0, 1.7))),
    replace(BASE, mlp=EXPERTS),
    *(
        replace(BASE, mlp=replace(EXPERTS, **{name: value}))
        for name, value in {
            "renormalise": True, "shared": spec.Mlp(19, "gelu"), "bounded": spec.Bounded(7.0, 1.7),
            "routing": spec.Routing("sigmoid"), "gated": False, "narrow": 11,
        }.items()
    ),
    *(
        replace(BASE, mlp=replace(EXPERTS, routing=replace(spec.Routing(), **told)))
        for told in ({"factor": 2.5}, {"groups": 3, "groups_chosen": 2}, {"corrected": True}, {"of_input": True})
    ),
    replace(BASE, mlp=replace(EXPERTS, shared=spec.Mlp(19, "gelu"), shared_share=True)),
    *(replace(spec.Head(tied=True), **told) for told in ({"scale": 0.5}, {"softcap": 3.0}, {"projection": True})),
]  # fmt: skip


def test_the_screen_shows_every_turn_of_a_knob_once(tmp_path: Path) -> None:
    """What differs in the Spec differs on the screen, in English and in Chinese, and no two turns
    look alike.
    """
    shown: dict[str, list[str]] = {"en": [], "zh": []}
    for part in (BASE, *TURNED):
        block, head = (BASE, part) if isinstance(part, spec.Head) else (part, spec.Head(tied=True))
        found, checkpoint = (
            ModelLocation(tmp_path, "x", None, "folder"),
            Checkpoint(tmp_path, {}, {}),
        )
        document = model_document(
            found,
            checkpoint,
            spec.Spec(family="x", d_model=24, vocabulary=50, blocks=(block,), head=head),
            parameters=0,
        )
        for lang, told in shown.items():
            told.append(model_screen(document, View(lang=lang, width=300)).plain)
    for told in shown.values():
        assert len(set(told)) == len(TURNED) + 1
    left = {found for told in shown["zh"] for found in re.findall(r"[a-z]{2,} [a-z]{2,}", told)}
    assert not left - {"layer norm"}, left
