"""Which output options do not go together: two files in one place, an output in place of what is
read, looks where nothing is drawn, rows that are cut and shown whole. Nothing that is asked for is
dropped without a word.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attncli.cli.option import EVERYWHERE, OUTPUT, RUN, SCREEN, About
from attncli.errors import AttnError, UsageError
from attncli.language import listing, message, plural

if TYPE_CHECKING:
    from attncli.cli.declarations import OutputOptions
    from attncli.cli.environment import Environment

MODEL_FILES = (
    ".safetensors", ".bin", ".pt", ".pth", ".index.json", ".model", "config.json", "tokenizer.json", "vocab.json",
    "vocab.txt", "merges.txt", "added_tokens.json", "special_tokens_map.json",
)  # fmt: skip
"""How the names of a model's own files end."""
SCAN_FILES = ("plan.json", "scan.json", "shards", "corpus", "duplicates-")
"""How the names of a scan's own files and folders begin, in its folder."""
SPECS = (".npy", ".npz", ".json", ".csv", ".tsv", ".safetensors", ".pt", ".pth")
"""How a file's name ends where words of another meaning may stand in its place."""


def refuse_beside(
    environment: Environment, option: str, names: Collection[str], *, subject: About = RUN
) -> None:
    """Raise UsageError for options on the command line that do not go with `option`, which makes a
    document of another kind, such as `--generate`.

    names: of the parameters that go with it.
    subject: only options that are about one of these are refused.
    """
    out_of_place = [
        environment.spellings[name]
        for name, about in environment.subjects.items()
        if about & subject and name in environment.explicit_options and name not in names
    ]
    if out_of_place:
        what = plural(
            "{out_of_place} does not go with {option}",
            "{out_of_place} do not go with {option}",
            count=len(out_of_place),
            out_of_place=" ".join(out_of_place),
            option=option,
        )
        raise UsageError(what, expected="one or the other")


def refuse_contradictions(options: OutputOptions, environment: Environment, *, files: bool) -> None:
    """Raise UsageError for options on the command line that have no effect on the chosen form of
    the answer, such as options of the screen beside `--json`. Values of variables and settings
    without effect are not refused.

    files: whether anything besides standard output is written, which the options may be about.
    """
    formats = [f"--{name}" for name in ("json", "ndjson", "plain") if getattr(options, name)]
    if options.is_table:
        formats.append("--csv -")
    if len(formats) > 1:
        raise UsageError(
            "{formats} contradict each other",
            expected="one of them",
            formats=listing(formats, " and "),
        )
    # options of the screen may be about a figure, too, and those of tables about a file
    if formats and options.svg is None:
        _refuse_beside_format(options, environment, formats[0])
    elif not formats and not files and options.svg is None:
        _refuse_beside_screen(options, environment)
    if not formats:  # what changes neither the screen nor its answer changes documents alone
        for option in environment.options_without(About.SCREEN | About.BRIEF):
            raise UsageError(
                "{option} is about a document, and none is written",
                expected="--json, --ndjson or --plain",
                option=option,
            )


def check_files(
    options: OutputOptions, environment: Environment, output_files: Mapping[str, Path | None]
) -> None:
    """Raise UsageError where two outputs are the same file, however it is spelled, AttnError where
    one cannot be written.

    output_files: those of the command's own options, by the option.
    """
    from attncli.inputs.files import check_writable, place_of

    files = {
        "--output": options.file,
        "--figure": options.svg,
        "--csv": options.table,
        **output_files,
    }
    name_of_file: dict[str, str] = {}  # the first option that names each file
    for name, path in files.items():
        if path is None:
            continue
        if str(path) == "-":
            raise UsageError(
                "{name} names no file",
                where="-",
                expected="a file; --output - is standard output",
                name=name,
            )
        first_name = name_of_file.setdefault(place_of(path), name)
        # a shell may have sent standard output, where the answer goes, into the same file
        if first_name == name and options.file is None and environment.writes_to(path):
            first_name = message("standard output")
        if first_name != name:
            what = message(
                "{first_name} and {name} are the same file", first_name=first_name, name=name
            )
            raise UsageError(what, where=str(path), expected="a file for each")
        check_writable(path)


