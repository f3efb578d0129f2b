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
