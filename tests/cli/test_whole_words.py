"""Words of several tokens, as they are asked for and as answers name them: whole, or as pieces of
the word."""

from __future__ import annotations

from pathlib import Path

import pytest
from asking import Answer, ask
from small_gpt2 import small_gpt2

import attncli
from attncli.draw.view import View
from attncli.explore.frame import answer
from attncli.explore.loaded_run import LiveSource, LoadedRun
from attncli.explore.panels import Scene
from attncli.explore.state import State

TEXT = "an odd dumpty sat"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_gpt2(tmp_path_factory.mktemp("words") / "model"))


def _asked(folder: str, command: str, *arguments: str) -> Answer:
    answer = ask(command, *arguments, "--model", folder)
    assert answer.code == 0, answer.err
    return answer


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("command", ["logits", "next"])
def test_a_logit_after_a_word_is_one_after_its_last_token(
    folder: str, command: str, lang: str
) -> None:
    answer = _asked(folder, command, TEXT, "--query", "dumpty", "--lang", lang)
    last = len(attncli.load(folder).encode("an odd dumpty")) - 2  # [SEP] ends it
    said = {"en": f"this is about the last of them, #{last}", "zh": f"其中最后一个，#{last}"}
    assert said[lang] in answer.err
    assert "summed" not in answer.err


@pytest.mark.parametrize("command", ["logits", "next"])
def test_the_first_piece_of_a_target_is_called_that(folder: str, command: str) -> None:
    answer = _asked(folder, command, TEXT, "--target", "dumpty")
    assert '(the first piece of "dumpty")' in " ".join(answer.out.split())
    document = _asked(folder, command, TEXT, "--target", "dumpty", "--json").json
    target = document["target"].get("token", document["target"])
    assert target["word"] == "dumpty"
    whole = _asked(folder, command, TEXT, "--target", "id:5", "--json").json["target"]
    assert "word" not in whole.get("token", whole)
    note = _asked(folder, command, TEXT, "--target", "dumpty", "--lang", "zh").err
    assert "'" not in note  # each piece stands in Chinese quotes


def test_what_a_head_looks_at_is_named_with_its_word(folder: str) -> None:
    screen = _asked(folder, "ablate", TEXT, "--query", "sat", "--show", "heads", "--full").out
    assert "d (dumpty)" in screen
    line = ("find", "An unbelievable dumpty sat on the wall", "--from", "sat", "--to", "wall")
    assert "dump (dumpty)" in ask(*line, "--model", "minilm", "--show", "heads").out


def test_a_cut_link_between_words_names_them_whole(folder: str) -> None:
    line = ("ablate", TEXT, "--from", "dumpty", "--to", "odd", "--show", "heads")
    assert "dumpty no longer sees odd, in one head at a time" in _asked(folder, *line).out
    assert "每次在一个头中让“dumpty”看不到“odd”" in _asked(folder, *line, "--lang", "zh").out


@pytest.mark.parametrize("query", ["dumpty", "sat"])
def test_a_word_in_the_place_of_one_of_another_length_is_compared_whole(
    folder: str, query: str
) -> None:
    texts = (TEXT, "an odd the sat")
    model = attncli.load(folder)
    counts = [len(model.encode(text)) for text in texts]
    assert counts[0] != counts[1]
    document = _asked(folder, "compare", *texts, "--query", query, "--json").json
    names = [[token["text"].strip() for token in document[side]["tokens"]] for side in "ab"]
    place = names[0].index("dumpty")
    assert names[1][place] == "the"
    assert names[0][:place] == names[1][:place]
    assert names[0][place + 1 :] == names[1][place + 1 :]
    rows = [place]
    if query == "sat":
        rows = list(range(place + 1, len(names[0]) - 1))  # [SEP] ends it
    assert document["queries"] == rows
    assert document["only"] == {"a": [], "b": []}
    page = Path(folder).parent / "page.html"
    _asked(folder, "compare", *texts, "--query", query, "--html", str(page))
    assert "dumpty" in page.read_text()


@pytest.mark.parametrize(
    ("lang", "name"),
    [("en", '"umpty" (a piece of "dumpty")'), ("zh", "“umpty”（“dumpty”的一部分）")],
)
def test_the_explorer_names_a_piece_by_its_word(folder: str, lang: str, name: str) -> None:
    record = LiveSource.of(attncli.load(folder), TEXT).record(lambda share: None)
    loaded_run = LoadedRun(record)
    for head in record.heads:
        loaded_run.add(head)
    place = next(token.index for token in loaded_run.queries if token.text == "umpty")
    scene = Scene(State(layer=0, head=0, query=place, key=1), loaded_run, View(lang=lang), 300, 9)
    said = " ".join("".join(text for text, _ in row) for row in answer(scene).rows)
    assert name in said


@pytest.mark.parametrize(
    ("lang", "said"), [("en", '"[CLS]" looks most at "cat"'), ("zh", "“[CLS]”看得最多的是“cat”")]
)
def test_a_special_token_that_is_asked_for_by_name_has_its_row(lang: str, said: str) -> None:
    line = ("run", "the cat sat on it", "--model", "minilm", "--query", "[CLS]", "--lang", lang)
    answer = ask(*line, "--brief")
    assert answer.code == 0, answer.err
    assert said in answer.out
    document = ask(*line[:-2], "--json").json
    assert {link["query"] for link in document["links"]} == {0}
    named = document["tokens"][document["links"][0]["key"]]["text"]
    assert named in answer.out


@pytest.mark.parametrize(
    ("lang", "name"), [("en", '(a piece of "dumpty")'), ("zh", "“dumpty”的一部分")]
)
def test_the_head_that_explain_takes_is_told_with_the_word(lang: str, name: str) -> None:
    line = ("explain", "An unbelievable dumpty sat", "--model", "minilm", "--query", "dumpty")
    answer = ask(*line, "--lang", lang, "--show", "answer")
    assert answer.code == 0, answer.err
    assert name in answer.err


def test_a_step_of_a_derivation_names_a_piece_with_its_word(folder: str) -> None:
    said = " ".join(_asked(folder, "explain", TEXT, "--query", "dumpty").out.split())
    assert 'q of "umpty" (a piece of "dumpty") times each word\'s k' in said
    assert 'what "umpty" (a piece of "dumpty") takes' in said
