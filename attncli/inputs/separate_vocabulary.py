"""Tokenizers built from the files that stand where tokenizer.json is missing.

Source: for each class of tokenizers the one of this name in transformers; mistral-common for
tekken.json.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from msgspec import Struct
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from attncli.errors import InputError
from attncli.inputs.files import foreign_file, guarded_path, read_object
from attncli.inputs.gguf_file import Metadata
from attncli.inputs.gguf_tokenizer import GPT2, QWEN2, gguf_tokenizer, pairs_tokenizer
from attncli.inputs.sentencepiece_file import PAIRS, UNIGRAM, read_pieces
from attncli.inputs.string_table import StringTable
from attncli.inputs.text_vocabulary import CONTROL, NORMAL, Merge, PairScheme, splits
from attncli.inputs.vocabulary_files import (
    BERT_WORDS,
    FILE_LIMIT,
    MERGES,
    PAIRED,
    PIECES_ALONE,
    TEKKEN,
    WORDS,
    VocabularyFolder,
)
from attncli.inputs.vocabulary_tokenizer import (
    PieceTokenizer,
    alphabet,
    from_tokenizers,
    run_guarded,
)
from attncli.language import message

BERT_SPECIALS = {
    "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
}  # fmt: skip
GPT2_SPECIALS = dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>")
ROBERTA_SPECIALS = {
    "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>",
    "pad_token": "<pad>", "mask_token": "<mask>",
}  # fmt: skip
LLAMA_SPECIALS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


class PairRule(Struct, frozen=True):
    """How a class of tokenizers cuts by merges of bytes.

    patterns: what a text is cut by before the merges.
    specials: its special tokens by their role.
    composes: whether texts are composed first (Unicode's NFC).
    ends: whether each text is put between the tokens of the roles cls_token and sep_token.
    """

    patterns: tuple[str, ...]
    specials: Mapping[str, str]
    composes: bool = False
    ends: bool = False


GPT2_RULE = PairRule(GPT2, GPT2_SPECIALS)
ROBERTA_RULE = PairRule(GPT2, ROBERTA_SPECIALS, ends=True)
QWEN2_RULE = PairRule(
    QWEN2, {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}, composes=True
)
PAIR_RULES = {
    **dict.fromkeys(("GPT2Tokenizer", "CodeGenTokenizer"), GPT2_RULE),
    **dict.fromkeys(
        ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer", "MvpTokenizer"),
        ROBERTA_RULE,
    ),
    "Qwen2Tokenizer": QWEN2_RULE,
}  # fmt: skip
SCORED_SPECIALS = {
    **dict.fromkeys(("LlamaTokenizer", "CodeLlamaTokenizer"), LLAMA_SPECIALS),
    "GemmaTokenizer": {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>"},
    "T5Tokenizer": {"unk_token": "<unk>", "eos_token": "</s>"},
    PIECES_ALONE: LLAMA_SPECIALS,
}
"""Special tokens of the classes that cut by SentencePiece's rules alone."""


def read_vocabulary(folder: Path, name: str | None = None) -> PieceTokenizer | None:
    """The tokenizer of a folder without tokenizer.json.

    Args:
        folder: Where the files lie, resolved.
        name: The file of the vocabulary; None for the one whose rule is known here.

    Returns:
        The tokenizer; None where there is no such file, or none that is known to be cut by a rule
        that can be followed here.

    Raises:
        InputError: For files that are damaged or contradict each other.
        LimitError: For one above 256 MiB.
    """
    files = VocabularyFolder.read(folder)
    name = name or files.readable_file()
    if name is None:
        return None
    if name == TEKKEN:
        return _tekken(files)
    if name == WORDS:
        return _words(files)
    if name in (PAIRED, MERGES):
        return _byte_pairs(files)
    return _sentence_pieces(files, name)


def _added_tokens(files: VocabularyFolder) -> dict[int, AddedToken]:
    """The tokens that a folder's files add to its vocabulary, by id, ascending: those of
    added_tokens.json, and those that the settings describe, which win."""
    tokens: dict[int, AddedToken] = {}
    if files.has("added_tokens.json"):
        path = guarded_path(files.folder, "added_tokens.json")
        for text, number in read_object(path, what=message("added tokens")).items():
            if isinstance(number, int):
                tokens[number] = AddedToken(text, normalized=False)
    stated = files.settings.get("added_tokens_decoder")
    if not isinstance(stated, dict):
        stated = {}
    for number, token in stated.items():
        if str(number).isdecimal() and isinstance(token, dict) and "content" in token:
            flags = ("special", "lstrip", "rstrip", "normalized", "single_word")
            chosen = {flag: bool(token.get(flag)) for flag in flags}
            tokens[int(number)] = AddedToken(str(token["content"]), **chosen)
    return dict(sorted(tokens.items()))


# Word pieces, as BERT's models have them.


def _words(files: VocabularyFolder) -> PieceTokenizer | None:
    """The tokenizer of a vocab.txt by BERT's rule; None where the settings name a class with
    another rule, or the vocabulary lacks BERT's special tokens. Raises InputError for a file that
    is no UTF-8."""
    name = files.where(WORDS)
    try:
        lines = files.raw(WORDS).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        wrong_kind_error = foreign_file(files.raw(WORDS)[:64], name, "vocab.txt")
        raise wrong_kind_error or InputError(
            message("this vocabulary is not UTF-8"), where=name, expected="one token a line"
        ) from error
    vocabulary = {token: number for number, token in enumerate(lines)}
    specials = files.specials(BERT_SPECIALS)
    needed = {specials[role] for role in ("unk_token", "cls_token", "sep_token")}
    if files.kind not in BERT_WORDS or not needed <= set(vocabulary):
        return None
    lower = files.settings.get("do_lower_case")
    # where they do not say: a vocabulary without capitals is of a model that reads none; pieces in
    # brackets, such as [unused1], tell nothing
    if not isinstance(lower, bool):
        others = set(vocabulary) - set(specials.values())
        lower = not any(token != token.lower() for token in others if not token.startswith("["))
    strips_accents = files.settings.get("strip_accents")
    if not isinstance(strips_accents, bool):
        strips_accents = None  # to the library: where it makes letters small
    hf = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=specials["unk_token"]))
    hf.normalizer = normalizers.BertNormalizer(
        # BERT sets Chinese characters apart unless the settings say no
        handle_chinese_chars=files.settings.get("tokenize_chinese_chars") is not False,
        strip_accents=strips_accents,
        lowercase=lower,
    )
    hf.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    hf.decoder = decoders.WordPiece()
    _add(hf, files, specials.values(), name)
    _put_between(hf, specials["cls_token"], specials["sep_token"])
    return from_tokenizers(hf, name)


