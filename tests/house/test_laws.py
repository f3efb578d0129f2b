"""The house laws, read off the source."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from inspect import getdoc, isfunction, signature
from pathlib import Path

import pytest
import syntax

import attncli
from attncli.cli.app import COMMANDS
from attncli.documents import NAMES, Document
from attncli.features.learn.tasks import task_class, task_names
from attncli.measure.metric import Metric
from attncli.models.families import MODEL_TYPES
from attncli.models.model import Model

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "attncli"
ROOMS = [
    "version", "language", "errors", "extras", "arrays", "mechanism", "inputs", "models", "documents", "measure",
    "features", "scan", "draw", "explore", "cli",
]  # fmt: skip
"""In the order in which data flows; a room may import only itself and rooms before it."""
COLUMNS = ["features", "scan", "explore"]
"""Where a feature has its folder: its files count as those of the room that does the like for all.
"""
KINDS_OF_FILES = {
    "document": "documents", "compute": "features", "command": "cli",
    "screen": "draw", "screens": "draw", "figure": "draw", "page": "draw", "answer": "draw", "words": "draw",
    "phrase": "draw", "tables": "draw", "site": "draw",
}  # fmt: skip
"""The room whose order a feature's file keeps, by the last word of its name; any other computes."""
LIVE = "live_screen"
"""A screen that is drawn while a command works, and so begins and ends with it: it keeps the order of
cli."""

DOORS = {
    PACKAGE / name
    for name in (
        "__init__.py",
        "__main__.py",
        "metrics.py",
        "notebook.py",
        "results.py",
        "topics.py",
    )
}
"""What callers come in by: in no room."""

SOURCES = sorted(PACKAGE.rglob("*.py"))
EVERYTHING = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py"))]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return syntax.tree(path.read_text("utf-8"))


def nodes(path: Path) -> list[ast.AST]:
    return syntax.nodes(path.read_text("utf-8"))


def imports(path: Path, *, top_only: bool = False) -> Iterator[str]:
    """The full names that a file imports, also inside functions unless `top_only`."""
    for node in tree(path).body if top_only else nodes(path):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module, names, level):
                assert level == 0, f"{name_of(path)} imports relatively"
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Call(
                ast.Name("import_module") | ast.Attribute(attr="import_module"),
                [ast.Constant(str(found)), *_],
            ):
                yield found


def room_of(path: Path) -> str | None:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[0] in COLUMNS and len(parts) > 1:
        if parts[-1] == LIVE:
            return "cli"
        kind = parts[-1].rpartition("_")[2]
        if parts[0] == "features" or kind in KINDS_OF_FILES:
            return KINDS_OF_FILES.get(kind, "features")
    return parts[0] if parts[0] in ROOMS else None


def feature_of(path: Path) -> str | None:
    """The feature whose folder holds a file; None for the engine and what all commands share."""
    parts = path.relative_to(PACKAGE).parts
    if parts[0] == "features":
        return parts[1] if len(parts) > 2 else None
    return parts[0] if parts[0] in COLUMNS else None


