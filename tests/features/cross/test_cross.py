"""Cross-attention: different lengths, values of a third text, masks, against loops."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from asking import ask
from msgspec import UNSET
from msgspec.structs import replace
from pictures import images
from telling import telling
from tiny_checkpoints import CASES, make
from validity import validate

import attncli
from attncli.arrays.backend import choose
from attncli.draw.figures import figure
from attncli.draw.figures.drawing import LIGHT, style_of
from attncli.draw.safe import cells
from attncli.draw.view import View
from attncli.errors import InputError, UsageError
from attncli.features.cross.compute import cross
from attncli.features.cross.screen import cross_alignment
from attncli.inputs.tokenize import tokenizer
from attncli.measure.run_record import CrossTexts
from attncli.mechanism.mask import AllOf, Causal, Mask, Padding
from attncli.models.model import Model
from attncli.models.one_layer import OneLayerStore, Settings, seeded_model

told_cross = telling(cross)
VIEW = View(width=80)

QUERY, KEY = "the black cat", "le chat noir dort bien"


def cross_document(model: Model, texts: CrossTexts, **options: Any) -> dict[str, Any]:
    return told_cross(model, texts.query, texts=texts, all_links=True, **options)


def made(
    mask: Mask | None = None, *, heads: int = 2, position: str = "none", backend: str = "numpy"
) -> Model:
    settings = Settings(d_model=14, heads=heads, d_k=6, d_v=5, position=position)
    settings = settings if mask is None else replace(settings, mask=mask)
    return seeded_model(
        settings, 5, "seeded", tokenizer("word"), choose(backend, device=None, dtype="float64")
    )


def texts(model: Model, value: str | None = None) -> CrossTexts:
    return CrossTexts(
        QUERY,
        KEY,
        model.encode(QUERY),
        model.encode(KEY),
        value,
        None if value is None else model.encode(value),
    )


def expected(
    model: Model, value: str = KEY, sees: object = None
) -> tuple[list[list[list[float]]], np.ndarray]:
    """Weights and output by loops."""
    store = model.store
    assert isinstance(store, OneLayerStore)
    x, y, z = (
        np.asarray(store.embed(model.backend, model.encode(text)), np.float64)
        for text in (QUERY, KEY, value)
    )
    heads = [np.float64(store.weights[f"{name}.weight"]) for name in "qkv"]
    q, k, v = (
        np.stack(np.split(source @ weight.T, 2, axis=1)).tolist()
        for source, weight in zip((x, y, z), heads, strict=True)
    )
    found = oracles.attention(q, k, v, sees=sees)  # type: ignore[arg-type]
    joined = np.concatenate([np.asarray(head) for head in found["mixed"]], axis=1)
    return found["weights"], joined @ np.float64(store.weights["o.weight"]).T


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_weights_and_output_agree_with_loops(backend: str) -> None:
    model = made(backend=backend)
    document = cross_document(model, texts(model))
    weights, output = expected(model)
    (layer,) = document["layers"]
    assert np.allclose([head["weights"] for head in layer["heads"]], weights)
    assert np.allclose(layer["output"], output)
    assert np.shape(layer["heads"][0]["weights"]) == (3, 5)


def test_values_may_come_from_a_third_text() -> None:
    model = made()
    document = cross_document(model, texts(model, "un deux trois quatre cinq"))
    weights, output = expected(model, "un deux trois quatre cinq")
    assert np.allclose([head["weights"] for head in document["layers"][0]["heads"]], weights)
    assert np.allclose(document["layers"][0]["output"], output)
    with pytest.raises(InputError, match=r"the values.* text has 2, the keys.* 5 tokens"):
        cross_document(model, texts(model, "un deux"))


def test_causal_and_padding_apply_to_positions() -> None:
    model = made(AllOf((Causal(), Padding(1))))
    document = cross_document(model, texts(model), heads=[1])
    weights, _ = expected(model, sees=oracles.intersection(oracles.causal, oracles.padding(1, 5)))
    (head,) = document["layers"][0]["heads"]
    assert head["head"] == 1
    assert np.allclose(head["weights"], weights[1])


def test_a_text_crossed_with_itself_is_self_attention() -> None:
    for position in ("none", "rope", "alibi", "sinusoidal", "learned"):
        model = made(position=position)
        tokens = model.encode(QUERY)
        document = cross_document(model, CrossTexts(QUERY, QUERY, tokens, tokens))
        trace = next(iter(model.trace(tokens)))
        assert np.allclose(
            [head["weights"] for head in document["layers"][0]["heads"]], trace.stages["weights"]
        ), position
        assert np.allclose(document["layers"][0]["output"], trace.stages["out"])


def test_rotary_keys_have_positions_of_their_own() -> None:
    model = made(position="rope")
    document = cross_document(model, texts(model))
    assert np.shape(document["layers"][0]["heads"][0]["weights"]) == (3, 5)


def test_the_alignment_names_the_best_key_of_the_mean() -> None:
    model = made()
    document = cross_document(model, texts(model))
    mean = np.mean([head["weights"] for head in document["layers"][0]["heads"]], axis=0)
    for one in document["alignment"]:
        assert one["key"] == max(range(5), key=lambda key: mean[one["query"]][key])
        assert one["weight"] == pytest.approx(mean[one["query"]].max())


def test_a_query_that_sees_nothing_is_aligned_with_nothing() -> None:
    model = made(Padding(5))
    document = cross_document(model, texts(model))
    assert [one["key"] for one in document["alignment"]] == [None] * 3
    assert len(document["empty_rows"]) == 6
    assert document["links"] == []


def test_the_decoder_says_what_it_computed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    model = attncli.load(make(CASES["bart"], tmp_path), backend="numpy")
    keys, queries = (
        model.tokenizer.ids_to_tokens(ids) for ids in ((7, 3, 50, 11, 28, 5), (2, 9, 40))
    )

    def told(longest: int) -> str | None:
        monkeypatch.setattr(
            "attncli.models.model.compute_dtype",
            lambda spec, count, dtype: "float64" if count <= longest else dtype,
        )
        document = cross_document(model, CrossTexts("", "", queries, keys), top=3)
        found: str | None = document["attention"].get("compute_dtype")
        return found

    assert [told(longest) for longest in (2, 3, 6)] == [None, "float64", "float64"]


def with_special(given: CrossTexts, places: set[int]) -> CrossTexts:
    """The texts with these keys as special tokens, as the end of a text is."""
    keys = [replace(token, special=token.index in places) for token in given.keys]
    return replace(given, keys=keys)


def test_the_end_of_a_text_stands_apart_from_what_a_query_is_aligned_with() -> None:
    model = made()
    plain = cross(model, QUERY, texts=texts(model)).alignment
    assert all(one.beyond_special is one.special is UNSET for one in plain)
    ends = {int(one.key) for one in plain[:1] if one.key is not None} | {4}
    document = cross(model, QUERY, texts=with_special(texts(model), ends))
    heads = document.layers[0].heads
    for one, before in zip(document.alignment, plain, strict=True):
        row = [sum(head.weights[one.query][key] for head in heads) / 2 for key in range(5)]
        best = max((key for key in range(5) if key not in ends), key=row.__getitem__)
        assert (one.query, one.key, one.weight) == (before.query, before.key, before.weight)
        assert one.special == pytest.approx(sum(row[key] for key in ends))
        assert one.beyond_special is not None
        assert one.beyond_special is not UNSET
        assert (one.beyond_special.key, one.beyond_special.weight) == (
            best,
            pytest.approx(row[best]),
        )
    assert document.alignment[0].key in ends
    screen = cross_alignment(document, View(width=60)).plain
    first = document.alignment[0].beyond_special
    assert first
    (line,) = [line for line in screen.splitlines() if line.startswith("0 the")]
    assert document.keys[first.key].text in line
    assert "left out:" in screen
    assert all(cells(line) <= 60 for line in screen.splitlines())
    assert "left out:" not in cross_alignment(cross(model, QUERY, texts=texts(model)), VIEW).plain


def test_a_query_that_sees_special_tokens_alone_is_aligned_with_none() -> None:
    model = made()
    document = cross(model, QUERY, texts=with_special(texts(model), set(range(5))))
    assert [one.beyond_special for one in document.alignment] == [None] * 3
    assert all(one.special == pytest.approx(1) for one in document.alignment)
    assert "(special tokens alone)" in cross_alignment(document, VIEW).plain


@pytest.mark.parametrize("top", [0, -3])
def test_a_count_of_links_below_one_is_refused(top: int) -> None:
    with pytest.raises(attncli.AttnError, match=f"top is {top}") as error:
        attncli.cross(attncli.load(seed=0), "a b", "c d", top=top)
    assert error.value.expected == "at least 1"


def encoder_decoder(folder: Path, family: str = "bart") -> Model:
    """A tiny checkpoint of both sides with random weights and the sample tokenizer, which cuts most
    words into pieces."""
    case = replace(CASES[family], config={**CASES[family].config, "vocab_size": 320})
    made_folder = make(case, folder)
    shutil.copy(SAMPLES / "tokenizer.json", made_folder / "tokenizer.json")
    return attncli.load(made_folder, dtype="float64")


SAMPLES = Path(__file__).parents[3] / "sample_inputs"
TARGET, SOURCE = "the dog sat", "the cat sleeps"


def merged(row_groups: list[range], key_groups: list[range], weights: Any) -> list[list[float]]:
    """Weights between words by loops: sums over a word's keys, means over its queries."""
    return [
        [
            sum(weights[query][key] for query in queries for key in keys) / len(queries)
            for keys in key_groups
        ]
        for queries in row_groups
    ]


