"""What several documents have in common: tokens, model, attention, arrays of numbers."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def described(schema: Schema, says: str) -> Schema:
    """The schema with its description."""
    return {**schema, "description": says}


def record(properties: Schema, *, optional: tuple[str, ...] = (), says: str = "") -> Schema:
    """An object with exactly these members, all required but the optional ones."""
    found: Schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
    return described(found, says) if says else found


def listed(items: Schema, says: str = "") -> Schema:
    """A list of such items."""
    found: Schema = {"type": "array", "items": items}
    return described(found, says) if says else found


def or_null(schema: Schema) -> Schema:
    """The same, or null."""
    if "type" in schema and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SIZE: Schema = {"type": "integer", "minimum": 1}
WEIGHT: Schema = {"type": "number", "minimum": 0, "maximum": 1.00001, "description": "An attention weight, 0 to 1."}

VECTOR = listed(or_null(NUMBER))
MATRIX = listed(VECTOR)
NESTED: Schema = {
    "description": "Numbers, or lists of lists of them.",
    "anyOf": [or_null(NUMBER), {"type": "array", "items": {"$ref": "#/$defs/nested"}}],
}

TOKEN = record(
    {
        "index": described(COUNT, "Position in the text, from 0."),
        "text": TEXT,
        "id": described({"type": ["integer", "null"]}, "Id in the vocabulary; null where the tokenizer has none."),
        "start": described(
            {"type": ["integer", "null"]}, "First character in the text, from 0; null for a token that is not in it."
        ),
        "end": described({"type": ["integer", "null"]}, "Character after the last."),
        "special": described(FLAG, "Whether the tokenizer added it, such as [CLS]."),
    }
)
TOKENS = listed(TOKEN, "The tokens in order.")

MODEL = record(
    {
        "source": {"enum": ["seeded", "random", "file", "checkpoint", "tensors"]},
        "name": or_null(TEXT),
        "family": or_null(TEXT),
        "seed": described(
            {"type": ["integer", "null"]}, "The seed of the weights; null when they come from elsewhere."
        ),
        "d_model": described({"type": ["integer", "null"]}, "Width of a token's vector; null for captured tensors."),
        "layers": SIZE,
        "heads": SIZE,
        "kv_heads": SIZE,
        "d_k": described(SIZE, "Width of a query and a key."),
        "d_v": described(SIZE, "Width of a value."),
        "digest": described(or_null(TEXT), "sha256 of the weights; null where it was not computed."),
    },
    says="Which weights ran, and their sizes.",
)

ATTENTION = record(
    {
        "scale": described(or_null(NUMBER), "What q·k is multiplied by."),
        "softcap": or_null(NUMBER),
        "mask": TEXT,
        "mask_says": described(TEXT, "The mask in words: which keys a query sees, and what its numbers count."),
        "position": TEXT,
        "backend": TEXT,
        "dtype": described(TEXT, "The type of the numbers."),
        "compute_dtype": described(
            TEXT, "A wider type that they were computed in before they were rounded; absent where there was none."
        ),
        "hashing": described(
            TEXT, "reformer:BUCKETS,ROUNDS,CHUNK where hash attention ran; absent for dense attention."
        ),
    },
    optional=("mask_says", "compute_dtype", "hashing"),
    says="The conventions that ran; where layers differ, each with its layers: `causal (1, 3-5), window:4 (0, 2)`.",
)

SHAPES = listed(
    record({"step": TEXT, "axes": listed(TEXT), "shape": listed(COUNT), "formula": TEXT}),
    "The shape trace: every step of one layer, with its axes and their sizes.",
)
LINK = record({"layer": COUNT, "head": COUNT, "query": COUNT, "key": COUNT, "weight": WEIGHT})
EMPTY_ROWS = listed(
    record({"layer": COUNT, "head": COUNT, "query": COUNT}),
    "Queries that see nothing: their weights and outputs are 0.",
)
RESOURCES = record(
    {
        "bytes_read": described(COUNT, "Bytes of weights read for this text; 0 for weights already in memory."),
        "memory_estimate": described(COUNT, "Bytes this run was expected to take at its peak, besides the program."),
        "peak_memory": described(
            or_null(COUNT), "The most bytes the process held; of checkpoints only, null where the system is silent."
        ),
    },
    optional=("peak_memory",),
    says="What the run took.",
)
WARNINGS = listed(TEXT)
VERSION = described(TEXT, "The version of attn that wrote the document.")


def named(name: str) -> Schema:
    """The member `schema` of a document."""
    return {"const": name}
