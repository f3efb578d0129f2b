"""`attn compare`: every kind of side, --fail-above, bad input."""

import json
from pathlib import Path

import pytest
from asking import ask
from small_gpt2 import small_gpt2
from validity import validate

import attncli
from attncli.draw.safe import cells
from attncli.errors import UsageError

TEXT = "humpty dumpty sat on the wall"
QUESTIONS = [
    ("she ate red apples", "he ate apples"),
    (TEXT, "--mask", "none", "--mask", "window:2"),
    (TEXT, "--mask", "none", "--mask", "causal&window:2"),
    (TEXT, "--scale", "sqrt-dk", "--scale", "none"),
    (TEXT, "--position", "none", "--position", "rope"),
    (TEXT, "--seed", "0", "--seed", "1", "--num-heads", "4"),
    (TEXT, "--head", "0", "--head", "3", "--num-heads", "4"),
    (TEXT, "--backend", "numpy", "--backend", "torch"),
    ("今天 我 的 计划 是 买菜", "今天 她 的 计划 是 睡觉"),
]


@pytest.mark.many
@pytest.mark.parametrize("question", QUESTIONS)
def test_json_is_valid_and_screens_fit(question: tuple[str, ...]) -> None:
    document = ask("compare", *question, "--json").json
    validate(document, "attn.compare/1")
    assert document["differs"] or "torch" in question
    for width in (60, 80, 120):
        for options in ((), ("--ascii",), ("--show", "all")):
            answer = ask("compare", *question, *options, width=width)
            assert answer.code == 0, answer.err
            assert all(cells(line) <= width for line in answer.out.split("\n"))
            assert answer.out.isascii() or options != ("--ascii",) or not TEXT.isascii()


def test_scaled_against_unscaled() -> None:
    document = ask(
        "compare", TEXT, "--scale", "none", "--scale", "sqrt-dmodel", "--num-heads", "4", "--json"
    ).json
    assert [document[side]["attention"]["scale"] for side in "ab"] == [1.0, 0.125]
    assert document["differs"] == ["scale"]


def test_rounding_is_not_drawn_as_a_difference() -> None:
    """The same tokens in another order give the same weights up to float rounding, which is drawn
    where maps are asked for, and as what it is.
    """
    line = ("compare", "我爱你", "你爱我", "--tokenizer", "char")
    assert "maps " not in ask(*line).out
    answer = ask(*line, "--show", "all")
    assert "the same tokens in another order" in answer.out
    assert "only in" not in answer.out
    assert "-0.00" not in answer.out
    assert "+0.00" not in answer.out
    drawn = answer.out.split("maps ")[1].split("B − A\n")[2].split("\n\n")[0]
    assert not {*drawn} & {*"-=≡+"}
    broken = ask("compare", "我爱你", "你爱我", "--tokenizer", "char", "--position", "learned").out
    assert {*"=█"} <= {*broken}


def test_more_pairs_are_not_saved() -> None:
    more = ask("compare", "a b", "--mask", "causal", "--mask", "none").out
    assert "pairs: A 3, B 4: B computes 133.3% of A's, 33.3% more" in more
    assert "saved" not in more


def test_two_heads_are_one_pair() -> None:
    document = ask("compare", TEXT, "--head", "0", "--head", "3", "--num-heads", "4", "--json").json
    (head,) = document["heads"]
    assert (head["a"]["head"], head["b"]["head"]) == (0, 3)


def test_more_sides_are_each_compared_with_the_first() -> None:
    answer = ask(
        "compare", TEXT, "--mask", "none", "--mask", "window:2", "--mask", "lsh:4", "--ndjson"
    )
    documents = [json.loads(line) for line in answer.out.splitlines()]
    assert [document["b"]["name"] for document in documents] == ["mask window:2", "mask lsh:4"]
    assert {document["a"]["name"] for document in documents} == {"mask none"}
    assert (
        ask(
            "compare", TEXT, "--mask", "none", "--mask", "window:2", "--mask", "lsh:4", "--json"
        ).code
        == 2
    )


def test_sparse_masks_say_what_they_keep_and_save() -> None:
    screen = ask("compare", TEXT, "--mask", "none", "--mask", "window:2").out
    assert "pairs: A 36, B 11: B computes 30.6% of A's, 69.4% saved" in screen
    assert "kept" in screen
    assert "output error" in screen