def _add(
    hf: tokenizers.Tokenizer, files: VocabularyFolder, specials: Iterable[str], name: str
) -> None:
    """Add to a tokenizer those special tokens that its vocabulary holds, and the tokens that the
    folder's files add to the vocabulary.

    specials: the spellings of special tokens.
    name: the vocabulary's file, for errors.

    Raises InputError where one of these would have another id than the settings say.
    """
    special_tokens = [
        token for token in dict.fromkeys(specials) if hf.token_to_id(token) is not None
    ]
    hf.add_special_tokens([AddedToken(token, normalized=False) for token in special_tokens])
    # one by one, in the order of their ids: the library gives a new token the next free id
    for number, token in _added_tokens(files).items():
        hf.add_tokens([token])
        if hf.token_to_id(token.content) != number:
            raise InputError(
                "the settings give {token} the id {number}, and the vocabulary {own}",
                where=name,
                expected=message("one id a token, in order, after those of the vocabulary"),
                token=repr(token.content),
                number=number,
                own=hf.token_to_id(token.content),
            )


def _put_between(hf: tokenizers.Tokenizer, first: str | None, last: str | None) -> None:
    """Make a tokenizer put the token `first` before each text and `last` after it, after both texts
    of a pair; None for none."""
    before = []
    if first is not None:
        before = [first]
    after = []
    if last is not None:
        after = [last]
    if not before and not after:
        return
    # in the library's notation $A and $B are the two texts, and ":1" gives a token the type 1
    hf.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, "$B:1", *(f"{token}:1" for token in after)],
        special_tokens=[
            (token, hf.token_to_id(token)) for token in dict.fromkeys((*before, *after))
        ],
    )


