"""What the answers say holds in the numbers: each sentence appears where its rule is met, and only
there.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from draw import documents
from draw.shown import loose, shaped

from attncli.draw.view import View
from attncli.features.effects import screen
from attncli.features.find.link_screen import link_sentences
from attncli.features.heads.screen import heads_answer
from attncli.features.run.run_answer import run_answer

WIDE = View(width=200)


def asked(
    rows: list[list[float]], words: list[str], query: int, *, heads: int = 1
) -> dict[str, Any]:
    """A run about one query: `rows` are its weights, a head each."""
    document = documents.run(words, heads=heads)
    layer = {
        "layer": 0,
        "heads": [
            {"head": at, "weights": [row], "scores": [[0.0] * len(row)]}
            for at, row in enumerate(rows)
        ],
    }
    links = [
        {"layer": 0, "head": at, "query": query, "key": key, "weight": weight}
        for at, row in enumerate(rows)
        for key, weight in enumerate(row)
    ]
    best = [
        max((link for link in links if link["head"] == at), key=lambda link: link["weight"])
        for at in range(len(rows))
    ]
    overview = [{"layer": 0, "head": at, "link": link} for at, link in enumerate(best)]
    average = [sum(row[key] for row in rows) / len(rows) for key in range(len(words))]
    return {
        **document,
        "queries": [query],
        "layers": [layer],
        "links": links,
        "overview": overview,
        "average": average,
    }


def test_one_head_is_told_in_shares() -> None:
    said = run_answer(loose(asked([[0.1, 0.8, 0.1]], ["a", "b", "c"], 2)), WIDE).plain
    assert '"c" looks most at "b": 80% of its weight.' in said
    assert "then" not in said
    assert "█b█ [░c░]" in said


def test_a_second_key_is_named_from_half_of_the_first() -> None:
    near = run_answer(loose(asked([[0.3, 0.6, 0.1]], ["a", "b", "c"], 2)), WIDE).plain
    assert '"c" looks most at "b" (60% of its weight), then at "a" (30%).' in near
    far = run_answer(loose(asked([[0.29, 0.6, 0.11]], ["a", "b", "c"], 2)), WIDE).plain
    assert "then at" not in far


def test_several_heads_are_told_with_their_places_and_where_they_rest() -> None:
    document = asked(
        [[0.1, 0.7, 0.2, 0], [0.65, 0.05, 0.3, 0], [0.1, 0.2, 0.7, 0]],
        ["a", "b", "c", "d"],
        3,
        heads=3,
    )
    said = run_answer(loose(document), WIDE).plain
    assert '"d" looks most at "b" (0.70, layer 0 head 0) and at "c" (0.70, layer 0 head 2).' in said
    assert 'Over all heads "c" has the largest share of its weight (0.40).' in said


def test_an_even_row_is_called_even() -> None:
    said = run_answer(loose(asked([[0.26, 0.24, 0.26, 0.24]], ["a", "b", "c", "d"], 3)), WIDE).plain
    assert (
        '"d" spreads its weight almost evenly: no word gets more than 0.26, and an even share is 0.25.'
        in said
    )
    assert "looks most" not in said


@pytest.mark.parametrize(
    ("row", "is_even"),
    [
        ([0.74, 0.26], False),
        ([0.55, 0.45], True),
        ([0.45, 0.3, 0.25], False),
        ([0.4, 0.3, 0.3], True),
    ],
)
def test_a_row_of_few_keys_is_even_only_near_its_even_share(
    row: list[float], is_even: bool
) -> None:
    names = ["a", "b", "c", "d"][: len(row)]
    said = run_answer(loose(asked([row], names, 1)), WIDE).plain
    assert ("almost evenly" in said) == is_even


def test_a_query_that_sees_one_key_says_so(tmp_path: Path) -> None:
    """No share of one key is even, and none is chosen: the mask leaves nothing else."""
    mask = tmp_path / "mask.csv"
    for rows, told in (
        (
            "1,0,0\n1,1,0\n0,1,0\n",
            '"c" sees "b" alone: 100% of its weight is there, whatever it asks.',
        ),
        ("1,0,0\n1,1,0\n0,0,1\n", '"c" sees nothing but itself: 100% of its weight is there'),
    ):
        mask.write_text(rows)
        screen = " ".join(ask("run", "a b c", "--mask", str(mask), "--query", "c").out.split())
        assert told in screen
        assert "evenly" not in screen


def test_a_query_that_sees_nothing_says_so() -> None:
    document = asked([[0.0, 0.0]], ["a", "b"], 1)
    blind = {
        **document,
        "links": [],
        "overview": [],
        "empty_rows": [{"layer": 0, "head": 0, "query": 1}],
    }
    assert '"b" can see no word' in run_answer(loose(blind), WIDE).plain


def test_without_a_query_the_strongest_link_is_told_and_words_above_an_even_share_are_tinted() -> (
    None
):
    document = documents.run(["a", "b"])
    document["layers"][0]["heads"][0]["weights"] = [[0.9, 0.1], [0.8, 0.2]]
    document["links"] = [{"layer": 0, "head": 0, "query": 0, "key": 0, "weight": 0.9}]
    said = run_answer(loose(document), WIDE).plain
    assert 'The strongest link: "a" looks at "a" with 90% of its weight.' in said
    assert said.startswith("[█a█] b\n")


def test_weights_that_are_not_learned_are_said_once_and_learned_ones_not() -> None:
    document = documents.run()
    assert run_answer(loose(document), WIDE).plain.count("not learned") == 1
    assert (
        "not learned"
        not in run_answer(
            loose({**document, "model": {**document["model"], "source": "checkpoint"}}), WIDE
        ).plain
    )


def test_heads_that_keep_their_weight_on_one_word_are_counted() -> None:
    document = documents.heads(["a", "b", "c", "d", "e"], count=3)
    first = [[0.8, 0.1, 0.1, 0, 0]] * 5
    before = [[0.6, 0.4, 0, 0, 0]] * 5
    spread = [[0.5, 0.3, 0.2, 0, 0]] * 5
    for head, weights in zip(document["heads"], (first, before, spread), strict=True):
        head["weights"] = weights
    said = heads_answer(loose(document), WIDE).plain
    assert '2 of 3 heads keep more than half of their weight on "a".' in said
    assert "previous word" not in said
    document["heads"][1]["weights"] = [
        [0.1 + 0.51 * (key == query - 1) for key in range(5)] for query in range(5)
    ]
    said = heads_answer(loose(document), WIDE).plain
    assert "Layer 0 head 1 looks at the previous word (0.61)." in said


def find(*weights: tuple[float, int | None]) -> dict[str, Any]:
    made = documents.run(["a", "b", "c"])
    reverse = {"weight": 0.0, "rank": None, "visible": 2, "top_key": None}
    rows = [
        {"layer": 0, "head": at, "weight": weight, "rank": rank, "visible": 3, "reverse": reverse}
        for at, (weight, rank) in enumerate(weights)
    ]
    return {**made, "from": 2, "to": 1, "heads": rows}


def test_find_names_the_strongest_head_and_counts_first_places() -> None:
    said = " ".join(link_sentences(loose(find((0.2, 2), (0.6, 1), (0.55, 1))), WIDE))
    assert '"c" gives "b" most in layer 0 head 1: 60% of its weight.' in said
    assert 'In 2 of 3 heads "b" is what "c" looks at most.' in said
    assert '"c" gives "b" 60% of its weight.' in " ".join(
        link_sentences(loose(find((0.6, 1))), WIDE)
    )
    assert "cannot see" in " ".join(link_sentences(loose(find((0.0, None), (0.0, None))), WIDE))


def test_answers_in_chinese() -> None:
    said = run_answer(
        loose(asked([[0.1, 0.8, 0.1]], ["我", "爱", "你"], 2)), View(width=200, lang="zh")
    ).plain
    assert "“你”最关注“爱”：占其权重的 80%。" in said
    assert "未经训练" in said


@pytest.mark.parametrize("mask", ["window:2", "none"])
def test_a_comparison_names_the_link_that_changed_most_and_what_it_does_and_costs(
    mask: str,
) -> None:
    asked = ("compare", SAID, "--mask", "causal", "--mask", mask, "--num-heads", "2")
    document, said = ask(*asked, "--json").json, ask(*asked, "--brief", width=200).out
    link, heads = document["moved"][0], document["heads"]
    ends = (document["a"]["tokens"][link[end]]["text"] for end in ("query", "key"))
    where = "from {a:.2f} in A to {b:.2f} in B (layer {layer} head {head}).".format(**link)
    assert 'The link that changed most: "{}" → "{}", '.format(*ends) + where in said
    error = sum(head["output_error"] for head in heads) / 2
    assert (
        f"Output error: the difference of the two outputs is {error:.2f} times as large as A's, on"
        " average over 2 heads."
    ) in said
    a, b = (sum(head["pairs"][side] for head in heads) for side in "ab")
    assert f"Cost: A computes {a} pairs, B {b} ({b / a:.1%} of A's)." in said
    kept = sum(head["kept"] for head in heads) / 2
    assert (f"Of the weight in A, {kept:.0%} is on keys that B sees too." in said) == (
        mask != "none"
    )


def test_a_comparison_of_scales_says_that_the_cost_is_the_same() -> None:
    said = ask(
        "compare", "a b c", "--scale", "sqrt-dk", "--scale", "none", "--brief", width=200
    ).out
    assert "Output error: " in said
    assert "Cost: A and B compute the same number of pairs, 9." in said
    assert "Cost" not in ask("compare", "a b c", "a b d", "--brief", width=200).out


def test_a_mask_says_what_it_shows_and_a_cost_what_is_least() -> None:
    from attncli.features.cost.screen import cost_answer
    from attncli.features.mask.screen import mask_answer

    part = {"spec": "causal", "pairs": 3, "share": 0.75, "empty_rows": [1]}
    document = {"n": 2, "gallery": False, "masks": [part], "combined": None, "warnings": []}
    said = mask_answer(loose(document), WIDE).plain
    assert "causal shows 3 of 4 pairs, 75.0%." in said
    assert "1 query sees nothing" in said
    assert mask_answer(loose({**document, "gallery": True}), WIDE).plain == ""
    full = {"name": "full", "spec": None, "pairs": 4, "multiply_adds": 100}
    less = {"name": "window", "spec": "window:1", "pairs": 2, "multiply_adds": 25}
    cost = cost_answer(loose({"n": 2, "variants": [full, less], "measured": []}), WIDE).plain
    assert "Over n = 2 tokens full attention compares n² = 4 pairs in every head." in cost
    assert "window:1 takes 25.0% of its multiply-adds." in cost
    assert (
        "takes"
        not in cost_answer(
            loose({"n": 2, "variants": [full, {**less, "multiply_adds": 101}], "measured": []}),
            WIDE,
        ).plain
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("softmax", "2", "1", "0"), "The largest score, 2, gets 67% of the weight, 2.72 times what the next "),
        (("softmax", "3", "3"), "All scores are equal, and so are their weights: 0.5000 each."),
        (("softmax", "900", "1"), "The largest score, 900, gets >99.9% of the weight."),
        (("softmax", "5"), "A score alone gets all of the weight."),
        (("scaling", "--d-k", "1"), "For so small a d_k the difference is slight: scaling matters "),
        (("order", "a b c", "--position", "sinusoidal"), "The order is seen: the output of "),
        (("order", "a b c", "--position", "none"), "Without a position encoding or a mask, permuting "),
        (("metric", "self"), "self is 0.5625 for this head, and 0.5208 for one whose rows are spread evenly "),
        (("metric", "punctuation"), "A high value means: attention rests on punctuation."),
    ],
)  # fmt: skip
def test_a_topic_ends_with_its_answer_and_brief_is_that_alone(
    asked: tuple[str, ...], told: str
) -> None:
    whole, brief = (ask("explain", *asked, *more, width=200).out for more in ((), ("--brief",)))
    assert any(line.startswith(told) for line in brief.splitlines())
    assert whole.endswith("\n" + brief)
    assert brief.count("\n") <= 4 < whole.count("\n")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("a cat sat",), "Each of the 3 words is one token.\n"),
        (("cat",), "The word is one token.\n"),
        (("a, b", "--tokenizer", "whitespace"), "2 tokens.\n"),
        (
            ("a\u00e9 b", "--tokenizer", "byte"),
            '1 of 2 words is cut into pieces: "a\u00e9" makes 3 tokens.\n',
        ),
        (
            ("ab cde", "--tokenizer", "char"),
            '2 of 2 words are cut into pieces, "cde" into the most: 3 tokens.\n',
        ),
    ],
)
def test_tokens_say_which_words_are_cut(asked: tuple[str, ...], told: str) -> None:
    assert ask("tokens", *asked, "--brief").out == told
    assert ask("tokens", *asked).out.endswith("\n\n" + told)


def marks(row: str) -> dict[str, str]:
    """The mark before each word of a shaded sentence without colour."""
    return {
        word.strip("[]░▒▓█"): mark
        for word in row.split()
        if (mark := word.strip("[]")[:1]) in "░▒▓█"
    }


def test_the_keys_of_cross_attention_are_tinted_by_the_strongest_links_row() -> None:
    asked = ("cross", "the cat sat", "le chat est assis")
    document = ask(*asked, "--json").json
    link, head = document["links"][0], document["layers"][0]["heads"][0]
    asking, keys, *_ = ask(*asked, "--brief").out.splitlines()
    assert asking.split()[link["query"]].startswith("[")
    row = dict(zip(("le", "chat", "est", "assis"), head["weights"][link["query"]], strict=True))
    assert marks(keys) == {
        word: "░▒▓█"[min(int(share * 4), 3)] for word, share in row.items() if share >= 0.05
    }


def test_compared_words_are_tinted_by_how_far_their_weights_moved() -> None:
    asked = ("compare", "the cat sat", "the dog sat")
    document = ask(*asked, "--json").json
    head = document["heads"][0]
    query = head["max_difference"]["query"]
    places = [a for a, _ in document["aligned"]]
    moved = dict(zip(places, head["difference"][places.index(query)], strict=True))
    shaded = ask(*asked, "--brief").out.splitlines()[0]
    words = ("the", "cat", "sat")
    assert f"[{words[query]}]" in re.sub("[░▒▓█]", "", shaded)
    assert set(marks(shaded)) == {words[at] for at, value in moved.items() if abs(value) >= 0.05}


SAID = "the cat sat on it"


def tinted(shares: Sequence[float], chosen: int | None = None) -> str:
    """The words of `SAID` as marks show their shares."""
    sizes = [f"{mark}{word}{mark}" for word, share in zip(SAID.split(), shares, strict=True)
             for mark in ("░▒▓█"[min(int(share * 4), 3)] if share >= 0.05 else "",)]  # fmt: skip
    return " ".join(f"[{word}]" if at == chosen else word for at, word in enumerate(sizes))


def shared(document: Any, topic: str) -> tuple[list[float], int | None]:
    """What a topic's words are tinted by, from its document alone; and the word in brackets."""
    match topic:
        case "matrix-softmax":
            return [value / max(document["row_sums"]) for value in document["row_sums"]], None
        case "order":
            (row,) = document["rows"]
            return [value / row["max_difference"] for value in row["per_token"]], None
        case "position":
            first, *others = document["ways"]
            most = max(others, key=lambda way: way["moved"])
            pairs = zip(most["weights"], first["weights"], strict=True)
            return [abs(a - b) for a, b in pairs], document["query"]
        case _:
            return document["weights"], document["query"]


