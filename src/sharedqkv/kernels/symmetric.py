"""The backward kernels for queries, keys and values that are one tensor, without a rotation.

Logits are then symmetric, a = s diag(c) sᵀ, so that one product gives the weights of rows looking at columns and of
columns looking at rows. A program owns M rows and finishes their gradient in all three roles by itself. With
P = softmax(a), G the gradient of the output and Z = P ∘ (G vᵀ - delta) that of the logits it is

    Pᵀ G ∘ output scale + (Z + Zᵀ) s ∘ c.
"""

# mypy: allow-untyped-defs

import triton
import triton.language as tl

from sharedqkv.kernels.tiles import (
    finish_symmetric,
    hide,
    keep,
    load_ids,
    load_row_bits,
    load_scale,
    load_statistic,
    load_tile,
    product,
    product_of_rows,
    reach,
    scale_channels,
    store_tile,
)


@triton.jit(do_not_specialize=["L"])
def symmetric_kernel(
    s,
    grad_out,
    grad_s,
    lse_ptr,
    looking_delta_ptr,
    seen_delta_ptr,
    scale_grads_ptr,
    scales,
    ids,
    dropout,
    H,
    L,
    scaling,
    scale_log2,
    D: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    DOT: tl.constexpr,
    SCALED: tl.constexpr,
    SEGMENTED: tl.constexpr,
    CAUSAL: tl.constexpr,
    DROPOUT: tl.constexpr,
    FULL: tl.constexpr,
):
    program = tl.program_id(0)
    blocks = tl.cdiv(L, M)
    b = program // blocks // H
    h = program // blocks % H
    rows = program % blocks * M + tl.arange(0, M)
    if SCALED:
        scale_grads_ptr += program.to(tl.int64) * 2 * D

    own = load_tile(s, b, h, rows, L, D, FULL)
    own_grad = load_tile(grad_out, b, h, rows, L, D, FULL)
    query_scale = load_scale(scales.query, h, D, SCALED)
    output_scale = load_scale(scales.output, h, D, SCALED)
    # Scales go onto what stays, so that what is streamed enters the products as it is.
    own_logit_side = scale_channels(own, query_scale, SCALED, DOT)
    own_value_side = scale_channels(own, output_scale, SCALED, DOT)
    own_grad_side = scale_channels(own_grad, output_scale, SCALED, DOT)

    own_lse = load_statistic(lse_ptr, b, h, H, rows, L)
    own_delta = load_statistic(looking_delta_ptr, b, h, H, rows, L)
    own_bits = load_row_bits(dropout, b, h, H, rows, L, DROPOUT)
    own_query_ids = load_ids(ids.query, b, rows, L, SEGMENTED)
    own_key_ids = load_ids(ids.key, b, rows, L, SEGMENTED)
    first, last = reach(own_query_ids, ids.key, b, L, SEGMENTED, N)
    first_query, last_query = reach(own_key_ids, ids.query, b, L, SEGMENTED, N)
    first = tl.minimum(first, first_query)
    last = tl.maximum(last, last_query)

    value_sum = tl.zeros([M, D], tl.float32)
    logit_sum = tl.zeros([M, D], tl.float32)
    for start in range(first, last, N):
        columns = start + tl.arange(0, N)
        other = load_tile(s, b, h, columns, L, D, FULL).to(DOT)
        other_grad = load_tile(grad_out, b, h, columns, L, D, FULL).to(DOT)
        lse = load_statistic(lse_ptr, b, h, H, columns, L)
        delta = load_statistic(seen_delta_ptr, b, h, H, columns, L)
        bits = load_row_bits(dropout, b, h, H, columns, L, DROPOUT)
        query_ids = load_ids(ids.query, b, columns, L, SEGMENTED)
        key_ids = load_ids(ids.key, b, columns, L, SEGMENTED)
        logits = product_of_rows(own_logit_side, other) * scale_log2

        # Columns looking at rows: the weights with which the rows are values.
        seen = hide(
            logits, columns[None, :], rows[:, None], query_ids[None, :], own_key_ids[:, None],
            L, SEGMENTED, CAUSAL, FULL,
        )  # fmt: skip
        weights = tl.exp2(seen - lse[None, :])
        kept = keep(weights, bits[None, :], rows[:, None], dropout, DROPOUT)
        value_sum = product(kept.to(DOT), other_grad, value_sum)
        grad_weights = product_of_rows(own_value_side, other_grad)
        grad_weights = keep(grad_weights, bits[None, :], rows[:, None], dropout, DROPOUT)
        grad_logits = weights * (grad_weights - delta[None, :])

        # Rows looking at columns.
        looking = hide(
            logits, rows[:, None], columns[None, :], own_query_ids[:, None], key_ids[None, :],
            L, SEGMENTED, CAUSAL, FULL,
        )  # fmt: skip
        weights = tl.exp2(looking - own_lse[:, None])
        grad_weights = product_of_rows(own_grad_side, other)
        grad_weights = keep(grad_weights, own_bits[:, None], columns[None, :], dropout, DROPOUT)
        grad_logits += weights * (grad_weights - own_delta[:, None])
        logit_sum = product(grad_logits.to(DOT), other, logit_sum)

    grad = finish_symmetric(logit_sum, value_sum, s, b, h, rows, scales, scaling, scale_grads_ptr, L, SCALED, FULL)
    store_tile(grad_s, b, h, rows, grad, L, D, FULL)


