"""GGUF files as checkpoints: one file holds the config, the vocabulary and the tensors, under names of its own.

GGUF names tensors by the part that they play, the same in all architectures, so `bind` takes one table of names for
every family; what the files leave out is what the family means by silence. Matrices are [out, in]; norms hold what
they multiply with, also where a family's own files hold it less 1; the rows of queries and keys of the architectures
that rotate neighbouring entries were reordered for it, which is undone as they are read.

Source: gguf-py's tables of names and llama.cpp's converters, by architecture, 2023-2026.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from attncli.errors import InputError, UnsupportedError
from attncli.inputs.checkpoint import Array, TensorInfo, guarded_path
from attncli.inputs.derived_checkpoint import DerivedCheckpoint, kinds_by_size
from attncli.inputs.files import is_there
from attncli.inputs.gguf_file import GgufHeader, GgufTensor, Metadata, read_gguf
from attncli.inputs.token import Tokenizer
from attncli.inputs.tokenize import IdsOnly
from attncli.language import listing, message
from attncli.mechanism.spec import Mlp, Norm, Rope, Spec
from attncli.models.checkpoint_writing import CheckpointParts, stored_tensors
from attncli.models.config import GLOBAL, LOCAL, Config, seen_both_ways, without
from attncli.models.families import ARCHITECTURES, WITH_EXPERTS, WITH_WINDOWS, family
from attncli.models.families.lfm2 import CONVOLUTION
from attncli.models.family import Concat, Family, Names, PerExpert, Source, TensorBinding, bind

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
        *("attention.value_length", "attention.key_length_swa", "attention.value_length_swa", "pooling_type"),
        *("rope.scaling.yarn_log_multiplier", "leading_dense_block_count", "expert_gating_func"),
    )
)
"""Keys of the model itself that repeat what the tensors say, or play no part in running a text."""


class BlockRecipe:
    """Rows of a tensor out of its blocks. head: rows of a head whose neighbouring rows are brought back to its two
    halves, 0 where rows stand in order."""

    def __init__(self, checkpoint: GgufCheckpoint, tensor: GgufTensor, info: TensorInfo, head: int) -> None:
        self._checkpoint, self._tensor, self._info, self._head = checkpoint, tensor, info, head
        by_row = len(tensor.shape) > 1 or tensor.block.weights == 1
        self.unit = (head or 1) if by_row else 0

    def rows(self, start: int, stop: int) -> Array:
        tensor, count = self._tensor, self._tensor.shape[0]
        row_bytes = (tensor.stop - tensor.start) // count
        raw = np.empty((stop - start) * row_bytes if self.unit else tensor.stop - tensor.start, np.uint8)
        begin = tensor.start + (start * row_bytes if self.unit else 0)
        self._checkpoint.fill(self._info, raw, begin, tensor.name)
        numbers = tensor.block.numbers(raw).reshape((stop - start, *tensor.shape[1:]))
        if not self._head:
            return numbers
        pairs = numbers.reshape((-1, self._head // 2, 2, *tensor.shape[1:]))
        return pairs.swapaxes(1, 2).reshape(numbers.shape)


class GgufCheckpoint(DerivedCheckpoint):
    """A `Checkpoint` in a GGUF file, or in several. metadata: of the first."""

    format = "gguf"

    def __init__(self, files: Sequence[tuple[Path, GgufHeader]]) -> None:
        where = str(files[0][0])
        self.file, self.metadata = files[0][0], Metadata(files[0][1].metadata, where)
        tensors: dict[str, TensorInfo] = {}
        self.stored: dict[str, GgufTensor] = {}
        sizes: Counter[str] = Counter()
        for path, header in files:
            for name, tensor in header.tensors.items():
                if name in tensors:
                    raise InputError(
                        "tensor {name} is in two files",
                        where=f"{tensors[name].file} and {path}",
                        expected="each tensor once",
                        name=repr(name),
                    )
                kind = tensor.block.name
                own = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(kind)
                tensors[name] = TensorInfo(
                    own or "float32", tensor.shape, path, tensor.start, tensor.stop, "" if own else kind
                )
                self.stored[name] = tensor
                if len(tensor.shape) > 1:
                    sizes[kind] += tensor.stop - tensor.start
        super().__init__(files[0][0].parent, {}, tensors, {}, kinds_by_size(sizes))
        kind = ARCHITECTURES.get(self.metadata.architecture, "")
        if not kind:
            raise UnsupportedError(
                "GGUF files of the architecture {architecture} are not read",
                where=where,
                expected=listing(sorted(ARCHITECTURES)),
                hint=message("the folder of the same model, with config.json and safetensors"),
                architecture=repr(self.metadata.architecture),
            )
        if self.metadata.own("expert_count"):
            kind = WITH_EXPERTS.get(kind, kind)
        if self.metadata.own("attention.sliding_window"):
            kind = WITH_WINDOWS.get(kind, kind)
        for name, tensor in self.stored.items():
            shape = _with_axis(name, tensor.shape)
            self.stored[name] = replace(tensor, shape=shape)
            self._tensors[name] = replace(tensors[name], shape=shape)
        self.config = {"model_type": kind, **self._config(kind)}

    @property
    def tokenizer_path(self) -> Path | None:
        """The file itself brings the vocabulary."""
        return self.file if self.metadata.get("tokenizer.ggml.tokens") else None

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the file's own vocabulary; one that takes ids alone where it cannot be used."""
        from attncli.inputs.gguf_tokenizer import gguf_tokenizer

        return gguf_tokenizer(self.metadata, str(self.file)) or IdsOnly(str(self.file))

    def fill(self, info: TensorInfo, raw: Array, start: int, name: str) -> None:
        """Fill `raw` from byte `start` of a tensor's file on."""
        self._file(info).fill(raw.data, start, f"tensor {name!r}")

    def spec(self, ignore: Collection[str]) -> tuple[Spec, Family, tuple[str, ...]]:
        """The Spec that the metadata describe, its family under the names of this format, and what a user must know.

        Raises as the family does, and UnsupportedError for a setting that would change the model and has no part in
        the family.
        """
        where = str(self.file)
        model_family = family(self.config["model_type"])
        assert model_family is not None, "ARCHITECTURES names families only"
        config = without(self.config, ignore, where)
        own_spec = seen_both_ways(config, model_family.spec(config))
        spec = _norms_as_stored(own_spec)
        self._refuse_unread(config, spec)
        self._own_spec, self._read_keys = own_spec, frozenset(config.read_keys)
        names = _names(spec, self._tensors)
        permuted = model_family.permuted
        self.recipes = {
            name: BlockRecipe(self, tensor, self._tensors[name], _head_of(name, spec) if permuted else 0)
            for name, tensor in self.stored.items()
        }
        for path in {info.file for info in self._tensors.values()}:
            self._file(next(info for info in self._tensors.values() if info.file == path))
        return spec, replace(model_family, names=names), tuple(config.notes)

    def for_family(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The config and the tensors as the family's own files have them, all in memory: what another library reads."""
        spec, stored_family, _ = self.spec(())
        binding, _ = bind(spec, stored_family, self.names(), str(self.file))
        original = self._own_spec

        def parts(bounds: Iterable[TensorBinding], offsets: Collection[str]) -> dict[str, Array]:
            roles: dict[str, Array] = {}
            for bound in bounds:
                roles |= bound.parts([self.read(name, "float32") for name in bound.tensors])
            return {role: array - 1 if role in offsets else array for role, array in roles.items()}

        final = original.final_norm is not None and original.final_norm.unit_offset
        layers = []
        for block, bounds in zip(original.blocks, binding.layers, strict=True):
            offsets = {f"{place}.weight" for place, norm in block.norms.items() if norm.unit_offset}
            if block.attention.qk_norm is not None and block.attention.qk_norm.norm.unit_offset:
                offsets |= {"attn.q_norm.weight", "attn.k_norm.weight"}
            layers.append(parts(bounds, offsets))
        outer = parts(binding.outer.values(), ("final.weight",) if final else ())
        checkpoint_parts = CheckpointParts(
            self.config["model_type"], {}, "", spec.blocks[0].attention.kv_heads, outer, layers, (), False, {}
        )
        config = {key: value for key, value in self.config.items() if key in self._read_keys}
        return {"model_type": self.config["model_type"], **config}, stored_tensors(checkpoint_parts, every_name=True)

    def _config(self, kind: str) -> dict[str, Any]:
        """What the file says, under every name that a family may read it by; what it does not say is left out."""
        own, tensors = self.metadata.own, self._tensors
        width, heads = own("embedding_length"), own("attention.head_count")
        layers = own("block_count")
        if isinstance(heads, np.ndarray):
            heads = self._alike("attention.head_count", heads)
        kv_heads = own("attention.head_count_kv")
        attending = None
        if isinstance(kv_heads, np.ndarray):
            attending = [GLOBAL if count else CONVOLUTION for count in kv_heads.tolist()]
            kv_heads = self._alike("attention.head_count_kv", kv_heads[kv_heads > 0])
        inner = own("feed_forward_length")
        if isinstance(inner, np.ndarray):
            inner = self._alike("feed_forward_length", inner)
        table, first = tensors.get("token_embd.weight"), "blk.0."
        dim = own("attention.key_length")
        usual = width // heads if _sizes(width, heads) else None
        rotated, whole = own("rope.dimension_count"), dim or usual
        # the half keeps the product with the width, which is rounded down, from falling below the whole number
        share = (rotated + 0.5) / whole if _sizes(rotated, whole) and rotated < whole else 1.0
        types = tensors.get("token_types.weight")
        eps, rms = own("attention.layer_norm_epsilon"), own("attention.layer_norm_rms_epsilon")
        base, positions = own("rope.freq_base") or 10000.0, own("context_length")
        scale, cap = own("attention.scale"), own("attn_logit_softcapping")
        experts, chosen = own("expert_count"), own("expert_used_count")
        biased = any(f"{first}{name}.bias" in tensors for name in ("attn_q", "attn_qkv"))
        parallel, two_norms = own("use_parallel_residual"), f"{first}attn_norm_2.weight" in tensors
        grouped = _sizes(kv_heads, heads) and 1 < kv_heads < heads
        values = {
            "hidden_size": width, "n_embd": width,
            "num_hidden_layers": layers, "n_layer": layers,
            "num_attention_heads": heads, "n_head": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": inner, "n_inner": inner,
            "max_position_embeddings": positions, "n_positions": positions,
            "head_dim": dim,
            "vocab_size": None if table is None else table.shape[0],
            "layer_norm_eps": eps, "layer_norm_epsilon": eps, "norm_epsilon": eps,
            "norm_eps": rms if eps is None else eps,
            "rms_norm_eps": rms,
            "rope_theta": base, "rotary_emb_base": base,
            "rope_local_base_freq": own("rope.freq_base_swa"),
            "partial_rotary_factor": share, "rotary_pct": share,
            "rope_scaling": self._scaling(rotated or whole),
            "original_max_position_embeddings": own("rope.scaling.original_context_length"),
            "sliding_window": own("attention.sliding_window"),
            **_windows(own("attention.sliding_window_pattern")),
            **({} if attending is None else {"layer_types": attending}),
            "conv_L_cache": own("shortconv.l_cache"), "block_auto_adjust_ff_dim": False,
            "clip_qkv": own("attention.clamp_kqv") or None,
            "new_decoder_architecture": two_norms or grouped, "num_ln_in_parallel_attn": 1 + two_norms,
            "multi_query": kv_heads == 1, "num_kv_heads": kv_heads, "ffn_hidden_size": inner,
            "attn_logit_softcapping": cap, "final_logit_softcapping": own("final_logit_softcapping"),
            "attention_multiplier": scale, "residual_multiplier": own("residual_scale"),
            "embedding_multiplier": own("embedding_scale"),
            "logits_scaling": own("logit_scale"), "logit_scale": own("logit_scale"),
            "num_local_experts": experts or None, "num_experts": experts or None,
            "num_experts_per_tok": chosen or None,
            "moe_intermediate_size": own("expert_feed_forward_length"),
            "shared_expert_intermediate_size": own("expert_shared_feed_forward_length"),
            "attention_out_bias": f"{first}attn_output.bias" in tensors,
            "type_vocab_size": None if types is None else types.shape[0],
            "attention_bias": biased, "use_qkv_bias": biased, "use_bias": biased,
            "mlp_bias": f"{first}ffn_up.bias" in tensors,
            "use_qk_norm": f"{first}attn_q_norm.weight" in tensors,
            "qk_layernorm": f"{first}attn_q_norm.weight" in tensors,
            "use_parallel_residual": parallel,
            "tie_word_embeddings": "output.weight" not in tensors,
            "eos_token_id": self.metadata.get("tokenizer.ggml.eos_token_id"),
            "is_causal": own("attention.causal"),
        }  # fmt: skip
        model_family = family(kind)
        more = model_family.gguf(self.metadata) if model_family is not None and model_family.gguf is not None else {}
        stated = {key: value for key, value in values.items() if value is not None} | dict(more)
        return {key: _plain(value) for key, value in stated.items()}

    def _scaling(self, rotated: object) -> dict[str, object] | None:
        """How positions are stretched: what the metadata say, or the divisors that stand among the tensors."""
        own = self.metadata.own
        kind, factor = own("rope.scaling.type"), own("rope.scaling.factor")
        original, magnitude = own("rope.scaling.original_context_length"), own("rope.scaling.attn_factor")
        longest = own("context_length")
        lists = [
            self._divisors(name)
            for names in (("rope_factors_short", "rope_freqs"), ("rope_factors_long", "rope_freqs"))
            for name in [next((name for name in names if f"{name}.weight" in self._tensors), None)]
            if name is not None
        ]
        if len(lists) == 2:
            same = lists[0] == lists[1]
            return {
                "rope_type": "longrope", "short_factor": lists[0], "long_factor": lists[1],
                "original_max_position_embeddings": original or longest,
                "attention_factor": magnitude or (1.0 if same else None),
            }  # fmt: skip
        if kind in (None, "none") or (kind == "linear" and factor in (None, 1.0, 0.0)):
            return None
        scaling = {"rope_type": kind, "factor": factor}
        if kind == "linear":
            return scaling
        more = {
            "original_max_position_embeddings": original,
            "attention_factor": magnitude,
            "beta_fast": own("rope.scaling.yarn_beta_fast"),
            "beta_slow": own("rope.scaling.yarn_beta_slow"),
        }
        return scaling | {key: value for key, value in more.items() if value is not None}

    def _divisors(self, name: str) -> list[float]:
        tensor = self.stored[f"{name}.weight"]
        recipe = BlockRecipe(self, tensor, self._tensors[f"{name}.weight"], 0)
        numbers: list[float] = recipe.rows(0, tensor.shape[0]).reshape(-1).tolist()
        return numbers

    def _alike(self, key: str, values: Array) -> object:
        """What all layers have in common. Raises UnsupportedError where they differ."""
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
        """Raise for a setting that would change the model and has no part in its family; note what is not known."""
        for key, harmless in MEANINGFUL.items():
            value = config.values.get(key)
            if not {key, SAME.get(key, key)} & config.read_keys and value is not None and value not in harmless:
                raise config.refuse(key, message("a model of this family has none"))
        prefix = f"{self.metadata.architecture}."
        rotated = self.metadata.own("rope.dimension_count")
        for block in spec.blocks:
            position = block.attention.position
            if isinstance(position, Rope) and rotated is not None and position.dims != rotated:
                raise UnsupportedError(
                    "{key} is {rotated}",
                    where=str(self.file),
                    expected="{dims}, as models of this family rotate",
                    key=f"{prefix}rope.dimension_count",
                    rotated=rotated,
                    dims=position.dims,
                )
        for key in self.metadata.values:
            unread = key.startswith(prefix) and key not in self.metadata.read_keys
            if unread and key.removeprefix(prefix) not in HARMLESS:
                note = message("the file has a key {key} that attn does not know; it plays no part", key=repr(key[:80]))
                config.note(note)


MEANINGFUL: Mapping[str, tuple[object, ...]] = {
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "rope_scaling": (),
    "num_experts": (0,),
    "residual_multiplier": (1.0, 0.0),
    "embedding_multiplier": (1.0, 0.0),
}
"""Settings that no family may pass over in silence, each with the values that change nothing."""
SAME = {"num_experts": "num_local_experts"}
"""Another spelling by which a family may read a setting."""


def _windows(pattern: object) -> dict[str, object]:
    """Which layers have a window: each so many, or those of a list of truth values."""
    if isinstance(pattern, np.ndarray):
        return {"layer_types": [LOCAL if local else GLOBAL for local in pattern.tolist()]}
    return {"sliding_window_pattern": pattern}


def _sizes(*values: object) -> bool:
    """Whether all of these are whole numbers above 0."""
    return all(type(value) is int and value > 0 for value in values)


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _norms_as_stored(spec: Spec) -> Spec:
    """The Spec with norms that multiply with what is stored: the files hold 1 + w where the family's own hold w."""

    def stored(norm: Norm) -> Norm:
        return replace(norm, unit_offset=False)

    blocks = []
    for block in spec.blocks:
        attention, normed = block.attention, block.attention.qk_norm
        if normed is not None:
            attention = replace(attention, qk_norm=replace(normed, norm=stored(normed.norm)))
        norms = {place: stored(norm) for place, norm in block.norms.items()}
        blocks.append(replace(block, attention=attention, norms=norms))
    final = None if spec.final_norm is None else stored(spec.final_norm)
    return replace(spec, blocks=tuple(blocks), final_norm=final)


INSIDE: Mapping[str, Source] = {
    "attn.in": "attn_norm",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.o": "attn_output",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "attn.sinks": "attn_sinks.weight",
    "attn.out": "post_attention_norm",
    "attn.sum": "attn_output_norm",
    "mlp.in": "ffn_norm|post_attention_norm",
    "mlp.gate": "ffn_gate",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
    "mlp.out": "post_ffw_norm",
    "mlp.sum": "layer_output_norm",
    "mixer.input": "shortconv.in_proj",
    "mixer.conv": "shortconv.conv",
    "mixer.output": "shortconv.out_proj",
    "shared.gate": "ffn_gate_shexp",
    "shared.up": "ffn_up_shexp",
    "shared.down": "ffn_down_shexp",
    "shared.share": "ffn_gate_inp_shexp",
    "experts.router": "ffn_gate_inp",
    "experts.gate": PerExpert("ffn_gate_exps"),
    "experts.up": PerExpert("ffn_up_exps"),
    "experts.down": PerExpert("ffn_down_exps"),
}
"""Role → module of a layer."""
OUTSIDE: Mapping[str, Source] = {
    "tokens": "token_embd",
    "positions": "position_embd",
    "types": "token_types",
    "embed.norm": "token_embd_norm",
    "final": "output_norm",
    "head": "output",
}
IGNORED = ("rope_freqs.weight", "rope_factors_*.weight", "blk.*.attn_rot_embd", "output.*", "cls.*")


def _names(spec: Spec, tensors: Mapping[str, TensorInfo]) -> Names:
    """Which tensor plays which role; queries, keys and values may share one, and so may both halves of a gated part."""
    inside = dict(INSIDE)
    if "blk.0.attn_qkv.weight" in tensors:
        inside["attn.q attn.k attn.v"] = Concat("attn_qkv")
        for role in ("attn.q", "attn.k", "attn.v"):
            del inside[role]
    first = spec.blocks[0].mlp
    if isinstance(first, Mlp) and first.gated and "blk.0.ffn_gate.weight" not in tensors:
        inside["mlp.gate mlp.up"] = Concat("ffn_up")
        for role in ("mlp.gate", "mlp.up"):
            del inside[role]
    if "blk.0.attn_norm_2.weight" in tensors:  # the first stands before the feed-forward part
        inside |= {"attn.in": "attn_norm_2", "mlp.in": "attn_norm"}
    # LFM2's converter calls its last norm by the name of another
    outside = OUTSIDE if "output_norm.weight" in tensors else {**OUTSIDE, "final": "token_embd_norm"}
    return Names(layer="blk.{layer}.", inside=inside, outside=outside, ignored=IGNORED)


AXIS_OF_ONE = {"shortconv.conv.weight": 1, "ffn_gate_inp_shexp.weight": 0}
"""The tensors that are stored without an axis of length 1, by the end of their names, and which it is."""


def _with_axis(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A tensor's shape with the axis that the files leave out."""
    for end, axis in AXIS_OF_ONE.items():
        if name.endswith(end) and len(shape) == axis + 1:
            return (*shape[:axis], 1, *shape[axis:])
    return shape


REORDERED = re.compile(r"blk\.(\d+)\.attn_[qk]\.(weight|bias)")


def _head_of(name: str, spec: Spec) -> int:
    """Rows of a head of queries or keys; 0 for any other tensor."""
    match = REORDERED.fullmatch(name)
    return spec.blocks[0].attention.head_dim if match else 0


def open_gguf(path: Path) -> GgufCheckpoint:
    """The checkpoint in a file, or in all files that it is one of.

    Raises as `read_gguf`, and InputError for a file that is missing among several, UnsupportedError for an
    architecture or a setting that is not implemented.
    """
    real = path.resolve()
    match = PART_OF.fullmatch(path.name)
    if match is None:
        return GgufCheckpoint([(real, read_gguf(real))])
    stem, count = match[1], int(match[3])
    if not 1 <= int(match[2]) <= count <= MOST_PARTS:
        raise InputError(
            "this is called part {part} of {count}",
            where=str(path),
            expected="a part from 1 to {count}, at most {most}",
            part=int(match[2]),
            count=count,
            most=MOST_PARTS,
        )
    folder, files = path.parent.resolve(), []
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
    stated, present = files[0][1].metadata.get("split.tensors.count"), sum(len(header.tensors) for _, header in files)
    if stated is not None and stated != present:
        raise InputError(
            "the files hold {present:,} tensors, the first one says {stated:,}",
            where=str(path),
            expected="the files of one model",
            present=present,
            stated=stated,
        )
    return GgufCheckpoint(files)