@pytest.mark.parametrize("topic", ["matrix-softmax", "order", "position", "residual"])
def test_the_words_of_a_topic_are_tinted_by_its_numbers(topic: str) -> None:
    asked = ("explain", topic, SAID, *(("--position", "sinusoidal") if topic == "order" else ()))
    document = ask(*asked, "--json").json
    first, second = ask(*asked, "--brief", width=200).out.splitlines()[:2]
    assert first == tinted(*shared(document, topic))
    assert second.startswith("tint: ")


def test_the_residuals_tint_is_the_most_that_any_head_gives() -> None:
    asked = (SAID, "--num-heads", "4", "--query", "it")
    heads = ask("run", *asked, "--json").json["layers"][0]["heads"]
    rows = [[head["weights"][-1][key] for head in heads] for key in range(5)]
    document = ask("explain", "residual", *asked, "--json").json
    assert document["weights"] == pytest.approx([max(row) for row in rows], abs=1e-6)


def test_found_and_cut_links_and_removed_heads_tint_one_word() -> None:
    asked = (SAID, "--num-heads", "2")
    found = ask("find", *asked, "--from", "it", "--to", "cat", "--json").json["heads"]
    weight = max(head["weight"] for head in found)
    shown = ask(
        "find", *asked, "--from", "it", "--to", "cat", "--brief", width=200
    ).out.splitlines()
    assert shown[0] == tinted([0, weight, 0, 0, 0], 4)
    assert shown[1].startswith("tint: the weight of this link in layer 0 head ")
    cut = ask(
        "ablate", *asked, "--from", "it", "--to", "cat", "--brief", width=200
    ).out.splitlines()
    assert cut[:2] == shown[:2]
    document = ask("ablate", *asked, "--query", "it", "--json").json
    first = document["effects"][0]
    taken = ask("ablate", *asked, "--query", "it", "--brief", width=200).out.splitlines()
    assert taken[0] == tinted(
        [first["looks"]["weight"] * (at == first["looks"]["key"]) for at in range(5)], 4
    )
    assert taken[1] == f"tint: the word looked at most in layer 0 head {first['head']}"


