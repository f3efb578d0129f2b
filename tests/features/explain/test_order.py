"""Order: permuted tokens, equal outputs without positions, unequal ones with them; softmax by rows
and at once.
"""

import numpy as np
import oracles
import pytest
from asking import ask
from msgspec.structs import replace
from telling import telling

from attncli.arrays.backend import choose
from attncli.errors import InputError
from attncli.features.explain.softmax_screens import _encoding_names
from attncli.features.explain.softmax_topics import (
    matrix_softmax_document,
    order_document,
    order_of,
    reversed_order,
)
from attncli.inputs.token import Token
from attncli.inputs.tokenize import tokenizer
from attncli.mechanism.mask import Causal
from attncli.models.model import Model
from attncli.models.one_layer import Settings, seeded_model

order_document = telling(order_document)


def made(position: str = "none", causal: bool = False, dtype: str = "float64") -> Model:
    settings = Settings(d_model=22, heads=11, d_k=4, d_v=3, position=position)
    settings = replace(settings, mask=Causal()) if causal else settings
    return seeded_model(
        settings, 1, "seeded", tokenizer("char"), choose("numpy", device=None, dtype=dtype)
    )


def test_without_positions_outputs_move_with_their_tokens() -> None:
    model = made()
    tokens = model.encode("我爱你们呀")
    document = order_document([model], "我爱你们呀", tokens, [3, 0, 4, 1, 2])
    (row,) = document["rows"]
    assert row["equal"]
    assert row["max_difference"] < 1e-14
    assert [token["text"] for token in document["moved"]] == ["们", "我", "呀", "爱", "你"]


@pytest.mark.parametrize(
    ("position", "causal"),
    [("sinusoidal", False), ("learned", False), ("rope", False), ("alibi", False), ("none", True)],
)
def test_positions_and_masks_see_the_order(position: str, causal: bool) -> None:
    model = made(position, causal)
    (row,) = order_document([model], "我爱你们呀", model.encode("我爱你们呀"), [3, 0, 4, 1, 2])[
        "rows"
    ]
    assert not row["equal"]
    assert row["max_difference"] > 1e-3
    assert row["max_difference"] == max(row["per_token"])


def test_symmetric_alibi_cannot_see_a_reversal() -> None:
    model = made("alibi")
    tokens = model.encode("我爱你")
    document = order_document([model], "我爱你", tokens, reversed_order(tokens))
    reversal, rotation = document["rows"]
    assert reversal["equal"]
    assert document["reversed"]
    assert rotation["order"] == [1, 2, 0]
    assert not rotation["equal"]
    alone = order_document([model], "我爱你", tokens, [1, 2, 0])["rows"]
    assert [row["max_difference"] for row in alone] == [rotation["max_difference"]]


def test_per_token_belongs_to_the_token() -> None:
    model = made("sinusoidal")
    tokens = model.encode("abc")
    document = order_document([model], "abc", tokens, [1, 0, 2])
    outputs = [
        np.asarray(
            next(
                iter(model.trace([Token(at, text, None, 0, 1) for at, text in enumerate(order)]))
            ).stages["out"]
        )
        for order in ("abc", "bac")
    ]
    expected = [
        np.abs(outputs[0][at] - outputs[1][place]).max() for at, place in ((0, 1), (1, 0), (2, 2))
    ]
    assert document["rows"][0]["per_token"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (("dog",), "one token has no other order"),
        (("no no no",), "tokens that are all the same have no other order"),
        (("a b a",), "the other order is the same order"),
        (("a b", "a b"), "the other order is the same order"),
    ],
)
def test_tokens_that_read_the_same_are_no_other_order(texts: tuple[str, ...], what: str) -> None:
    answer = ask("explain", "order", *texts)
    assert (answer.code, answer.out) == (3, "")
    assert what in answer.err


