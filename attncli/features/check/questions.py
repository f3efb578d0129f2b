"""The questions of the worksheet: what is asked, the right answer as a run of today gives it, and what
usual mistakes come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct, field

from attncli.language import Message, message

SENTENCE = "humpty dumpty sat on"
PLAN = "今天 我 的 计划 是 买菜"
CLOSE = 0.006
"""How far a number may be from the right one, as a share of it: two digits are enough."""
EXACT = 1e-9
"""The same of a count."""


class Slip(Struct, frozen=True):
    """A wrong answer that has a reason of its own."""

    answer: float | str
    reason: Message


class Answer(Struct, frozen=True):
    """The right answer to a question, and the wrong ones whose reason is known."""

    value: float | str
    slips: Sequence[Slip] = field(default=())
    tolerance: float = CLOSE


class Question(Struct, frozen=True):
    """A question of the worksheet.

    text: what is asked.
    work_out: runs what the question is about, and returns the right answer.
    reason: what to say of any mistake without a reason of its own.
    command: shows the right answer.
    """

    text: Message
    work_out: Callable[[], Answer]
    reason: Message
    command: str


def _softmax_weights(scores: Sequence[float]) -> list[float]:
    """The softmax of some scores."""
    from attncli.features.explain.softmax_topics import softmax_document

    return list(softmax_document(scores).weights)


def _first_weight() -> Answer:
    """The first softmax weight of three scores."""
    weights = _softmax_weights([2.0, 1.0, 0.1])
    return Answer(
        weights[0],
        (
            Slip(
                2.0 / 3.1,
                message(
                    "2.0 / 3.1, the score over the sum of the scores, is 0.645: exponentiate first. If"
                    " you did, round at the end, to the nearest."
                ),
            ),
            Slip(weights[1], message("That is the second weight.")),
        ),
    )


def _ratio() -> Answer:
    """How many times as large the first of these weights is as the second."""
    weights = _softmax_weights([2.0, 1.0, 0.1])
    return Answer(
        weights[0] / weights[1],
        (
            Slip(2.0, message("That is the ratio of the scores; of weights it is exp(2 − 1).")),
            Slip(weights[1] / weights[0], message("That is the second over the first.")),
            Slip(
                round(weights[0], 2) / round(weights[1], 2),
                message("These weights were rounded before the division: divide, then round."),
            ),
        ),
    )


def _shifted_weight() -> Answer:
    """The first weight where 100 is added to each score."""
    return Answer(
        _softmax_weights([102.0, 101.0, 100.1])[0],
        (Slip(1.0, message("Large scores do not decide: only their differences count.")),),
    )


def _variance() -> Answer:
    """The variance of q·k of 64 independent entries of variance 1."""
    from attncli.features.explain.softmax_topics import scaling_document

    # only the formula's value is read, so the fewest samples and keys are drawn
    variance = scaling_document(64, samples=2, keys=2).variance[0].theory
    return Answer(
        variance,
        (
            Slip(
                variance**0.5,
                message("That is the standard deviation, by which scores are divided."),
            ),
            Slip(1.0, message("That is the variance after the division by √d_k.")),
        ),
    )


def _looked_at() -> Answer:
    """The word that "on" looks at most in the sample sentence, with seeded weights."""
    import attncli

    document = attncli.explain(attncli.load(seed=0), SENTENCE, "on")
    weights = np.asarray(document.matrices.weights)[document.query]
    return Answer(
        document.tokens[int(weights.argmax())].text,
        (Slip("on", message("A word need not look at itself: its own score is one of four.")),),
    )


def _head_width() -> Answer:
    """How wide each of 8 heads is in a model of width 512."""
    import attncli

    width = attncli.load(seed=0, d_model=512, heads=8).spec.blocks[0].attention.head_dim
    return Answer(
        float(width),
        (
            Slip(512.0, message("That is d_model; the heads share it.")),
            Slip(8 * 512.0, message("Heads do not add width: they share d_model.")),
        ),
    )


def _causal_pairs() -> Answer:
    """How many pairs a head compares over 1000 tokens under a causal mask."""
    import attncli

    variants = {variant.name: variant for variant in attncli.cost(1000).variants}
    pairs = float(variants["causal"].pairs)
    return Answer(
        pairs,
        (
            Slip(
                float(variants["full"].pairs),
                message("That is n², without the mask: half of it lies ahead."),
            ),
            Slip(
                pairs - 1000,
                message("Each token sees itself too: n(n + 1)/2, not n(n − 1)/2."),
            ),
            Slip(
                float(variants["full"].pairs) / 2,
                message("Half of n² counts half of the diagonal: n(n + 1)/2."),
            ),
        ),
        EXACT,
    )


def _order_seen() -> Answer:
    """Whether the output of the middle character changes with the order, without positions."""
    import attncli

    model = attncli.load(seed=0, tokenizer="char")
    tokens = model.encode("我爱你")
    # the middle character stays where it is as the other two change places
    row = attncli.topics.order([model], "我爱你", tokens, [2, 1, 0]).order_rows[0]
    return Answer(
        "no" if row.equal else "yes",
        (
            Slip(
                "yes",
                message("A sum does not know the order of its terms, and scores are of two words."),
            ),
        ),
    )


def _keys_seen() -> Answer:
    """How many keys the third of four words sees under a causal mask."""
    from attncli.arrays.backend import numpy_backend
    from attncli.mechanism.mask import Causal, visible

    places = np.arange(4)
    sight = visible(
        Causal(), places[:, None], places[None], keys=4, backend=numpy_backend("float64")
    )
    third = np.asarray(sight).reshape(4, 4)[2]  # the row [key] of the third query
    count = float(third.sum())
    return Answer(
        count,
        (
            Slip(count - 1, message("It sees itself too.")),
            Slip(4.0, message("The word after it is hidden: j ≤ i.")),
        ),
        EXACT,
    )


def _looks_where_it_says() -> Answer:
    """Whether a head that has learned to say a word also looks at it."""
    import attncli

    document = attncli.learn("sentence", PLAN, query="计划", target="买菜", seed=1)
    # of all heads of the trained model, the largest weight on the word that is said
    share = next(best.value for best in document.runs[0].best if best.score == "target")
    return Answer(
        "yes" if share >= 0.5 else "no",  # to look at a word is to give it most of the weight
        (
            Slip(
                "yes",
                message(
                    "It says the word and gives it {share:.2f} of its weight: values are learned "
                    "too, and one that says it can hang on any word.",
                    share=share,
                ),
            ),
        ),
    )


QUESTIONS = (
    Question(
        message("The softmax of 2.0, 1.0 and 0.1: what is the first weight?"),
        _first_weight,
        message("exp(2.0) over exp(2.0) + exp(1.0) + exp(0.1)."),
        "attn explain softmax 2.0 1.0 0.1",
    ),
    Question(
        message("How many times as large is the first weight as the second?"),
        _ratio,
        message("Scores that differ by 1 have weights in the ratio exp(1)."),
        "attn explain softmax 2.0 1.0 0.1",
    ),
    Question(
        message("100 is added to each of the three scores: what is the first weight now?"),
        _shifted_weight,
        message("The same factor exp(100) stands above and below the line."),
        "attn explain softmax 102.0 101.0 100.1",
    ),
    Question(
        message("q and k have 64 independent entries of variance 1: what is the variance of q·k?"),
        _variance,
        message("64 products of variance 1 are added up."),
        "attn explain scaling --d-k 64",
    ),
    Question(
        message('In "humpty dumpty sat on" (seed 0), which word does "on" look at most?'),
        _looked_at,
        message('Look for the largest of the four weights in the row of "on".'),
        'attn explain "humpty dumpty sat on" --query on',
    ),
    Question(
        message("d_model 512 and 8 heads: how wide is a head's query, d_k?"),
        _head_width,
        message("The heads share d_model evenly."),
        'attn explain multihead "humpty dumpty sat on" --d-model 512 --num-heads 8',
    ),
    Question(
        message("1000 tokens under a causal mask: how many pairs does a head compare?"),
        _causal_pairs,
        message("Token i sees i + 1 keys: 1 + 2 + … + 1000."),
        "attn cost -n 1000",
    ),
    Question(
        message(
            'In "我爱你" and "你爱我", without positions and without a mask: does the output of "爱"'
            " differ? (yes, no)"
        ),
        _order_seen,
        message("Run both orders and compare the outputs."),
        'attn explain order "我爱你" --tokenizer char',
    ),
    Question(
        message("A causal mask over four words: how many keys does the third see?"),
        _keys_seen,
        message("It sees the keys before it and itself."),
        "attn mask causal -n 4",
    ),
    Question(
        message(
            'A head learns to say "买菜" at "计划" (seed 1), and does. Does it look at "买菜"?'
            " (yes, no)"
        ),
        _looks_where_it_says,
        message("Train it and read its score."),
        f'attn learn sentence "{PLAN}" --query 计划 --target 买菜 --seed 1',
    ),
)
"""The questions, the first has number 1."""
