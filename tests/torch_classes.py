"""The attention classes that people type in from tutorials and libraries, written anew in torch.

Nothing here comes from attncli: each class computes its own forward, in the way its source does it,
and names its parameters as that source does. x: [batch, token, d_model]; visible: [token, token]
booleans, True where a query may look, or None. A class's result is [batch, token, width].
"""

import math

import torch
from torch import Tensor, nn

BLOCKED = float("-1e20")


def filled(module: nn.Module, seed: int, spread: float = 0.4) -> nn.Module:
    """The module in float64 with normal weights and biases, all far from 0."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.double().parameters():
        with torch.no_grad():
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * spread
            )
    return module


class SingleHead(nn.Module):
    """One head with WQ, WK, WV and a scale of 1/√d_k."""

    def __init__(self, d_model: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.d_k = d_k
        self.WQ, self.WK, self.WV = (
            nn.Linear(d_model, d_k),
            nn.Linear(d_model, d_k),
            nn.Linear(d_model, d_v),
        )

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        scores = torch.bmm(self.WQ(x), self.WK(x).transpose(1, 2)) / math.sqrt(self.d_k)
        if visible is not None:
            scores = scores.masked_fill(~visible, BLOCKED)
        return torch.bmm(torch.softmax(scores, -1), self.WV(x))


class ListOfHeads(nn.Module):
    """A list of single heads, their outputs side by side, and `linear` over them."""

    def __init__(self, d_model: int, heads: int, d_k: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList([SingleHead(d_model, d_k, d_k) for _ in range(heads)])
        self.linear = nn.Linear(heads * d_k, d_model)

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        return self.linear(torch.cat([head(x, visible) for head in self.heads], dim=-1))


class SharedMaps(nn.Module):
    """values, keys, queries on each head's part of the embedding, the same for all heads; divides
    by √embed_size.
    """

    def __init__(self, embed_size: int, heads: int, *, bias: bool = False) -> None:
        super().__init__()
        self.embed_size, self.count, self.head_dim = embed_size, heads, embed_size // heads
        self.values = nn.Linear(self.head_dim, self.head_dim, bias=bias)
        self.keys = nn.Linear(self.head_dim, self.head_dim, bias=bias)
        self.queries = nn.Linear(self.head_dim, self.head_dim, bias=bias)
        self.fc_out = nn.Linear(heads * self.head_dim, embed_size)

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        batch, length, _ = x.shape
        apart = x.reshape(batch, length, self.count, self.head_dim)
        values, keys, queries = self.values(apart), self.keys(apart), self.queries(apart)
        energy = torch.einsum("nqhd,nkhd->nhqk", queries, keys)
        if visible is not None:
            energy = energy.masked_fill(~visible, BLOCKED)
        attention = torch.softmax(energy / self.embed_size**0.5, dim=3)
        out = torch.einsum("nhql,nlhd->nqhd", attention, values).reshape(batch, length, -1)
        return self.fc_out(out)


class WholeMaps(SharedMaps):
    """The later form of the same class: it projects the whole embedding and then cuts it into
    heads.
    """

    def __init__(self, embed_size: int, heads: int) -> None:
        super().__init__(embed_size, heads)
        self.values = nn.Linear(embed_size, embed_size)
        self.keys = nn.Linear(embed_size, embed_size)
        self.queries = nn.Linear(embed_size, embed_size)

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        batch, length, _ = x.shape
        values, keys, queries = (
            module(x).reshape(batch, length, self.count, self.head_dim)
            for module in (self.values, self.keys, self.queries)
        )
        energy = torch.einsum("nqhd,nkhd->nhqk", queries, keys)
        if visible is not None:
            energy = energy.masked_fill(~visible, BLOCKED)
        attention = torch.softmax(energy / self.embed_size**0.5, dim=3)
        return self.fc_out(
            torch.einsum("nhql,nlhd->nqhd", attention, values).reshape(batch, length, -1)
        )


class Matrices(nn.Module):
    """X·W with bare matrices [in, out], as the formula reads; `W_O` and biases optional."""

    def __init__(
        self, d_model: int, d_k: int, d_v: int, *, output: bool = False, bias: bool = False
    ) -> None:
        super().__init__()
        self.W_Q, self.W_K = (
            nn.Parameter(torch.empty(d_model, d_k)),
            nn.Parameter(torch.empty(d_model, d_k)),
        )
        self.W_V = nn.Parameter(torch.empty(d_model, d_v))
        self.W_O = nn.Parameter(torch.empty(d_v, d_model)) if output else None
        self.b_Q = nn.Parameter(torch.empty(d_k)) if bias else None

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        q = x @ self.W_Q if self.b_Q is None else x @ self.W_Q + self.b_Q
        scores = q @ (x @ self.W_K).mT / self.W_Q.shape[1] ** 0.5
        if visible is not None:
            scores = scores.masked_fill(~visible, BLOCKED)
        mixed = torch.softmax(scores, -1) @ (x @ self.W_V)
        return mixed if self.W_O is None else mixed @ self.W_O


class MatricesPerHead(nn.Module):
    """W_Q, W_K, W_V [head, d_model, dim], W_O [head, dim, d_model], b_Q … [head, dim], b_O
    [d_model].
    """

    def __init__(self, d_model: int, heads: int, dim: int, v_dim: int) -> None:
        super().__init__()
        for name, width in (("Q", dim), ("K", dim), ("V", v_dim)):
            setattr(self, f"W_{name}", nn.Parameter(torch.empty(heads, d_model, width)))
            setattr(self, f"b_{name}", nn.Parameter(torch.empty(heads, width)))
        self.W_O, self.b_O = (
            nn.Parameter(torch.empty(heads, v_dim, d_model)),
            nn.Parameter(torch.empty(d_model)),
        )

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        q, k, v = (
            torch.einsum("bnd,hde->bhne", x, getattr(self, f"W_{n}"))
            + getattr(self, f"b_{n}")[:, None]
            for n in "QKV"
        )
        scores = torch.einsum("bhqe,bhke->bhqk", q, k) / q.shape[-1] ** 0.5
        if visible is not None:
            scores = scores.masked_fill(~visible, BLOCKED)
        mixed = torch.einsum("bhqk,bhke->bhqe", torch.softmax(scores, -1), v)
        return torch.einsum("bhqe,hed->bqd", mixed, self.W_O) + self.b_O


class Kernels(nn.Module):
    """Keras's MultiHeadAttention: kernels [d_model, head, dim], the output's [head, dim, d_model]."""

    def __init__(self, d_model: int, heads: int, dim: int, v_dim: int) -> None:
        super().__init__()
        self.part = nn.ParameterDict()
        for name, width in (("query", dim), ("key", dim), ("value", v_dim)):
            self.part[f"{name}/kernel"] = nn.Parameter(torch.empty(d_model, heads, width))
            self.part[f"{name}/bias"] = nn.Parameter(torch.empty(heads, width))
        self.part["attention_output/kernel"] = nn.Parameter(torch.empty(heads, v_dim, d_model))
        self.part["attention_output/bias"] = nn.Parameter(torch.empty(d_model))

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        q, k, v = (
            torch.einsum("abc,cde->abde", x, self.part[f"{name}/kernel"])
            + self.part[f"{name}/bias"]
            for name in ("query", "key", "value")
        )
        scores = torch.einsum("aecd,abcd->acbe", k, q / q.shape[-1] ** 0.5)
        if visible is not None:
            scores = scores.masked_fill(~visible, BLOCKED)
        mixed = torch.einsum("acbe,aecd->abcd", torch.softmax(scores, -1), v)
        return (
            torch.einsum("abcd,cde->abe", mixed, self.part["attention_output/kernel"])
            + self.part["attention_output/bias"]
        )


class Fused(nn.Module):
    """c_attn and c_proj as convolutions of width 1, whose weights are [in, out]."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.count = heads
        self.c_attn, self.c_proj = nn.Module(), nn.Module()
        self.c_attn.weight, self.c_attn.bias = (
            nn.Parameter(torch.empty(d_model, 3 * d_model)),
            nn.Parameter(torch.empty(3 * d_model)),
        )
        self.c_proj.weight, self.c_proj.bias = (
            nn.Parameter(torch.empty(d_model, d_model)),
            nn.Parameter(torch.empty(d_model)),
        )

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        parts = torch.addmm(self.c_attn.bias, x.reshape(-1, width), self.c_attn.weight).reshape(
            batch, length, 3 * width
        )
        q, k, v = (
            part.reshape(batch, length, self.count, -1).transpose(1, 2)
            for part in parts.split(width, dim=2)
        )
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if visible is not None:
            scores = torch.where(visible, scores, torch.finfo(scores.dtype).min)
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width)
        return torch.addmm(self.c_proj.bias, mixed.reshape(-1, width), self.c_proj.weight).reshape(
            batch, length, width
        )


