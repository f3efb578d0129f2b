"""What figures say, in English and Chinese."""

from attncli.language import page

BOTH: dict[str, dict[str, str]] = {
    "en": {
        "head": "layer {0} head {1}",
        "of_layer": "head {0}",
        "batch": "batch {0} head {1}",
        "average": "average",
        "pooled": ", pooled {0}×",
        "pool": "each dot: the largest of {0} × {0} cells",
        "roots": "colours by square roots",
        "row": "row's largest",
        "seed": "seed {0}, not learned",
        "mask": "mask {0}",
        "position": "position {0}",
        "sides": "rows look, columns are looked at",
        "metrics": "metrics",
        "uniform": "line: what uniform weights would give",
        "differs": "{0}, which differs most",
        "rank": "rank {0}",
        "ablate": "what changes when one head is taken away ({0}): {1}",
        "random": "line: a random change of the same size",
        "grid": "layers × heads",
        "patch": "clean into corrupt, one head at a time: what it brings back of the {0}",
        "logits": "what adds to the logit of {0} at {1}: {2}",
        "part.head": "layer {0} head {1}",
        "part.mlp": "layer {0} feed-forward",
        "part.embedding": "embedding",
        "part.bias": "bias",
        "masks": "masks",
        "visible": "filled: visible; rows are queries, columns keys",
        "together": "all together",
        "cost": "cost of attention, n = {0}",
        "sizes": "d_model {0}, {1} heads",
        "tokens": "tokens",
        "operations": "multiply-adds per layer",
    },
    "zh": {
        "head": "第 {0} 层第 {1} 头",
        "of_layer": "第 {0} 头",
        "batch": "批次 {0} 第 {1} 头",
        "average": "平均",
        "pooled": "，合并 {0}×",
        "pool": "每点：{0} × {0} 格中的最大值",
        "roots": "颜色按平方根",
        "row": "本行最大",
        "seed": "种子 {0}，未经训练",
        "mask": "掩码 {0}",
        "position": "位置编码 {0}",
        "sides": "行看列",
        "metrics": "指标",
        "uniform": "竖线：均匀权重所得",
        "differs": "{0}，差异最大",
        "rank": "第 {0} 位",
        "ablate": "剔除一个头后的变化（{0}）：{1}",
        "random": "竖线：同样大小的随机改变",
        "grid": "层 × 头",
        "patch": "逐头换入干净文本的结果：{0} 恢复了多少",
        "logits": "哪些部分加到 {1} 处 {0} 的 logit 上：{2}",
        "part.head": "第 {0} 层第 {1} 头",
        "part.mlp": "第 {0} 层前馈",
        "part.embedding": "嵌入",
        "part.bias": "偏置",
        "masks": "掩码",
        "visible": "填色：可见；行为查询，列为键",
        "together": "全部合并",
        "cost": "注意力的开销，n = {0}",
        "sizes": "d_model {0}，{1} 个头",
        "tokens": "词元",
        "operations": "每层乘加次数",
    },
}


def figure_phrase(lang: str, name: str, *values: object) -> str:
    """The phrase of this name, its places filled; a metric that has no phrase is called by its name.

    Raises KeyError for another name that there is not.
    """
    if name.startswith("metric."):
        return page.BOTH[lang].get(name, name.removeprefix("metric."))
    return BOTH[lang][name].format(*values)
