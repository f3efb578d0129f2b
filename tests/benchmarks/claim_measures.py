"""The arithmetic of the rows of `claims.py`: from the documents that commands print, and from runs
in Python where a row is about many texts, to numbers with intervals."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from claims import ROOT, Desk, Measured, bootstrap, model_path, share

CORPUS = "sample_inputs/corpus.txt"
"""Forty English sentences written for this repository."""


def scores_of(heads: Any, metric: str) -> list[float]:
    """A score of every head of a checkpoint of `attn.series`."""
    return [head["metrics"][metric] for head in heads]


def heads_of(document: Any, value: str) -> list[float]:
    """A metric of every head of an `attn.heads` document."""
    return [head["metrics"][value]["value"] for head in document["heads"]]


# Heads that rest

SINKS = "attn heads --model {model} --file sample_inputs/corpus.txt --lines --metric sink --ndjson"


def measure_sinks(desk: Desk) -> dict[str, Measured]:
    """The share of heads whose mean weight on the first token is above 0.3, Gu's Sink₁."""
    found = {}
    for model in ("smollm2", "gemma3"):
        documents = desk.ask(SINKS.format(model=model))
        values = [heads_of(document, "sink") for document in documents]
        even = np.mean(
            [document["heads"][0]["baseline"]["sink"]["value"] for document in documents]
        )
        drawn = bootstrap(values, lambda array: float((array.mean(0) > 0.3).mean()))
        found[model] = Measured(drawn.value, drawn.low, drawn.high, drawn.count, float(even > 0.3))
    return found


# The circuit of the indirect object

CIRCUIT = "attn circuit --model smollm2 --pairs indirect-object --count 48 --size 1% --json"


DRAWN = (
    "attn circuit --model smollm2 --pairs indirect-object --count 8 --size 1% --seed {seed} --json"
)
DRAWN_SEEDS = (1, 2, 3, 4)


def measure_circuit(desk: Desk) -> dict[str, Measured]:
    """What 1% of the edges keep of the difference, on pairs not used to choose them; how often
    the model is right; what circuits from the same pairs drawn again share."""
    (document,) = desk.ask(CIRCUIT)
    chosen = document["chosen"]
    held_out = document["pairs"]["held_out"]
    ends = (chosen["faithfulness"], chosen["low"], chosen["high"])
    pairs = held_out + document["pairs"]["choice"]
    right = share(round(document["measure"]["right"] * pairs), pairs)
    again = document["stability"]
    return {
        "kept": Measured(*ends, held_out, chosen["random"]),
        "right": right,
        "again": Measured(again, None, None, document["pairs"]["choice"]),
    }


def edges_of(document: Any) -> set[tuple[str, str, str]]:
    """The edges of a circuit."""
    return {(edge["from"], edge["to"], edge["reads"]) for edge in document["edges"]}


def measure_stability(desk: Desk) -> dict[str, Measured]:
    """The overlap, |A ∩ B| / |A ∪ B|, of the edges of circuits from pairs drawn with other seeds."""
    documents = [desk.ask(DRAWN.format(seed=seed))[0] for seed in DRAWN_SEEDS]
    circuits = [edges_of(document) for document in documents]
    edges = [len(circuit) / documents[0]["graph_edges"] for circuit in circuits]
    overlap = np.eye(len(circuits))
    for one, other in combinations(range(len(circuits)), 2):
        shared = len(circuits[one] & circuits[other])
        overlap[one, other] = overlap[other, one] = shared / len(circuits[one] | circuits[other])
    kept = [document["chosen"]["faithfulness"] for document in documents]
    return {
        "overlap": of_pairs_of(overlap, float(np.mean(edges)) / (2 - float(np.mean(edges)))),
        "kept": of_few(kept),
    }


def of_few(values: list[float]) -> Measured:
    """The mean of so few values that drawing them again would tell too little, on Student's t."""
    mean = float(np.mean(values))
    half = STUDENT[len(values) - 1] * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return Measured(mean, mean - half, mean + half, len(values))


