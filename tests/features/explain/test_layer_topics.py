"""The topics of `attn explain` about a whole layer, against loops written here; and waiting between
steps.
"""

from __future__ import annotations

import json
import math
import re
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from validity import validate

import attncli
from attncli import topics
from attncli.cli import main
from attncli.cli.environment import Environment

TEXT = "humpty dumpty sat on"
TOPICS = (("position",), ("mask",), ("mask", "--mask", "none"), ("multihead",), ("residual",))


def topic(*words: str) -> dict:
    return ask("explain", words[0], TEXT, *words[1:], "--json").json


def test_each_way_of_positions_brings_in_what_its_formula_says() -> None:
    found = topic("position", "--num-heads", "2", "--d-model", "8", "--head", "1")
    ways = {way["position"]: way for way in found["ways"]}
    assert list(ways) == ["none", "sinusoidal", "learned", "rope", "alibi"]
    for i in range(4):
        for m in range(4):
            angle = i / 10000 ** (2 * m / 8)
            assert ways["sinusoidal"]["table"][i][2 * m] == pytest.approx(math.sin(angle), abs=1e-6)
            assert ways["sinusoidal"]["table"][i][2 * m + 1] == pytest.approx(
                math.cos(angle), abs=1e-6
            )
        for m in range(2):
            assert ways["rope"]["table"][i][m] == pytest.approx(i * 10000 ** (-2 * m / 4), rel=1e-6)
        for j in range(4):
            assert ways["alibi"]["table"][i][j] == pytest.approx(-(2**-8) * abs(i - j), abs=1e-6)
    for name, way in ways.items():
        alone = ask(
            "run",
            TEXT,
            "--position",
            name,
            "--num-heads",
            "2",
            "--d-model",
            "8",
            "--head",
            "1",
            "--json",
        ).json
        np.testing.assert_allclose(
            way["weights"], alone["layers"][0]["heads"][0]["weights"][3], atol=1e-6
        )
        moved = max(
            abs(a - b) for a, b in zip(way["weights"], ways["none"]["weights"], strict=True)
        )
        assert way["moved"] == pytest.approx(moved, abs=1e-9)
    most = max(found["ways"], key=lambda way: way["moved"])
    said = ask(
        "explain", "position", TEXT, "--num-heads", "2", "--d-model", "8", "--head", "1", "--brief"
    ).out
    assert most["position"] in said
    assert f"{most['moved']:.2f}" in said


def test_drawn_positions_are_not_called_learned_and_their_size_is_told() -> None:
    """The vectors of each position encoding that is added, by their mean length; nothing is compared
    where only one is.
    """
    asked = ("explain", "position", TEXT, "--num-heads", "2", "--d-model", "8")
    ways = {way["position"]: way for way in ask(*asked, "--json").json["ways"]}
    sizes = {
        name: np.mean([math.hypot(*row) for row in ways[name]["table"]])
        for name in ("sinusoidal", "learned")
    }
    screen = " ".join(ask(*asked).out.split())
    assert "P[i]: one vector for each position i, random here, not learned" in screen
    said = ", ".join(f"{size:.1f} for {name}" for name, size in sizes.items())
    assert f"depends on the size of its vectors, too: on average |P| is {said}." in screen
    assert max(ways, key=lambda name: ways[name]["moved"]) == "learned"
    assert "Its vectors are random here, not learned" in screen
    alone = " ".join(ask(*asked, "--position", "learned").out.split())
    assert "random here, not learned" in alone
    assert "on average |P|" not in alone


def test_one_way_of_positions_is_compared_with_none() -> None:
    assert [way["position"] for way in topic("position", "--position", "rope:500")["ways"]] == [
        "none",
        "rope:500",
    ]
    words = ("explain", "position", "humpty dumpty sat on", "--brief", "--query", "humpty")
    rope = ask(*words, "--position", "rope").out
    ways = ask(*words[:3], "--query", "humpty", "--position", "rope", "--json").json["ways"]
    rows = np.array([way["weights"] for way in ways])
    most = np.abs(rows[1] - rows[0]).max()
    said = f'With rope the weight of "humpty" that changes most changes by {most:.2f}.'
    assert said in " ".join(rope.split())
    slow = " ".join(ask(*words, "--position", "rope:1e9", "--scale", "0.001").out.split())
    assert 'With rope:1e+09 every weight of "humpty" changes by less than 0.005.' in slow
    # of several ways none is the one that ran
    for options in ((), ("--position", "rope")):
        assert "position none" not in ask(*words[:3], *options).out


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("scale", "code"), [("-1e30", 0), ("1e39", 3), ("-1e308", 3)])
def test_ways_of_positions_with_scores_at_the_end_of_their_range(scale: str, code: int) -> None:
    found = ask("explain", "position", TEXT, f"--scale={scale}", "--mask", "causal")
    assert found.code == code
    assert ("too large for float32" in found.err) == (code == 3)


