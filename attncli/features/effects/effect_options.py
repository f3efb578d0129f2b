"""What the commands about effects have in common: places in a text, what is measured, which heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from attncli.arrays.backend import numbers_of
from attncli.cli import completion, declarations, request
from attncli.cli.environment import Environment
from attncli.cli.options import TEXT, ComputeOptions, ModelOptions, option, redeclare
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.features.effects.document import Measure
    from attncli.features.effects.places import HeadSelection
    from attncli.inputs.token import Token
    from attncli.mechanism.spec import Spec
    from attncli.models.model import Model

VERSUS = option("--versus", help="Take this token's logit away from the target's.", panel=TEXT, metavar="TOK")
QUERY = redeclare(
    declarations.QUERY,
    help="Where to measure: it, the:2, #7 or a span. [default: decoders the last token; encoders the mean of all]",
    panel=TEXT,
)


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured."""

    measure: Annotated[
        str | None,
        option(
            "--measure",
            help="vector, logprob, kl; several with commas. [default: vector]",
            panel=TEXT,
            metavar="NAMES",
            complete=completion.several("vector", "logprob", "kl"),
        ),
    ] = None
    query: Annotated[str | None, QUERY] = None
    target: Annotated[str | None, declarations.TARGET] = None
    every: Annotated[
        bool, option("--every", help="With --measure logprob: the mean over all positions.", panel=TEXT)
    ] = False


def measures(options: MeasureOptions) -> tuple[Measure, ...]:
    """The measures named, each once. Raises UsageError."""
    from attncli.features.effects.measures import MEASURES

    names = [name.strip() for name in (options.measure or "vector").split(",") if name.strip()]
    chosen_measures = tuple(measure for name in names for measure in MEASURES if measure == name)
    if len(chosen_measures) != len(names) or not names:
        wrong = next((name for name in names if name not in MEASURES), options.measure)
        raise UsageError(f"--measure {wrong!r} is no measure", expected=", ".join(MEASURES))
    if "logprob" not in chosen_measures:
        if options.every:
            raise UsageError("--every is about log-probabilities", expected="--measure logprob as well")
        if options.target is not None:
            raise UsageError("--target is about log-probabilities", expected="--measure logprob as well")
    if options.every and options.target is not None:
        raise UsageError("--every measures each token that follows", expected="no --target")
    if options.every and options.query is not None and "vector" not in chosen_measures:
        raise UsageError("--every measures at every token, and --query names one", expected="one or the other")
    return tuple(dict.fromkeys(chosen_measures))


def choose_heads(spec: Spec, model: ModelOptions) -> HeadSelection:
    """The heads that `--layer` and `--head` name, all without them; `--head L5H11,L3H1` names each with its layer.

    Raises UsageError for what is neither, InputError for a head that is not there.
    """
    from attncli.features.effects.places import HeadSelection, most_heads

    words = request.comma_parts(model.head)
    if request.are_head_pairs(words):
        return HeadSelection((), (), request.head_pairs(spec, words, model.layer))
    layers = request.numbers(model.layer, "layer", len(spec.blocks))
    heads = request.numbers(model.head, "head", most_heads(spec))
    return HeadSelection(numbers_of(layers, len(spec.blocks)), numbers_of(heads, most_heads(spec)))


def span(
    environment: Environment, tokens: Sequence[Token], reference: str, *, unknown: bool = False
) -> tuple[int, ...]:
    """The positions that a reference names. Raises InputError for tokens that the model does not know, unless `unknown`
    allows them."""
    first, stop = request.query_span(environment, tokens, reference, unknown=unknown)
    return tuple(range(first, stop))


PATIENCE = 3.0
"""Seconds above which it is said before it starts what a command will take."""


def foretell(
    environment: Environment,
    model: Model,
    count: int,
    heads: HeadSelection,
    compute: ComputeOptions,
    *,
    predicts: bool,
    compared: int = 0,
) -> None:
    """Say what taking these heads away will take, where that is long. predicts: whether next tokens are measured.
    compared: how many of them, at most, are compared with random changes."""
    from attncli.draw.numbers import size_words
    from attncli.features.effects.ablation import DRAWS
    from attncli.features.effects.places import places
    from attncli.features.effects.sweep import foretell as foretold

    if not model.own_layers:
        return
    chosen_places, dtype = places(model.spec, heads), model.backend.dtype
    expected = foretold(
        model.spec,
        count,
        chosen_places,
        dtype,
        memory(compute),
        predicts=predicts,
        draws=min(compared, len(chosen_places)) * DRAWS,
    )
    if expected.seconds > PATIENCE:
        environment.note(
            f"{expected.branches} heads, {count} tokens: about {expected.seconds:.0f} s and "
            f"{size_words(expected.bytes)} of memory"
        )


def memory(compute: ComputeOptions) -> int:
    """Bytes that the command may take: `--max-memory`, or what is free."""
    from attncli.cli.output import parse_size
    from attncli.models.estimate import free_memory

    return free_memory().bytes if compute.max_memory is None else parse_size(compute.max_memory, "--max-memory")
