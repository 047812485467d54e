"""The forward kernel: softmax(q sᵀ) s, a tile of s serving as keys and as values."""

# mypy: allow-untyped-defs

import triton
import triton.language as tl

from sharedqkv.kernels.tiles import (
    hide,
    keep,
    load_ids,
    load_prepared,
    load_row_bits,
    load_tile,
    product,
    product_of_rows,
    reach,
    store_tile,
    through_memory,
)


@triton.jit(do_not_specialize=["L"])
def forward_kernel(
    q,
    s,
    out,
    lse_ptr,
    scales,
    angles,
    ids,
    dropout,
    H,
    L,
    scale_log2,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    DOT: tl.constexpr,
    SCALED: tl.constexpr,
    ROTARY: tl.constexpr,
    SEGMENTED: tl.constexpr,
    CAUSAL: tl.constexpr,
    DROPOUT: tl.constexpr,
    FULL: tl.constexpr,
    ONE_TILE: tl.constexpr,
):
    """A program owns M queries of one head; with ONE_TILE one tile holds all keys."""
    blocks = tl.cdiv(L, M)
    block = tl.program_id(0) % blocks
    b = tl.program_id(0) // blocks // H
    h = tl.program_id(0) // blocks % H
    rows = block * M + tl.arange(0, M)

    queries = load_prepared(q, b, h, rows, scales.query, angles, L, D, SCALED, ROTARY, FULL, DOT)
    if (SCALED or ROTARY) and not ONE_TILE:
        queries = through_memory(out, b, h, rows, queries, L, D, FULL, DOT)
    query_ids = load_ids(ids.query, b, rows, L, SEGMENTED)
    row_bits = load_row_bits(dropout, b, h, H, rows, L, DROPOUT)

    peak = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    context = tl.zeros([M, D], tl.float32)
    first, last = reach(query_ids, ids.key, b, L, SEGMENTED and not ONE_TILE, N)
    if CAUSAL:
        last = tl.minimum(last, (block + 1) * M)
    if ONE_TILE:  # bounds known while compiling: no loop is left
        first = 0
        last = N
    for start in range(first, last, N):
        columns = start + tl.arange(0, N)
        tile = load_tile(s, b, h // GROUP, columns, L, D, FULL).to(DOT)
        keys = tile
        if ROTARY:
            keys = load_prepared(s, b, h // GROUP, columns, scales.key, angles, L, D, SCALED, ROTARY, FULL, DOT)
        logits = product_of_rows(queries, keys)
        key_ids = load_ids(ids.key, b, columns, L, SEGMENTED)
        logits = hide(
            logits, rows[:, None], columns[None, :], query_ids[:, None], key_ids[None, :], L, SEGMENTED, CAUSAL, FULL
        )
        # Rows that have seen no key yet are at -inf, and must not subtract it from itself.
        higher = tl.maximum(peak, tl.max(logits, 1) * scale_log2)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(logits * scale_log2 - shift[:, None])
        shrink = tl.exp2(peak - shift)
        total = total * shrink + tl.sum(weights, 1)
        weights = keep(weights, row_bits[:, None], columns[None, :], dropout, DROPOUT)
        context = product(weights.to(DOT), tile, context * shrink[:, None])
        peak = higher

    # A row that sees no key has nothing to say: zeros, and a logsumexp its gradients come out zero with.
    seen = total > 0
    total = tl.where(seen, total, 1.0)
    context = context * (1 / total)[:, None]
    store_tile(out, b, h, rows, context, L, D, FULL)
    lse = tl.where(seen, peak + tl.log2(total), 0.0)
    tl.store(lse_ptr + (b * H + h).to(tl.int64) * L + rows, lse, mask=rows < L)
