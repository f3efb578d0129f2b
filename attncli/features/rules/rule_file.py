"""Rules of your own for `attn heads --rules`: a Python file whose functions say where a query looks,
each by its name as FILE.FUNCTION.

    def vowels(text):
        '''begins_with_vowel(j)'''
        return [spelling.strip().lower()[:1] in tuple("aeiou") for spelling in text.texts]

    vowels.says = "tokens that begin with a vowel"

A function takes the text and gives what the queries asked for prefer: numbers of 0 or more, [query,
key], or one for each key where all queries prefer the same, [key]. Keys that a query does not see
are left out, and its row is scaled to sum to 1. The docstring begins with the formula; `says` tells
in words where a head of this rule looks. Names that begin with an underscore, classes, what is
imported, and functions that a decorator of another file replaces are no rules. The file is run as the user's own code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from attncli.errors import InputError
from attncli.features.rules.attention_rows import HeadPlaces, sees
from attncli.features.rules.built_in_rules import BUILT_IN
from attncli.features.rules.head_rules import HeadRule
from attncli.features.rules.token_patterns import Bools, Ints, TokenPatterns
from attncli.inputs.files import is_there, place_of, read_regular
from attncli.inputs.function_file import (
    LARGEST,
    NAME,
    FileWords,
    FunctionFile,
    failure_of_code,
    formula_of,
    run_file,
)
from attncli.inputs.plugins import Plugin, plugin_named
from attncli.inputs.tokenize import tokenizer
from attncli.language import message

Floats = np.ndarray[Any, np.dtype[np.float64]]
FILE_WORDS = FileWords(
    what=message("a Python file of rules"),
    failed=message("the file of rules failed"),
    none=message("this file has no rule"),
    expected=message("def name(text): … gives [query, key]"),
)
TRIAL = "a b\nc d"
"""A text on which a rule is tried before long work begins."""


NO_NUMBERS = frozenset("cUSMm")
"""Kinds of arrays that NumPy would turn into numbers, but that are none to compare: complex ones,
texts, bytes, dates and spans of time."""


class RuleText:
    """A text as the functions of a user's rule file get it: the queries whose rows are asked for,
    and every token.

    i: positions of the queries, [query].
    j: positions of the keys, [key].
    texts: what each token spells.
    special, punctuation, word_start: booleans by token, [key].
    word, line, sentence: the number of the word, the line and the sentence that each token stands
        in, [key].
    same: a number for each token, equal for equal tokens, [key].
    """

    def __init__(self, patterns: TokenPatterns, queries: Ints) -> None:
        """Copy the facts about a text's tokens, since what a user's function writes into them must
        reach no other rule."""
        self.i = queries.copy()
        self.j: Ints = np.arange(patterns.count)
        self.texts: list[str] = list(patterns.texts)
        self.special: Bools = patterns.special.copy()
        self.punctuation: Bools = patterns.punctuation.copy()
        self.word_start: Bools = patterns.word_start.copy()
        self.word: Ints = patterns.word.copy()
        self.line: Ints = patterns.line.copy()
        self.sentence: Ints = patterns.sentence.copy()
        self.same: Ints = patterns.identity.copy()


class FileRule(HeadRule, frozen=True):
    """A rule of a user's file.

    function: gives what queries prefer.
    path, line: where it begins.
    sha256: of the file's bytes.
    """

    function: Callable[[RuleText], Any]
    path: Path
    line: int
    sha256: str

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """The function's preferences, checked, [query, key]. Raises InputError where it fails, or
        gives another shape or numbers that are no preferences.

        queries: positions, [query].
        """
        where = f"{self.path}:{self.line}"
        # run the user's function, whatever it raises
        try:
            answer = np.asarray(self.function(RuleText(patterns, queries)))
            numbers = None
            if answer.dtype.kind not in NO_NUMBERS:
                numbers = answer.astype(np.float64)
        except (Exception, SystemExit) as error:
            what = message("the rule {name} failed", name=self.name)
            raise failure_of_code(error, self.path, what, self.line) from error

        # numbers, of the right shape, finite and not below 0
        if numbers is None:
            value = str(answer.dtype)
            if answer.size:
                value = repr(answer.flat[0].item())[:80]
            raise InputError(
                "the rule {name} gave {value}",
                where=where,
                expected="finite numbers of 0 or more",
                name=self.name,
                value=value,
            )
        shape = (queries.size, patterns.count)
        if numbers.shape not in (shape, shape[1:]):
            raise InputError(
                "the rule {name} gave numbers of shape {shape}",
                where=where,
                expected="one for each query and key, {wanted}, or one for each key",
                name=self.name,
                shape=list(numbers.shape),
                wanted=list(shape),
            )
        wrong = ~np.isfinite(numbers) | (numbers < 0)
        if wrong.any():
            raise InputError(
                "the rule {name} gave {value}",
                where=where,
                expected="finite numbers of 0 or more",
                name=self.name,
                value=f"{numbers[wrong][0]:g}",
            )
        # a row's largest number is 1, so that no sum of large ones overflows
        largest = numbers.max(-1, keepdims=True, initial=0.0)
        scaled = numbers / np.where(largest > 0, largest, 1.0)
        return np.array(np.broadcast_to(scaled, shape))


class PluginRule(FileRule, frozen=True):
    """A rule that an installed package adds.

    plugin: the one that errors name.
    """

    plugin: Plugin

    def rows(self, patterns: TokenPatterns, queries: Ints) -> Floats:
        """The function's preferences, checked, [query, key]. Raises PluginError where it fails."""
        with self.plugin.guard():
            return FileRule.rows(self, patterns, queries)


