"""Longformer: RoBERTa within windows, with global tokens that have projections of their own.
Source: Beltagy et al.,
2020."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.errors import InputError
from attncli.language import message
from attncli.mechanism.mask import Window
from attncli.mechanism.spec import Attention, Embedding, Norm, Spec
from attncli.models.config import Config, FixedValue, attention_with_globals
from attncli.models.families import bart, bert
from attncli.models.family import Family

OWN = {
    f"attn.global_{role[0]}": f"attention.self.{role}_global" for role in ("query", "key", "value")
}

NAMES = replace(
    bert.NAMES.with_roles(OWN, outside=bert.LM_HEAD),
    prefixes=("longformer.",),
    ignored=(*bert.TASK_HEADS, "lm_head.*"),
)

FIRST_IS_GLOBAL = "LongformerForSequenceClassification"
"""The class whose first token is global; the others have none unless a user names it."""


def spec(config: Config) -> Spec:
    """The Spec of a Longformer: RoBERTa with a window in each layer, and perhaps a global token."""
    config.get("sep_token_id", "onnx_export")  # of question answering and of a file format
    base = bert.roberta(config)
    blocks = []
    reaches = window_reaches(config, len(base.blocks))
    for block, reach in zip(base.blocks, reaches, strict=True):
        windowed = with_window(block.attention, reach)
        attention = attention_with_globals(windowed, first_tokens(config))
        blocks.append(replace(block, attention=attention))
    return replace(base, blocks=tuple(blocks))


def first_tokens(config: Config) -> tuple[int, ...]:
    """The positions of the global tokens: 0 where a class whose first token is global wrote the
    file, else none.
    """
    architectures = config.get("architectures")
    if isinstance(architectures, list) and FIRST_IS_GLOBAL in architectures:
        return (0,)
    return ()


def with_window(attention: Attention, reach: int) -> Attention:
    """The attention with a window of `reach` tokens on either side, and no global tokens yet."""
    return replace(attention, mask=Window(left=reach, right=reach), own_global=())


def window_reaches(config: Config, layers: int) -> list[int]:
    """How many tokens a query sees to either side, for each of `layers` layers: half of the config's
    `attention_window`, which is one number or a list.

    Raises InputError for a window that is odd, and for a list of another length.
    """
    value = config.get("attention_window")
    if isinstance(value, list):
        windows = value
    else:
        windows = [config.integer("attention_window", default=512, least=2)] * layers
    are_even = all(
        isinstance(window, int) and window >= 2 and window % 2 == 0 for window in windows
    )
    if len(windows) != layers or not are_even:
        what = message("config.json sets attention_window to {value}", value=repr(value))
        expected = message("an even number from 2, or {layers} of them", layers=layers)
        raise InputError(what, where=config.where, expected=expected)
    return [window // 2 for window in windows]


NEAR = "self_attn.longformer_self_attn"

LED_ENCODER = replace(
    bart.ENCODER.with_roles(
        {
            **{f"attn.{role[0]}": f"{NEAR}.{role}" for role in ("query", "key", "value")},
            **{
                f"attn.global_{role[0]}": f"{NEAR}.{role}_global"
                for role in ("query", "key", "value")
            },
            "attn.o": "self_attn.output",
        }
    ),
    prefixes=("led.",),
)

LED_DECODER = replace(bart.DECODER, prefixes=("led.",))

LED_FIXED = {"is_encoder_decoder": FixedValue(True, "the file would hold one side")}


def led(config: Config) -> Spec:
    """The Spec of an LED: an encoder with Longformer's windows and global tokens, BART's decoder
    inside; no token is global unless a user names it. Source: Beltagy et al., 2020."""
    norm = Norm("layer", 1e-5)
    whole = bart.encoder_decoder(config, norm, Embedding(positions="learned", norm=norm))
    reaches = window_reaches(config, len(whole.blocks))
    blocks = tuple(
        replace(block, attention=with_window(block.attention, reach))
        for block, reach in zip(whole.blocks, reaches, strict=True)
    )
    assert whole.decoder is not None  # `encoder_decoder` has made one
    decoder = replace(
        whole.decoder, max_positions=config.integer("max_decoder_position_embeddings", default=1024)
    )
    longest = config.integer("max_encoder_position_embeddings", default=16384)
    return replace(whole, blocks=blocks, max_positions=longest, decoder=decoder)


FAMILIES = {
    "longformer": Family(spec, NAMES, fixed=bert.FIXED),
    "led": Family(led, LED_ENCODER, LED_DECODER, LED_FIXED),
}