# Merges of bytes, as GPT-2's models have them.


def _byte_pairs(files: VocabularyFolder) -> PieceTokenizer | None:
    """The tokenizer of a vocab.json and its merges.txt; None where one of them is missing, or for a
    class whose rule is another."""
    rule = PAIR_RULES.get(files.kind)
    if rule is None or not files.has(PAIRED, MERGES):
        return None
    name = files.where(PAIRED)
    vocabulary = read_object(
        guarded_path(files.folder, PAIRED), what=message("a vocabulary"), limit=FILE_LIMIT
    )
    if files.is_unnamed:
        # GPT-2's rule was assumed, as no class is named: the pieces must speak for a rule of bytes;
        # Ġ spells a blank in the alphabet of bytes; without it pieces are of characters, or words
        if not any("Ġ" in token for token in vocabulary):
            return None
        if set(ROBERTA_SPECIALS.values()) <= vocabulary.keys():
            rule = ROBERTA_RULE
    pairs = _merges(files)
    hf = tokenizers.Tokenizer(
        run_guarded(
            lambda: models.BPE(vocab=vocabulary, merges=pairs),
            message("this is no usable vocabulary of merges"),
            name,
        )
    )
    # whether the first word is read as one with a blank before it
    adds_blank = files.settings.get("add_prefix_space") is True
    if rule.composes:
        hf.normalizer = normalizers.NFC()
    if rule.patterns is GPT2:  # the library has GPT-2's pattern built in
        hf.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=adds_blank)
    else:
        steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
        by_byte = pre_tokenizers.ByteLevel(add_prefix_space=adds_blank, use_regex=False)
        hf.pre_tokenizer = pre_tokenizers.Sequence([*steps, by_byte])
    hf.decoder = decoders.ByteLevel()
    specials = files.specials(rule.specials)
    _add(hf, files, specials.values(), name)
    if rule.ends:
        _put_between(hf, specials["cls_token"], specials["sep_token"])
    else:
        _put_between(hf, *_stated_ends(files, specials))
    return from_tokenizers(hf, name)


def _merges(files: VocabularyFolder) -> list[Merge]:
    """The pairs of a merges.txt, in its order. Raises InputError for a line that is none."""
    try:
        lines = files.raw(MERGES).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        start = files.raw(MERGES)[:64]
        wrong_kind_error = foreign_file(start, files.where(MERGES), "merges.txt")
        raise wrong_kind_error or InputError(
            message("these merges are not UTF-8"),
            where=files.where(MERGES),
            expected=message("two tokens a line"),
        ) from error
    pairs: list[Merge] = []
    for line in lines:
        if not line or line.startswith("#version"):  # the heading that GPT-2's file begins with
            continue
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise InputError(
                message("the merge {merge} is not of two tokens", merge=repr(line[:80])),
                where=files.where(MERGES),
                expected=message("two tokens a line"),
            )
        pairs.append((left, right))
    return pairs


def _stated_ends(
    files: VocabularyFolder, specials: Mapping[str, str], *, begins: bool = False
) -> tuple[str | None, str | None]:
    """The tokens that the settings put before and after each text, (first, last); None for none.

    specials: the spellings of special tokens by role.
    begins: whether there is one before each text where the settings do not say.
    """
    stated = files.settings.get("add_bos_token")
    if isinstance(stated, bool):
        before = stated
    else:
        before = begins
    after = files.settings.get("add_eos_token") is True
    first = None
    if before:
        first = specials.get("bos_token")
    last = None
    if after:
        last = specials.get("eos_token")
    return first, last


