"""`attn.model/1`: what one checkpoint does."""

from __future__ import annotations

from attncli.render.schema import parts

PART = parts.or_null(
    {
        "type": "object",
        "properties": {"kind": parts.TEXT},
        "required": ["kind"],
        "description": "A part of the model: its kind and its settings.",
    }
)
ATTENTION = parts.record(
    {
        "heads": parts.SIZE,
        "kv_heads": parts.SIZE,
        "d_k": parts.SIZE,
        "d_v": parts.SIZE,
        "scale": parts.described(parts.NUMBER, "What q·k is multiplied by."),
        "softcap": parts.or_null(parts.NUMBER),
        "sinks": parts.described(parts.FLAG, "Whether a learned sink per head takes part in the softmax."),
        "mask": parts.described(parts.TEXT, "As --mask spells it."),
        "mask_says": parts.described(parts.TEXT, "The mask in words."),
        "position": PART,
        "qk_norm": PART,
    }
)
GROUP = parts.record(
    {
        "layers": parts.listed(parts.COUNT, "The layers that are alike."),
        "attention": ATTENTION,
        "cross": parts.or_null(ATTENTION),
        "mlp": PART,
        "norms": {"type": "object", "additionalProperties": PART, "description": "Normalizations by place."},
        "parallel": parts.described(parts.FLAG, "Whether attention and feed-forward read the same input."),
        "residual": parts.FLAG,
    }
)
SIDE = parts.record(
    {
        "d_model": parts.SIZE,
        "vocabulary": parts.SIZE,
        "layers": parts.SIZE,
        "max_positions": parts.or_null(parts.SIZE),
        "embedding": PART,
        "groups": parts.listed(GROUP, "Layers that do the same stand together."),
        "final_norm": PART,
        "head": PART,
    }
)
ESTIMATE = parts.record(
    {
        "tokens": parts.SIZE,
        "layers": parts.COUNT,
        "bytes_read": parts.COUNT,
        "multiply_adds": parts.COUNT,
        "memory": {
            "type": "object",
            "additionalProperties": parts.COUNT,
            "description": "Bytes at the peak, by what they are for.",
        },
        "peak_memory": parts.COUNT,
        "seconds": parts.NUMBER,
        "rule": parts.described(parts.TEXT, "How the seconds were reckoned."),
    }
)
SCHEMA = parts.record(
    {
        "schema": parts.named("attn.model/1"),
        "version": parts.VERSION,
        "name": parts.TEXT,
        "source": {"enum": ["folder", "package", "cache", "hub"]},
        "folder": parts.TEXT,
        "revision": parts.or_null(parts.TEXT),
        "family": parts.TEXT,
        "tokenizer": parts.described(parts.FLAG, "Whether there is a tokenizer.json."),
        "fetched": parts.described(parts.FLAG, "Whether the weights are on this machine."),
        "tensors": parts.COUNT,
        "parameters": parts.COUNT,
        "bytes": {
            "type": "object",
            "additionalProperties": parts.COUNT,
            "description": "Bytes of weights by data type.",
        },
        "spec": SIDE,
        "decoder": parts.or_null(SIDE),
        "estimate": parts.or_null(ESTIMATE),
        "warnings": parts.WARNINGS,
    },
    says="What a checkpoint does, from its config.json and the headers of its weight files.",
)