@triton.jit(do_not_specialize=["L"])
def symmetric_head_kernel(
    s,
    grad_out,
    grad_s,
    lse_ptr,
    scale_grads_ptr,
    scales,
    ids,
    dropout,
    H,
    L,
    scaling,
    scale_log2,
    D: tl.constexpr,
    N: tl.constexpr,
    DOT: tl.constexpr,
    SCALED: tl.constexpr,
    SEGMENTED: tl.constexpr,
    CAUSAL: tl.constexpr,
    DROPOUT: tl.constexpr,
    FULL: tl.constexpr,
):
    """For short rows: a program has a whole head, so that four products do, and nothing is read twice."""
    program = tl.program_id(0)
    b = program // H
    h = program % H
    rows = tl.arange(0, N)
    if SCALED:
        scale_grads_ptr += program.to(tl.int64) * 2 * D

    tile = load_tile(s, b, h, rows, L, D, FULL).to(DOT)
    grads = load_tile(grad_out, b, h, rows, L, D, FULL).to(DOT)
    # On the right side of the products scaled tiles lie in shared memory, on the left they would take registers.
    keys = scale_channels(tile, load_scale(scales.query, h, D, SCALED), SCALED, DOT)
    values = scale_channels(tile, load_scale(scales.output, h, D, SCALED), SCALED, DOT)
    lse = load_statistic(lse_ptr, b, h, H, rows, L)
    bits = load_row_bits(dropout, b, h, H, rows, L, DROPOUT)
    query_ids = load_ids(ids.query, b, rows, L, SEGMENTED)
    key_ids = load_ids(ids.key, b, rows, L, SEGMENTED)

    logits = hide(
        product_of_rows(tile, keys) * scale_log2, rows[:, None], rows[None, :],
        query_ids[:, None], key_ids[None, :], L, SEGMENTED, CAUSAL, FULL,
    )  # fmt: skip
    weights = tl.exp2(logits - lse[:, None])
    grad_weights = keep(product_of_rows(grads, values), bits[:, None], rows[None, :], dropout, DROPOUT)
    delta = tl.sum(weights * grad_weights, 1)
    grad_logits = (weights * (grad_weights - delta[:, None])).to(DOT)
    kept = keep(weights, bits[:, None], rows[None, :], dropout, DROPOUT).to(DOT)
    value_sum = product(tl.trans(kept), grads, tl.zeros([N, D], tl.float32))
    logit_sum = product(grad_logits + tl.trans(grad_logits), tile, tl.zeros([N, D], tl.float32))
    grad = finish_symmetric(logit_sum, value_sum, s, b, h, rows, scales, scaling, scale_grads_ptr, L, SCALED, FULL)
    store_tile(grad_s, b, h, rows, grad, L, D, FULL)