def test_a_mask_hides_and_the_others_share_what_is_left() -> None:
    found = topic("mask")
    assert found["attention"]["mask"] == "causal"
    assert found["query"] == 2
    for query in range(4):
        raised = [math.exp(score) for score in found["scores"][query]]
        seen = [key <= query for key in range(4)]
        total, left = (
            sum(raised),
            sum(one for one, shown in zip(raised, seen, strict=True) if shown),
        )
        for key in range(4):
            assert found["before"][query][key] == pytest.approx(raised[key] / total, abs=1e-6)
            assert found["after"][query][key] == pytest.approx(
                raised[key] / left if seen[key] else 0.0, abs=1e-6
            )
            assert (found["masked"][query][key] is None) == (not seen[key])
    assert found["hidden"] == pytest.approx(found["before"][2][3], abs=1e-9)
    shown = ask("explain", "mask", TEXT).out
    assert f"would have had {found['hidden']:.4f} of its weight" in shown.replace("\n", " ")
    assert "sees every key" in ask("explain", "mask", TEXT, "--query", "on").out
    alone = " ".join(ask("explain", "mask", TEXT, "--query", "#0").out.split())
    assert f'The one key left, "{TEXT.split()[0]}", gets all of it.' in alone
    assert "in proportion" in " ".join(shown.split())
    assert "in proportion" not in alone
    assert "batch" not in shown


def test_a_batch_is_padded_and_its_padding_masked() -> None:
    found = ask("explain", "mask", TEXT, "on a", "sat", "--json").json
    assert found["attention"]["mask"] == "none"
    assert [len(one["tokens"]) for one in found["batch"]] == [4, 2, 1]
    for one in found["batch"]:
        held = len(one["tokens"])
        assert one["weights"][held:] == [0.0] * (4 - held)
        assert sum(one["weights"]) == pytest.approx(1, abs=1e-6)
        assert one["agreement"] < 1e-6
        alone = ask("run", one["text"], "--json").json["layers"][0]["heads"][0]["weights"][-1]
        np.testing.assert_allclose(one["weights"][:held], alone, atol=1e-6)
    shown = ask("explain", "mask", TEXT, "on a").out
    start = shown.index("padding mask of a batch")
    assert re.search(r"\n1 +on +a +· +·\n", shown[start:])


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [30, 60, 80])
def test_a_padded_table_has_every_column_or_says_how_many(lang: str, width: int) -> None:
    """The rows are counted: a line of numbers, and below it as many tokens, or the line on how many."""
    letters = " ".join("abcdefghijklmnop")
    words = ("explain", "mask", letters, "a b", "--lang", lang)
    for options in ((), ("--full",)):
        lines = ask(*words, *options, width=width).out.splitlines()
        (place,) = [at for at, text in enumerate(lines) if re.match(r"\d  a +b +· ", text)]
        count = len(lines[place].split()) - 1
        assert count == len(lines[place - 1].split()) - 1
        is_said = re.search(
            rf"first {count} of 16 columns|16 列中的前 {count} 列", lines[place + 1]
        )
        if not options:
            assert (count < 16) == bool(is_said)
            # screens are 40 wide at least; two blanks before each, and its letter or number
            room = max(width, 40) - 1
            assert count == sum(room >= 3 * at + 3 + max(0, at - 9) for at in range(16))


