"""Tokenizers built from the vocabulary that a GGUF file brings: byte-pair merges, SentencePiece's
two kinds of scores, word pieces, Gemma 4's merges of characters.

How a text is cut before the merges stands in no file, only a name of it; the patterns are those
that the tokenizers of these names have.

Source: GGUF's `tokenizer.ggml.*` keys; the patterns of GPT-2, Llama 3, Qwen 2, StarCoder, Tekken,
o200k, Falcon, DeepSeek, Seed and Kimi as their own tokenizer.json files have them; the names are
those of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from attncli.errors import InputError, UnsupportedError
from attncli.inputs.gguf_file import Metadata
from attncli.inputs.string_table import Array, StringTable
from attncli.inputs.text_vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    WORTH_PARTS,
    Merge,
    PairScheme,
    TextVocabulary,
    add_tokens,
    check_different,
    splits,
)
from attncli.inputs.vocabulary_tokenizer import (
    PartTokenizer,
    PieceTokenizer,
    alphabet,
    from_tokenizers,
)
from attncli.language import message

KINDS = ("gpt2", "llama", "bert", "t5", "gemma4")
"""Kinds of vocabularies, `tokenizer.ggml.model`."""
JOINED = (NORMAL, USER_DEFINED, UNUSED)
"""Types of tokens that are made of others."""
SPACE = "▁"

# parts of several patterns: what is no letter; 's and the like; letters of a word up to its first
# small one, and from there on; what may stand before a word
_END = r"\p{N}{digits}| ?[^\s\p{L}\p{N}]+[\r\n{slash}]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ELISION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"


def _without_letters(digits: str, slash: str = "") -> str:
    """The second half of several pre-tokenizers' patterns, which cuts what is no letter: digits,
    punctuation and blanks.

    digits: how many digits are cut together, as a regular expression writes it: "{1,3}", or "" for
        one at a time.
    slash: a character that punctuation may end with, as it may with line ends.
    """
    return _END.replace("{digits}", digits).replace("{slash}", slash)


GPT2: tuple[str, ...] = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
)
LLAMA3 = (rf"{_ELISION}|{_BEFORE}\p{{L}}+|" + _without_letters("{1,3}"),)
QWEN2 = (rf"{_ELISION}|{_BEFORE}\p{{L}}+|" + _without_letters(""),)
QWEN35 = (
    rf"{_ELISION}|{_BEFORE}[\p{{L}}\p{{M}}]+|"
    + _without_letters("").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"),
)
STARCODER = (r"\p{N}", *GPT2)
TEKKEN = (rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|" + _without_letters("", "/"),)
_CASED = rf"{_BEFORE}{_UPPER}*{_LOWER}+{_ELISION}?|{_BEFORE}{_UPPER}+{_LOWER}*{_ELISION}?|"
O200K = (_CASED + _without_letters("{1,3}", "/"),)
BLOOM = (r" ?[^(\s|.,!?…。，、।۔،)]+",)
FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", *GPT2)
UNNAMED = (r"[\p{P}\$\+<=>\^~\|]+", *GPT2, r"\p{N}+", "[0-9][0-9][0-9]")
_ASCII_SIGN = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_KANA = "[一-龥぀-ゟ゠-ヿ]+"
DEEPSEEK3 = (
    r"\p{N}{1,3}", _KANA,
    rf"{_ASCII_SIGN}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
)  # fmt: skip
_HAN = "[一-龥\u0800-一가-\ud7ff]+"
# letters that have a case, less the scripts and signs that its list passes over
_LISTED = (
    "\u0560-\u0588\u10c7-\u10ff\u1c80-\u1c8a\u2d00-\u2d2f\ua790-\ua7ff\uab30-\uab6f\U00010570-\U000105bc"
    "\U00010d50-\U00010d85\U00016e40-\U00016ed3\U0001d400-\U0001d7cb\U0001df00-\U0001df96"
)
DEEPSEEK_LLM = (
    r"[\r\n]", rf"\s?[[\p{{Lu}}\p{{Ll}}\p{{Lt}}ʕ]&&[^{_LISTED}]]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
    r"\s+$", _HAN, r"\p{N}+",
)  # fmt: skip
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN, r"\p{N}")
SEED = (
    rf"{_ELISION}|{_BEFORE}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
)
BAILING = (
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}|"
        r" ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
)
KIMI = (
    r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    rf"{_ELISION}?|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]+"
    rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]*{_ELISION}?|" + _without_letters("{1,3}"),
)

PATTERNS = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "roberta-bpe", "exaone4"), GPT2),
    **dict.fromkeys(("jina-v1-en", "jina-v2-code", "jina-v2-es", "jina-v2-de", "jina-es", "jina-de"), GPT2),
    **dict.fromkeys(("gigachat", "a.x-4.0", "mellum", "modern-bert", "granite-docling"), GPT2),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "dbrx", "smaug-bpe", "chatglm-bpe"), LLAMA3),
    **dict.fromkeys(("glm4", "glm5", "lfm2", "falcon-h1", "pixtral", "midm-2.0", "jina-v5-nano"), LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"), QWEN2),
    **dict.fromkeys(("kormo", "f2llmv2", "solar-open", "grok-2"), QWEN2),
    "qwen35": QWEN35,
    **dict.fromkeys(("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"), STARCODER),
    "mellum2": STARCODER,
    "tekken": TEKKEN,
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "granite-embed-multi-97m"), O200K),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), BLOOM),
    "viking": (*BLOOM, r"\p{N}"),
    "falcon": FALCON,
    "default": UNNAMED,
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm"), DEEPSEEK3),
    "deepseek-llm": DEEPSEEK_LLM,
    "deepseek-coder": DEEPSEEK_CODER,
    "seed-coder": SEED,
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), BAILING),
    "superbpe": (r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
    "kimi-k2": KIMI,
}  # fmt: skip
"""What a text is cut by before the merges, by `tokenizer.ggml.pre`: each pattern cuts the pieces of
the one before.
"""
AFTER_BYTES = {FALCON: (r"\p{N}+", "[0-9][0-9][0-9]")}
"""What cuts the pieces once bytes are spelled as characters, some of which are digits by their
looks.
"""
WHOLE_WORDS = (LLAMA3, TEKKEN, O200K)
"""Those whose vocabularies take a word that they hold as it is, whatever the merges would make of
it.
"""
COMPOSED = ("qwen2", "qwen35", "command-r", "olmo", "mpt", "modern-bert")
"""Those whose texts are composed (Unicode's NFC) before they are cut, as the tokenizers of Qwen,
Cohere and GPT-NeoX do; a file does not say.
"""
BEGIN_BY_SILENCE = (
    *(
        "llama3",
        "llama-v3",
        "llama-bpe",
        "falcon3",
        "falcon-h1",
        "pixtral",
        "midm-2.0",
        "lfm2",
        "jina-v5-nano",
    ),
    "tekken",
)
"""Those whose texts begin with the first token where the file does not say."""


def gguf_tokenizer(metadata: Metadata, name: str) -> PieceTokenizer | None:
    """The tokenizer of a GGUF file; None for one without a vocabulary.

    metadata: the file's.
    name: its path, for errors.

    Raises UnsupportedError for a kind that is not implemented, InputError for a vocabulary that
    contradicts itself.
    """
    kind = metadata.text("tokenizer.ggml.model", "none")
    tokens = metadata.texts("tokenizer.ggml.tokens")
    if kind in ("none", "no_vocab") or not tokens:
        return None
    types = _token_types(metadata, len(tokens), name)
    # vocabularies of pairs can be built in part, as a text needs them; the other kinds are built
    # whole, and completed below
    match kind:
        case "gpt2":
            return pairs_tokenizer(
                _BytePairs(metadata, tokens, name), metadata, tokens, types, name
            )
        case "llama":
            return pairs_tokenizer(
                _ScoredPairs(metadata, tokens, types, name), metadata, tokens, types, name
            )
        case "gemma4":
            return pairs_tokenizer(
                _MergedPieces(metadata, tokens, types, name), metadata, tokens, types, name
            )
        case "bert":
            hf = _word_pieces(metadata, tokens)
        case "t5":
            hf = _likely_pieces(metadata, tokens, types.tolist(), name)
        case _:
            raise UnsupportedError(
                "the vocabulary is of the kind {kind}",
                where=name,
                expected=", ".join(KINDS),
                hint=message("--ids runs a model without its vocabulary"),
                kind=repr(kind),
            )
    check_different(tokens, len(set(tokens)), name)
    # control tokens and the user's own are found in a text before it is cut
    is_control = {
        token: token_type == CONTROL
        for token, token_type in zip(tokens, types.tolist(), strict=True)
        if token_type in (CONTROL, USER_DEFINED) and token
    }
    add_tokens(hf, is_control)
    _SpecialEnds(metadata, tokens, kind, name).complete(hf)
    return from_tokenizers(hf, name)


def pairs_tokenizer(
    scheme: PairScheme, metadata: Metadata, tokens: StringTable, types: Array, name: str
) -> PieceTokenizer:
    """The tokenizer of a vocabulary whose pieces are joined in pairs. Of a large one, only the
    pieces that a text needs are built.

    scheme: how the vocabulary cuts a text.
    metadata: the file's, which name the special tokens around a text.
    tokens: the pieces by id.
    types: what kind each piece is, [token].
    name: the file, for errors.
    """
    ends = _SpecialEnds(metadata, tokens, scheme.kind, name)
    vocabulary = TextVocabulary(scheme, tokens, types, ends.specials.values(), ends.complete, name)
    if len(tokens) < WORTH_PARTS:
        return from_tokenizers(vocabulary.whole(), name)
    return PartTokenizer(vocabulary, name)


def _token_types(metadata: Metadata, count: int, name: str) -> Array:
    """The kind of each token, [token]; all are normal in a file that states none. Raises InputError
    where it states some, and not one for each."""
    types = np.asarray(metadata.numbers("tokenizer.ggml.token_type"), np.int64)
    if not types.size:
        return np.full(count, NORMAL)
    if len(types) != count:
        what = message(
            "the vocabulary has {tokens:,} tokens and {types:,} types",
            tokens=count,
            types=len(types),
        )
        raise InputError(what, where=name, expected="as many of either")
    return types


class _BytePairs(PairScheme):
    """GPT-2's byte-pair scheme: bytes in an alphabet of printable characters, joined in the order of
    the file's merges."""

    kind = "gpt2"

    def __init__(self, metadata: Metadata, tokens: StringTable, name: str) -> None:
        """The scheme of a GGUF file, `name`. Raises UnsupportedError where the file says that texts
        are cut by a pattern that is not listed here."""
        pattern_name = metadata.text("tokenizer.ggml.pre", "gpt-2")
        if pattern_name not in PATTERNS:
            raise UnsupportedError(
                "its texts are cut by the pattern {pattern}",
                where=name,
                expected=", ".join(PATTERNS),
                hint=message("--ids runs a model without its vocabulary"),
                pattern=repr(pattern_name),
            )
        self._patterns = PATTERNS[pattern_name]
        self._name = name
        self._composes_characters = pattern_name in COMPOSED
        self._merges = metadata.texts("tokenizer.ggml.merges")

    def tokenizer(self, ids: Mapping[str, int], merges: Sequence[Merge]) -> tokenizers.Tokenizer:
        """A tokenizer with these pieces, by their ids, and these merges in the order of their rank,
        without added tokens."""
        # where true, a word that is itself a piece is taken whole, whatever merges would make of it
        takes_words_whole = self._patterns in WHOLE_WORDS
        model = models.BPE(vocab=dict(ids), merges=list(merges), ignore_merges=takes_words_whole)
        hf = tokenizers.Tokenizer(model)
        if self._composes_characters:
            hf.normalizer = normalizers.NFC()  # a letter and its accent become one character
        hf.pre_tokenizer = pre_tokenizer_of(self._patterns)
        hf.decoder = decoders.ByteLevel()
        return hf

    def characters(self, text: str) -> Iterable[str]:
        """The characters that any text is spelled with here: one for each of the 256 bytes."""
        return alphabet()

    def merges(self, ids: Mapping[str, int]) -> list[Merge]:
        """The merges among these pieces, by their place in the file's list."""
        # every way to join two pieces to a third, as the file writes merges; `find` gives those that
        # are in its list, in the list's order
        pairs = {f"{left} {right}".encode(): (left, right) for left, right in splits(ids.keys())}
        return [pairs[merge] for merge, _ in self._merges.find(pairs)]

    def every_merge(self, ids: Mapping[str, int]) -> list[Merge]:
        """All merges of the file. Raises InputError for a merge of pieces that the vocabulary does
        not hold.
        """
        return _listed_merges(self._merges, ids, self._name)


def _listed_merges(lines: Sequence[str], ids: Mapping[str, int], name: str) -> list[Merge]:
    """The merges that a file lists, each "left right". Raises InputError for a merge of pieces that
    the vocabulary does not hold.
    """
    merges = []
    for line in lines:
        left, _, right = line.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            what = message(
                "the merge {merge} joins what the vocabulary does not hold", merge=repr(line[:80])
            )
            raise InputError(what, where=name, expected="two tokens that make a third")
        merges.append((left, right))
    return merges


def pre_tokenizer_of(patterns: tuple[str, ...]) -> pre_tokenizers.Sequence:
    """The pre-tokenizer that cuts a text into pieces by these patterns, one after the other, and
    then spells each piece in the alphabet of bytes; some patterns (`AFTER_BYTES`) cut once more
    after that."""

    def cuts(expressions: tuple[str, ...]) -> list[pre_tokenizers.PreTokenizer]:
        """A pre-tokenizer for each expression; what it matches becomes a piece of its own."""
        return [pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions]

    by_byte = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    after = cuts(AFTER_BYTES.get(patterns, ()))
    return pre_tokenizers.Sequence([*cuts(patterns), by_byte, *after])


def _token_scores(metadata: Metadata, count: int, name: str) -> Array:
    """A score for each token, [token], from the file. Raises InputError where there is not one for
    each."""
    scores = np.asarray(metadata.numbers("tokenizer.ggml.scores"), np.float64)
    if len(scores) != count:
        what = message(
            "the vocabulary has {tokens:,} tokens and {scores:,} scores",
            tokens=count,
            scores=len(scores),
        )
        raise InputError(what, where=name, expected="as many of either")
    return scores


class _ScoredPairs(PairScheme):
    """SentencePiece's byte-pair scheme: of all neighbours that together make a piece, those whose
    piece has the highest score are joined first."""

    kind = "llama"

    def __init__(self, metadata: Metadata, tokens: StringTable, types: Array, name: str) -> None:
        """The scheme of a GGUF file, `name`.

        tokens: the pieces by id.
        types: what kind each piece is, [token].

        Raises InputError where the file does not give a score to each piece.
        """
        self._scores = _token_scores(metadata, len(tokens), name)
        self._types = types
        # the token for a character that cannot be spelled; None in a vocabulary without one
        self._unknown = None
        unknown_ids = np.flatnonzero(types == UNKNOWN)
        if unknown_ids.size:
            self._unknown = tokens[int(unknown_ids[0])]
        # a character without a piece is spelled by its bytes where the vocabulary has those
        self._falls_back = bool((types == BYTE).any())
        # a blank is put before each text unless the file forbids it
        self._begins = metadata.flag("tokenizer.ggml.add_space_prefix") is not False

    def tokenizer(self, ids: Mapping[str, int], merges: Sequence[Merge]) -> tokenizers.Tokenizer:
        """A tokenizer with these pieces, by their ids, and these merges in the order of their rank,
        without added tokens."""
        model = models.BPE(
            vocab=dict(ids),
            merges=list(merges),
            unk_token=self._unknown,
            fuse_unk=True,  # as SentencePiece: unknown characters in a row are one token
            byte_fallback=self._falls_back,
        )
        hf = tokenizers.Tokenizer(model)
        spaces = normalizers.Replace(" ", SPACE)
        if self._begins:
            hf.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces])
        else:
            hf.normalizer = spaces
        hf.decoder = _piece_decoder(self._begins)
        return hf

    def characters(self, text: str) -> Iterable[str]:
        """The text's own characters and the one for a blank."""
        return {*text, SPACE}

    def merges(self, ids: Mapping[str, int]) -> list[Merge]:
        """The merges among these pieces by the score of what they make."""
        # control tokens, bytes and the unknown token are not made of other pieces
        pieces = {piece for piece, number in ids.items() if self._types[number] in JOINED}
        scores = self._scores

        def rank(pair: Merge) -> tuple[float, int, int]:
            """The sort key of a pair: the highest score of the joined piece comes first, then the
            lower ids of its halves."""
            left, right = pair
            return -scores[ids[left + right]], ids[left], ids[right]

        # `splits` gives each two pieces that together spell a third
        return sorted(splits(pieces), key=rank)

    every_merge = merges


