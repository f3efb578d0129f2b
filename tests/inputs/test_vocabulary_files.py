"""Vocabularies that stand in other files than tokenizer.json: cut as transformers cuts them, or
told with a command that works."""

from __future__ import annotations

import base64
import codecs
import gzip
import io
import json
import shlex
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex
import sentencepiece
import tokenizers
from asking import ask

from attncli.errors import InputError
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.sentencepiece_file import read_pieces
from attncli.inputs.separate_vocabulary import read_vocabulary
from attncli.inputs.tokenize import tokenizer as tokenizer_named
from attncli.inputs.vocabulary_files import missing_tokenizer
from attncli.inputs.vocabulary_tokenizer import PieceTokenizer
from attncli.models.load import tokenizer_of

SAMPLES = (
    "The animal didn't cross the street, because it was 12345 metres wide!",
    "  two  blanks\n\nand\tlines ",
    "naïve caﬁé, 你好世界 😀",
    "x=f(y)+3.14; we'LL",
)
Files = dict[str, str | bytes]


@cache
def lines() -> tuple[str, ...]:
    return tuple((Path(__file__).parents[2] / "README.md").read_text().splitlines())


@cache
def words(*, lower: bool) -> str:
    """BERT's vocab.txt."""
    trained = tokenizers.BertWordPieceTokenizer(lowercase=lower)
    trained.train_from_iterator(lines(), vocab_size=400, show_progress=False)
    vocabulary = trained.get_vocab()
    return "".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.get))


@cache
def merges(*specials: str) -> Files:
    """A vocab.json with its merges.txt."""
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(
        lines(), vocab_size=500, special_tokens=list(specials), show_progress=False
    )
    model = json.loads(trained.to_str())["model"]
    pairs = "".join(f"{left} {right}\n" for left, right in model["merges"])
    return {"vocab.json": json.dumps(model["vocab"]), "merges.txt": f"#version: 0.2\n{pairs}"}


def sentence_pieces(kind: str, **settings: Any) -> bytes:
    """A SentencePiece file."""
    model = io.BytesIO()
    usual = {"byte_fallback": True, "normalization_rule_name": "identity"}
    pairs = {**usual, "remove_extra_whitespaces": False} if kind == "bpe" else {}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()), model_writer=model, vocab_size=450, model_type=kind,
        minloglevel=9, **pairs, **settings,
    )  # fmt: skip
    return model.getvalue()


ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BEGINS = {"add_bos_token": True}
GEMMA = {
    "add_dummy_prefix": False, "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "pad_piece": "<pad>",
    "eos_piece": "<eos>", "bos_piece": "<bos>",
}  # fmt: skip
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "pad_piece": "<pad>"}
OPT = {
    "tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "bos_token": "</s>", "eos_token": "</s>",
    "unk_token": "</s>", "pad_token": "<pad>",
}  # fmt: skip
QWEN = {
    "tokenizer_class": "Qwen2Tokenizer",
    "added_tokens_decoder": {
        "500": {"content": "<|endoftext|>", "special": True},
        "501": {"content": "<|im_start|>", "special": True},
    },
}
READ: dict[str, tuple[str, dict[str, Any], Callable[[], Files]]] = {
    "bert": ("bert", {"do_lower_case": False}, lambda: {"vocab.txt": words(lower=False)}),
    "distilbert": ("distilbert", {}, lambda: {"vocab.txt": words(lower=True)}),
    "gpt2": ("gpt2", {}, lambda: merges("<|endoftext|>")),
    "roberta": ("roberta", {}, lambda: merges(*ROBERTA)),
    "opt": ("opt", OPT, lambda: merges(*ROBERTA[:4])),
    "qwen2": ("qwen2", QWEN, merges),
    "gemma": ("gemma", BEGINS, lambda: {"tokenizer.model": sentence_pieces("bpe", **GEMMA)}),
    "t5": ("t5", {}, lambda: {"spiece.model": sentence_pieces("unigram", **T5)}),
}
"""Folders that are read: the family, tokenizer_config.json, and the other files."""