# SentencePiece's models.

RANKED = re.compile(rb"[A-Za-z0-9+/]+=* [0-9]+\r?\n")
"""How a vocabulary of tiktoken's begins: bytes in base64, and their rank."""


def _refuse_ranks(raw: bytes, where: str) -> None:
    """Raise InputError for a vocabulary of tiktoken's, which may have a SentencePiece file's name."""
    if RANKED.match(raw):
        raise InputError(
            "this vocabulary of ranked bytes (tiktoken) does not say how texts are cut",
            where=where,
            expected=message("the tokenizer.json of the same model"),
        )


T5_SENTINELS = 100
"""Sentinels `<extra_id_0>` … of a T5 tokenizer whose settings do not say how many."""


def _extra_pieces(files: VocabularyFolder, count: int) -> list[str]:
    """The tokens that a folder's settings add behind the `count` pieces of its SentencePiece file,
    in the order of their ids."""
    extra = [token.content for number, token in _added_tokens(files).items() if number >= count]
    if files.kind != "T5Tokenizer" or extra:
        return extra
    # T5's settings may only say how many sentinels there are; the last one has the first id
    sentinels = files.settings.get("extra_ids", T5_SENTINELS)
    # ten times as many as T5 has would be a fault of the file
    if not isinstance(sentinels, int) or not 0 <= sentinels <= 1000:
        sentinels = T5_SENTINELS
    return [f"<extra_id_{number}>" for number in reversed(range(sentinels))]


def _sentence_pieces(files: VocabularyFolder, name: str) -> PieceTokenizer | None:
    """The tokenizer of a SentencePiece file; None for a class that numbers or cuts otherwise, and
    for a file of another kind under this name."""
    usual = SCORED_SPECIALS.get(files.kind)
    if name.endswith(".tiktoken"):
        usual = LLAMA_SPECIALS  # so that it goes on to `_refuse_ranks`, which says what it is
    # of T5's class, only the file with the usual name is known to be numbered as below
    if usual is None or (files.kind == "T5Tokenizer" and name != "spiece.model"):
        return None
    where = files.where(name)
    raw = files.raw(name)
    _refuse_ranks(raw, where)

    # the pieces, with those that the settings add behind them
    content = read_pieces(raw, where)
    if content.rule == PAIRS and (content.charsmap or content.trims):
        return None  # pairs are cut here from the text as it stands
    if content.rule not in (UNIGRAM, PAIRS):
        return None
    pieces = list(content.pieces)
    types = list(content.types)
    extra = _extra_pieces(files, len(pieces))
    pieces += extra
    types += [CONTROL] * len(extra)  # which no text is cut into, whatever their scores

    # the tokens before and after a text
    specials = files.specials(usual)
    numbers = {piece: number for number, piece in enumerate(pieces)}
    first, last = _stated_ends(
        files, specials, begins=files.kind not in ("T5Tokenizer", PIECES_ALONE)
    )
    if files.kind == "T5Tokenizer":
        first = None
        last = specials["eos_token"]

    # written as the metadata of a GGUF file, whose reader makes the tokenizer; a first or last
    # token that is None, or no piece, is not added
    values = {
        **content.metadata(),
        "tokenizer.ggml.tokens": StringTable.of(pieces),
        "tokenizer.ggml.token_type": np.asarray(types),
        "tokenizer.ggml.scores": np.asarray([*content.scores, *[0.0] * len(extra)]),
        "tokenizer.ggml.add_bos_token": first in numbers,
        "tokenizer.ggml.add_eos_token": last in numbers,
    }
    for key, token in (("bos", first), ("eos", last)):
        if token in numbers:
            values[f"tokenizer.ggml.{key}_token_id"] = numbers[token]
    return gguf_tokenizer(Metadata(values, where), where)