def test_heads_add_up_to_the_output_and_their_average_is_no_more_certain() -> None:
    found = topic("multihead", "--bias", "--query", "sat")
    assert len(found["heads"]) == 4
    run = ask("run", TEXT, "--num-heads", "4", "--bias", "--json").json["layers"][0]
    np.testing.assert_allclose(found["out"], run["output"][2], atol=1e-5)
    for entry, value in enumerate(found["out"]):
        parts = sum(head["share"][entry] for head in found["heads"]) + found["bias"][entry]
        assert parts == pytest.approx(value, abs=1e-5)
    assert found["concat"] == [value for head in found["heads"] for value in head["output"]]
    weights = ask("run", TEXT, "--num-heads", "4", "--bias", "--show", "W_O", "--json").json[
        "layers"
    ][0]
    matrix = weights["projections"]["W_O"]
    share = sum(found["heads"][1]["output"][at] * matrix[16 + at][5] for at in range(16))
    assert share == pytest.approx(found["heads"][1]["share"][5], abs=1e-5)
    assert found["average_entropy"] >= sum(found["entropies"]) / 4 - 1e-9
    assert "no W_O here" in ask("explain", "multihead", TEXT, "--num-heads", "1").out


ROLES = "The animal didn't cross the street because it was too tired"


def test_an_average_that_looks_most_at_the_query_says_itself() -> None:
    line = ("explain", "multihead", "humpty dumpty sat on", "--seed", "2", "--brief")
    assert 'Averaged, "on" would look most at itself (0.46).' in ask(*line).out
    assert "“on”给自己的权重最大（0.46）" in ask(*line, "--lang", "zh").out
    line = ("explain", "multihead", "香 蕉", "--tokenizer", "whitespace", "--query", "香")
    assert "head 1 at itself (0.89, averaged" in " ".join(ask(*line).out.split())
    assert "第 1 头看自身（0.89" in ask(*line, "--lang", "zh").out


def test_two_roles_are_the_strongest_links_of_two_heads() -> None:
    """Against loops over MiniLM's weights: words by letters, no neighbours, nothing where it rests."""
    model = attncli.load("minilm")
    run = attncli.run(model, ROLES)
    pieces = [token.text for token in run.tokens]
    # which word of the sentence each token belongs to: "didn't" is three tokens
    word = [0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    for layer, of_layer in enumerate(run.layers):
        links = []
        for head, of_head in enumerate(of_layer.heads):
            for i in range(1, len(pieces) - 1):
                for j in range(1, len(pieces) - 1):
                    is_link = pieces[i].isalnum() and pieces[j].isalnum()
                    if is_link and abs(word[i] - word[j]) > 1 and of_head.weights[i, j] > 0.5:
                        links.append((float(of_head.weights[i, j]), head, i, j))
        links.sort(reverse=True)
        expected = links[:1]
        others = [link for link in links if link[1] != links[0][1] and link[2:] != links[0][2:]]
        expected += others[:1]
        document = topics.multihead(model, ROLES, model.encode(ROLES), layer=layer, query=10)
        assert [(role.head, role.query, role.key) for role in document.roles] == [
            link[1:] for link in expected
        ]
        np.testing.assert_allclose(
            [role.weight for role in document.roles], [link[0] for link in expected], atol=1e-6
        )


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (2, 'Two heads, two links on this text: in head 0 "too" gives 74% of its weight to "bec'),
        (3, 'Two heads, two links on this text: in head 1 "it" gives'),
        (4, "No head of this layer gives more than half of a word's weight to a word that is no"),
    ],
)
def test_two_roles_are_said_where_there_are_two(layer: int, says: str) -> None:
    line = ("explain", "multihead", ROLES, "--model", "minilm", "--layer", str(layer), "--brief")
    assert says in " ".join(ask(*line).out.split())
    assert "两个头" in "".join(ask(*line, "--lang", "zh").out.split())


@pytest.mark.parametrize("layer", [3, 5])
def test_the_roles_of_a_layer_end_with_commands_that_ask_all_layers(layer: int) -> None:
    line = ("explain", "multihead", ROLES, "--model", "minilm", "--layer", str(layer))
    roles = ask(*line, "--json").json["roles"]
    assert roles
    out = " ".join(ask(*line, "--brief").out.replace("\\\n", "").split())
    assert "asks the heads of all layers" in out
    assert out.count("attn find --model minilm") == len(roles)
    assert "attn find" not in ask("explain", "multihead", "a b c", "--brief").out