def test_where_no_link_is_left_the_answer_says_which_are_not_counted() -> None:
    told = ask("run", "a b", "--model", "minilm", "--brief").out
    assert "No link is left to name; --all-links counts all.\nNot counted: special tokens" in told
    assert "tint" not in told


def test_a_padded_batch_is_answered_with_what_padding_gets() -> None:
    told = ask(
        "explain", "mask", "the cat", "a dog sat on", "--mask", "none", "--brief", width=200
    ).out
    assert "The 2 texts are padded to 4 tokens, and no weight falls on padding" in told
    assert "padded" not in ask("explain", "mask", "the cat", "--brief", width=200).out
    even = ask("explain", "mask", "cats", "dogs", "--mask", "none", width=200).out
    assert "2 texts of one length: nothing is padded" in even
    assert "The 2 texts have as many tokens, so nothing is padded" in even
    assert not any(
        said in even for said in ("padded to", "is padding", "rests on padding", "Padded")
    )


@pytest.mark.parametrize("more", [(), ("--top", "1"), ("--show", "links,answer")])
def test_a_query_that_sees_one_key_alone_is_not_the_strongest_link(more: tuple[str, ...]) -> None:
    asked = (SAID, "--mask", "causal", "--num-heads", "2")
    heads = ask("run", *asked, "--json").json["layers"][0]["heads"]
    strongest = max(max(row) for head in heads for row in head["weights"][1:])
    told = ask("run", *asked, *(more or ("--brief",)), width=200).out
    assert f"with {strongest:.0%}" in told
    assert 'The strongest link: "the" looks at "the"' not in told
    assert "with 100%" in ask("run", "the", "--brief").out
    assert (
        "is 0 and has no direction" in ask("ablate", "the cat", "--num-heads", "1", "--brief").out
    )
    for ending in ("safetensors", "npz"):  # in the second more heads than links see one key alone
        captured = ask(
            "tensors", f"sample_inputs/captured.{ending}", "--mask", "causal", "--brief"
        ).out
        assert "The strongest link: query 2 looks at key 1 with 92%" in captured
    heads = ask("heads", SAID, "--mask", "causal", "--brief").out
    assert "see a single key" in heads
    assert '"the" looks at "the" with 100%' not in heads