class _MergedPieces(PairScheme):
    """Gemma 4's byte-pair scheme: characters, with a sign for blanks, joined in the order of the
    file's merges; lines and the breaks between them are cut apart before, and a character without a
    piece is spelled by its bytes.

    Source: Gemma 4's tokenizer.json; llama.cpp's vocabulary of this name, which takes a run of line
    breaks that the vocabulary holds as one token whether or not a merge makes it.
    """

    kind = "gemma4"

    def __init__(self, metadata: Metadata, tokens: StringTable, types: Array, name: str) -> None:
        self._merges = metadata.texts("tokenizer.ggml.merges")
        self._name = name
        # the token for a character that cannot be spelled; None in a vocabulary without one
        self._unknown = None
        unknown_ids = np.flatnonzero(types == UNKNOWN)
        if unknown_ids.size:
            self._unknown = tokens[int(unknown_ids[0])]

    def tokenizer(self, ids: Mapping[str, int], merges: Sequence[Merge]) -> tokenizers.Tokenizer:
        """A tokenizer with these pieces, by their ids, and these merges in the order of their rank,
        without added tokens."""
        unknown_token = None
        if self._unknown in ids:  # a part of the vocabulary may do without it
            unknown_token = self._unknown
        model = models.BPE(
            vocab=dict(ids),
            merges=list(merges),
            unk_token=unknown_token,
            fuse_unk=True,  # as SentencePiece: unknown characters in a row are one token
            byte_fallback=True,
        )
        hf = tokenizers.Tokenizer(model)
        hf.normalizer = normalizers.Replace(" ", SPACE)
        # lines and the breaks between them are cut apart, so that no piece has letters of both
        hf.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), "isolated")
        hf.decoder = _piece_decoder(begins=False)
        return hf

    def characters(self, text: str) -> Iterable[str]:
        """The text's own characters and the one for a blank."""
        return {*text, SPACE}

    def merges(self, ids: Mapping[str, int]) -> list[Merge]:
        """The merges among these pieces, by their place in the file's list."""
        # every way to join two pieces to a third, as the file writes merges; `find` gives those that
        # are in its list, in the list's order
        pairs = {f"{left} {right}".encode(): (left, right) for left, right in splits(ids.keys())}
        merges = [pairs[merge] for merge, _ in self._merges.find(pairs)]
        return merges + self._line_breaks(ids, merges)

    def every_merge(self, ids: Mapping[str, int]) -> list[Merge]:
        """All merges of the file. Raises InputError for a merge of pieces that the vocabulary does
        not hold.
        """
        merges = _listed_merges(self._merges, ids, self._name)
        return merges + self._line_breaks(ids, merges)

    @staticmethod
    def _line_breaks(ids: Mapping[str, int], merges: Sequence[Merge]) -> list[Merge]:
        """The merges that build each run of line breaks in the vocabulary, without merges that the
        file already states."""
        breaks = {piece for piece in ids if piece and not piece.strip("\n")}
        # shorter runs first, each pair once
        pairs = dict.fromkeys(sorted(splits(breaks), key=lambda pair: len("".join(pair))))
        if not pairs:
            return []  # most calls: no set of all merges is made
        stated = set(merges)
        return [pair for pair in pairs if pair not in stated]


