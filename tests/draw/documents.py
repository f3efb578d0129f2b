"""Documents for the tests of this room: made with loops, so that no screen depends on the code that
computes attention."""

import math
from typing import Any

SENTENCE = [
    "The",
    "animal",
    "didn't",
    "cross",
    "the",
    "street",
    "because",
    "it",
    "was",
    "too",
    "tired",
]


def wave(at: int, spread: float = 1.0) -> float:
    """A number in [-spread, spread] that looks random and is the same everywhere."""
    return spread * math.sin(at * 12.9898 + 78.233 * (at % 7))


def softmax(row: list[float | None]) -> list[float]:
    """Softmax of one row; None is masked."""
    seen = [value for value in row if value is not None]
    if not seen:
        return [0.0] * len(row)
    powers = [0.0 if value is None else math.exp(value - max(seen)) for value in row]
    return [power / sum(powers) for power in powers]


def tokens(words: list[str]) -> list[dict[str, Any]]:
    out, at = [], 0
    for index, word in enumerate(words):
        out.append(
            {
                "index": index,
                "text": word,
                "id": None,
                "start": at,
                "end": at + len(word),
                "special": False,
            }
        )
        at += len(word) + 1
    return out


def scores(count: int, head: int, *, causal: bool = False) -> list[list[float | None]]:
    return [
        [
            None if causal and k > q else wave(1 + q * 31 + k * 7 + head * 101, 3.0)
            for k in range(count)
        ]
        for q in range(count)
    ]