def test_one_role_is_said_to_be_one_and_seeded_heads_have_none() -> None:
    line = ("explain", "multihead", ROLES, "--model", "minilm", "--layer", "5", "--brief")
    assert "No other head of this layer has a link" in " ".join(ask(*line).out.split())
    assert "roles" not in topic("multihead")


def test_what_averaging_loses_is_the_answer() -> None:
    found = topic("multihead", "--num-heads", "8", "--query", "dumpty")
    rows = np.array([head["weights"] for head in found["heads"]])
    average = rows.mean(axis=0)
    best, texts = int(average.argmax()), [token["text"] for token in found["tokens"]]
    apart = [at for at in range(8) if rows[at].argmax() != best]
    told = " ".join(
        ask(
            "explain", "multihead", TEXT, "--num-heads", "8", "--query", "dumpty", "--brief"
        ).out.split()
    )
    assert f'Averaged, "dumpty" would look most at "{texts[best]}" ({average[best]:.2f}).' in told
    assert f"Averaging loses {len(apart)} of the 8 heads" in told
    told = told.replace("at itself", 'at "dumpty"')
    named = re.findall(r'head (\d) at "(\w+)" \((0\.\d\d), averaged (0\.\d\d)\)', told)
    assert len(named) == min(len(apart), 4)
    for head, word, weight, left in named:
        key = int(rows[int(head)].argmax())
        assert int(head) in apart
        assert word == texts[key]
        assert float(weight) == pytest.approx(rows[int(head)][key], abs=0.006)
        assert float(left) == pytest.approx(average[key], abs=0.006)
    entropies = [-sum(w * math.log(w) for w in row if w > 0) for row in (*rows, average)]
    assert (
        f"entropy {entropies[-1]:.2f} nats, theirs {np.mean(entropies[:-1]):.2f} on average" in told
    )


def test_of_a_query_that_looks_at_itself_alone_averaging_is_no_subject() -> None:
    words = (
        "explain",
        "multihead",
        "rain falls on roofs",
        "--mask",
        "causal",
        "--brief",
        "--query",
    )
    first = " ".join(ask(*words, "rain").out.split())
    assert '"rain" looks at nothing but itself: every head gives it all of the weight.' in first
    assert "veraging" not in first
    assert "veraging" in ask(*words, "falls").out
    # the same words have the same weights in every head, and then it is one
    alike = " ".join(ask("explain", "multihead", "the the the", "--brief").out.split())
    assert "heads give the same weights: averaging loses nothing here" in alike


def test_heads_that_agree_lose_how_much_each_looks() -> None:
    rows = np.array([head["weights"] for head in topic("multihead", "--query", "on")["heads"]])
    told = " ".join(ask("explain", "multihead", TEXT, "--query", "on", "--brief").out.split())
    low, high = rows[:, 0].argmin(), rows[:, 0].argmax()
    said = f"from {rows[low, 0]:.2f} (head {low}) to {rows[high, 0]:.2f} (head {high})"
    assert f"All 4 heads look there; averaging loses how much weight each gives: {said}." in told
    two = ask("explain", "multihead", TEXT, "--query", "on", "--num-heads", "2", "--brief").out
    assert "Both heads look there; averaging loses how much weight each gives" in two