def test_what_is_not_tinted_is_said_to_be_left_out() -> None:
    model = ("it was too tired", "--model", "minilm", "--brief")
    told = ask("run", *model, "--query", "it").out
    assert "[CLS] [it] was" in told  # though most of its weight rests there
    assert (
        "Not counted: special tokens, where heads rest; the word itself; its neighbours."
        in " ".join(told.split())
    )
    assert "left out" not in ask("run", *model, "--query", "it", "--all-links").out
    assert "Not counted: special tokens" in " ".join(ask("heads", *model).out.split())
    assert "apart" not in ask("heads", "a b c", "--brief").out


def test_a_head_that_speaks_against_a_target_names_it() -> None:
    document = documents.logits()
    for part in document["parts"]:
        part["value"] = -abs(part["value"])
    said = screen.logits_sentences(shaped(document), WIDE)[0]
    assert said.startswith("None of the heads adds to")
    assert document["target"]["text"].strip() in said


def test_an_explanation_tells_equal_words_apart() -> None:
    told = ask("explain", "我爱你，我爱苹果", "--model", "minilm", "--brief", width=200).out
    assert '"我" (5) looks most at "我" (1): 84% of its weight.' in told
    several = ("explain", "multihead", "the cat and the cat", "--seed", "3", "--num-heads", "4")
    told = ask(*several, "--query", "cat:2", "--brief", width=200).out
    assert 'Averaged, "cat" (4) would look most at "the" (0) (0.24).' in told
    assert all(f'"cat" ({at})' in told for at in (1, 4))
