"""The schemas are valid, accept real documents in JSON, and refuse wrong ones."""

import copy
import json

import jsonschema
import pytest
from draw import documents
from validity import checker

from attncli.documents import KINDS, SCHEMAS
from attncli.draw.encoding import json_bytes

DOCUMENTS = {
    "attn.run/1": documents.run(["a", "b"], heads=2, layers=2, causal=True),
    "attn.heads/1": documents.heads(layers=2, count=3),
    "attn.error": {"error": {"code": 3, "message": "the text has no tokens", "hint": None}},
    "attn.tokens/1": {
        "schema": "attn.tokens/1", "version": "0", "text": "a", "tokenizer": "word", "warnings": [],
        "tokens": [{"index": 0, "text": "a", "id": None, "start": 0, "end": 1, "special": False, "bytes": [97]}],
    },
    "attn.weights/1": {
        "schema": "attn.weights/1", "version": "0", "file": "w.npz", "layout": "canonical", "metadata": {},
        "warnings": [],
        "digest": "ab" * 32, "embedding": None,
        "sizes": {
            "d_model": 4, "heads": 1, "kv_heads": 1, "d_k": 4, "d_v": 4, "bias": False, "output_projection": False,
            "layer_norm": False,
        },
        "tensors": [{
            "name": "q.weight", "dtype": "float32", "shape": [4, 4], "bytes": 64, "role": "q.weight",
            "min": -1, "mean": 0, "max": 1, "std": 0.5,
        }],
    },
    "attn.tensors/1": {
        **{key: value for key, value in documents.run(["a", "b"]).items() if key not in ("text", "tokens", "layers",
        "schema", "overview")},
        "schema": "attn.tensors/1", "file": "c.npz", "queries": 2, "keys": 2,
        "links": [{"index": [0], "head": 0, "query": 0, "key": 0, "weight": 1.0}],
        "batch": [{"index": [0], "heads": [{"head": 0, "scores": [[1, None]], "weights": [[1, 0]], "output": [[
        0.5]]}]}],
    },
}  # fmt: skip


def errors(name: str, document) -> list[str]:
    return [error.message for error in checker(name).iter_errors(json.loads(json_bytes(document)))]


@pytest.mark.many
@pytest.mark.parametrize("name", KINDS)
def test_every_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["title"] == name
    assert SCHEMAS[name]["description"]
    json.dumps(SCHEMAS[name])


def test_there_is_no_other() -> None:
    assert list(SCHEMAS) == list(KINDS)
    assert len(SCHEMAS) == len(KINDS)
    with pytest.raises(KeyError):
        SCHEMAS["attn.nothing/1"]
    assert SCHEMAS.get("attn.nothing/1") is None


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_are_valid(name: str) -> None:
    assert errors(name, DOCUMENTS[name]) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_member_too_many_or_too_few_is_refused(name: str) -> None:
    document = DOCUMENTS[name]
    assert errors(name, {**document, "surplus": 1})
    for member in document:
        if member not in ("metadata", "average", "layout", "empty_rows"):
            assert errors(name, {key: value for key, value in document.items() if key != member}), (
                member
            )


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("tokens", 0, "index"), -1),
        (("tokens", 0, "id"), "7"),
        (("model", "source"), "guessed"),
        (("attention", "mask"), 3),
        (("layers", 0, "heads", 0, "weights", 0, 0), "x"),
        (("links", 0, "weight"), 1.5),
        (("schema",), "attn.run/2"),
        (("shapes", 0, "shape"), [1.5]),
    ],
)
def test_wrong_values_are_refused(path: tuple, wrong) -> None:
    document = copy.deepcopy(DOCUMENTS["attn.run/1"])
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    assert errors("attn.run/1", document)


def test_stages_queries_and_hidden_are_allowed() -> None:
    document = copy.deepcopy(DOCUMENTS["attn.run/1"])
    document["queries"] = [1]
    document["layers"][0]["stages"] = {"concat": [[1.0, None]]}
    document["layers"][0]["hidden"] = [[0.5]]
    document["layers"][0]["heads"][0]["stages"] = {"q": [[1.0]]}
    assert errors("attn.run/1", document) == []
