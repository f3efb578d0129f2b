"""The screen of a derivation: one query's attention step by step, the matrices around it, what it
adds up to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, field, structs

from attncli.documents import Header, Numbers
from attncli.draw.command_lines import command_about, command_lines, options_note
from attncli.draw.lines import (
    Lines,
    heading,
    join_sentences,
    line,
    line_width,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.numbers import (
    adding_column,
    adding_digits,
    bar,
    brief,
    percent,
    root_of,
    softmax_percent,
)
from attncli.draw.safe import cells, label, spell
from attncli.draw.sentence import (
    WHOLE,
    alike_sentence,
    looks_most_sentence,
    not_learned_note,
    same_weights,
    shaded_sentence,
)
from attncli.draw.shaded_matrix import matrix, visible
from attncli.draw.tables import ledger, vector_sum, vectors
from attncli.draw.token_names import (
    position_and_text,
    quoted_token,
    resting_key,
    short_token,
    token_reference,
)
from attncli.draw.tour import STEP, STEP_OF_PART, TOUR
from attncli.draw.view import View
from attncli.features.explain.document import (
    AttentionTopic,
    OutputSum,
    Products,
    Projections,
    Scores,
    SoftmaxRow,
)
from attncli.language import Message, contextual, message, plural, say
from attncli.measure.rest import resting_keys
from attncli.mechanism.spec import head_name

ALL_KEYS, NAME = 16, 14
"""Keys of which each has its own line; of more, the strongest have. And cells of a name."""
SHORT = 4
"""The same on a short screen, unless so many were asked for."""
ROOMY = 72
"""Columns from which on a short screen says of each step in a sentence what it does."""
CODE = "cyan"
"""The style of a line of code."""


STEP_TITLES = {"projections": message("queries, keys and values")}
STEP_TITLES |= {part: step.heading for part, step in STEP_OF_PART.items() if step.heading}
"""The name of each step of the derivation."""
LEADS = {
    "projections": message("Of each word: a query asks, a key answers, a value is passed on."),
    "residual": message("What follows the heads: their outputs become one vector of the layer."),
    "matrices": message("The same steps as for {query}, for all words at once."),
}
LEADS |= {part: step.lead for part, step in STEP_OF_PART.items() if step.lead}
"""One sentence before each step of the derivation."""


UNSCALED = message("This model does not scale the sums.")
CAPPED = message("A soft cap bounds the scores: ±{cap} at most.")
BIASED = message("What the positions say is added.")


ROTATED = message("Shown after rotation by position (rope), as they enter the dot products.")


def projection_formulas(document: AttentionTopic) -> str:
    """The formulas of q, k and v in this layer, biases included, in one line."""
    formulas = {row.step: row.formula for row in document.shapes}
    return "   ".join(formulas[name] for name in ("q", "k", "v"))


def scale_leads(document: AttentionTopic, view: View) -> list[str]:
    """One sentence for each thing that this model does to the products q·k before the mask:
    scaling, soft-cap, biases."""
    scores = document.step(Scores)
    if scores.scale == 1:
        leads = [say(view, UNSCALED)]
    else:
        leads = [say(view, LEADS["scaled"])]
    if scores.softcap is not None:
        leads.append(say(view, CAPPED, cap=brief(scores.softcap)))
    if scores.bias is not None:
        leads.append(say(view, BIASED))
    return leads


INDENT = 2
"""Cells before the first column of a table."""
BESIDE_DIGITS = 5
"""Cells of a column of numbers beside its decimals: a gap of two, sign, digit and point."""
BESIDE = 46
"""Columns of the screen that the softmax of a row needs for all of its numbers."""


class Derivation(Struct, frozen=True, dict=True):
    """Draws the screen of one query's derivation (`attn.explain/1`, topic "attention"); each public
    method draws one part.

    all_keys: up to so many keys each has its own line.
    compact: whether parts are short: one key stands for all where a step does the same to each.
    leads: whether each step says first, in a sentence, what it does.
    code: each step's lines of code.
    """

    document: AttentionTopic
    view: View
    all_keys: int = ALL_KEYS
    compact: bool = False
    leads: bool = False
    code: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """The keys' texts; learned keys come after the tokens."""
        learned_names = (f"bias_k {index}" for index in range(self.document.extra_keys))
        return [*(token.text for token in self.document.tokens), *learned_names]

    @property
    def query(self) -> str:
        """The query's text in titles, a piece with its word, cut to the width of two columns."""
        return short_token(self.document.tokens[self.document.query], 2 * NAME, self.view)

    @property
    def quoted_query(self) -> str:
        """The query as sentences name it: a piece with its word."""
        return quoted_token(self.document.tokens, self.document.query, self.view)

    @cached_property
    def weights(self) -> np.ndarray[Any, Any]:
        """The query's weights, [key], float64."""
        return np.asarray(self.document.step(SoftmaxRow).weights, np.float64)

    @cached_property
    def keys_shown(self) -> list[int]:
        """The keys with a line of their own, by position."""
        if self.view.full or len(self.names) <= self.all_keys:
            return list(range(len(self.names)))
        most = self.view.top
        if self.compact and self.view.few:
            # nobody asked for so many; the line that sums up the others counts, too
            most = SHORT - 1
        largest = np.argsort(-self.weights, kind="stable")[:most]
        return sorted(int(index) for index in largest)

    @cached_property
    def other_keys(self) -> list[int]:
        """The keys that have no line of their own."""
        return sorted(set(range(len(self.names))) - set(self.keys_shown))

    def key(self, index: int) -> str:
        """A key's position and text, such as `2 sat`."""
        return position_and_text(index, self.names[index], NAME, self.view)

    def _title(self, number: int, part: str, note: str) -> Lines:
        """The heading of a step: number (0 for none), name, formula, code, and a sentence that says
        what it does.

        part: the step's name in `STEP_TITLES`.
        note: the formula, beside the title.
        """
        view = self.view
        title = say(view, STEP_TITLES[part], query=self.query)
        if number:
            title = f"{number} {title}"
        top = heading(title, note, view)

        # the lines of code, 3 blanks behind the title where they fit, else below it
        lines = [spell(text, ascii=view.ascii) for text in self.code.get(part, ())]
        code = "; ".join(lines)
        fits = len(top.rows) == 1 and line_width(top.rows[0]) + 3 + cells(code) <= view.width
        if lines and fits:
            top = line(*top.rows[0], ("   ", ""), (code, CODE))
        elif lines:
            top = stack(top, *(line((f"  {text}", CODE)) for text in lines))

        # the mask says itself what it hides, and a narrow screen has room for the formulas alone
        if not self.leads or part == "masked" or (self.compact and view.width < ROOMY):
            return top
        return stack(top, remark(self.lead(part), view, style=""))

    def lead(self, part: str) -> str:
        """What a step does, in a sentence or two that are true of this model.

        part: the step's name in `LEADS`.
        """
        if part == "scaled":
            return join_sentences(scale_leads(self.document, self.view), self.view)
        if part == "softmax":
            step = self.document.step(SoftmaxRow)
            if step.highest is None:  # the table's place says what then holds
                return ""
            if step.sink is not None:
                return say(self.view, "Scores become weights: all at least 0, together below 1.")
        return say(self.view, LEADS[part], query=self.quoted_query)

    def place(self) -> Lines:
        """A title that tells which layer, head and query the derivation is of."""
        document = self.document
        place_text = say(
            self.view,
            "layer {layer} head {head} · query {index} {query}",
            layer=document.layer,
            head=document.head,
            index=document.query,
            query=self.query,
        )
        return heading(place_text, "", self.view)

    def projections(self) -> Lines:
        """The step of the projections: the query's q, and every key's k and v; on a short screen one
        entry of q worked out."""
        step = self.document.step(Projections)
        view = self.view
        rows = self.keys_shown
        names = [self.names[index] for index in rows]
        title = self._title(0, "projections", projection_formulas(self.document))
        rotation_note = remark(
            ROTATED if self.document.rotated else "",
            view,
        )
        if self.compact:
            return stack(title, rotation_note, line_of_first_entry(step, self.query, view))
        q = vectors(
            [step.q],
            [self.names[self.document.query]],
            view,
            title="q",
            row_numbers=[self.document.query],
        )
        k, v = (
            vectors(
                np.asarray(getattr(step, name))[rows], names, view, title=name, row_numbers=rows
            )
            for name in ("k", "v")
        )
        worked_entry = table_of_first_entry(step, self.query, view)
        return stack(title, rotation_note, stack_spaced(q, worked_entry, k, v))

    def similarity(self) -> Lines:
        """q·k for every key, entry by entry; what does not fit is summed in one column, so that
        rows add up.
        """
        step = self.document.step(Products)
        view = self.view
        products = np.asarray(step.products, np.float64)
        raw = np.asarray(step.raw, np.float64)

        # how many entries have a column, and with how many digits; either depends on the other, so
        # both are found in two rounds. Columns for q·k and for the sum of other entries are kept free
        room = view.width - max(cells(self.key(index)) for index in self.keys_shown) - INDENT
        digits = view.precision
        dims = 1
        width = products.shape[1]
        terms = products
        for _ in range(2):
            columns_that_fit = room // (digits + BESIDE_DIGITS)
            if view.full or width <= columns_that_fit - 1:  # less that of q·k
                dims = width
            else:
                dims = max(columns_that_fit - 2, 1)  # less those of q·k and of the other entries
            if dims < width:
                terms = np.hstack(
                    [products[:, :dims], products[:, dims:].sum(axis=1, keepdims=True)]
                )
            sums = zip(terms[self.keys_shown].tolist(), raw[self.keys_shown].tolist(), strict=True)
            digits = adding_digits(sums, view.precision)

        columns = [say(view, "key"), *map(str, range(dims))]
        if dims < width:
            columns.append(say(view, "{count} more", count=width - dims))
        rows = [
            [
                self.key(index),
                *(f"{term:.{digits}f}" for term in terms[index]),
                f"{raw[index]:.{view.precision}f}",
            ]
            for index in self.keys_shown
        ]
        title = self._title(1, "similarity", say(view, "S = Q·Kᵀ, s = Σ q_i·k_i"))
        return stack(title, ledger([*columns, "q·k"], rows, [], view), self._keys_shown_note())

    def scaled(self) -> Lines:
        """From q·k to the score: scale, soft cap, bias; one key worked out where the screen is
        short.
        """
        step = self.document.step(Scores)
        view = self.view

        # the title names the scale as a root where it is one, such as / √64
        model = self.document.model
        # "1/√64" without "1/√", or ""; a size that is not known (0) has no root
        scale_text = root_of(step.scale, model.d_k or 0, model.d_model or 0)
        root = scale_text.removeprefix("1/√")
        if step.scale == 1:
            name = message("s = q·k, not scaled")
        elif root:
            name = message("s = q·k × {scale} = q·k / √{root}")
        else:
            name = message("s = q·k × {scale}")
        title = self._title(2, "scaled", say(view, name, scale=brief(step.scale), root=root))
        raw = self.document.step(Products).raw

        # on a short screen, the key with the largest weight stands for all
        if self.compact:
            strongest = int(np.argmax(self.weights))
            name_of_key = self.key(strongest)
            worked_line = line_of_score(
                step, strongest, name_of_key, float(raw[strongest]), root, view
            )
            return stack(title, worked_line)

        # a column for each thing that is done to q·k, the last one being the score, so that no column
        # says twice what the score is; + 0.0 makes a score of −0.0 plain 0
        columns = [("q·k", raw)]
        sums = np.asarray(step.scaled) + 0.0
        if step.capped is not None or step.bias is not None:
            columns.append((say(view, "× scale"), step.scaled))
        if step.capped is not None:
            columns.append((say(view, "soft-capped"), step.capped))
            sums = np.asarray(step.capped) + 0.0
        if step.bias is not None:
            columns.append((say(view, "+ bias"), step.bias))
            sums = sums + step.bias
        columns.append((say(view, "score s"), sums))
        rows = [
            [self.key(key), *(self._number_text(numbers[key]) for _, numbers in columns)]
            for key in self.keys_shown
        ]
        return stack(
            title, ledger([say(view, "key"), *(name for name, _ in columns)], rows, [], view)
        )

    def masked(self) -> Lines:
        """The step of the mask, as a sentence: which keys it hides from the query, by name, or that
        it hides none."""
        view = self.view
        visible = self.document.step(Scores).visible
        hidden = [index for index, is_visible in enumerate(visible) if not is_visible]
        counts = {"count": len(hidden), "keys": len(visible)}
        query_text = quoted_token(self.document.tokens, self.document.query, view)
        template = message("Nothing is hidden: {query} may look at all {keys} keys.")
        if len(visible) == 1:
            template = message("Nothing is hidden: {query} may look at the only key.")
        sentence = say(view, template, query=query_text, **counts)
        if hidden:
            most = MENTIONED
            if view.full:
                most = len(hidden)
            names = say(view, contextual("between", ", ")).join(map(self.key, hidden[:most]))
            if len(hidden) > most:
                names += say(view, " and {count} more", count=len(hidden) - most)
            template = message(
                "Hidden from {query}: {count} of {keys} keys, their score becomes −∞ ({names})."
            )
            sentence = spell(
                say(view, template, query=query_text, names=names, **counts), ascii=view.ascii
            )
        title = self._title(3, "masked", say(view, "s = −∞ where hidden"))
        return stack(title, remark(sentence, view, style=""))

    def softmax(self) -> Lines:
        """The softmax of the query's row as a table: maximum, exponentials, sum, quotients."""
        step = self.document.step(SoftmaxRow)
        view = self.view
        title = self._title(4, "softmax", say(view, "w = exp(s − max) / sum"))
        if step.highest is None:
            return stack(
                title,
                remark(
                    "This query sees no key: its weights and its weighted sum A·V are 0 by definition.",
                    view,
                ),
            )

        # the rows: keys, the sum of other keys, a learned sink
        row_names = self._key_names()
        exponentials = self._with_others(np.asarray(step.exponentials, np.float64))
        notes = []
        if not self.compact:
            template = message(
                "max = {highest}; it is subtracted so that no exponential can overflow, and cancels"
                " in the quotient"
            )
            notes.append(say(view, template, highest=self._number_text(step.highest)))
        if step.sink is not None:
            row_names = [*row_names, say(view, "learned sink")]
            exponentials = [*exponentials, step.sink]
            template = message(
                "The learned sink takes its share of the sum and is dropped: the weights sum to"
                " less than 1."
            )
            notes.append(say(view, template))
        shares = [exponential / step.sum for exponential in exponentials]

        def of_keys(numbers: Sequence[float | None]) -> list[str]:
            """A column of one number per key, as text; −∞ for a hidden key, blank for the rows that
            are no single key."""
            texts = []
            for key in self.keys_shown:
                if step.shifted[key] is None:
                    texts.append(spell("−∞", ascii=view.ascii))
                else:
                    texts.append(self._number_text(numbers[key]))
            return texts + [""] * (len(row_names) - len(self.keys_shown))

        # the columns, each with its title, its texts and its total
        columns = [
            ("s − max", of_keys(step.shifted), ""),
            (say(view, "exp"), *adding_column(exponentials, step.sum, view.precision)),
            (say(view, "weight w"), *adding_column(shares, 1.0, view.precision)),
        ]
        if view.width >= BESIDE:
            # beside other panes there is no room for the scores, which an earlier step has
            scores = self.document.step(Scores).scores
            columns.insert(0, (say(view, "score s"), of_keys(scores), ""))
        # a bar of each weight, of at most 24 cells; names and columns of numbers take some 62. The
        # scores have their column wherever there is room for bars (`BESIDE` is less than 62)
        room = max(min(view.width - 62, 24), 0)
        bar_column = None
        if room:
            columns.append(("", [bar(share, room, ascii=view.ascii) for share in shares], ""))
            bar_column = len(columns)  # that of the names comes first
        names, texts, totals = zip(
            (say(view, "key"), row_names, say(view, "sum")), *columns, strict=True
        )
        strong = int(np.argmax(shares[: len(self.keys_shown)]))
        rows = list(zip(*texts, strict=True))
        body = ledger(names, rows, totals, view, strong=strong, bars=bar_column)
        return stack(title, body, *(remark(note, view) for note in notes))

    def output(self) -> Lines:
        """The weighted sum, term by term; every printed column adds up."""
        step = self.document.step(OutputSum)
        view = self.view
        terms = np.asarray(step.terms, np.float64)
        output = np.asarray(step.output, np.float64)
        # a column for each entry of the output, as many as fit
        columns = [self._with_others(term) for term in terms.T]
        dims, digits = self._fit_output(columns, output.tolist())
        names = [say(view, "key"), "w", *map(str, range(dims))]
        weights = map(self._number_text, self._with_others(self.weights))
        texts = ([f"{value:.{digits}f}" for value in column] for column in columns[:dims])
        rows = list(zip(self._key_names(), weights, *texts, strict=True))
        # the total has fewer digits: blanks keep its points below the others
        more_digits = " " * (digits - view.precision)
        sums = [self._number_text(value) + more_digits for value in output[:dims]]
        total = ["o", "", *sums]
        title = self._title(5, "output", say(view, "O = A·V, o = Σ w_j·v_j"))
        more = ""
        if dims < len(output) and not self.compact:
            more = say(
                view,
                "dimensions 0–{last} of {total} shown; --full shows all",
                last=dims - 1,
                total=len(output),
            )
        return stack(title, ledger(names, rows, total, view), remark(more, view))

    def _fit_output(
        self, columns: Sequence[Sequence[float]], output: Sequence[float]
    ) -> tuple[int, int]:
        """How many entries of the output fit on the screen, and with how many digits each of their
        columns adds up.

        columns: of each entry the terms of its sum, one a row.
        output: the sums.
        """
        view = self.view
        longest_key = max(cells(self.key(index)) for index in self.keys_shown)
        weight_width = view.precision + BESIDE_DIGITS
        room = view.width - longest_key - INDENT - weight_width
        digits = view.precision
        dims = len(output)
        for _ in range(2):  # the digits depend on the entries that fit, and those on the digits
            if not view.full:
                dims = max(min(len(output), room // (digits + BESIDE_DIGITS)), 1)
            digits = adding_digits(zip(columns[:dims], output, strict=False), view.precision)
        return dims, digits

    def further(self) -> Lines:
        """Hints at what to look at next, each with its command: the same link in other heads, and
        the run without this head."""
        document = self.document
        view = self.view
        model = self.document.model
        tokens = document.tokens
        # the query, and the key that it looks at most besides those where heads rest, looking for
        # nothing
        query, key = (
            token_reference(tokens, index, view)
            for index in (document.query, self._strongest_key())
        )
        unknown = []  # a word that the model does not know is asked about only with this option
        if tokens[document.query].unknown:
            unknown = ["--unknown"]
        head = ["--head", head_name(document.layer, document.head)]
        titles = {
            name: f"{TOUR.index(STEP[name])} {say(view, STEP[name].title)}"
            for name in ("heads", "effect")
        }
        ends = ["--from", query, "--to", key, *unknown]

        # the same link in other heads, and the run without this one
        find = command_about(document, "find", ends, view)
        other_heads = command_lines(find, view, before=titles["heads"], style="bold")
        if model.attending == model.heads == 1:  # a single layer attends, with a single head
            head = []
            none = message("there are none: this model has one head")
            other_heads = heading(titles["heads"], none, view)
        ablate = command_about(document, "ablate", ["--query", query, *head, *unknown], view)
        effect = command_lines(ablate, view, before=titles["effect"], style="bold")
        return stack(other_heads, effect, options_note(view))

    def matrices(self) -> Lines:
        """The matrices of all queries, with the worked query's row marked, and by how much the worked
        numbers differ from the run's.
        """
        # the names of rows and columns
        document = self.document
        view = self.view
        names = self.names
        matrices = document.matrices
        query = document.query
        texts = names[: len(document.tokens)]
        mark = spell("▸", ascii=view.ascii)
        rows = [f"{mark}{text}" if index == query else text for index, text in enumerate(texts)]
        # as many digits as let every key have its column, so that the worked row can be found
        # again, but two at least, where numbers have so many
        # (some 4 cells are for a row's number and gaps, beside its name)
        column_width = (view.width - NAME - 4) // len(names)
        digits = view.precision
        if not view.full:
            least = min(view.precision, 2)
            digits = max(min(view.precision, column_width - BESIDE_DIGITS), least)
        fewer_digits = structs.replace(view, precision=digits)
        blocks = [
            heading(
                "the same for all queries",
                say(view, "row {row} is that of {query}", row=query, query=texts[query]),
                view,
            )
        ]

        def vectors_of(name: str, values: Numbers) -> Lines:
            """One of the matrices as a vector per token, under its title."""
            title, note = MATRICES[name]
            return vectors(values, rows, fewer_digits, title=title, note=note)

        # X, the square matrices [query, key], and O
        if matrices.x is not UNSET:
            blocks.append(vectors_of("x", matrices.x))
        for name, values in _square_matrices(document):
            # before the mask all entries are shown; behind it, what it hides is blank
            entries = visible(values, UNSET)
            if name in ("scores", "weights"):
                entries = visible(values, matrices.scores)
            is_signed = name != "weights"
            limits = None
            if not is_signed:
                limits = (0.0, 1.0)
            matrix_title, note = MATRICES[name]
            blocks.append(
                matrix(
                    entries,
                    rows,
                    names,
                    fewer_digits,
                    limits=limits,
                    signed=is_signed,
                    title=matrix_title,
                    note=note,
                )
            )
        blocks.append(vectors_of("output", matrices.output))
        return stack(stack_spaced(*blocks), agreement_remark(document.agreement, view))

    def residual(self) -> Lines:
        """The query's row after the heads: each head's part of concat·W_O, then x + o and its norm
        where the layer has them."""
        view = self.view
        after = self.document.after
        if after is UNSET:
            return Lines()

        # the sum over heads
        mixed = Lines()
        if after.heads is not UNSET:
            terms = [
                (say(view, "head {head}", head=index), share)
                for index, share in enumerate(after.heads)
            ]
            if after.bias is not UNSET:
                terms.append(("b_O", after.bias))
            title = say(view, "the heads' outputs become one: concat(O₁ … O_h)·W_O")
            note = say(view, "each head's output times its own rows of W_O, added up")
            if after.bias is not UNSET:
                title += " + b_O"
            mixed = vector_sum(terms, ("O", after.out), view, title=title, note=note)

        # x, what is added to it, their sum and its norm, as far as the layer has them
        added = "O"
        if after.branch is not UNSET:
            added = "b"
        rows = [("x", after.x), ("O", after.out), ("b", after.branch)]
        rows += [(f"x + {added}", after.sum), (f"norm(x + {added})", after.norm)]
        vectors_by_name = {name: values for name, values in rows if values is not UNSET}
        if len(vectors_by_name) < 3:  # neither residual nor norm
            return mixed
        query = label(self.names[self.document.query], ascii=view.ascii)
        title = say(view, "{query} after the heads", query=query)
        note = say(view, "the residual x + O")
        if after.norm is not UNSET:
            note = say(view, "the residual x + O, and its layer norm")
        if after.branch is not UNSET:
            note = say(
                view,
                "b: what is added to x, O after its norm or factor and what is beside the heads",
            )
        names = list(vectors_by_name)
        values = list(vectors_by_name.values())
        return stack_spaced(mixed, vectors(values, names, view, title=title, note=note))

    def answer(self) -> Lines:
        """The text tinted by the query's weights, and a sentence on what it attends to most."""
        document = self.document
        view = self.view
        query = self.document.query
        tokens = document.tokens
        weights: Sequence[float] = self.weights[: len(tokens)].tolist()
        shares, tint = weights_as_tints(document, weights)
        tinted_sentence = shaded_sentence(
            document.text, tokens, shares, view, query=query, tint=tint
        )
        texts = (*self._looks_sentences(weights), not_learned_note(document.model, view))
        return stack(tinted_sentence, sentences(texts, view))

    def _looks_sentences(self, weights: Sequence[float]) -> Iterator[str]:
        """Yield sentences on what the query looks at most; where that is a key on which heads rest
        (put weight when they look for nothing), also what it looks at besides.

        weights: of the query, [key].
        """
        document = self.document
        view = self.view
        query = document.query
        tokens = document.tokens
        order = np.argsort(-np.asarray(weights), kind="stable").tolist()
        best = order[0]
        query_text = quoted_token(tokens, query, view)
        key_text = quoted_token(tokens, best, view)
        if weights[best] <= 0:
            template = message(
                "{query} can see no word: its weights and its weighted sum A·V are 0."
            )
            yield say(view, template, query=query_text)
            return
        if self._sees_one_key() and weights[best] >= WHOLE:
            template = message(
                "{query} sees {key} alone: all of its weight is there, whatever a head does."
            )
            if best == query:
                template = message(
                    "{query} sees nothing but itself: all of its weight is there, whatever a head"
                    " does."
                )
            yield say(view, template, query=query_text, key=key_text)
            return
        share = softmax_percent(weights[best], int(np.count_nonzero(weights)))
        rest = resting_keys(tokens, document.model.source)
        alike = [key for key in same_weights(weights, weights[best]) if not rest[key]]
        if not rest[best] and len(alike) > 1:
            names = [quoted_token(tokens, key, view) for key in alike]
            yield alike_sentence(query_text, names, weights[best], view)
            return
        if not rest[best]:
            keys = [(key_text, weights[best])]
            yield looks_most_sentence(query_text, keys, view, itself=best == query)
            return
        template = message("{share} of the weight of {query} is on {key}.")
        yield say(view, template, share=share, query=query_text, key=key_text)
        yield resting_key(tokens, best, view)
        next_key = self._strongest_key()
        if next_key != best:
            template = message("Of the others it looks most at {key}: {share} of its weight.")
            next_text = quoted_token(tokens, next_key, view)
            yield say(view, template, key=next_text, share=percent(weights[next_key]))

    def _sees_one_key(self) -> bool:
        """Whether a single key, a token or a learned one, is not hidden from the query."""
        return sum(self.document.step(Scores).visible) == 1

    def _strongest_key(self) -> int:
        """The position of the key that the query looks at most, leaving out keys on which heads rest
        (the first token and special ones); of all keys where no other has any weight."""
        document = self.document
        weights = self.weights[: len(document.tokens)]
        rest = resting_keys(document.tokens, document.model.source)
        word_weights = np.where(rest, 0.0, weights)
        if word_weights.max(initial=0.0) > 0:
            return int(np.argmax(word_weights))
        return int(np.argmax(weights))

    def _number_text(self, value: float | None) -> str:
        """A number with the view's digits, never -0; "" for None."""
        if value is None:
            return ""
        text = f"{value:.{self.view.precision}f}"
        if text.startswith("-") and not text.strip("-0."):
            return text[1:]
        return text

    def _key_names(self) -> list[str]:
        """The labels of the lines of a table: the keys with a line of their own, then "N others"
        where there are any."""
        names = [self.key(index) for index in self.keys_shown]
        if self.other_keys:
            names.append(others_text(len(self.other_keys), self.view))
        return names

    def _with_others(self, values: np.ndarray[Any, Any]) -> list[float]:
        """Values, [key], for the lines of a table: those of the keys with a line of their own, then
        the sum over the others."""
        rows: list[float] = values[self.keys_shown].tolist()
        if self.other_keys:
            rows.append(float(values[self.other_keys].sum()))
        return rows

    def _keys_shown_note(self) -> Lines:
        """The remark on how many keys have a line of their own; empty where all have."""
        if not self.other_keys:
            return Lines()
        note = plural(
            "the {count} key with the largest weight of {total} shown; --top N or --full shows"
            " more",
            "the {count} keys with the largest weights of {total} shown; --top N or --full shows"
            " more",
            count=len(self.keys_shown),
            total=len(self.names),
        )
        return remark(say(self.view, note), self.view)


def others_text(count: int, view: View) -> str:
    """The label of the line that sums up `count` other keys, such as `5 others`."""
    return say(view, plural("{count} other", "{count} others", count=count))


def lead_remark(part: str, query: str, view: View) -> Lines:
    """The introductory sentence of a step, from `LEADS`.

    part: the step's name.
    query: the query's name in quotes.
    """
    return remark(say(view, LEADS[part], query=query), view, style="")


def weights_as_tints(
    document: Header, weights: Sequence[float] | Numbers, *, several: bool = False
) -> tuple[list[float], Message]:
    """Turn a query's weights into shares that tint the words of its text, with the note that says
    what the tint shows. Words on which heads rest (put weight when they look for nothing) get 0.

    Args:
        document: Has the tokens, and says whether its weights are learned.
        weights: By key; keys behind the tokens are left out.
        several: Whether each weight is the largest of several heads, not of one.
    """
    rest = resting_keys(document.tokens, document.model.source)
    # [token]; [] where a document has no weights
    shares = np.nan_to_num(np.asarray(weights, np.float64))[: rest.size]
    shares_of_words = np.where(rest[: shares.size], 0.0, shares).tolist()
    if several and rest.any():
        tint = message(
            "tint: the strongest weight that a word gets in any head, left out where heads rest"
        )
    elif several:
        tint = message("tint: the strongest weight that a word gets in any head")
    elif rest.any():
        tint = message("tint: the weight that the word gets, left out where heads rest")
    else:
        tint = message("tint: the weight that the word gets")
    return shares_of_words, tint


def agreement_remark(difference: float, view: View) -> Lines:
    """A remark that tells by how much the worked numbers differ at most from the run's own."""
    template = message(
        "Computed step by step here and taken from the run, the numbers differ by at most "
        "{difference}."
    )
    return remark(say(view, template, difference=f"{difference:.1e}"), view)


# The matrices that a derivation is a row of: X, S, scaled and masked, A and O, for all queries.

MATRICES = {
    "x": (message("input X"), message("one vector per token")),
    "raw": (
        message("similarity S = Q·Kᵀ"),
        message("before scaling · rows: queries, columns: keys"),
    ),
    "scaled": (message("scaled S"), message("before bias and mask · rows: queries, columns: keys")),
    "scores": (
        message("scores S"),
        message("what enters the softmax · rows: queries, columns: keys"),
    ),
    "weights": (
        message("weights A = softmax(S)"),
        message("each row sums to 1 · rows: queries, columns: keys"),
    ),
    "output": (message("output O = A·V"), message("one vector per query")),
}
"""The title of each, and what its rows and columns are."""


def _square_matrices(document: AttentionTopic) -> list[tuple[str, object]]:
    """The matrices [query, key] of the document as (name, values), in the order of the steps; one that
    equals the next, as a step that changes nothing leaves it, is left out."""
    matrices = document.matrices
    squares: list[tuple[str, object]] = []
    if matrices.raw is not UNSET and matrices.scaled is not UNSET:
        if not np.array_equal(matrices.raw, matrices.scaled):
            squares.append(("raw", matrices.raw))
        if not np.array_equal(matrices.scaled, matrices.scores):
            squares.append(("scaled", matrices.scaled))
    return [*squares, ("scores", matrices.scores), ("weights", matrices.weights)]


# What a derivation adds to the steps: one entry of q worked out, the residual and layer norm, the
# answer.

TERMS = 6
"""Products of one entry that have a line of their own."""
MENTIONED = 6
"""Hidden keys that are named; of more, the number is told."""
PRODUCTS = 1
"""The same where an entry is told in one line."""


def _decimals(value: float, digits: int) -> str:
    """Write a number with so many digits after the point."""
    return f"{value:.{digits}f}"


def table_of_first_entry(step: Projections, query: str, view: View) -> Lines:
    """The table that works out q's first entry, q_0 = Σ x_i·W_Q[i, 0] + bias: the largest products
    line by line, all with `--full`; no lines where the document has no column of W_Q.

    query: the query's text.
    """
    column = step.column
    if column is UNSET:
        return Lines()

    # which products have a line
    x = np.asarray(step.x, np.float64)
    weights = np.asarray(column, np.float64)
    products = x * weights
    shown_indices = list(range(len(x)))
    if not view.full:
        by_size = np.argsort(-np.abs(products), kind="stable")
        shown_indices = sorted(by_size[:TERMS].tolist())
    hidden_count = len(x) - len(shown_indices)

    # the lines of the sum: index and factors, and beside them the term
    labels = [
        [str(index), _decimals(x[index], view.precision), _decimals(weights[index], view.precision)]
        for index in shown_indices
    ]
    terms = [float(products[index]) for index in shown_indices]
    if hidden_count:
        labels.append([others_text(hidden_count, view), "", ""])
        terms.append(float(products.sum() - products[shown_indices].sum()))
    if step.bias is UNSET:
        total = float(products.sum())
        note = message("q_0 = Σ x_i · W_Q[i, 0]; every other entry likewise")
    else:
        labels.append([say(view, "bias b_Q"), "", ""])
        terms.append(step.bias)
        total = float(products.sum() + step.bias)
        note = message("q_0 = Σ x_i · W_Q[i, 0] + b_Q[0]; every other entry likewise")

    # products have as many more digits as they need to add up to the total as it is printed
    digits = adding_digits([(terms, total)], view.precision)
    rows = [[*label, _decimals(term, digits)] for label, term in zip(labels, terms, strict=True)]
    spaces_to_align = " " * (digits - view.precision)
    return ledger(
        ["i", "x_i", "W_Q[i, 0]", "x_i · W_Q[i, 0]"],
        rows,
        [say(view, "q_0"), "", "", _decimals(total, view.precision) + spaces_to_align],
        view,
        title=say(view, "the first entry of q for {query}, worked out", query=query),
        note=note,
    )


def line_of_first_entry(step: Projections, query: str, view: View) -> Lines:
    """q's first entry worked out in one line, its first product written out; where the document has
    no column of W_Q, q itself.

    query: the query's text.
    """
    column = step.column
    if column is UNSET:
        return vectors([step.q], [query], view, title="q")
    x = np.asarray(step.x, np.float64)
    weights = np.asarray(column, np.float64)
    bias = 0.0
    if step.bias is not UNSET:
        bias = step.bias

    def factor(value: float) -> str:
        """A number as a factor, in brackets if it is negative."""
        text = _decimals(value, view.precision)
        if value < 0:
            return f"({text})"
        return text

    terms = [
        f"{factor(x[index])}·{factor(weights[index])}" for index in range(min(len(x), PRODUCTS))
    ]
    if len(x) > PRODUCTS:
        terms.append(say(view, "… ({count} more)", count=len(x) - PRODUCTS))
    if step.bias is not UNSET:
        terms.append(factor(bias))
    total = _decimals(float(x @ weights) + bias, view.precision)
    sum_text = f"{' + '.join(terms)} = {total}"
    return remark(
        spell(say(view, "q_0 of {query}: {sum}", query=query, sum=sum_text), ascii=view.ascii), view
    )


def line_of_score(step: Scores, key: int, name: str, raw: float, root: str, view: View) -> Lines:
    """The score of one key worked out in a line: q·k scaled, capped, and with what its position
    adds, such as "for 2 sat: q·k = 1.20, 1.20 / √64 = 0.15; every other key likewise".

    key: its index.
    name: the name of the key.
    raw: q·k.
    root: the number by whose square root it is divided; "" where it is multiplied instead.
    """

    def write(number: float) -> str:
        """A number with the decimals of the screen."""
        return _decimals(number, view.precision)

    value = raw
    parts = [write(value)]
    if step.scale != 1:
        factor = f"× {brief(step.scale)}"
        if root:
            factor = f"/ √{root}"
        parts.append(f"{write(value)} {factor} = {write(step.scaled[key])}")
        value = float(step.scaled[key])
    if step.capped is not None:
        # scores that are capped come with the cap
        cap = brief(step.softcap or 0.0)
        parts.append(f"{cap}·tanh({write(value)} / {cap}) = {write(step.capped[key])}")
        value = float(step.capped[key])
    if step.bias is not None:
        bias_sum = (
            f"{write(value)} + {write(step.bias[key])} = {write(value + float(step.bias[key]))}"
        )
        parts.append(bias_sum.replace("+ -", "− "))
    template = message("for {key}: q·k = {product}; every other key likewise")
    if view.width < ROOMY:
        template = message("for {key}: q·k = {product}")
    score_text = say(
        view, template, key=name, product=say(view, contextual("clauses", ", ")).join(parts)
    )
    return remark(spell(score_text, ascii=view.ascii), view)
