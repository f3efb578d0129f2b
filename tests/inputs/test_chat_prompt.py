"""`model.chat`: the prompt of a chat is the one that `--chat` reads, and a wrong argument is an error."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from small_gpt2 import small_gpt2

import attncli

SAMPLES = Path(__file__).parents[2] / "sample_inputs"
MESSAGES = [
    {"role": "system", "content": "the cat"},
    {"role": "user", "content": "[[doc]] the dog sat [[/doc]] the cat"},
]
TEMPLATE = SAMPLES / "chatml.jinja"
SPEC = {"doc": "[[doc]]…[[/doc]]"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("chat") / "gpt2", layers=1, longest=160)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return attncli.load(folder)


def test_it_is_the_prompt_that_the_command_reads(model: Any, folder: Path, tmp_path: Path) -> None:
    prompt = model.chat(MESSAGES, regions=SPEC, template=TEMPLATE)
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps(MESSAGES))
    told = ask(
        *("answer", "--model", str(folder), "--chat", f"{chat}@{TEMPLATE}", "--target", "the"),
        *("--region", f"doc={SPEC['doc']}", "--json"),
    )
    assert told.code == 0, told.err
    assert told.json["text"] == prompt.text
    assert [token["id"] for token in told.json["tokens"]] == [token.id for token in prompt.tokens]
    assert [region.name for region in prompt.regions] == ["system", "user", "doc", "rest"]
    document = attncli.answer(
        model, prompt.text, prompt.regions, tokens=prompt.tokens, target="the", sources=["doc"]
    )
    changes = {document.regions[row.region].name: row.change for row in document.effects}
    assert changes == pytest.approx(
        {told.json["regions"][row["region"]]["name"]: row["change"] for row in told.json["effects"]}
    )


def test_variables_reach_the_template_and_notes_tell_what_does_not(model: Any) -> None:
    said: list[str] = []
    prompt = model.chat(
        MESSAGES[1:],
        template=TEMPLATE,
        variables={"add_generation_prompt": False, "unheard": 1},
        note=said.append,
    )
    assert prompt.text.rstrip().endswith("<|im_end|>")
    assert [str(note) for note in said] == [
        "the chat template does not read the variable 'unheard'"
    ]


@pytest.mark.parametrize(
    "given",
    [
        *(
            {"messages": wrong}
            for wrong in (None, 5, "a", b"x", [], [5], [{}], {}, [None], object())
        ),
        {"messages": [{"role": "user", "content": object()}]},
        {"messages": [{"role": "user", "content": math.nan}]},
        *({"regions": wrong} for wrong in (5, ["a"], {"a": 5}, {"a": "b"}, {5: "lines:1-1"})),
        *({"tools": wrong} for wrong in (5, "a", np.zeros((2, 2)), [object()])),
        *({"template": wrong} for wrong in (5, "", b"x")),
        *({"variables": wrong} for wrong in (5, ["a"], {"messages": 1}, {"a b": 1}, {"a": {1}})),
        {"note": 5},
    ],
    ids=itertools.count(),
)
def test_a_wrong_argument_is_an_error_of_ours(model: Any, given: dict[str, Any]) -> None:
    with pytest.raises(attncli.AttnError):
        model.chat(**{"messages": MESSAGES, "template": TEMPLATE, **given})


def test_the_sample_prompt_has_its_documents() -> None:
    messages, regions = (
        json.loads((SAMPLES / name).read_text("utf-8"))
        for name in ("documents.json", "documents.regions.json")
    )
    prompt = attncli.load(seed=0).chat(messages, regions=regions, template=TEMPLATE)
    assert [region.name for region in prompt.regions] == ["user", *regions, "rest"]
    places = {region.name: region.tokens for region in prompt.regions}
    words = [prompt.tokens[place].text for place in places["doc3"]]
    assert "bluefish" in words