def file_of(name: str) -> Path:
    """The file of a module, or of the module that a full name is imported from."""
    path = ROOT.joinpath(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py", path.parent.with_suffix(".py"))
    return next((file for file in candidates if file.exists()), path.parent / "__init__.py")


def inner_imports(path: Path) -> Iterator[tuple[str, Path]]:
    """What a file imports of the package: the full name and the file it comes from."""
    return ((name, file_of(name)) for name in imports(path) if name.startswith("attncli."))


def test_a_room_imports_only_rooms_before_it():
    for path in SOURCES:
        room = room_of(path)
        assert room is not None or path in DOORS, f"{name_of(path)} is in no room"
        for name, file in inner_imports(path) if room else ():
            source_room = room_of(file)
            if source_room is not None:
                assert ROOMS.index(source_room) <= ROOMS.index(room), (
                    f"{name_of(path)} imports {name}"
                )


LENDERS = {
    "run": "the others begin with a run, its request, what it costs and its shape trace",
    "effects": "what ablate, logits, patch, find, scan and the explorer measure with",
}
"""Features whose functions any other may use."""
OTHER_USES = {
    ("check", "explain"): "the worked examples that answers are compared with",
    ("explain", "cross"): "seq2seq shows the search of a cross-attention",
    ("answer", "generate"): "the answer that the model writes",
    ("cache", "regions"): "the answer's tokens and its log probability",
    ("effects", "cross"): "the states of an encoder, as words",
    ("find", "cross"): "a word of --source is looked at across two texts",
    ("heads", "retrieval"): "--retrieval is an option of heads",
    ("heads", "rules"): "--rules is an option of heads",
    ("explain", "rules"): "explain rule shows where a rule looks",
    ("circuit", "rules"): "a head without a label is named by its strongest rule",
    ("effects", "regions"): "--each-region is an option of ablate",
    ("compare", "view"): "a side may be a saved file, which view opens",
    ("compare", "compare_models"): "two sides may be forms of one model",
    ("mask", "explain"): "which one head: the same option",
    ("run", "generate"): "--generate is an option of run",
    ("scan", "why"): "--why is an option of scan",
    ("scan", "rules"): "--rules is an option of scan",
    ("scan", "heads"): "what heads read and write, for those most alike",
    ("why", "find"): "the link of each pair, and the head that it is explained of",
    ("series", "heads"): "the metrics and labels of each checkpoint",
    ("view", "explain"): "the derivation of a saved run",
}
"""Features that use functions of one other, and what for."""
EXPLORER = "explore"
"""It walks through what the others make: it may call any of them."""


def test_a_feature_uses_the_engine_and_few_of_the_others():
    """What a feature's document declares may be read by all; its functions by those that are
    listed.
    """
    uses = set()
    for path in SOURCES:
        feature = feature_of(path)
        for name, file in inner_imports(path) if feature not in (None, EXPLORER) else ():
            lender = feature_of(file)
            if lender in (None, feature, *LENDERS) or file.stem == "document":
                continue
            assert (feature, lender) in OTHER_USES, f"{name_of(path)} imports {name}"
            uses.add((feature, lender))
    assert uses == set(OTHER_USES), "an exception that nothing needs"


def test_the_engine_imports_no_feature():
    for path in SOURCES:
        if feature_of(path) is not None or room_of(path) in (None, "cli"):
            continue
        for name, file in inner_imports(path):
            lender = feature_of(file)
            assert lender is None, f"{name_of(path)} imports {name}"


def circles(edges: dict[Path, set[Path]]) -> list[set[Path]]:
    """The largest groups of files in which each reaches each (Tarjan's strongly connected
    components, 1972).
    """
    index: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    groups = []

    def visit(file: Path) -> None:
        index[file] = low[file] = len(index)
        stack.append(file)
        for target in edges[file]:
            if target not in index:
                visit(target)
                low[file] = min(low[file], low[target])
            elif target in stack:
                low[file] = min(low[file], index[target])
        if low[file] == index[file]:
            start = stack.index(file)
            groups.append(set(stack[start:]))
            del stack[start:]

    for file in edges:
        if file not in index:
            visit(file)
    return [group for group in groups if len(group) > 1]


def test_circles_are_found():
    a, b, c, d = (Path(name) for name in "abcd")
    assert circles({a: {b}, b: {c}, c: {a, d}, d: set()}) == [{a, b, c}]
    assert circles({a: {b}, b: {c, d}, c: {d}, d: set()}) == []


def test_no_files_import_each_other_in_a_circle():
    """Imports inside functions and those for the type checker count too."""
    edges = {path: {file for _, file in inner_imports(path)} - {path} for path in SOURCES}
    assert [sorted(name_of(path) for path in group) for group in circles(edges)] == []


def test_the_rooms_are_the_folders():
    assert {
        path.name.removesuffix(".py")
        for path in PACKAGE.iterdir()
        if not path.name.startswith("_") and path.name != "py.typed" and path not in DOORS
    } == {*ROOMS, *COLUMNS}


def test_no_module_is_left_without_a_use():
    """Every module is imported by another of the package, is a door, or is listed by name where it
    is loaded.
    """
    imported = {name for path in SOURCES for name in imports(path)}
    listed = {
        node.value
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for path in SOURCES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        # families and tasks by the name of their file; documents, screens and commands by a name
        # that a table holds
        by_name = bool({"families", "tasks"} & set(path.parts)) or (
            {"documents", "screens", "language", "cli"} & set(path.parts) and path.stem in listed
        )
        by_name = by_name or module in listed
        # a feature's, by the name of its folder
        by_name = by_name or (
            feature_of(path) is not None
            and path.stem in ("command", "document", "figure", "page", "screen")
        )
        if path in DOORS or path.name == "__init__.py" or by_name:
            continue
        assert module in imported or any(name.startswith(f"{module}.") for name in imported), (
            f"nothing uses {name_of(path)}"
        )


FOUND_OTHERWISE = {"ErrorDocument"}
"""Found by a tag, not by its name."""
PARTS_OF_DOCUMENTS = (
    "screen", "rows", "lines", "figure", "page", "document_heads", "page_focus", "page_of",
)  # fmt: skip
BY_DOCUMENT = {f"{name}_{part}" for name in NAMES for part in PARTS_OF_DOCUMENTS}
BY_DOCUMENT |= {f"{name.upper()}_PARTS" for name in NAMES}
"""Found by the name of their document: see `draw.screen_header.screen_of`, `draw.figures.figure`,
`draw.page.page_of` and `measure.document_heads`.
"""
BY_COMMAND = {f"{name}_app" for name in COMMANDS}
"""Found by the name of their subcommand, see `cli.app.app_of`."""


def test_no_name_is_left_without_a_use():
    """What only tests read goes: each name that a module declares occurs a second time in the
    package.
    """
    words = Counter(
        word for path in SOURCES for word in re.findall(r"\w+", path.read_text("utf-8"))
    )
    declared: set[str] = set()
    for path in SOURCES:
        for node in tree(path).body:
            match node:
                case ast.FunctionDef(name) | ast.ClassDef(name):
                    declared.add(name)
                case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
                    declared.add(name)
    once = {name for name in declared if words[name] == 1 and not name.startswith("__")}
    once -= {
        task_class(name).__name__ for name in task_names()
    }  # found by the names of their files
    assert once - BY_DOCUMENT - BY_COMMAND == FOUND_OTHERWISE, (
        "names that nothing else in attncli uses; parts of a document are found by its name in NAMES"
        " of attncli/documents/__init__.py"
    )


def test_a_document_is_made_by_one_public_function():
    """`attncli.heads(…)` returns the document; no second function `heads_document` does that for
    those who know it: what the first one needs of it is private.
    """
    twins = [
        f"{name_of(path)}: {node.name}"
        for path in SOURCES
        if feature_of(path) is not None and path.stem != "command"
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef)
        and node.name.endswith("_document")
        and node.name.removesuffix("_document") in attncli.__all__
    ]
    assert twins == []


def test_errors_import_nothing_heavy():
    assert set(imports(PACKAGE / "errors.py")) <= {"enum.IntEnum", "attncli.language.Message"}


HEAVY = {"torch", "transformers", "tokenizers", "huggingface_hub"}
TORCH = {"attncli/arrays/torch_backend.py"}
AT_THE_TOP = TORCH | {
    f"attncli/inputs/{name}.py"
    for name in (
        "vocabulary_tokenizer",
        "gguf_tokenizer",
        "text_vocabulary",
        "separate_vocabulary",
    )
}
"""Modules that are themselves imported only when they are needed."""


def test_heavy_packages_are_not_imported_at_the_top():
    for path in SOURCES:
        found = {name.split(".")[0] for name in imports(path, top_only=True)} & HEAVY
        assert not found or name_of(path) in AT_THE_TOP, (
            f"{name_of(path)} imports {found} at its top"
        )


def test_one_file_imports_torch():
    # transformers' models are torch's own: the comparison with them cannot be made without it
    allowed = TORCH | {
        f"attncli/models/{name}.py"
        for name in ("verify", "transformers_model", "transformers_shapes")
    }
    found = {
        name_of(path)
        for path in SOURCES
        if any(name.split(".")[0] == "torch" for name in imports(path))
    }
    assert TORCH <= found <= allowed


def test_the_command_line_starts_without_numpy_and_rich():
    for path in (file for file in SOURCES if room_of(file) == "cli"):
        found = {name.split(".")[0] for name in imports(path, top_only=True)} & {
            "numpy",
            "rich",
            "orjson",
            "safetensors",
            "ml_dtypes",
        }
        assert not found, f"{name_of(path)} imports {found} at its top"


STANDARD_FILES = {
    "__init__.py", "command.py", "compute.py", "document.py", "screen.py", "figure.py", "page.py",
}  # fmt: skip
"""Files that a feature or a folder may have, whatever it is about."""


def test_a_file_name_stands_once_in_the_house():
    files = Counter(path.name for path in SOURCES)
    assert {name for name, times in files.items() if times > 1} == STANDARD_FILES


def test_files_are_named_for_a_noun():
    vague = {
        "utils",
        "util",
        "helpers",
        "helper",
        "common",
        "misc",
        "tools",
        "sight",
        "watch",
        "whole",
        "moved",
        "thin",
    }
    vague |= {
        "room",
        "effort",
        "sides",
        "apart",
        "ends",
        "making",
        "running",
        "offer",
        "repeated",
    }
    for path in EVERYTHING:
        assert path.stem not in vague, name_of(path)


PARTICIPLES = {
    "found", "told", "asked", "held", "taken", "given", "named", "wanted", "seen", "made",
    "how", "the", "see", "look", "some", "other", "one", "each", "who",
    "written", "met", "meant", "caught", "heard", "got", "mine", "nothing", "something", "anything", "thing", "things",
    "stuff", "it", "its", "this", "that", "these", "those", "them", "they", "such", "whose", "whom",
    "there", "here", "again", "begun", "lost", "theirs", "ours",
}  # fmt: skip
"""Words that say nothing of the thing that they would name."""


def names_bound(module: ast.AST) -> Iterator[tuple[int, str]]:
    """Each name that the source gives to a thing, with its line: variables, parameters, functions,
    classes, aliases.
    """
    for node in ast.walk(module):
        match node:
            case ast.Name(name, ast.Store()):
                yield node.lineno, name
            case (
                ast.arg(name)
                | ast.FunctionDef(name)
                | ast.AsyncFunctionDef(name)
                | ast.ClassDef(name)
            ):
                yield node.lineno, name
            case ast.alias(_, str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)):
                yield node.lineno, name
            case (
                ast.MatchAs(name=str(name))
                | ast.MatchStar(str(name))
                | ast.MatchMapping(rest=str(name))
            ):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


