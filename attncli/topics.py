"""The topics of `attn explain`, each a function that returns the topic's document.

attncli.topics.softmax([2.0, 1.0, 0.1], temperature=0.5)    scores worked through
attncli.topics.scaling(64, samples=4096, keys=10, seed=0)    why scores are divided by √d_k
attncli.topics.matrix_softmax(model, text, tokens, layer=0, head=0)    by rows against over the
whole matrix
attncli.topics.order(models, text, tokens, order)    whether attention sees the order of the tokens
attncli.topics.position(models, text, tokens, layer=0, head=0, query=2)    what each way of telling
places does
attncli.topics.mask(model, text, tokens, layer=0, head=0, query=2)    what a mask takes away
attncli.topics.multihead(model, text, tokens, layer=0, query=2)    what each head adds to the output
attncli.topics.residual(model, text, tokens, layer=0, query=2)    the residual connection and the
norm
attncli.topics.qkv(model, text, tokens, layer=0, head=0, query=2)    why queries, keys and values have
a matrix each
attncli.topics.seq2seq(model, "le chat dort", "the cat sleeps")    one vector for a sentence, or a
search
attncli.topics.training(model, text, tokens, layer=0, head=0, query=2)    one step, and how the error
reaches W_Q and W_K
attncli.topics.metric("entropy")    what a metric means
attncli.topics.rule("after-same")    where a rule of heads looks
"""

from attncli.features.explain.compute import mask_topic_document as mask
from attncli.features.explain.compute import multihead_document as multihead
from attncli.features.explain.compute import position_document as position
from attncli.features.explain.compute import residual_document as residual
from attncli.features.explain.qkv_topic import qkv_document as qkv
from attncli.features.explain.rule_topic import rule_document as rule
from attncli.features.explain.seq2seq_topic import seq2seq_document as seq2seq
from attncli.features.explain.softmax_topics import matrix_softmax_document as matrix_softmax
from attncli.features.explain.softmax_topics import metric_document as metric
from attncli.features.explain.softmax_topics import order_document as order
from attncli.features.explain.softmax_topics import scaling_document as scaling
from attncli.features.explain.softmax_topics import softmax_document as softmax
from attncli.features.explain.training_topic import training_document as training
from attncli.results import show_results

__all__ = [
    "mask",
    "matrix_softmax",
    "metric",
    "multihead",
    "order",
    "position",
    "qkv",
    "residual",
    "rule",
    "scaling",
    "seq2seq",
    "softmax",
    "training",
]

show_results()
