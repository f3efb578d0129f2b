"""The screen of topic "rule" of `attn explain`, and the list of all rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from attncli.draw.lines import Lines, heading, localize, sentences, stack
from attncli.draw.screen_header import fact
from attncli.draw.shaded_matrix import as_matrix, matrix
from attncli.draw.tables import table
from attncli.draw.view import View
from attncli.features.explain.document import RuleTopic
from attncli.features.rules.head_rules import HeadRule
from attncli.language import contextual, message, say


def rule_blocks(document: RuleTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "rule" as blocks: what the rule means, its formula, its rows in a short
    text, and the answer."""
    tokens = document.example.tokens
    weights = as_matrix(document.example.weights)
    shown = weights
    title = message("an example: where each token looks by this rule, seeing the whole text")
    # in a causal example, keys behind the query are blank
    if not _looks_ahead(document):
        shown = np.where(np.tri(*weights.shape) > 0, weights, np.nan)
        title = message("an example: where each token looks by this rule")
    example = matrix(shown, tokens, tokens, replace(view, precision=2), title=title)
    formula = fact(message("formula"), [document.formula], view)
    return [
        heading(document.name, document.says, view),
        formula,
        example,
        rule_answer(document, view),
    ]


def rule_answer(document: RuleTopic, view: View) -> Lines:
    """The answer in words: where a head of this rule looks, and where it puts its weight when the
    rule finds no key."""
    looks = say(
        view, "A head of this rule looks at: {meaning}.", meaning=localize(document.says, view)
    )
    sentence = message(
        "Where it finds nothing before the query it rests on the first token that is seen."
    )
    if _looks_ahead(document):
        sentence = message("Where it finds nothing it rests on the first token that is seen.")
    rests = say(view, sentence)
    return sentences([looks, rests], view)


def _looks_ahead(document: RuleTopic) -> bool:
    """Whether the document's example is not causal: some token has weight on one after it."""
    return bool(np.triu(as_matrix(document.example.weights), 1).any())


def rule_rows_table(document: RuleTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: what the rule means, then each token of the example with its
    row of weights."""
    yield ["field", "value"]
    for name in ("name", "says", "formula"):
        yield [name, getattr(document, name)]
    for query, row in zip(document.example.tokens, document.example.weights, strict=True):
        yield [query, " ".join(f"{weight:.4f}" for weight in row)]


def rules_screen(rules: Sequence[HeadRule], view: View) -> Lines:
    """A table of rules, each with its name, its name on screens and where it looks; a brief view has
    the names alone."""
    if view.brief:
        names = say(view, contextual("between", ", ")).join(rule.name for rule in rules)
        return sentences(
            [say(view, "{count} rules: {rules}.", count=len(rules), rules=names)], view
        )
    rows = [[rule.name, say(view, rule.label), say(view, rule.sentence)] for rule in rules]
    columns = [message("rule"), message("on screens"), message("looks at")]
    body = table(columns, rows, view)
    # any rule would do: the third is one of attn's own
    more = say(view, "More about one: attn explain rule {rule}.", rule=rules[2].name)
    return stack(body, sentences([more], view))


def rules_table(rules: Sequence[HeadRule]) -> list[list[object]]:
    """The list of these rules for `--plain` and `--csv`, in English, the columns' names first."""
    rows: list[list[object]] = [["name", "label", "formula", "sentence"]]
    rows += [[rule.name, rule.label, rule.formula, rule.sentence] for rule in rules]
    return rows
