"""Spans of tokens tile the text, for every kind of vocabulary and hard texts."""

from itertools import pairwise

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from attncli.inputs.graphemes import clusters
from attncli.inputs.tokenize import tokenizer
from attncli.inputs.vocabulary_tokenizer import alphabet, from_tokenizers

HARD = (
    *(
        "a",
        "e\u0301",
        "é",
        "cafe\u0301",
        "\u0301",
        "ﬁ",
        "½",
        "…",
        "①",
        "ｶﾞ",
        "か\u3099",
        "我",
        "今天",
    ),
    *(
        "\u1112\u1161\u11ab",
        "한",
        "👩\u200d👩\u200d👧",
        "🇫🇷",
        "1\ufe0f\u20e3",
        "ẹ\u0301",
        "e\u0301\u0323",
    ),
    *("\u0915\u093c", "\u0e33", "\u200b", "\ufeff", "\x00", "\x1b", "\u00ad", "\ufffd", "\ud800"),
    *(" ", "  ", "        ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "The", "the", "x", "ing"),
    *("<mask>", " <mask>", "<mask> ", "<s>", "</s>", "<unk>", "▁", "Ġ", "##", "<0xE6>", "!", "'"),
)
TEXTS = st.lists(st.sampled_from(HARD), max_size=7).map("".join)
ADDED = ("<s>", "</s>")
PIECES = [
    "▁",
    "▁the",
    "▁▁",
    "▁▁▁▁",
    "the",
    "The",
    "ing",
    "今天",
    "我",
    "a",
    "e",
    "x",
    "é",
    "fi",
    "n",
]


def with_specials(hf):
    hf.add_special_tokens([*ADDED, "<unk>"])
    hf.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    ids = [(name, hf.token_to_id(name)) for name in ADDED]
    hf.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    return hf


def byte_level(normalizer=None, *, prefix=False, trim=None, family=None):
    merges = [
        ("Ġ", "Ġ"),
        ("ĠĠ", "ĠĠ"),
        ("t", "h"),
        ("th", "e"),
        ("Ġ", "the"),
        ("Ġ", "ð"),
        ("f", "i"),
    ]
    names = [*alphabet(), *(a + b for a, b in merges)]
    hf = tokenizers.Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, merges))
    if normalizer is not None:
        hf.normalizer = normalizer
    hf.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    hf.decoder = decoders.ByteLevel()
    with_specials(hf)
    if family == "roberta":
        ids = [(name, hf.token_to_id(name)) for name in ADDED]
        hf.post_processor = processors.RobertaProcessing(ids[1], ids[0], True, prefix)
    elif trim is not None:
        hf.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=trim), hf.post_processor]
        )
    return hf


def unigram(normalizer=None):
    scores = [("<unk>", 0.0), *((piece, -float(len(PIECES) - i)) for i, piece in enumerate(PIECES))]
    hf = tokenizers.Tokenizer(models.Unigram(scores, 0))
    if normalizer is not None:
        hf.normalizer = normalizer
    hf.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    return with_specials(hf)


def llama(*, begins):
    """SentencePiece's byte pairs with a piece for every byte, as Llama 2 (`begins`) and Gemma."""
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, "h", "t", "th"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "▁"), ("▁▁", "▁▁")]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    hf = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    spaces = normalizers.Replace(" ", "▁")
    hf.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if begins else spaces
    return with_specials(hf)


def word_piece(*, lower):
    names = [
        "<unk>",
        *"aexT!'n我今天é½",
        "the",
        "The",
        "cafe",
        "##ing",
        *(f"##{c}" for c in "aexn\u0301天"),
    ]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    hf = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    hf.normalizer = normalizers.BertNormalizer(lowercase=lower)
    hf.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return with_specials(hf)


def word_level():
    vocabulary = {"<unk>": 0, "the": 1, "我": 2, "a": 3}
    hf = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    hf.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return with_specials(hf)


DIGITS = normalizers.Replace(Regex(" {2,}"), " ")
EXACT = {  # what these read is the text, byte for byte
    "byte level": byte_level(),
    "byte level, trimmed": byte_level(trim=True),
    "byte level, a blank first": byte_level(prefix=True, trim=True),
    "byte level as RoBERTa's": byte_level(family="roberta"),
    "byte pairs of Llama": llama(begins=True),
    "byte pairs of Gemma": llama(begins=False),
}
KEEPS = {  # these change characters and keep all
    "byte level, composed": byte_level(normalizers.NFC()),
    "byte level, compatible": byte_level(normalizers.NFKC(), trim=True),
    "byte level, taken apart": byte_level(normalizers.NFD()),
    "unigram": unigram(),
    "unigram, composed": unigram(normalizers.NFKC()),
    "word level": word_level(),
}
DROPS = {  # these leave out accents, controls or blanks
    "word pieces, uncased": word_piece(lower=True),
    "word pieces": word_piece(lower=False),
    "unigram, blanks joined": unigram(normalizers.Sequence([normalizers.NFKC(), DIGITS])),
}
KINDS = {name: from_tokenizers(hf, name) for name, hf in (EXACT | KEEPS | DROPS).items()} | {
    name: tokenizer(name) for name in ("word", "whitespace", "char", "byte")
}


