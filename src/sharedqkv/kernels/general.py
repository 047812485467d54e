"""The backward kernel for all other cases: queries of their own, or a rotation between queries and keys.

A program owns M rows. It first looks at all keys with them as queries, then lets all queries look at them as keys and
values; so it finishes every gradient of its rows by itself, and no two programs write to the same place.
"""

# mypy: allow-untyped-defs

import triton
import triton.language as tl

from sharedqkv.kernels.tiles import (
    finish_keys_and_values,
    finish_queries,
    hide,
    keep,
    load_ids,
    load_prepared,
    load_row_bits,
    load_statistic,
    load_tile,
    product,
    product_of_rows,
    reach,
    store_tile,
)


@triton.jit(do_not_specialize=["L"])
def delta_kernel(
    out,
    grad_out,
    delta_ptr,
    H,
    L,
    D: tl.constexpr,
    M: tl.constexpr,
):
    """For each row, the sum over channels of output times gradient."""
    blocks = tl.cdiv(L, M)
    b = tl.program_id(0) // blocks // H
    h = tl.program_id(0) // blocks % H
    rows = tl.program_id(0) % blocks * M + tl.arange(0, M)
    statistics = (b * H + h).to(tl.int64) * L + rows

    context = load_tile(out, b, h, rows, L, D, False).to(tl.float32)
    grad = load_tile(grad_out, b, h, rows, L, D, False).to(tl.float32)
    tl.store(delta_ptr + statistics, tl.sum(context * grad, 1), mask=rows < L)


