"""Edges of GPT-2 as loops over torch tensors: the oracle of `attn circuit`. It shares no code with the
package and is written from the published formulas: every reader's input is a sum over writers, one
edge at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

Edge = tuple[str, str, str]
"""From, to, and what the reader reads: q, k, v, mlp or logits."""
Choose = Callable[[Edge, torch.Tensor], torch.Tensor]
"""From an edge and what its writer writes in this run to what the reader gets of it."""


class LoopedGpt2:
    """A GPT-2 whose readers each sum up what they read. runs keep `writes` by node and `inputs` by
    reader."""

    def __init__(self, folder: Path, heads: int) -> None:
        tensors = load_file(folder / "model.safetensors")
        self.weights = {
            name.removeprefix("transformer."): t.double() for name, t in tensors.items()
        }
        self.heads = heads
        self.layers = 1 + max(int(n.split(".")[1]) for n in self.weights if n.startswith("h."))
        self.writes: dict[str, torch.Tensor] = {}
        self.inputs: dict[tuple[str, str], torch.Tensor] = {}

    def embed(self, ids: Sequence[int]) -> torch.Tensor:
        rows = [
            self.weights["wte.weight"][i] + self.weights["wpe.weight"][p] for p, i in enumerate(ids)
        ]
        return torch.stack(rows)

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        rows = []
        for row in x:
            centred = row - row.mean()
            deviation = ((centred**2).mean() + 1e-5) ** 0.5
            rows.append(
                centred / deviation * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
            )
        return torch.stack(rows)

    def read(self, to: str, reads: str, choose: Choose, constant: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(constant) + constant
        for node, written in self.writes.items():
            total = total + choose((node, to, reads), written)
        if total.requires_grad:
            total.retain_grad()
        self.inputs[to, reads] = total
        return total

    def run(self, entering: torch.Tensor, answer: int, versus: int, choose: Choose) -> torch.Tensor:
        """m = logit(answer) − logit(versus) at the last position. entering: [token, width]."""
        weights = self.weights
        count, width = entering.shape
        dim = width // self.heads
        self.writes = {"embed": entering}
        self.inputs = {}
        constant = torch.zeros(count, width, dtype=torch.float64)
        for layer in range(self.layers):
            name = f"h.{layer}"
            matrix, bias = (
                weights[f"{name}.attn.c_attn.weight"],
                weights[f"{name}.attn.c_attn.bias"],
            )
            outputs = {}
            for head in range(self.heads):
                parts = []
                for number, side in enumerate("qkv"):
                    x = self.norm(
                        self.read(f"L{layer}H{head}", side, choose, constant), f"{name}.ln_1"
                    )
                    columns = slice(number * width + head * dim, number * width + (head + 1) * dim)
                    parts.append(x @ matrix[:, columns] + bias[columns])
                q, k, v = parts
                mixed = []
                for i in range(count):
                    scores = torch.stack([q[i] @ k[j] / dim**0.5 for j in range(i + 1)])
                    shares = torch.softmax(scores, 0)
                    mixed.append(sum(shares[j] * v[j] for j in range(i + 1)))
                rows = weights[f"{name}.attn.c_proj.weight"][head * dim : (head + 1) * dim]
                outputs[f"L{layer}H{head}"] = torch.stack(mixed) @ rows
            self.writes |= outputs
            constant = constant + weights[f"{name}.attn.c_proj.bias"]
            x = self.norm(self.read(f"L{layer}MLP", "mlp", choose, constant), f"{name}.ln_2")
            inner = x @ weights[f"{name}.mlp.c_fc.weight"] + weights[f"{name}.mlp.c_fc.bias"]
            inner = (
                0.5
                * inner
                * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (inner + 0.044715 * inner**3)))
            )
            self.writes[f"L{layer}MLP"] = (
                inner @ weights[f"{name}.mlp.c_proj.weight"] + weights[f"{name}.mlp.c_proj.bias"]
            )
        last = self.norm(self.read("logits", "logits", choose, constant), "ln_f")[-1]
        return last @ (weights["wte.weight"][answer] - weights["wte.weight"][versus])


def own(edge: Edge, written: torch.Tensor) -> torch.Tensor:
    """Every reader gets what the writer writes in this run."""
    del edge
    return written


def edge_scores(
    model: LoopedGpt2,
    clean: Sequence[int],
    corrupt: Sequence[int],
    answer: int,
    versus: int,
    steps: int,
) -> dict[Edge, float]:
    """EAP-IG, formula (3) of arXiv 2403.17806: the mean over k = 1..m of
    (u(corrupt) − u(clean))·∂m/∂v at corrupt + k/m (clean − corrupt)."""
    ends = []
    for ids in (clean, corrupt):
        model.run(model.embed(ids), answer, versus, own)
        ends.append(dict(model.writes))
    scores: dict[Edge, float] = {}
    for step in range(1, steps + 1):
        first, last = model.embed(corrupt), model.embed(clean)
        entering = (first + step / steps * (last - first)).requires_grad_()
        model.run(entering, answer, versus, own).backward()
        order = list(model.writes)
        for (to, reads), x in model.inputs.items():
            for node in order:
                if not _is_before(node, to, order, model.heads):
                    continue
                change = ends[1][node] - ends[0][node]
                score = float((change * x.grad).sum()) / steps
                scores[node, to, reads] = scores.get((node, to, reads), 0.0) + score
    return scores


def _is_before(node: str, to: str, order: list[str], heads: int) -> bool:
    """Whether a node has written when another reads; heads of a layer read before any of it writes."""
    if to == "logits":
        return True
    place = order.index(to)
    if to.endswith("MLP"):
        return order.index(node) < place
    return order.index(node) < place - int(to.partition("H")[2])


def replaced_measure(
    model: LoopedGpt2,
    clean: Sequence[int],
    corrupt: Sequence[int],
    answer: int,
    versus: int,
    kept: Callable[[Edge], bool],
) -> float:
    """m of the clean text with every edge that is not kept carrying what its writer wrote in the
    corrupt text's own run."""
    model.run(model.embed(corrupt), answer, versus, own)
    before = dict(model.writes)

    def choose(edge: Edge, written: torch.Tensor) -> torch.Tensor:
        return written if kept(edge) else before[edge[0]]

    return float(model.run(model.embed(clean), answer, versus, choose))