def of_pairs_of(values: np.ndarray, beside: float) -> Measured:
    """The mean of [n, n] values of two different ones, with its interval by leaving out each of the
    n in turn, on Student's t. Source: Tukey's jackknife."""
    count = len(values)
    over = ~np.eye(count, dtype=bool)
    whole = float(values[over].mean())
    parts = []
    for left in range(count):
        kept = np.arange(count) != left
        part = values[np.ix_(kept, kept)]
        parts.append(float(part[~np.eye(count - 1, dtype=bool)].mean()))
    error = ((count - 1) / count * sum((part - np.mean(parts)) ** 2 for part in parts)) ** 0.5
    half = STUDENT[count - 1] * error
    return Measured(whole, max(whole - half, 0.0), min(whole + half, 1.0), count, beside)


STUDENT = {3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 9: 2.262}
"""The 97.5% point of Student's t by degrees of freedom."""


# How induction heads form

LEARN = "attn learn induction --seed {seed} --json"
ONE_LAYER = "attn learn induction --layers 1 --seeds 6 --json"
SNAPSHOTS = "attn learn induction --seed 0 --save my-model --snapshots 10 --json"
SERIES = 'attn series my-model/step-* --text "a b c d e f g a b c d e f g a b c d e f g" --json'
LEARNED_SEEDS = range(6)


def best_induction(document: Any) -> np.ndarray:
    """The best induction score of the second layer's heads, at each step of the curve."""
    heads = [head for head in document["heads"] if head["layer"] == 1]
    return np.array([head["scores"]["induction"]["values"] for head in heads]).max(0)


def measure_induction(desk: Desk) -> dict[str, Measured]:
    """Whether the loss falls while the induction score rises, how long that takes, and what one
    layer reaches."""
    together = []
    losses = []
    reached = []
    taken = []
    for seed in LEARNED_SEEDS:
        (document,) = desk.ask(LEARN.format(seed=seed))
        steps = np.array([point["step"] for point in document["curve"]])
        loss = np.array([point["loss"] for point in document["curve"]])
        falls = -np.diff(loss) / np.diff(steps)
        best = best_induction(document)
        rises = np.diff(best) / np.diff(steps)
        reached.append(best[-1])
        taken.append(steps_of_rise(steps, best) / steps[-1])
        together.append(float(np.corrcoef(falls, rises)[0, 1]))
        losses.append(float(loss[-1]))
    (single,) = desk.ask(ONE_LAYER)
    one_layer = [run["loss"] for run in single["runs"]]
    scores_of_one = bootstrap([best_of_run(run) for run in single["runs"]])
    solved = bootstrap(losses)
    desk.ask(SNAPSHOTS)
    (series,) = desk.ask(SERIES)
    steps = sorted(series["checkpoints"], key=lambda checkpoint: checkpoint["step"])
    scores = [max(scores_of(checkpoint["heads"], "induction")) for checkpoint in steps]
    return {
        "series": Measured(scores[-1], None, None, len(scores), scores[0]),
        "together": bootstrap(together),
        "two": Measured(solved.value, solved.low, solved.high, solved.count, single["chance"]),
        "one": bootstrap(one_layer),
        "none": replace(scores_of_one, beside=float(np.mean(reached))),
        "short": bootstrap(taken),
    }


def best_of_run(run: Any) -> float:
    """The best induction score of a run's last step."""
    (best,) = [best for best in run["best"] if best["score"] == "induction"]
    return float(best["value"])


def steps_of_rise(steps: np.ndarray, values: np.ndarray) -> float:
    """Steps from where values, [step], first reach a tenth of the way from the first to the last of
    them to where they first reach nine tenths, on straight lines between the steps."""
    way = (values - values[0]) / (values[-1] - values[0])
    ends = []
    for share_of_way in (0.1, 0.9):
        after = int((way >= share_of_way).argmax())
        within = slice(after - 1, after + 1)
        ends.append(float(np.interp(share_of_way, way[within], steps[within])))
    return ends[1] - ends[0]


def measure_nothing(desk: Desk) -> dict[str, Measured]:
    """No number, for a claim that cannot be tried here."""
    return {}


# Pronouns

PRONOUNS = "sample_inputs/pronouns.tsv"


