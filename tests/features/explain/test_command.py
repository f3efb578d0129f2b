"""`attn explain`: the screen's numbers hold together, topics, languages, bad input."""

import json
import re
from decimal import Decimal
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from asking import ask
from validity import validate

from attncli.draw.numbers import percent
from attncli.draw.safe import cells

TEXT = "humpty dumpty sat on"
NUMBER = r"-?\d+\.\d+"
KEY = r"\d (?:humpty|dumpty|sat|on) "


def part(screen: str, title: str) -> list[str]:
    """The lines of one part of a screen, from its title to the next blank line."""
    lines = screen.split("\n")
    start = next(at for at, line in enumerate(lines) if line.startswith(title))
    return lines[
        start : next((at for at in range(start, len(lines)) if not lines[at].strip()), len(lines))
    ]


def numbers(line: str) -> list[Decimal]:
    return [Decimal(found) for found in re.findall(NUMBER, line)]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "options",
    [
        ("--d-model", "512"),
        ("--d-model", "7", "--precision", "2"),
        ("--num-heads", "4", "--head", "2"),
    ],
)
def test_the_sums_on_the_screen_add_up(width: int, options: tuple[str, ...]) -> None:
    screen = ask("explain", TEXT, "--query", "on", *options, width=width).out
    unit = Decimal(1).scaleb(-2 if options[-1] == "2" and "--precision" in options else -4)
    rows = [numbers(line) for line in part(screen, "1 similarity of on") if re.match(KEY, line)]
    assert len(rows) == 4
    for row in rows:
        assert sum(row[:-1]).quantize(unit) == row[-1]
    softmax = [line for line in part(screen, "4 softmax of on") if re.match(KEY + "|sum", line)]
    columns = [numbers(line)[-2:] for line in softmax]
    for column in zip(*columns, strict=True):
        assert sum(column[:-1]).quantize(unit) == column[-1]
    output = [
        numbers(line)
        for line in part(screen, "5 output of on")
        if re.match(KEY + r"|o +-?\d", line)
    ]
    for column in zip(*[row[1:] for row in output[:-1]], output[-1], strict=True):
        assert sum(column[:-1]).quantize(unit) == column[-1]


def test_each_step_follows_from_the_printed_ones() -> None:
    screen = ask(
        "explain", TEXT, "--query", "on", "--d-model", "512", "--full", "--show", "scaled,softmax"
    ).out
    scores = {
        row[0]: row
        for row in (line.split() for line in part(screen, "2 scale") if re.match(KEY, line))
    }
    softmax = [line.split() for line in part(screen, "4 softmax of on") if re.match(KEY, line)]
    total = next(
        numbers(line)[0] for line in part(screen, "4 softmax of on") if line.startswith("sum")
    )
    highest = max(float(row[-1]) for row in scores.values())
    for row in softmax:
        at, _, score, shifted, raised, weight = row[:6]
        raw, scaled = float(scores[at][2]), float(scores[at][3])
        assert scaled == pytest.approx(raw / 512**0.5, abs=2e-4)
        assert float(score) == scaled
        assert float(shifted) == pytest.approx(float(score) - highest, abs=1.01e-4)
        assert float(raised) == pytest.approx(2.718281828459045 ** float(shifted), abs=2e-4)
        assert float(weight) == pytest.approx(float(raised) / float(total), abs=2e-4)


def test_the_matrices_hold_the_row_that_was_worked_out() -> None:
    screen = ask(
        "explain", TEXT, "--query", "on", "--d-model", "512", "--show", "softmax,output,matrices"
    ).out
    weights = [line.split()[5] for line in part(screen, "4 softmax of on") if re.match(KEY, line)]
    row = next(line for line in part(screen, "weights A") if "▸on" in line)
    assert [str(value) for value in numbers(row)] == [value[:6] for value in weights]
    output = next(line for line in part(screen, "5 output of on") if re.match(r"o +-?\d", line))
    found = next(line for line in part(screen, "output O") if "▸on" in line)
    assert numbers(found)[:4] == numbers(output)[:4]


@pytest.mark.many
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "options", [(), ("--ascii",), ("--lang", "zh"), ("--full",), ("--color", "always")]
)
def test_screens_fit(width: int, options: tuple[str, ...]) -> None:
    for question in (
        ("今天 我 的 计划 是 买菜", "--tokenizer", "whitespace", "--query", "计划"),
        ("softmax", "2", "1", "0.1"), ("scaling", "--samples", "99"),
        ("matrix-softmax", TEXT), ("order", TEXT), ("metric", "entropy"),
    ):  # fmt: skip
        answer = ask("explain", *question, *options, width=width)
        assert answer.code == 0, answer.err
        screen = re.sub(r"\x1b\[[0-9;]*m", "", answer.out)
        assert all(cells(line) <= width for line in screen.split("\n"))
        assert screen.isascii() or "--ascii" not in options
        assert ("\x1b" in answer.out) == ("always" in options)


