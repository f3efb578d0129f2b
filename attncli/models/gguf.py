"""GGUF files as checkpoints: one file holds the config, the vocabulary and the tensors, under names
of its own.

GGUF names tensors by the part that they play, the same in all architectures, so `bind` takes one
table of names for every family; what the files leave out is what the family means by silence.
Matrices are [out, in]; norms hold what they multiply with, also where a family's own files hold it
less 1; the rows of queries and keys of the architectures that rotate neighbouring entries were
reordered for it, which is undone as they are read.

Source: gguf-py's tables of names and llama.cpp's converters, by architecture, 2023-2026.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from attncli.errors import InputError, UnsupportedError
from attncli.inputs.checkpoint import Array, TensorInfo
from attncli.inputs.derived_checkpoint import DerivedCheckpoint, Recipe, kinds_by_size
from attncli.inputs.files import guarded_path, is_there
from attncli.inputs.ggml_blocks import BlockKind
from attncli.inputs.gguf_file import GgufHeader, GgufTensor, Metadata, read_gguf
from attncli.inputs.token import Tokenizer
from attncli.inputs.tokenize import IdsOnly
from attncli.language import Message, listing, message
from attncli.mechanism.spec import Norm, Rope, Spec
from attncli.models.checkpoint_writing import CheckpointParts, stored_tensors
from attncli.models.config import (
    GLOBAL,
    LOCAL,
    Config,
    config_without,
    seen_both_ways,
    with_stated_positions,
)
from attncli.models.families import ARCHITECTURES, RELATIVES, family
from attncli.models.families.lfm2 import CONVOLUTION
from attncli.models.families.qwen3_next import LINEAR
from attncli.models.family import Family, TensorBinding, bind, groups_of
from attncli.models.gguf_tensors import (
    BlockRecipe,
    JoinedHeads,
    Undone,
    Unpack,
    conversion_of,
    names_for,
    shape_of_role,
)

PART_OF = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
"""A file of several that belong together."""
MOST_PARTS = 1000
HARMLESS = frozenset(
    (
        *(
            "vocab_size",
            "embedding_length_out",
            "rope.dimension_sections",
            "rope.scaling.finetuned",
            "tensor_data_layout",
        ),
        *(
            "attention.value_length",
            "attention.key_length_swa",
            "attention.value_length_swa",
            "pooling_type",
        ),
        *(
            "expert_gating_func",
            "expert_shared_count",
            "attention.key_length_mla",
            "attention.value_length_mla",
        ),
        *("classifier.pooling_type", "rope.scaling.yarn_ext_factor"),
    )
)
"""Keys of the model itself that repeat what the tensors say, or play no part in running a text."""


class GgufCheckpoint(DerivedCheckpoint):
    """A `Checkpoint` in a GGUF file, or in several. metadata: of the first.

    unpack: makes numbers of stored blocks; may be set before the tensors are read.
    """

    format = "gguf"
    unpack: Unpack = staticmethod(BlockKind.numbers)

    def __init__(self, files: Sequence[tuple[Path, GgufHeader]]) -> None:
        """Take the tensors' places from the headers, and the family and its config from the
        metadata.

        files: the path and the header of each part of the model, in order.
        Raises InputError for a tensor that is in two parts, UnsupportedError for a file without a
        model or of an architecture that is not read.
        """
        # the first part's metadata are those of the whole model
        first_path, first_header = files[0]
        where = str(first_path)
        _refuse_without_model(first_header, where)
        self.file = first_path
        self.metadata = Metadata(first_header.metadata, where)

        # the tensors of all parts, and how many bytes of matrices there are of each kind of block
        tensors: dict[str, TensorInfo] = {}
        self.stored: dict[str, GgufTensor] = {}
        bytes_by_kind: Counter[str] = Counter()
        for path, header in files:
            for name, tensor in header.tensors.items():
                if name in tensors:
                    what = message("tensor {name} is in two files", name=repr(name))
                    raise InputError(
                        what, where=f"{tensors[name].file} and {path}", expected="each tensor once"
                    )
                kind = tensor.block.name
                plain_dtype = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(kind)
                # quantised blocks become float32 when they are read
                tensors[name] = TensorInfo(
                    plain_dtype or "float32",
                    tensor.shape,
                    path,
                    tensor.start,
                    tensor.stop,
                    scheme="" if plain_dtype else kind,
                )
                self.stored[name] = tensor
                if len(tensor.shape) > 1:
                    bytes_by_kind[kind] += tensor.stop - tensor.start

        super().__init__(
            first_path.parent,
            config={},
            tensors=tensors,
            recipes={},
            schemes=kinds_by_size(bytes_by_kind),
        )
        self.metadata.tensors = tensors.keys()  # families look there for what the keys leave out

        # the family: by the architecture, or a relative that a marker tells
        kind = ARCHITECTURES.get(self.metadata.architecture, "")
        if not kind:
            raise UnsupportedError(
                "GGUF files of the architecture {architecture} are not read",
                where=where,
                expected=listing(sorted(ARCHITECTURES)),
                hint=message("the folder of the same model, with config.json and safetensors"),
                architecture=repr(self.metadata.architecture),
            )
        # a marker is a metadata key, as "expert_count" (its family is Mixtral, not Llama), or a
        # pattern of tensor names; "!token_types.weight" means that the file lacks that tensor
        for marker, relative in RELATIVES.get(self.metadata.architecture, ()):
            stored = any(fnmatchcase(name, marker.removeprefix("!")) for name in tensors)
            if marker.startswith("!"):
                is_marked = not stored
            else:
                is_marked = stored or bool(self.metadata.architecture_value(marker))
            if is_marked:
                kind = relative

        # shapes as the family has them, which GGUF writes otherwise for some tensors
        for name, tensor in self.stored.items():
            shape = shape_of_role(name, tensor.shape)
            self.stored[name] = replace(tensor, shape=shape)
            self._tensors[name] = replace(tensors[name], shape=shape)
        self.config = {"model_type": kind, **self._config(kind)}

    @property
    def vocabulary_name(self) -> str | None:
        """The name of the file that holds the vocabulary, the GGUF file itself; None where it has
        no vocabulary."""
        if self.tokenizer_path is None:
            return None
        return self.file.name

    @property
    def tokenizer_path(self) -> Path | None:
        """The path of the file that holds the vocabulary, the GGUF file itself; None where it has
        no vocabulary."""
        if self.metadata.get("tokenizer.ggml.tokens"):
            return self.file
        return None

    def tokenizer(self) -> Tokenizer:
        """The tokenizer made from the vocabulary in the file; where that cannot be used, one that
        accepts token ids only."""
        from attncli.inputs.gguf_tokenizer import gguf_tokenizer

        return gguf_tokenizer(self.metadata, str(self.file)) or IdsOnly(str(self.file))

    def fill(self, info: TensorInfo, raw: Array, start: int, name: str) -> None:
        """Fill `raw` with bytes of the tensor's file, from byte `start` of the file on.

        name: of the tensor, for errors.
        """
        self._file(info).fill(raw.data, start, f"tensor {name!r}")

    def spec(self, ignore: Collection[str]) -> tuple[Spec, Family, tuple[str, ...]]:
        """The Spec that the metadata describe, its family with GGUF's tensor names, and notes for
        the user.

        ignore: metadata keys to leave out.

        Raises as the family does, and UnsupportedError for a setting that would change the model
        and has no part in the family.
        """
        where = str(self.file)
        model_family = family(self.config["model_type"])
        assert model_family is not None, "ARCHITECTURES names families only"
        config = config_without(self.config, ignore, where)
        own_spec = model_family.spec(config)
        # settings that any family may have: no causal mask, and the number of positions
        own_spec = with_stated_positions(config, seen_both_ways(config, own_spec))
        spec = _norms_as_stored(own_spec)
        self._refuse_unread(config, spec)
        # `for_family` needs both: the norms as the family has them, and the keys that it read
        self._own_spec = own_spec
        self._read_keys = frozenset(config.read_keys)

        # how each tensor is read: out of its blocks, with the converter's changes reversed
        recipes: dict[str, Recipe] = {
            name: BlockRecipe(
                self.fill,
                tensor,
                self._tensors[name],
                conversion_of(name, spec, model_family),
                self.unpack,
            )
            for name, tensor in self.stored.items()
        }
        for name, (keys, values) in self._joined_heads().items():
            # keys [head, narrow, key] and values [head, value, narrow] become [head · unit, narrow]
            heads, narrow, key_dim = self.stored[keys].shape
            value_dim = self.stored[values].shape[1]
            unit = key_dim + value_dim
            info = self._tensors[keys]
            self._tensors[name] = replace(info, shape=(heads * unit, narrow))
            recipes[name] = JoinedHeads(recipes[keys], recipes[values], unit)
        self.recipes = recipes

        # the `_ahead` layers after the last predict further tokens; their tensors are ignored
        depth = len(spec.blocks)
        stored_family = names_for(
            spec, model_family, self._tensors, range(depth, depth + self._ahead)
        )
        # open every file now: each is opened once, and one that cannot be is an error before a run
        for info in self._tensors.values():
            self._file(info)
        return spec, stored_family, tuple(config.notes)

    def _joined_heads(self) -> dict[str, tuple[str, str]]:
        """For latent attention (MLA): by the name of each joined key-and-value tensor that the
        family expects, the two tensors (keys', values') that the file has in its place."""
        pairs = {}
        for keys, tensor in self.stored.items():
            layer = keys.removesuffix("attn_k_b.weight")
            values = self.stored.get(f"{layer}attn_v_b.weight")
            name = f"{layer}attn_kv_b.weight"
            # another tensor, one without its counterpart, or a file that has both joined
            if layer == keys or values is None or name in self.stored:
                continue
            # [head, narrow, key] and [head, value, narrow] share the first axis and `narrow`
            if (
                len(tensor.shape) != 3
                or len(values.shape) != 3
                or tensor.shape[:2] != (values.shape[0], values.shape[2])
            ):
                raise InputError(
                    "tensors {keys} and {values} have shapes {key_shape} and {value_shape}",
                    where=str(self.file),
                    expected=message("[head, narrow, key] and [head, value, narrow]"),
                    keys=repr(keys),
                    values=repr(values.name),
                    key_shape=list(tensor.shape),
                    value_shape=list(values.shape),
                )

            pairs[name] = (keys, values.name)
        return pairs

    def for_family(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The config and the tensors as the family's own files have them, all in memory, for
        another library to read."""
        spec, stored_family, _ = self.spec(ignore=())
        # for the model or its encoder, and for a decoder beside it, or None
        own_binding, decoder_binding = bind(spec, stored_family, self.names(), str(self.file))

        def arrays_of(
            bounds: Iterable[TensorBinding], offsets: Collection[str]
        ) -> dict[str, Array]:
            """The arrays of these bindings by role; 1 is subtracted from the roles in `offsets`."""
            arrays: dict[str, Array] = {}
            for bound in bounds:
                arrays |= bound.parts([self.read(name, "float32") for name in bound.tensors])
            return {role: array - 1 if role in offsets else array for role, array in arrays.items()}

        kind = self.config["model_type"]
        tensors: dict[str, Array] = {}
        own_family = family(kind)
        assert own_family is not None, "ARCHITECTURES names families only"
        # of an encoder-decoder each side has names of its own; for another model None stands for
        # the family's
        own_names = own_family.names if decoder_binding is not None else None
        for original, binding, names in (
            (self._own_spec, own_binding, own_names),
            (self._own_spec.decoder, decoder_binding, own_family.decoder),
        ):
            if original is None or binding is None:  # there is no decoder
                continue
            # the family's own files hold w where GGUF holds 1 + w, in the norms with `unit_offset`
            final_offset = original.final_norm is not None and original.final_norm.unit_offset
            layers = []
            for block, bounds in zip(original.blocks, binding.layers, strict=True):
                offsets = {
                    f"{place}.weight" for place, norm in block.norms.items() if norm.unit_offset
                }
                if block.attention.qk_norm is not None and block.attention.qk_norm.norm.unit_offset:
                    offsets |= {"attn.q_norm.weight", "attn.k_norm.weight"}
                layers.append(arrays_of(bounds, offsets))
            outer = arrays_of(binding.outer.values(), ("final.weight",) if final_offset else ())
            # only tensors are made of it: what other files of a checkpoint hold is left empty
            checkpoint_parts = CheckpointParts(
                kind,
                config={},
                architecture="",
                groups=partial(groups_of, original),
                outer=outer,
                layers=layers,
                words=(),
                by_character=False,
                notes={},
            )
            # under every name that the family knows, as the class that reads them may want any
            tensors |= stored_tensors(checkpoint_parts, every_name=True, names=names)

        # the keys that the family read; `layer_types` without a value would be an error
        stated_keys = self._read_keys
        if self.config.get("layer_types") is None:
            stated_keys = stated_keys - {"layer_types"}
        config = {key: value for key, value in self.config.items() if key in stated_keys}
        return {"model_type": kind, **config}, tensors

    def _config(self, kind: str) -> dict[str, Any]:
        """The metadata as config values, under every key that a family may read; what the file does
        not state is left out. Families spell the same size differently (`hidden_size`, `n_embd`,
        `dim`), so one size stands under several keys.

        kind: the `model_type`.
        """
        tensors = self._tensors

        # sizes
        width = self.metadata.architecture_value("embedding_length")
        heads = self._one_value("attention.head_count")
        layers = self._own_layers()
        kv_heads, attending = self._kv_heads_and_attending_layers()
        inner = self._one_value("feed_forward_length")
        table = tensors.get("token_embd.weight")
        first_layer = "blk.0."  # the prefix of its tensors, which tell for all layers
        dim = self.metadata.architecture_value("attention.key_length")
        rotated = self.metadata.architecture_value("rope.dimension_count")
        share = _rotated_share(rotated, dim or _head_width(width, heads))
        types = tensors.get("token_types.weight")

        # norms, positions and scores
        eps = self.metadata.architecture_value("attention.layer_norm_epsilon")
        rms = self.metadata.architecture_value("attention.layer_norm_rms_epsilon")
        base = self.metadata.architecture_value("rope.freq_base") or 10000.0
        positions = self.metadata.architecture_value("context_length")
        scale = self.metadata.architecture_value("attention.scale")
        cap = self.metadata.architecture_value("attn_logit_softcapping")

        # what the tensors tell
        biased = any(f"{first_layer}{name}.bias" in tensors for name in ("attn_q", "attn_qkv"))
        parallel = self.metadata.architecture_value("use_parallel_residual")
        # either tells Falcon's new architecture
        two_norms = f"{first_layer}attn_norm_2.weight" in tensors
        grouped = _are_sizes(kv_heads, heads) and 1 < kv_heads < heads

        values = {
            "hidden_size": width,
            "n_embd": width,
            "dim": width,
            "num_hidden_layers": layers,
            "n_layer": layers,
            "n_layers": layers,
            "num_attention_heads": heads,
            "n_head": heads,
            "n_heads": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": inner,
            "n_inner": inner,
            "hidden_dim": inner,
            "max_position_embeddings": positions,
            "n_positions": positions,
            "head_dim": dim,
            "vocab_size": None if table is None else table.shape[0],
            "layer_norm_eps": eps,
            "layer_norm_epsilon": eps,
            "norm_epsilon": eps,
            "norm_eps": rms if eps is None else eps,
            "rms_norm_eps": rms,
            "rope_theta": base,
            "rotary_emb_base": base,
            "rope_local_base_freq": self.metadata.architecture_value("rope.freq_base_swa"),
            "partial_rotary_factor": share,
            "rotary_pct": share,
            "rope_scaling": self._scaling(),
            "original_max_position_embeddings": self.metadata.architecture_value(
                "rope.scaling.original_context_length"
            ),
            "sliding_window": self.metadata.architecture_value("attention.sliding_window"),
            **_window_keys(self.metadata.architecture_value("attention.sliding_window_pattern")),
            **_attention_keys(
                attending,
                CONVOLUTION if self.metadata.architecture_value("shortconv.l_cache") else LINEAR,
            ),
            "conv_L_cache": self.metadata.architecture_value("shortconv.l_cache"),
            "block_auto_adjust_ff_dim": False,  # the file has LFM2's width as it is
            **self._recurrence_keys(width),
            # 0 is no bound
            "clip_qkv": self.metadata.architecture_value("attention.clamp_kqv") or None,
            "new_decoder_architecture": two_norms or grouped,
            "num_ln_in_parallel_attn": 2 if two_norms else 1,
            "multi_query": kv_heads == 1,
            "num_kv_heads": kv_heads,
            "ffn_hidden_size": inner,
            "attn_logit_softcapping": cap,
            "final_logit_softcapping": self.metadata.architecture_value("final_logit_softcapping"),
            "attention_multiplier": scale,
            "residual_multiplier": self.metadata.architecture_value("residual_scale"),
            "embedding_multiplier": self.metadata.architecture_value("embedding_scale"),
            "logits_scaling": self.metadata.architecture_value("logit_scale"),
            "logit_scale": self.metadata.architecture_value("logit_scale"),
            **self._expert_keys(inner),
            "first_k_dense_replace": self.metadata.architecture_value("leading_dense_block_count"),
            "num_dense_layers": self.metadata.architecture_value("leading_dense_block_count"),
            "full_attention_interval": self.metadata.architecture_value("full_attention_interval"),
            "rotary_dim": rotated,
            "llama_4_scaling_beta": self.metadata.architecture_value("attention.temperature_scale"),
            "attention_out_bias": f"{first_layer}attn_output.bias" in tensors,
            "type_vocab_size": 0 if types is None else types.shape[0],
            "attention_bias": biased,
            "use_qkv_bias": biased,
            "use_bias": biased,
            "mlp_bias": f"{first_layer}ffn_up.bias" in tensors,
            "use_qk_norm": f"{first_layer}attn_q_norm.weight" in tensors,
            "qk_layernorm": f"{first_layer}attn_q_norm.weight" in tensors,
            "use_parallel_residual": parallel,
            "tie_word_embeddings": "output.weight" not in tensors,
            "eos_token_id": self.metadata.get("tokenizer.ggml.eos_token_id"),
            "is_causal": self.metadata.architecture_value("attention.causal"),
        }

        # the family adds what GGUF files name otherwise or leave out
        stated = {key: value for key, value in values.items() if value is not None}
        model_family = family(kind)
        if model_family is not None and model_family.gguf is not None:
            stated |= model_family.gguf(self.metadata)
        return {key: _python_value(value) for key, value in stated.items()}

    def _own_layers(self) -> Any:
        """The model's number of layers; None where the file does not say. Further layers of the file
        that predict tokens further ahead are not counted, but noted in `_ahead`.
        """
        layers = self.metadata.architecture_value("block_count")
        ahead = self.metadata.architecture_value("nextn_predict_layers")
        self._ahead = 0
        if _are_sizes(layers, ahead) and ahead < layers:
            layers = layers - ahead
            self._ahead = ahead
        return layers

    def _expert_keys(self, inner: object) -> dict[str, object]:
        """The sizes and choices of experts as config values, under the keys of all families.

        inner: the width of a feed-forward part that is no expert.
        """
        # models without experts may state 0 of them
        experts = self.metadata.architecture_value("expert_count") or None
        chosen = self.metadata.architecture_value("expert_used_count") or None
        shared_inner = self.metadata.architecture_value("expert_shared_feed_forward_length")
        return {
            "num_local_experts": experts,
            "num_experts": experts,
            "num_experts_per_tok": chosen,
            "moe_intermediate_size": self._one_value("expert_feed_forward_length"),
            "n_routed_experts": experts,
            "moe_topk": chosen,
            "shared_expert_intermediate_size": shared_inner,
            "shared_intermediate_size": shared_inner or inner,
            "n_shared_experts": self.metadata.architecture_value("expert_shared_count"),
            "norm_topk_prob": self.metadata.architecture_value("expert_weights_norm"),
            "n_group": self.metadata.architecture_value("expert_group_count"),
            "topk_group": self.metadata.architecture_value("expert_group_used_count"),
            "routed_scaling_factor": self.metadata.architecture_value("expert_weights_scale"),
        }

    def _recurrence_keys(self, width: object) -> dict[str, object]:
        """The sizes of recurrent layers (Mamba, linear attention) as config values, under the keys
        of all families; {} without any.

        width: of the model.
        """
        tensors = self._tensors
        inner = self.metadata.architecture_value("ssm.inner_size")
        state = self.metadata.architecture_value("ssm.state_size")
        groups = self.metadata.architecture_value("ssm.group_count")
        kernel = self.metadata.architecture_value("ssm.conv_kernel")
        # of Mamba the width of what time steps come from, of the others the number of heads
        steps = self.metadata.architecture_value("ssm.time_step_rank")
        if inner is None:
            return {}
        return {
            "mamba_expand": inner // width if _are_sizes(inner, width) else None,
            "mamba_d_conv": kernel,
            "linear_conv_kernel_dim": kernel,
            "mamba_d_state": state,
            "linear_key_head_dim": state,
            "mamba_n_groups": groups,
            "linear_num_key_heads": groups,
            "mamba_n_heads": steps,
            "mamba_dt_rank": steps,
            "linear_num_value_heads": steps,
            "linear_value_head_dim": inner // steps if _are_sizes(inner, steps) else None,
            "mamba_conv_bias": any(name.endswith(".ssm_conv1d.bias") for name in tensors),
            "mamba_proj_bias": any(name.endswith(".ssm_in.bias") for name in tensors),
        }

    def _scaling(self) -> dict[str, object] | None:
        """The config's `rope_scaling`: from the metadata, or from divisors that are stored as
        tensors; None for no scaling."""
        kind = self.metadata.architecture_value("rope.scaling.type")
        factor = self.metadata.architecture_value("rope.scaling.factor")
        original = self.metadata.architecture_value("rope.scaling.original_context_length")
        magnitude = self.metadata.architecture_value("rope.scaling.attn_factor")
        longest = self.metadata.architecture_value("context_length")
        # Phi's files have divisors for short and for long texts, Llama 3's one list for both, which
        # is read as LongRoPE with equal lists
        divisors = []
        for name in ("rope_factors_short", "rope_factors_long"):
            for stored_name in (name, "rope_freqs"):
                if f"{stored_name}.weight" in self._tensors:
                    divisors.append(self._divisors(stored_name))
                    break
        if len(divisors) == 2:
            short_divisors, long_divisors = divisors
            # Llama 3's: nothing but angles is scaled
            if not magnitude and short_divisors == long_divisors:
                magnitude = 1.0
            return {
                "rope_type": "longrope",
                "short_factor": short_divisors,
                "long_factor": long_divisors,
                "original_max_position_embeddings": original or longest,
                "attention_factor": magnitude or None,  # None: by LongRoPE's formula
            }

        # no factor, 1 or 0 scales nothing
        if kind in (None, "none") or (kind == "linear" and factor in (None, 1.0, 0.0)):
            return None
        scaling = {"rope_type": kind, "factor": factor}
        if kind == "linear":
            return scaling

        # YaRN and its like
        more = {
            "original_max_position_embeddings": original,
            "attention_factor": magnitude,
            "beta_fast": self.metadata.architecture_value("rope.scaling.yarn_beta_fast"),
            "beta_slow": self.metadata.architecture_value("rope.scaling.yarn_beta_slow"),
            **self._mscale_keys(),
        }
        return scaling | {key: value for key, value in more.items() if value is not None}

    def _mscale_keys(self) -> dict[str, object]:
        """YaRN's `mscale` and `mscale_all_dim` as config values, both from the file's one number;
        {} where it has none."""
        stated = self.metadata.architecture_value("rope.scaling.yarn_log_multiplier")
        if not isinstance(stated, float):
            return {}
        # the converter of DeepSeek writes a tenth of it
        if self.metadata.architecture == "deepseek2":
            multiplier = round(stated * 10, 6)
        else:
            multiplier = stated
        return {"mscale": multiplier, "mscale_all_dim": multiplier}

    def _divisors(self, name: str) -> list[float]:
        """The numbers of the tensor NAME.weight, by which RoPE divides its frequencies."""
        tensor = self.stored[f"{name}.weight"]
        recipe = BlockRecipe(self.fill, tensor, self._tensors[f"{name}.weight"], Undone())
        numbers: list[float] = recipe.rows(0, tensor.shape[0]).reshape(-1).tolist()
        return numbers

    def _kv_heads_and_attending_layers(self) -> tuple[Any, list[bool] | None]:
        """How many key-value heads a layer with attention has, and for each layer whether it has
        attention; None for the second where the file does not say.
        """
        kv_heads = self.metadata.architecture_value("attention.head_count_kv")
        if isinstance(kv_heads, np.ndarray):
            attending = [bool(count) for count in kv_heads.tolist()]
            count = self._common_value("attention.head_count_kv", kv_heads[kv_heads > 0])
            return count, attending
        recurrent = self.metadata.architecture_value("attention.recurrent_layers")
        if isinstance(recurrent, np.ndarray):
            return kv_heads, [not entry for entry in recurrent.tolist()]
        return kv_heads, None

    def _one_value(self, key: str) -> Any:
        """The value of a metadata key that may be stated layer by layer, and is the same in all."""
        value = self.metadata.architecture_value(key)
        if isinstance(value, np.ndarray):
            return self._common_value(key, value)
        return value

    def _common_value(self, key: str, values: Array) -> object:
        """The one value that all layers have for a metadata key. Raises UnsupportedError where they
        differ.
        """
        different = sorted(set(values.tolist()))
        if len(different) != 1:
            raise UnsupportedError(
                "{key} differs from layer to layer: {values}",
                where=str(self.file),
                expected="layers of one size",
                key=f"{self.metadata.architecture}.{key}",
                values=listing(map(str, different[:8])),
            )
        return different[0]

    def _refuse_unread(self, config: Config, spec: Spec) -> None:
        """Raise UnsupportedError for a setting of the file that would change the model but that its
        family does not have; add a note for each unknown key."""
        # the metadata set what the family's config never read, under either of its spellings, to a
        # value that is not harmless
        for key, harmless in HARMLESS_VALUES.items():
            value = config.values.get(key)
            spellings = {key, OTHER_SPELLINGS.get(key, key)}
            is_set = value is not None and value not in harmless
            if is_set and not spellings & config.read_keys:
                raise config.refuse(key, message("a model of this family has none"))

        # a layer rotates another number of entries than the file says
        prefix = f"{self.metadata.architecture}."
        rotated = self.metadata.architecture_value("rope.dimension_count")
        for block in spec.blocks:
            position = block.attention.position
            if isinstance(position, Rope) and rotated is not None and position.dims != rotated:
                what = message(
                    "{key} is {rotated}", key=f"{prefix}rope.dimension_count", rotated=rotated
                )
                expected = message("{dims}, as models of this family rotate", dims=position.dims)
                raise UnsupportedError(what, where=str(self.file), expected=expected)

        for key in self.metadata.values:
            unread = key.startswith(prefix) and key not in self.metadata.read_keys
            if unread and key.removeprefix(prefix) not in HARMLESS:
                note = message(
                    "the file has a key {key} that attn does not know; it plays no part",
                    key=repr(key[:80]),
                )
                config.note(note)

        # `_config` read the window for all families, so it counts as read in the metadata
        window = f"{prefix}attention.sliding_window"
        if self.metadata.values.get(window) and "sliding_window" not in config.read_keys:
            note = message(
                "the file has a key {key} that models of this family do not use; it plays no part",
                key=repr(window),
            )
            config.note(note)


