"""`attn cross`: two texts of different lengths; bad input."""

import pytest
from asking import ask
from validity import validate

from attncli.draw.safe import cells

PAIR = ("the black cat", "le chat noir dort")


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--num-heads", "4"),
        ("--mask", "causal", "--mask", "padding:1"),
        ("--position", "rope"),
        ("--mask", "padding:4"),
    ],
)
def test_json_is_valid_and_screens_fit(options: tuple[str, ...]) -> None:
    document = ask("cross", *PAIR, *options, "--json").json
    validate(document, "attn.cross/1")
    for width in (60, 80, 120):
        for look in ((), ("--ascii",), ("--full",)):
            answer = ask("cross", *PAIR, *options, *look, width=width)
            assert answer.code == 0, answer.err
            assert all(cells(line) <= width for line in answer.out.split("\n"))
            assert answer.out.isascii() or look != ("--ascii",)


def test_the_shapes_are_rectangular_and_name_both_texts() -> None:
    document = ask("cross", *PAIR, "--json").json
    shapes = {row["step"]: row for row in document["shapes"]}
    assert shapes["weights"]["shape"] == [1, 3, 4]
    assert (shapes["hidden"]["shape"], shapes["memory"]["shape"]) == ([3, 64], [4, 64])
    assert shapes["k"]["formula"] == "K = Y·W_K"
    assert [token["text"] for token in document["keys"]] == ["le", "chat", "noir", "dort"]


def test_every_query_word_has_its_best_key_word() -> None:
    document = ask("cross", *PAIR, "--json").json
    weights = document["layers"][0]["heads"][0]["weights"]
    assert [one["key"] for one in document["alignment"]] == [
        max(range(4), key=row.__getitem__) for row in weights
    ]


def test_one_text_may_come_from_a_pipe() -> None:
    piped = ask("cross", "-", PAIR[1], "--json", stdin=PAIR[0].encode()).json
    assert piped == ask("cross", *PAIR, "--json").json


def test_values_from_a_third_text() -> None:
    document = ask("cross", *PAIR, "--value-text", "a b c d", "--json").json
    assert document["value_text"] == "a b c d"
    assert ask("cross", *PAIR, "--value-text", "a b").code == 3


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (("a",), 2), (("a", ""), 3), (("-", "-"), 2), ((*PAIR, "--layer", "1"), 3), ((*PAIR, "--show", "no"), 2),
        ((*PAIR, "--model", "minilm"), 4), ((*PAIR, "--max-output", "1b"), 5),
    ],
)  # fmt: skip
def test_bad_questions_are_told_with_their_exit_code(question: tuple[str, ...], code: int) -> None:
    answer = ask("cross", *question, stdin=b"x")
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert answer.err.startswith("error: ")


def test_a_long_alignment_is_shortened_and_its_bars_are_of_one() -> None:
    text = " ".join(f"w{at}" for at in range(70))
    short = ask("cross", text, "a b c", "--show", "alignment", width=80).out
    assert "the first 64 of 70 queries shown; --full shows all" in short
    assert "63 w63" in short
    assert "64 w64" not in short
    assert "69 w69" in ask("cross", text, "a b c", "--show", "alignment", "--full", width=80).out
    sure = ask("cross", "a", "b", "--show", "alignment", width=80).out
    assert "1.00  " + "▇" * 24 in sure
    half = ask("cross", "the cat sat", "le chat", "--show", "alignment", width=80).out
    weights = [float(line.split("  ")[-2]) for line in half.splitlines() if "▇" in line]
    bars = [line.count("▇") for line in half.splitlines() if "▇" in line]
    assert bars == [pytest.approx(24 * weight, abs=1.2) for weight in weights]


@pytest.mark.parametrize(
    ("lang", "tie", "alone"),
    [
        ("en", "Several links share the largest weight; one of them:", "The strongest link:"),
        ("zh", "几条连接的权重并列最大", "最强的连接"),
    ],
)
def test_links_of_the_same_weight_are_said_to_be_several(lang: str, tie: str, alone: str) -> None:
    asked = ("cross", "sat", "--lang", lang)
    tied = " ".join(ask(*asked[:2], "cat cat", *asked[2:]).out.split())
    assert tie in tied
    found = ask("cross", "sat", "cat cat", "--json").json
    assert [link["weight"] for link in found["links"]] == pytest.approx([0.5, 0.5])
    assert found["alignment"][0]["key"] == 0
    told = " ".join(ask(*asked[:2], "cat wall", *asked[2:]).out.split())
    assert tie not in told
    assert alone in told


@pytest.mark.parametrize("parts", ["scores", "weights", "scores,weights"])
def test_heads_that_are_not_shown_are_told_once(parts: str) -> None:
    screen = ask("cross", "my dog", "the cat", "--num-heads", "2", "--show", parts).out
    assert screen.count("other head not shown") == 1


def test_one_head_alone_is_not_said_to_give_most() -> None:
    line = ("cross", "我 爱 你", "I love you", "--tokenizer", "whitespace", "--num-heads", "4")
    ends = ("--query", "爱", "--to", "love")
    every = ask(*line, *ends).out
    assert '"爱" gives "love" most in layer 0 head 0: 38% of its weight' in " ".join(every.split())
    one = " ".join(ask(*line, *ends, "--head", "1").out.split())
    assert 'In layer 0 head 1 "爱" gives "love" 21% of its weight, rank 2.' in one
    assert "most" not in one