@triton.jit(do_not_specialize=["L"])
def general_kernel(
    q,
    s,
    grad_out,
    grad_q,
    grad_s,
    lse_ptr,
    delta_ptr,
    scale_grads_ptr,
    scales,
    angles,
    ids,
    dropout,
    H,
    L,
    scaling,
    scale_log2,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    DOT: tl.constexpr,
    SAME: tl.constexpr,
    SCALED: tl.constexpr,
    ROTARY: tl.constexpr,
    SEGMENTED: tl.constexpr,
    CAUSAL: tl.constexpr,
    DROPOUT: tl.constexpr,
    FULL: tl.constexpr,
):
    """GROUP heads of queries share a head of s. With SAME q is s, and its gradient is added to that of s."""
    program = tl.program_id(0)
    blocks = tl.cdiv(L, M)
    block = program % blocks
    b = program // blocks // (H // GROUP)
    g = program // blocks % (H // GROUP)
    rows = block * M + tl.arange(0, M)

    own_values = load_tile(s, b, g, rows, L, D, FULL).to(DOT)
    if SCALED:
        scale_grads_ptr += program.to(tl.int64) * (2 if ROTARY else 1) * D
    own_keys = own_values
    if ROTARY:
        own_keys = load_prepared(s, b, g, rows, scales.key, angles, L, D, SCALED, ROTARY, FULL, DOT)
    own_query_ids = load_ids(ids.query, b, rows, L, SEGMENTED)
    own_key_ids = load_ids(ids.key, b, rows, L, SEGMENTED)
    first_key, last_key = reach(own_query_ids, ids.key, b, L, SEGMENTED, N)
    first_query, last_query = reach(own_key_ids, ids.query, b, L, SEGMENTED, N)
    if CAUSAL:
        last_key = tl.minimum(last_key, (block + 1) * M)
        first_query = tl.maximum(first_query, block * M // N * N)

    value_sum = tl.zeros([M, D], tl.float32)
    key_sum = tl.zeros([M, D], tl.float32)
    query_sum = tl.zeros([M, D], tl.float32)
    for index in range(GROUP):
        h = g * GROUP + index
        # The rows as queries.
        own_queries = load_prepared(q, b, h, rows, scales.query, angles, L, D, SCALED, ROTARY, FULL, DOT)
        own_grads = load_tile(grad_out, b, h, rows, L, D, FULL).to(DOT)
        own_lse = load_statistic(lse_ptr, b, h, H, rows, L)
        own_delta = load_statistic(delta_ptr, b, h, H, rows, L)
        own_bits = load_row_bits(dropout, b, h, H, rows, L, DROPOUT)
        query_sum = tl.zeros([M, D], tl.float32)
        for start in range(first_key, last_key, N):
            columns = start + tl.arange(0, N)
            tile = load_tile(s, b, g, columns, L, D, FULL).to(DOT)
            keys = tile
            if ROTARY:
                keys = load_prepared(s, b, g, columns, scales.key, angles, L, D, SCALED, ROTARY, FULL, DOT)
            key_ids = load_ids(ids.key, b, columns, L, SEGMENTED)
            logits = hide(
                product_of_rows(own_queries, keys) * scale_log2, rows[:, None], columns[None, :],
                own_query_ids[:, None], key_ids[None, :], L, SEGMENTED, CAUSAL, FULL,
            )  # fmt: skip
            weights = tl.exp2(logits - own_lse[:, None])
            grad_weights = product_of_rows(own_grads, tile)
            grad_weights = keep(grad_weights, own_bits[:, None], columns[None, :], dropout, DROPOUT)
            grad_logits = weights * (grad_weights - own_delta[:, None])
            query_sum = product(grad_logits.to(DOT), keys, query_sum)
        query_sum = finish_queries(
            query_sum, q, b, h, rows, scales, angles, scaling, scale_grads_ptr, L, SCALED, ROTARY, FULL
        )
        if not SAME:
            store_tile(grad_q, b, h, rows, query_sum, L, D, FULL)

        # The rows as keys and values.
        for start in range(first_query, last_query, N):
            columns = start + tl.arange(0, N)
            queries = load_prepared(q, b, h, columns, scales.query, angles, L, D, SCALED, ROTARY, FULL, DOT)
            grads = load_tile(grad_out, b, h, columns, L, D, FULL).to(DOT)
            lse = load_statistic(lse_ptr, b, h, H, columns, L)
            delta = load_statistic(delta_ptr, b, h, H, columns, L)
            bits = load_row_bits(dropout, b, h, H, columns, L, DROPOUT)
            query_ids = load_ids(ids.query, b, columns, L, SEGMENTED)
            logits = hide(
                product_of_rows(own_keys, queries) * scale_log2, columns[None, :], rows[:, None],
                query_ids[None, :], own_key_ids[:, None], L, SEGMENTED, CAUSAL, FULL,
            )  # fmt: skip
            weights = tl.exp2(logits - lse[None, :])
            kept = keep(weights, bits[None, :], rows[:, None], dropout, DROPOUT)
            value_sum = product(kept.to(DOT), grads, value_sum)
            grad_weights = product_of_rows(own_values, grads)
            grad_weights = keep(grad_weights, bits[None, :], rows[:, None], dropout, DROPOUT)
            grad_logits = weights * (grad_weights - delta[None, :])
            key_sum = product(grad_logits.to(DOT), queries, key_sum)

    grad = finish_keys_and_values(
        key_sum, value_sum, s, b, g, rows, scales, angles, scaling, scale_grads_ptr, L, SCALED, ROTARY, FULL
    )
    if SAME:
        grad += query_sum
    store_tile(grad_s, b, g, rows, grad, L, D, FULL)


@triton.jit(do_not_specialize=["L"])
def general_head_kernel(
    q,
    s,
    grad_out,
    grad_q,
    grad_s,
    lse_ptr,
    scale_grads_ptr,
    scales,
    angles,
    ids,
    dropout,
    H,
    L,
    scaling,
    scale_log2,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    DOT: tl.constexpr,
    SAME: tl.constexpr,
    SCALED: tl.constexpr,
    ROTARY: tl.constexpr,
    SEGMENTED: tl.constexpr,
    CAUSAL: tl.constexpr,
    DROPOUT: tl.constexpr,
    FULL: tl.constexpr,
):
    """For short rows: a program has a whole head of s, so that five products do, and nothing is read twice."""
    program = tl.program_id(0)
    b = program // (H // GROUP)
    g = program % (H // GROUP)
    rows = tl.arange(0, N)

    tile = load_tile(s, b, g, rows, L, D, FULL).to(DOT)
    if SCALED:
        scale_grads_ptr += program.to(tl.int64) * (2 if ROTARY else 1) * D
    keys = tile
    if ROTARY:
        keys = load_prepared(s, b, g, rows, scales.key, angles, L, D, SCALED, ROTARY, FULL, DOT)
    query_ids = load_ids(ids.query, b, rows, L, SEGMENTED)
    key_ids = load_ids(ids.key, b, rows, L, SEGMENTED)

    value_sum = tl.zeros([N, D], tl.float32)
    key_sum = tl.zeros([N, D], tl.float32)
    query_sum = tl.zeros([N, D], tl.float32)
    for index in range(GROUP):
        h = g * GROUP + index
        queries = load_prepared(q, b, h, rows, scales.query, angles, L, D, SCALED, ROTARY, FULL, DOT)
        grads = load_tile(grad_out, b, h, rows, L, D, FULL).to(DOT)
        lse = load_statistic(lse_ptr, b, h, H, rows, L)
        bits = load_row_bits(dropout, b, h, H, rows, L, DROPOUT)
        logits = hide(
            product_of_rows(queries, keys) * scale_log2, rows[:, None], rows[None, :],
            query_ids[:, None], key_ids[None, :], L, SEGMENTED, CAUSAL, FULL,
        )  # fmt: skip
        weights = tl.exp2(logits - lse[:, None])
        grad_weights = product_of_rows(grads, tile)
        grad_weights = keep(grad_weights, bits[:, None], rows[None, :], dropout, DROPOUT)
        delta = tl.sum(weights * grad_weights, 1)
        grad_logits = (weights * (grad_weights - delta[:, None])).to(DOT)
        kept = keep(weights, bits[:, None], rows[None, :], dropout, DROPOUT).to(DOT)
        value_sum = product(tl.trans(kept), grads, value_sum)
        key_sum = product(tl.trans(grad_logits), queries, key_sum)
        query_sum = product(grad_logits, keys, tl.zeros([N, D], tl.float32))
        query_sum = finish_queries(
            query_sum, q, b, h, rows, scales, angles, scaling, scale_grads_ptr, L, SCALED, ROTARY, FULL
        )
        if not SAME:
            store_tile(grad_q, b, h, rows, query_sum, L, D, FULL)

    grad = finish_keys_and_values(
        key_sum, value_sum, s, b, g, rows, scales, angles, scaling, scale_grads_ptr, L, SCALED, ROTARY, FULL
    )
    if SAME:
        grad += query_sum
    store_tile(grad_s, b, g, rows, grad, L, D, FULL)