@pytest.mark.parametrize(
    "question",
    [
        (TEXT, "--mask", "causal", "--softcap", "3", "--position", "alibi"), (TEXT, "--mask", "padding:4"), (TEXT,
        "--position", "rope"),
        ("softmax",), ("softmax", "1000", "-3"),
        ("scaling", "--samples", "99", "--d-model", "128"), ("matrix-softmax", TEXT, "--mask", "causal"),
        ("order", "我爱你", "--tokenizer", "char"), ("metric", "entropy"), ("metric", "duplicate_pattern"),
    ],
)  # fmt: skip
def test_json_is_valid(question: tuple[str, ...]) -> None:
    document = ask("explain", *question, "--json").json
    validate(document, "attn.explain/1")
    assert ask("explain", *question, "--json").json == document
    assert len(ask("explain", *question, "--plain").out.splitlines()) > 1


def test_a_wrong_document_is_not_valid() -> None:
    document = ask("explain", "softmax", "--json").json
    for broken in (
        {**document, "topic": "order"},
        {**document, "more": 1},
        {name: held for name, held in document.items() if name != "weights"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            validate(broken, "attn.explain/1")


def test_negative_scores_are_numbers() -> None:
    assert ask("explain", "softmax", "-1", "-2.5", "--json").json["given"] == [-1.0, -2.5]


def test_chinese_explains_in_chinese() -> None:
    screen = ask("explain", TEXT, "--lang", "zh").out
    assert "2 缩放" in screen
    assert "similarity" not in screen
    assert ask("explain", TEXT, "--lang", "zh", "--ascii").code == 2
    assert ask("explain", TEXT, "--lang", "fr").code == 2


def test_parts_can_be_chosen() -> None:
    screen = ask("explain", TEXT, "--show", "softmax").out
    assert "softmax of on" in screen
    assert "similarity" not in screen


def test_many_keys_are_shortened_and_still_add_up() -> None:
    words = " ".join(f"w{at}" for at in range(40))
    screen = ask("explain", words, "--query", "w7", "--top", "5").out
    softmax = [
        line for line in part(screen, "4 softmax of w7") if re.match(r"\d+ w\d|35 others|sum", line)
    ]
    assert len(softmax) == 7
    for column in zip(*[numbers(line)[-2:] for line in softmax], strict=True):
        assert sum(column[:-1]).quantize(Decimal("0.0001")) == column[-1]
    output = [
        numbers(line)
        for line in part(screen, "5 output of w7")
        if re.match(r"\d+ w\d|35 others|o +-?\d", line)
    ]
    assert len(output) == 7
    for column in zip(*[row[1:] for row in output[:-1]], output[-1], strict=True):
        assert sum(column[:-1]).quantize(Decimal("0.0001")) == column[-1]


def test_the_query_may_be_a_word_an_occurrence_or_an_index() -> None:
    for query, expected in (("the:2", 3), ("#-1", 4), ("cat", 1)):
        assert (
            ask("explain", "the cat saw the dog", "--query", query, "--json").json["query"]
            == expected
        )
    assert ask("explain", "a b c", "--json").json["query"] == 2
    assert "occurs 2 times" in ask("explain", "the cat saw the dog", "--query", "the").err


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ((TEXT, "--query", "off"), 3), ((TEXT, "--layer", "1"), 3), ((TEXT, "--head", "0-1", "--num-heads", "2"), 2),
        ((TEXT, "--show", "no"), 2),
        (("softmax", "x"), 3), (("softmax", "1", "--temperature", "0"), 2), (("scaling", "--d-k", "0"), 2), (("metric",
        "entrpy"), 2),
        (("order", "one"), 3), (("order", "a b", "a c"), 3), ((TEXT, "--max-output", "1kB"), 5), (("softmax",
        "--temprature", "2"), 2),
    ],
)  # fmt: skip
def test_bad_questions_are_told_with_their_exit_code(question: tuple[str, ...], code: int) -> None:
    answer = ask("explain", *question)
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert answer.err.startswith("error: ")
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    "topic", ["", "multihead", "residual", "order", "mask", "matrix-softmax", "position"]
)
def test_nothing_is_explained_with_numbers_that_are_none(topic: str) -> None:
    answer = ask("explain", *([topic] if topic else []), TEXT, "--scale", "1e308")
    assert (answer.code, answer.out) == (3, ""), answer
    assert "no finite output: their numbers are too large for float32" in answer.err