# Mistral's tekken.json: bytes by rank.


class _RankedBytes(PairScheme):
    """Tekken's scheme: of all neighbouring bytes that together make a piece, those whose piece has
    the lowest rank, and so the lowest id, are joined first."""

    kind = "tekken"

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def tokenizer(self, ids: Mapping[str, int], merges: Sequence[Merge]) -> tokenizers.Tokenizer:
        """A tokenizer with these pieces, by their ids, and these merges in the order of their rank,
        without added tokens."""
        # a word that is itself a piece is taken whole, whatever merges would make of it
        model = models.BPE(vocab=dict(ids), merges=list(merges), ignore_merges=True)
        hf = tokenizers.Tokenizer(model)
        hf.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(self._pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        hf.decoder = decoders.ByteLevel()
        return hf

    def characters(self, text: str) -> Iterable[str]:
        """The characters that any text is spelled with here: one for each of the 256 bytes."""
        return alphabet()

    def merges(self, ids: Mapping[str, int]) -> list[Merge]:
        """The merges among these pieces by the rank of what they make.

        ids: the id of each piece, which is its rank: lower ones are merged first. Where several
            pairs make one piece, the pair whose first piece has the lower rank stands first.
        """
        return sorted(splits(ids.keys()), key=lambda pair: (ids["".join(pair)], ids[pair[0]]))

    every_merge = merges


def _tekken(files: VocabularyFolder) -> PieceTokenizer:
    """The tokenizer of a tekken.json: pieces of bytes in the order of their ranks, special tokens
    before them. Raises InputError for a file that is none."""
    where = files.where(TEKKEN)
    path = guarded_path(files.folder, TEKKEN)
    content = read_object(path, what=message("a tekken.json"), limit=FILE_LIMIT)
    # a piece is stored in base64, and spelled here with a character for each of its bytes
    spelling = {byte: char for char, byte in alphabet().items()}
    try:
        config = content["config"]
        count = int(config["default_num_special_tokens"])
        size = int(config["default_vocab_size"]) - count
        pattern = str(config["pattern"])
        # the file may list more pieces than the vocabulary takes
        ranked = sorted(content["vocab"], key=lambda entry: int(entry["rank"]))[:size]
        # (older files list none, or null)
        control = {
            int(entry["rank"]): str(entry["token_str"])
            for entry in content.get("special_tokens") or ()
        }
        raw_pieces = [base64.b64decode(entry["token_bytes"], validate=True) for entry in ranked]
        pieces = ["".join(spelling[byte] for byte in raw) for raw in raw_pieces]
        # <unk>, <s> and </s> are always among the special tokens; ten times as many as Mistral has
        # (1,000) would be a fault of the file
        if not 3 <= count <= 10_000 or len(pieces) != size:
            raise ValueError(count)  # becomes the error below
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise InputError(
            message("this is no tekken.json"),
            where=where,
            expected=message("config with a pattern and numbers of tokens, and vocab with ranks"),
        ) from error

    # special tokens have the first ids; older files do not spell them, and mistral-common spells
    # them so
    usual = dict(enumerate(("<unk>", "<s>", "</s>")))
    specials = [
        control.get(number, usual.get(number, f"<SPECIAL_{number}>")) for number in range(count)
    ]
    # the metadata of a GGUF file that would say the same
    values = {
        "general.architecture": "",  # of a model, which is not here
        # 1 is the usual id of the token that begins a text
        "tokenizer.ggml.bos_token_id": specials.index("<s>") if "<s>" in specials else 1,
        "tokenizer.ggml.add_bos_token": True,
    }
    tokens = StringTable.of([*specials, *pieces])
    types = np.asarray([CONTROL] * count + [NORMAL] * len(pieces))
    return pairs_tokenizer(_RankedBytes(pattern), Metadata(values, where), tokens, types, where)
