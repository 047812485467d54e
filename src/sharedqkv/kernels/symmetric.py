"""The backward kernels for queries, keys and values that are one tensor, without a rotation.

Logits are then symmetric, a = s diag(c) sᵀ, so that one product gives the weights of rows looking at columns and of
columns looking at rows. A program owns M rows and finishes their gradient in all three roles by itself. With
P = softmax(a), G the gradient of the output and Z = P ∘ (G vᵀ - delta) that of the logits it is

    Pᵀ G + (Z + Zᵀ) s ∘ c.
"""

# mypy: allow-untyped-defs

import triton
import triton.language as tl

from sharedqkv.kernels.tiles import (
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
    store_sum_of_rows,
    store_tile,
    through_memory,
)


@triton.jit(do_not_specialize=["L"])
def symmetric_kernel(
    s,
    grad_out,
    grad_s,
    lse_ptr,
    delta_ptr,
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
        scale_grads_ptr += program.to(tl.int64) * D

    own = load_tile(s, b, h, rows, L, D, FULL).to(DOT)
    own_grad = load_tile(grad_out, b, h, rows, L, D, FULL).to(DOT)
    # The scale goes onto what stays, so that what is streamed enters the products as it is.
    own_queries = scale_channels(own, load_scale(scales.query, h, D, SCALED), SCALED, DOT)
    if SCALED:
        own_queries = through_memory(grad_s, b, h, rows, own_queries, L, D, FULL, DOT)

    own_lse = load_statistic(lse_ptr, b, h, H, rows, L)
    own_delta = load_statistic(delta_ptr, b, h, H, rows, L)
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
        delta = load_statistic(delta_ptr, b, h, H, columns, L)
        bits = load_row_bits(dropout, b, h, H, columns, L, DROPOUT)
        query_ids = load_ids(ids.query, b, columns, L, SEGMENTED)
        key_ids = load_ids(ids.key, b, columns, L, SEGMENTED)
        logits = product_of_rows(own_queries, other) * scale_log2

        # Columns looking at rows: the weights with which the rows are values.
        seen = hide(
            logits, columns[None, :], rows[:, None], query_ids[None, :], own_key_ids[:, None],
            L, SEGMENTED, CAUSAL, FULL,
        )  # fmt: skip
        weights = tl.exp2(seen - lse[None, :])
        kept = keep(weights, bits[None, :], rows[:, None], dropout, DROPOUT)
        value_sum = product(kept.to(DOT), other_grad, value_sum)
        grad_weights = product_of_rows(own, other_grad)
        grad_weights = keep(grad_weights, bits[None, :], rows[:, None], dropout, DROPOUT)
        grad_logits = weights * (grad_weights - delta[None, :])

        # Rows looking at columns.
        looking = hide(
            logits, rows[:, None], columns[None, :], own_query_ids[:, None], key_ids[None, :],
            L, SEGMENTED, CAUSAL, FULL,
        )  # fmt: skip
        weights = tl.exp2(looking - own_lse[:, None])
        grad_weights = product_of_rows(own_grad, other)
        grad_weights = keep(grad_weights, own_bits[:, None], columns[None, :], dropout, DROPOUT)
        grad_logits += weights * (grad_weights - own_delta[:, None])
        logit_sum = product(grad_logits.to(DOT), other, logit_sum)

    grad = logit_sum * scaling
    if SCALED:
        tile = load_tile(s, b, h, rows, L, D, FULL, AGAIN=True).to(tl.float32)
        # Every pair of rows is met twice, once from each side.
        store_sum_of_rows(scale_grads_ptr, tile * grad * 0.5)
        grad = grad * load_scale(scales.query, h, D, SCALED, AGAIN=True)[None, :]
    store_tile(grad_s, b, h, rows, grad + value_sum, L, D, FULL)


@triton.jit(do_not_specialize=["B", "L", "programs"])
def symmetric_head_kernel(
    s,
    grad_out,
    grad_s,
    lse_ptr,
    scale_grads_ptr,
    scales,
    ids,
    dropout,
    B,
    H,
    L,
    scaling,
    scale_log2,
    programs,
    STAGES: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    DOT: tl.constexpr,
    SCALED: tl.constexpr,
    SEGMENTED: tl.constexpr,
    CAUSAL: tl.constexpr,
    DROPOUT: tl.constexpr,
    FULL: tl.constexpr,
):
    """For short rows: a tile holds a whole head, so that four products do, and nothing is read twice.

    Several programs share the batches of a head. Each fetches those to come while it works on one, and sums the
    gradient of the scale in registers to the end.
    """
    h = tl.program_id(0) % H
    rows = tl.arange(0, N)
    scale = load_scale(scales.query, h, D, SCALED)
    scale_sum = tl.zeros([N, D], tl.float32)
    for b in tl.range(tl.program_id(0) // H, B, programs, num_stages=STAGES):
        b = tl.cast(b, tl.int32)  # the interpreter counts in Python's numbers
        tile = load_tile(s, b, h, rows, L, D, FULL).to(DOT)
        grads = load_tile(grad_out, b, h, rows, L, D, FULL).to(DOT)
        lse = load_statistic(lse_ptr, b, h, H, rows, L)
        bits = load_row_bits(dropout, b, h, H, rows, L, DROPOUT)
        query_ids = load_ids(ids.query, b, rows, L, SEGMENTED)
        key_ids = load_ids(ids.key, b, rows, L, SEGMENTED)
        # On the right side of the product the scaled tile lies in shared memory, on the left it would take registers.
        keys = scale_channels(tile, scale, SCALED, DOT)

        logits = hide(
            product_of_rows(tile, keys) * scale_log2, rows[:, None], rows[None, :],
            query_ids[:, None], key_ids[None, :], L, SEGMENTED, CAUSAL, FULL,
        )  # fmt: skip
        weights = tl.exp2(logits - lse[:, None])
        grad_weights = keep(product_of_rows(grads, tile), bits[:, None], rows[None, :], dropout, DROPOUT)
        delta = tl.sum(weights * grad_weights, 1)
        grad_logits = (weights * (grad_weights - delta[:, None])).to(DOT)
        kept = keep(weights, bits[:, None], rows[None, :], dropout, DROPOUT).to(DOT)
        value_sum = product(tl.trans(kept), grads, tl.zeros([N, D], tl.float32))
        logit_sum = product(grad_logits + tl.trans(grad_logits), tile, tl.zeros([N, D], tl.float32))
        grad = logit_sum * scaling
        if SCALED:
            scale_sum += tile.to(tl.float32) * grad
            grad = grad * scale[None, :]
        store_tile(grad_s, b, h, rows, grad + value_sum, L, D, FULL)
    if SCALED:
        # Every pair of rows was met twice, once from each side.
        store_sum_of_rows(scale_grads_ptr + tl.program_id(0) * D, scale_sum * 0.5)