def beginning(name: str, words: list[str], heads: int, layers: int, causal: bool) -> dict[str, Any]:
    return {
        "schema": name,
        "version": "0.1.0",
        "text": " ".join(words),
        "tokens": tokens(words),
        "model": {
            "source": "seeded", "name": None, "family": None, "seed": 0, "d_model": 64, "layers": layers,
            "heads": heads, "kv_heads": heads,
            "d_k": 64 // heads, "d_v": 64 // heads, "digest": "ab" * 32,
        },
        "attention": {
            "scale": (64 // heads) ** -0.5, "softcap": None, "mask": "causal" if causal else "none", "position": "none",
            "backend": "numpy", "dtype": "float32",
        },
    }  # fmt: skip


def run(
    words: list[str] | None = None,
    *,
    heads: int = 1,
    layers: int = 1,
    causal: bool = False,
    width: int = 64,
) -> dict[str, Any]:
    """An `attn.run/1` document."""
    words = SENTENCE if words is None else words
    count = len(words)
    found = [_layer(count, layer, heads, causal, width) for layer in range(layers)]
    links = [
        {"layer": layer["layer"], "head": head["head"], "query": q, "key": k, "weight": weight}
        for layer in found
        for head in layer["heads"]
        for q, row in enumerate(head["weights"])
        for k, weight in enumerate(row)
    ]
    links.sort(key=lambda link: -link["weight"])
    shapes = [
        {"step": "hidden", "axes": ["token", "width"], "shape": [count, width], "formula": "X"},
        {
            "step": "q",
            "axes": ["head", "query", "dim"],
            "shape": [heads, count, 64 // heads],
            "formula": "Q = X·W_Q",
        },
        {
            "step": "k",
            "axes": ["kv", "key", "dim"],
            "shape": [heads, count, 64 // heads],
            "formula": "K = X·W_K",
        },
        {
            "step": "v",
            "axes": ["kv", "key", "v_dim"],
            "shape": [heads, count, 64 // heads],
            "formula": "V = X·W_V",
        },
        {
            "step": "raw",
            "axes": ["head", "query", "key"],
            "shape": [heads, count, count],
            "formula": "S = Q·Kᵀ",
        },
        {
            "step": "masked",
            "axes": ["head", "query", "key"],
            "shape": [heads, count, count],
            "formula": "−∞ where hidden",
        },
        {
            "step": "weights",
            "axes": ["head", "query", "key"],
            "shape": [heads, count, count],
            "formula": "A = softmax(S)",
        },
        {
            "step": "concat",
            "axes": ["query", "concat"],
            "shape": [count, width],
            "formula": "concat(O₁ … O_h)",
        },
    ]
    return {
        **beginning("attn.run/1", words, heads, layers, causal), "shapes": shapes, "layers": found, "links": links[:20],
        "empty_rows": [], "warnings": [],
    }  # fmt: skip


def _layer(count: int, layer: int, heads: int, causal: bool, width: int) -> dict[str, Any]:
    made = []
    for head in range(heads):
        entered = scores(count, head + 17 * layer, causal=causal)
        output = [
            [wave(q * 97 + d * 3 + head, 1.5) for d in range(width // heads)] for q in range(count)
        ]
        made.append(
            {
                "head": head,
                "scores": entered,
                "weights": [softmax(row) for row in entered],
                "output": output,
            }
        )
    return {
        "layer": layer,
        "heads": made,
        "output": [[wave(q * 53 + d + layer, 2.0) for d in range(width)] for q in range(count)],
    }


def heads(words: list[str] | None = None, *, count: int = 8, layers: int = 1) -> dict[str, Any]:
    """An `attn.heads/1` document; the metrics are any numbers, as the screen only shows them."""
    words = SENTENCE if words is None else words
    size = len(words)
    names = ("entropy", "confidence", "distance", "self", "previous", "next")
    found = []
    for layer in range(layers):
        for head in range(count):
            weights = [softmax(row) for row in scores(size, head + 17 * layer)]
            top = max((weights[q][k], q, k) for q in range(size) for k in range(size))
            found.append(
                {
                    "layer": layer, "head": head, "weights": weights, "labels": ["broad"] if head == 2 else [],
                    "metrics": {name: {"value": abs(wave(head * 5 + at)), "rows": size} for at, name in enumerate(
                    names)},
                    "baseline": {name: {"value": 1 / (at + 2), "rows": size} for at, name in enumerate(names)},
                    "top_link": {"query": top[1], "key": top[2], "weight": top[0]},
                }
            )  # fmt: skip
    average = [
        [sum(h["weights"][q][k] for h in found) / len(found) for k in range(size)]
        for q in range(size)
    ]
    return {
        **beginning("attn.heads/1", words, count, layers, False),
        "heads": found,
        "average": {"weights": average},
        "warnings": [],
    }


def _ranked(layers: int, heads: int) -> list[tuple[int, int, float]]:
    """A change for every head, the largest first; that of layer 1 head 2 stands out."""
    found = [
        (layer, head, 0.3 if (layer, head) == (1, 2) else abs(wave(layer * 17 + head * 5, 0.06)))
        for layer in range(layers)
        for head in range(heads)
    ]
    return sorted(found, key=lambda one: -one[2])


def ablate(
    words: list[str] | None = None, *, link: bool = False, layers: int = 3, heads: int = 4
) -> dict[str, Any]:
    """An `attn.ablate/1` document about the last token."""
    words = words or SENTENCE
    last = len(words) - 1
    effects = [
        {
            "attention": "self", "layer": layer, "head": head, "vector": {"cosine": change, "norm": change**0.5},
            "weight": abs(wave(at + 3)) if link else None, "looks": {"key": at % last, "weight": abs(wave(at + 9))},
            "random": {"vector": {"cosine": change / (1 + at), "norm": 0.1}} if at < 5 else None,
        }
        for at, (layer, head, change) in enumerate(_ranked(layers, heads))
    ]  # fmt: skip
    return beginning("attn.ablate/1", words, heads, layers, causal=True) | {
        "by": "knockout" if link else "zero", "measures": ["vector"], "at": {"token": last}, "every": False,
        "position": None, "target": None, "link": {"query": last, "key": 1} if link else None, "effects": effects,
        "together": {"vector": {"cosine": 0.41, "norm": 0.8}}, "warnings": [],
    }  # fmt: skip


def logits(words: list[str] | None = None, *, layers: int = 3, heads: int = 4) -> dict[str, Any]:
    """An `attn.logits/1` document about what follows the last token."""
    words = words or SENTENCE
    parts: list[dict[str, Any]] = [
        {"part": "embedding", "attention": None, "layer": None, "head": None}
    ]
    for layer in range(layers):
        parts += [
            {"part": "head", "attention": "self", "layer": layer, "head": head}
            for head in range(heads)
        ]
        parts += [
            {"part": name, "attention": None, "layer": layer, "head": None}
            for name in ("mlp", "bias")
        ]
    parts = [part | {"value": wave(at, 4.0)} for at, part in enumerate(parts)]
    total = sum(part["value"] for part in parts)
    return beginning("attn.logits/1", words, heads, layers, causal=True) | {
        "at": len(words) - 1, "target": {"id": 7, "text": " sleepy"}, "versus": {"id": 9, "text": " wide"},
        "softcap": None, "logit": total, "sum": total, "parts": parts, "warnings": [],
    }  # fmt: skip


def patch(words: list[str] | None = None, *, layers: int = 3, heads: int = 4) -> dict[str, Any]:
    """An `attn.patch/1` document about the last token."""
    words = words or SENTENCE
    corrupt = [words[0], "cat", *words[2:]]
    effects = [
        {
            "attention": "self",
            "layer": layer,
            "head": head,
            "recovered": 2 * share if head % 3 else -share,
        }
        for layer, head, share in _ranked(layers, heads)
    ]
    return beginning("attn.patch/1", words, heads, layers, causal=True) | {
        "clean": " ".join(words), "corrupt": " ".join(corrupt), "corrupt_tokens": tokens(corrupt), "at": [1],
        "query": [len(words) - 1], "measure": "cosine", "target": None, "versus": None, "m_clean": 1.0,
        "m_corrupt": 0.86, "effects": sorted(effects, key=lambda one: -one["recovered"]), "warnings": [],
    }  # fmt: skip


def answer(
    words: list[str] | None = None, *, regions: int = 3, sentences: int = 3, length: int = 4
) -> dict[str, Any]:
    """An `attn.answer/1` document of a prompt in `regions` parts of equal length, whose answer has
    `sentences` of `length` tokens each; the last part is the rest."""
    words = SENTENCE if words is None else words
    size = len(words) // regions
    names = [*(f"doc{number}" for number in range(1, regions)), "rest"]
    spans = [list(range(size * place, size * (place + 1))) for place in range(regions)]
    spans[-1] = list(range(size * (regions - 1), len(words)))
    changes = sorted(-abs(wave(place)) * (place < regions - 1) for place in range(regions))
    effects = []
    for place, change in enumerate(changes):
        effects.append(
            {
                "region": place,
                "without": [],
                "is_source": place < regions - 1,
                "attention": 1 / (regions + place + 1),
                "even": 1 / regions,
                "logprob": -0.5 + change,
                "change": change,
                "by_sentence": [change * (1 + wave(place + 3 * at)) for at in range(sentences)],
                **({"random": [0.02, -0.04]} if place == 0 else {}),
                "matters": True if place == 0 else None,
            }
        )
    return {
        **beginning("attn.answer/1", words, 2, 1, causal=True),
        "regions": [
            {"name": name, "tokens": span} for name, span in zip(names, spans, strict=True)
        ],
        "cut": "links",
        "answer": {
            "text": " ".join(f"Sentence {number}." for number in range(1, sentences + 1)),
            "generated": True,
            "ended": False,
            "logprob": -0.5,
            "tokens": [
                {"token": {"id": at, "text": f"t{at}"}, "probability": abs(wave(at))}
                for at in range(sentences * length)
            ],
            "sentences": [
                {
                    "text": f"Sentence {number + 1}.",
                    "first": number * length,
                    "stop": (number + 1) * length,
                }
                for number in range(sentences)
            ],
        },
        "effects": effects,
        "seed": 0,
        "warnings": [],
    }