IN_SCHEMAS = {"Written"}
"""Classes that a published schema calls so."""


def without_a_noun(module: ast.AST) -> list[tuple[int, str]]:
    return sorted(
        (line, name)
        for line, name in names_bound(module)
        if name.strip("_").lower() in PARTICIPLES and name not in IN_SCHEMAS
    )


PLANTED = """
import json as how
from json import loads as _see
found = 1
told: int = 2
for asked, (held, *taken) in []:
    pass
with open("x") as given:
    pass
def named(wanted, /, seen=1, *made, the, **look):
    (some := 1)
class Other:
    one: int
    def __init__(self):
        self._each = [who for who in ()]
try:
    pass
except ValueError as found:
    pass
match 1:
    case [told, *asked] | {"a": told, **asked} | int() as held:
        pass
async def taken():
    return lambda given: given
written = met = meant = caught = heard = got = mine = nothing = something = anything = thing = things = stuff = 1
it = its = this = that = these = those = them = they = such = whose = whom = 1
there = here = again = begun = lost = theirs = ours = 1
"""
"""Each way in which a name is given."""


def test_names_are_nouns_and_verbs():
    """No exceptions: where JSON has such a member, its field is renamed with `field(name=…)`."""
    planted = {name.strip("_").lower() for _, name in without_a_noun(ast.parse(PLANTED))}
    assert planted == set(PARTICIPLES)
    assert {name_of(path): names for path in SOURCES if (names := without_a_noun(tree(path)))} == {}