def load_rules(paths: Sequence[str | Path]) -> list[FileRule]:
    """The rules of a user's Python files.

    This runs the files, as Python runs a program: only name files that you trust.

    Args:
        paths: Python files; see this module's docstring for what stands in one. A file that is
            named again is read once. A name without such a file may be a plugin's rule.

    Returns:
        A rule for each of their functions, in their order, called FILE.FUNCTION after the file's
        name.

    Raises:
        InputError: Where there is no such file, it fails, two define a rule of one name, or a
            function gives no preferences for a small text; `where` names the file's line.
        UsageError: Where several packages add a rule of that name.
        PluginError: Where a plugin's rule fails.
    """
    rules: dict[str, FileRule] = {}
    read = set()
    for path in paths:
        plugin = _plugin_of(path)
        if plugin is not None:
            rules[plugin.name] = plugin_rule(plugin)
            continue
        place = place_of(Path(path))  # the same for all names of one file
        if place in read:
            continue
        read.add(place)
        file = run_file(path, FILE_WORDS)
        for name in file.functions:
            rule = _rule_of(file, name, f"{file.path.stem}.{name}")
            if rule.name in rules:
                raise InputError(
                    "two files define a rule {name}",
                    where=file.where(name),
                    expected="another name of the file or the function",
                    name=rule.name,
                )
            rules[rule.name] = rule
    return list(rules.values())


def _plugin_of(path: str | Path) -> Plugin | None:
    """The plugin that adds a rule of this name; None for the path of a file, and where no plugin
    has such a rule."""
    if not NAME.fullmatch(str(path)) or is_there(Path(path)):
        return None
    return plugin_named("rules", str(path))


def plugin_rule(plugin: Plugin) -> PluginRule:
    """The rule that a plugin adds, tried on a small text. Raises PluginError where it cannot be
    imported, is no function, or gives no preferences."""
    function = plugin.load()
    if not isinstance(function, FunctionType):
        what = message("{target} is no function", target=plugin.target)
        # this raises
        plugin.refuse(what, message("a function of a text, as in a file of --rule-file"))
    path = Path(function.__code__.co_filename)
    with plugin.guard():  # what fails in here is the plugin's error
        raw = read_regular(path, what=FILE_WORDS.what, limit=LARGEST)
        # the version, too: a package may change what the file imports
        digest = hashlib.sha256(f"{plugin.package} {plugin.version} ".encode() + raw).hexdigest()
        file = FunctionFile(path, digest, {plugin.name: function})
        file_rule = _rule_of(file, plugin.name, plugin.name)  # this tries it, too
    return PluginRule(
        name=file_rule.name,
        label=file_rule.label,
        formula=file_rule.formula,
        sentence=file_rule.sentence,
        function=function,
        path=path,
        line=file_rule.line,
        sha256=digest,
        plugin=plugin,
    )


def usable_rules(places: HeadPlaces, own_rules: Sequence[HeadRule]) -> list[HeadRule]:
    """The rules that some head of a model may follow, built-in ones first: all, but without those
    that look at later keys where every mask hides these.

    own_rules: rules of the user's files.
    """
    # of two tokens, whether the first sees the second under some mask
    shows_later = any(sees(mask, np.arange(1), 2)[0, 1] for mask in places.masks)
    return [rule for rule in (*BUILT_IN, *own_rules) if shows_later or not rule.looks_ahead]


def _rule_of(file: FunctionFile, name: str, full_name: str) -> FileRule:
    """Make the rule of one function of a file, and try it on a small text. Raises InputError as
    `load_rules`.

    name: the function's.
    full_name: the rule's, such as "mine.vowels".
    """
    function = file.functions[name]
    formula = formula_of(function, name, "text")
    says = getattr(function, "says", formula)
    if not isinstance(says, str) or not says.strip():
        raise InputError(
            "{attribute} of the rule {name} is {value}",
            where=file.where(name),
            expected="a text",
            attribute="says",
            name=full_name,
            value=repr(says)[:80],
        )
    rule = FileRule(
        name=full_name,
        label=full_name,
        formula=formula,
        sentence=says,
        function=function,
        path=file.path,
        line=function.__code__.co_firstlineno,
        sha256=file.sha256,
    )
    _try(rule)
    return rule


def _try(rule: FileRule) -> None:
    """Compute a rule's rows in a small text, so that a mistake shows before long work begins.
    Raises InputError, also where some rows computed alone differ from the same rows of the whole.
    """
    tokens = tokenizer("word").encode(TRIAL)
    patterns = TokenPatterns(tokens)
    queries = np.arange(len(tokens))
    whole = rule.rows(patterns, queries)
    # asked for alone: the queries from the third on, whose numbers are not their places
    if not np.array_equal(whole[2:], rule.rows(patterns, queries[2:])):
        raise InputError(
            "the rule {name} gives other rows when only some queries are asked for",
            where=f"{rule.path}:{rule.line}",
            expected="rows that depend on text.i, the positions of the queries",
            name=rule.name,
        )