def write(folder: Path, family: str, settings: dict[str, Any], files: Files) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(raw)
    return folder


@pytest.mark.parametrize("name", READ)
def test_a_vocabulary_without_tokenizer_json_cuts_as_transformers_does(
    name: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    family, settings, files = READ[name]
    folder = write(tmp_path, family, settings, files())
    own = read_vocabulary(folder)
    library = transformers.AutoTokenizer.from_pretrained(folder)
    assert isinstance(own, PieceTokenizer)
    for sample in (*SAMPLES, "<|im_start|>a" if name == "qwen2" else "a"):
        assert [token.id for token in own.encode(sample)] == library(sample).input_ids, sample


def test_a_llamas_tokenizer_model_is_cut_as_sentencepiece_cuts_it(tmp_path: Path) -> None:
    """SentencePiece itself is asked: transformers 5.23 leaves out the blank that the file puts
    before a text, 5.24 does not."""
    model = sentence_pieces("bpe")
    own = read_vocabulary(write(tmp_path, "llama", BEGINS, {"tokenizer.model": model}))
    assert isinstance(own, PieceTokenizer)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    for sample in SAMPLES:
        expected = [library.bos_id(), *library.encode(sample)]
        assert [token.id for token in own.encode(sample)] == expected, sample


def test_ranked_bytes_are_joined_by_the_lowest_rank_first(tmp_path: Path) -> None:
    (folder := tmp_path / "mistral").mkdir()
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"
    ranked = [bytes([byte]) for byte in range(256)]
    for text in (" t", "he", " the", "th", "é", "an", "ani", " a", "im"):
        ranked.append(text.encode())
    entries = [
        {"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
        for rank, piece in enumerate(ranked)
    ]
    specials = [{"rank": 0, "token_str": "<unk>"}, {"rank": 1, "token_str": "<s>"}]
    config = {
        "pattern": pattern, "num_vocab_tokens": len(ranked) + 9, "default_vocab_size": len(ranked) + 5,
        "default_num_special_tokens": 5,
    }  # fmt: skip
    document = {"config": config, "vocab": entries, "special_tokens": specials}
    (folder / "tekken.json").write_text(json.dumps(document))

    def ids(text: str) -> list[int]:
        told = [1]
        for part in regex.findall(pattern, text):
            pieces = [bytes([byte]) for byte in part.encode()]
            while len(pieces) > 1:
                pairs = [a + b for a, b in pairwise(pieces)]
                ranks = [ranked.index(pair) if pair in ranked else len(ranked) for pair in pairs]
                if min(ranks) == len(ranked):
                    break
                place = ranks.index(min(ranks))
                pieces[place : place + 2] = [pairs[place]]
            if part.encode() in ranked:
                pieces = [part.encode()]
            told += [ranked.index(piece) + 5 for piece in pieces]
        return told

    for own in (read_vocabulary(folder), tokenizer_named(str(folder / "tekken.json"))):
        assert own is not None
        for sample in (*SAMPLES, " the animé"):
            assert [token.id for token in own.encode(sample)] == ids(sample)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_sentencepiece_file_alone_cuts_as_itself(kind: str, tmp_path: Path) -> None:
    model = sentence_pieces(kind)
    (tmp_path / "my.spm").write_bytes(model)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    own = tokenizer_named(str(tmp_path / "my.spm"))
    for sample in SAMPLES:
        assert [token.id for token in own.encode(sample)] == library.encode(sample), sample


@pytest.mark.parametrize("specials", [(), ROBERTA], ids=["GPT-2's", "RoBERTa's"])
def test_merges_of_bytes_alone_cut_as_their_library_does(
    specials: tuple[str, ...], tmp_path: Path
) -> None:
    for name, content in merges(*specials).items():
        (tmp_path / name).write_text(str(content))
    files = [str(tmp_path / name) for name in ("vocab.json", "merges.txt")]
    library = tokenizers.ByteLevelBPETokenizer.from_file(*files)
    for own in (tokenizer_named(str(tmp_path)), tokenizer_named(files[1])):
        for sample in SAMPLES[:4]:
            told = [token.id for token in own.encode(sample) if not token.added]
            assert told == library.encode(sample).ids, sample
        assert bool(specials) == own.encode("a")[0].added


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"vocab.json": '{"Ġa": 0}'}, "merges.txt beside vocab.json"),
        ({"vocab.json": '{"a</w>": 0}', "merges.txt": "#version: 0.2\n"}, "whose rule is known"),
        ({"x.tiktoken": "IQ== 0\nIg== 1\n"}, "same model"),
        ({"tokenizer.model": "IQ== 0\nIg== 1\n"}, "same model"),
        ({"sentencepiece.bpe.model": b"x"}, "whose rule is known"),
        ({"config.json": '{"model_type": "gpt2"}', "vocab.txt": "[UNK]\n"}, "whose rule is known"),
    ],
    ids=["no merges", "characters", "tiktoken", "Llama 3's", "shifted ids", "words for pieces"],
)
def test_a_vocabulary_that_says_too_little_is_told_without_a_command(
    files: Files, said: str, tmp_path: Path
) -> None:
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(raw)
    path = tmp_path / "x.tiktoken" if "x.tiktoken" in files else tmp_path
    with pytest.raises(InputError) as error:
        tokenizer_named(str(path))
    assert said in str(error.value.expected)
    assert "python" not in str(error.value.hint)