def own_bytes(token, text):
    if token.utf8 is not None:
        return token.utf8
    return text[token.start : token.end].encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(text=TEXTS)
@example(text="cafe\u0301 sat 👩\u200d👩\u200d👧 我")
@example(text="x         y")
@example(text="\u1112\u1161\u11ab 한 <mask> 🤷")
def test_spans_tile_the_text(kind, text):
    tokens = [token for token in KINDS[kind].encode(text) if not token.added]
    spans = [(token.start, token.end) for token in tokens]
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    assert [end for _, end in spans] == sorted(end for _, end in spans)
    characters = list(clusters(text))
    for (_, end), (start, stop) in pairwise(spans):
        if start < end and start < stop:  # pieces of one character
            assert any(first <= start and end <= last for first, last in characters), (start, end)
    covered = {place for start, end in spans for place in range(start, end)}
    left = [text[place] for place in range(len(text)) if place not in covered]
    if kind not in DROPS and kind != "word":
        assert all(letter.isspace() for letter in left)
    for token in tokens:
        covers = text[token.start : token.end]
        assert token.typed == token.special
        if token.special:
            assert token.text == covers.strip() == covers
            assert not token.unknown
        elif token.utf8 is None:
            assert token.text == covers


@pytest.mark.parametrize("kind", [*EXACT, "byte", "char"])
@settings(deadline=None, max_examples=40)
@given(text=TEXTS)
def test_the_bytes_of_all_tokens_are_the_text_once(kind, text):
    text = text.replace("\ud800", "")
    tokens = [token for token in KINDS[kind].encode(text) if not token.added]
    assert b"".join(own_bytes(token, text) for token in tokens) == text.encode()


def facts(token):
    return {name for name in ("special", "unknown", "added", "typed") if getattr(token, name)}


def test_special_unknown_typed_and_added_are_told_by_id_and_by_the_tokenizer():
    tokens = KINDS["unigram"].encode("<s>the ï <mask><unk>")
    told = [(token.text, facts(token)) for token in tokens]
    assert told == [
        ("<s>", {"special", "added"}),
        ("<s>", {"special", "typed"}),
        ("the", set()),
        (" ", set()),
        ("ï", {"unknown"}),
        ("<mask>", {"special", "typed"}),
        ("<unk>", {"special", "typed"}),
        ("</s>", {"special", "added"}),
    ]
    again = KINDS["unigram"].ids_to_tokens([token.id for token in tokens])
    assert [facts(token) for token in again] == [
        *(
            {"special"},
            {"special"},
            set(),
            set(),
            {"unknown"},
            {"special"},
            {"unknown"},
            {"special"},
        )
    ]


def test_a_token_of_a_pair_has_its_text_and_its_type_of_segment():
    hf = word_level()
    ids = [("<s>", hf.token_to_id("<s>")), ("</s>", hf.token_to_id("</s>"))]
    hf.post_processor = processors.TemplateProcessing(
        single="$A:0 </s>:0 <s>:2", pair="$A:0 </s>:0 $B:1 </s>:1 <s>:2", special_tokens=ids
    )
    kind = from_tokenizers(hf, "as XLNet")
    alone = [(token.text, token.part, token.segment) for token in kind.encode("the a")]
    assert alone == [("the", 0, 0), ("a", 0, 0), ("</s>", 0, 0), ("<s>", 0, 2)]
    both = [
        (token.text, token.part, token.segment, token.start) for token in kind.encode("the", "a")
    ]
    assert both == [
        ("the", 0, 0, 0), ("</s>", 0, 0, None), ("a", 1, 1, 0), ("</s>", 1, 1, None), ("<s>", 1, 2, None),
    ]  # fmt: skip


def test_bytes_of_a_run_cover_their_own_characters() -> None:
    """A vocabulary that falls back on bytes gives all of a run's the whole run."""
    pieces = [("<unk>", 0.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256)), ("cat", -1.0)]
    hf = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokens = from_tokenizers(hf, "bytes").encode("cat她🙂cat")
    spans = [(token.start, token.end) for token in tokens]
    assert spans == [(0, 3), *[(3, 4)] * 3, *[(4, 5)] * 4, (5, 8)]
