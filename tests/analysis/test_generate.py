"""Continuing a text: the tokens are transformers', the rows those of one dense run, the shares add up."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from asking import ask
from tiny_checkpoints import CASES, make

import attncli
from attncli.analysis.generate import Continuing, generated_document
from attncli.errors import LimitError, UnsupportedError
from attncli.render.encoding import json_bytes
from attncli.render.schema import SCHEMAS

IDS = [7, 3, 50, 11, 28]


@pytest.fixture(scope="module", params=["gpt2 with head", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES[request.param], tmp_path_factory.mktemp("decoder"))


def test_greedy_tokens_are_those_of_transformers(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    expected = reference.generate(
        torch.tensor([IDS]), max_new_tokens=7, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    model = attncli.load(folder, dtype="float64")
    document = generated_document(model, "", model.tokenizer.ids_to_tokens(IDS), Continuing(7))
    assert [token["id"] for token in document["generated"]] == expected[0, len(IDS) :].tolist()


def test_rows_are_those_of_one_dense_run_and_shares_add_up(folder: Path) -> None:
    model = attncli.load(folder, dtype="float64")
    prompt = model.tokenizer.ids_to_tokens(IDS)
    document = generated_document(model, "", prompt, Continuing(4, rows=True))
    jsonschema.validate(json.loads(json_bytes(document)), SCHEMAS["attn.generate/1"])
    ids = [*IDS, *(token["id"] for token in document["generated"])]
    dense = {trace.layer: trace.stages["weights"] for trace in model.trace(model.tokenizer.ids_to_tokens(ids))}
    for step in document["steps"]:
        for head in step["heads"]:
            row = dense[head["layer"]][head["head"], step["token"], : step["token"] + 1]
            assert np.allclose(head["weights"], row, atol=1e-12)
            assert head["context"] == pytest.approx(row[: len(IDS)].sum(), abs=1e-12)
            assert head["context"] + head["generated"] == pytest.approx(1)
            means = row[: len(IDS)].mean(), row[len(IDS) :].mean()
            assert head["lookback_per_key"] == pytest.approx(means[0] / sum(means))
        assert step["lookback"] == pytest.approx(np.mean([head["context"] for head in step["heads"]]))


def test_draws_depend_on_the_seed_alone(folder: Path) -> None:
    model = attncli.load(folder)
    prompt = model.tokenizer.ids_to_tokens(IDS)

    def drawn(seed: int) -> list[int]:
        document = generated_document(model, "", prompt, Continuing(9, temperature=3.0, seed=seed))
        return [token["id"] for token in document["generated"]]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(4)}) > 1


def test_what_cannot_be_continued_is_refused(folder: Path) -> None:
    model = attncli.load(folder)
    if model.spec.max_positions is not None:  # rotary positions have no end
        with pytest.raises(LimitError, match="positions"):
            generated_document(model, "", model.tokenizer.ids_to_tokens(IDS), Continuing(100))
    minilm = attncli.load("minilm")
    with pytest.raises(UnsupportedError, match="later"):
        generated_document(minilm, "it", minilm.encode("it"), Continuing(1))


def test_from_the_command_line(folder: Path) -> None:
    asked = ("run", "--model", str(folder), "--ids", " ".join(map(str, IDS)), "--generate", "3")
    screen = ask(*asked, width=60)
    assert screen.code == 0
    assert "lookback" in screen.out
    assert max(map(len, screen.out.splitlines())) <= 60
    document = ask(*asked, "--json", "--layer", "1").json
    jsonschema.validate(document, SCHEMAS["attn.generate/1"])
    assert {head["layer"] for head in document["steps"][0]["heads"]} == {1}
    assert len(ask(*asked, "--plain").out.splitlines()) == 1 + 3 * 3 * len(
        {head["head"] for head in document["steps"][0]["heads"]}
    )


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--generate", "0"), 2),
        (("--generate", "2", "--query", "it"), 2),
        (("--temperature", "1"), 2),
        (("--generate", "2", "--temperature", "-1"), 2),
        (("--generate", "2", "--sample-seed", "3"), 2),
        (("--generate", "2"), 4),
    ],
)
def test_bad_questions(more: tuple[str, ...], code: int) -> None:
    found = ask("run", "it was", "--model", "minilm", *more)
    assert (found.code, found.out) == (code, "")
    assert len(found.err.splitlines()) <= 4
