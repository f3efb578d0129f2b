"""What `attn explain` tints and says of trained heads that rest on the first token."""

from __future__ import annotations

import re

import numpy as np
import resting_model

from attncli.draw.view import View
from attncli.features.explain.compute import explain, multihead_document, strongest_head
from attncli.features.explain.derivation_screen import weights_as_tints
from attncli.features.explain.layer_screens import _loss_sentences
from attncli.features.explain.screen import explain_blocks
from attncli.features.run.compute import run

WIDE = View(width=200)
TEXT = "cdbeac"


def test_words_are_tinted_without_the_keys_where_heads_rest() -> None:
    """The tint of a derivation follows the rule of all other tints, and says so."""
    for source, is_learned in (("checkpoint", True), ("file", False)):
        document = run(resting_model.model(source=source), TEXT)
        for several in (False, True):
            shares, tint = weights_as_tints(document, np.full(6, 0.4), several=several)
            assert shares == [0.0 if is_learned else 0.4, *[0.4] * 5]
            assert ("left out where heads rest" in tint) == is_learned


def test_the_average_of_heads_is_told_without_the_first_token() -> None:
    """What the average would look at, and which heads look elsewhere, leave out where heads rest;
    the numbers are those of the weights without it."""
    said = {}
    for source in ("checkpoint", "file"):
        model = resting_model.model(source=source)
        document = multihead_document(model, TEXT, model.encode(TEXT), layer=0, query=5)
        said[source] = " ".join(_loss_sentences(document, WIDE))
        rows = np.asarray([head.weights for head in document.heads])[:, 1:]
    best = 1 + int(rows.mean(0).argmax())
    name = f'"{TEXT[best]}" ({rows.mean(0).max():.2f})'
    assert (
        f"would look most at {name}, with the first token, where heads rest" in said["checkpoint"]
    )
    elsewhere = sum(1 + int(row.argmax()) != best for row in rows)
    assert f"Averaging loses {elsewhere} of the 3 heads" in said["checkpoint"]
    assert "where heads rest" not in said["file"]


def test_of_a_row_that_sees_few_keys_the_head_that_looks_is_taken() -> None:
    """Where neighbours alone are left, the head is one that looks at one of them, not one that
    rests on the first token."""
    model = resting_model.model()
    notes: list[str] = []
    layer, head = strongest_head(model, TEXT, model.encode(TEXT), 2, note=notes.append)
    assert (layer, head) == (0, resting_model.PREVIOUS)
    assert f'"{TEXT[1]}"' in str(notes[0])


def test_the_hint_at_other_heads_names_what_the_query_looks_at() -> None:
    """Of a head that rests, the command that finds other heads asks for the key with most weight
    beside the first token, as the sentence does; of weights that nobody trained for the first."""
    for source, key in (("checkpoint", "d"), ("file", "c")):
        model = resting_model.model(source=source)
        document = explain(model, "cdbeaf", query="#5", layer=0, head=resting_model.RESTS)
        said = "\n".join(block.plain for block in explain_blocks(document, WIDE))
        assert re.search(rf"attn find .*--from f --to {key}\b", said), said