HARMLESS_VALUES: Mapping[str, tuple[object, ...]] = {
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "rope_scaling": (),
    "num_experts": (0,),
    "residual_multiplier": (1.0, 0.0),
    "embedding_multiplier": (1.0, 0.0),
    "routed_scaling_factor": (1.0, 0.0),
    "llama_4_scaling_beta": (0.0,),
}
"""Settings that no family may pass over in silence, each with the values that change nothing."""
OTHER_SPELLINGS = {"num_experts": "num_local_experts"}
"""Another spelling by which a family may read a setting."""


def _window_keys(pattern: object) -> dict[str, object]:
    """The config values that say which layers have a window, from GGUF's pattern: a list of
    booleans becomes `layer_types`, a number ("every so many") `sliding_window_pattern`."""
    if isinstance(pattern, np.ndarray):
        return {"layer_types": [LOCAL if local else GLOBAL for local in pattern.tolist()]}
    return {"sliding_window_pattern": pattern}


def _attention_keys(layers: list[bool] | None, mixing: str) -> dict[str, object]:
    """The config values that say which layers have attention, under every key that families use; {}
    where that is not known (None).

    mixing: the type of layers that do not attend.
    """
    if layers is None:
        return {}
    kinds = [GLOBAL if attends else mixing for attends in layers]
    return {
        "layer_types": kinds,
        "attn_layer_indices": [place for place, attends in enumerate(layers) if attends],
    }


