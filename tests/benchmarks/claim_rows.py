"""The rows of `claims.py`: what papers say of attention heads, how it is measured here, and what is
said for each verdict.

No figure of a paper stands here but one that its abstract has. A row's sentences are keyed by the
verdict: numbers that change the verdict make the page fail until somebody writes what they say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from claims import BASELINE, HOLDS, IN_PART, ROOT, Desk, Figure, Measured, Row, bootstrap, share

CORPUS = "sample_inputs/corpus.txt"
"""Forty English sentences written for this repository."""
TEXTS = ("{count} texts", "{count} 个文本")
PAIRS = ("{count} pairs", "{count} 对文本")
HEADS = ("{count} heads", "{count} 个头")
SEEDS = ("{count} seeds", "{count} 个种子")

OPENING = (
    """# Published claims, checked

What papers say of attention heads, tried on models that anyone can have from the package index. Each section has the claim
in our words, a measure, a command, a number with its interval, and a verdict that a rule draws from these: a claim *holds*
where the whole interval of each number lies where the claim asks; it *holds in part* where some do; it *does not hold here*
where none may. "Here" is these models and these texts, forty sentences of `sample_inputs/corpus.txt` where nothing else is
said: a verdict is no judgement of a paper, whose models and texts are others.

`python tests/benchmarks/claims.py NAME`, in the repository, measures a row again and says whether its numbers lie inside
the intervals below. It reads what the commands print as JSON; the arithmetic is in `tests/benchmarks/claim_rows.py`.
""",
    """# 检验已发表的论断

论文怎样说注意力头，在人人都能从软件包索引取得的模型上试一试。每一节有论断（用我们的话说）、度量、命令、带区间的数字，以及由规则从这些数字得出的结论：
每个数字的整个区间都落在论断要求的一侧，论断*成立*；只有一部分如此，*部分成立*；没有一个可能如此，*在此不成立*。“在此”指这些模型和这些文本，
没有另说时是 `sample_inputs/corpus.txt` 里的四十个句子：结论不是对论文的评判，论文用的是别的模型和别的文本。

在仓库里运行 `python tests/benchmarks/claims.py NAME`，会重新测量一节，并说明得到的数字是否落在下面的区间内。它读取命令以 JSON 输出的内容；
算法在 `tests/benchmarks/claim_rows.py` 中。
""",
)
ENDING = (
    """## How the page is made

`tests/benchmarks/claims.py` runs the commands and keeps what they give in `claims.json` beside the pages; pages and verdicts
are made from that file alone. Intervals are percentiles of 1,000 drawings of the texts, pairs, heads or seeds that are named
(seed 0), of shares Wilson's; they tell how far other texts like these would move a number, not other kinds of text or other
models. CPU seconds are of one thread on a shared machine.
""",
    """## 这一页是怎样做出来的

`tests/benchmarks/claims.py` 运行这些命令，把结果存进各页旁边的 `claims.json`；页面和结论只由这个文件得出。区间是把所说的文本、文本对、头或种子重新抽取 1,000
次的百分位数（种子 0），比例用 Wilson 区间；它说明换成同类的其他文本数字会变动多少，不涉及别种文本或别的模型。CPU 秒是一台共用机器上一个线程的时间。
""",
)


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


def measure_circuit(desk: Desk) -> dict[str, Measured]:
    """What 1% of the edges keep of the difference, on pairs not used to choose them."""
    (document,) = desk.ask(CIRCUIT)
    chosen = document["chosen"]
    held_out = document["pairs"]["held_out"]
    ends = (chosen["faithfulness"], chosen["low"], chosen["high"])
    return {"kept": Measured(*ends, held_out, chosen["random"])}


# How induction heads form

LEARN = "attn learn induction --seed {seed} --json"
ONE_LAYER = "attn learn induction --layers 1 --seeds 6 --json"
LEARNED_SEEDS = range(6)


def best_induction(document: Any) -> np.ndarray:
    """The best induction score of the second layer's heads, at each step of the curve."""
    heads = [head for head in document["heads"] if head["layer"] == 1]
    return np.array([head["scores"]["induction"]["values"] for head in heads]).max(0)


def measure_induction(desk: Desk) -> dict[str, Measured]:
    """Whether the loss falls while the induction score rises, and what one layer reaches."""
    together = []
    losses = []
    for seed in LEARNED_SEEDS:
        (document,) = desk.ask(LEARN.format(seed=seed))
        steps = np.array([point["step"] for point in document["curve"]])
        loss = np.array([point["loss"] for point in document["curve"]])
        falls = -np.diff(loss) / np.diff(steps)
        rises = np.diff(best_induction(document)) / np.diff(steps)
        together.append(float(np.corrcoef(falls, rises)[0, 1]))
        losses.append(float(loss[-1]))
    (single,) = desk.ask(ONE_LAYER)
    one_layer = [run["loss"] for run in single["runs"]]
    solved = bootstrap(losses)
    return {
        "together": bootstrap(together),
        "two": Measured(solved.value, solved.low, solved.high, solved.count, single["chance"]),
        "one": bootstrap(one_layer),
    }


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