def _piece_decoder(begins: bool) -> decoders.Sequence:
    """The decoder that joins pieces to a text.

    begins: whether a blank was put before the text, which is taken off again.
    """
    strip = []
    if begins:
        strip = [decoders.Strip(content=" ", left=1, right=0)]
    return decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )


def _likely_pieces(
    metadata: Metadata, tokens: Sequence[str], types: Sequence[int], name: str
) -> tokenizers.Tokenizer:
    """A tokenizer by SentencePiece's unigram scheme: of all ways to cut a text, the one whose
    scores have the highest sum.

    Source: Kudo, Subword regularization, 2018.
    """
    scores = _token_scores(metadata, len(tokens), name).tolist()
    least = min(scores)
    # a text must not be cut into control tokens and the like: the library has no other way to say
    # so than a score far below all others
    parts = [
        (token, score if kind in (NORMAL, USER_DEFINED) else least - ABSENT)
        for token, score, kind in zip(tokens, scores, types, strict=True)
    ]
    unknown_id = None
    if UNKNOWN in types:
        unknown_id = types.index(UNKNOWN)
    hf = tokenizers.Tokenizer(models.Unigram(parts, unk_id=unknown_id, byte_fallback=BYTE in types))
    # a blank is put before each text unless the file forbids it
    begins = metadata.flag("tokenizer.ggml.add_space_prefix") is not False

    # what is done to a text before it is cut, in SentencePiece's order
    steps: list[Any] = []
    table = metadata.get("tokenizer.ggml.precompiled_charsmap")
    if isinstance(table, np.ndarray) and table.size:
        try:
            steps.append(normalizers.Precompiled(table.astype(np.uint8).tobytes()))
        except Exception as error:
            raise InputError(
                "its table of characters is not one of SentencePiece's",
                where=name,
                expected=message("a whole file"),
            ) from error
    if metadata.flag("tokenizer.ggml.remove_extra_whitespaces"):
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    if begins:
        steps.append(normalizers.Prepend(SPACE))
    hf.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    hf.decoder = _piece_decoder(begins)
    return hf


