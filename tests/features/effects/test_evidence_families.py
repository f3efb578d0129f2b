"""What evidence says, against transformers with hooks in float64: heads taken away, in all and with
attention held; what comes next, without heads and with attention weighed; and a difference of two
logits by word. For ten families of decoders and two real models.

The oracle runs transformers' own modules and shares nothing with the code under test but the
reference that loads them and keeps their casts in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hooked_transformers import Holding, Weighed, mixing, projections
from tiny_checkpoints import CASES, Case, make

import attncli
from attncli.inputs.token import Token
from attncli.mechanism.spec import HeadSelection
from attncli.models.aliases import local_folder
from attncli.models.model import Model
from attncli.models.verify import reference_model

FAMILIES = (
    "llama", "gpt2", "gemma2", "gemma3_text", "qwen2", "qwen3", "gpt_neox", "phi", "mistral", "falcon alibi",
)  # fmt: skip
"""Grouped queries, windows, soft caps, norms after and within, parallel blocks, biases, ALiBi."""
REAL = ("gemma3", "smollm2")
IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13)
SENTENCE = "After John and Mary went to the store, John gave a drink to"
KEYS = (1, 2)
TARGET, VERSUS = 19, 4
FACTORS = (0.25, 4.0)
LIMIT = 1e-9
ACTIVATIONS = ("act_fn", "act", "activation_fn")
"""How families call the activation of their feed-forward part."""


class Freezing(torch.overrides.TorchFunctionMode):
    """Within, attention weights and what norms divide by are numbers without a gradient."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.nn.functional.layer_norm:
            return self._layer_norm(*args, **kwargs)
        result = function(*args, **kwargs)
        if getattr(function, "__name__", "") in ("softmax", "rsqrt"):
            return result.detach()
        return result

    def _layer_norm(
        self, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
    ) -> Any:
        del shape
        centred = x - x.mean(-1, keepdim=True)
        linear = centred / ((centred**2).mean(-1, keepdim=True) + eps).sqrt().detach()
        return linear * (1 if weight is None else weight) + (0 if bias is None else bias)


class Held(torch.nn.Module):
    """An activation without a gradient: a gate as a whole, else the share that it lets through."""

    def __init__(self, activation: Any, *, gates: bool) -> None:
        super().__init__()
        self.activation, self.gates = activation, gates

    def forward(self, x: Any) -> Any:
        value = self.activation(x).detach()
        return value if self.gates else x * (value / x).detach()


@contextmanager
def frozen(model: Any) -> Iterator[None]:
    """Within, a model is linear in what enters its first layer."""
    with ExitStack() as stack:
        for module in list(model.modules()):
            for name in ACTIVATIONS:
                own = getattr(module, name, None)
                if callable(own):
                    delattr(module, name)
                    setattr(module, name, Held(own, gates=hasattr(module, "gate_proj")))
                    stack.callback(setattr, module, name, own)
                    stack.callback(delattr, module, name)
        stack.enter_context(Freezing())
        stack.enter_context(torch.enable_grad())
        yield


@dataclass(frozen=True)
class Oracle:
    """A model of transformers without its head, and that: [vocabulary, width], bias, soft cap."""

    model: Any
    ids: tuple[int, ...]
    matrix: Any
    bias: Any
    cap: float | None
    heads: list[int]
    target: int
    versus: int

    def vector(self) -> Any:
        """What leaves the last layer after the final norm, of the last token."""
        return self.model(torch.tensor([self.ids]), use_cache=False).last_hidden_state[0, -1]

    def difference(self, *within: Any) -> float:
        """The difference of two logits before the soft cap, in these contexts."""
        scores = self._bare(*within)
        return float(scores[self.target] - scores[self.versus])

    def probabilities(self, *within: Any) -> np.ndarray:
        """Of what comes next, [vocabulary], in these contexts."""
        scores = self._bare(*within)
        if self.cap is not None:
            scores = np.tanh(scores / self.cap) * self.cap
        shares = np.exp(scores - scores.max())
        return shares / shares.sum()

    def _bare(self, *within: Any) -> np.ndarray:
        with ExitStack() as stack:
            for context in within:
                stack.enter_context(context)
            vector = self.vector()
        return (self.matrix @ vector + self.bias).detach().double().numpy()

    def without(self, places: list[tuple[int, int]]) -> list[Any]:
        """The contexts in which these heads write nothing."""
        used = projections(self.model, self.vector)

        def zero(layer: int, head: int) -> Any:
            def change(z: np.ndarray) -> np.ndarray:
                z[head] = 0
                return z

            return mixing(used[layer, "self"], change, self.heads[layer])

        return [zero(*place) for place in places]

    def by_token(self) -> np.ndarray:
        """What each token adds to the difference, [token], with all else held."""
        entering: list[Any] = []

        def enter(module: Any, args: Any, kwargs: Any) -> Any:
            x = (args[0] if args else kwargs["hidden_states"]).detach().requires_grad_()
            entering.append(x)
            if args:
                return (x, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": x}

        layers = next(
            getattr(self.model, name) for name in ("layers", "h") if hasattr(self.model, name)
        )
        handle = layers[0].register_forward_pre_hook(enter, with_kwargs=True)
        with frozen(self.model):
            vector = self.vector()
            value = (self.matrix[self.target] - self.matrix[self.versus]) @ vector
            (slope,) = torch.autograd.grad(value, entering)
        handle.remove()
        return (slope * entering[0]).sum(-1)[0].detach().double().numpy()


@contextmanager
def oracle(
    folder: Path, model: Model, ids: tuple[int, ...], target: int, versus: int
) -> Iterator[Oracle]:
    """The oracle of a checkpoint; of a GGUF file one whose output matrix is the token table."""
    head = None
    if folder.is_dir():
        import transformers

        whole: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager"
        )
        head = whole.get_output_embeddings()
    with reference_model(folder, both=False) as base:
        table = base.get_input_embeddings() if head is None else head
        bias = getattr(table, "bias", None)
        yield Oracle(
            base,
            ids,
            table.weight.detach(),
            0 if bias is None else bias.detach(),
            getattr(base.config, "final_logit_softcapping", None),
            [block.attention.heads for block in model.spec.blocks],
            target,
            versus,
        )


