"""`attn learn`: train a small attention model on a task, watch it form, and keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from attncli.cli import completion, declarations, request
from attncli.cli.declarations import ComputeOptions, OutputOptions, PagedOutput, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import (
    SUBJECT,
    argument,
    compute_number,
    delivery_number,
    delivery_option,
    model_number,
    model_option,
    redeclare,
    without,
)
from attncli.cli.output import validate_options, write_pieces, write_with_figure
from attncli.errors import UsageError
from attncli.inputs.files import is_folder
from attncli.language import message

MOST_STEPS, MOST_SEEDS, MOST_SNAPSHOTS = 1_000_000, 1000, 1000
"""Steps, seeds and checkpoints of a training at most."""


def learn(
    ctx: typer.Context,
    output: Annotated[PagedOutput, without("precision", "top", "max_output")],
    task: Annotated[
        str | None,
        argument(
            "induction, lookup, order, previous, translate, sentence, text; none lists them.",
            "TASK",
            completion.words(
                "induction", "lookup", "order", "previous", "translate", "sentence", "text"
            ),
        ),
    ] = None,
    source: Annotated[
        str | None,
        argument("The sentence of the task sentence, the file of the task text.", "TEXT|FILE"),
    ] = None,
    query: Annotated[
        str | None,
        redeclare(
            declarations.QUERY, help="sentence: the word at which it is said.", panel=SUBJECT
        ),
    ] = None,
    target: Annotated[
        str | None,
        redeclare(declarations.TARGET, help="sentence: the word that is said.", panel=SUBJECT),
    ] = None,
    layers: Annotated[
        int | None, model_number(help="Number of layers. [default: the task's]", most=24)
    ] = None,
    num_heads: Annotated[
        int | None,
        redeclare(declarations.NUM_HEADS, help="Number of heads. [default: the task's]", most=64),
    ] = None,
    d_model: Annotated[
        int | None,
        redeclare(
            declarations.D_MODEL, help="Width of the token vectors. [default: 32]", most=1024
        ),
    ] = None,
    mlp: Annotated[
        bool | None,
        model_option("--mlp/--no-mlp", help="A feed-forward part in each layer. [default: no]"),
    ] = None,
    bottleneck: Annotated[
        bool, model_option(help="translate: the decoder sees one vector of the encoder's alone.")
    ] = False,
    seed: Annotated[
        int,
        redeclare(
            declarations.SEED_NUMBER,
            help="Seed of the first weights and of the texts.",
            most=1_000_000_000,
        ),
    ] = 0,
    seeds: Annotated[
        int,
        model_number(help="So many seeds, from --seed on, one after the other.", most=MOST_SEEDS),
    ] = 1,
    mask: Annotated[
        list[str] | None,
        redeclare(declarations.MASK, help="What queries see. [default: causal; sentence: all]"),
    ] = None,
    scale: Annotated[str | None, declarations.SCALE] = None,
    position: Annotated[
        str | None,
        redeclare(
            declarations.POSITION,
            help="learned, sinusoidal, rope, alibi or none. [default: the task's]",
        ),
    ] = None,
    steps: Annotated[
        int | None, compute_number(help="Steps of training. [default: the task's]", most=MOST_STEPS)
    ] = None,
    batch: Annotated[
        int | None, compute_number(help="Texts of each step. [default: the task's]", most=4096)
    ] = None,
    learning_rate: Annotated[
        float | None,
        redeclare(declarations.LEARNING_RATE, help="Of AdamW. [default: the task's]"),
    ] = None,
    save: Annotated[
        Path | None,
        delivery_option(help="Keep the model as a checkpoint in this folder.", metavar="DIR"),
    ] = None,
    snapshots: Annotated[
        int,
        delivery_number(
            help="Also keep so many checkpoints on the way, in DIR/step-N.",
            least=0,
            most=MOST_SNAPSHOTS,
        ),
    ] = 0,
    force: Annotated[bool, delivery_option(help="Write into a folder that is there.")] = False,
) -> None:
    """Train a small attention model on a task in seconds, and see which heads form.

    attn learn

    attn learn induction

    attn learn induction --save my-model

    attn learn sentence "今天 我 的 计划 是 买菜" --query 计划 --target 买菜
    """
    environment: Environment = ctx.obj
    # a folder that is there already cannot be another output's file
    new_folder = None if save is not None and is_folder(save) else save
    view = validate_options(output, environment, "learn", files={"--save": new_folder})
    if task is None:
        _refuse_options_of_training(environment)
        from attncli.features.learn.compute import tasks_document

        write_with_figure([tasks_document()], output, environment, view)
        return
    if save is None and (snapshots or force):
        if snapshots:
            name = "--snapshots"
        else:
            name = "--force"
        raise UsageError(
            message("{option} is about a folder, and none is written", option=name),
            expected=message("--save DIR as well"),
        )
    from attncli.features.learn import compute as training_of_tasks
    from attncli.features.learn.live_screen import live_training

    request_of_task = training_of_tasks.LearnRequest.of(
        task,
        _text(environment, training_of_tasks.task_named(task).takes, source),
        query=query,
        target=target,
        architecture={
            "layers": layers,
            "heads": num_heads,
            "d_model": d_model,
            "position": position,
            "scale": scale,
            "mlp": mlp,
            "mask": request.mask(mask) if mask else None,
        },
        seed=seed,
        seeds=seeds,
        steps=steps,
        batch=batch,
        rate=learning_rate,
        bottleneck=bottleneck,
        note=environment.note,
    )
    request.refuse_memory(
        training_of_tasks.training_bytes(request_of_task), ComputeOptions(), "--batch 8"
    )
    expected = training_of_tasks.refuse_long(request_of_task)
    with live_training(environment, view, request_of_task, expected.all) as training:
        document = training_of_tasks.learn(
            request_of_task,
            save=save,
            snapshots=snapshots,
            force=force,
            on_moment=training.show,
            on_step=training.glance,
            is_over=training.is_over,
            ends_early=True,
            keep=training.keeps,
        )
    if output.page is not None:
        from attncli.features.learn.screen import learn_page

        content = learn_page(document, view.lang, training.maps())
        assert content is not None  # a training has at least the maps of its end
        write_pieces(output.page, [content])
    # the page is written: it must not be asked of the document, which has fewer maps
    write_with_figure([document], replace(output, html=None), environment, view)


def _refuse_options_of_training(environment: Environment) -> None:
    """Raise UsageError for an option about training beside no task, where `attn learn` only lists
    the tasks.
    """
    for name in environment.spellings:
        if name in environment.explicit_options and name not in OutputOptions.__struct_fields__:
            raise UsageError(
                message(
                    "{option} is about a training, and no task is named",
                    option=environment.spellings[name],
                ),
                expected=message("a task, such as induction"),
                hint="attn learn",
            )


def _text(environment: Environment, takes: str, source: str | None) -> str | None:
    """The text that a task is made of, from the command's second argument: a sentence, or the
    content of a file ("-" for standard input). None without one; for a task that takes neither, the
    argument as it is, which the task then refuses.

    takes: "TEXT", "FILE" or "", as the task says.
    """
    if source is None or not takes:
        return source
    if takes == "TEXT":
        return request.one_text(environment, TextOptions(text=source)).text
    if source == "-":
        options = TextOptions(text="-")
    else:
        options = TextOptions(file=Path(source))
    return request.one_text(environment, options).text


learn_app = command_app(
    learn,
    essentials=(
        "--query --target --layers --num-heads --position --steps --seeds --save --html --json"
    ),
)