def pronoun_weights(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """What each head of MiniLM gives from a pronoun to its antecedent less to the other noun,
    [text, head], and whether the other noun is nearer, [text]; texts of a kind, by pairs."""
    import attncli

    model = attncli.load("minilm", hold=True)
    more = []
    other_is_nearer = []
    for line in (ROOT / PRONOUNS).read_text("utf-8").splitlines():
        of, text, pronoun, antecedent, other = line.split("\t")
        if of != kind:
            continue
        layers = list(model.trace(text))
        tokens = [token.text.lower() for token in layers[0].tokens]
        query, right, wrong = (tokens.index(word) for word in (pronoun, antecedent, other))
        weights = np.concatenate([np.asarray(layer.stages["weights"]) for layer in layers])
        more.append(weights[:, query, right] - weights[:, query, wrong])
        other_is_nearer.append(right < wrong)
    return np.array(more), np.array(other_is_nearer)


def measure_pronouns(desk: Desk) -> dict[str, Measured]:
    """How often the head that is best on one half of the pairs of texts is right on the other, and
    the nearer noun beside it."""
    found = {}
    for kind in ("gender", "sense"):
        more, other_is_nearer = pronoun_weights(kind)
        half = np.arange(len(more)) // 2 % 2
        hits = 0
        for part in (0, 1):
            best = (more[half == part] > 0).mean(0).argmax()
            hits += int((more[half != part, best] > 0).sum())
        right = share(hits, len(more))
        nearest = float((~other_is_nearer).mean())
        found[kind] = Measured(right.value, right.low, right.high, right.count, nearest)
    return found


# Massive activations


def measure_massive(desk: Desk) -> dict[str, Measured]:
    """Sun's massive activations: of the layer whose largest one is largest beside the median, the
    size of it, where it stands, and how many are above 100 and above 1,000 medians."""
    import attncli

    found = {}
    for name in ("smollm2", "gemma3"):
        model = attncli.load(model_path(name), hold=True)
        times = []
        at_first = 0
        counts = []
        for text in lines_of(CORPUS):
            sizes = [np.abs(np.asarray(layer.after)) for layer in model.trace(text)]
            ratios = [float(size.max() / np.median(size)) for size in sizes]
            size = sizes[int(np.argmax(ratios))]
            times.append(max(ratios))
            at_first += int(np.unravel_index(size.argmax(), size.shape)[0] == 0)
            counts.append(int(((size > 100) & (size > 1000 * np.median(size))).sum()))
        found[f"times_{name}"] = bootstrap(times)
        found[f"first_{name}"] = share(at_first, len(times))
        found[f"few_{name}"] = bootstrap(counts)
    return found


def lines_of(name: str) -> list[str]:
    """The lines of a file of the repository."""
    return (ROOT / name).read_text("utf-8").splitlines()


# Roles in the circuit

ROLES = (
    "attn ablate --model smollm2 --pairs indirect-object --count 24"
    " --head L17H4,L20H0,L23H3,L29H1,L29H0 --hold attention --json"
)
CONTROL = (
    "attn ablate --model smollm2 --pairs agreement --count 24 --head L29H0 --hold attention --json"
)


def effects_of(document: Any) -> dict[str, dict[str, float]]:
    """What the difference loses without each head of a document of ablation over pairs."""
    return {
        f"L{effect['layer']}H{effect['head']}": effect["difference"]
        for effect in document["effects"]
    }


def measure_roles(desk: Desk) -> dict[str, Measured]:
    """What the lead of the answer loses without each of five heads, and, of those that have heads
    after them, with attention held."""
    (document,) = desk.ask(ROLES)
    count = document["pairs"]["count"]
    last = f"L{document['model']['layers'] - 1}H"
    found = {}
    for head, lost in effects_of(document).items():
        found[head] = Measured(lost["all"], lost["low"], lost["high"], count)
        if not head.startswith(last):
            ends = (lost["held"], lost["held_low"], lost["held_high"])
            found[f"{head}_held"] = Measured(*ends, count)
    return found


def measure_suppression(desk: Desk) -> dict[str, Measured]:
    """What the answer gains without a head of the last layer where the answer stands in the text,
    and how much it changes where it does not."""
    found = {}
    for name, command in (("copied", ROLES), ("control", CONTROL)):
        (document,) = desk.ask(command)
        lost = effects_of(document)["L29H0"]
        found[name] = Measured(
            -lost["all"], -lost["high"], -lost["low"], document["pairs"]["count"]
        )
    return found


# Successors

ROLE_SCORES = "attn heads --model {model} --roles --json"


def measure_successors(desk: Desk) -> dict[str, Measured]:
    """The best successor score of all heads: a share of 59 tokens in a sequence."""
    found = {}
    for model in ("smollm2", "gemma3"):
        (document,) = desk.ask(ROLE_SCORES.format(model=model))
        scores = [head["metrics"]["successor"] for head in document["heads"]]
        best = max(scores, key=lambda score: score["value"])
        right = share(round(best["value"] * best["rows"]), best["rows"])
        chance = document["heads"][0]["baseline"]["successor"]["value"]
        found[model] = Measured(right.value, right.low, right.high, right.count, chance)
    return found


# Heads that fetch

FETCH = "attn heads --model smollm2 --retrieval --lengths 64,256 --sample 20 --json"
LONGER = (
    "attn heads --model smollm2 --retrieval --lengths 560 --haystack sample_inputs/corpus.txt"
    " --sample 8 --json"
)
WITHOUT = "attn heads --model smollm2 --retrieval --lengths 64 --sample 8 --verify --json"


def measure_retrieval(desk: Desk) -> dict[str, Measured]:
    """The share of heads with a literal score of 0.1 or more, between those whose whole interval
    is there and those whose interval reaches it; recall without the first ten of them, and beside
    it without ten random heads; and the share of texts that were answered, short and longer."""
    (document,) = desk.ask(FETCH)
    scores = [head["literal"] for head in document["heads"]]
    reached = [sum(score[end] >= 0.1 for score in scores) for end in ("mean", "low", "high")]
    (verified,) = desk.ask(WITHOUT)
    (longer,) = desk.ask(LONGER)
    (ten,) = [taken for taken in verified["verify"] if taken["heads"] == 10]
    left = share(round(ten["literal"] * verified["runs"]), verified["runs"])
    random = float(np.mean(ten["random"]))
    return {
        "without": Measured(left.value, left.low, left.high, left.count, random),
        "few": Measured(*(hits / len(scores) for hits in reached), document["runs"]),
        "recall": share(document["answered"], document["runs"]),
        "longer": share(longer["answered"], longer["runs"]),
    }


# Weight and effect

LINKS = (
    'attn find --model smollm2 --pairs indirect-object --count 24 --effect --from "#13" --to "#3"'
    " --json"
)


def rank_correlation(pairs: np.ndarray) -> float:
    """Kendall's τ_b of the two columns of [count, 2]. Source: Kendall 1945."""
    one, other = (np.sign(column[:, None] - column[None, :]) for column in pairs.T)
    return float((one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()))


def measure_links(desk: Desk) -> dict[str, Measured]:
    """The rank correlation over heads of the weight of a link with what cutting it changes: by
    size in all heads, and by its size and with its sign in those that give it a twentieth of their
    weight."""
    (document,) = desk.ask(LINKS)
    links = [(link["weight"], link["difference"]["all"]) for link in document["pair_links"]]
    sizes = [(weight, abs(effect)) for weight, effect in links]
    looking = [link for link in links if link[0] >= 0.05]
    against = sum(effect < 0 for _, effect in looking)
    return {
        "size": bootstrap(sizes, rank_correlation),
        "looking": bootstrap([size for size in sizes if size[0] >= 0.05], rank_correlation),
        "sign": bootstrap(looking, rank_correlation),
        "against": share(against, len(looking)),
    }


# What averaging hides


def measure_average(desk: Desk) -> dict[str, Measured]:
    """Over rows from the third on, with the first token left out: how often a head looks most where
    the mean of its layer's other heads does, beside it a token drawn evenly, and what that mean has
    of the strongest link."""
    same = []
    left = []
    evenly = []
    for document in desk.ask(SINKS.format(model="smollm2")):
        layers = document["model"]["layers"]
        maps = np.array([head["weights"] for head in document["heads"]])
        maps = maps.reshape(layers, -1, *maps.shape[1:])[:, :, 2:, 1:]  # layer head query key
        others = (maps.sum(1, keepdims=True) - maps) / (maps.shape[1] - 1)
        same.append(float((maps.argmax(-1) == others.argmax(-1)).mean()))
        layer, head, query, key = np.unravel_index(maps.argmax(), maps.shape)
        left.append(float(others[layer, head, query, key] / maps.max()))
        evenly.append(float(np.mean(1 / np.arange(2, maps.shape[2] + 2))))  # keys of each query
    found = bootstrap(same)
    return {
        "same": Measured(found.value, found.low, found.high, found.count, float(np.mean(evenly))),
        "left": bootstrap(left),
    }


# Heads as programs

RULES = "attn heads --model smollm2 --rules --file sample_inputs/corpus.txt --lines --json"


def measure_rules(desk: Desk) -> dict[str, Measured]:
    """The overlap o of rules with heads on held-out texts, between which and o / (2 − o) their
    intersection over union lies, and the perplexity with rules in a quarter of the heads."""
    (document,) = desk.ask(RULES)
    overlaps = [head["overlap"] for head in document["heads"]]
    (swap,) = [swap for swap in document["swapped"] if swap["share"] == 0.25]
    factor = float(np.exp(swap["loss"] - swap["loss_model"]))
    even = float(np.exp(swap["loss_even"] - swap["loss_model"]))
    overlap = bootstrap(overlaps)
    union = bootstrap([value / (2 - value) for value in overlaps])
    first = document["overlap"]["first"]
    return {
        "union": Measured(union.value, union.low, overlap.high, union.count),
        "overlap": Measured(overlap.value, overlap.low, overlap.high, overlap.count, first),
        "perplexity": Measured(factor, None, None, swap["heads"], even),
    }


# Quantising

QUANTISED = (
    ("minilm", "Q8_0"),
    ("minilm", "Q4_0"),
    ("smollm2", "F32"),
    ("smollm2", "Q8_0"),
    ("smollm2", "Q4_0"),
)
"""The files that are set beside a model: of which one, and the type of their matrices."""
SCRIPTS = {"minilm": "quantised_minilm.py", "smollm2": "requantised_gguf.py"}
WRITE = "python tests/{script} {model}-{kind}.gguf {kind}"
COMPARE = "attn compare {model} {model}-{kind}.gguf --file sample_inputs/corpus.txt --lines --json"


def measure_quantised(desk: Desk) -> dict[str, Measured]:
    """The share of heads that moved by more than 0.01 nats, between those whose whole interval is
    above and those whose interval reaches it; the mean move of all heads beside it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from quantised_minilm import Kind, write_quantised_minilm
    from requantised_gguf import write_requantised_smollm2

    writers = {"minilm": write_quantised_minilm, "smollm2": write_requantised_smollm2}
    found = {}
    for model, kind in QUANTISED:
        file = desk.folder / f"{model}-{kind}.gguf"
        writers[model](file, Kind[kind])
        (document,) = desk.ask(COMPARE.format(model=model, kind=kind))
        file.unlink()
        moves = [head["js"] for head in document["change"]["heads"]]
        moved = [
            sum((move[end] or 0.0) > 0.01 for move in moves) for end in ("mean", "low", "high")
        ]
        mean = float(np.mean([move["mean"] for move in moves]))
        shares = (hits / len(moves) for hits in moved)
        found[f"{model}_{kind}"] = Measured(*shares, document["texts"], mean)
    return found


# Which fact an answer used

FACTS = "sample_inputs/facts.tsv"
OPENER = "Here is what we know."


def prompts_of_facts() -> list[tuple[str, list[str], str, int]]:
    """Twenty-four prompts of four facts and a question, each fact asked twice: the text, the facts,
    the answer, and which of the facts it is."""
    rows = [line.split("\t") for line in lines_of(FACTS)]
    random = np.random.default_rng(0)
    prompts = []
    for asked, (fact, question, answer) in [*enumerate(rows), *enumerate(rows)]:
        others = random.permutation([at for at in range(len(rows)) if at != asked])[:3]
        facts = [fact, *(rows[at][0] for at in others)]
        shown = [facts[at] for at in random.permutation(4)]
        text = " ".join([OPENER, *shown, question])
        prompts.append((text, shown, answer, shown.index(fact)))
    return prompts


def measure_sources(desk: Desk) -> dict[str, Measured]:
    """How often the asked fact is the region without which the answer loses most, how often it is
    the one that gets most attention for its tokens, how much more often the former, and the
    rank correlation of the two; intervals over facts, of which each is asked in two prompts."""
    import attncli

    model = attncli.load("smollm2", hold=True)
    needed = []
    looked = []
    plain = []
    ranks = []
    prompts = prompts_of_facts()
    for text, facts, answer, asked in prompts:
        tokens = model.encode(text)
        regions = []
        for at, fact in enumerate(facts):
            start = text.index(fact)
            inside = [
                token.index
                for token in tokens
                if start < token.end <= start + len(fact) and token.start is not None
            ]
            regions.append(attncli.Region(f"fact{at + 1}", tuple(inside)))
        document = attncli.answer(model, text, regions, target=answer, tokens=tokens)
        losses = {effect.region: -effect.change for effect in document.effects}
        looks = {effect.region: effect.attention / effect.even for effect in document.effects}
        whole = {effect.region: effect.attention for effect in document.effects}
        needed.append(max(losses, key=losses.__getitem__) == asked)
        plain.append(max(whole, key=whole.__getitem__) == asked)
        looked.append(max(looks, key=looks.__getitem__) == asked)
        both = np.array([(looks[at], losses[at]) for at in range(len(facts))])
        ranks.append(rank_correlation(both))
    last = float(np.mean([asked == len(facts) - 1 for _, facts, _, asked in prompts]))
    more = np.array(needed, float) - np.array(looked, float)
    needs = by_fact(needed)
    looks_at = by_fact(looked)
    in_all = by_fact(plain)
    return {
        "needed": Measured(needs.value, needs.low, needs.high, needs.count, 0.25),
        "looked": Measured(looks_at.value, looks_at.low, looks_at.high, looks_at.count, last),
        "plain": Measured(in_all.value, in_all.low, in_all.high, in_all.count, last),
        "more": by_fact(more),
        "ranks": by_fact(ranks),
    }


def by_fact(values: Any) -> Measured:
    """The mean of values, one for each of `prompts_of_facts`, with an interval over the facts."""
    return bootstrap(np.reshape(values, (2, -1)).mean(0))


# Windows and full layers

SECRETS = ("orange", "silver", "yellow", "copper", "winter", "garden")
TOLD = "The secret word of the tailor is {word}."
ASKED = "The secret word of the tailor is"
FULL = (5, 11, 17)
"""The layers of Gemma 3 270M without a window; the others see 512 tokens."""


def measure_windows(desk: Desk) -> dict[str, Measured]:
    """What the log probability of a word told 600 tokens before loses without the links from the
    question to where it was told: in the full layers, and beside it in the layers with a window."""
    import attncli

    model = attncli.load(model_path("gemma3"), hold=True)
    between = [*lines_of(CORPUS), *(line.split("\t")[0] for line in lines_of(FACTS))]
    known = []
    lost = []
    in_windows = []
    for word in SECRETS:
        told = TOLD.format(word=word)
        text = " ".join([told, *between, ASKED])
        tokens = model.encode(text)
        fact = [token.index for token in tokens if token.end is not None and token.end <= len(told)]
        fact = [at for at in fact if not tokens[at].special]
        asked = range(len(tokens) - len(ASKED.split()), len(tokens))
        assert asked[0] - max(fact) > 512
        regions = [attncli.Region("fact", tuple(fact)), attncli.Region("asked", tuple(asked))]
        for layers, changes in ((FULL, lost), (windows(model), in_windows)):
            document = attncli.ablate(
                model,
                text,
                link=("asked", "fact"),
                layers=layers,
                together=True,
                measures=("logprob",),
                target=f" {word}",
                regions=regions,
                baseline="none",
                tokens=tokens,
            )
            changes.append(-document.together.logprob)
        known.append(document.predictions.own.probability)
    kept = bootstrap(lost)
    return {
        "lost": Measured(kept.value, kept.low, kept.high, kept.count, float(np.mean(in_windows))),
        "known": bootstrap(known),
    }


def windows(model: Any) -> tuple[int, ...]:
    """The layers that are not full."""
    return tuple(layer for layer in range(18) if layer not in FULL)