@pytest.mark.parametrize(
    ("weight", "says", "resting"),
    [
        (0.3, "All 12 heads look there; averaging loses how much weight each gives: from 0.30", ""),
        (
            0.01,
            "11 of 12 heads look there; averaging loses how much weight each of them gives: from 0.60"
            " (head 1) to 0.60",
            "Resting on special tokens: head 0 (98% of its weight).",
        ),
    ],
)
def test_a_head_that_rests_elsewhere_does_not_look_there(
    weight: float, says: str, resting: str, tmp_path: Path
) -> None:
    """Its largest weight beside the special tokens may be small: less than an even share."""
    line = ("explain", "multihead", "the cat sat", "--model", "minilm", "--layer", "2")
    document = ask(*line, "--query", "sat", "--json").json
    for head in document["heads"]:
        head["weights"] = [0.25, 0.05, 0.6, 0.05, 0.05]
    document["heads"][0]["weights"] = [0.985 - weight, 0.005, weight, 0.005, 0.005]
    rows = np.array([head["weights"] for head in document["heads"]])
    document["average"] = rows.mean(axis=0).tolist()
    path = tmp_path / "heads.json"
    path.write_text(json.dumps(document))
    said = " ".join(ask("view", str(path), "--brief").out.split())
    assert f"{says} (head" in said
    assert resting in said
    assert ("Resting" in said) == bool(resting)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--mask", "causal", "--query", "dumpty"),
        ("--softcap", "2", "--position", "alibi", "--d-v", "5"),
    ],
)
def test_one_head_is_single_head_attention(options: tuple[str, ...]) -> None:
    found = topic("multihead", "--num-heads", "1", *options)
    single, query = found["single"], found["query"]
    run = ask("run", TEXT, *options, "--json").json["layers"][0]["heads"][0]
    index = 0 if "--query" in options and len(run["weights"]) == 1 else query
    np.testing.assert_allclose(single["weights"], run["weights"][index], atol=1e-6)
    np.testing.assert_allclose(single["output"], run["output"][index], atol=1e-5)
    assert single["agreement"] < 1e-5
    shown = ask("explain", "multihead", TEXT, "--num-heads", "1", *options).out
    assert "h = 1 is single-head attention" in " ".join(shown.split())
    assert "average" not in shown
    assert "single" not in topic("multihead", "--num-heads", "2")
    assert "single-head" not in ask("explain", "multihead", TEXT, "--num-heads", "2").out


def tables(screen: str) -> list[tuple[str, ...]]:
    """The rows of numbers of each part of a screen, without the names of its rows."""
    parts = [
        [line for line in part.splitlines() if re.search(r"\d\.\d", line)]
        for part in screen.split("\n\n")
    ]
    return [
        tuple(" ".join(re.findall(r"-?\d+\.\d+\*?", line)) for line in part)
        for part in parts
        if len(part) > 2
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("mask", TEXT, "on a wall"), ("mask", TEXT, "--mask", "none"), ("mask", TEXT), ("mask", TEXT, "--query", "on"),
        ("mask", TEXT, "on a wall", "--mask", "causal"), ("multihead", TEXT), ("order", TEXT), ("residual", TEXT),
    ],
)  # fmt: skip
def test_no_table_is_shown_twice(words: tuple[str, ...]) -> None:
    found = tables(ask("explain", *words, width=120).out)
    assert found
    assert len(set(found)) == len(found)


def test_of_several_texts_the_padding_is_the_answer() -> None:
    shown = ask("explain", "mask", TEXT, "on a wall").out
    assert shown.index("padding mask of a batch") < shown.index("scores S before the mask")
    assert "no weight falls on padding" in shown
    assert "scores S after the mask" not in shown
    assert "nothing is hidden in this text itself" in " ".join(shown.split())


