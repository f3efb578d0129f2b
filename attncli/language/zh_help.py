"""What help pages say of each command in Chinese, by its English; and the words around it."""

HELP: dict[str, str] = {
    # the frame of a page
    "Usage: ": "用法：", "Arguments": "参数", "Options": "选项", "Commands": "命令", "required": "必填",
    "Text": "文本", "Model": "模型", "Attention": "注意力", "Analysis": "分析", "Output": "输出", "Compute": "计算", "Corpus": "语料", "Running": "运行",
    "Install completion for the current shell.": "为当前 shell 安装补全。",
    "Show completion for the current shell, to copy it or customize the installation.": "显示当前 shell 的补全脚本，以便复制或自行安装。",
    "Show this message and exit.": "显示这段说明并退出。", "-h shows one screen, --help everything.": "-h 显示一屏，--help 显示全部。", "{0} --help has all {1} options.": "{0} --help 列出全部 {1} 个选项。", "One JSON document.": "一份 JSON 文档。", "float32, float64, bfloat16 or float16.": "float32、float64、bfloat16 或 float16。",
    "default: {0}": "默认：{0}", "env: {0}": "环境变量：{0}", "env var: {0}": "环境变量：{0}", "above {0} to {1}": "大于 {0}，至多 {1}",
    "from {0} to {1}": "从 {0} 到 {1}", "by name": "按文件名", "what is free": "可用内存", "no": "无", "with several heads": "有几个头时",
    "the model's first choice": "模型的首选", "reversed": "倒序", "16, or a file's": "16，或文件的大小",
    "decoders the last token; encoders the mean of all": "解码器取最后一个词元；编码器取全部的平均",
    "none, sinusoidal, rope, rope:THETA, alibi, learned.": "none、sinusoidal、rope、rope:THETA、alibi、learned。",
    "dense, or reformer[:BUCKETS[,ROUNDS[,CHUNK]]]: hash attention.": "dense，或 reformer[:BUCKETS[,ROUNDS[,CHUNK]]]：哈希注意力。",
    # commands
    "Inspect attention on text, step by step.": "逐步查看文本上的注意力。",
    "Compare all heads: small maps, metrics, labels, the strongest link of each.": "比较所有的头：小图、指标、标签、各自最强的连接。",
    "The derivation of one query's attention, step by step, with this text's numbers.": "逐步推导一个查询的注意力，所用的是这段文本的数值。",
    "Topics, each with its own --help: attn explain softmax 2.0 1.0 0.1, attn explain scaling --d-k 512, and matrix-softmax, order, position, mask, multihead, residual, metric NAME. A text that is itself a topic's name is read with --file or from a pipe.":
        "专题各有自己的 --help：attn explain softmax 2.0 1.0 0.1、attn explain scaling --d-k 512，以及 matrix-softmax、order、position、mask、multihead、residual、metric NAME。文本若恰好是专题的名称，请用 --file 或管道给出。",
    "Softmax of given numbers, worked through.": "对给出的数做 softmax，逐步演算。",
    "Softmax of each row against softmax over the whole matrix, on a text's scores.": "用一段文本的得分，比较逐行 softmax 与整个矩阵的 softmax。",
    "Why √d_k: the variance of q·k measured against theory, and what scaling does to the softmax.": "为什么是 √d_k：q·k 的方差，实测值与理论值对照；以及缩放对 softmax 的作用。",
    "Whether attention sees the order of the tokens: without positions it does not.": "注意力是否看得到词元的顺序：没有位置信息就看不到。",
    "How attention learns where words stand: each way's numbers, and what it does to one query's weights.": "注意力如何知道词的位置：各种方法的数值，以及它对一个查询的权重的影响。",
    "What a mask does between scores and weights (--mask causal without another); of several texts, how padding is masked.":
        "掩码在得分与权重之间做什么（不指定时为 --mask causal）；给出几段文本时，填充如何被遮住。",
    "Several heads: what each looks at, what the average hides, and concat(O₁ … O_h)·W_O written out.": "多个头：各看哪里、平均掩盖了什么，以及写出 concat(O₁ … O_h)·W_O。",
    "The residual connection x + O and the norm, worked out for one query.": "残差连接 x + O 与归一化，针对一个查询演算。",
    "What a metric of `attn heads` means: formula, range, what it leaves out, source.": "`attn heads` 的一个指标的含义：公式、范围、不计什么、出处。",
    "Find the heads that send one token to another, ranked by weight.": "找出把一个词元引向另一个词元的头，按权重排列。",
    "Walk through heads, words and weights full screen, with the arrow keys; ? says what each key does.": "用方向键全屏浏览各个头、词和权重；? 说明各键的作用。",
    "Take heads away, one at a time, or cut a link, and see what changes at the end of the model.": "逐个剔除头，或切断一条连接，看模型末端有什么变化。",
    "Split the logit of a next token into what the embedding, each head and each feed-forward part add.": "把下一个词元的 logit 拆成嵌入、每个头和每个前馈部分各自加上的量。",
    "Run one text with what each head makes of another, one head at a time: which brings the other's answer back.":
        "运行一段文本时，逐头换上另一段文本的结果：看哪个头把另一段的答案带回来。",
    "What differs between two texts, heads, layers, masks, scales, positions, models or files: B minus A.": "两段文本、头、层、掩码、缩放、位置编码、模型或文件有何不同：B 减 A。",
    "Cross-attention: the tokens of one text look at those of another.": "交叉注意力：一段文本的词元看另一段文本的词元。",
    "With an encoder-decoder (t5, bart, marian) the decoder's text looks at the encoder's:": "用编码器-解码器（t5、bart、marian）时，解码器的文本看编码器的文本：",
    "Attention over q, k, v arrays from a file, with every option of the core.": "对文件中的 q、k、v 数组计算注意力，核心计算的每个选项都可用。",
    "q is [..., heads, query, dim], k [..., kv_heads, key, dim], v [..., kv_heads, key, v_dim]; arrays mask, bias, sinks, offset and key_lengths are used if the file has them. Beyond 2,048 queries or keys they run by blocks of rows: metrics and links remain, and nothing is held that is n × n.":
        "q 为 [..., heads, query, dim]，k 为 [..., kv_heads, key, dim]，v 为 [..., kv_heads, key, v_dim]；文件中若有 mask、bias、sinks、offset 和 key_lengths 数组，也会使用。查询或键超过 2,048 个时按行分块运行：保留指标和连接，不保存任何 n × n 的内容。",
    "Draw and describe masks and their combinations, before and after a score bias.": "画出并描述掩码及其组合，在得分偏置之前和之后。",
    "Operations, memory and pairs of full, causal, window and hash attention and of a recurrent network.": "全注意力、因果、窗口和哈希注意力以及循环网络的运算量、内存和配对数。",
    "What every head does over a corpus: means with intervals, labels, strongest examples, links.": "每个头在语料上的表现：带区间的平均值、标签、最强的例子、连接。",
    "A scan's numbers, as far as it is done.": "一次扫描的数值，显示到已完成的部分。",
    "How two scans differ: two corpora, or two models of as many heads.": "两次扫描有何不同：两份语料，或头数相同的两个模型。",
    "Compute some shards again and compare them with their files.": "重新计算一些分片，与其文件比较。",
    "Write seeded weights. They are those that attn run uses with the same options.": "写出由种子生成的权重，与 attn run 用同样选项时的权重相同。",
    "List a file's tensors and say what attention they are read as.": "列出文件中的张量，并说明它们被读作什么样的注意力。",
    "Convert a weight file to another format or layout.": "把权重文件转换成另一种格式或布局。",
    "Known families, aliases and cached models; what one does; parity with transformers.": "已知的家族、别名和缓存的模型；某个模型做什么；与 transformers 是否一致。",
    "The native families, the aliases and the cached models.": "原生家族、别名和缓存的模型。",
    "What a model does, layer by layer. Sizes, attention, masks, positions; no weights are read, nor fetched.":
        "一个模型逐层做什么：尺寸、注意力、掩码、位置编码；不读取也不下载权重。",
    "Compare a model with transformers, head by head. Ends with 1 where they differ; needs the extra transformers.":
        "把一个模型与 transformers 逐头比较。不一致时退出码为 1；需要安装附加组件 transformers。",
    "Show a saved document or tensor file again, in every view; nothing is computed anew.": "再次显示保存的文档或张量文件，各种视图都可用；不重新计算。",
    "The pages of the guide: for learners, engineers, researchers; masks, weight files, JSON.": "指南各页：学习者、工程师、研究者；掩码、权重文件、JSON。",
}  # fmt: skip