def groups(tokens: list[dict[str, Any]], words: list[dict[str, Any]]) -> list[range]:
    """Which tokens each word has, by where they stand in the text."""
    found = []
    place = 0
    for word in words:
        first = place
        place += 1
        while (
            word["end"] is not None
            and place < len(tokens)
            and tokens[place]["end"] is not None
            and tokens[place]["end"] <= word["end"]
            and tokens[place]["start"] >= word["start"]
        ):
            place += 1
        found.append(range(first, place))
    assert place == len(tokens)
    return found


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_words_are_merged_on_both_sides(family: str, tmp_path: Path) -> None:
    model = encoder_decoder(tmp_path, family)
    pieces = told_cross(model, TARGET, SOURCE, all_links=True)
    words = told_cross(model, TARGET, SOURCE, words=True, all_links=True)
    assert words["words"] is True
    assert "words" not in pieces
    rows, keys = (groups(pieces[side], words[side]) for side in ("queries", "keys"))
    assert max(map(len, rows)) > 1
    assert max(map(len, keys)) > 1
    total = np.zeros((len(rows), len(keys)))
    for layer, whole in zip(words["layers"], pieces["layers"], strict=True):
        for head, piece_head in zip(layer["heads"], whole["heads"], strict=True):
            expected_weights = merged(rows, keys, piece_head["weights"])
            assert np.allclose(head["weights"], expected_weights, atol=1e-12)
            means = [np.mean([piece_head["output"][at] for at in row], 0) for row in rows]
            assert np.allclose(head["output"], means, atol=1e-12)
            assert "scores" not in head
            total += np.array(expected_weights)
    total /= sum(len(layer["heads"]) for layer in words["layers"])
    special = [key["special"] for key in words["keys"]]
    assert any(special)
    total[:, special] = -1
    best = [row["beyond_special"]["key"] for row in words["alignment"]]
    assert best == total.argmax(1).tolist()
    assert not any(special[key] for key in best)


