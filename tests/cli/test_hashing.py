"""`--attention reformer`: hash attention proper, through `run` and `compare`."""

import numpy as np
import pytest
from asking import ask
from validity import validate

TEXT = "the animal did not cross the street because it was too tired"


def run(*options: str) -> dict:
    return ask("run", TEXT, "--stages", "all", "--dtype", "float64", "--json", *options).json


def test_what_runs_is_hash_attention() -> None:
    from attncli.arrays.backend import choose
    from attncli.mechanism.reformer import Reformer, hash_attention

    document = run("--attention", "reformer:4,2", "--num-heads", "2", "--seed", "3")
    validate(document, "attn.run/1")
    heads = document["layers"][0]["heads"]
    q, v = (np.array([head["stages"][name] for head in heads]) for name in "qv")
    found = hash_attention(
        choose("numpy", device=None, dtype="float64"), q, v, Reformer(4, 2, None, 3), dense=True
    )
    assert np.allclose([head["weights"] for head in heads], found.weights)
    assert np.allclose([head["output"] for head in heads], found.mixed)
    assert document["attention"]["hashing"] == "reformer:4,2"


def test_one_chunk_is_attention_over_shared_queries_and_keys() -> None:
    """With a chunk as long as the text every pair is compared: softmax of q·k with a token's own
    score lowered.
    """
    (head,) = run("--attention", "reformer:2,1,100")["layers"][0]["heads"]
    q = np.array(head["stages"]["q"])
    k = q / np.sqrt((q**2).mean(axis=1, keepdims=True) + 1e-6) / np.sqrt(q.shape[1])
    scores = q @ k.T - 1e5 * np.eye(len(q))
    for row, weights in zip(scores.tolist(), head["weights"], strict=True):
        assert weights == pytest.approx(_softmax(row), abs=1e-12)


def _softmax(row: list[float]) -> list[float]:
    raised = np.exp(np.array(row) - max(row))
    return list(raised / raised.sum())


def test_a_token_looks_at_itself_only_where_nothing_else_is_visible() -> None:
    (head,) = run("--attention", "reformer:4,1")["layers"][0]["heads"]
    weights = np.array(head["weights"])
    assert np.allclose(weights.sum(axis=1), 1)
    own = np.diag(weights)
    assert all(value < 1e-9 or value == pytest.approx(1) for value in own)


@pytest.mark.parametrize(
    "kind", ["reformer:4", "reformer:4,3", "reformer:2", "reformer:6", "reformer:4,2,4", "reformer:8,1,6"]
)  # fmt: skip
def test_a_run_says_so_where_every_pair_is_compared(kind: str) -> None:
    document = run("--attention", kind)
    (head,) = document["layers"][0]["heads"]
    compares_all = all(score is not None for row in head["scores"] for score in row)
    said = [warning for warning in document["warnings"] if "every pair is compared" in warning]
    assert len(said) == compares_all
    screen = " ".join(ask("run", TEXT, "--attention", kind).out.split())
    assert ("every pair is compared" in screen) == compares_all
    assert "taken off a token's score with itself" in screen


def test_compared_with_dense_attention() -> None:
    document = ask(
        "compare", TEXT, "--attention", "dense", "--attention", "reformer:4", "--json"
    ).json
    validate(document, "attn.compare/1")
    assert "hashing" in document["differs"]
    (head,) = document["heads"]
    assert head["pairs"]["b"] <= head["pairs"]["a"]
    assert 0 < head["kept"] <= 1
    assert (
        "saved"
        in ask(
            "compare", TEXT + " " + TEXT, "--attention", "dense", "--attention", "reformer:8"
        ).out
    )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--attention", "reformer:3"), 2), (("--attention", "reformer:4,0"), 2), (("--attention", "reformer:"), 2),
        (("--attention", "lsh"), 2),
        (("--attention", "reformer", "--softcap", "3"), 4), (("--attention", "reformer", "--position", "alibi"), 4),
        (("--attention", "reformer", "--scale", "none"), 4), (("--attention", "reformer", "--mask", "lsh:4"), 4),
        (("--attention", "reformer", "--model", "minilm"), 4),
    ],
)  # fmt: skip
def test_what_hash_attention_does_not_have_is_refused(options: tuple[str, ...], code: int) -> None:
    answer = ask("run", TEXT, *options)
    assert (answer.code, answer.out) == (code, ""), answer.err
    for command in (("explain", TEXT), ("cross", TEXT, "a b")):
        assert ask(*command, "--attention", "reformer").code == 4


def test_dense_is_the_default() -> None:
    assert run("--attention", "dense") == run()
