"""What the screen, the figure and the page of an answer call its regions and probabilities."""

from __future__ import annotations

from math import exp

from attncli.draw.token_names import quote_text, region_name
from attncli.draw.view import View
from attncli.features.answer.document import AnswerDocument, AnswerEffect
from attncli.features.effects.targets import probability_text
from attncli.inputs.regions import REST
from attncli.language import say


def leaf_name(document: AnswerDocument, effect: AnswerEffect, view: View) -> str:
    """The region's name as screens show it. Where the regions inside it are listed by themselves,
    "(other)" behind the name says that only its remaining tokens are meant."""
    name = region_name(document.regions[effect.region].name, view)
    if effect.without:
        return say(view, "{region} (other)", region=name)
    return name


def quoted_leaf(document: AnswerDocument, effect: AnswerEffect, view: View) -> str:
    """The region's name as sentences quote it. The tokens that lie in no region are called
    "elsewhere", followed by what that is."""
    if document.regions[effect.region].name == REST:
        return say(view, '"elsewhere" (the text in no region)')
    return quote_text(leaf_name(document, effect, view), view)


def share_text(logprob: float) -> str:
    """Write exp(logprob), the geometric mean probability of the answer's tokens, with enough digits
    to tell small ones apart.

    logprob: the mean log probability of the tokens, in nats.
    """
    return probability_text(exp(logprob))