def test_a_query_has_its_row_and_a_key_ranks_the_heads(tmp_path: Path) -> None:
    model = encoder_decoder(tmp_path)
    whole = told_cross(model, TARGET, SOURCE, words=True, all_links=True)
    found = told_cross(model, TARGET, SOURCE, words=True, query="sat", key="cat", all_links=True)
    names = [[token["text"].strip(" ▁") for token in whole[side]] for side in ("queries", "keys")]
    query, key = names[0].index("sat"), names[1].index("cat")
    assert (found["query"], found["key"]) == (query, key)
    assert [row["query"] for row in found["alignment"]] == [query]
    assert {link["query"] for link in found["links"]} == {query}
    special = np.array([token["special"] for token in whole["keys"]])
    expected_heads = []
    for layer, of_query in zip(whole["layers"], found["layers"], strict=True):
        for head, row in zip(layer["heads"], of_query["heads"], strict=True):
            weights = np.array(head["weights"][query])
            assert np.allclose(row["weights"], [weights], atol=1e-15)
            rank = 1 + sum(weight > weights[key] for weight in weights)
            beyond = 1 + sum(weights[~special] > weights[key])
            expected_heads.append((-weights[key], layer["layer"], head["head"], rank, beyond))
    assert [
        (-row["weight"], row["layer"], row["head"], row["rank"], row["beyond_special"])
        for row in found["key_heads"]
    ] == sorted(expected_heads)