class HookedGpt2:
    """transformers' GPT-2 in float64, read by hooks as the published implementation reads its model:
    what each head, each feed-forward part and the embedding write, and the gradient at what each
    part reads, back through its own copy of the norm."""

    def __init__(self, folder: Path) -> None:
        from transformers import GPT2LMHeadModel

        loaded = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager")
        self.model = loaded.double().eval().requires_grad_(False)
        self.heads = self.model.config.n_head
        self.blocks = self.model.transformer.h
        self.writes: dict[str, torch.Tensor] = {}
        self.entering: dict[str, torch.Tensor] = {}
        self.slopes: dict[str, torch.Tensor] = {}
        for layer, block in enumerate(self.blocks):
            block.ln_1.register_forward_pre_hook(self._keep(f"L{layer}"))
            block.attn.c_attn.register_forward_hook(self._watch(f"L{layer}QKV"))
            block.attn.c_proj.register_forward_pre_hook(self._heads_of(layer))
            block.ln_2.register_forward_pre_hook(self._watch_input(f"L{layer}MLP"))
            block.mlp.register_forward_hook(self._writes_of(f"L{layer}MLP"))
        self.model.transformer.ln_f.register_forward_pre_hook(self._watch_input("logits"))

    def _keep(self, name: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            self.entering[name] = args[0].detach()[0]
            if name == "L0":
                self.writes["embed"] = args[0].detach()[0]

        return hook

    def _slope(self, name: str, x: torch.Tensor) -> torch.Tensor:
        self.slopes[name] = torch.zeros_like(x, requires_grad=True)
        return x + self.slopes[name]

    def _watch(self, name: str) -> Callable[..., torch.Tensor]:
        return lambda module, args, out: self._slope(name, out)

    def _watch_input(self, name: str) -> Callable[..., tuple[torch.Tensor]]:
        return lambda module, args: (self._slope(name, args[0]),)

    def _heads_of(self, layer: int) -> Callable[..., None]:
        def hook(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            parts = args[0].detach()[0].chunk(self.heads, -1)
            for head, (z, rows) in enumerate(
                zip(parts, module.weight.chunk(self.heads, 0), strict=True)
            ):
                self.writes[f"L{layer}H{head}"] = z @ rows

        return hook

    def _writes_of(self, name: str) -> Callable[..., None]:
        def hook(
            module: torch.nn.Module, args: tuple[torch.Tensor, ...], out: torch.Tensor
        ) -> None:
            self.writes[name] = out.detach()[0]

        return hook

    def run(self, vectors: torch.Tensor, answer: int, versus: int) -> torch.Tensor:
        """m of token embeddings without positions, [token, width]."""
        last = self.model(inputs_embeds=vectors[None]).logits[0, -1]
        return last[answer] - last[versus]

    def reader_slopes(self) -> dict[tuple[str, str], torch.Tensor]:
        """The gradient of the last run's m at what each part reads, [token, width]."""
        found = {("logits", "logits"): self.slopes["logits"].grad[0]}
        for layer, block in enumerate(self.blocks):
            found[f"L{layer}MLP", "mlp"] = self.slopes[f"L{layer}MLP"].grad[0]
            columns = self.slopes[f"L{layer}QKV"].grad[0].chunk(3, -1)
            matrices = block.attn.c_attn.weight.chunk(3, -1)
            for side, slope, matrix in zip("qkv", columns, matrices, strict=True):
                apart = zip(slope.chunk(self.heads, -1), matrix.chunk(self.heads, -1), strict=True)
                for head, (part, rows) in enumerate(apart):
                    found[f"L{layer}H{head}", side] = self._before_norm(
                        block.ln_1, self.entering[f"L{layer}"], part @ rows.T
                    )
        return found

    @staticmethod
    def _before_norm(
        norm: torch.nn.LayerNorm, entering: torch.Tensor, slope: torch.Tensor
    ) -> torch.Tensor:
        """A gradient behind a norm taken to before it, [token, width]."""
        x = entering.clone().requires_grad_()
        left = torch.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
        (before,) = torch.autograd.grad(left, x, slope)
        return before

    def edge_scores(
        self, clean: Sequence[int], corrupt: Sequence[int], answer: int, versus: int, steps: int
    ) -> dict[Edge, float]:
        """EAP-IG with inputs: the corrupt embeddings plus k/steps of the difference, k = 1..steps."""
        table = self.model.transformer.wte.weight
        ends = []
        for ids in (clean, corrupt):
            self.run(table[list(ids)], answer, versus)
            ends.append(dict(self.writes))
        order = list(ends[0])
        sums: dict[tuple[str, str], torch.Tensor] = {}
        for step in range(1, steps + 1):
            first, last = table[list(corrupt)], table[list(clean)]
            self.run(first + step / steps * (last - first), answer, versus).backward()
            for reader, slope in self.reader_slopes().items():
                sums[reader] = sums.get(reader, torch.zeros_like(slope)) + slope
        return {
            (node, to, reads): float(((ends[1][node] - ends[0][node]) * slope).sum()) / steps
            for (to, reads), slope in sums.items()
            for node in order
            if _is_before(node, to, order, self.heads)
        }