def test_the_screen_can_be_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "on.svg"
    assert ask("explain", TEXT, "--svg", str(path)).code == 0
    assert path.read_text().startswith("<svg")
    assert "humpty" in path.read_text()


def test_hostile_tokens_are_inert() -> None:
    answer = ask(
        "explain", "a \x1b[31mred \u202eb", "--tokenizer", "whitespace", "--color", "never"
    )
    assert "\x1b" not in answer.out
    assert "\u202e" not in answer.out


def test_help_names_the_topics() -> None:
    found = ask("explain", "--help").out
    for topic in ("softmax", "scaling", "matrix-softmax", "order", "metric"):
        assert topic in found
        assert ask("explain", topic, "--help").code == 0


def test_a_slip_in_a_topics_name_is_noticed() -> None:
    wrong = ask("explain", "sotfmax", "2.0", "1.0")
    assert (wrong.code, wrong.out) == (2, "")
    assert "did you mean attn explain softmax?" in wrong.err
    assert "did you mean attn explain metric?" in ask("explain", "metrics", "entropy").err
    alone = ask("explain", "scalling")
    assert alone.code == 0
    assert "the topic is attn explain scaling" in alone.err
    assert "topic" not in ask("explain", TEXT).err


def test_softmax_takes_negative_numbers_and_still_knows_its_options() -> None:
    wrong = ask("explain", "softmax", "--temprature", "2", "1")
    assert (wrong.code, wrong.out) == (2, "")
    assert "attn explain softmax has no option --temprature" in wrong.err
    assert "did you mean --temperature?" in wrong.err


def test_an_option_behind_two_hyphens_is_said_to_be_none() -> None:
    for words in (("explain", "softmax", "--", "-1", "--brief"), ("run", "a b", "--", "--brief")):
        wrong = ask(*words)
        assert (wrong.code, wrong.out) == (2, "")
        assert "--brief stands behind --, where nothing is an option" in wrong.err
        assert "expected: options before --" in wrong.err
        assert "has no option" not in wrong.err
    assert ask("explain", "softmax", "--brief", "--", "-1", "-2").code == 0


@pytest.mark.parametrize(
    ("word", "note"),
    [
        ("cross", "the command is attn cross"),
        ("Find", "the command is attn find"),
        ("attention", "what the word means: attn guide attention"),
        ("rope", "what the word means: attn guide rope"),
        ("heads", "what the word means: attn guide heads"),
        ("sqrt", "the topic is attn explain scaling"),
        ("humpty", ""),
        ("cross the street", ""),
    ],
)
def test_a_word_that_names_something_here_gets_a_note(word: str, note: str) -> None:
    answer = ask("explain", word, "--brief")
    assert answer.code == 0
    assert ("is explained as a text" in answer.err) == bool(note)
    assert note in answer.err


def test_a_query_that_sees_itself_alone_is_not_said_to_look_there_most() -> None:
    words = ("explain", "humpty dumpty sat", "--mask", "causal", "--brief", "--query")
    first = " ".join(ask(*words, "humpty").out.split())
    assert '"humpty" sees nothing but itself: all of its weight is there' in first
    assert "looks most" not in first
    assert "looks most at" in ask(*words, "dumpty").out
    # a weight of 1 alone is no mask
    sharp = " ".join(
        ask("explain", "a b", "--scale", "1000", "--query", "a", "--brief").out.split()
    )
    assert "sees nothing" not in sharp


def test_words_without_their_quotes_are_put_into_them() -> None:
    answer = ask("explain", "humpty", "dumpty", "sat")
    assert answer.code == 2
    assert "try: attn explain 'humpty dumpty sat'" in answer.err


def test_every_line_is_explained() -> None:
    answer = ask("explain", "--lines", "--ndjson", stdin=b"a b\nc d e\n")
    found = [json.loads(line)["text"] for line in answer.out.splitlines()]
    assert (answer.code, found) == (0, ["a b", "c d e"])
    alone = ask("explain", "a b", "--ndjson").out
    assert answer.out.startswith(alone)
    one = ask("explain", "--lines", "--json", stdin=b"a b\nc d e\n")
    assert (one.code, "--ndjson in place of --json" in one.err) == (2, True)
    drawn = ask("run", "--lines", "--figure", "x.svg", stdin=b"a b\nc d e\n")
    assert (drawn.code, "--ndjson" in drawn.err) == (2, False)


def test_a_figure_is_titled_by_its_text(tmp_path: Path) -> None:
    assert ask("explain", "a <b> c", "--figure", str(tmp_path / "x.svg")).code == 0
    assert "<title>a &lt;b&gt; c</title>" in (tmp_path / "x.svg").read_text("utf-8")