def test_several_pieces_are_one_query_and_one_key(tmp_path: Path) -> None:
    """Without `words` a query of several pieces is the mean of their rows, a key their sum."""
    model = encoder_decoder(tmp_path)
    pieces = told_cross(model, TARGET, SOURCE, all_links=True)
    found = told_cross(model, TARGET, SOURCE, query="dog", key="sleeps", all_links=True)
    sides = [pieces["queries"], pieces["keys"]]
    spans = [
        [place for place, token in enumerate(side) if token["start"] is not None
         and text.index(word) <= token["start"] and token["end"] <= text.index(word) + len(word)
         and token["end"] > token["start"]]
        for side, text, word in zip(sides, (TARGET, SOURCE), ("dog", "sleeps"), strict=True)
    ]  # fmt: skip
    assert len(spans[0]) > 1 < len(spans[1])
    first = found["key_heads"][0]
    weights = pieces["layers"][first["layer"]]["heads"][first["head"]]["weights"]
    total = sum(weights[query][key] for query in spans[0] for key in spans[1])
    assert first["weight"] == pytest.approx(total / len(spans[0]), abs=1e-12)


def test_a_name_of_the_other_side_says_so() -> None:
    model = made()
    with pytest.raises(InputError, match="'chat' is in the text that is looked at") as error:
        cross(model, QUERY, KEY, query="chat")
    assert str(error.value.expected) == "a query such as: the black cat"
    with pytest.raises(InputError, match="'cat' is in the text that looks") as error:
        cross(model, QUERY, KEY, query="black", key="cat")
    assert str(error.value.expected) == "a key such as: le chat noir dort bien"
    with pytest.raises(InputError, match="no token 'dog' in the text"):
        cross(model, QUERY, KEY, query="dog")
    with pytest.raises(UsageError, match="without the query that looks at it"):
        cross(model, QUERY, KEY, key="chat")
    with pytest.raises(UsageError, match="does not go with --words"):
        cross(model, QUERY, KEY, value_text="a b c d e", words=True)


def test_a_hidden_key_has_no_rank() -> None:
    found = told_cross(made(Causal()), QUERY, KEY, query="the", key="noir")
    assert [row["rank"] for row in found["key_heads"]] == [None, None]
    assert [row["weight"] for row in found["key_heads"]] == [0, 0]


def test_the_figure_of_the_alignment_frames_the_best_words(tmp_path: Path) -> None:
    """Source across with special tokens apart, target down: its cells are the mean of all heads, and
    the frames stand at each row's best word."""
    model = encoder_decoder(tmp_path)
    document = cross(model, TARGET, SOURCE, words=True)
    drawing = figure(document, choice=style_of("", "alignment").choice)
    assert drawing is not None
    svg = drawing.svg()
    cells = images(svg)[0]
    mean = np.mean([head.weights for layer in document.layers for head in layer.heads], 0)
    special = np.array([token.special for token in document.keys])
    order = [*np.flatnonzero(~special), *np.flatnonzero(special)]
    words = int((~special).sum())
    assert cells.shape[:2] == (len(document.queries), len(order) + 1)
    assert not cells[:, words, 3].any()  # a gap before the special tokens
    shown = np.delete(cells, words, 1)
    for row, column in np.ndindex(*mean.shape):
        colour = LIGHT.weights.rgb(float(mean[row, order[column]] / mean.max()))
        assert np.abs(shown[row, column, :3].astype(int) - colour).max() <= 2
    frames = re.findall(
        rf'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"[^>]*stroke="{LIGHT.series[1]}"', svg
    )
    corner = re.findall(r'<image x="([\d.]+)" y="([\d.]+)"', svg)[0]
    for row, (x, y, wide) in enumerate(frames):
        place = round((float(x) - float(corner[0])) / float(wide))
        assert round((float(y) - float(corner[1])) / float(wide)) == row
        assert order[place] == document.alignment[row].beyond_special.key
    assert len(frames) == len(document.queries)


def test_find_takes_a_word_of_the_source(tmp_path: Path) -> None:
    model = encoder_decoder(tmp_path)
    name = model.identity.name
    line = ("find", TARGET, "--model", str(name), "--dtype", "float64", "--source", SOURCE)
    found = ask(*line, "--from", "dog", "--to", "cat", "--words", "--json").json
    validate(found, "attn.cross/1")
    crossed = ask(
        "cross", TARGET, SOURCE, "--model", str(name), "--dtype", "float64", "--query", "dog",
        "--to", "cat", "--words", "--json",
    ).json  # fmt: skip
    assert found["key_heads"] == crossed["key_heads"]
    screen = ask(*line, "--from", "dog", "--to", "cat", "--words").out
    first = found["key_heads"][0]
    assert f'"dog" gives "cat" most in layer {first["layer"]} head {first["head"]}' in screen
    other = ask(*line, "--from", "cat", "--to", "dog")
    assert other.code == 3
    assert "'cat' is in the text that is looked at" in other.err
    cut = ask(*line, "--from", "dog", "--to", "cat", "--effect")
    assert cut.code == 2
    assert "'cat' is in the source, and --effect is about links within the text" in cut.err
    inside = ask(*line, "--from", "sat", "--to", "dog", "--json").json
    assert inside["schema"] == "attn.find/1"