def apart(
    known: Oracle, model: Model, tokens: list[Token], places: list[tuple[int, int]]
) -> dict[str, float]:
    """The largest difference from transformers of each answer, and how far its negative control is
    from it: the same of another head, of another region, of another word, or without the change."""
    far: dict[str, float] = {}
    target, versus = f"id:{known.target}", f"id:{known.versus}"
    own = known.difference(recording := Holding())
    document = attncli.ablate(
        model, "", tokens=tokens, target=target, versus=versus, hold="attention", baseline="none",
        heads=HeadSelection(pairs=places), predict=False,
    )  # fmt: skip
    rows = {(row.layer, row.head): row.difference for row in document.effects}
    lost, held = [], []
    for place in places:
        lost.append(own - known.difference(*known.without([place])))
        held.append(own - known.difference(*known.without([place]), Holding(recording.seen)))
    ours = np.asarray([rows[place].all for place in places])
    ours_held = np.asarray([rows[place].writes for place in places])
    far["m"] = abs(document.m_clean - own)
    far["ablate"] = float(np.abs(ours - lost).max())
    far["held"] = float(np.abs(ours_held - held).max())
    assert np.abs(np.roll(ours, 1) - lost).max() > 1e-4
    assert np.abs(ours - held).max() > 1e-4

    first = places[:2]
    plain = attncli.next_word(model, "", tokens=tokens, target=target, without=first)
    shares = known.probabilities()
    without = known.probabilities(*known.without(first))
    far["next"] = float(
        max(
            *(abs(row.probability - shares[row.token.id]) for row in plain.top),
            abs(plain.target.probability - shares[known.target]),
            *(abs(row.probability - without[row.token.id]) for row in plain.without.top),
            abs(plain.without.target.probability - without[known.target]),
        )
    )
    assert np.abs(shares - without).max() > 1e-5

    of_doses = []
    for factor in FACTORS:
        weighed = attncli.next_word(
            model, "", tokens=tokens, target=target, weigh=f"#{KEYS[0]}-{KEYS[1]}=×{factor}"
        )
        every = list(range(max(known.heads)))
        changed = known.probabilities(Weighed(KEYS, every, factor))
        dose = next(dose for dose in weighed.doses if dose.factor == factor)
        of_doses.append(abs(dose.probability - changed[known.target]))
        assert abs(shares[known.target] - changed[known.target]) > 1e-7
    far["weigh"] = float(max(of_doses))

    words = attncli.logits(model, "", tokens=tokens, target=target, versus=versus, by="word").words
    by_token = known.by_token()
    by_word = np.asarray([by_token[word.first : word.last + 1].sum() for word in words.words])
    values = np.asarray([word.value for word in words.words])
    far["by word"] = float(np.abs(values - by_word).max())
    far["sum"] = abs(words.sum - own)
    assert np.abs(np.roll(values, 1) - by_word).max() > 1e-4
    return far


def check(far: dict[str, float], limit: float) -> None:
    """Every answer is as near as that; the farthest is named."""
    answer = max(far, key=lambda name: far[name])
    assert far[answer] < limit, f"{answer} is {far[answer]:.1e} from transformers"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "gemma2" else pytest.mark.thorough)
        for name in FAMILIES
    ],
)
def test_ten_families(name: str, tmp_path: Path) -> None:
    case = Case(CASES[name].model_type, CASES[name].config, "AutoModelForCausalLM")
    folder = make(case, tmp_path / "model")
    model = attncli.load(folder, dtype="float64")
    tokens = model.tokenizer.ids_to_tokens(IDS)
    places = [
        (layer, head)
        for layer, block in enumerate(model.spec.blocks)
        for head in range(block.attention.heads)
    ]
    with oracle(folder, model, IDS, TARGET, VERSUS) as known:
        check(apart(known, model, tokens, places), LIMIT)


@pytest.mark.thorough
@pytest.mark.parametrize("name", REAL)
def test_two_real_models(name: str) -> None:
    """One head of every layer."""
    if (file := local_folder(name)) is None:
        pytest.skip(f"the packages of {name} are not installed")
    model = attncli.load(name, dtype="float64", backend="numpy", hold=True)
    tokens = model.encode(SENTENCE)
    ids = tuple(token.id for token in tokens)
    target, versus = (model.tokenizer.encode(f" {word}")[-1].id for word in ("Mary", "John"))
    places = [
        (layer, layer % block.attention.heads) for layer, block in enumerate(model.spec.blocks)
    ]
    with oracle(file, model, ids, target, versus) as known:
        check(apart(known, model, tokens, places), LIMIT)
