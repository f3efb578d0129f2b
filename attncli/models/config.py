"""`Config`: a checkpoint's `config.json` that remembers which keys were read; and values that
families share.

A model is run only if every key that shapes it was understood: what a family reads shapes the
Spec; what it declares but does not implement must have its usual value (`settle`). Shared are
rotary position embedding as configs spell it, old (`rope_theta`, `rope_scaling`) and new
(`rope_parameters`), and changes to what tokens see: global tokens, and decoders that a config turns
into encoders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import InputError, UnsupportedError
from attncli.language import listing, message
from attncli.mechanism.mask import AnyOf, Causal, Everywhere, Global, Mask, Window
from attncli.mechanism.spec import (
    Activation,
    Attention,
    Block,
    Dynamic,
    Linear,
    Llama3,
    LongRope,
    Rope,
    RopeScaling,
    Spec,
    Yarn,
)

Choice = TypeVar("Choice", bound=str)

LARGEST = 2**24
"""No size in a config may exceed this: far above any model, far below what exhausts a machine."""

LARGEST_NUMBER, SMALLEST_NUMBER = 1e15, 1e-30
"""No number in a config is further from 0 than the first, or nearer to it than the second where it
must be positive.
"""

MOST_LAYERS = 10_000

MOST_TOLD = 20
"""Unknown keys that get a warning each."""

# what the files are, how they were made, and what training and generation do with them
_HARMLESS = """
    _name_or_path architectures auto_map model_type transformers_version torch_dtype dtype attn_implementation
    initializer_range initializer_factor initializer_cutoff_factor init_std use_cache gradient_checkpointing
    tie_encoder_decoder tie_word_embeddings task_specific_params problem_type id2label label2id num_labels
    finetuning_task return_dict output_attentions output_hidden_states output_past use_return_dict torchscript
    pruned_heads chunk_size_feed_forward cross_attention_hidden_size prefix sep_token_id bos_token_id eos_token_id
    pad_token_id cls_token_id mask_token_id unk_token_id decoder_start_token_id forced_bos_token_id
    forced_eos_token_id begin_suppress_tokens suppress_tokens max_length min_length do_sample early_stopping
    num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty
    no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores
    return_dict_in_generate remove_invalid_values exponential_decay_length_penalty tokenizer_class use_bfloat16
    tf_legacy_loss n_ctx model_max_length pretraining_tp slow_but_exact gradient_checkpointing_func
    output_router_logits router_aux_loss_coef router_jitter_noise classifier_activation classifier_bias
    classifier_pooling decoder_bias sparse_prediction sparse_pred_ignore_index deterministic_flash_attn
    reference_compile repad_logits_with_grad cache_implementation directionality tie_weights_ masked_softmax_fusion
    bias_dropout_fusion attention_softmax_in_fp32 skip_bias_add skip_bias_add_qkv is_llama_config _num_labels