def test_processes_are_started_in_one_place():
    """So that each gets a clean environment of its own."""
    workers = "attncli/scan/engines.py"  # its workers are this program in this environment
    child = "attncli/inputs/bounded_process.py"  # Python again, without the user's variables
    pager = "attncli/features/guide/command.py"  # the user's own program, in the user's environment
    own = (
        "tests/processes.py",
        "tests/test_examples.py",
        "tests/house/",
        "tests/benchmarks/",
        workers,
        child,
        pager,
    )
    for path in EVERYTHING:
        text = path.read_text("utf-8")
        if "subprocess" in text and not name_of(path).startswith(own):
            found = set(imports(path)) & {"subprocess.run", "subprocess.Popen"}
            assert not found, f"{name_of(path)} imports {found}"
            assert not re.search(r"subprocess\.(run|Popen|call|check_\w+)\(", text), (
                f"{name_of(path)} starts a process"
            )


def test_nothing_is_left_for_later():
    words = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|raise Not" r"Implemented")
    for path in EVERYTHING:
        assert not words.search(path.read_text("utf-8")), name_of(path)


def test_only_the_border_writes_and_exits():
    for path in SOURCES:
        for node in nodes(path):
            match node:
                case ast.Call(ast.Name("print")):
                    pytest.fail(f"{name_of(path)}:{node.lineno} prints")
                case ast.Attribute(ast.Name("sys"), "exit") | ast.Attribute(
                    ast.Attribute(ast.Name("sys"), "stdout" | "stderr"), "write"
                ):
                    assert room_of(path) in ("cli", None), (
                        f"{name_of(path)}:{node.lineno} writes or exits outside cli/"
                    )


