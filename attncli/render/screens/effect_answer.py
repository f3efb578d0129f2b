"""What effects say in words. Each sentence has its rule; none says more than the numbers of the document hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from attncli.analysis.documents.ablate import reading_of
from attncli.analysis.documents.effects import readings_of
from attncli.render.headings import sentences
from attncli.render.lines import Lines, stack
from attncli.render.phrases import say
from attncli.render.screens.sentence_answer import not_learned
from attncli.render.screens.shading import shaded
from attncli.render.token_names import quoted, quoted_token, quoted_word
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.ablate import AblateDocument, EffectRow
    from attncli.analysis.documents.difference import DifferentHead
    from attncli.analysis.documents.effects import MeanEffect, Measures, TokenPlace
    from attncli.analysis.documents.find import FindDocument
    from attncli.analysis.documents.logits import LogitPart
    from attncli.analysis.documents.patch import PatchRow

    AnyHead = EffectRow | MeanEffect | PatchRow | LogitPart | DifferentHead

TIMES = 2.0
"""A first effect of at least so many times the second is said to be that many times it."""
ALIKE = 0.8
"""A head looks at a key as much as another one does from this share of its weight on."""
HARDLY = 0.25
"""An effect of at most this share of the largest hardly matters beside it."""
NOTHING = 1e-12
"""Effects below this are none."""
ABOVE = 2.0
"""An effect of at most so many times that of a random change of its size is said to be little more than it."""


def size(effect: EffectRow | Measures, document: AblateDocument) -> float | None:
    """An effect by the first measure: of a vector, the turn."""
    return reading_of(effect, readings_of(document.measures)[0])


def sized(effect: EffectRow | Measures, document: AblateDocument) -> float:
    """The same as a number, 0 where it is undefined."""
    return size(effect, document) or 0.0


def named(effect: AnyHead, view: View) -> str:
    """A head as sentences name it."""
    name = "effect.head.cross" if effect.attention == "cross" else "effect.head"
    return say(view, name, effect.layer, effect.head)


def begun(said: str) -> str:
    """A sentence with a capital letter, where its script has them."""
    return said[:1].upper() + said[1:]


def number(value: float) -> str:
    """Two or three significant digits."""
    return f"{value:.3f}" if abs(value) >= 0.0995 else f"{value or 0.0:.2g}"  # never -0


def written(value: float | None) -> str:
    """A number in a table; `-` where there is none."""
    return "-" if value is None else number(value) if value else "0"


def found_cut(document: FindDocument, view: View) -> list[str]:
    """What `attn find --effect` says: in which head cutting the link changes most, and in all of them."""
    known = [(head.effect, head) for head in document.heads if head.effect is not UNSET and head.effect is not None]
    if not known:
        return []
    asked = quoted_token(document.tokens, document.query, view)
    effect, first = max(known, key=lambda each: each[0])
    found = []
    if effect >= NOTHING:
        head = say(view, "effect.head", first.layer, first.head)
        found.append(say(view, "effect.most.link", head, asked, number(effect), ""))
    else:
        found.append(say(view, "effect.none.link", asked))
    if document.effect_together is not UNSET and document.effect_together is not None:
        found.append(say(view, "effect.together.link", number(document.effect_together), asked))
    return [begun(said) for said in found]


def subject(document: AblateDocument, view: View) -> str:
    """What is measured: a token's vector, the mean of all, a prediction."""
    first = document.measures[0]
    if first != "vector":
        return say(view, f"effect.subject.{'every' if document.every else first}", _target(document, view))
    if document.place == "mean":
        return say(view, "effect.subject.mean")
    texts = [token.text for token in document.tokens[document.place.token : _last(document.place) + 1]]
    return quoted(" ".join(texts), view)


def _last(place: TokenPlace) -> int:
    return place.token if place.last is UNSET else place.last


def _target(document: AblateDocument, view: View) -> str:
    target = document.target
    return "" if target is None else quoted_word(target.text, view)


def told(document: AblateDocument, view: View) -> list[str]:
    """The sentences, in order."""
    effects = [effect for effect in document.effects if size(effect, document) is not None]
    together = size(document.together, document)
    subject_ = subject(document, view)
    link = document.link is not None
    found = []
    if effects:
        first = effects[0]
        largest = abs(sized(first, document))
        if largest < NOTHING:
            found.append(say(view, "effect.none.link" if link else "effect.none", subject_))
        else:
            second = abs(sized(effects[1], document)) if len(effects) > 1 else None
            name = "effect.most.link" if link else "effect.most"
            if second is not None and second > 0 and largest / second >= TIMES:
                name, times = f"{name}.times", say(view, "effect.times", f"{largest / second:.2g}")
            else:
                times = ""
            found.append(say(view, name, named(first, view), subject_, number(sized(first, document)), times))
            found += _random(document, first, view) + _alike(document, effects, view)
    if together is not None and len(document.effects) != 1:  # of one head it is the same
        name = "effect.together.link" if link else "effect.together"
        if not document.effects:
            name += ".alone"
        found.append(say(view, name, number(together), subject_))
    elif len(document.effects) != 1 and not link:
        found.append(say(view, "effect.together.undefined", subject_))
    if len(effects) > 1:
        found.append(say(view, "effect.sum.link" if link else "effect.sum"))
    return [begun(said) for said in found]


def _alike(document: AblateDocument, effects: Sequence[EffectRow], view: View) -> list[str]:
    """A head that looks at the same key as the first about as much, and hardly matters."""
    first = effects[0]
    if first.looks is None or document.tokens[first.looks.key].special or document.tokens[first.looks.key].unknown:
        return []
    key = quoted_token(document.tokens, first.looks.key, view)
    for effect in sorted(effects[1:], key=lambda effect: -(effect.looks.weight if effect.looks else 0)):
        looks = effect.looks
        if (
            looks is not None
            and looks.key == first.looks.key
            and looks.weight >= ALIKE * first.looks.weight
            and abs(sized(effect, document)) <= HARDLY * abs(sized(first, document))
        ):
            told = (named(effect, view), key, f"{looks.weight:.2f}", number(sized(effect, document)))
            return [say(view, "effect.alike", *told, f"{first.looks.weight:.2f}")]
    return []


def _random(document: AblateDocument, first: EffectRow, view: View) -> list[str]:
    if first.random is None:
        return []
    drawn = size(first.random, document)
    if drawn is None or abs(sized(first, document)) > ABOVE * abs(drawn):
        return []
    return [say(view, "effect.random", number(drawn))]


def ablate_answer(document: AblateDocument, view: View) -> Lines:
    """The sentence tinted by what the head that matters most looks at, and what the numbers say."""
    tokens, effects = document.tokens, document.effects
    shares, asked, tint = [0.0] * len(tokens), range(0), "answer.tint.head"
    first = effects[0] if effects else None
    if document.place != "mean":
        asked = range(document.place.token, _last(document.place) + 1)
    if document.link is not None and effects:
        first, tint = max(effects, key=lambda effect: effect.weight or 0.0), "answer.tint.link"
        key = [] if document.link.attention == "cross" else document.link.key  # the other text is not drawn
        for place in [key] if isinstance(key, int) else key:
            shares[place] = first.weight or 0.0
    elif first is not None and first.looks is not None and first.attention == "self":
        shares[first.looks.key] = first.looks.weight
    head = () if first is None else (named(first, view),)
    seen = shaded(document.text, tokens, shares, view, query=asked, tint=tint, values=head)
    return stack((seen, sentences((*told(document, view), not_learned(document.model, view)), view)))
