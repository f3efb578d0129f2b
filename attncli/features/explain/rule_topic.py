"""What a rule of `attn heads --rules` means: topic "rule" of `attn.explain/1`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from attncli.errors import UsageError
from attncli.features.explain.document import RuleExample, RuleTopic
from attncli.features.rules.built_in_rules import BUILT_IN
from attncli.features.rules.head_rules import HeadRule, rule_rows
from attncli.features.rules.rule_file import load_rules
from attncli.features.rules.token_patterns import TokenPatterns
from attncli.inputs.tokenize import tokenizer
from attncli.language import languages, listing, translate
from attncli.mechanism.checked_arguments import checked
from attncli.version import __version__

EXAMPLE = "The cat (a cat) saw 2 dogs. The cat ran."
"""The text that shows where a rule looks, cut into words and marks."""
EXAMPLES = {
    "line-break": ("a b\nc d\ne f", "char"),
    "line": ("a b\nc d\ne f", "char"),
    "line-start": ("a b\nc d\ne f", "char"),
    "indentation": ("if a:\n  b = 1\n  c = b", "char"),
    "same-name": ("x_1 = x_1 + y", "char"),
    "classifier": ("我的三个朋友", "char"),
    "particle": ("我的三个朋友", "char"),
    "character": ("a 三个", "byte"),
    "special": ("a cat [SEP] a dog [SEP]", "whitespace"),
}
"""Texts in its place for rules that find nothing in it, each with what cuts it into tokens."""
SPECIAL = "[SEP]"
"""The token of these texts that stands for a special one of a vocabulary."""


def known_rules(rule_files: Sequence[str | Path]) -> list[HeadRule]:
    """attn's own rules, then those of a user's files. Raises InputError for a file that fails."""
    return [*BUILT_IN, *load_rules(rule_files)]


@checked
def rule_document(name: str, *, rule_files: Sequence[str | Path] = ()) -> RuleTopic:
    """Build the document that explains a rule: where it looks, and its rows in a short text.

    Args:
        name: The name of a rule that comes with attn, or of one of the files; or what screens call
            it, in any language.
        rule_files: Python files of yours with rules, which are run as your own code.

    Returns:
        What `attn explain rule NAME --json` writes. The example is causal, but for a rule that
        finds keys after the query alone, whose tokens see the whole text. A row in which it finds
        no key rests on the first token.

    Raises:
        UsageError: For an unknown name.
        InputError: For a file of rules that fails.
    """
    # the rule, and an example in which it finds something
    rule = _rule_called(name, known_rules(rule_files))
    text, tokenizer_name = EXAMPLES.get(rule.name, (EXAMPLE, "word"))
    tokens = [
        replace(token, special=token.text == SPECIAL)
        for token in tokenizer(tokenizer_name).encode(text)
    ]

    # its rows; the example is causal unless the rule looks at later keys alone
    patterns = TokenPatterns(tokens)
    queries = np.arange(len(tokens))
    visible = np.tri(len(tokens), dtype=bool)
    is_preferred = rule.rows(patterns, queries) > 0
    if rule.looks_ahead or (is_preferred.any() and not (is_preferred & visible).any()):
        visible[:] = True
    rows = rule_rows([rule], patterns, queries, visible)
    return RuleTopic(
        version=__version__,
        topic="rule",
        name=rule.name,
        says=rule.sentence,
        formula=rule.formula,
        example=RuleExample(tokens=[token.text for token in tokens], weights=rows[0]),
        warnings=[],
    )


def _rule_called(name: str, rules: Sequence[HeadRule]) -> HeadRule:
    """The rule of this name, or with this label on screens, in any language. Raises UsageError for an
    unknown name."""
    # by name, and by label where no rule has that name or label already
    spellings = {rule.name: rule for rule in rules}
    for lang in languages():
        for rule in rules:
            spellings.setdefault(translate(rule.label, lang).casefold(), rule)
    spelling = " ".join(name.split())
    match = spellings.get(spelling) or spellings.get(spelling.casefold())
    if match is None:
        near = get_close_matches(spelling.casefold(), spellings, n=1)
        hint = " ".join(["attn explain rule", *(spellings[word].name for word in near)])
        raise UsageError(
            "there is no rule {name}",
            expected=listing(rule.name for rule in rules),
            hint=hint,
            name=repr(name),
        )
    return match