def check_inputs(
    parameters: Sequence[Any], values: Mapping[str, Any], environment: Environment
) -> None:
    """Raise UsageError where a command line names one file to be read and to be written: the answer
    would take its place. Nothing is opened.

    Parameters are known by what they declare: those of the group Output with a FILE, and a NEW
    file, are written; all others that name a FILE, a PATH, a folder or a CORPUS are read.

    Args:
        parameters: The command's, as Typer has them.
        values: What was given for each, by name.
        environment: Its settings may name a model, and are themselves a file; its standard input
            may be one.
    """
    from attncli.inputs.files import place_of

    # what is written: the option, the file, and its place, which is the same however it is spelled
    outputs = []
    for parameter in parameters:
        if _is_output(parameter) and values.get(parameter.name) is not None:
            for path in _files_of_output(parameter, Path(values[parameter.name])):
                outputs.append((_parameter_name(parameter), path, place_of(path)))
    if not outputs:
        return

    # what is read
    for parameter in parameters:
        metavar = parameter.metavar
        if _is_output(parameter) or not metavar:
            continue
        value = values.get(parameter.name)
        source = _parameter_name(parameter)
        # the model of the settings is read where the command line names none
        if value is None and parameter.name == "model" and "model" in environment.settings:
            value = environment.settings["model"].value
            source = environment.settings["model"].origin
        for word in value if isinstance(value, list | tuple) else [value]:
            for name, path, place in outputs:
                if word is not None and _reads_file(metavar, word, path, place, environment):
                    _refuse_replacement(name, source, path)
    from attncli.cli.settings import settings_file

    # the settings themselves, which every command reads
    settings = settings_file(environment.variables)
    for name, path, place in outputs:
        if settings is not None and place_of(settings) == place:
            _refuse_replacement(name, "ATTN_CONFIG", path)


def _is_output(parameter: Any) -> bool:
    """Whether what is given for a parameter is a file or folder that is written."""
    panel = getattr(parameter, "rich_help_panel", None)
    return parameter.metavar == "NEW" or (
        panel in (OUTPUT, EVERYWHERE) and parameter.metavar in ("FILE", "DIR")
    )


def _files_of_output(parameter: Any, path: Path) -> list[Path]:
    """The files that an output would replace; of a folder those that hold a scan's plan and
    numbers, or a model.

    A terminal or a pipe loses nothing. A file that is not there yet loses nothing either, but in a
    scan's folder it would be taken for the scan's own.
    """
    if parameter.metavar == "DIR":
        names: tuple[str, ...] = ("model.safetensors", "config.json", "tokenizer.json")
        if parameter.name == "out":  # of `attn scan`
            names = SCAN_FILES
        return [path / name for name in names if os.path.isfile(path / name)]  # noqa: PTH113 - which never fails
    if str(path) == "-":
        return []
    is_new_scan_file = path.name.startswith(SCAN_FILES) and not os.path.lexists(path)
    if is_new_scan_file or os.path.isfile(path):  # noqa: PTH113 - which never fails
        return [path]
    return []


def _parameter_name(parameter: Any) -> str:
    """What a parameter is called on a command line: `--output`, or `FILE` of an argument `[FILE]...`."""
    if parameter.param_type_name == "option":
        return str(parameter.opts[0])
    return str(parameter.metavar.strip("[].").removesuffix("]..."))


def _refuse_replacement(output: str, source: str, path: Path) -> None:
    """Raise the UsageError that the answer would replace a file that is read.

    output, source: the options, or the setting, that name the file as written and as read.
    """
    what = message("{output} would replace what {source} reads", output=output, source=source)
    raise UsageError(what, where=str(path), expected="another file for the answer")


def _reads_file(metavar: str, word: Any, path: Path, place: str, environment: Environment) -> bool:
    """Whether the value `word` of a parameter, whose metavar tells what it may name, is read from
    the file of an output.

    path: that file.
    place: its `place_of`, the same for all spellings.
    """
    # of "[FILE|CORPUS]..." the kinds FILE and CORPUS
    kinds = set(metavar.strip("[].").removesuffix("]").split("|"))
    if str(word) == "-":
        return bool({"FILE", "TEXT", "CORPUS"} & kinds) and _is_standard_input(environment, path)
    if "OUT" in kinds:  # the folder of a scan
        return place in _places_of_scan(Path(word)) or _is_in_scan(Path(word), place)
    if "CORPUS" in kinds:
        return _is_of_corpus(str(word), place)
    if not kinds & {"FILE", "PATH", "DIR"}:
        return False
    names = [str(word).removeprefix("@")]  # `@FILE`, where a word could stand too
    if "FILE@TEMPLATE" in kinds:
        names += str(word).rsplit("@", 1)
    if "DIR" in kinds and (folder := _folder_of_model(str(word), environment)):
        names.append(folder)
    return any(
        place in _places_of_word(name, certain=kinds == {"FILE"}, folder_alone="DIR" in kinds)
        for name in names
    )


