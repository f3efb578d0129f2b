"""The rows of `claims.py`: what papers say of attention heads, how it is measured here, and what is
said for each verdict.

No figure of a paper stands here but one that its abstract has. A row's sentences are keyed by the
verdict: numbers that change the verdict make the page fail until somebody writes what they say.
"""

from __future__ import annotations

from claim_measures import (
    CIRCUIT,
    COMPARE,
    CONTROL,
    CORPUS,
    DRAWN,
    DRAWN_SEEDS,
    FACTS,
    FETCH,
    LEARN,
    LEARNED_SEEDS,
    LINKS,
    LONGER,
    ONE_LAYER,
    PRONOUNS,
    QUANTISED,
    ROLE_SCORES,
    ROLES,
    RULES,
    SCRIPTS,
    SERIES,
    SINKS,
    SNAPSHOTS,
    WITHOUT,
    WRITE,
    measure_average,
    measure_circuit,
    measure_induction,
    measure_links,
    measure_massive,
    measure_nothing,
    measure_pronouns,
    measure_quantised,
    measure_retrieval,
    measure_roles,
    measure_rules,
    measure_sinks,
    measure_sources,
    measure_stability,
    measure_successors,
    measure_suppression,
    measure_windows,
)
from claims import BASELINE, FAILS, HOLDS, IN_PART, OPEN, RANGE, UNTRIED, Figure, Row

TEXTS = ("{count} texts", "{count} 段文本")
PAIRS = ("{count} pairs", "{count} 对文本")
HEADS = ("{count} heads", "{count} 个头")
SEEDS = ("{count} seeds", "{count} 个种子")
OF_FACTS = ("{count} facts, each in two prompts", "{count} 个事实，各在两个提示中")
HALF = ("half a logit", "半个 logit")
STEERS = ("less than half a logit, on either side", "正负两侧都不到半个 logit")

OPENING = (
    """# Published claims, checked

What papers say of attention heads, tried on models that anyone can have from the package index. Each section has the claim
in our words, a measure, a command, a number with its interval, and a verdict that a rule draws from these. A claim

- *holds* where the whole interval of each judged number lies where we ask and no part of the claim is left untested;
- *holds in part* where some do, or all do and a part is untested;
- *does not hold here* where every interval lies on the other side;
- *stays open here* where none lies where we ask and some interval holds the bound.

The bounds are ours, but for the 5% and the 75% that the sections call those
of the abstract. Some were chosen after a trial run had shown the number, and the last section's were changed after its
result. "Here" is these models and these texts, forty sentences of `sample_inputs/corpus.txt` where nothing else is
said: a verdict is no judgement of a paper, whose models and texts are others.

All commands are typed in the folder of the repository, which has `sample_inputs` and `tests`; each section says which key
of the JSON has its numbers. `smollm2`, `gemma3` and `minilm` are packages of the index (`attn guide models`). The last command
of a section measures all of it again and says whether the numbers lie inside the intervals, which
`tests/benchmarks/claim_measures.py` computes from what the commands print, or from runs in Python where there are many.
""",
    """# 检验已发表的论断

论文怎样说注意力头，在人人都能从软件包索引取得的模型上试一试。每一节有论断（用我们的话说）、度量、命令、带区间的数字，以及由规则从这些数字得出的结论。一条论断的结论是：

- *成立*：用来判定的每个数字，整个区间都落在我们要求的一侧，而且论断没有哪一部分未经检验；
- *部分成立*：只有一部分数字如此，或者全部如此，但论断有一部分未经检验；
- *在此不成立*：所有区间都在另一侧；
- *在此未定*：没有一个区间落在要求的一侧，而有区间包含界限。

界限由我们定，只有 5% 和 75% 出自摘要，文中注明；有些是在试运行显示了数字之后选定的，最后一节的界限在得到结果后改过。
“在此”指这些模型和这些文本，没有另说时是 `sample_inputs/corpus.txt` 里的四十个句子：结论不是对论文的评判，论文用的是别的模型和别的文本。

所有命令都在仓库的文件夹里输入，那里有 `sample_inputs` 和 `tests`；每一节说明数字在 JSON 的哪个键里。`smollm2`、`gemma3` 和 `minilm` 是索引中的软件包（`attn guide models --lang zh`）。每一节最后的命令会重新测量整节，并说明数字是否落在区间内；
算法在 `tests/benchmarks/claim_measures.py` 中，从命令的输出计算，要运行许多次时则在 Python 中运行。
""",
)
ENDING = (
    """## How the page is made

`tests/benchmarks/claims.py` runs the commands and keeps what they give in `claims.json` beside the pages; pages and verdicts
are made from that file alone. Intervals are percentiles of 1,000 drawings of the texts, pairs, heads, facts or seeds that are
named (seed 0), of shares of texts, pairs or tokens Wilson's, of what circuits share a jackknife's. A range is no interval: its
ends are what its line says, and the rule takes them in place of one. What four draws of pairs keep has Student's interval. Intervals tell how far other texts like these would move
a number, not other kinds of text or other models. CPU seconds are of one thread on a shared machine.
""",
    """## 这一页是怎样做出来的

`tests/benchmarks/claims.py` 运行这些命令，把结果存进各页旁边的 `claims.json`；页面和结论只由这个文件得出。区间是把所说的文本、文本对、头、事实或种子重新抽取 1,000
次的百分位数（种子 0），文本、文本对或词元的比例用 Wilson 区间，电路共有的边用刀切法，四次抽取保留的差异用学生 t 区间。范围不是区间：两端的意思写在那一行里，规则用它代替区间。区间说明换成同类的其他文本数字会变动多少，不涉及别种文本或别的模型。CPU 秒是一台共用机器上一个线程的时间。
""",
)


