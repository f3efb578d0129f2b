"""What the pages say: sentences by the names that their scripts ask for, put into each language
when a page is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attncli.documents.parts import LABEL_NAMES
from attncli.draw.safe import safe
from attncli.draw.tour import TOUR
from attncli.language import Message, contextual, languages, message, translate
from attncli.measure.labels import LABELS
from attncli.measure.metric import METRIC_TITLES

PAGE_WORDS: Mapping[str, Message] = {
    **{f"metric.{name}": title for name, title in METRIC_TITLES.items()},
    "help-open": message("keys ?"),
    "help-close": message("close ✕"),
    "help.keys": message(
        "← → ↑ ↓	move: heads, words, cells\nHome End	first, last\nPgUp PgDn	ten words, four"
        " layers\n[ ]	layer before, after\n, .	head before, after\n1 … 9	views\n+ - 0	nearer,"
        " further, all\ns	next colour scale\nr	turn the direction\nclick	choose a word or a cell"
        " and hold it; again: let go\n/	search\nd	difference\ne	effects\np	pin the head\na	other"
        " run\nEsc	close"
    ),
    "head.name": message("layer {layer} head {head}"),
    "heads.title": message("{count} heads"),
    "heads.one": message("{count} head"),
    "looks": message('where "{query}" looks'),
    "looks.rest": message('where "{query}" looks; without tint: where heads rest'),
    "looked": message('who looks at "{key}"'),
    "turn": message("turn the direction"),
    "pin": message("held · click to let go"),
    "tour": message("step by step"),
    "tour.step": message("step {number} of {total}: {step}"),
    "tour.play": message("play"),
    "tour.pause": message("pause"),
    "tour.before": message("back"),
    "tour.on": message("on"),
    "tour.close": message("end"),
    "tour.absent": message(
        "This page holds no effects of heads: attn ablate TEXT --html FILE writes one that does."
    ),
    **{f"tour.{step.name}": step.words for step in TOUR},
    **{f"title.{step.name}": step.title for step in TOUR},
    **{f"lead.{step.name}": step.lead for step in TOUR if step.lead},
    "values.title": message("values times weights: {shown} of {count} dimensions"),
    "values.others": message("{count} others"),
    "values.none": message("The page holds no values of this head."),
    "whole": message("the whole page"),
    "share": message("take along"),
    "share.link": message("copy the link"),
    "share.embed": message("copy a frame"),
    "share.svg": message("drawing (.svg)"),
    "share.png": message("picture (.png)"),
    "share.csv": message("table (.csv)"),
    "share.number": message("number"),
    "share.copied": message("copied"),
    "sort": message("order"),
    "scale": message("shades"),
    "scale.linear": message("0 to 1"),
    "scale.log": message("logarithmic"),
    "scale.row": contextual("page", "each row"),
    "scale.rest": message("without rest"),
    "view.matrix": message("Matrix"),
    "view.links": message("Links"),
    "view.derivation": message("Derivation"),
    "view.search": message("Search"),
    "view.difference": message("Difference"),
    "view.rollout": message("Rollout"),
    "view.effects": message("Effects"),
    "view.why": contextual("page", "Why"),
    "view.lens": contextual("page", "Lens"),
    "metric.layer": message("layer and head"),
    "zoom.in": message("nearer"),
    "zoom.out": message("further away"),
    "zoom.all": message("all"),
    "matrix.says": message(
        "weights of {queries} queries in rows, {keys} keys in columns; arrow keys move, the rows"
        " below tell them"
    ),
    "links.says": message(
        "links between the words that look, left, and those that are looked at, right; the rows"
        " below tell them"
    ),
    "legend.row": message("row's largest"),
    "kept.exact": message("weights as computed"),
    "kept.roots": message("weights within {error}"),
    "kept.products": message("made from q and k, within {error}"),
    "kept.none": message(
        "Of this head the page holds its small map, its metrics and its strongest links."
    ),
    "kept.more": message("A larger {option} holds more."),
    "kept.absent": message("What this page was made from holds no weights of this head."),
    "means.grid": message(
        "Each tile is one head's matrix in small: in rows the words that look, in columns the words"
        " that are looked at; more weight stands out more. Layers run from top to bottom as the"
        " model computes them. Choose a tile to see its head large."
    ),
    "means.head": message(
        "A head is one of the model's ways to look: for each word it shares a weight of 1 among the"
        " words that it may see. Layers and heads are counted from 0."
    ),
    "means.habit": message("It says how the head looks in this text, not what it is for."),
    **{
        f"means.{name}": Message(label.meaning.template, {"least": label.threshold})
        for name, label in LABELS.items()
    },
    "rows.label": contextual("page", "strongest links"),
    "sentence.label": message("the text; left and right choose a word"),
    "grid.label": message("heads; arrow keys choose one"),
    "tabs.label": message("views"),
    "axis.key": message("key →"),
    "axis.query": message("query ↓"),
    "pair": message('"{query}" looks at "{key}" with {weight}'),
    "pair.hidden": message('"{query}" does not see "{key}"'),
    "weight.hidden": message("hidden"),
    "derivation.none": message(
        "Of this head no queries and keys are kept, so its scores cannot be taken apart."
    ),
    "derivation.note": message(
        "Queries and keys as they enter the product: after norms and rotation."
    ),
    "derivation.terms": message("the product, dimension by dimension, largest first"),
    "derivation.dim": message("dimension"),
    "derivation.q": message("q"),
    "derivation.k": message("k"),
    "derivation.product": message("q × k"),
    "step.raw": message("sum of {count} products"),
    "step.scale": message("scaled"),
    "step.cap": message("capped"),
    "step.bias": message("bias for this distance"),
    "step.softmax": message(
        "its share of the row: softmax, s the score, the other number the row's log-sum-exp"
    ),
    "step.hidden": message("hidden by the mask"),
    "search.lead": message("Which heads send one word to another?"),
    "search.from": contextual("page", "from"),
    "search.to": contextual("page", "to"),
    "search.rank": message("no. {rank} of its row"),
    "search.unknown": message('There is no word "{word}" here.'),
    "search.says": message('"{query}" looks at "{key}" most in {head}: {weight}.'),
    "search.hidden": message("No head sees this pair."),
    "search.unheld": message(
        "Of {unknown} of {heads} heads the page holds no weight of this pair."
    ),
    "difference.alone": message(
        "Words that only one of the texts has are underlined above; their weights have no"
        " difference."
    ),
    "pins.pin": message("pin {head}"),
    "pins.free": message("let {head} go"),
    "tiles": contextual("page", "tiles"),
    "tiles.maps": contextual("page", "maps"),
    "tiles.lines": contextual("page", "lines"),
    "difference.none": message("This head's weights are not kept on both sides."),
    "rollout.lead": message('How much of each word reaches "{query}" through all layers'),
    "rollout.even": message("even: {share}"),
    "rollout.note": message(
        "Heads averaged, half of each layer the residual connection, layers multiplied "
        "(Abnar and Zuidema, 2020). “Even” is the same with attention spread evenly over "
        "what is seen. What tokens mix by other means than heads is left out."
    ),
    "rollout.none": message(
        "The rollout needs the weights of every head, of one text of at most 640 tokens."
    ),
    "ablate.lead": message("What changes in {place} when one head is taken away ({by}): {measure}"),
    "effects.mean": message("the mean of all vectors"),
    "effects.word": message('"{word}"'),
    "by.zero": message("it passes on nothing"),
    "by.mean": message("it passes on its mean"),
    "by.resample": message("it passes on what it does in another text"),
    "measure.cosine": message("how far the vector turns, 1 − cosine"),
    "measure.norm": message("by how much of its length the vector changes"),
    "measure.logprob": message("the log-probability of the next token"),
    "measure.kl": message("how far the prediction changes, KL divergence"),
    "patch.cosine": message("the cosine with the clean text's vector"),
    "measure.logit difference": message("the difference of two logits"),
    "measure.log probability": message("the log-probability of the next token"),
    "effects.random": message("random: {size}"),
    "effects.weight": message("weight {weight}"),
    "ablate.note": message("Heads are taken away one at a time: these numbers do not add up."),
    "knockout.lead": message("What changes in {place} when the link is cut in one head: {measure}"),
    "knockout.note": message("The link is cut in one head at a time: these numbers do not add up."),
    "patch.lead": message(
        'Heads of the clean text are put into "{by}" one at a time: how much each brings back '
        "in {place}, measured by {measure}"
    ),
    "patch.note": message("One head at a time: these numbers do not add up."),
    "regions": message("of its weight by region:"),
    "regions.beyond": message("of its weight that does not rest, by region:"),
    "regions.rest": message("rest, of all its weight"),
    "why.lead": message(
        '"{query}" looks at "{key}" with {weight}: its score is {total} above what the row expects.'
    ),
    "why.than": message(
        '"{query}" looks at "{key}" with {weight}: its score is {total} above that of "{other}".'
    ),
    "why.asks": message('what asks: parts of "{query}"'),
    "why.answers": message('what answers: parts of "{key}"'),
    "why.without": message("without: {weight}"),
    "why.rest": message("and {count} smaller ones"),
    "why.sum": message(
        "{count} parts add up to the score {score} (difference {difference}), with every norm as in"
        " this run."
    ),
    "why.tinted": message("The heads above are tinted by what they add on both sides."),
    "why.spread": message(
        "No part of either word makes half of what speaks for the link: the reason is spread."
    ),
    "why.other": message("The page holds the parts of these links:"),
    "lens.lead": message(
        'What each layer would say next if the model ended there, and how likely "{target}" is'
    ),
    "lens.row": message("layer {layer} {stage}"),
    "lens.before_attention": message("before attention"),
    "lens.after_attention": message("after attention"),
    "lens.end": message("at the end"),
    "lens.rank": message("rank {rank}"),
    "lens.note": message(
        "Each vector goes through the model's own final norm and output head: the logit lens."
    ),
    "logits.lead": message('What each head adds to the logit of "{by}" after {place}'),
    "logits.note": message(
        "With the embedding, the feed-forward parts and the biases they sum to the model's logit."
    ),
}
"""The words of the page of runs."""
SCAN_PAGE_WORDS: Mapping[str, Message] = {
    "line": message("{model} · {texts} texts · {tokens} tokens"),
    "head.name": message("layer {layer} head {head}"),
    "answer.both": message("{first} {second}"),
    "answer.all": message(
        "{count} heads, of which {labelled} earn a label; {x} is {mean} on average, from {low} to"
        " {high}."
    ),
    "answer.selected": message(
        "Selected: {count} of {heads} heads, of which {labelled} earn a label; {x} is {mean} on"
        " average, from {low} to {high}."
    ),
    "answer.all.bare": message(
        "{count} heads, of which {labelled} earn a label; none has a number of {x}."
    ),
    "answer.selected.bare": message(
        "Selected: {count} of {heads} heads, of which {labelled} earn a label; none has a number of"
        " {x}."
    ),
    "answer.label": message("The commonest label is {label}: {most}."),
    "answer.unlabelled": message("None of them earns a label."),
    "answer.rest": message("{resting} of them rest, {both} of these beside a label."),
    "plot.title": message("{count} heads by {x} and {y}"),
    "legend": contextual("page", "{name}:"),
    "plot.without": message("without a number and not drawn: {count}"),
    "scatter.says": message(
        "heads by {x} and {y}; chosen: {head}, {x} {a}, {y} {b}; arrow keys move, Enter selects,"
        " Escape clears"
    ),
    "pick.x": contextual("page", "across"),
    "pick.y": contextual("page", "up"),
    "pick.colour": message("colour"),
    "pick.size": contextual("page", "size"),
    "pick.label": message("select by label"),
    "pick.none": contextual("page", "choose"),
    "clear": message("clear the selection"),
    "selected": contextual("page", "selected"),
    "quantity.same": contextual("page", "all alike"),
    "quantity.layer": message("layer"),
    "quantity.scan": message("scan"),
    "quantity.label": message("label"),
    "quantity.score": message("{label}, score"),
    "label.none": message("no label"),
    "quantity.rule": message("strongest rule"),
    "rule.other": message("another rule, or none told"),
    "rules": message("which simple rules say where it looks"),
    "heads.title": message("{count} heads by {metric}: mean over texts, bar: 95% interval"),
    "heads.rules": message("{count} heads by {metric}: of rows of texts not fitted to"),
    "range": message("bars from {lowest} to {highest} · arrows , . move · [ ] other metric"),
    "metric": message("metric"),
    "sorted": message("by value"),
    "examples": message("strongest examples, {metric}"),
    "examples.note": message(
        "underlined: the token that looks; the darker a token, the more of the look it gets"
    ),
    "examples.none": message("no text has this number"),
    "deciles": message("over the whole range of {metric}"),
    "deciles.note": message("texts drawn by a hash; tenth 10 holds the largest values"),
    "stratum.tenth": message("tenth {tenth}"),
    "stratum.any": message("any text"),
    "links": message("which tokens it links most"),
    "why": message("why it looks where it looks most"),
    "why.note": message(
        "over the strongest link of each of {texts} texts; the score is {advantage} above what its"
        " row expects"
    ),
    "why.none": message(
        "In no text is the score of its strongest link above what its row expects."
    ),
    "why.asks": message("what asks"),
    "why.answers": message("what answers"),
    "column.why": message("share of the advantage"),
    "links.note": message(
        "strongest links of {rows} query rows, without keys where heads rest; lift: how many times"
        " what chance makes, with tokens as frequent as here"
    ),
    "others": message("the same head in the other scans"),
    "alike": message("the heads most like it"),
    "alike.note": message(
        "distance: √(Jensen–Shannon / ln 2) over {texts} texts drawn by a hash, 0 the same; kernel:"
        " what their values read and they write in common, of random heads {chance}"
    ),
    "metrics": message("all metrics"),
    "kinds": message("where its weight goes"),
    "kinds.note": message(
        "share of its weight, mean over texts; words and distances without the first token,"
        " itself with the row of that; by chance: of uniform attention"
    ),
    "column.kind": contextual("page", "kind"),
    "column.weight": contextual("scan", "share"),
    "massive": message("massive activations"),
    "massive.note": message(
        "numbers above 100 and 1,000 times the median among those that leave the layer; texts:"
        " share with one"
    ),
    "labels": message("labels"),
    "repeats": message("on random repeats"),
    "borderline": message("borderline"),
    "undecided": message("undecided"),
    "column.metric": message("metric"),
    "column.layer": message("layer"),
    "column.mean": message("mean over texts"),
    "column.interval": message("95% interval"),
    "column.rows": message("mean over rows"),
    "column.sd": message("sd"),
    "column.median": message("median"),
    "column.uniform": message("uniform"),
    "column.label": message("label"),
    "column.score": message("score"),
    "column.texts": message("texts that earn it"),
    "column.pair": message("query and key"),
    "column.links": message("links"),
    "column.chance": message("by chance"),
    "column.lift": message("lift"),
    "column.share": message("texts with one"),
    "column.doing": message("by what it does"),
    "column.distance": message("distance"),
    "column.weights": message("by weights"),
    "column.kernel": contextual("column", "kernel"),
    "unshaded": message("The scan's model is not at hand, so the sentences are not shaded."),
}
"""The words of the page of a scan."""


def table_words(count: int) -> dict[str, Message]:
    """The words beside the table of a document's page, by the names that its HTML asks for.

    count: rows of the table.
    """
    return {
        "screen": message("what the terminal shows"),
        "table": message("the table, rows: {count}", count=count),
        "csv": message("save the table (.csv)"),
        "cut": message(
            "More rows than these are not on the page; attn view FILE --csv FILE writes them all."
        ),
    }


def run_name(name: str) -> Message:
    """The name of a run to be translated: a name such as "text 3", which is ours, or any other as it
    is."""
    number = re.fullmatch(r"text (\d+)", name)
    if number:
        return message("text {number}", number=number[1])
    return Message("{name}", {"name": name})


def in_languages(text: str) -> dict[str, str]:
    """A sentence in every language that has a catalogue, safe to show."""
    return {lang: safe(translate(text, lang)) for lang in languages()}


def words_by_language(words: Mapping[str, Message]) -> dict[str, dict[str, str]]:
    """The words in every language that has a catalogue, with the names of labels; `language` is its
    own name.

    The places stay open: the script fills them.
    """
    words = {"language": contextual("the name of this language", "English"), **words}
    words |= {f"label.{name}": spoken for name, spoken in LABEL_NAMES.items()}
    return {
        lang: {name: text.translation(lang) for name, text in words.items()} for lang in languages()
    }