SPECIAL_WORDS = {
    "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "pad_piece": "<pad>",
    "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
}  # fmt: skip
TOLD: dict[str, tuple[str, Callable[[], Files], bool]] = {
    "albert": ("albert", lambda: {"spiece.model": sentence_pieces("unigram", **SPECIAL_WORDS)}, True),
    "xlm-roberta": ("xlm-roberta", lambda: {"sentencepiece.bpe.model": sentence_pieces("unigram")}, True),
    "camembert": ("camembert", lambda: {"sentencepiece.bpe.model": sentence_pieces("unigram")}, True),
    "mbart": ("mbart", lambda: {"sentencepiece.bpe.model": sentence_pieces("unigram")}, True),
    "pegasus": ("pegasus", lambda: {"spiece.model": sentence_pieces("unigram", **T5)}, True),
    "deberta": ("deberta", lambda: merges("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"), True),
    "mpnet": ("mpnet", lambda: {"vocab.txt": "<s>\n<pad>\n</s>\n<mask>\n" + words(lower=True)}, True),
    "whisper": ("whisper", lambda: merges("<|endoftext|>"), True),
    "byt5": ("t5", lambda: {"tokenizer_config.json": '{"tokenizer_class": "ByT5Tokenizer"}'}, False),
    "canine": ("canine", dict, False),
    "esm": ("esm", lambda: {"vocab.txt": "<cls>\n<pad>\n<eos>\n<unk>\nL\nA\n<mask>\n"}, False),
}  # fmt: skip
"""Folders that are told a command: the family, the files, and whether it writes tokenizer.json."""