def test_masks_named_in_place_of_texts_are_refused() -> None:
    for words, way_out in (
        (("causal", "none"), "attn mask causal none"),
        (("window:3",), "--mask window:3"),
    ):
        answer = ask("explain", "mask", *words)
        assert (answer.code, answer.out) == (2, "")
        names = " and ".join(map(repr, words))
        assert answer.err.startswith(f"error: {names} "), "names the masks"
        assert "and this takes texts" in answer.err
        assert way_out in answer.err
    assert ask("explain", "mask", "window", "causal").code == 0  # no mask is called window
    assert ask("explain", "mask", stdin=b"causal").code == 0


def test_a_metric_as_a_table_says_which_rows_it_counts() -> None:
    rows = dict(
        line.split("\t") for line in ask("explain", "metric", "entropy", "--plain").out.splitlines()
    )
    assert rows["rows"] == ask("explain", "metric", "entropy", "--json").json["rows"]


@pytest.mark.parametrize("topic", ["multihead", "residual"])
def test_of_a_checkpoint_the_layer_of_the_strongest_link_is_explained(topic: str) -> None:
    asked = ("explain", topic, "it was too tired", "--model", "minilm", "--query", "it")
    link = ask("run", "it was too tired", "--model", "minilm", "--query", "it", "--json").json[
        "links"
    ][0]
    answer = ask(*asked, "--json")
    assert answer.json["layer"] == link["layer"] != 0
    assert f'layer {link["layer"]} has the strongest link of "it"' in answer.err
    assert "--layer chooses another" in answer.err
    assert ask(*asked, "--layer", "0", "--json").json["layer"] == 0


def _named(tokens: list[str], index: int) -> str:
    """A token as sentences name it: with its position where its text stands twice."""
    if tokens.count(tokens[index]) == 1:
        return f'"{tokens[index]}"'
    return f'"{tokens[index]}" ({index})'


def test_averaging_loses_no_head_whose_weight_is_below_the_average() -> None:
    line = ("explain", "multihead", "the cat sat on the mat", "--model", "minilm", "--layer", "2")
    line += ("--query", "sat")
    document = ask(*line, "--json").json
    rows = np.array([head["weights"] for head in document["heads"]])[:, 1:-1]
    average = np.array(document["average"])[1:-1]
    keys = rows.argmax(1)
    looks = rows[np.arange(len(rows)), keys]
    elsewhere = (keys != average.argmax()) & (looks >= 0.005)
    lost = elsewhere & (looks > average[keys])
    assert 0 < lost.sum() < elsewhere.sum()
    assert f"Averaging loses {lost.sum()} of the 12 heads" in " ".join(ask(*line).out.split())


def test_a_head_that_rests_is_not_said_to_look_there() -> None:
    text = "the cat sat on the mat"
    run = ask("run", text, "--model", "minilm", "--stages", "all", "--json").json
    tokens = [token["text"] for token in run["tokens"]]
    words = range(1, len(tokens) - 1)
    rows = {
        (part["layer"], head["head"], query): head["weights"][query]
        for part in run["layers"]
        for head in part["heads"]
        for query in words
    }
    resting = {key: row for key, row in rows.items() if row.index(max(row)) not in words}
    layer, head, query = max(resting, key=lambda key: max(rows[key]))
    row = rows[layer, head, query]
    asked = ("--model", "minilm", "--head", f"L{layer}H{head}", "--query", f"#{query}")
    said = " ".join(ask("explain", text, *asked).out.split())
    rest = tokens[row.index(max(row))]
    assert f"{percent(max(row))} of the weight of {_named(tokens, query)} is on" in said
    assert f'"{rest}" is a special token: heads rest there whatever the text.' in said
    word = max(words, key=row.__getitem__)
    assert f"Of the others it looks most at {_named(tokens, word)}" in said


def test_a_text_of_one_token_has_one_key() -> None:
    assert 'Nothing is hidden: "a" may look at the only key.' in ask("explain", "a").out
    assert 'Nothing is hidden: "b" may look at all 2 keys.' in ask("explain", "a b").out


def test_a_second_text_of_a_topic_is_not_sent_to_lines_that_it_refuses() -> None:
    refused = ask("explain", "qkv", "a b", "c d")
    assert (refused.code, "--lines" in refused.err) == (2, False)
    assert refused.err.endswith("try: attn explain qkv 'a b'\n")
    assert "--lines" in ask("explain", "a b", "c d").err, "the derivation takes several"


def test_a_mistyped_topic_stands_in_quotes_of_the_language() -> None:
    assert "没有名为“sofmax”的专题" in ask("explain", "sofmax", "1", "2", "--lang", "zh").err
