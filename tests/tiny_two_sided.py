"""Tiny checkpoints of encoder-decoders, and of decoders that read what an encoder made; see
`tiny_checkpoints`.
"""

from __future__ import annotations

from tiny_sizes import BART, GEMMA, LED, T5, WHISPER, Case

TWO_SIDED_CASES: dict[str, Case] = {
    "t5": Case("t5", T5, "AutoModelForSeq2SeqLM"),
    "t5 gated": Case("t5", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": Case("mt5", {**T5, "feed_forward_proj": "gated-gelu"}, "AutoModelForSeq2SeqLM"),
    "bart": Case("bart", BART, "AutoModelForSeq2SeqLM"),
    "mbart": Case("mbart", {**BART, "scale_embedding": False}, "AutoModelForSeq2SeqLM"),
    "mbart by silence": Case("mbart", {key: value for key, value in BART.items() if not key.endswith("_id")}),
    "m2m_100": Case("m2m_100", BART, "AutoModelForSeq2SeqLM"),
    "m2m_100 by silence": Case(
        "m2m_100",
        {**{key: value for key, value in BART.items() if "_id" not in key and "scale" not in key}, "d_model": 45},
    ),
    "pegasus": Case("pegasus", {**BART, "pad_token_id": 0}, "AutoModelForSeq2SeqLM"),
    "blenderbot": Case("blenderbot", {**BART, "pad_token_id": 0}, "AutoModelForSeq2SeqLM"),
    "blenderbot by silence": Case("blenderbot", {key: value for key, value in BART.items() if "scale" not in key}),
    "umt5": Case("umt5", T5, "AutoModelForSeq2SeqLM"),
    "umt5 not gated": Case("umt5", {**T5, "feed_forward_proj": "relu"}),
    "whisper": Case("whisper", WHISPER, "AutoModelForSpeechSeq2Seq"),
    "led": Case("led", LED, "AutoModelForSeq2SeqLM"),
    "t5gemma": Case("t5gemma", {"encoder": {**GEMMA, "num_hidden_layers": 2}, "decoder": {**GEMMA, "hidden_size": 24}},
                    "AutoModelForSeq2SeqLM"),
    "marian": Case("marian", {**BART, "decoder_attention_heads": 3, "decoder_start_token_id": 60, "pad_token_id": 60}),
}  # fmt: skip

TWO_SIDED = frozenset(case.model_type for case in TWO_SIDED_CASES.values()) - {"whisper"}
"""The families of both sides; Whisper's encoder reads no text."""