def test_special_tokens_stay() -> None:
    tokens = [
        Token(0, "[CLS]", 1, None, None, special=True),
        *(Token(at, text, at, 0, 1) for at, text in enumerate("ab", 1)),
        Token(3, "[SEP]", 2, None, None, special=True),
    ]
    assert reversed_order(tokens) == [0, 2, 1, 3]


def test_another_text_must_hold_the_same_tokens() -> None:
    model = made()
    first = model.encode("abab")
    assert order_of(first, model.encode("bbaa")) == [1, 3, 0, 2]
    for other in ("abaa", "aba", "ababc"):
        with pytest.raises(InputError):
            order_of(first, model.encode(other))
    with pytest.raises(InputError):
        order_document([model], "abab", first, [0, 1, 2, 3])


@pytest.mark.parametrize("causal", [False, True])
def test_rows_and_whole_matrix_agree_with_loops(causal: bool) -> None:
    model = made(causal=causal)
    document = telling(matrix_softmax_document)(
        model, "abcde", model.encode("abcde"), layer=0, head=3
    )
    scores = document["scores"]
    seen = np.isfinite(scores)
    for row in range(5):
        assert document["rows"][row] == pytest.approx(
            oracles.softmax(scores[row].tolist(), seen[row].tolist())
        )
    whole = oracles.softmax(scores.reshape(-1).tolist(), seen.reshape(-1).tolist())
    assert document["whole"].reshape(-1) == pytest.approx(whole)
    assert document["row_sums"] == pytest.approx(document["whole"].sum(axis=1))


def test_outputs_stand_side_by_side_and_the_tint_is_that_without_positions() -> None:
    asked = ("explain", "order", "我爱你", "--tokenizer", "char")
    document = ask(*asked, "--json").json
    for row in document["rows"]:
        options = (
            "--position",
            row["position"],
            "--mask",
            row["mask"],
            "--tokenizer",
            "char",
            "--json",
        )
        texts = "我爱你", "".join("我爱你"[at] for at in row["order"])
        layers = [ask("run", text, *options).json["layers"][0] for text in texts]
        first, second = (layer["output"] for layer in layers)
        rows = [layer["heads"][0]["weights"] for layer in layers]
        moved = list(row["order"]).index(0)
        np.testing.assert_allclose(row["weights"], rows[0][0], atol=1e-6)
        for new, old in enumerate(row["order"]):
            assert row["moved_weights"][old] == pytest.approx(rows[1][moved][new], abs=1e-6)
        places = np.argsort(row["order"])
        np.testing.assert_allclose(row["outputs"], np.asarray(first)[:, :8], atol=1e-5)
        np.testing.assert_allclose(row["moved_outputs"], np.asarray(second)[places, :8], atol=1e-5)
    plain, sinusoidal = document["rows"][:2]
    shown = ask(*asked).out
    for row in (plain, sinusoidal):
        cells = [
            f"{value:.4f}" for side in ("outputs", "moved_outputs") for value in row[side][0][:3]
        ]
        assert " ".join(cells) in " ".join(shown.split())
    told = " ".join(shown.split())
    assert "█" not in shown
    assert "no tint: with position none and mask none no word's output changes" in told
    differing = [
        row for row in document["rows"] if not row["equal"] and row["order"] == document["order"]
    ]
    sizes = [row["max_difference"] for row in differing]
    assert f"differs by {min(sizes):.3g} to {max(sizes):.3g}." in told
    for row in differing:
        assert (row["position"] if row["position"] != "none" else row["mask"]) in told
    assert "position learned" in ask(*asked, "--position", "learned").out


