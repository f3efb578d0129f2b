"""Choosing a tokenizer."""

import sys

import pytest
from processes import finish

from attncli.errors import InputError, UsageError
from attncli.inputs.tokenize import BUILTIN, find_token, tokenizer


@pytest.mark.parametrize("name", BUILTIN)
def test_by_name(name):
    assert tokenizer(name).name == name
    assert find_token(tokenizer(name).encode("a"), "a").index == 0


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [("words", "word"), ("Byte", "byte"), ("whitespce", "whitespace"), ("bpe", ""), ("", "")],
)
def test_unknown_names(wrong, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="unknown tokenizer") as caught:
        tokenizer(wrong)
    assert caught.value.hint == (f"did you mean --tokenizer {hint}?" if hint else "")


@pytest.mark.parametrize("path", ["no/such", "no.json", "a\0b/", "x" * 5000 + "/"])
def test_files_that_are_not_there(path):
    with pytest.raises(InputError):
        tokenizer(path)


def test_a_file_named_like_a_word_is_read_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "word").write_text("{}")
    assert tokenizer("word").name == "word"
    with pytest.raises(InputError):
        tokenizer("./word")


def test_the_builtin_ones_need_no_library():
    code = "import sys, attncli.inputs.tokenize as t; t.tokenizer('word').encode('é b')"
    code += "; print(sorted({'numpy', 'tokenizers', 'torch'} & set(sys.modules)))"
    found = finish([sys.executable, "-c", code])
    assert found.stdout == "[]\n"