ABSENT = 1000.0
"""How far below all others the score of a token is that no text is cut into."""


def _word_pieces(metadata: Metadata, tokens: Sequence[str]) -> tokenizers.Tokenizer:
    """A tokenizer by BERT's WordPiece scheme. The file marks the beginnings of words where BERT's
    vocabulary marks what continues one."""
    vocabulary = {_bert_spelling(token): place for place, token in enumerate(tokens)}
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    if isinstance(unknown, int) and 0 <= unknown < len(tokens):
        unknown_token = tokens[unknown]
    else:
        unknown_token = "[UNK]"
    hf = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown_token))
    # the file does not say; a vocabulary without capitals, but for special tokens such as [CLS],
    # can only be of a model that reads none
    lower = not any(token[:1] != "[" and token != token.lower() for token in vocabulary)
    hf.normalizer = normalizers.BertNormalizer(lowercase=lower)
    hf.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    hf.decoder = decoders.WordPiece()
    return hf


def _bert_spelling(token: str) -> str:
    """A token of the file as BERT's vocabulary spells it: `##` before what continues a word."""
    if token.startswith(SPACE):
        return token[1:]
    if token.startswith("[") and token.endswith("]"):
        return token
    return f"##{token}"


class _SpecialEnds:
    """The special tokens that a GGUF file asks for at the beginning and the end of a text.

    specials: their ids by text.
    """

    def __init__(self, metadata: Metadata, tokens: Sequence[str], kind: str, name: str) -> None:
        """Find the tokens for the beginning and the end of a text in a file's metadata.

        tokens: the vocabulary's, by id.
        kind: of the vocabulary, such as "llama".
        name: the file, for errors.
        """
        self._metadata = metadata
        self._tokens = tokens
        self._kind = kind
        self._name = name
        self.specials: dict[str, int] = {}
        # whether texts get them: as the file says, else as is usual for this kind of vocabulary
        begin = metadata.flag("tokenizer.ggml.add_bos_token")
        end = metadata.flag("tokenizer.ggml.add_eos_token")
        if kind == "gemma4":
            begin = True  # whatever the file says, as llama.cpp has it
        if begin is None:
            begin = (
                kind in ("llama", "bert") or metadata.get("tokenizer.ggml.pre") in BEGIN_BY_SILENCE
            )
        if end is None:
            end = kind in ("bert", "t5")

        # which tokens they are; None for none
        self._first = None
        if begin:
            self._first = self._token_of(("cls_token_id", "bos_token_id"))
        self._last = None
        if end:  # the first key is misspelt in the format itself
            self._last = self._token_of(
                ("seperator_token_id", "separator_token_id", "eos_token_id")
            )

    def _token_of(self, keys: tuple[str, ...]) -> str | None:
        """The token whose id stands under the first of these keys that the file has; None where it has
        none of them. Raises InputError for an id out of range.

        keys: those that only BERT's vocabularies have, then the usual one.
        """
        if self._kind == "bert":
            possible_keys = keys
        else:
            possible_keys = keys[-1:]
        for key in possible_keys:
            number = self._metadata.get(f"tokenizer.ggml.{key}")
            if number is None:
                continue
            if not isinstance(number, int) or not 0 <= number < len(self._tokens):
                what = message(
                    "the metadata set {key} to {value}",
                    key=f"tokenizer.ggml.{key}",
                    value=repr(number)[:80],
                )
                expected = message("an id from 0 to {last}", last=len(self._tokens) - 1)
                raise InputError(what, where=self._name, expected=expected)
            token = self._tokens[number]
            if self._kind == "bert":
                token = _bert_spelling(token)
            self.specials[token] = number
            return token
        return None

    def complete(self, hf: tokenizers.Tokenizer) -> None:
        """Make a tokenizer put these special tokens at the beginning and the end of a text, and
        around both texts of a pair; nothing where the file asks for none."""
        before = []
        if self._first is not None:
            before = [self._first]
        after = []
        if self._last is not None:
            after = [self._last]
        if not before and not after:
            return
        # in the library's notation $A and $B are the two texts, and ":1" gives a token the type 1
        hf.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            pair=[*before, "$A", *after, "$B:1", *(f"{token}:1" for token in after)],
            special_tokens=list(self.specials.items()),
        )
