"""What a rule of `attn heads --rules` means: topic "rule" of `attn.explain/1`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from attncli.errors import UsageError
from attncli.features.explain.document import RuleExample, RuleTopic
from attncli.features.rules.built_in_rules import BUILT_IN
from attncli.features.rules.head_rules import HeadRule, rule_rows
from attncli.features.rules.rule_file import load_rules
from attncli.features.rules.token_patterns import TokenPatterns
from attncli.inputs.tokenize import tokenizer
from attncli.language import listing
from attncli.mechanism.checked_arguments import checked
from attncli.version import __version__

EXAMPLE = "The cat (a cat) saw 2 dogs. The cat ran."
"""The text that shows where a rule looks, cut into words and marks."""
EXAMPLES = {
    "line-break": "a b\nc d\ne f",
    "line": "a b\nc d\ne f",
    "line-start": "a b\nc d\ne f",
    "indentation": "if a:\n  b = 1\n  c = b",
    "same-name": "x_1 = x_1 + y",
    "classifier": "我的三个朋友",
    "particle": "我的三个朋友",
}
"""Texts in its place for rules that find nothing in it, cut into characters."""


def known_rules(rule_files: Sequence[str | Path]) -> list[HeadRule]:
    """attn's own rules, then those of a user's files. Raises InputError for a file that fails."""
    return [*BUILT_IN, *load_rules(rule_files)]


@checked
def rule_document(name: str, *, rule_files: Sequence[str | Path] = ()) -> RuleTopic:
    """Build the document that explains a rule: where it looks, and its rows in a short text.

    Args:
        name: The name of a rule that comes with attn, or of one of the files.
        rule_files: Python files of yours with rules, which are run as your own code.

    Returns:
        What `attn explain rule NAME --json` writes. The example is causal: a rule that finds no key
        before the query rests on the first token.

    Raises:
        UsageError: For an unknown name.
        InputError: For a file of rules that fails.
    """
    rules = {rule.name: rule for rule in known_rules(rule_files)}
    if name not in rules:
        hint = " ".join(["attn explain rule", *get_close_matches(name, rules, 1)])
        raise UsageError(
            "there is no rule {name}", expected=listing(rules), hint=hint, name=repr(name)
        )
    rule = rules[name]
    kind = "word"
    if name in EXAMPLES:
        kind = "char"
    tokens = tokenizer(kind).encode(EXAMPLES.get(name, EXAMPLE))
    count = len(tokens)
    rows = rule_rows([rule], TokenPatterns(tokens), np.arange(count), np.tri(count, dtype=bool))
    return RuleTopic(
        version=__version__,
        topic="rule",
        name=rule.name,
        says=rule.sentence,
        formula=rule.formula,
        example=RuleExample(tokens=[token.text for token in tokens], weights=rows[0]),
        warnings=[],
    )