def _head_width(width: Any, heads: Any) -> int | None:
    """The width of a head, for a file that does not state it: the model's width divided by its
    number of heads; None unless both are positive whole numbers.
    """
    if _are_sizes(width, heads):
        return int(width // heads)
    return None


def _rotated_share(rotated: Any, width: Any) -> float:
    """The share of a head's `width` entries that RoPE rotates; 1 where either number is missing.
    Families compute the number of rotated entries back as int(share · width).
    """
    if _are_sizes(rotated, width) and rotated < width:
        # with 0.5 more, no rounding of the product can fall below the whole number
        return float((rotated + 0.5) / width)
    return 1.0


def _are_sizes(*values: object) -> bool:
    """Whether all of these are whole numbers above 0."""
    return all(type(value) is int and value > 0 for value in values)


def _python_value(value: object) -> object:
    """A number or array of NumPy as Python's own number or list; all else as it is."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def _norms_as_stored(spec: Spec) -> Spec:
    """The Spec whose norms multiply by the stored weight alone: GGUF files hold 1 + w where the
    family's own files hold w."""

    def without_offset(norm: Norm) -> Norm:
        """The norm that multiplies by what is stored, with no 1 added."""
        return replace(norm, unit_offset=False)

    blocks = []
    for block in spec.blocks:
        attention = block.attention
        qk_norm = attention.qk_norm
        if qk_norm is not None:
            qk_norm = replace(qk_norm, norm=without_offset(qk_norm.norm))
            attention = replace(attention, qk_norm=qk_norm)
        norms = {place: without_offset(norm) for place, norm in block.norms.items()}
        blocks.append(replace(block, attention=attention, norms=norms))
    if spec.final_norm is None:
        final = None
    else:
        final = without_offset(spec.final_norm)
    return replace(spec, blocks=tuple(blocks), final_norm=final)


def _refuse_without_model(header: GgufHeader, where: str) -> None:
    """Raise UnsupportedError for a GGUF file without a text model: an adapter, the image encoder of
    a model, the measurements of a quantisation, or a vocabulary alone.

    where: the file.
    """
    kind = header.metadata.get("general.type")
    architecture = header.metadata.get("general.architecture")
    expected = message("the file of the model itself")
    hint: Message | str = ""
    if kind == "adapter" or any(name.endswith(".lora_a") for name in header.tensors):
        what = message("this GGUF file holds an adapter, and no model")
        hint = message("--adapter takes an adapter as PEFT's save_pretrained writes it")
    elif kind == "mmproj" or architecture == "clip":
        what = message("this GGUF file holds what reads pictures or sound for a model of text")
    elif kind == "imatrix":
        what = message("this GGUF file holds what was measured for a quantisation, and no model")
    elif not header.tensors and architecture in ARCHITECTURES:
        what = message("this GGUF file holds no tensors")
        if header.metadata.get("tokenizer.ggml.tokens"):
            what = message("this GGUF file holds a vocabulary, and no tensors")
            hint = message("attn tokens --model {file} TEXT takes the vocabulary alone", file=where)
    else:
        return
    raise UnsupportedError(what, where=where, expected=expected, hint=hint)


def vocabulary_of(path: Path) -> Tokenizer:
    """The tokenizer in a GGUF file, whatever its architecture; where the file has none, a tokenizer
    that accepts ids only. Of a file in several parts, the first part has it.

    Raises as `read_gguf` and `gguf_tokenizer`.
    """
    from attncli.inputs.gguf_tokenizer import gguf_tokenizer

    real = path.resolve()
    match = PART_OF.fullmatch(real.name)  # NAME-00002-of-00003.gguf
    if match is not None:
        real = real.with_name(f"{match[1]}-00001-of-{match[3]}.gguf")
    where = str(real)
    return gguf_tokenizer(Metadata(read_gguf(real).metadata, where), where) or IdsOnly(where)


def _check_whole(header: GgufHeader, path: Path) -> None:
    """Raise InputError for a file that is one part of a split model but is not named as one."""
    count = header.metadata.get("split.count")
    part = header.metadata.get("split.no")  # counted from 0
    if not (isinstance(count, int) and isinstance(part, int) and 1 < count <= MOST_PARTS):
        return
    name = f"{path.stem}-{part + 1:05}-of-{count:05}.gguf"
    raise InputError(
        "this file is part {part} of {count} of a model, and its name does not say so",
        where=str(path),
        expected=message("{name}, with the other parts beside it", name=repr(name)),
        part=part + 1,
        count=count,
    )


def open_gguf(path: Path) -> GgufCheckpoint:
    """The checkpoint in a GGUF file; where the file is one of several parts, in all of them.

    Raises as `read_gguf`, and InputError for a file that is missing among several, UnsupportedError
    for an architecture or a setting that is not implemented.
    """
    real = path.resolve()
    match = PART_OF.fullmatch(path.name)  # NAME-00002-of-00003.gguf
    if match is None:
        header = read_gguf(real)
        _check_whole(header, path)
        return GgufCheckpoint([(real, header)])
    stem = match[1]
    count = int(match[3])
    if not 1 <= int(match[2]) <= count <= MOST_PARTS:
        what = message("this is called part {part} of {count}", part=int(match[2]), count=count)
        expected = message("a part from 1 to {count}, at most {most}", count=count, most=MOST_PARTS)
        raise InputError(what, where=str(path), expected=expected)

    # every part must be there, and all together hold as many tensors as the first one says
    folder = path.parent.resolve()
    files = []
    for part in range(1, count + 1):
        name = f"{stem}-{part:05}-of-{count:05}.gguf"
        target = guarded_path(folder, name)
        if not is_there(target):
            raise InputError(
                "part {part} of {count} is missing: {name}",
                where=str(folder),
                expected="all files side by side",
                part=part,
                count=count,
                name=repr(name),
            )
        files.append((target, read_gguf(target)))

    _, first_header = files[0]
    stated = first_header.metadata.get("split.tensors.count")
    present = sum(len(header.tensors) for _, header in files)
    if stated is not None and stated != present:
        raise InputError(
            "the files hold {present:,} tensors, the first one says {stated:,}",
            where=str(path),
            expected="the files of one model",
            present=present,
            stated=stated,
        )
    return GgufCheckpoint(files)