@pytest.mark.parametrize("topic", ["order", "position"])
@pytest.mark.parametrize("heads", [1, 4, 6, 8])
def test_alibi_has_the_slope_of_each_head_by_its_formula(topic: str, heads: int) -> None:
    line = ("explain", topic, "a b c", "--position", "alibi", "--num-heads", str(heads))
    line += ("--d-model", str(12 * heads))
    document = ask(*line, "--json").json
    (row, *_) = [row for row in document.get("ways", document.get("rows")) if "slopes" in row]
    powers = {1: 1, 4: 4, 6: 4, 8: 8}[heads]
    slopes = [2.0 ** (-8 * (number + 1) / powers) for number in range(powers)]
    slopes += [2.0 ** (-8 * (2 * number + 1) / (2 * powers)) for number in range(heads - powers)]
    assert row["slopes"] == pytest.approx(slopes)
    screen = " ".join(ask(*line).out.split())
    assert ("2^(−8·(n + 1)/h)" in screen) == (heads != 6)
    assert ("0.0039 = 1/256" in screen) == (heads == 1)
    if heads == 4:
        assert "head 0 first: 0.25, 0.0625, 0.015625, 0.00390625." in screen


def test_the_slope_is_what_a_place_of_distance_takes_off_a_score() -> None:
    line = ("a b c", "--num-heads", "8", "--head", "1", "--json", "--show", "scores")
    scores = [
        ask("run", *line, "--position", position).json["layers"][0]["heads"][0]["scores"]
        for position in ("none", "alibi")
    ]
    distance = np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    np.testing.assert_allclose(np.subtract(*scores), distance / 4, atol=1e-5)


def test_alibi_alone_is_not_said_to_miss_every_order() -> None:
    screen = " ".join(ask("explain", "order", "a b c", "--position", "alibi").out.split())
    assert "The order is not seen" not in screen
    assert "only where an order changes the distances" in screen


def test_a_single_key_is_not_said_to_be_a_matter_of_d_k() -> None:
    shown = ask("explain", "scaling", "--d-k", "512", "--keys", "1", "--samples", "99").out
    assert "A single key gets a weight of 1 whatever its score is" in shown
    assert "so small a d_k" not in shown


def why(*options: str) -> str:
    """What the screen says, in one line."""
    answer = ask("explain", "order", "a b c d", "b a d c", *options, terminal=True)
    assert answer.code == 0
    return " ".join(answer.out.split())


@pytest.mark.parametrize(
    ("position", "reason", "chinese"),
    [
        ("rope", "rope: q and k are turned by their positions", "rope：q 和 k 按各自的位置旋转"),
        ("rope:500", "rope:500: q and k are turned", "rope:500：q 和 k 按各自的位置旋转"),
        (
            "alibi",
            "alibi: slope·|i − j| is taken off each score",
            "alibi：每个得分减去 斜率·|i − j|",
        ),
        ("sinusoidal", "sinusoidal: a vector for its place is added", "sinusoidal：每个词的向量"),
        ("learned", "learned: a vector for its place is added", "learned：每个词的向量"),
        ("none", "", ""),
    ],
)
def test_no_encoding_is_told_as_attention_without_one(
    position: str, reason: str, chinese: str
) -> None:
    """That distance does not matter is said of attention without positions and mask alone."""
    english = why("--position", position)
    assert "Without a position encoding and a mask, attention sees no order: a score" in english
    assert reason in english
    assert ("q and k are turned" in english) == position.startswith("rope")
    assert ("is taken off each score" in english) == (position == "alibi")
    assert ("for its place is added" in english) == (position in ("sinusoidal", "learned"))
    assert "The mask says" not in english
    translated = why("--position", position, "--lang", "zh").replace(" ", "")
    assert "没有位置编码、也没有掩码时，注意力看不出次序：得分q·k" in translated
    assert chinese.replace(" ", "") in translated


def test_a_mask_is_told_as_what_it_does() -> None:
    assert "The mask says by their places which keys a query sees." in why("--mask", "causal")
    every = why()
    assert "sinusoidal, learned: a vector for its place" in every
    assert "The mask says" in every


@pytest.mark.parametrize(
    ("position", "names"),
    [("rope (0, 2-4), none (1)", ["rope"]), ("none", []), ("alibi", ["alibi"])],
)
def test_layers_with_different_positions_name_each(position: str, names: list[str]) -> None:
    assert _encoding_names(position) == names