@pytest.mark.many
@pytest.mark.parametrize("name", TOLD)
def test_the_command_that_is_told_works(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    family, files, writes = TOLD[name]
    folder = write(tmp_path / "it's here", family, {}, files())
    assert read_vocabulary(folder) is None
    _, command = missing_tokenizer(folder)
    words_of_command = shlex.split(command)
    assert words_of_command[:2] == ["python", "-c"]
    monkeypatch.setattr(sys, "argv", words_of_command[1:2] + words_of_command[3:])
    exec(compile(words_of_command[2], "hint", "exec"), {})
    if writes:
        assert tokenizer_named(str(folder)).encode("The animal")
    else:
        assert all(word.isdigit() for word in capsys.readouterr().out.split())


@pytest.mark.parametrize("files", [{}, {"vocab.txt": "[UNK]\n"}], ids=["nothing", "not enough"])
def test_a_folder_that_nothing_can_be_made_of_is_told_ids(files: Files, tmp_path: Path) -> None:
    folder = write(tmp_path, "nobody-knows", {}, files)
    with pytest.raises(InputError, match=r"no tokenizer\.json") as error:
        tokenizer_named(str(folder))
    assert "--ids" in str(error.value.hint)
    assert "python" not in str(error.value.hint)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"tokenizer.model": b"no such file"}, "no SentencePiece file"),
        ({"tokenizer.model": sentence_pieces("bpe")[:-1]}, "no SentencePiece file"),
        ({"tekken.json": "{}"}, "no tekken.json"),
        ({"vocab.txt": b"\xff\n"}, "not UTF-8"),
        ({"vocab.json": "{}", "merges.txt": "one\n"}, "not of two tokens"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b\n"}, "no usable vocabulary"),
    ],
)
def test_damaged_files_are_refused_by_what_they_are(
    files: Files, said: str, tmp_path: Path
) -> None:
    family = {"vocab.txt": "bert", "vocab.json": "gpt2"}.get(next(iter(files)), "llama")
    with pytest.raises(InputError, match=said):
        read_vocabulary(write(tmp_path, family, {}, files))


def test_any_end_of_a_sentencepiece_file_is_an_error_or_fewer_pieces() -> None:
    raw = sentence_pieces("bpe")
    whole = read_pieces(raw, "file").pieces
    for end in range(0, len(raw), 37):
        try:
            pieces = read_pieces(raw[:end], "file").pieces
        except InputError:
            continue
        assert pieces == whole[: len(pieces)]


def test_a_vocabulary_in_the_hubs_cache_is_read_through_its_links(tmp_path: Path) -> None:
    repository = tmp_path / "models--owner--name"
    folder = repository / "snapshots" / ("0" * 40)
    (repository / "blobs").mkdir(parents=True)
    folder.mkdir(parents=True)
    files = {"config.json": '{"model_type": "bert"}', "vocab.txt": words(lower=True)}
    for number, (name, content) in enumerate(files.items()):
        (repository / "blobs" / str(number)).write_text(content)
        (folder / name).symlink_to(Path("../../blobs") / str(number))
    checkpoint = Checkpoint.describe(folder)
    assert checkpoint.vocabulary_name == "vocab.txt"
    first, *_ = tokenizer_of(checkpoint).encode("the street")
    assert first.text == "[CLS]"


def test_marks_of_an_encoding_are_no_part_of_a_vocabulary(tmp_path: Path) -> None:
    """Editors of Windows put them in front; packed files are called that."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    alphabet = {letter: code for code, letter in enumerate(letters)}
    vocabulary = json.dumps({**alphabet, "he": 256}).encode()
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "vocab.json").write_bytes(codecs.BOM_UTF8 + vocabulary)
    (tmp_path / "merges.txt").write_bytes(codecs.BOM_UTF8 + b"#version: 0.2\r\nh e\r\n")
    told = ask("tokens", "he", "--tokenizer", str(tmp_path), "--json").json
    assert [token["id"] for token in told["tokens"]] == [256]
    (tmp_path / "merges.txt").write_bytes(gzip.compress(b"h e\n"))
    assert "packed with gzip" in ask("tokens", "he", "--tokenizer", str(tmp_path)).err
    whole = tmp_path / "marked.json"
    words = tokenizers.models.WordLevel({"<unk>": 0, "he": 1}, unk_token="<unk>")
    tokenizers.Tokenizer(words).save(str(whole))
    whole.write_bytes(codecs.BOM_UTF8 + whole.read_bytes())
    assert ask("tokens", "he", "--tokenizer", str(whole), "--json").json["tokens"][0]["id"] == 1
    whole.write_bytes(gzip.compress(whole.read_bytes()))
    assert "packed with gzip" in ask("tokens", "he", "--tokenizer", str(whole)).err