def test_rows_with_nothing_visible_are_not_said_to_sum_to_1(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("1,1,0,0\n0,0,0,0\n1,1,1,0\n1,1,1,1\n")
    asked = ("explain", "mask", TEXT, "--mask", str(file))
    shown = ask(*asked, width=120).out
    assert "still sums to 1" not in shown
    assert "each row sums to 1; one in which all is hidden, to 0" in shown
    assert "全被遮住的行之和为 0" in ask(*asked, "--lang", "zh", width=120).out
    assert "掩码文件 mine.csv" in ask(*asked, "--lang", "zh", width=120).out
    assert "each row still sums to 1" in ask("explain", "mask", TEXT, width=120).out


def test_the_residual_and_its_norm_are_those_of_the_run() -> None:
    found = topic("residual", "--num-heads", "2", "--query", "sat")
    run = ask(
        "run", TEXT, "--residual", "--layer-norm", "--num-heads", "2", "--json", "--stages", "all"
    ).json
    stages = run["layers"][0]["stages"]
    np.testing.assert_allclose(found["sum"], stages["sum"][2], atol=1e-5)
    np.testing.assert_allclose(np.add(found["x"], found["out"]), found["sum"], atol=1e-6)
    norm, width = found["norm"], len(found["sum"])
    mean = sum(found["sum"]) / width
    variance = sum((value - mean) ** 2 for value in found["sum"]) / width
    assert (norm["mean"], norm["variance"]) == pytest.approx((mean, variance), abs=1e-6)
    for at, value in enumerate(found["sum"]):
        assert norm["normed"][at] == pytest.approx(
            (value - mean) / math.sqrt(variance + 1e-5), abs=1e-5
        )
    np.testing.assert_allclose(norm["normed"], stages["norm"][2], atol=1e-5)


@pytest.mark.parametrize("words", TOPICS, ids=" ".join)
def test_topics_are_whole(words: tuple[str, ...]) -> None:
    document = topic(*words)
    validate(document, "attn.explain/1")
    assert topic(*words) == document
    assert len(ask("explain", words[0], TEXT, *words[1:], "--plain").out.splitlines()) > 4
    for width in (60, 120):
        for options in ((), ("--ascii",), ("--lang", "zh"), ("--full",)):
            answer = ask("explain", words[0], TEXT, *words[1:], *options, width=width)
            assert answer.code == 0, answer.err
            assert "�" not in answer.out
            assert answer.out.isascii() or "--ascii" not in options
    assert ask("explain", words[0], TEXT, *words[1:], "--query", "off").code == 3


def test_the_weights_are_what_the_queries_come_from() -> None:
    options = ("--num-heads", "2", "--head", "1", "--show", "W_Q,X,Q", "--json")
    layer = ask("run", TEXT, *options).json["layers"][0]
    head = layer["heads"][0]
    worked = np.asarray(layer["stages"]["hidden"]) @ np.asarray(head["projections"]["W_Q"])
    np.testing.assert_allclose(worked, head["stages"]["q"], atol=1e-5)
    assert np.shape(head["projections"]["W_V"]) == (64, 32)
    held = ask("explain", TEXT, "--num-heads", "2", "--head", "1", "--show", "W_K", "--json").json[
        "projections"
    ]
    np.testing.assert_allclose(held["W_K"], head["projections"]["W_K"], atol=1e-7)
    assert "projections" not in ask("explain", TEXT, "--json").json


def test_parts_are_named_as_the_texts_name_them() -> None:
    for name, title in (
        ("X", "input X"),
        ("Q", "queries Q"),
        ("S", "similarity S"),
        ("A", "weights"),
        ("W_Q", "W_Q"),
    ):
        assert ask("run", TEXT, "--show", name).out.startswith(title)
    assert ask("run", TEXT, "--show", "Z").code == 2
    assert "no W_O here" in ask("run", TEXT, "--show", "W_O").out
    assert ask("explain", TEXT, "--show", "S").out.startswith("1 similarity")


def test_heads_of_a_derivation_add_up() -> None:
    after = ask("explain", TEXT, "--num-heads", "4", "--bias", "--query", "on", "--json").json[
        "after"
    ]
    np.testing.assert_allclose(np.sum(after["heads"], 0) + after["bias"], after["out"], atol=1e-5)
    assert "heads" not in ask("explain", TEXT, "--json").json["after"]


def stepping(*keys: str) -> tuple[int, str, int]:
    """`attn explain TEXT --step` at a terminal where these keys are pressed: code, output, keys
    used.
    """
    left = list(keys)
    out, err = BytesIO(), StringIO()
    environment = Environment(
        stdin=BytesIO(), stdout=out, stderr=err, variables={"LANG": "C.UTF-8", "XDG_CACHE_HOME": "/dev/null"},
        stdin_is_terminal=True, stdout_is_terminal=True, width=80, keys=lambda: left.pop(0),
    )  # fmt: skip
    code = main(["explain", TEXT, "--query", "on", "--step", "--color", "never"], environment)
    return int(code), out.getvalue().decode(), len(keys) - len(left)


def test_steps_wait_for_a_key() -> None:
    code, whole, used = stepping(*" " * 30)
    assert code == 0
    assert used == 8
    assert '"on" looks most at' in whole
    assert stepping(" ", " ", "q")[2] == 3
    assert "looks most at" not in stepping(" ", " ", "q")[1]
    without = re.sub(r"— any key.*?\r\x1b\[2K", "", whole)
    assert without == ask("explain", TEXT, "--query", "on", "--color", "never").out


@pytest.mark.parametrize(
    "words", [(), ("--json",), ("--brief",), ("--output", "x.txt"), ("--csv", "x.csv")]
)
def test_steps_need_a_terminal_and_a_screen(words: tuple[str, ...]) -> None:
    answer = ask("explain", TEXT, "--step", *words)
    assert (answer.code, answer.out) == (2, "")
    assert all(word in answer.err for word in words[:1])
    assert ask("explain", "residual", TEXT, "--step", *words).code == 2


def test_a_trained_models_answer_names_the_command_that_tests_it() -> None:
    shown = ask("run", "a cat sat", "--model", "minilm", "--query", "cat").out.splitlines()
    assert shown[-1] == 'Does it matter?  attn ablate --model minilm "a cat sat" --query cat'
    assert "Does it matter" not in ask("run", "a cat sat", "--query", "cat").out
    assert (
        "Does it matter"
        not in ask("run", "a cat sat", "--model", "minilm", "--query", "cat", "--brief").out
    )


def test_a_models_screen_ends_in_its_size() -> None:
    document = ask("models", "show", "minilm", "--estimate", "a b c", "--json").json
    shown = ask("models", "show", "minilm", "--estimate", "a b c").out.splitlines()
    assert (
        shown[-2] == f"minilm has 6 layers of 12 heads, and {document['parameters']:,} parameters."
    )
    assert (
        f"A text of {document['estimate']['tokens']} tokens takes about {document['estimate']['seconds']:.1f} s"
        in (shown[-1])
    )


def test_rope_says_which_entries_turn_together_and_that_the_distance_decides() -> None:
    answer = ask("explain", "position", "a b c", "--position", "rope")
    out = " ".join(answer.out.split())
    assert "θ = 10000" in out
    assert "pair 0 is 0 and 32" in out
    turned = complex(1, 2) * np.exp(1j)  # the pair as one complex number
    assert f"= {turned.real:.4f}" in out
    assert f"= {turned.imag:.4f}" in out
    # q·k of the pairs (1, 2) and (2, 1), one and two positions apart
    near, far = ((complex(1, 2) * np.exp(1j * apart) * complex(2, -1)).real for apart in (1, 2))
    assert f"it is {near:.4f} at i = 2, j = 1, again {near:.4f} at i = 5, j = 4" in out
    assert f"but {far:.4f} at i = 5, j = 3" in out
    document = ask("explain", "position", "a b c", "--position", "rope", "--json").json
    assert document["ways"][-1]["pairing"] == "half"
    assert "pairing" not in document["ways"][0]
    chinese = ask("explain", "position", "a b c", "--position", "rope", "--lang", "zh").out
    assert "第0对是0和32" in "".join(chinese.split())


@pytest.mark.parametrize(
    ("rows", "query"),
    [
        ("1,1,1\n0,0,0\n1,1,1", 1),  # one that sees nothing, before all others
        ("1,0,1\n0,0,0\n1,1,0", 1),
        ("1,1,1\n1,1,1\n1,1,0", 2),  # the last, as elsewhere
        ("1,1,0\n1,0,1\n1,1,1", 1),  # the middle one
        ("1,1,0\n1,1,1\n1,1,1", 0),  # the only one
        ("1,1,1\n1,1,1\n1,1,1", 2),
    ],
)
def test_the_row_of_a_mask_is_one_that_the_mask_changes(
    tmp_path: Path, rows: str, query: int
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(rows)
    words = ("explain", "mask", "my old dog", "--mask", str(file))
    assert ask(*words, "--json").json["query"] == query
    shown = " ".join(ask(*words, "--brief").out.split())
    says_so = 'The mask hides every key from "old": its weights and its weighted sum A·V are 0.'
    assert (says_so in shown) == (rows[6:11] == "0,0,0")
    assert ask(*words, "--query", "my", "--json").json["query"] == 0


def test_a_causal_mask_over_two_words_is_shown_at_the_first() -> None:
    assert "sees every key" not in ask("explain", "mask", "my dog", "--mask", "causal").out


def test_steps_of_a_norm_have_no_numbers_that_read_as_a_part_of_the_formula() -> None:
    for words in ((), ("--ascii",)):
        shown = ask("explain", "residual", TEXT, "--layer-norm", *words, width=120).out
        assert "\n/ √(σ²" in shown or "\n/ sqrt(sigma" in shown