ROWS: tuple[Row, ...] = (
    Row(
        name="sinks",
        title=("Most heads rest on the first token", "多数头停在首词元上"),
        source=("Gu et al. 2024, arXiv 2410.10781", "Gu 等 2024，arXiv 2410.10781"),
        claim=(
            "a trained decoder gives its first token much weight whatever it means, in models of every size.",
            "训练过的解码器不论首词元是什么意思都给它很大的权重，各种大小的模型都是如此。",
        ),
        formula=(
            "Sink = share of heads with mean over texts and rows i > 0 of A[i, 0] above 0.3.",
            "Sink = 在各文本和各行 i > 0 上 A[i, 0] 的平均高于 0.3 的头所占的比例。",
        ),
        commands=(SINKS.format(model="smollm2"), SINKS.format(model="gemma3")),
        figures=(
            Figure(
                "smollm2",
                ("heads of SmolLM2-135M that rest", "SmolLM2-135M 中停在首词元上的头"),
                TEXTS, "share", "above", 0.5,
                ("more than half", "过半"),
                ("heads that spread evenly", "均匀分布的头"),
            ),
            Figure(
                "gemma3",
                ("heads of Gemma 3 270M that rest", "Gemma 3 270M 中停在首词元上的头"),
                TEXTS, "share", "above", 0.5,
                ("more than half", "过半"),
                ("heads that spread evenly", "均匀分布的头"),
            ),
        ),
        measure=measure_sinks,
        sentences={
            HOLDS: (
                "In both decoders more than half of the heads rest on the first token, whatever the sentence.",
                "在两个解码器里，不论什么句子，过半的头都停在首词元上。",
            ),
        },
        change=(
            "a decoder trained with a learned sink in the softmax or with gates, or texts without a token in front that means nothing to what follows.",
            "训练时 softmax 带有可学习的汇点或门控的解码器。",
        ),
        models=("smollm2", "gemma3"),
        corpus=(CORPUS,),
        hub='attn heads --model Qwen/Qwen2.5-0.5B "The animal was too tired, so it slept" --metric sink',
        cheap=True,
    ),
    Row(
        name="circuit",
        title=("A few edges carry the indirect object", "少数边承载间接宾语"),
        source=(
            "Wang et al. 2022, arXiv 2211.00593; Mueller et al. 2025, arXiv 2504.13151",
            "Wang 等 2022，arXiv 2211.00593；Mueller 等 2025，arXiv 2504.13151",
        ),
        claim=(
            "a small circuit of heads does the task of the indirect object, and running it alone keeps most of the model's answer.",
            "一个由少数头组成的电路完成间接宾语任务，单独运行它能保留模型的大部分答案。",
        ),
        formula=(
            "f = (m(C) − m(∅)) / (m(all) − m(∅)), m = logit(answer) − logit(versus), C = 707 of 70,651 edges, chosen on 24 pairs and run on 24 others.",
            "f = (m(C) − m(∅)) / (m(全部) − m(∅))，m = logit(答案) − logit(对照)，C = 70,651 条边中的 707 条，在 24 对文本上选出，在另外 24 对上运行。",
        ),
        commands=(CIRCUIT,),
        figures=(
            Figure(
                "kept",
                ("of the difference that 1% of the edges keep", "1% 的边保留的差异"),
                ("{count} held-out pairs", "{count} 对留出的文本"), "share", "above", 0.5,
                ("most of it", "大部分"),
                ("as many random edges", "同样多的随机边"),
            ),
        ),
        measure=measure_circuit,
        sentences={
            HOLDS: (
                "One edge in a hundred keeps most of the answer on pairs that it was not chosen on; as many random edges keep none of it.",
                "百分之一的边在没有用来挑选的文本对上保留了大部分答案；同样多的随机边什么也不保留。",
            ),
        },
        change=(
            "another task or template, pairs of another corruption, or a model that does not know the task (it is right in 98% of these).",
            "换一个任务或模板，换一种改动方式，或换一个不会这个任务的模型（它在这些文本对上答对 98%）。",
        ),
        hub="attn circuit --model Qwen/Qwen2.5-0.5B --pairs indirect-object --count 48 --size 1%",
        arithmetic=(
            "The screen says the number: `chosen.faithfulness` with `low` and `high` in the JSON.",
            "数字就在屏幕上：JSON 中的 `chosen.faithfulness` 以及 `low` 和 `high`。",
        ),
    ),
    Row(
        name="induction",
        title=("Induction heads form when the loss falls", "归纳头在损失下降时形成"),
        source=("Olsson et al. 2022, arXiv 2209.11895", "Olsson 等 2022，arXiv 2209.11895"),
        claim=(
            "induction heads form in a short time, in which the loss falls; a model of one layer forms none.",
            "归纳头在很短的时间内形成，损失就在这段时间下降；只有一层的模型不会形成归纳头。",
        ),
        formula=(
            "r = correlation, over 52 stretches of training, of how fast the loss falls with how fast the best induction score of layer 1 rises; loss in nats over predictable tokens after 300 steps.",
            "r = 在训练的 52 段上，损失下降的速度与第 1 层最好的归纳得分上升的速度的相关；损失是 300 步后可预测词元上的纳特数。",
        ),
        commands=(*(LEARN.format(seed=seed) for seed in LEARNED_SEEDS), ONE_LAYER),
        figures=(
            Figure(
                "together",
                ("correlation of the loss falling with the induction score rising", "损失下降与归纳得分上升的相关"),
                SEEDS, "number", "above", 0.5,
                ("a strong one", "强相关"),
            ),
            Figure(
                "two",
                ("loss of two layers", "两层的损失"), SEEDS, "small", "below", 0.1,
                ("the task solved", "任务已解决"),
                ("by chance", "仅凭偶然"),
            ),
            Figure(
                "one",
                ("loss of one layer", "一层的损失"), SEEDS, "small", "above", 1.0,
                ("the task not solved", "任务没有解决"),
            ),
        ),
        measure=measure_induction,
        sentences={
            HOLDS: (
                "The loss falls in the steps in which the induction score rises, and one layer stays far from solving what two layers solve.",
                "损失下降的那些步正是归纳得分上升的那些步；两层能解决的任务，一层还差得远。",
            ),
        },
        change=(
            "a task that can be solved without copying; in a large model the fall is one among many, and only its checkpoints tell.",
            "换一个不靠复制也能解决的任务；在大模型里这次下降只是许多次中的一次，只有它的检查点能说明。",
        ),
        models=(),
        hub="attn series EleutherAI/pythia-160m@step1,step512,step1000,step143000 --text \"a b c d a b c d\"",
        arithmetic=(
            "`curve` has the loss, `heads` the scores, step by step. `--save my-model --snapshots 20`, then `attn series my-model/step-*`, shows the same over checkpoints.",
            "`curve` 是各步的损失，`heads` 是各步的得分。用 `--save my-model --snapshots 20`，再用 `attn series my-model/step-*`，可以在各检查点上看到同样的情形。",
        ),
        cheap=True,
    ),
    Row(
        name="pronouns",
        title=("A head finds what a pronoun refers to", "有一个头找到代词所指"),
        source=("Clark et al. 2019, arXiv 1906.04341", "Clark 等 2019，arXiv 1906.04341"),
        claim=(
            "single heads of an encoder attend from a pronoun to its antecedent well above a baseline of position.",
            "编码器中有个别的头从代词看向它的先行词，明显好于只看位置的基线。",
        ),
        formula=(
            "share of texts with A[pronoun, antecedent] > A[pronoun, other noun] in the head that is best on the other half of the texts; of 72.",
            "在另一半文本上最好的那个头（72 个中选一）里，A[代词, 先行词] > A[代词, 另一个名词] 的文本所占的比例。",
        ),
        commands=(
            'attn find --model minilm "The king told the queen that she was late." --from she --to queen --to king',
            "python tests/benchmarks/claims.py pronouns",
        ),
        figures=(
            Figure(
                "gender",
                ("right where the two nouns differ in gender (he, she)", "两个名词性别不同（he、she）时正确"),
                TEXTS, "share", "above", 0.0, BASELINE, ("the nearer noun", "取较近的名词"),
            ),
            Figure(
                "sense",
                ("right where only the sense tells (it was too tired, too wide)", "只有意思能区分（it was too tired、too wide）时正确"),
                TEXTS, "share", "above", 0.0, BASELINE, ("the nearer noun", "取较近的名词"),
            ),
        ),
        measure=measure_pronouns,
        sentences={
            IN_PART: (
                "One head of MiniLM finds the noun that agrees with he or she nearly always; where only the sense tells, no head is surely better than the nearer noun.",
                "MiniLM 有一个头几乎总能找到与 he 或 she 相配的名词；只有意思能区分时，没有一个头确实好于较近的名词。",
            ),
        },
        change=(
            "a larger encoder, or more sentences whose sense alone decides: twenty leave a wide interval.",
            "更大的编码器，或更多只由意思决定的句子：二十个句子的区间很宽。",
        ),
        models=("minilm",),
        corpus=(PRONOUNS,),
        hub='attn find --model bert-base-uncased "The king told the queen that she was late." --from she --to queen --to king',
        arithmetic=(
            "The first command shows one of the sixty sentences; the second goes through all of `sample_inputs/pronouns.tsv`, written in pairs in which the pronoun or one word changes what is meant.",
            "第一条命令展示六十个句子中的一个；第二条走遍 `sample_inputs/pronouns.tsv`：句子成对写成，换一个代词或一个词，所指就不同。",
        ),
        cheap=True,
    ),
)  # fmt: skip
