"""Tokenizers that ask for more than they may."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import finish
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from attncli.errors import InputError
from attncli.inputs.vocabulary_tokenizer import from_tokenizers, read_tokenizer


def state() -> dict[str, Any]:
    hf = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[X]": 2}, unk_token="a"))
    hf.pre_tokenizer = pre_tokenizers.Whitespace()
    return json.loads(hf.to_str())


def template(single: list[Any], ids: int = 1, pair: tuple[Any, ...] = ()) -> dict[str, Any]:
    special = {"[X]": {"id": "[X]", "ids": [2] * ids, "tokens": ["[X]"] * ids}}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": list(pair),
        "special_tokens": special,
    }


TEXT, OTHER = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
MARK = {"SpecialToken": {"id": "[X]", "type_id": 0}}


@pytest.mark.parametrize(
    ("processor", "says"),
    [
        (template([MARK] * 1001 + [TEXT]), "adds 1,001 special tokens"),
        (template([MARK, TEXT], ids=5000), "adds 5,000 special tokens"),
        (template([TEXT], pair=(TEXT, *[MARK] * 1001, OTHER)), "adds 1,001 special tokens"),
        (template([TEXT, MARK, TEXT]), "repeats the text"),
        ({"type": "Sequence", "processors": [template([TEXT, TEXT])]}, "repeats the text"),
    ],
)
def test_a_template_that_fills_the_memory(
    processor: dict[str, Any], says: str, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(state() | {"post_processor": processor}))
    with pytest.raises(InputError, match=says):
        read_tokenizer(tmp_path)


def test_the_templates_of_real_tokenizers(tmp_path: Path) -> None:
    for processor in (
        None,
        template([MARK, TEXT, MARK]),
        template([MARK, TEXT], pair=(MARK, TEXT, OTHER)),
        template([MARK] * 1000 + [TEXT]),
        {"type": "Sequence", "processors": [template([MARK, TEXT])]},
    ):
        (tmp_path / "tokenizer.json").write_text(
            json.dumps(state() | {"post_processor": processor})
        )
        assert [
            token.id for token in read_tokenizer(tmp_path).encode("b") if not token.special
        ] == [1]


def charsmap(size: int, texts: bytes) -> str:
    return base64.b64encode(size.to_bytes(4, "little") + b"\0" * 4 + texts).decode()


@pytest.mark.parametrize("spelled", ["%s", r"\u0070recompiled_charsmap"])
def test_a_table_that_claims_gigabytes_is_refused_before_the_library_makes_room(
    spelled: str, tmp_path: Path
) -> None:
    normalizer = {"type": "Precompiled", "precompiled_charsmap": charsmap(2**32 - 1, b"x\0")}
    raw = json.dumps(state() | {"normalizer": normalizer})
    (tmp_path / "tokenizer.json").write_text(
        raw.replace("precompiled_charsmap", spelled.replace("%s", "precompiled_charsmap"))
    )
    with pytest.raises(InputError, match="a table of 4,294,967,295 bytes"):
        read_tokenizer(tmp_path)


def test_a_table_that_lengthens_a_character_beyond_reason(tmp_path: Path) -> None:
    hf = Tokenizer.from_str(json.dumps(state()))
    hf.normalizer = normalizers.Precompiled(base64.b64decode(charsmap(4, b"ab\0")))
    from_tokenizers(hf, "as many do")
    hf.normalizer = normalizers.Precompiled(
        base64.b64decode(charsmap(4, b"ab\0" + b"x" * 1001 + b"\0"))
    )
    with pytest.raises(InputError, match="1001 times as long"):
        from_tokenizers(hf, "grow")


def test_nothing_is_left_to_chance() -> None:
    merges = [("a", "b"), ("ab", "ab")]
    hf = Tokenizer(
        models.BPE(vocab={"a": 0, "b": 1, "ab": 2, "abab": 3}, merges=merges, dropout=0.5)
    )
    tokenizer = from_tokenizers(hf, "w")
    assert {tuple(token.id for token in tokenizer.encode("abab" * 5)) for _ in range(20)} == {
        (3,) * 5
    }


def test_what_is_told_after_the_clock_ran_out_reaches_standard_error(tmp_path: Path) -> None:
    slow = state() | {
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": "(a+)+b"},
            "behavior": "Isolated",
            "invert": False,
        }
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(slow))
    program = "import sys; from attncli.inputs import vocabulary_tokenizer as pieces; pieces.SECONDS = 0.2; "
    program += "from attncli.cli import main; sys.exit(main())"
    arguments = ["tokens", ("a" * 19 + " ") * 500, "--tokenizer", str(tmp_path)]
    found = finish([sys.executable, "-c", program, *arguments])
    assert (found.returncode, found.stdout) == (5, "")
    assert "error: this tokenizer took more than" in found.stderr