class LinearFused(nn.Module):
    """qkv and proj as `nn.Linear`, cut as [3, head, dim]."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.count = heads
        self.qkv, self.proj = (
            nn.Linear(d_model, 3 * d_model, bias=False),
            nn.Linear(d_model, d_model),
        )

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.count, -1).permute(2, 0, 3, 1, 4)
        mask = (
            None
            if visible is None
            else torch.zeros(visible.shape, dtype=x.dtype).masked_fill(~visible, float("-inf"))
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(mixed.transpose(1, 2).reshape(batch, length, width))


class FusedByHead(nn.Module):
    """qkv_proj and o_proj, cut as [head, 3·dim]: q, k and v of one head after another."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.count = heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.o_proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        by_head = self.qkv_proj(x).reshape(batch, length, self.count, 3 * width // self.count)
        q, k, v = by_head.permute(0, 2, 1, 3).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if visible is not None:
            scores = scores.masked_fill(~visible, float("-inf"))
        mixed = torch.softmax(scores, -1) @ v
        return self.o_proj(mixed.permute(0, 2, 1, 3).reshape(batch, length, width))


class Torch(nn.Module):
    """torch.nn.MultiheadAttention, called with itself as query, key and value."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        bias: bool = True,
        add_bias_kv: bool = False,
        apart: bool = False,
    ) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(
            d_model, heads, bias=bias, add_bias_kv=add_bias_kv, batch_first=True
        )
        if (
            apart
        ):  # the module keeps the projections apart where the widths differ; here they do not
            whole = self.inner.in_proj_weight
            self.inner.in_proj_weight = None
            self.inner._qkv_same_embed_dim = False
            for name, part in zip("qkv", whole.detach().chunk(3), strict=True):
                setattr(self.inner, f"{name}_proj_weight", nn.Parameter(part.clone()))

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        blocked = None if visible is None else ~visible
        return self.inner(x, x, x, attn_mask=blocked, need_weights=False)[0]


def attended(
    q: Tensor, k: Tensor, v: Tensor, heads: int, visible: Tensor | None, scale: float
) -> Tensor:
    """What every head mixes, side by side. q, k, v: [batch, token, head · dim]."""
    cut_q, cut_k, cut_v = (
        part.reshape(*part.shape[:2], heads, -1).transpose(1, 2) for part in (q, k, v)
    )
    scores = cut_q @ cut_k.transpose(-1, -2) * scale
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    return (torch.softmax(scores, -1) @ cut_v).transpose(1, 2).flatten(2)


class Projections(nn.Module):
    """Four linear maps under any names, q, k, v and perhaps an output; buffers as given.

    names: of the modules, in this order; dots lead into modules, as in "linears.0".
    width: of the projections; None for d_model.
    leaving: the width of the output; None for d_model.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        names: tuple[str, ...],
        *,
        bias: bool = True,
        width: int | None = None,
        leaving: int | None = None,
        buffers: dict[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.count = heads
        self.names = names
        inner = width or d_model
        sizes = [(d_model, inner)] * 3 + [(inner, leaving or d_model)]
        for name, (size, size_2) in zip(names, sizes, strict=False):
            path = name.split(".")
            place: nn.Module = self
            for part in path[:-1]:
                if not hasattr(place, part):
                    place.add_module(part, nn.Module())
                place = place.get_submodule(part)
            place.add_module(path[-1], nn.Linear(size, size_2, bias=bias))
        for name, array in (buffers or {}).items():
            self.register_buffer(name, array)

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        q, k, v = (self.get_submodule(name)(x) for name in self.names[:3])
        scale = (q.shape[-1] // self.count) ** -0.5
        mixed = attended(q, k, v, self.count, visible, scale)
        return mixed if len(self.names) == 3 else self.get_submodule(self.names[3])(mixed)


class LectureHead(nn.Module):
    """A head with key, query and value without bias, and the buffer `tril`."""

    def __init__(self, d_model: int, size: int, longest: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, size, bias=False)
        self.query = nn.Linear(d_model, size, bias=False)
        self.value = nn.Linear(d_model, size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(longest, longest)))

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        length = x.shape[1]
        k, q, v = self.key(x), self.query(x), self.value(x)
        scores = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        if visible is not None:
            scores = scores.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v


class LectureHeads(nn.Module):
    """A list of such heads and `proj` over them."""

    def __init__(self, d_model: int, heads: int, size: int, longest: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList([LectureHead(d_model, size, longest) for _ in range(heads)])
        self.proj = nn.Linear(heads * size, d_model)

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        return self.proj(torch.cat([head(x, visible) for head in self.heads], dim=-1))


class BookHeads(nn.Module):
    """A list of heads with W_query, W_key and W_value, each with the buffer `mask`; no output map."""

    def __init__(self, d_model: int, heads: int, size: int, longest: int) -> None:
        super().__init__()
        later = torch.triu(torch.ones(longest, longest), diagonal=1)
        names = ("W_query", "W_key", "W_value")
        self.heads = nn.ModuleList(
            [
                Projections(
                    d_model, 1, names, bias=False, width=size, buffers={"mask": later.clone()}
                )
                for _ in range(heads)
            ]
        )

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        return torch.cat([head(x, visible) for head in self.heads], dim=-1)


class BookMatrices(nn.Module):
    """W_query, W_key and W_value as bare parameters [d_in, d_out]."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.W_query = nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = nn.Parameter(torch.rand(d_in, d_out))

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        keys, queries, values = x @ self.W_key, x @ self.W_query, x @ self.W_value
        return attended(queries, keys, values, 1, visible, keys.shape[-1] ** -0.5)


class LinearConvolution(nn.Module):
    """c_attn and c_proj as `nn.Linear`, and the buffer `bias` [1, 1, n, n], which is a mask."""

    def __init__(self, d_model: int, heads: int, longest: int) -> None:
        super().__init__()
        self.count = heads
        self.c_attn = nn.Linear(d_model, 3 * d_model)
        self.c_proj = nn.Linear(d_model, d_model)
        lower = torch.tril(torch.ones(longest, longest))
        self.register_buffer("bias", lower.view(1, 1, longest, longest))

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        q, k, v = self.c_attn(x).split(x.shape[-1], dim=2)
        scale = (x.shape[-1] // self.count) ** -0.5
        return self.c_proj(attended(q, k, v, self.count, visible, scale))
