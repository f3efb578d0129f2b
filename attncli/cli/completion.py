"""What a shell may offer for the beginning of a value; each list is made when a shell asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from attncli.errors import AttnError
from attncli.render.screen_parts import PARTS_OF

TENSOR_FILES = (".safetensors", ".npz", ".pt", ".pth")

Complete = Callable[[typer.Context, str], Iterable[str]]


def words(*known: str) -> Complete:
    """These words."""
    return lambda ctx, incomplete: known


def several(*known: str) -> Complete:
    """These words, the last of several apart by commas."""
    return lambda ctx, incomplete: _after_comma(incomplete, known)


def offer(complete: Complete) -> Callable[[typer.Context, str], list[str]]:
    """What of a list begins as the word that is typed, as Typer asks for it."""

    def offered(ctx: typer.Context, incomplete: str) -> list[str]:
        return [value for value in complete(ctx, incomplete) if value.startswith(incomplete)]

    return offered


def pages(ctx: typer.Context, incomplete: str) -> list[str]:
    """The pages of the guide."""
    del ctx, incomplete
    from attncli.guide import titles

    return list(titles("en"))


def orders(ctx: typer.Context, incomplete: str) -> list[str]:
    """The metrics to sort heads by; after a colon, the direction."""
    from attncli.analysis.metric_topic import metric_names

    del ctx
    name, colon, _ = incomplete.partition(":")
    return [f"{name}:asc", f"{name}:desc"] if colon else metric_names()


def metric(ctx: typer.Context, incomplete: str) -> list[str]:
    """The metrics, one of them."""
    return orders(ctx, incomplete.partition(":")[0])


def tokenizers(ctx: typer.Context, incomplete: str) -> list[str]:
    """The tokenizers that need no file, and the tokenizer files below what is typed."""
    del ctx
    return ["word", "whitespace", "char", "byte", *_files(incomplete, (".json",))]


def masks(ctx: typer.Context, incomplete: str) -> list[str]:
    """The kinds of mask, with a colon where numbers follow."""
    del ctx
    from attncli.mechanism.mask_spec import KINDS

    begun, bar, _ = incomplete.rpartition("|")
    return [
        f"{begun}{bar}{name}{':' if any(spelling.counts) or not spelling.counts else ''}"
        for name, (spelling, _) in KINDS.items()
    ]


def models(ctx: typer.Context, incomplete: str) -> list[str]:
    """The aliases, and the checkpoints in the hub's cache."""
    del incomplete
    from attncli.inputs.hub_cache import all_cached, cache_folder
    from attncli.models.aliases import ALIASES

    cached = [found.name for found in all_cached(cache_folder(_variables(ctx)))]
    return [*ALIASES, *cached]


def metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """The metrics of heads, the last of several apart by commas."""
    del ctx
    from attncli.analysis.metric_topic import metric_names

    return _after_comma(incomplete, [*metric_names(), "all"])


def parts(ctx: typer.Context, incomplete: str) -> list[str]:
    """The parts of this command's screen, the last of several apart by commas; none where a saved document has its
    own."""
    words = ctx.command_path.split()
    of_scan = {"start": "scan", "show": "scan"}
    name = of_scan.get(words[-1], "") if "scan" in words[:-1] else {"text": "explain"}.get(words[-1], words[-1])
    known = PARTS_OF.get(name)
    return [] if known is None else _after_comma(incomplete, [*known, "all"])


def schemas(ctx: typer.Context, incomplete: str) -> list[str]:
    """The documents that have a schema."""
    del ctx, incomplete
    from attncli.analysis.documents.json_schema import SCHEMAS

    return list(SCHEMAS)


def tensor_prefixes(ctx: typer.Context, incomplete: str) -> list[str]:
    """The beginnings, up to a full stop, of the names of the tensors in the file that was named before."""
    del ctx
    from attncli.inputs.tensors import tensor_file

    # an option that still lacks its value keeps Typer from reading the arguments before it
    words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
    file = next((word for word in words if word.endswith(TENSOR_FILES) and Path(word).is_file()), None)
    try:
        names = [] if file is None else [info.name for info in tensor_file(Path(file)).listed]
    except AttnError:
        return []
    at = len(incomplete)
    ends = ((name, name.find(".", at)) for name in names if name.startswith(incomplete))
    return sorted({name[: end + 1] if end >= 0 else name for name, end in ends})


def _after_comma(incomplete: str, known: Iterable[str]) -> list[str]:
    begun, comma, _ = incomplete.rpartition(",")
    taken = begun.split(",")
    return [f"{begun}{comma}{name}" for name in known if name not in taken]


def _files(incomplete: str, endings: tuple[str, ...]) -> list[str]:
    folder = Path(incomplete).parent if incomplete else Path()
    try:
        return [str(path) for path in sorted(folder.iterdir()) if path.suffix in endings or path.is_dir()]
    except OSError:
        return []


def _variables(ctx: typer.Context) -> dict[str, str]:
    return dict(getattr(ctx.obj, "variables", None) or os.environ)