EXPONENTIALS = {
    "attncli/arrays/numpy_backend.py",
    "attncli/arrays/torch_backend.py",
    "attncli/arrays/gradient_backend.py",
    "attncli/mechanism/attend.py",
    "attncli/mechanism/frozen_backend.py",  # attention's own, without a gradient
    # what a cache forgets, query by query, before any weights are shown
    "attncli/mechanism/mask/eviction.py",
    "attncli/mechanism/mixer.py",  # how fast states fade
    "attncli/mechanism/feed_forward.py",  # shares of a router among experts
}
"""Where an exponential may be taken: attention has one softmax."""


def test_one_softmax():
    found = set()
    for path in SOURCES:
        if room_of(path) not in ("arrays", "mechanism", "inputs", "models", "cli"):
            # the others work out and show examples of a softmax, number by number
            continue
        for node in nodes(path):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("exp", "exp_over", "logsumexp", "softmax")
            ):
                found.add(name_of(path))
    assert found <= EXPONENTIALS


def test_attention_is_computed_in_one_place():
    callers = {
        name_of(path)
        for path in SOURCES
        for name in imports(path)
        if name == "attncli.mechanism.attend.softmax"
    }
    assert callers == {"attncli/mechanism/reformer.py"}  # besides the module that defines it


def test_no_arguments_are_passed_through_unnamed():
    allowed = {
        "attncli/models/verify.py"  # stands in for functions of another package
    }
    for path in SOURCES:
        if name_of(path) in allowed:
            continue
        for node in nodes(path):
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.args.kwarg is not None
            ):
                assert node.args.kwarg.annotation is not None, (
                    f"{name_of(path)}:{node.lineno} takes **{node.args.kwarg.arg}"
                )
                assert node.args.kwarg.arg not in ("kwargs", "kw", "options"), (
                    f"{name_of(path)}:{node.lineno}"
                )


def test_a_match_says_what_becomes_of_every_value():
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.Match) and not isinstance(node.subject, ast.Tuple):
                last = node.cases[
                    -1
                ].pattern  # of a union it is what can never be: the type checker then knows
                whatever = isinstance(last, ast.MatchAs) and last.pattern is None
                assert whatever, (
                    f"{name_of(path)}:{node.lineno} passes what it does not name by in silence"
                )


def test_every_layer_is_never_said_by_none():
    for path in SOURCES:
        for node in nodes(path):
            match node:
                case (
                    ast.arg(arg=("layers" | "heads") as name, annotation=ast.expr() as said)
                    | ast.AnnAssign(
                        target=ast.Name(id=("layers" | "heads") as name),
                        annotation=ast.expr() as said,
                    )
                ):
                    assert "[int] | None" not in ast.unparse(said), (
                        f"{name_of(path)}:{node.lineno} {name}: Selection"
                    )