def test_a_page_of_words_opens_with_the_query(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    line = ("cross", QUERY, KEY, "--words", "--query", "cat", "--to", "noir", "--num-heads", "2")
    answer = ask(*line, "--html", str(file), "--json")
    assert answer.code == 0, answer.err
    first = answer.json["key_heads"][0]
    text = file.read_text("utf-8")
    assert f'"head":"{first["layer"]}.{first["head"]}"' in text.replace(" ", "")
    assert '"query":"2"' in text.replace(" ", "")


def test_what_a_decoder_says_stands_beside_what_it_has_read(tmp_path: Path) -> None:
    """Its text is read one token late: the row of `le` is the one in which `chat` is said."""
    folder = tmp_path / "m"
    assert ask("learn", "translate", "--steps", "100", "--save", str(folder), "--brief").code == 0
    texts = ("le chat noir", "the black cat .", "--model", str(folder))
    document = ask("cross", *texts, "--json").json
    assert [row["text"] for row in document["queries"]] == ["<s>", "le", "chat"]
    assert document["said"] == ["le", "chat", "noir"]
    assert [row["key"] for row in document["alignment"]] == [0, 2, 1]
    screen = ask("cross", *texts, "--show", "alignment,answer").out
    cells = [line.split() for line in screen.splitlines()]
    assert ["2", "chat", "noir", "→", "1", "black"] in [row[:6] for row in cells]
    last = ask("cross", *texts, "--query", "noir")
    assert last.code == 3
    assert "'noir' is the last to be said, and no row reads it" in last.err
    assert "the row of 'chat' (#2), where 'noir' is said" in last.err
    link = document["links"][0]["query"]
    said = f'At "{document["queries"][link]["text"]}" the decoder is to say "{document["said"][link]}".'
    assert said in screen
    assert "said" not in ask("cross", *texts, "--words", "--json").json
    assert "said" not in ask("cross", "le chat", "the cat", "--json").json

    # the row of the start token says a word: its links count, and no link does of an unknown word
    weights = document["layers"][0]["heads"][0]["weights"]
    assert document["links"][0]["weight"] == pytest.approx(max(map(max, weights)), abs=1e-6)
    assert {link["query"] for link in document["links"]} == {0, 1, 2}
    one = ask("cross", "le", "the", "--model", str(folder))
    assert 'The strongest link: "<s>" looks at "the"' in one.out
    assert "links_leave_out" not in document
    strange = ("le chien dort .", "the dog xyz .", "--model", str(folder))
    other = ask("cross", *strange, "--json").json
    assert other["links_leave_out"] == ["unknown"]
    # the row that says dort, and that which has read it; the key xyz
    assert {link["query"] for link in other["links"]} == {0, 1}
    assert 2 not in {link["key"] for link in other["links"]}
    told = ask("cross", *strange, "--show", "links,answer").out
    assert "left out: unknown words (--all-links)" in told
    assert "Not counted: unknown words." in told
    every = ask("cross", *strange, "--all-links", "--json").json
    assert {link["query"] for link in every["links"]} == {0, 1, 2, 3}

    # the figure names rows by what is said, of a single head, too
    picture = tmp_path / "said.svg"
    assert ask("cross", *texts, "--figure", str(picture), "--brief").code == 0
    drawn = picture.read_text("utf-8")
    assert "rows here are named by the word that is said" in drawn
    assert ">noir<" in drawn  # which no row has read

    # rows of the topic are named by what is said
    topic = ask("explain", "seq2seq", *texts, "--json").json
    assert [row["text"] for row in topic["queries"]] == ["le", "chat", "noir"]
    assert topic["weights"] == document["layers"][0]["heads"][0]["weights"]
    assert 'At "noir" the search draws most on "black"' in ask("explain", "seq2seq", *texts).out