def _folder_of_model(name: str, environment: Environment) -> str:
    """The folder on this machine that a model of this name is read from, of a package or in the hub's
    cache; "" where there is none.
    """
    from attncli.models.aliases import local_folder

    # what is wrong with the name is reported by who loads the model
    with suppress(AttnError, OSError, ValueError):
        return str(local_folder(name, environment.variables) or "")
    return ""


def _places_of_word(word: str, *, certain: bool, folder_alone: bool) -> Iterator[str]:
    """The files that a word may name, each as its `place_of` (the same for all spellings): the file
    itself, a model's files in a folder, and those of masks that `&` joins.

    certain: whether it is always a file's name.
    folder_alone: whether it names folders only.
    """
    from attncli.inputs.files import folder_entries, is_folder, place_of

    parts = [word]
    if not certain:
        parts += [part.strip() for part in word.split("&")]
    for part in dict.fromkeys(parts):
        try:
            entries = []
            if is_folder(Path(part)):
                entries = folder_entries(Path(part))
        except (OSError, ValueError, AttnError):  # a text may be no possible name at all
            continue
        yield from (place_of(entry) for entry in entries if entry.name.endswith(MODEL_FILES))
        if certain or (not folder_alone and part.lower().endswith(SPECS)):
            yield place_of(Path(part))


def _places_of_scan(folder: Path) -> Iterator[str]:
    """Yield the places of the files that the plan of a scan names: its corpus and its model. None
    for a folder without a plan.

    folder: that of the scan.
    """
    from attncli.inputs.files import place_of
    from attncli.scan import plan

    try:
        scan_plan = plan.read_plan(folder)
    except AttnError:  # told by who reads it
        return
    # a relative path may be meant from the scan's folder or from the working one: neither is lost
    yield from (place_of(folder / file.path) for file in scan_plan.files)
    yield from (place_of(Path(file.path)) for file in scan_plan.files)
    for name in (scan_plan.model.name, *scan_plan.model.adapters):
        yield from _places_of_word(name, certain=False, folder_alone=True)


def _is_in_scan(folder: Path, place: str) -> bool:
    """Whether a place (see `place_of`) is that of a scan's own file in its folder, whether or not the
    file exists yet."""
    from attncli.inputs.files import place_of

    root = Path(place_of(folder))
    if not Path(place).is_relative_to(root):
        return False
    return Path(place).relative_to(root).as_posix().startswith(SCAN_FILES)


def _is_of_corpus(word: str, place: str) -> bool:
    """Whether a file, folder or pattern of a corpus includes the file of this `place_of`."""
    from attncli.inputs.files import place_of
    from attncli.scan.intake import find_files

    try:
        return any(place_of(Path(name)) == place for name in find_files([word]))
    except (AttnError, OSError, ValueError):  # no corpus: told by who reads it
        return False


def _is_standard_input(environment: Environment, path: Path) -> bool:
    """Whether standard input is this file."""
    try:
        return os.path.samestat(os.fstat(environment.stdin.fileno()), path.stat())
    except (OSError, ValueError):  # the file is not there, or a stream of a test's has no number
        return False


def _refuse_beside_format(options: OutputOptions, environment: Environment, name: str) -> None:
    """Raise UsageError for options of the screen beside a form that draws none.

    name: its option, such as "--json".
    """
    about = About.JSON
    if options.plain or options.is_table:
        about = About.PLAIN
    for option in environment.options_without(about):
        what = message(
            "{option} is about the screen, and {format} draws none", option=option, format=name
        )
        raise UsageError(what, expected="one or the other")
    if options.color == "always" and "color" in environment.explicit_options:
        raise UsageError(
            "--color always does not go with {format}",
            expected="no colour, or a screen",
            format=name,
        )


def _refuse_beside_screen(options: OutputOptions, environment: Environment) -> None:
    """Raise UsageError for options of tables that a short screen does not draw, or draws whole."""
    if options.brief:
        for option in environment.options_without(About.BRIEF, besides=About.SCREEN):
            raise UsageError(
                "{option} is about the tables, and --brief shows none",
                expected="one or the other",
                option=option,
            )
    # where --top is about the JSON too, it has an effect beside --full
    is_ranked = "top" in environment.explicit_options and environment.subjects["top"] == SCREEN
    if options.full and is_ranked:
        raise UsageError(
            "--full shows every row, and --top only the first", expected="one or the other"
        )