def test_records_are_frozen_structs():
    """Outside the command line's own state there is one type of record, and none changes."""
    for path in SOURCES:
        for node in nodes(path):
            match node:
                case ast.ClassDef(name, bases, keywords, decorator_list=decorators):
                    place = f"{name_of(path)}:{node.lineno} {name}"
                    if any(ast.unparse(base) == "Struct" for base in bases):
                        told = {
                            keyword.arg
                            for keyword in keywords
                            if ast.unparse(keyword.value) == "True"
                        }
                        assert "frozen" in told, place
                    if any("dataclass" in ast.unparse(decorator) for decorator in decorators):
                        assert "attncli/cli/" in path.as_posix(), place


def public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """What callers of the package use: the functions of its doors, and the methods of what they
    return.
    """
    doors = (attncli, attncli.metrics, attncli.topics, attncli.documents, attncli.language)
    things = [
        (name, value)
        for door in doors
        for name, value in vars(door).items()
        if not name.startswith("_")
    ]
    things += [(name, getattr(attncli, name)) for name in attncli.__all__]
    things += [(name, getattr(attncli.topics, name)) for name in attncli.topics.__all__]
    for owner in (Model, Metric, Document):
        things += [
            (f"{owner.__name__}.{name}", value)
            for name, value in vars(owner).items()
            if isfunction(value) and (name == "__call__" or not name.startswith("_"))
        ]
    for name, value in things:
        if isfunction(value) and value.__module__.startswith("attncli"):
            yield name, value


def test_what_callers_use_says_what_it_takes_and_gives() -> None:
    lacking = []
    for name, function in public_functions():
        text, about = getdoc(function) or "", signature(function)
        parameters = about.parameters.keys() - {"self", "cls"}
        parts = ["Args:"] * bool(parameters)
        if parameters and about.return_annotation not in ("None", None):
            parts.append("Yields:" if "Yields:" in text else "Returns:")
        lacking += [f"{name}: {part}" for part in parts if f"{part}\n" not in text]
        lacking += [
            f"{name}: Raises as a part of its own" for _ in re.findall(r"Raises [A-Z]", text)
        ]
    assert lacking == []


def test_what_is_public_has_a_docstring():
    for path in SOURCES:
        module = tree(path)
        if path.read_text("utf-8").strip():
            assert ast.get_docstring(module), f"{name_of(path)} has no docstring"
        for node in module.body if room_of(path) not in ("cli", None) else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), (
                    f"{name_of(path)}:{node.lineno} {node.name} has no docstring"
                )


DELEGATES = re.compile(r"aises\s+as|rrors(?:\s+are\s+those\s+of|:\s+as)")
"""A docstring that has the errors of another function, and perhaps more."""


def own_raises(node):
    """The names of the errors that a function raises itself, outside functions within it and blocks
    that catch them.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise) and child.exc is not None:
            error = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            if isinstance(error, ast.Name) and error.id[0].isupper():
                yield error.id
        elif isinstance(child, ast.Try):
            for block in (*child.handlers, *child.orelse, *child.finalbody):
                yield from own_raises(block)
        elif not isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield from own_raises(child)


def test_what_is_public_says_what_it_raises():
    for path in SOURCES:
        # the docstrings of commands are their help
        for node in nodes(path) if path.name != "command.py" else ():
            if (
                isinstance(node, ast.FunctionDef)
                and node.name[0] != "_"
                and (docs := ast.get_docstring(node))
            ):
                silent = {error for error in own_raises(node) if error not in docs}
                assert not silent or DELEGATES.search(docs), (
                    f"{name_of(path)}:{node.lineno} {node.name} {silent}"
                )


VOCABULARIES = (
    "aliases.py",
    "gguf_tokenizer.py",
    "separate_vocabulary.py",
    "sentencepiece_file.py",
    "vocabulary_files.py",
)


def test_family_names_stay_in_the_families():
    families = {*MODEL_TYPES} - {"t5"}  # t5 also names a score bias
    assert "bert" in families
    for path in SOURCES:
        # kinds of vocabularies and of cutting texts are named after models, too
        if "families" in path.parts or path.name in VOCABULARIES:
            continue
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in families, (
                    f"{name_of(path)}:{node.lineno} names the family {node.value!r}"
                )


def test_no_default_holds_the_variables_of_the_process():
    """`help()` prints defaults, and variables hold tokens."""
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                for default in (*node.args.defaults, *node.args.kw_defaults):
                    assert default is None or "environ" not in ast.unparse(default), (
                        f"{name_of(path)}:{node.lineno}"
                    )