ROWS: tuple[Row, ...] = (
    Row(
        name="sinks",
        title=("Most heads rest on the first token", "多数头停在首词元上"),
        source=("Gu et al. 2024, arXiv 2410.10781", "Gu 等 2024，arXiv 2410.10781"),
        claim=(
            "trained decoders give their first token much weight.",
            "训练过的解码器给首词元很大的权重。",
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
                "In both decoders more than half of the heads rest on the first token of these sentences: the first token of the sentence in SmolLM2, the beginning token in Gemma. These are two small models and short texts, in which even attention gives the first token about a sixth; whether its meaning matters was not tried.",
                "在两个解码器里，过半的头都停在这些句子的首词元上：在 SmolLM2 中是句子的第一个词元，在 Gemma 中是起始词元。这只是两个小模型和短文本，均匀的注意力在其中给首词元约六分之一；首词元的意思是否有关，没有检验。",
            ),
        },
        change=(
            "a decoder trained with a learned sink in the softmax or with gates, which have somewhere else to rest.",
            "训练时 softmax 带有可学习的停歇项（sink）或门控的解码器，它们有别处可停。",
        ),
        models=("smollm2", "gemma3"),
        corpus=(CORPUS,),
        hub='attn heads --model Qwen/Qwen2.5-0.5B "The animal was too tired, so it slept" --metric sink',
        arithmetic=(
            "A document for each text, on a line of its own: `heads`, `metrics.sink.value`. Take the mean over the documents, then count the heads.",
            "每段文本一个文档，各占一行：`heads` 中的 `metrics.sink.value`。先在各文档上平均，再数头。",
        ),
        cheap=True,
    ),
    Row(
        name="massive",
        title=("A few activations are massive, at the first token", "少数激活巨大，位于首词元"),
        source=("Sun et al. 2024, arXiv 2402.17762", "Sun 等 2024，arXiv 2402.17762"),
        claim=(
            "very few activations are very much larger than all others, and attention gathers at their tokens.",
            "极少数激活远大于其余所有激活，注意力聚集在它们的词元上。",
        ),
        formula=(
            "of the layer where it is largest: max |h| / median |h| over tokens and width, h the state after the layer; where the maximum stands; how many have |h| > 100 and |h| > 1,000 medians.",
            "取其值最大的那一层：在各词元和各维上 max |h| / median |h|，h 是该层之后的状态；最大值位于哪里；|h| > 100 且 |h| > 1,000 倍中位数的有多少个。",
        ),
        commands=("python tests/benchmarks/claims.py massive",),
        figures=tuple(
            figure
            for name, model in (("smollm2", "SmolLM2-135M"), ("gemma3", "Gemma 3 270M"))
            for figure in (
                Figure(
                    f"times_{name}",
                    (f"{model}: the largest beside the median", f"{model}：最大值与中位数之比"),
                    TEXTS, "large", "above", 1000.0, ("a thousand", "一千"),
                ),
                Figure(
                    f"first_{name}",
                    (f"{model}: texts in which it stands at the first token", f"{model}：最大值位于首词元的文本"),
                    TEXTS, "share", "above", 0.5, ("most texts", "多数文本"),
                ),
                Figure(
                    f"few_{name}",
                    (f"{model}: massive activations of that layer", f"{model}：该层中巨大的激活"),
                    TEXTS, "number", "below", 10.0, ("very few: ten", "极少：十个"),
                ),
            )
        ),
        measure=measure_massive,
        sentences={
            HOLDS: (
                "Both decoders have one or two activations per text, on average, of more than a thousand medians; the largest stands at the first token of every text, where the heads of the section above rest; whether it is the reason was not tried.",
                "两个解码器在每段文本中平均有一到两个超过一千倍中位数的激活；最大的在每段文本中都位于首词元，正是上一节的头停歇之处；它是不是原因，没有检验。",
            ),
        },
        change=(
            "a model with a norm after each part, or another beginning token; setting these activations to zero, which would test the reason, is no command of attn.",
            "每一部分之后另有归一化的模型，或不同的起始词元；把这些激活置零可以检验原因，但 attn 没有这样的命令。",
        ),
        models=("smollm2", "gemma3"),
        corpus=(CORPUS,),
        arithmetic=(
            "It prints the numbers below. In Python `layer.after` is the state h of each `layer` of `attncli.load(\"smollm2\").trace(text)`.",
            "它输出下面的数字。在 Python 中，`attncli.load(\"smollm2\").trace(text)` 的每个 `layer` 以 `layer.after` 给出状态 h。",
        ),
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
            Figure("right", ("pairs that the model answers right", "模型答对的文本对"), PAIRS, "share"),
            Figure("again", ("of the edges that circuits from the same pairs drawn again share", "由同一批文本对重新抽样得到的电路共有的边"), PAIRS, "share"),
        ),
        measure=measure_circuit,
        sentences={
            HOLDS: (
                "One edge in a hundred keeps most of the answer on pairs that it was not chosen on; as many random edges keep none of it.",
                "百分之一的边在没有用来挑选的文本对上保留了大部分答案；同样多的随机边什么也不保留。",
            ),
        },
        change=(
            "another task or template, pairs of another corruption, or a model that does not know the task.",
            "换一个任务或模板，换一种改动方式，或换一个不会这个任务的模型。",
        ),
        hub="attn circuit --model Qwen/Qwen2.5-0.5B --pairs indirect-object --count 48 --size 1%",
        arithmetic=(
            "`chosen.faithfulness` with `chosen.low` and `chosen.high`, beside it `chosen.random`; then `measure.right` and `stability`. Without `--json` the screen says them.",
            "`chosen.faithfulness` 以及 `chosen.low` 和 `chosen.high`，旁边是 `chosen.random`；然后是 `measure.right` 和 `stability`。不加 `--json` 时，屏幕上就有。",
        ),
    ),
    Row(
        name="stability",
        title=("Circuits change with the pairs", "电路随文本对而变"),
        source=("Méloux et al. 2025, arXiv 2510.00845", "Méloux 等 2025，arXiv 2510.00845"),
        claim=(
            "circuits found by EAP-IG differ much from one draw of the pairs to the next; their stability is to be reported.",
            "EAP-IG 找到的电路在重新抽取文本对后变化很大；稳定性应当一并报告。",
        ),
        formula=(
            "J = mean over every two of four draws of |A ∩ B| / |A ∪ B|, A and B the edges of two circuits of 1%, those that lie on a way from the text to the answer, each chosen on 4 pairs.",
            "J = 四次抽取中每两次的 |A ∩ B| / |A ∪ B| 的平均，A 与 B 是两个各占 1% 的电路中位于从文本到答案的通路上的边，各在 4 对文本上选出。",
        ),
        commands=tuple(DRAWN.format(seed=seed) for seed in DRAWN_SEEDS),
        figures=(
            Figure(
                "overlap",
                ("of the edges of either that two circuits share", "两个电路共有的边在两者的边中所占的比例"),
                ("{count} draws, jackknife", "{count} 次抽取，刀切法"), "share", "below", 0.8,
                ("four fifths, below which single edges are not to be quoted", "五分之四，低于它不应引用单条边"),
                ("drawn at random", "随机抽取"),
            ),
            Figure(
                "kept",
                ("of the difference that the circuits keep on 4 pairs each", "这些电路各在 4 对文本上保留的差异"),
                ("{count} draws", "{count} 次抽取"), "share",
            ),
        ),
        measure=measure_stability,
        sentences={
            HOLDS: (
                "Circuits that keep the answer about as well share far fewer edges than four in five, and far more than chance: quote the whole, not an edge.",
                "保留答案的程度相近的电路，共有的边远不到五分之四，又远多于偶然：可以引用整体，不要引用单条边。",
            ),
        },
        change=(
            "more pairs for each circuit; the section above has what circuits from 24 pairs drawn again share.",
            "每个电路用更多的文本对；上一节列出 24 对文本重新抽样后电路共有的边。",
        ),
        hub="attn circuit --model Qwen/Qwen2.5-0.5B --pairs indirect-object --count 8 --size 1% --seed 1",
        arithmetic=(
            "`edges` of the four documents: an edge is its `from`, `to` and `reads`. Divide how many two documents share by how many at least one of the two has; take the mean over the six pairs of documents. The second number is the mean of `chosen.faithfulness`.",
            "四个文档的 `edges`：一条边由 `from`、`to` 和 `reads` 确定。用两个文档共有的条数除以两者中至少一个有的条数，再对六对文档取平均。第二个数字是 `chosen.faithfulness` 的平均。",
        ),
    ),
    Row(
        name="roles",
        title=("Heads of the circuit have roles", "电路中的头各有角色"),
        source=("Wang et al. 2022, arXiv 2211.00593", "Wang 等 2022，arXiv 2211.00593"),
        claim=(
            "some heads steer where later ones look, some copy the name into the answer, some speak against it.",
            "有的头决定后面的头看向哪里，有的把名字抄进答案，有的反对答案。",
        ),
        formula=(
            "E = m − m(head with its value of the corrupt text); held: the same with all later attention as it was in the clean text.",
            "E = m − m(该头取改动文本中的值)；保持原样：同样做，但后面的注意力一律与原文本中相同。",
        ),
        commands=(ROLES,),
        figures=(
            Figure("L17H4", ("lost without L17H4, logits", "没有 L17H4 时减少的 logit"), PAIRS, "number", "above", 0.5, HALF),
            Figure("L17H4_held", ("the same with later attention held", "同样，但后面的注意力保持原样"), PAIRS, "number", "within", 0.5, STEERS),
            Figure("L20H0", ("lost without L20H0", "没有 L20H0 时减少的 logit"), PAIRS, "number", "above", 0.5, HALF),
            Figure("L20H0_held", ("the same with later attention held", "同样，但后面的注意力保持原样"), PAIRS, "number", "within", 0.5, STEERS),
            Figure("L23H3", ("lost without L23H3", "没有 L23H3 时减少的 logit"), PAIRS, "number", "above", 0.5, HALF),
            Figure("L23H3_held", ("the same with later attention held", "同样，但后面的注意力保持原样"), PAIRS, "number", "above", 0.5, HALF),
            Figure("L29H1", ("lost without L29H1, of the last layer", "没有最后一层的 L29H1 时减少的 logit"), PAIRS, "number", "above", 0.5, HALF),
            Figure("L29H0", ("lost without L29H0, of the last layer", "没有最后一层的 L29H0 时减少的 logit"), PAIRS, "number", "below", -0.5, ("a gain of half a logit", "增加半个 logit")),
        ),
        measure=measure_roles,
        sentences={
            IN_PART: (
                "Each of the five heads changes the answer, L29H0 against it. L17H4 and L20H0 do so by moving where later heads look: with later attention held, next to nothing is lost. L23H3 does so by what it writes, as L29H1 and L29H0 of the last layer must; without it 6.11 logits are lost with attention held and 3.81 without, as if later heads made up for part of it by looking elsewhere.",
                "五个头各自改变答案，其中 L29H0 反对答案。L17H4 与 L20H0 靠改变后面的头看向哪里起作用：后面的注意力保持原样时，几乎什么也不减少。L23H3 靠它写入的内容起作用，最后一层的 L29H1 与 L29H0 也只能如此；没有 L23H3 时，注意力保持原样减少 6.11，不保持则减少 3.81，仿佛后面的头改看别处，弥补了一部分。",
            ),
        },
        untested=(
            "that what L23H3 and L29H1 write is a copy of the name, and which later heads L17H4 and L20H0 move.",
            "L23H3 与 L29H1 写入的是不是名字的副本，以及 L17H4 与 L20H0 改变的是后面的哪些头。",
        ),
        change=(
            "other heads: these are five of the six heads of the circuit above without which m changes most, and a role is what a head does in this template.",
            "换别的头：上面的电路中，去掉后 m 变化最大的有六个头，这里是其中五个；角色只指一个头在这个模板里的作用。",
        ),
        arithmetic=(
            "`effects` of each head: `difference.all` with `difference.low` and `difference.high`; held, `difference.held` with `difference.held_low` and `difference.held_high`. A head of the last layer has nothing after it to move, and both are the same.",
            "`effects` 中每个头的 `difference.all` 以及 `difference.low` 和 `difference.high`；保持原样时是 `difference.held` 以及 `difference.held_low` 和 `difference.held_high`。最后一层的头之后没有可改变的头，两者相同。",
        ),
        hub="attn ablate --model Qwen/Qwen2.5-0.5B --pairs indirect-object --count 24 --hold attention",
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
            "r = correlation, over 52 stretches of training, of how fast the loss falls with how fast the best induction score of the second layer rises; loss in nats over predictable tokens, and best score of one layer, after 300 steps.",
            "r = 在训练的 52 段上，损失下降的速度与第二层最好的归纳得分上升的速度的相关；损失是 300 步后可预测词元上的奈特数，一层最好的得分也取自 300 步之后。",
        ),
        commands=(*(LEARN.format(seed=seed) for seed in LEARNED_SEEDS), ONE_LAYER, SNAPSHOTS, SERIES),
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
            Figure("none", ("best induction score of one layer", "一层中最好的归纳得分"), SEEDS, "number", "below", 0.5, ("half of a perfect score", "满分的一半"), ("of two layers", "两层中")),
            Figure("short", ("of the 300 steps, in which the score of two layers goes from a tenth to nine tenths of its way", "两层的得分从全程的十分之一升到十分之九所用的步数，占 300 步的比例"), SEEDS, "share", "below", 1 / 3, ("a third of the steps", "三分之一的步数")),
            Figure("series", ("best induction score of the last checkpoint, by attn series", "attn series 所见最后一个检查点的最好归纳得分"), ("{count} checkpoints of one model", "一个模型的 {count} 个检查点"), "number", beside=("of the first", "第一个检查点")),
        ),
        measure=measure_induction,
        sentences={
            HOLDS: (
                "The loss falls fastest in the steps in which the induction score rises fastest, and that rise takes a sixth of all steps; a model of one layer gets no induction head and stays far from solving what two layers solve.",
                "归纳得分上升最快的那些步，也是损失下降最快的那些步，这段上升占全部步数的六分之一；一层的模型没有归纳头，两层能解决的任务它还差得远。",
            ),
        },
        change=(
            "a task that can be solved without copying; in a large model the fall is one among many, and only its checkpoints tell.",
            "换一个不靠复制也能解决的任务；在大模型里这次下降只是许多次中的一次，只有它的检查点能说明。",
        ),
        models=(),
        arithmetic=(
            "`curve` has `step` and `loss`, `heads` the scores at these steps, `scores.induction.values`; of one layer `runs` has each seed's `loss` and, as `best`, its scores; `chance` is the loss by chance. `attn series` reads the same score off checkpoints kept on the way: `checkpoints`, `heads`, `metrics.induction`.",
            "`curve` 中是 `step` 和 `loss`，`heads` 中是这些步的得分 `scores.induction.values`；一层的模型，`runs` 中有每个种子的 `loss` 和得分 `best`；`chance` 是仅凭偶然的损失。`attn series` 从途中保存的检查点读出同一个得分：`checkpoints`、`heads`、`metrics.induction`。",
        ),
        cheap=True,
    ),
    Row(
        name="phase",
        title=("Induction heads form in one phase of a large model", "大模型的归纳头在一个阶段内形成"),
        source=("Olsson et al. 2022, arXiv 2209.11895", "Olsson 等 2022，arXiv 2209.11895"),
        claim=(
            "in models of many sizes induction heads form early in training, in one short phase, together with learning from the context.",
            "在各种大小的模型中，归纳头都在训练早期的一个短暂阶段形成，同时学会利用上下文。",
        ),
        formula=(
            "the best induction score over a model's heads, by checkpoint, on a logarithmic axis of steps.",
            "各检查点上模型各头最好的归纳得分，横轴为步数的对数。",
        ),
        commands=(
            'attn series EleutherAI/pythia-160m@step1,step64,step512,step1000,step4000,step143000 --text "a b c d a b c d"',
        ),
        figures=(),
        measure=measure_nothing,
        sentences={
            UNTRIED: (
                "Checkpoints of a large model over training are on the hub alone; no package of the index has them. With the hub the command above tells.",
                "大模型训练途中的检查点只在 hub 上，索引中没有这样的软件包。能访问 hub 时，上面的命令给出答案。",
            ),
        },
        change=("access to the hub.", "能够访问 hub。"),
        models=(),
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
                "Of all 72 heads of MiniLM, L1H3 is the best on both halves and finds the noun that agrees with he or she nearly always; where only the sense tells, the chosen head, L3H1, is not surely better than the nearer noun.",
                "在 MiniLM 的全部 72 个头中，L1H3 在两半文本上都最好，几乎总能找到与 he 或 she 相配的名词；只有意思能区分时，选出的头 L3H1 不能确定好于较近的名词。",
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
            "The first command shows one of the sixty sentences: each head's weight from the pronoun to either noun. The second goes through all of `sample_inputs/pronouns.tsv`, written in pairs in which the pronoun or one word changes what is meant, and prints both numbers.",
            "第一条命令展示六十个句子中的一个：各头从代词给两个名词的权重。第二条走遍 `sample_inputs/pronouns.tsv`，并输出两个数字；句子成对写成，换一个代词或一个词，所指就不同。",
        ),
        cheap=True,
    ),
    Row(
        name="suppression",
        title=("A head suppresses what would be copied", "有一个头压制将被抄写的内容"),
        source=("McDougall et al. 2023, arXiv 2310.04625", "McDougall 等 2023，arXiv 2310.04625"),
        claim=(
            "where earlier parts predict a token that stands in the text, a late head lowers it.",
            "前面各部分预测的词元若出现在文本中，靠后的一个头会压低它。",
        ),
        formula=(
            "G = m(L29H0 with its value of the corrupt text) − m, in texts that hold the answer (names) and in texts that do not (is, are).",
            "G = m(L29H0 取改动文本中的值) − m，分别在含有答案的文本（人名）和不含答案的文本（is、are）上。",
        ),
        commands=(ROLES, CONTROL),
        figures=(
            Figure("copied", ("gain without L29H0 where the answer stands in the text, logits", "答案出现在文本中时，没有 L29H0 增加的 logit"), PAIRS, "number", "above", 0.5, HALF),
            Figure("control", ("gain without it where the answer does not stand there", "答案不在文本中时，没有它增加的 logit"), PAIRS, "small", "within", 0.1, ("next to nothing, on either side", "正负两侧都几乎为零")),
        ),
        measure=measure_suppression,
        sentences={
            IN_PART: (
                "One head of the last layer of SmolLM2 lowers the lead of a name that stands in the text, and hardly changes that of an answer that does not. The first number is that of L29H0 in the section on roles, turned round.",
                "SmolLM2 最后一层的一个头压低文本中出现过的名字的领先，对文本中没有的答案几乎不起作用。第一个数字就是角色一节中 L29H0 的数字，符号相反。",
            ),
        },
        untested=(
            "that earlier parts predict the token, and what the head does in other texts. m is the lead of the answer over the other word, not the answer alone; the second task has another template too.",
            "前面各部分是否预测该词元，以及这个头在其他文本中的作用。m 是答案对另一个词的领先，不只是答案；第二个任务的模板也不同。",
        ),
        arithmetic=(
            "In `effects`, the head L29H0: `difference.all` with `difference.low` and `difference.high`, with the sign turned.",
            "`effects` 中 L29H0 的 `difference.all` 以及 `difference.low` 和 `difference.high`，符号取反。",
        ),
        change=(
            "texts of other kinds: the paper speaks of nearly all that its head does, and this row of two tasks.",
            "其他种类的文本：论文说的是那个头的几乎全部作用，这里只是两个任务。",
        ),
    ),
    Row(
        name="successors",
        title=("A head turns Monday into Tuesday", "有一个头把星期一变成星期二"),
        source=("Gould et al. 2023, arXiv 2312.09230", "Gould 等 2023，arXiv 2312.09230"),
        claim=(
            "decoders from 31 million parameters on have heads that increment numbers, days and months.",
            "从 3,100 万参数起，解码器里就有使数字、星期和月份递增的头。",
        ),
        formula=(
            "share of tokens t of a sequence (numbers, days, months, letters) for which x_t W_V W_O writes most towards the next, of all these tokens; the best of all heads.",
            "在序列（数字、星期、月份、字母）的词元 t 中，x_t W_V W_O 在所有这些词元里写得最多的是下一个的比例；取所有头中最好的。",
        ),
        commands=(ROLE_SCORES.format(model="smollm2"), ROLE_SCORES.format(model="gemma3")),
        figures=tuple(
            Figure(
                name,
                (f"the best head of {model}", f"{model} 最好的头"),
                ("{count} tokens", "{count} 个词元"), "share", "above", 0.5,
                ("more than half", "过半"), ("by chance", "仅凭偶然"),
            )
            for name, model in (("smollm2", "SmolLM2-135M"), ("gemma3", "Gemma 3 270M"))
        ),
        measure=measure_successors,
        sentences={
            FAILS: (
                "The best head of SmolLM2 turns 7 of 59 tokens into the next one by what it writes directly, that of Gemma 6 of 59. Chance is that of one head; the best of 270 heads that guess independently would reach about 8%, of 72 about 6%.",
                "SmolLM2 最好的头直接写入的内容使 59 个词元中的 7 个变成下一个，Gemma 是 59 个中的 6 个。旁边的偶然是单个头的；各自独立猜测时，270 个头中最好的约达到 8%，72 个头中约 6%。",
            ),
        },
        change=(
            "a model of the paper (GPT-2, Pythia, Llama 2), weights of more bits, or a score that lets later layers finish the step.",
            "论文中的模型（GPT-2、Pythia、Llama 2），更多位的权重，或允许后面各层完成这一步的得分。",
        ),
        models=("smollm2", "gemma3"),
        arithmetic=(
            "`heads`: the highest `metrics.successor.value`, of `metrics.successor.rows` tokens.",
            "`heads` 中最高的 `metrics.successor.value`，共 `metrics.successor.rows` 个词元。",
        ),
        hub="attn heads --model EleutherAI/pythia-160m --roles",
        cheap=True,
    ),
    Row(
        name="retrieval",
        title=("Under 5% of the heads fetch, and recall needs them", "取回的头不到 5%，而召回离不开它们"),
        source=("Wu et al. 2024, arXiv 2404.15574", "Wu 等 2024，arXiv 2404.15574"),
        claim=(
            "less than 5% of the heads fetch the answer from a long text; without them recall fails, without random others it does not.",
            "不到 5% 的头从长文本中取回答案；没有它们召回就失败，没有同样多的随机其他头则不会。",
        ),
        formula=(
            "literal score: share of the answer's tokens at which the head looks most at that token in the needle; fetching from 0.1 on. Recall: share of texts whose answer the model gives, most of its tokens.",
            "字面得分：在答案的各词元处，该头看得最多的正是针中那个词元的比例；0.1 起算取回。召回：模型给出答案（多数词元）的文本的比例。",
        ),
        commands=(FETCH, WITHOUT, LONGER),
        figures=(
            Figure(
                "few", ("of the heads fetch", "取回的头"),
                ("{count} texts; from heads whose whole interval is above to heads whose interval reaches it", "{count} 段文本；从整个区间都在其上的头，到区间达到它的头"),
                "share", "below", 0.05, ("less than 5%, of the abstract", "摘要中的不到 5%"), interval=RANGE,
            ),
            Figure(
                    "without",
                    (
                        "texts answered without the first ten heads that fetch",
                        "没有前十个取回的头时答出的文本",
                    ),
                    TEXTS, "share", "below", 0.0, BASELINE,
                    ("without ten random heads", "没有十个随机的头时"),
                ),
                Figure("recall", ("texts of 64 to 211 tokens that are answered", "64 至 211 个词元的文本中答出的"), TEXTS, "share"),
                Figure("longer", ("texts of up to 560 tokens that are answered", "至多 560 个词元的文本中答出的"), TEXTS, "share"),
        ),
        measure=measure_retrieval,
        sentences={
            IN_PART: (
                "More heads fetch in SmolLM2 than the claim allows, about one in nine; 3 of 8 short texts were answered without the first ten of them, 85% without ten random ones.",
                "SmolLM2 中取回的头比论断所说的多，约九个中有一个；没有其中前十个时，8 个短文本答出 3 个，没有十个随机的头时答出 85%。",
            ),
        },
        change=(
            "longer texts: up to 560 tokens recall did not fail surely, and four needles are few; or a larger model.",
            "更长的文本：到 560 个词元为止，召回没有确实失败，四根针也很少；或更大的模型。",
        ),
        hub="attn heads --model Qwen/Qwen2.5-0.5B --retrieval --lengths 1024 --haystack FILE --verify",
        arithmetic=(
            "Of the first document count the `heads` with `literal.mean` of 0.1 or more, for the range `literal.low` and `literal.high`, and divide by 270; of the second, `verify` with `heads` 10: `literal` and the mean of `random`; `answered` of `runs` in the first and the third.",
            "在第一个文档里，数出 `literal.mean` 不低于 0.1 的 `heads`（范围用 `literal.low` 和 `literal.high`），除以 270；在第二个文档里，取 `verify` 中 `heads` 为 10 的 `literal` 以及 `random` 的平均；第一个和第三个文档的 `answered` 与 `runs`。",
        ),
    ),
    Row(
        name="links",
        title=("A head's weight does not give its effect", "头的权重不等于它的作用"),
        source=("Jain and Wallace 2019, arXiv 1902.10186", "Jain 与 Wallace 2019，arXiv 1902.10186"),
        claim=(
            "attention weights are frequently uncorrelated with gradient-based measures of importance. Here heads are ranked, for one link, by what cutting it changes.",
            "注意力权重常常与基于梯度的重要性度量不相关。这里是就一条连接，按切断它的影响来排列各头。",
        ),
        formula=(
            "Kendall's τ over heads of A[last token, the answer's name] with what cutting that link in the head takes from m: by its size in all heads, and by its size and with its sign in the heads that look, those with a weight of 0.05 or more.",
            "在各头上，A[最后一个词元, 答案的名字] 与在该头切断这条连接后 m 减少多少的 Kendall τ：所有头按大小；看向它的头（权重不低于 0.05）按大小，也按带正负号的值。",
        ),
        commands=(LINKS,),
        figures=(
            Figure("size", ("τ of weight and size of the effect", "权重与作用大小的 τ"), HEADS, "number", "below", 0.5, ("no close relation", "没有密切的关系")),
            Figure("looking", ("τ of weight and size in heads that look at the name", "看向该名字的头中权重与作用大小的 τ"), HEADS, "number", "below", 0.5, ("no close relation", "没有密切的关系")),
            Figure("sign", ("τ of weight and effect with its sign in these heads", "这些头中权重与带正负号的作用的 τ"), HEADS, "number", "below", 0.5, ("no close relation", "没有密切的关系")),
            Figure("against", ("of these heads, whose link speaks against the name", "其中连接反对该名字的头"), HEADS, "share"),
        ),
        measure=measure_links,
        sentences={
            IN_PART: (
                "A head that does not look at the name does not matter by that link, so that weight ranks sizes well over all heads; among the heads that do look it ranks sizes less well, and it hardly tells whether a head speaks for the name or against it.",
                "不看该名字的头，这条连接就不起作用，所以在所有头中权重能很好地排列作用的大小；在确实看它的头中，权重排列大小的能力较差，也几乎说明不了一个头是支持这个名字还是反对它。",
            ),
        },
        change=(
            "another link or task; one text gives other orders, and intervals over heads say nothing of other templates.",
            "另一条连接或另一个任务；单段文本的次序会不同，在头上的区间也不说明其他模板。",
        ),
        arithmetic=(
            "`pair_links` has `weight` and `difference.all` of all 270 heads, means over 24 pairs.",
            "`pair_links` 有全部 270 个头的 `weight` 和 `difference.all`，是 24 对文本上的平均。",
        ),
        hub='attn find --model Qwen/Qwen2.5-0.5B --pairs indirect-object --count 24 --effect --from "#13" --to "#3"',
    ),
    Row(
        name="average",
        title=("The mean of the heads hides the heads", "各头的平均掩盖了各个头"),
        source=("Voita et al. 2019, arXiv 1905.09418", "Voita 等 2019，arXiv 1905.09418"),
        claim=(
            "the heads of a layer do different things, so that a mean does not show a single one.",
            "一层的各头做不同的事，所以平均不显示其中某一个。",
        ),
        formula=(
            "Ā = mean of the other heads of the layer, rows from the third token on, without the first key. Same: share of heads and rows with argmax A = argmax Ā. Left: Ā[i, j] / A[i, j] at the strongest link of the text.",
            "Ā = 该层其余各头的平均，行从第三个词元起，去掉第一个键。相同：argmax A = argmax Ā 的头与行的比例。剩余：文本中最强的连接处 Ā[i, j] / A[i, j]。",
        ),
        commands=(SINKS.format(model="smollm2"),),
        figures=(
            Figure("left", ("of the strongest link that the mean of the layer's other heads has", "最强的连接在该层其余头的平均中剩下的"), TEXTS, "share", "below", 0.5, ("half", "一半")),
            Figure("same", ("of heads and rows that look most where the mean of the others does", "与其余头的平均看得最多之处相同的头与行"), TEXTS, "share", "below", 0.5, ("half", "一半"), ("a token drawn evenly", "均匀抽取的词元")),
        ),
        measure=measure_average,
        sentences={
            HOLDS: (
                "The mean of the other heads has a quarter of the strongest link, and looks most where the head does in less than half of the rows; in more, though, than a token drawn evenly.",
                "其余各头的平均只有最强连接的四分之一，看得最多之处与该头相同的行不到一半，但多于均匀抽取的词元。",
            ),
        },
        arithmetic=(
            "A document for each text: `heads`, in which `weights` is the map of a head, query by key.",
            "每段文本一个文档：`heads` 中的 `weights` 是一个头的图，先查询后键。",
        ),
        change=(
            "the mean over all layers, or a model whose heads are more alike.",
            "对所有层取平均，或各头更相似的模型。",
        ),
        corpus=(CORPUS,),
        hub='attn heads --model Qwen/Qwen2.5-0.5B "The animal was too tired, so it slept" --show average,maps',
    ),
    Row(
        name="rules",
        title=("Programs can stand for heads", "程序可以代替头"),
        source=("Hayes et al. 2026, arXiv 2606.19317", "Hayes 等 2026，arXiv 2606.19317"),
        claim=(
            "programs reproduce attention with an intersection over union above 75%; a quarter of the heads replaced costs 16% of perplexity.",
            "程序重现注意力，交并比在 75% 以上；代替四分之一的头，困惑度增加 16%。",
        ),
        formula=(
            "o = mean over rows of Σ min(A, Â), Â the head's mixture of rules on texts that it was not fitted to; the intersection over union lies between o / (2 − o) and o.",
            "o = Σ min(A, Â) 在各行上的平均，Â 是该头的规则混合在未用于拟合的文本上的结果；交并比在 o / (2 − o) 与 o 之间。",
        ),
        commands=(RULES,),
        figures=(
            Figure("union", ("intersection over union of rules and heads, at least; the range goes from the low end of o / (2 − o) to the high end of o", "规则与头的交并比，至少；范围从 o / (2 − o) 的下端到 o 的上端"), HEADS, "share", "above", 0.75, ("75%, of the abstract", "摘要中的 75%"), interval=RANGE),
            Figure("overlap", ("of the weights that rules put where they are", "规则放对位置的权重"), HEADS, "share", beside=("the first token alone", "仅首词元")),
            Figure("perplexity", ("perplexity with rules in a quarter of the heads", "四分之一的头换成规则后的困惑度"), ("{count} heads, one run", "{count} 个头，一次运行"), "times", beside=("the same heads spread evenly", "同样的头改为均匀分布")),
        ),
        measure=measure_rules,
        sentences={
            OPEN: (
                "Forty fixed rules put three quarters of the weights of twenty unseen sentences where they are, more than the first token alone; whether they reach the paper's measure these numbers do not tell; replacing a quarter of the heads costs 7.3% of perplexity here, in one run without an interval, which is not judged.",
                "四十条固定的规则在二十个未见的句子上把四分之三的权重放对了位置，多于仅首词元；是否达到论文的度量，这些数字说明不了；在此代替四分之一的头，困惑度增加 7.3%，只有一次运行，没有区间，不作判定。",
            ),
        },
        change=(
            "programs that a language model writes for each head, or longer texts, on which a swap costs more (`attn guide rules`).",
            "由语言模型为每个头编写的程序，或更长的文本，那里代替的代价更大，见 `attn guide rules`。",
        ),
        corpus=(CORPUS,),
        hub="attn heads --model openai-community/gpt2 --rules --file sample_inputs/corpus.txt --lines",
        arithmetic=(
            "`heads` has `overlap`, the o of each head; `overlap.first` is that of the first token alone. In `swapped`, with `share` 0.25: the perplexity is exp(`loss` − `loss_model`) times that of the model, beside it exp(`loss_even` − `loss_model`).",
            "`heads` 中的 `overlap` 是每个头的 o；`overlap.first` 是仅首词元的。在 `swapped` 中取 `share` 为 0.25 的一项：困惑度是模型的 exp(`loss` − `loss_model`) 倍，旁边是 exp(`loss_even` − `loss_model`)。",
        ),
    ),
    Row(
        name="quantised",
        title=("What quantising moves in the heads", "量化使头变动多少"),
        source=("Singh and Sajjad 2025, arXiv 2508.16785", "Singh 与 Sajjad 2025，arXiv 2508.16785"),
        claim=(
            "quantising to 8 and 4 bits brings no drastic change; effects may vary by model and task. The paper speaks of no heads moved: the measure is ours.",
            "量化到 8 位和 4 位没有剧烈的改变；影响可能随模型和任务而异。论文没有说到移动的头：度量是我们的。",
        ),
        formula=(
            "share of heads whose rows moved by more than 0.01 nats, Jensen–Shannon divergence of the rows before and after, mean over rows and texts.",
            "各行移动超过 0.01 奈特的头的比例：量化前后各行的 Jensen–Shannon 散度，在行与文本上平均。",
        ),
        commands=tuple(
            command.format(script=SCRIPTS[model], model=model, kind=kind)
            for model, kind in QUANTISED
            for command in (WRITE, COMPARE)
        ),
        figures=tuple(
            Figure(
                name, says,
                ("{count} texts; from heads whose whole interval is above to heads whose interval reaches it", "{count} 段文本；从整个区间都在其上的头，到区间达到它的头"),
                "share", "below", 0.1, ("one head in ten", "十分之一的头"),
                ("what a head moves on average, nats", "一个头平均移动的奈特数"), "tiny", RANGE,
            )
            for name, says in (
                ("minilm_Q8_0", ("heads of MiniLM that 8 bits moved", "量化到 8 位后移动的 MiniLM 的头")),
                ("minilm_Q4_0", ("heads of MiniLM that 4 bits moved", "量化到 4 位后移动的 MiniLM 的头")),
                ("smollm2_F32", ("heads of SmolLM2 moved in a file of the same values", "换成数值相同的文件后移动的 SmolLM2 的头")),
                ("smollm2_Q8_0", ("heads of SmolLM2 that 8 bits after its own 4 moved", "在自身 4 位之上再量化到 8 位后移动的 SmolLM2 的头")),
                ("smollm2_Q4_0", ("heads of SmolLM2 that 4 bits after its own 4 moved", "在自身 4 位之上再次量化到 4 位后移动的 SmolLM2 的头")),
            )
        ),
        measure=measure_quantised,
        sentences={
            IN_PART: (
                "Few or no heads of MiniLM move that far in eight bits and in four (at most 4.2%), none of SmolLM2 in eight; rounded to four bits a second time, about a quarter of SmolLM2's heads do (14% to 56%).",
                "MiniLM 的头在八位和四位下移动这么多的很少或没有（至多 4.2%），SmolLM2 在八位下没有；第二次舍入到四位时，SmolLM2 约有四分之一的头如此（14% 至 56%）。",
            ),
        },
        change=(
            "the decoder's weights before their first rounding, which are on the hub alone, or a finer kind of four bits.",
            "解码器第一次舍入之前的权重（只在 hub 上），或更精细的四位类型。",
        ),
        models=("minilm", "smollm2"),
        corpus=(CORPUS,),
        hub="attn compare HuggingFaceTB/SmolLM2-135M-Instruct smollm2 --file sample_inputs/corpus.txt --lines",
        arithmetic=(
            "`change.heads`: the share with `js.mean` above 0.01, for the range `js.low` and `js.high`. The scripts write files of 13 to 540 MB into the folder, and nothing removes them.",
            "`change.heads` 中 `js.mean` 高于 0.01 的比例，范围用 `js.low` 和 `js.high`。脚本把 13 至 540 MB 的文件写进这个文件夹，不会自动删除。",
        ),
        cheap=True,
    ),
    Row(
        name="windows",
        title=("Full layers reach behind the window", "全注意力的层看得到窗口之外"),
        source=("Gemma team 2025, arXiv 2503.19786", "Gemma 团队 2025，arXiv 2503.19786"),
        claim=(
            "layers with a window alternate with a few that see everything, and only these read what lies far back. The abstract does not name the model of 270 million parameters.",
            "带窗口的层与少数能看到一切的层交替，只有后者读取远处的内容。摘要没有提到 2.7 亿参数的模型。",
        ),
        formula=(
            "what log p(word) loses without the links from the question's tokens to the sentence that told the word, more than 512 tokens before, in layers 5, 11 and 17; beside it, in the fifteen others.",
            "在第 5、11、17 层切断从问题各词元到 512 个词元之前说出该词的句子的连接后，log p(词) 减少多少；旁边是在其余十五层切断。",
        ),
        commands=("python tests/benchmarks/claims.py windows",),
        figures=(
            Figure("lost", ("nats lost in the three full layers", "在三个全注意力的层中减少的奈特"), ("{count} words", "{count} 个词"), "number", "above", 1.0, ("a nat", "一奈特"), ("in the layers with a window", "在带窗口的层中")),
            Figure("known", ("probability of the word as it is", "原来该词的概率"), ("{count} words", "{count} 个词"), "share"),
        ),
        measure=measure_windows,
        sentences={
            HOLDS: (
                "The word comes from more than 512 tokens before through the three full layers; the links of the layers with a window do not reach it, so that the 0.00 beside it follows from how they are built.",
                "这个词从 512 个词元以外经由三个全注意力的层传来；带窗口的层的连接够不到它，所以旁边的 0.00 由其构造决定。",
            ),
        },
        change=(
            "a word told inside the window, or links of the text between, which may hand it on.",
            "在窗口之内说出的词，或中间文本的连接，它们可能把它传下去。",
        ),
        models=("gemma3",),
        corpus=(CORPUS, FACTS),
        arithmetic=(
            "It prints the numbers below. Each text: the sentence, the forty of the corpus, twelve facts, and the sentence again without its word.",
            "它输出下面的数字。每段文本：这个句子、语料的四十句、十二个事实，以及再一次去掉末词的这个句子。",
        ),
    ),
    Row(
        name="sources",
        title=("Taking a fact away finds the source better than mean attention", "拿走一个事实比平均注意力更能找到来源"),
        source=("Cohen-Wang et al. 2024, arXiv 2409.00729", "Cohen-Wang 等 2024，arXiv 2409.00729"),
        claim=(
            "taking parts of a context away tells which of them an answer rests on; mean attention tells it less well.",
            "拿走上下文的各部分，就能知道答案依据哪一部分；平均注意力说得不如它好。",
        ),
        formula=(
            "of four facts, the one without whose links log p(answer) falls most, and the one with most attention for its tokens (mean over layers, heads and the answer's tokens); τ of the two over the four.",
            "四个事实中，切断连接后 log p(答案) 下降最多的一个，以及按词元数得到注意力最多的一个（在层、头和答案的词元上平均）；二者在四个事实上的 τ。",
        ),
        commands=(
            'attn answer --model smollm2 "Here is what we know. The soup costs four coins. The code is seven. The cat is called Tiger. The key is under the mat. What is the code? It is" --region "soup=/The soup costs four coins./" --region "code=/The code is seven./" --region "cat=/The cat is called Tiger./" --region "key=/The key is under the mat./" --target " seven" --json',
            "python tests/benchmarks/claims.py sources",
        ),
        figures=(
            Figure("needed", ("prompts whose fact is the one that the given answer needs most", "所问的事实正是给定答案最需要的提示"), OF_FACTS, "share", "above", 0.5, ("more than half", "过半"), ("by chance", "仅凭偶然")),
            Figure("plain", ("prompts whose fact gets most attention in all, whatever its length", "所问的事实得到的注意力总量最多（不计长短）的提示"), OF_FACTS, "share", beside=("always the last fact", "总取最后一个事实")),
            Figure("looked", ("prompts whose fact gets most attention per token", "所问的事实按词元数得到最多注意力的提示"), OF_FACTS, "share", beside=("always the last fact", "总取最后一个事实")),
            Figure("more", ("more prompts by what is needed than by attention per token", "按需要找到的提示比按词元数的注意力多出的"), OF_FACTS, "share", "above", 0.0, ("more at all", "多于零")),
            Figure("ranks", ("τ of attention and loss over the four facts", "四个事实上注意力与损失的 τ"), OF_FACTS, "number"),
        ),
        measure=measure_sources,
        sentences={
            HOLDS: (
                "Over prompts of four facts, with 12 facts asked twice each, a given answer loses most without the fact that was asked for in nine of ten; that fact gets most attention per token in two of three. The answer was given, not written by the model. τ is shown without a verdict: three of four losses are small, and their order tells little.",
                "在由四个事实构成的提示中（12 个事实各问两次），十个中有九个，给定的答案没有所问的事实时减少最多；三个中有两个，这个事实按词元数得到最多的注意力。答案是给定的，不是模型写出的。τ 只列出，不作判定：四个减少中有三个很小，它们的次序说明不了什么。",
            ),
        },
        change=(
            "a larger model, facts of several sentences, or attention of chosen heads in place of the mean.",
            "更大的模型，由几个句子构成的事实，或以选定的头的注意力代替平均。",
        ),
        corpus=(FACTS,),
        arithmetic=(
            "The first command is one of the 24 prompts: `effects` has each fact's `change` of log p(answer), its `attention`, and as `even` what even attention would give it. The second makes all of them of `sample_inputs/facts.tsv` and prints the numbers below.",
            "第一条命令是 24 个提示中的一个：`effects` 中有每个事实的 log p(答案) 的 `change`、它的 `attention`，以及均匀注意力会给它的 `even`。第二条由 `sample_inputs/facts.tsv` 造出全部提示，输出下面的数字。",
        ),
        hub="attn answer --model Qwen/Qwen2.5-0.5B-Instruct --chat sample_inputs/documents.json --regions sample_inputs/documents.regions.json --subsets 32",
    ),
)  # fmt: skip
