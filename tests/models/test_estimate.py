"""Estimates against counts made by loops, and against what a run reads."""

from attncli.mechanism.spec import Attention, Block, Experts, Mlp, Spec
from attncli.models.estimate import START_SECONDS, StoredSizes, compute_dtype, estimate, with_runs

HEADS, KV, DIM, V_DIM, WIDTH, INNER, LAYERS, TOKENS = 6, 2, 5, 7, 11, 13, 3, 17


def spec(mlp: Mlp | Experts | None = None, layers: int = LAYERS) -> Spec:
    block = Block(Attention(HEADS, KV, DIM, V_DIM, 1.0), mlp=mlp)
    return Spec(family="toy", d_model=WIDTH, vocabulary=19, blocks=(block,) * layers)


def loop_products(inner: int) -> int:
    """Multiply-adds of one layer, one by one; a gated feed-forward part has three matrices."""
    count = 0
    for _ in range(TOKENS):
        count += (
            (HEADS * DIM + KV * DIM + KV * V_DIM) * WIDTH
            + WIDTH * HEADS * V_DIM
            + 3 * WIDTH * inner
        )
        for _ in range(HEADS):
            for _ in range(TOKENS):
                count += DIM + V_DIM
    return count


def test_multiply_adds_are_those_of_loops() -> None:
    fed, last = loop_products(INNER), loop_products(0)  # attention needs nothing of what follows it
    assert (
        estimate(spec(Mlp(INNER, "silu", gated=True)), TOKENS).multiply_adds
        == (LAYERS - 1) * fed + last
    )
    assert estimate(spec(), TOKENS).multiply_adds == LAYERS * loop_products(0)


def test_only_the_chosen_experts_are_computed() -> None:
    router = TOKENS * 4 * WIDTH
    assert estimate(
        spec(Experts(4, 2, INNER, "silu", True), 2), TOKENS
    ).multiply_adds == loop_products(2 * INNER) + router + loop_products(0)


def test_layers_after_the_last_asked_for_cost_nothing() -> None:
    stored = StoredSizes([100, 200, 400], [60, 120, 240], 7)
    assert estimate(spec(), TOKENS, sizes=stored).bytes_read == 460 + 7 * TOKENS
    found = estimate(spec(), TOKENS, sizes=stored, layers=[1])
    assert (found.bytes_read, found.layers) == (180 + 7 * TOKENS, 2)
    assert found.multiply_adds == 2 * loop_products(0)
    assert estimate(spec(), TOKENS, layers=[]).multiply_adds == 0


def test_kept_scores_grow_with_layers_and_stream_by_rows() -> None:
    everything = estimate(spec(), 1009, kept_stages=2).memory
    assert everything["scores that are kept"] == LAYERS * 2 * HEADS * 1009 * 1009 * 4
    assert (
        estimate(spec(), 1009, layers=[2]).memory["scores that are kept"]
        == 2 * HEADS * 1009 * 1009 * 4
    )
    streamed = estimate(spec(), 1009, rows=64).memory
    assert streamed["scores that are kept"] == 0
    assert everything["scores of one layer"] == HEADS * 1009 * 1009 * (
        4 + 1
    )  # and whether each pair is visible
    assert streamed["scores of one layer"] == 8 * HEADS * 1009 * 64 * 4


def test_one_matrix_is_in_memory_or_what_may_share_its_tensor_or_all_experts() -> None:
    def weights(mlp: Mlp | Experts | None, dtype: str = "float32") -> int:
        return estimate(spec(mlp), 3, dtype=dtype).memory["weights at a time"]

    fused = (HEADS * DIM + KV * DIM + KV * V_DIM) * WIDTH
    assert weights(None) == max(fused, HEADS * V_DIM * WIDTH) * 4
    assert weights(Mlp(1009, "silu", gated=True)) == 2 * 1009 * WIDTH * 4
    assert weights(Mlp(1009, "relu")) == 1009 * WIDTH * 4
    assert weights(Experts(5, 2, 1009, "silu", True)) == 5 * 3 * 1009 * WIDTH * 4
    assert weights(None, "float64") == 2 * weights(None)


def test_what_takes_long_in_float32_is_not_computed_in_float64() -> None:
    small, large = spec(Mlp(1009, "silu", gated=True)), spec(Mlp(10_000_019, "silu", gated=True))
    assert compute_dtype(small, 17, "float32") == "float64"
    assert compute_dtype(small, 1_000, "float32") == "float64"
    assert compute_dtype(small, 100_000, "float32") == "float32"  # 2 × 10¹² pairs
    assert compute_dtype(large, 17, "float32") == "float32"  # 10⁹ weights
    assert {compute_dtype(small, 17, dtype) for dtype in ("float64", "bfloat16")} == {
        "float64",
        "bfloat16",
    }


def test_a_layer_is_computed_in_the_type_of_its_model() -> None:
    assert (
        compute_dtype(spec(Mlp(1_000_003, "silu", gated=True), layers=1), 17, "float32")
        == "float64"
    )
    assert compute_dtype(spec(Mlp(1_000_003, "silu", gated=True)), 17, "float32") == "float32"


def test_many_runs_start_the_process_once() -> None:
    single = estimate(spec(Mlp(1_000_003, "silu", gated=True)), TOKENS)
    assert with_runs(single, 1) == single
    assert abs(with_runs(single, 7).seconds - (7 * single.seconds - 6 * START_SECONDS)) < 1e-9