def test_fail_above_is_for_scripts(tmp_path: Path) -> None:
    for seed in "01":
        (tmp_path / f"{seed}.json").write_text(ask("run", TEXT, "--seed", seed, "--json").out)
    files = [str(tmp_path / f"{seed}.json") for seed in "01"]
    assert ask("compare", *files, "--fail-above", "1").code == 0
    assert ask("compare", files[0], files[0], "--fail-above", "0").code == 0
    failed = ask("compare", *files, "--fail-above", "1e-6")
    assert failed.code == 1
    assert "what moved most" in failed.out
    assert "a weight differs by" in failed.err


def test_weight_files_compare(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{seed}.safetensors") for seed in "01"]
    for seed, path in zip("01", paths, strict=True):
        assert ask("weights", "init", path, "--seed", seed).code == 0
    document = ask("compare", TEXT, "--weights", paths[0], "--weights", paths[1], "--json").json
    assert document["differs"] == ["weights"]
    assert ask("compare", *paths, TEXT, "--json").json == document
    assert (
        ask("compare", TEXT, "--weights", paths[0], "--weights", paths[0], "--json").json[
            "summary"
        ]["max_difference"]
        == 0
    )


def test_the_screen_can_be_a_picture(tmp_path: Path) -> None:
    assert ask("compare", "a b", "b c", "--svg", str(tmp_path / "c.svg")).code == 0
    assert (tmp_path / "c.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ((TEXT,), 2), (("a", "b", "c"), 2), (("a", "b"), 3),
        ((TEXT, "--mask", "none", "--mask", "x"), 2), (("a b", "b c", "--fail-above", "-1"), 2),
        ((TEXT, "--mask", "none", "--mask", "causal", "--seed", "0", "--seed", "1", "--seed", "2"), 2),
        ((TEXT, "--head", "0", "--head", "9", "--num-heads", "4"), 3), ((TEXT, "--seed", "0", "--seed", "1",
        "--num-heads", "0"), 2),
    ],
)  # fmt: skip
def test_bad_questions_are_told_with_their_exit_code(question: tuple[str, ...], code: int) -> None:
    answer = ask("compare", *question)
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert answer.err.startswith("error: ")


def test_a_text_may_be_no_possible_file_name() -> None:
    for text in ("x" * 5000 + " y", "\x00 a y", "\ud800 y", "is y.json"):
        assert ask("compare", text, f"y {text}", "--json").code == 0


@pytest.mark.parametrize("missing", ["before.safetensors", "before.json", "folder/x.npz"])
def test_a_missing_file_is_no_text(missing: str) -> None:
    answer = ask("compare", missing, "after that", "--json")
    assert (answer.code, answer.out) == (3, "")
    assert missing in answer.err


