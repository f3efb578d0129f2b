"""The explanations in English."""

PHRASES = {
    # the derivation
    "place": "layer {0} head {1} · query {2} {3}",
    "kept": "Numbers are rounded to {0} digits. Columns of terms have as many more as they need to add up to the printed totals.",
    "agrees": "Worked by hand and taken from the run, the same numbers differ by at most {0}.",
    "projections": "queries, keys and values",
    "projections.note": "Q = X·W_Q   K = X·W_K   V = X·W_V",
    "projections.rotated": "Shown after rotation by position (rope), as they enter the dot products.",
    "q": "q of {0}",
    "similarity": "similarity of {0} with each key",
    "similarity.note": "S = Q·Kᵀ · entry by entry q_i × k_i, then their sum",
    "shown.dims": "dimensions 0–{0} of {1} shown; --full shows all",
    "shown.keys": "the {0} keys with the largest weights of {1} shown; --top N or --full shows more",
    "others": "{0} others",
    "rest.dims": "{0} more",
    "scores": "scores of {0}",
    "scores.note": "s = q·k × {0}",
    "scores.root": "s = q·k × {0} = q·k / √{1}",
    "scores.none": "s = q·k, not scaled",
    "scores.hidden": "hidden by the mask: takes no part in the softmax",
    "softmax": "softmax of {0}",
    "softmax.note": "w = exp(s − max) / sum",
    "softmax.max": "max = {0}; it is subtracted so that no exponential can overflow, and cancels in the quotient",
    "softmax.sink": "learned sink",
    "softmax.sink.note": "The learned sink takes its share of the sum and is dropped: the weights sum to less than 1.",
    "sum": "sum",
    "output": "output of {0}",
    "output.note": "o = w_0·v_0 + w_1·v_1 + … · each row is one weight times one value",
    "empty": "This query sees no key: its weights and its output are 0 by definition.",
    "matrices": "the same for all queries",
    "matrices.note": "row {0} is the one worked out above",
    "matrix.scores": "scores S",
    "matrix.scores.note": "what enters the softmax · rows: queries, columns: keys",
    "matrix.weights": "weights A = softmax(S)",
    "matrix.weights.note": "each row sums to 1 · rows: queries, columns: keys",
    "matrix.output": "output O = A·V",
    "matrix.output.note": "one vector per query",
    "column.key": "key",
    "column.exp": "exp",
    "column.weight": "weight w",
    "column.score": "score s",
    "column.bias": "+ bias",
    "column.capped": "soft-capped",
    "column.scaled": "× scale",
    # softmax of numbers
    "numbers": "softmax of {0} numbers",
    "numbers.note": "w = exp(s) / sum of exp(s)",
    "numbers.temperature": "softmax of {0} numbers at temperature {1}",
    "numbers.temperature.note": "s = score / {0}; w = exp(s) / sum of exp(s)",
    "numbers.shift": (
        "The maximum, {0}, may be subtracted from every score: numerator and sum shrink by the same factor exp({0}), and nothing overflows."
    ),
    "numbers.overflow": "exp of {0} is too large for any float: only the subtracted form can be computed.",
    "numbers.facts": "largest weight {0} · entropy {1} nats of at most {2} · gradient norm {3}",
    "numbers.rounding": "The rounded weights add up to {0}; the exact ones to 1.",
    # scaling
    "scaling": "why scores are divided by √d_k",
    "scaling.claim": (
        "q and k: {0} independent entries, mean 0, variance 1. Each product q_i·k_i has mean 0 and variance 1, so their sum "
        "q·k has variance d_k = {0}."
    ),
    "scaling.measured": "measured on {0} pairs (seed {1})",
    "scaling.agree": "The measured variance is {0} standard errors from theory.",
    "scaling.softmax": "what that does to a softmax over {0} keys",
    "scaling.softmax.note": "means over {0} queries",
    "scaling.uniform": "uniform",
    "scaling.saturates": (
        "Unscaled, one weight takes nearly everything and the gradient vanishes; scaled, the softmax stays where it can learn."
    ),
    "scaling.small": "For so small a d_k the difference is slight: scaling matters more the larger d_k is.",
    "theory": "theory",
    "error": "standard error",
    "quantity": "quantity",
    "measured": "measured",
    "largest": "largest weight",
    "entropy": "entropy",
    "gradient": "gradient norm",
    # matrix softmax
    "matrix": "softmax by rows, and over the whole matrix",
    "matrix.rows": "by rows",
    "matrix.rows.note": "each query spreads 1 over the keys",
    "matrix.whole": "over the whole matrix",
    "matrix.whole.note": "all queries together share 1",
    "matrix.said": (
        "Over the whole matrix the weights of one query sum to between {0} and {1}: a query with small scores gets almost no "
        "output at all. Attention always uses rows."
    ),
    "row.sum": "row sum",
    # order
    "order": "does attention see the order of the tokens?",
    "order.note": "the same tokens in another order; each token's output against its own",
    "order.from": "from",
    "order.to": "to",
    "order.same": "equal (float rounding)",
    "order.differs": "differs",
    "order.said": "Without a position encoding or a mask, permuting the tokens permutes the outputs and changes nothing else.",
    "order.alibi": (
        "Read backwards, all distances |i − j| stay the same, and symmetric ALiBi knows nothing else: another order it does see, "
        "as its second row shows."
    ),
    "order.position": "position",
    "order.mask": "mask",
    "order.greatest": "max |difference|",
    "order.where": "largest at",
    "order.verdict": "outputs",
    # metrics
    "metric.formula": "formula",
    "metric.range": "range",
    "metric.unit": "unit",
    "metric.rows": "taken over",
    "metric.note": "note",
    "metric.source": "source",
    "metric.needs": "needs",
    "metric.value": "this head",
    "metric.uniform": "uniform over the visible keys",
    "metric.example": "an example: a causal head of four tokens",
    "metric.left": "{0} of {1} rows used",
    # masks
    "stop": ".",
    "mask.title": "visible keys, {0} positions",
    "mask.title.one": "visible keys, {0} position",
    "mask.gallery": "every kind of mask, {0} positions · rows: queries, columns: keys",
    "mask.axes": "rows: queries i, columns: keys j, both from 0",
    "mask.combined": "all together",
    "mask.combine": (
        "--mask A --mask B keeps what both show; A|B in one SPEC what either shows, such as window:2,2|global:0. Files: .npy "
        ".npz .json .csv, 0 or false = hidden."
    ),
    "mask.pairs": "{0} pairs visible, {1}",
    "mask.pairs.one": "{0} pair visible, {1}",
    "mask.keys": "keys per query: least {0}, mean {1}, most {2}",
    "mask.empty": "queries that see nothing: {0}",
    "mask.unseen": "keys that nobody sees: {0}",
    "mask.pooled": "pooled: each cell stands for {0} × {0} pairs and shows the share that is visible",
    "mask.counts": "counts",
    "mask.counts.note": "of {0} pairs",
    "mask.column.mask": "mask",
    "mask.column.pairs": "pairs",
    "mask.column.share": "share",
    "mask.column.least": "least keys",
    "mask.column.mean": "mean",
    "mask.column.most": "most",
    "mask.column.empty": "empty rows",
    "mask.layers": "masks by layer",
    "mask.layers.layers": "layers",
    "mask.layers.mask": "mask",
    "mask.layers.position": "position",
    "bias.title": "score bias {0}, head {1} of {2}",
    "bias.slope": "−m·(i − j) with m = {0}, added before the mask",
    "bias.buckets": "numbers of the buckets of j − i; each has a learned bias per head",
    "bias.learned": "learned, by the bucket of j − i; added before the mask",
    "bias.distance": "j − i",
    "bias.value": "bias",
    "bias.before": "before the mask",
    "bias.after": "after the mask",
    "bias.weights": "What bias and mask do alone: the weights where all queries and keys are alike.",
    "bias.weights.before": "weights, no mask",
    "bias.weights.after": "weights, masked",
    # cost
    "cost.title": "attention over {0} tokens",
    "cost.title.one": "attention over {0} token",
    "cost.says": (
        "One layer. A multiply-add is one product with its sum. The projections to q, k, v and back take {0} of them in every "
        "attention variant and are not counted below."
    ),
    "cost.variants": "pairs and operations",
    "cost.variants.note": "pairs per head; multiply-adds of all heads",
    "cost.path": (
        "steps: what must happen one after the other. path: layers (for the rnn: steps) until the first token can influence "
        "the last; for lsh chance decides."
    ),
    "cost.memory": "memory for scores",
    "cost.memory.note": "all heads; at once, and by {0} query rows at a time",
    "cost.memory.rnn": "rnn: its states, all of them or only the last. Causal attention computed at once holds the hidden half too.",
    "cost.growth": "growth of multiply-adds over n",
    "cost.growth.note": "both axes logarithmic; the line marks n",
    "cost.crossing": (
        "From n = {0} on, full attention takes more multiply-adds than a recurrent network of width {1}, but it computes all "
        "tokens at once, where the network takes n steps one after the other."
    ),
    "cost.layers": "attention of {0} by layer",
    "cost.layers.note": "feed-forward parts not counted",
    "cost.layers.total": (
        "Scores are held one layer at a time, so the total shows the largest. cache: keys and values kept while generating."
    ),
    "cost.total": "total",
    "cost.measured": "measured on this machine",
    "cost.measured.note": "median; ratios to full on the same backend",
    "cost.measured.says": (
        "computed: the same ratio of multiply-adds. streamed, causal and window run by blocks of query rows and keep nothing n × n."
    ),
    "cost.column.variant": "variant",
    "cost.column.pairs": "pairs",
    "cost.column.work": "multiply-adds",
    "cost.column.ratio": "of full",
    "cost.column.steps": "steps",
    "cost.column.path": "path",
    "cost.column.grows": "grows as",
    "cost.column.dense": "at once",
    "cost.column.streamed": "by rows",
    "cost.column.saved": "saved",
    "cost.column.layers": "layers",
    "cost.column.mask": "mask",
    "cost.column.projections": "projections",
    "cost.column.cache": "cache",
    "cost.column.backend": "backend",
    "cost.column.time": "time",
    "cost.column.measured": "measured",
    "cost.column.computed": "computed",
}
"""Phrases by name; {0}, {1} … are places to fill."""
