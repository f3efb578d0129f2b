"""`Config`: a checkpoint's `config.json` that remembers which keys were read; and values that families share.

A model is run only if every key that shapes it was understood: what a family reads shapes the
Spec; what it declares but does not implement must have its usual value (`settle`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from attncli.errors import InputError, UnsupportedError
from attncli.mechanism.mask import Causal, Mask, Window
from attncli.mechanism.spec import Activation

Choice = TypeVar("Choice", bound=str)

LARGEST = 2**24
"""No size in a config may exceed this: far above any model, far below what exhausts a machine."""

LARGEST_NUMBER, SMALLEST_NUMBER = 1e15, 1e-30
"""No number in a config is further from 0 than the first, or nearer to it than the second where it must be positive."""

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


class Config:
    """The values of a config by key. Every reader marks its keys as read and raises InputError for a value of the
    wrong kind.

    Where several keys are named, they are spellings of the same thing; the first that is there counts.
    where: the file, for errors.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where
        self.read_keys: set[str] = set()
        self.notes: list[str] = []

    def get(self, *keys: str) -> Any:
        """The value of the first key that is there and not null, else None."""
        self.read_keys.update(keys)
        return next((self.values[key] for key in keys if self.values.get(key) is not None), None)

    def whole(self, *keys: str, default: int | None = None, least: int = 1, most: int = LARGEST) -> int:
        """A whole number in [least, most]."""
        value = self.get(*keys)
        value = default if value is None else value
        if value is None:
            raise self._missing(keys)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(keys, value, f"a whole number from {least} to {most:,}")
        return value

    def optional(self, *keys: str, default: int | None = None, least: int = 1) -> int | None:
        """A whole number, or None where the config says null; `default` where it says nothing."""
        if not any(key in self.values for key in keys):
            self.read_keys.update(keys)
            return default
        return None if self.get(*keys) is None else self.whole(*keys, least=least)

    def number(self, *keys: str, default: float | None = None) -> float:
        """A number from 10⁻³⁰ to 10¹⁵."""
        value = self.get(*keys)
        value = default if value is None else value
        if value is None:
            raise self._missing(keys)
        fits = isinstance(value, int | float) and SMALLEST_NUMBER <= value <= LARGEST_NUMBER
        if isinstance(value, bool) or not fits:
            raise self._wrong(keys, value, f"a number from {SMALLEST_NUMBER:g} to {LARGEST_NUMBER:g}")
        return float(value)

    def cap(self, key: str, default: float | None) -> float | None:
        """A positive number, or None where the config says null; `default` where it says nothing."""
        self.read_keys.add(key)
        if key not in self.values:
            return default
        return None if self.values[key] is None else self.number(key)

    def flag(self, *keys: str, default: bool) -> bool:
        """True or false."""
        value = self.get(*keys)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(keys, value, "true or false")
        return default if value is None else value

    def choice(self, *keys: str, among: Mapping[str, Choice], default: str) -> Choice:
        """What one of the words in `among` stands for. Raises UnsupportedError for a word that is not there."""
        value = self.get(*keys)
        value = default if value is None else value
        if not isinstance(value, str):
            raise self._wrong(keys, value, "a word")
        if value not in among:
            raise UnsupportedError(
                f"config.json sets {keys[0]} to {value!r}", where=self.where, expected=", ".join(sorted(among))
            )
        return among[value]

    def many(self, key: str, *, kind: type | tuple[type, ...], count: int | None = None) -> list[Any] | None:
        """A list of values of one kind, of the given length; None if there is none."""
        value = self.get(key)
        if value is None:
            return None
        if (
            not isinstance(value, list)
            or not all(isinstance(item, kind) for item in value)
            or (count is not None and len(value) != count)
        ):
            description = f"a list of {len(value)}" if isinstance(value, list) else value
            raise self._wrong((key,), description, f"a list of {'' if count is None else count} values of one kind")
        return value

    def under(self, key: str) -> Config | None:
        """The object under a key as a Config of its own; None if there is none."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong((key,), value, "an object")
        return Config(value, f"{self.where}: {key}")

    def heads(self, width: int, *keys: str) -> int:
        """A number of heads by which `width` is divisible."""
        count = self.whole(*keys, most=2**16)
        if width % count:
            raise InputError(
                f"config.json has {count} heads for a width of {width}",
                where=self.where,
                expected=f"{width} divisible by {keys[0]}",
            )
        return count

    def note(self, text: str) -> None:
        """Remember, once, what a user must be told of these values."""
        if text not in self.notes:
            self.notes.append(text)

    def refuse(self, key: str, consequence: str) -> UnsupportedError:
        """The refusal of the value of a key."""
        return UnsupportedError(
            f"config.json sets {key} to {_value_text(self.values.get(key))}",
            where=self.where,
            expected=consequence,
            hint=f"--ignore-config {key} runs as if it were not there",
        )

    def _missing(self, keys: Sequence[str]) -> InputError:
        return InputError(f"config.json has no {keys[0]!r}", where=self.where, expected=" or ".join(keys))

    def _wrong(self, keys: Sequence[str], value: object, expected: str) -> InputError:
        key = next((key for key in keys if self.values.get(key) is not None), keys[0])
        return InputError(f"config.json sets {key} to {_value_text(value)}", where=self.where, expected=expected)


def without(values: Mapping[str, Any], ignore: Collection[str], where: str) -> Config:
    """The config without the keys to ignore. Raises InputError for a key to ignore that is not there."""
    for key in ignore:
        if key not in values:
            raise InputError(f"there is no key {key!r} to ignore", where=where, expected="a key of config.json")
    return Config({key: value for key, value in values.items() if key not in ignore}, where)


def settle(config: Config, fixed_values: Mapping[str, FixedValue]) -> tuple[str, ...]:
    """Check every key that nobody read; returns the notes of those that did, and a warning for each that nobody knows.

    fixed_values: keys that the family declares and that are implemented for one value only (null means that value).
    Raises UnsupportedError for another value, naming key, value and consequence.
    """
    unknown_keys: list[str] = []
    fixed_values = {**EVERYWHERE, **fixed_values}
    for key, value in config.values.items():
        if key in config.read_keys or key in HARMLESS or key.endswith(HARMLESS_ENDS) or key.startswith(HARMLESS_STARTS):
            continue
        if key in fixed_values:
            if value is not None and value != fixed_values[key].value:
                raise config.refuse(key, f"{fixed_values[key].value!r}: {fixed_values[key].consequence}")
        else:
            unknown_keys.append(key)
    notes = [
        f"config.json has a key {_value_text(key)} that attn does not know; it plays no part"
        for key in unknown_keys[:MOST_TOLD]
    ]
    if len(unknown_keys) > MOST_TOLD:
        notes.append(
            f"config.json has {len(unknown_keys) - MOST_TOLD:,} more keys that attn does not know; they play no part"
        )
    return (*config.notes, *notes)


def _value_text(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


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
    """The type of each layer: what `layer_types` says, else what the function `local` of its index says.

    Raises UnsupportedError for a type other than full and sliding attention.
    """
    kinds = config.many("layer_types", kind=str, count=count)
    if kinds is None:
        return [LOCAL if local(layer) else GLOBAL for layer in range(count)]
    for kind in kinds:
        if kind not in (LOCAL, GLOBAL):
            raise config.refuse("layer_types", f"{GLOBAL} and {LOCAL}, found {kind!r}")
    return kinds


def layer_mask(config: Config, kind: str, window: int | None) -> Mask:
    """A decoder's mask for a layer of that type. Raises InputError for a local layer without a window."""
    if kind == LOCAL and window is None:
        raise InputError(
            "config.json has layers with a window and does not say how wide",
            where=config.where,
            expected="sliding_window",
        )
    return causal(window if kind == LOCAL else None)


def causal(window: int | None) -> Mask:
    """A decoder's mask; a window of W keys counts the query's own."""
    return Causal() if window is None else Window(window - 1, 0)