"""
HARMLESS = frozenset(_HARMLESS.split())
"""Keys that change neither attention nor hidden states while a text is read."""

HARMLESS_ENDS = ("dropout", "dropout_prob", "_pdrop", "layerdrop", "drop_rate", "dropout_rate")
HARMLESS_STARTS = ("summary_", "pooler_", "transformers", "_attn")


class FixedValue(Struct, frozen=True):
    """The only value of a key that is implemented, and what another value would mean."""

    value: object
    consequence: str


EVERYWHERE = {
    "is_encoder_decoder": FixedValue(False, "the model would have another side"),
    "is_causal": FixedValue(True, "every token would see later ones"),
    "use_mrope": FixedValue(False, "positions would have several axes"),
    "rope_interleaved": FixedValue(False, "neighbouring entries would be rotated together"),
}
"""What holds for every family that does not say otherwise."""


NORMED = {"use_qk_norm": FixedValue(True, "queries and keys would not be normed")}
"""Of families whose queries and keys are always normed, and whose configs may say so."""
GATED = {"attn_output_gate": FixedValue(True, "what heads mix would not be gated")}
"""Of families whose heads are always gated, and whose configs may say so."""


class Config:
    """The values of a config by key. Every reader marks its keys as read and raises InputError for
    a value of the wrong kind.

    Where several keys are named, they are spellings of the same thing; the first that is there
    counts.
    where: the file, for errors.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where  # the file, for errors
        self.read_keys: set[str] = set()  # keys that a reader has asked for
        self.notes: list[str] = []  # sentences for the user

    @property
    def file(self) -> str:
        """The file's name in errors: "config.json", or "this file" for a GGUF file, whose metadata
        are read as a config."""
        if ".gguf" in self.where.lower():
            return message("this file")
        return "config.json"

    def get(self, *keys: str, default: Any = None) -> Any:
        """The value of the first of the keys that is set and not null, else the default. All of the
        keys count as read.
        """
        self.read_keys.update(keys)
        return next((self.values[key] for key in keys if self.values.get(key) is not None), default)

    def integer(
        self, *keys: str, default: int | None = None, least: int = 1, most: int = LARGEST
    ) -> int:
        """A whole number in [least, most]: the value of the first of the keys that is set, else the
        default. Raises InputError where neither is there.

        most: far above what any model has, so that an absurd file is refused before it costs memory.
        """
        value = self._required_value(keys, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._value_error(
                keys,
                value,
                message("a whole number from {least} to {most:,}", least=least, most=most),
            )
        return value

    def optional(self, *keys: str, default: int | None = None, least: int = 1) -> int | None:
        """A whole number of at least `least`: the value of the first of the keys that is set; None
        where that is null, `default` where none is set."""
        if not any(key in self.values for key in keys):  # `get` cannot tell this from null
            self.read_keys.update(keys)
            return default
        if self.get(*keys) is None:
            return None
        return self.integer(*keys, least=least)

    def number(self, *keys: str, default: float | None = None) -> float:
        """A number from 10⁻³⁰ to 10¹⁵: the value of the first of the keys that is set, else the
        default. Raises InputError where neither is there."""
        value = self._required_value(keys, default)
        fits = isinstance(value, int | float) and SMALLEST_NUMBER <= value <= LARGEST_NUMBER
        if isinstance(value, bool) or not fits:
            expected = message(
                "a number from {smallest_number:g} to {largest_number:g}",
                smallest_number=SMALLEST_NUMBER,
                largest_number=LARGEST_NUMBER,
            )
            raise self._value_error(keys, value, expected)
        return float(value)

    def cap(self, key: str, default: float | None) -> float | None:
        """The key's value, a positive number, such as a soft-cap of scores; None where it is null,
        `default` where it is not set.
        """
        self.read_keys.add(key)
        if key not in self.values:
            return default
        if self.values[key] is None:
            return None
        return self.number(key)

    def factor(self, key: str) -> float | None:
        """The key's value, a positive number; None where it is null, 0 (which turns it off), or not
        set."""
        self.read_keys.add(key)
        value = self.values.get(key)
        # in Python False equals 0; here it is a mistake, for which `number` raises
        if value in (None, 0) and value is not False:
            return None
        return self.number(key)

    def flag(self, *keys: str, default: bool) -> bool:
        """True or false: the value of the first of the keys that is set, else the default."""
        value = self.get(*keys, default=default)
        if not isinstance(value, bool):
            raise self._value_error(keys, value, message("true or false"))
        return value

    def choice(self, *keys: str, among: Mapping[str, Choice], default: str) -> Choice:
        """The entry of `among` for the word that the config has under the key, or for the default.
        Raises UnsupportedError for a word that is not in `among`."""
        value = self.get(*keys, default=default)
        if not isinstance(value, str):
            raise self._value_error(keys, value, message("a word"))
        if value not in among:
            what = message(
                "{file} sets {key} to {value}", file=self.file, key=keys[0], value=repr(value)
            )
            raise UnsupportedError(what, where=self.where, expected=listing(sorted(among)))
        return among[value]

    def list_of(
        self, key: str, *, kind: type | tuple[type, ...], count: int | None = None
    ) -> list[Any] | None:
        """The key's value, a list whose items are of type `kind`, `count` of them unless that is
        None; None where the key is not set. Raises InputError for any other value."""
        value = self.get(key)
        if value is None:
            return None
        fits = isinstance(value, list) and all(isinstance(item, kind) for item in value)
        if not fits or count not in (None, len(value)):
            # a list may be long: the error tells its length alone
            shown_value = value
            if isinstance(value, list):
                shown_value = message("a list of {value}", value=len(value))
            expected = message(
                "a list of {count} values of one kind", count="" if count is None else count
            )
            raise self._value_error((key,), shown_value, expected)
        return value

    def section(self, key: str) -> Config | None:
        """The object under a key as a Config; None where the key is not set."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._value_error((key,), value, message("an object"))
        return Config(value, f"{self.where}: {key}")

    def heads(self, width: int, *keys: str, default: int | None = None) -> int:
        """The number of heads that the first of the keys that is set states, else the default.
        Raises InputError where `width`, the model's, is not divisible by it.
        """
        count = self.integer(*keys, default=default, most=2**16)
        if width % count:
            what = message(
                "config.json has {count} heads for a width of {width}", count=count, width=width
            )
            expected = message("{width} divisible by {key}", width=width, key=keys[0])
            raise InputError(what, where=self.where, expected=expected)
        return count

    def note(self, text: str) -> None:
        """Add a note for the user about this config; a second one of the same text is dropped."""
        if text not in self.notes:
            self.notes.append(text)

    def refuse(self, key: str, consequence: str) -> UnsupportedError:
        """Return, not raise, the UnsupportedError for a key's value.

        consequence: what would be accepted, or what the value would mean.
        """
        return UnsupportedError(
            "{file} sets {key} to {values}",
            file=self.file,
            where=self.where,
            expected=consequence,
            hint=message("--ignore-config {key} runs as if it were not there", key=key),
            key=key,
            values=_value_text(self.values.get(key)),
        )

    def _required_value(self, keys: Sequence[str], default: object) -> Any:
        """The value of the first of the keys that is set, else the default. Raises InputError where
        the default is None, too."""
        value = self.get(*keys, default=default)
        if value is None:
            expected = listing(keys, " or ")
            raise InputError(
                "{file} has no {key}",
                where=self.where,
                expected=expected,
                file=self.file,
                key=repr(keys[0]),
            )
        return value

    def _value_error(self, keys: Sequence[str], value: object, expected: str) -> InputError:
        """Return, not raise, the InputError for a value that is not what was expected; it names the
        first of the keys that is set."""
        key = next((key for key in keys if self.values.get(key) is not None), keys[0])
        return InputError(
            "{file} sets {key} to {value}",
            file=self.file,
            where=self.where,
            expected=expected,
            key=key,
            value=_value_text(value),
        )


def config_without(values: Mapping[str, Any], ignore: Collection[str], where: str) -> Config:
    """The config without the keys to ignore. Raises InputError for a key to ignore that is not
    there.
    """
    for key in ignore:
        if key not in values:
            raise InputError(
                "there is no key {key} to ignore",
                where=where,
                expected="a key of config.json",
                key=repr(key),
            )
    return Config({key: value for key, value in values.items() if key not in ignore}, where)


def settle(config: Config, fixed_values: Mapping[str, FixedValue]) -> tuple[str, ...]:
    """Check the keys of a config that no reader has used, and return the notes for the user: those
    of the readers, then a warning for each key that attn does not know.

    fixed_values: keys that the family declares and that are implemented for one value only (null
    means that value). Raises UnsupportedError for another value, naming key, value and consequence.
    """
    unknown_keys: list[str] = []
    fixed_values = {**EVERYWHERE, **fixed_values}

    # a key that no reader used and that is not harmless must have the value that is implemented
    for key, value in config.values.items():
        if (
            key in config.read_keys
            or key in HARMLESS
            or key.endswith(HARMLESS_ENDS)
            or key.startswith(HARMLESS_STARTS)
        ):
            continue
        if key not in fixed_values:
            unknown_keys.append(key)
        elif value not in (None, fixed_values[key].value):
            raise config.refuse(
                key, f"{fixed_values[key].value!r}: {fixed_values[key].consequence}"
            )

    notes = [
        message(
            "config.json has a key {key} that attn does not know; it plays no part",
            key=_value_text(key),
        )
        for key in unknown_keys[:MOST_TOLD]
    ]
    more = len(unknown_keys) - MOST_TOLD
    if more > 0:
        notes.append(
            message(
                "config.json has {unknown_keys:,} more keys that attn does not know; they play no"
                " part",
                unknown_keys=more,
            )
        )
    return (*config.notes, *notes)


def _value_text(value: object) -> str:
    """A value as Python writes it, cut to 80 characters."""
    text = repr(value)
    if len(text) <= 80:
        return text
    return text[:77] + "..."


# Words that configs of several families share.

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "quick_gelu": "quick_gelu",
    "relu2": "relu2",
    "tanh": "tanh",
}
"""Activation functions by the name configs give them."""


# Layers that look everywhere and layers that look nearby, as configs list them.

LOCAL = "sliding_attention"
GLOBAL = "full_attention"


def layer_types(config: Config, count: int, local: Callable[[int], bool]) -> list[str]:
    """The type of each of `count` layers, "full_attention" or "sliding_attention": the config's
    `layer_types`, else sliding where `local`, called with the layer's index, is true.

    Raises UnsupportedError for a type other than full and sliding attention.
    """
    kinds = config.list_of("layer_types", kind=str, count=count)
    if kinds is None:
        return [LOCAL if local(layer) else GLOBAL for layer in range(count)]
    for kind in kinds:
        if kind not in (LOCAL, GLOBAL):
            raise config.refuse("layer_types", f"{GLOBAL} and {LOCAL}, found {kind!r}")
    return kinds


def layer_mask(config: Config, kind: str, window: int | None) -> Mask:
    """A decoder's mask for a layer of type `kind`, "full_attention" or "sliding_attention", the
    latter of `window` keys. Raises InputError for a sliding layer without a window."""
    if kind == LOCAL and window is None:
        what = message("config.json has layers with a window and does not say how wide")
        raise InputError(what, where=config.where, expected="sliding_window")
    return causal(window if kind == LOCAL else None)


def causal(window: int | None) -> Mask:
    """A causal mask; with a `window`, a query sees only that many keys, its own and the last ones
    before it.
    """
    if window is None:
        return Causal()
    return Window(left=window - 1, right=0)


TYPES = "default, linear, dynamic, llama3, yarn, longrope"


def rope(
    config: Config,
    head_dim: int,
    *,
    kind: str | None = None,
    theta_keys: tuple[str, ...] = ("rope_theta",),
    default_theta: float = 10000.0,
    partial_keys: tuple[str, ...] = ("partial_rotary_factor",),
    default_partial: float | None = None,
    pairing: Literal["half", "adjacent"] = "half",
    scaled: bool = True,
    default_original: int | None = None,
    by_alpha: bool = False,
    beside: Collection[str] = (),
) -> Rope:
    """The rotary embedding that a config describes.

    head_dim: the width of a head.
    kind: the layer type whose parameters are wanted, where layers differ; `rope_parameters` has one
        set per type then.
    theta_keys, partial_keys: how the config spells base and rotated share outside `rope_parameters`.
    default_theta, default_partial: base and share where it says nothing; a share of None is that of
        a family that rotates whole heads whatever the config says.
    pairing: which entries are rotated together: i and i + half, or neighbours ("adjacent").
    scaled: whether `rope_scaling` is meant for these layers.
    default_original: the `original_max_position_embeddings` where the config says nothing.
    by_alpha: whether `alpha` stretches the base once and for all, whatever the length of the text.
    beside: keys among the parameters that the family reads itself.

    Raises InputError for a share of heads that cannot be rotated, UnsupportedError for a type of
    scaling that is not known, and for scaling of a share of heads in a family that rotates whole
    heads.
    """
    # read also where nothing is scaled, so that the key does not count as unknown
    config.optional("max_position_embeddings", "n_positions")

    # base and rotated share of each head: what `rope_parameters` or `rope_scaling` say ("inside")
    # wins over the keys outside
    outside_theta = config.number(*theta_keys, default=default_theta)
    outside_share = config.number(
        *partial_keys, default=1.0 if default_partial is None else default_partial
    )
    if kind is None:
        inside = _rope_of_all_layers(config)
    else:
        inside = _rope_of_layer_type(config, kind, scaled=scaled)
    base = inside.number("rope_theta", default=outside_theta)
    rope_type = inside.get("rope_type", "type") or "default"
    share = inside.number("partial_rotary_factor", default=outside_share)
    if default_partial is None and share != 1:
        _note_idle_share(config, rope_type, share)
        share = 1.0

    dims = int(head_dim * share)
    if dims % 2 or not 0 < dims <= head_dim or base <= 1:
        raise InputError(
            "rotary embedding of {dims} of {head_dim} entries with base {base:g}",
            where=config.where,
            expected="pairs of entries within a head, a base above 1",
            dims=dims,
            head_dim=head_dim,
            base=base,
        )

    # without effect here, or read elsewhere
    passed_over = {"finetuned", "original_max_position_embeddings", *beside}
    # HunYuan writes NTK scaling by `alpha` (the base grows, so that the slowest pair turns α times
    # slower) as "dynamic" beside keys of YaRN that have no effect; a single pair, dims of 2, turns
    # by one angle a token whatever the base
    alpha = None
    if by_alpha and rope_type == "dynamic" and dims > 2:
        alpha = inside.cap("alpha", default=None)
    if alpha is not None:
        base = base * alpha ** (dims / (dims - 2))
        rope_type = "default"
        passed_over |= {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}

    scaling = _rope_scaling(
        rope_type, inside, config, dims, default_original, by_kind=kind is not None
    )
    # another key would change the rotation in a way that is not implemented
    unread = [key for key in inside.values if key not in inside.read_keys | passed_over]
    if unread:
        raise UnsupportedError(
            "the rotary embedding of type {rope_type} has a key {unread}",
            where=inside.where,
            expected=TYPES,
            rope_type=repr(rope_type),
            unread=repr(unread[0]),
        )
    return Rope(dims, base, pairing, scaling)


def _note_idle_share(config: Config, kind: str, share: float) -> None:
    """Add the note that a config's `partial_rotary_factor` has no effect, since models of its
    family rotate whole heads.

    kind: of scaling; "default" for none. share: the config's factor.
    Raises UnsupportedError where the rotary embedding is scaled besides.
    """
    if kind != "default":
        raise UnsupportedError(
            "config.json scales the rotary embedding ({kind}) of the share {share:g} of each head",
            where=config.where,
            expected="whole heads: models of this family rotate no less",
            kind=repr(kind),
            share=share,
        )
    note = message(
        "config.json's partial_rotary_factor, {share:g}, plays no part: this family rotates whole"
        " heads",
        share=share,
    )
    config.note(note)


def _rope_of_all_layers(config: Config) -> Config:
    """The config's `rope_scaling`, or `rope_parameters` where that is missing or empty, as a Config
    of its own; an empty one where there is neither."""
    old = config.section("rope_scaling")
    new = config.section("rope_parameters")
    parameters = old if old is not None and old.values else new
    if parameters is None:
        return Config({}, config.where)
    return parameters


def _rope_of_layer_type(config: Config, kind: str, *, scaled: bool) -> Config:
    """The rotary settings of one type of layers ("full_attention" or "sliding_attention"): from
    `rope_parameters`, overridden by `rope_scaling` if `scaled`."""
    old = config.section("rope_scaling")
    new = config.section("rope_parameters")
    values: dict[str, Any] = {"rope_type": "default"}
    if new is not None:
        # it must hold an object for each type of layers, and nothing else
        flat = [key for key in new.values if key not in (LOCAL, GLOBAL)]
        if flat:
            what = message("rope_parameters has a key {flat}", flat=repr(flat[0]))
            expected = message("{global_name} and {local}", global_name=GLOBAL, local=LOCAL)
            raise UnsupportedError(what, where=new.where, expected=expected)
        parameters = new.section(kind)
        values |= {} if parameters is None else parameters.values
    if old is not None and scaled:
        values |= old.values
    return Config(values, config.where)


def _rope_scaling(
    kind: str, inside: Config, config: Config, dims: int, usual: int | None, *, by_kind: bool
) -> RopeScaling:
    """The scaling of a rotary embedding of `dims` entries, as the config's rotary settings describe
    it; None for the kind "default".

    kind: "default", "linear", "yarn", "llama3" and so on.
    inside: the rotary settings, `rope_scaling` or `rope_parameters`.
    config: the whole config, whose longest text is read.
    usual: the number of positions before scaling where the config does not state it.
    by_kind: whether the settings are those of one type of layers among several.
    """
    if kind == "default":
        return None
    longest = config.integer("max_position_embeddings", "n_positions")

    def original() -> int:
        """`original_max_position_embeddings`, the number of positions before scaling: the config's
        own entry, else that of its rotary settings. Settings of one type of layers count alone.

        A function, so that a wrong value is an error only for the kinds that use it.
        """
        key = "original_max_position_embeddings"
        if by_kind:
            outside = None
        else:
            outside = config.optional(key, default=usual, least=2)
        if outside is None:
            return inside.integer(key, default=longest, least=2)
        return outside

    match kind:
        case "linear":
            return Linear(inside.number("factor"))
        case "dynamic" if dims == 2:
            raise InputError(
                "rope scaling 'dynamic' of one pair of entries",
                where=inside.where,
                expected="at least two pairs",
            )
        case "dynamic":
            return Dynamic(inside.number("factor"), longest)
        case "llama3":
            return _llama3(inside, original())
        case "yarn":
            return _yarn(config, inside, longest, original(), by_kind=by_kind)
        case "longrope" | "su":
            return _longrope(inside, longest, original(), dims)
        case _:
            raise UnsupportedError(
                "the rotary embedding has the scaling {kind}",
                where=inside.where,
                expected=TYPES,
                kind=repr(kind),
            )


def _llama3(inside: Config, original: int) -> Llama3:
    """Llama 3's scaling of RoPE, from the config's rotary settings, `inside`.

    original: the number of positions before scaling.
    """
    low = inside.number("low_freq_factor")
    high = inside.number("high_freq_factor")
    if high < low:
        what = message(
            "low_freq_factor is {low:g} and high_freq_factor {high:g}", low=low, high=high
        )
        raise InputError(what, where=inside.where, expected="the high one not below the low one")
    return Llama3(inside.number("factor"), low, high, original)


def _yarn(config: Config, inside: Config, longest: int, original: int, *, by_kind: bool) -> Yarn:
    """YaRN scaling from the config's rotary settings, `inside`.

    longest, original: number of positions after and before scaling.
    by_kind: whether types of layers have settings of their own.
    """
    factor = inside.number("factor", default=longest / original)
    magnitude = inside.cap("attention_factor", default=None)
    all_dims = inside.factor("mscale_all_dim")
    mscale = inside.factor("mscale")
    # DeepSeek states two factors, of which the second is in the scale of the scores already
    if magnitude is None:
        magnitude = _log_factor(factor, 1.0)
        if all_dims is not None and mscale is not None:
            magnitude = _log_factor(factor, mscale) / _log_factor(factor, all_dims)

    fast = inside.number("beta_fast", default=32.0)
    slow = inside.number("beta_slow", default=1.0)
    truncates = inside.flag("truncate", default=True)
    # transformers ignores `truncate` in the settings of one type of layers
    if by_kind and not truncates:
        config.note(
            message(
                "config.json's truncate, False, plays no part: it stands among what holds for one"
                " type of layer"
            )
        )
    return Yarn(factor, original, fast, slow, magnitude, truncates or by_kind)


def stretched_scale(config: Config) -> float:
    """YaRN's extra factor on the attention scores, from `mscale_all_dim`; 1 where the config does
    not set that or does not scale positions. It is squared, since queries and keys both have it.
    """
    inside = _rope_of_all_layers(config)
    is_stated = bool(inside.get("mscale_all_dim"))
    rope_type = inside.get("rope_type", "type") or "default"
    if rope_type == "default" or not is_stated:
        return 1.0
    # `number` refuses a value that is no number
    return _log_factor(inside.number("factor"), inside.number("mscale_all_dim")) ** 2


def _log_factor(factor: float, share: float) -> float:
    """YaRN's factor for queries and keys: 1 + 0.1·share·ln(factor), and 1 for a factor of at most 1.

    factor: how many times longer texts become. share: the config's `mscale` or 1.
    """
    if factor <= 1:
        return 1.0
    return 0.1 * share * math.log(factor) + 1.0


def _longrope(inside: Config, longest: int, original: int, dims: int) -> LongRope:
    """LongRoPE scaling from the rotary settings, `inside`: a divisor for each rotated pair, for
    texts of at most `original` tokens and for longer ones.

    longest: the longest text that the model is made for. dims: the entries that are rotated.
    """
    factor = inside.number("factor", default=longest / original)
    magnitude = inside.cap("attention_factor", default=None)
    if magnitude is None:  # the paper's formula
        if factor <= 1:
            magnitude = 1.0
        else:
            magnitude = math.sqrt(1 + math.log(factor) / math.log(original))
    lists = []
    for key in ("short_factor", "long_factor"):
        factors = inside.list_of(key, kind=(int, float), count=dims // 2)
        if factors is None or not all(
            SMALLEST_NUMBER <= item <= LARGEST_NUMBER for item in factors
        ):
            what = message("rope scaling 'longrope' has no usable {key}", key=key)
            raise InputError(
                what,
                where=inside.where,
                expected=message("{dims} positive numbers", dims=dims // 2),
            )
        lists.append(tuple(float(item) for item in factors))
    short, long = lists
    return LongRope(short, long, original, magnitude)


def attention_with_globals(attention: Attention, tokens: Sequence[int]) -> Attention:
    """The attention with these positions as its global tokens, as in Longformer, in place of any that
    it had; unchanged for a kind of attention that cannot have them (`own_global` is None).

    tokens: positions in the text. Source: Beltagy et al., Longformer, 2020.
    """
    if attention.own_global is None:
        return attention
    # with global tokens, the mask is AnyOf((window, Global(positions))): keep the window
    if attention.own_global and isinstance(attention.mask, AnyOf):
        near = attention.mask.parts[0]
    else:
        near = attention.mask
    positions = tuple(sorted(set(tokens)))
    return replace(
        attention,
        mask=AnyOf((near, Global(positions))) if positions else near,
        own_global=positions,
    )


def with_global_tokens(spec: Spec, tokens: Sequence[int]) -> Spec:
    """The Spec with the tokens at these positions as global tokens, as in Longformer: they see all
    tokens and all see them. In an encoder-decoder the encoder has them.

    Raises UnsupportedError for a model without such tokens, InputError for a position beyond its
    longest text.
    """
    if all(block.attention.own_global is None for block in spec.blocks):
        raise UnsupportedError(
            "a {family} model has no global tokens",
            expected="a longformer or led checkpoint",
            family=spec.family,
        )
    limit = spec.max_positions
    if limit is not None and max(tokens, default=0) >= limit:
        what = message("there is no token {largest}", largest=max(tokens))
        raise InputError(
            what, expected=message("0 to {last}: the model's positions", last=limit - 1)
        )
    blocks = (
        replace(block, attention=attention_with_globals(block.attention, tokens))
        for block in spec.blocks
    )
    return replace(spec, blocks=tuple(blocks))


def global_tokens(spec: Spec) -> tuple[int, ...]:
    """The positions of a model's global tokens, as in Longformer, ascending; () for a model
    without.
    """
    return next(
        (block.attention.own_global for block in spec.blocks if block.attention.own_global), ()
    )


# Decoders that a config turns into encoders: `is_causal` false lets every token see later ones.

IS_CAUSAL = "is_causal"


POSITION_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


def with_stated_positions(config: Config, spec: Spec) -> Spec:
    """The Spec with `stated_positions`, the length of text that the config says the model is made
    for; unchanged where a table of positions limits it anyway or the config says nothing."""
    # read in any case, so that the key does not count as unknown
    stated = config.get(*POSITION_KEYS)
    if spec.max_positions is not None or spec.decoder is not None:
        return spec
    if not isinstance(stated, int) or isinstance(stated, bool) or stated < 1:
        return spec
    return replace(spec, stated_positions=stated)


def seen_both_ways(config: Config, spec: Spec) -> Spec:
    """The Spec of a decoder that is used as an encoder: where the config's `is_causal` is false, its
    masks let queries see later tokens, too; else unchanged.

    A layer with a window of W keys, the query's own counted, sees W tokens on either side, as
    transformers has it. Raises UnsupportedError for a mask without a symmetric form.
    """
    # the first side of an encoder-decoder sees both ways anyway; a family that reads `is_causal`
    # itself has its masks right already
    if (
        spec.decoder is not None
        or IS_CAUSAL in config.read_keys
        or config.flag(IS_CAUSAL, default=True)
    ):
        return spec
    return replace(spec, blocks=tuple(_both_ways(config, block) for block in spec.blocks))


def _both_ways(config: Config, block: Block) -> Block:
    """The layer with its mask made symmetric, so that queries see later tokens too. Raises
    UnsupportedError for a mask without a symmetric form."""
    mask = mirror_mask(block.attention.mask)
    if mask is None:
        raise config.refuse(
            IS_CAUSAL,
            message(
                "true: the mask {spec} has no form that sees later tokens",
                spec=block.attention.mask.spec(),
            ),
        )
    return replace(block, attention=replace(block.attention, mask=mask))


def mirror_mask(mask: Mask) -> Mask | None:
    """The symmetric form of a mask, which sees as far ahead as back; None for a kind of mask that
    has no such form.
    """
    match mask:
        case Causal() | Everywhere():
            return Everywhere()
        # W - 1 keys before the query's own become W, as in transformers
        case Window(left=int(left), right=0):
            return Window(left + 1, left + 1)
        case Window(left=left, right=right) if left == right:
            return mask
        case _:
            return None