def test_a_saved_run_is_compared_with_saved_runs(tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    saved.write_text(ask("run", TEXT, "--json").out)
    answer = ask("compare", str(saved), TEXT)
    assert (answer.code, answer.out) == (3, "")
    assert "saved runs only" in answer.err


@pytest.mark.parametrize(
    "held", ["", "[1]", '{"schema": "attn.heads/1"}', '{"schema": "attn.run/1"}', "{"]
)
def test_files_that_are_no_runs_are_refused(held: str, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(ask("run", "a b", "--json").out)
    bad.write_text(held)
    answer = ask("compare", str(good), str(bad))
    assert (answer.code, answer.out) == (3, ""), answer.err


def test_maps_have_the_words_beside_them_and_weights_one_scale_from_0_to_1() -> None:
    shown = ask(
        "compare", "the cat sat", "--mask", "none", "--mask", "causal", "--show", "maps"
    ).out.splitlines()
    assert [row.split()[0] for row in shown[2:5]] == ["the", "cat", "sat"]
    assert "0.00 ···░░░▒▒▒▓▓▓████ 1.00" in shown
    assert all(len(row) <= 80 for row in shown)


def test_no_column_of_two_texts_is_cut() -> None:
    screen = ask("compare", "she ate ripe red apples", "he ate ripe pears").out
    row = next(line for line in screen.splitlines() if "max diff" in line)
    assert row.split()[-5:] == ["error", "else", "A", "else", "B"]
    assert "…" not in row


def test_texts_that_share_a_beginning_are_the_same_there_alone() -> None:
    asked = ("--mask", "causal", "--brief")
    assert ask("compare", "a b c", "a b d e", *asked).out.startswith(
        "A and B begin with the same 2 tokens, and the model reads from left to right"
    )
    assert ask("compare", "a b c", "a b c", *asked).out.startswith(
        "Text and settings of A and B come to the same, and so does their attention"
    )


def test_a_brief_answer_names_its_sides() -> None:
    three = ("--mask", "none", "--mask", "window:1", "--mask", "causal", "--brief")
    said = ask("compare", "a b c", *three).out
    assert said.count("A: mask none; B: mask window:1.") == 1
    assert said.count("A: mask none; B: mask causal.") == 1
    assert "A：掩码 none；B：掩码 causal。" in ask("compare", "a b c", *three, "--lang", "zh").out
    assert "A: " not in ask("compare", "a b c", "a b d", "--brief").out


def test_heads_of_other_sizes_are_no_sides_and_the_hint_compares_one_head() -> None:
    refused = ask("compare", "a b c", "--num-heads", "1", "--num-heads", "8")
    assert refused.code == 2
    hint = "attn explain multihead --num-heads 1"
    assert f"try: {hint}\n" in refused.err
    said = " ".join(ask(*hint.split()[1:], "a b c", "--brief").out.split())
    assert "Multi-head attention with h = 1 is single-head attention" in said


TIRED, WIDE = (
    f"The animal didn't cross the street because it was too {word}" for word in ("tired", "wide")
)


@pytest.mark.thorough
def test_tired_and_wide_move_what_it_looks_at() -> None:
    """The pair of sentences that every text on attention shows: `it` leaves `animal` where the
    street is wide.
    """
    document = ask("compare", TIRED, WIDE, "--model", "minilm", "--json").json
    validate(document, "attn.compare/1")
    tokens, link = document["a"]["tokens"], document["moved"][0]
    assert [tokens[link[end]]["text"] for end in ("query", "key")] == ["it", "animal"]
    assert (link["layer"], link["head"], round(link["a"], 2), round(link["b"], 2)) == (
        3,
        1,
        0.64,
        0.27,
    )
    assert document["links_leave_out"] == ["special", "self", "neighbours", "first"]
    for moved in (*document["moved"], *(head["link"] for head in document["heads"])):
        query, key = moved["query"], moved["key"]
        assert not tokens[query]["special"]
        assert not tokens[key]["special"]
        assert abs(query - key) > 1
    every = ask("compare", TIRED, WIDE, "--model", "minilm", "--all-links", "--json").json
    assert "links_leave_out" not in every
    assert every["moved"][0]["difference"] == every["summary"]["max_difference"]
    assert every["summary"] == document["summary"]
    assert all(head["link"] == head["max_difference"] for head in every["heads"])


@pytest.mark.thorough
def test_a_comparison_begins_with_the_words_that_differ_and_shows_ten_heads() -> None:
    for width in (60, 80, 120):
        screen = ask("compare", TIRED, WIDE, "--model", "minilm", width=width).out
        lines = screen.splitlines()
        assert len(lines) < (75 if width > 60 else 90)  # where a table goes on below itself
        assert "▓tired▓" in " ".join(lines[:3])
        assert '"tired" in A is compared with "wide" in B' in " ".join(screen.split())
        assert "62 more heads" in screen
        # a short text of a small checkpoint is computed in float64, and rounded at the end
        assert "numpy float64" in screen
        assert "left out: special tokens, self, neighbours" in screen
        assert "[CLS]" not in screen.split("what moved most")[1].split("maps ")[0]
    few = ask("compare", TIRED, WIDE, "--model", "minilm", "--top", "2").out
    assert "70 more heads" in few
    assert len(ask("compare", TIRED, WIDE, "--model", "minilm", "--full").out.splitlines()) > 500


def test_a_query_measures_its_row_alone() -> None:
    document = ask(
        "compare", TEXT, "--mask", "none", "--mask", "causal", "--query", "sat", "--json"
    ).json
    validate(document, "attn.compare/1")
    (head,) = document["heads"]
    row = [abs(value) for value in head["difference"][2]]
    assert document["queries"] == [2]
    assert {link["query"] for link in document["moved"]} == {2}
    assert abs(head["max_difference"]["value"]) == max(row)
    assert head["mean_difference"] == pytest.approx(sum(row) / len(row))
    assert (head["pairs"], head["js_rows"]) == ({"a": 6, "b": 3}, 1)
    screen = ask(
        "compare", TEXT, "--mask", "none", "--mask", "causal", "--query", "sat", "--show", "all"
    ).out
    drawn = screen.split("maps ")[1].split("B − A\n")[2].split("\n\n")[0]
    assert [line.split()[0] for line in drawn.splitlines()] == ["sat"]


@pytest.mark.parametrize(
    ("texts", "query", "said"),
    [
        (("the cat sat", "the sat"), "cat", "'cat' (token 1) is only in A"),
        (("the sat", "the dog sat"), "dog", "'dog' is only in B"),
        (("the cat sat", "the dog sat"), "cow", "no token 'cow'"),
    ],
)
def test_a_query_of_one_side_alone_is_refused(
    texts: tuple[str, str], query: str, said: str
) -> None:
    answer = ask("compare", *texts, "--query", query)
    assert (answer.code, answer.out) == (3, "")
    assert said in answer.err
    assert ask("compare", *texts, "--query", query, "--lang", "zh").code == 3


def test_a_query_of_several_tokens_keeps_the_row_of_each() -> None:
    answer = ask(
        "compare",
        "the cat sat",
        "--position",
        "none",
        "--position",
        "rope",
        "--query",
        "#0-1",
        "--json",
    )
    assert answer.json["queries"] == [0, 1]
    assert "2 tokens, each with its own row" in answer.err
    assert (
        "using the first"
        in ask("compare", "a b a", "--seed", "0", "--seed", "1", "--query", "a").err
    )


def test_saved_runs_take_a_query(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(ask("run", TEXT, "--json").out)
    files = [str(tmp_path / f"{name}.json") for name in "ab"]
    assert ask("compare", *files, "--query", "sat", "--json").json["queries"] == [2]


@pytest.mark.parametrize("words", [3, 5, 9, 12])
def test_hashing_that_saves_nothing_has_a_reason_and_chunks_that_save(words: int) -> None:
    text = " ".join("abcdefghijkl"[:words])
    sides = ("compare", text, "--attention", "dense", "--attention")
    whole = ask(*sides, "reformer:4").out
    assert "the same number of pairs" in whole
    better = " ".join(whole.split()).partition("Try: --attention ")[2].split()[0]
    numbers = ask(*sides, better, "--json").json["heads"][0]["pairs"]
    assert numbers["b"] < numbers["a"]
    assert "the same number of pairs" not in ask(*sides, better).out
    assert "不超过两块" in "".join(ask(*sides, "reformer:4", "--lang", "zh").out.split())


def test_rows_that_see_nothing_are_named() -> None:
    sides = ("humpty dumpty sat on a wall", "--mask", "none", "--mask", "lsh:4")
    run = ask("run", sides[0], "--mask", "lsh:4", "--json").json
    assert [row["query"] for row in run["empty_rows"]] == [2]
    screen = " ".join(ask("compare", *sides, "--brief").out.split())
    assert 'In B "sat" sees no key: its weights and its weighted sum A·V are 0.' in screen
    swapped = (sides[0], "--mask", "lsh:4", "--mask", "none", "--brief")
    assert 'In A "sat" sees no key' in " ".join(ask("compare", *swapped).out.split())
    assert "sees no key" not in ask("compare", *sides, "--query", "on", "--brief").out
    heads = " ".join(ask("compare", *sides, "--num-heads", "4", "--brief").out.split())
    blind = ask("run", sides[0], "--mask", "lsh:4", "--num-heads", "4", "--json").json
    count = len({row["query"] for row in blind["empty_rows"]})
    assert "In some heads of B" in heads
    assert f"{count - 4} more see no key" in heads


def test_what_comes_next_is_told_of_both_texts(tmp_path: Path) -> None:
    folder = str(small_gpt2(tmp_path / "gpt2"))
    texts = ("the cat sat on", "the dog sat on")
    document = ask("compare", *texts, "--model", folder, "--json").json
    following = [
        ask("next", text, "--model", folder, "--top", "1", "--json").json["top"][0]
        for text in texts
    ]
    for side, first in zip("ab", following, strict=True):
        assert document[side]["next"][0]["token"]["id"] == first["token"]["id"]
        assert document[side]["next"][0]["probability"] == pytest.approx(first["probability"])
    said = " ".join(ask("compare", *texts, "--model", folder, "--brief").out.split())
    first = document["a"]["next"][0]["token"]["text"]
    assert f'The likeliest next token: "{first}"' in said.replace("␣", " ")
    # of an encoder, or of one text, there is nothing to tell
    assert "next token" not in ask("compare", "she ate", "he ate", "--brief").out
    same = ask("compare", texts[0], "--model", folder, "--mask", "causal", "--mask", "causal")
    assert "next token" not in same.out


def test_python_compares_two_texts_in_a_model(tmp_path: Path) -> None:
    model = attncli.load(str(small_gpt2(tmp_path / "gpt2")))
    texts = ("the cat sat on", "the dog sat on")
    runs = [attncli.run(model, text) for text in texts]
    expected = attncli.compare(*runs, query="on").to_pandas()
    pd_testing = pytest.importorskip("pandas").testing
    pd_testing.assert_frame_equal(
        attncli.compare(*texts, model=model, query="on").to_pandas(), expected
    )
    with pytest.raises(UsageError, match="no model that it runs in"):
        attncli.compare(*texts)
