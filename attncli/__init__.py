"""attn: inspect attention on text, step by step.

    attncli.attention(q, k, v, causal=True)     every stage of one attention, NumPy or torch
    attncli.load("minilm"), attncli.load(seed=0)    a model; `model.trace(text)` yields its layers
    from attncli.metrics import entropy, measure    numbers per head
    attncli.run(model, text), heads, find, ablate, …    what the commands show, as documents

Where things are. The engine, in the order in which data flows; a room imports only rooms above it:
    language    sentences in other languages, with their catalogues; guide/ holds the guide's pages
    errors      what can go wrong, each kind with its exit code
    arrays      what a number is: the operations that NumPy and torch share
    mechanism   what attention is: Spec, masks, positions, the one softmax, one layer, streaming
    inputs      where text and numbers come from: files, tokenizers, checkpoints, downloads
    models      how families differ: config, tensor names, families/, running layer by layer
    documents   how a result is declared: fields, axes, shared parts, schema, reading a saved one
    measure     what weights say: metrics, links, labels, records of a run
    draw        how a result looks: text, tables, matrices, the shaded sentence; figures/, page/
The features, a folder each: command.py, compute.py, document.py, screen.py, figure.py, page.py:
    features/   run, heads, explain, find, effects, why, learn, compare, cross, mask, cost, …
    scan        how a corpus is counted: a plan, shards, workers, what they add up to
    explore     how a run is walked through: the full-screen application
    cli         what all commands have in common: the application, options, output, completion
The names below are imported when first used, so that the command line starts instantly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attncli.version import __version__

if TYPE_CHECKING:
    from attncli import metrics as metrics
    from attncli import topics as topics
    from attncli.errors import AttnError as AttnError
    from attncli.features.answer.compute import answer as answer
    from attncli.features.cache.compute import cache as cache
    from attncli.features.check.compute import check as check
    from attncli.features.circuit.compute import circuit as circuit
    from attncli.features.compare.compute import compare as compare
    from attncli.features.compare_models.compute import compare_models as compare_models
    from attncli.features.cost.compute import cost as cost
    from attncli.features.cross.compute import cross as cross
    from attncli.features.effects.compute import ablate as ablate
    from attncli.features.effects.compute import logits as logits
    from attncli.features.effects.compute import patch as patch
    from attncli.features.effects.pair_effects import ablate_pairs as ablate_pairs
    from attncli.features.effects.pair_effects import logits_pairs as logits_pairs
    from attncli.features.effects.pair_effects import patch_pairs as patch_pairs
    from attncli.features.explain.compute import explain as explain
    from attncli.features.find.compute import find as find
    from attncli.features.find.pair_links import find_pairs as find_pairs
    from attncli.features.generate.compute import generate as generate
    from attncli.features.heads.compute import heads as heads
    from attncli.features.learn.compute import learn as learn
    from attncli.features.mask.compute import mask as mask
    from attncli.features.next.compute import next_word as next_word
    from attncli.features.pairs.compute import pairs as pairs
    from attncli.features.regions.compute import each_region as each_region
    from attncli.features.retrieval.compute import retrieval as retrieval
    from attncli.features.rules.compute import rules as rules
    from attncli.features.run.compute import run as run
    from attncli.features.series.compute import series as series
    from attncli.features.tensors.compute import tensors as tensors
    from attncli.features.tokens.compute import tokens as tokens
    from attncli.features.why.compute import why as why
    from attncli.features.why.pair_reasons import why_pairs as why_pairs
    from attncli.inputs.regions import Region as Region
    from attncli.mechanism.attention import attention as attention
    from attncli.mechanism.context import KnockOut as KnockOut
    from attncli.mechanism.context import Replace as Replace
    from attncli.mechanism.context import Weigh as Weigh
    from attncli.mechanism.context import Zero as Zero
    from attncli.mechanism.edit import Edit as Edit
    from attncli.mechanism.spec import HeadSelection as HeadSelection
    from attncli.mechanism.spec import Spec as Spec
    from attncli.mechanism.trace import AttentionTrace as AttentionTrace
    from attncli.models.load import load as load
    from attncli.scan.corpus_scan import scan_corpus as scan_corpus
    from attncli.scan.open_scan import open_scan as open_scan

__all__ = [
    "AttentionTrace", "AttnError", "Edit", "HeadSelection", "KnockOut", "Region", "Replace", "Spec", "Weigh", "Zero",
    "__version__",
    "ablate", "ablate_pairs", "answer", "attention", "cache", "check", "circuit", "compare", "compare_models", "cost",
    "cross", "each_region", "explain", "find", "find_pairs", "generate", "heads", "learn", "load", "logits",
    "logits_pairs", "mask", "metrics", "next_word", "open_scan", "pairs", "patch", "patch_pairs", "retrieval", "rules",
    "run",
    "scan_corpus", "series", "tensors", "tokens", "topics", "why", "why_pairs",
]  # fmt: skip

_HOMES = {
    "AttentionTrace": "attncli.mechanism.trace",
    "AttnError": "attncli.errors",
    "Edit": "attncli.mechanism.edit",
    "HeadSelection": "attncli.mechanism.spec",
    "KnockOut": "attncli.mechanism.context",
    "Region": "attncli.inputs.regions",
    "Replace": "attncli.mechanism.context",
    "Spec": "attncli.mechanism.spec",
    "Weigh": "attncli.mechanism.context",
    "Zero": "attncli.mechanism.context",
    "ablate": "attncli.features.effects.compute",
    "ablate_pairs": "attncli.features.effects.pair_effects",
    "each_region": "attncli.features.regions.compute",
    "find_pairs": "attncli.features.find.pair_links",
    "why_pairs": "attncli.features.why.pair_reasons",
    "logits_pairs": "attncli.features.effects.pair_effects",
    "patch_pairs": "attncli.features.effects.pair_effects",
    "attention": "attncli.mechanism.attention",
    "load": "attncli.models.load",
    "logits": "attncli.features.effects.compute",
    "next_word": "attncli.features.next.compute",
    "open_scan": "attncli.scan.open_scan",
    "patch": "attncli.features.effects.compute",
    "scan_corpus": "attncli.scan.corpus_scan",
}
"""Where names are that do not stand in `compute.py` of their own feature."""
_MODULES = {"metrics": "attncli.metrics", "topics": "attncli.topics"}


if not TYPE_CHECKING:  # a checker sees the imports above, and no name besides

    def __getattr__(name: str) -> Any:
        """A public name or module of the package, imported when it is first used. Raises AttributeError for any other
        name."""
        from importlib import import_module

        from attncli.results import show_results

        if name in _MODULES:
            show_results()
            return import_module(_MODULES[name])
        if name not in __all__:
            raise AttributeError(f"module 'attncli' has no attribute {name!r}")
        public = getattr(import_module(_HOMES.get(name, f"attncli.features.{name}.compute")), name)
        show_results()
        return public


def __dir__() -> list[str]:
    return __all__
