"""Pieces the attention kernels are made of: tiles of rows, rotation, masks, dropout, the end of a backward kernel.

In all kernels M rows belong to a program, which goes through the others N at a time; D is the head size. Tensors come
as named tuples, of pointers where the kernel needs no strides.
"""

# mypy: allow-untyped-defs
# Triton takes annotations of kernels for its own types.

from typing import Any, NamedTuple

import triton
import triton.language as tl

from sharedqkv.kernels.segments import HIDDEN_KEY

_HIDDEN = tl.constexpr(HIDDEN_KEY)
_LARGEST_ID = tl.constexpr(2**31 - 1)


class Rows(NamedTuple):
    """A tensor of rows for each batch and head, channels side by side, and its other strides."""

    pointer: Any
    batch: int
    head: int
    row: int


class Scales(NamedTuple):
    """One number a head and channel, for queries and, under a rotation, for keys."""

    query: Any
    key: Any


class Angles(NamedTuple):
    """cos and sin, both (B or 1, L, D), and the stride of their batches."""

    cos: Any
    sin: Any
    batch: int


class Ids(NamedTuple):
    """A query sees the keys of its own id; both (B, L)."""

    query: Any
    key: Any


class Dropout(NamedTuple):
    """Weights whose 31 random bits are under the threshold go, the others are multiplied by `rescale`."""

    seed: Any
    threshold: int
    rescale: float


@triton.jit
def head_of(rows, b, h):
    # 64 bits, for batches of more than 2**31 elements.
    return rows.pointer + b.to(tl.int64) * rows.batch + h * rows.head


@triton.jit
def load_tile(tensor, b, h, rows, L, D: tl.constexpr, FULL: tl.constexpr, AGAIN: tl.constexpr = False):
    """Rows of one head; zeros behind the last unless all are known to be there (FULL).

    AGAIN is for a tile that was loaded before the loop and is needed after it: the compiler takes loads with another
    policy for different ones, so that the tile does not occupy registers in between.
    """
    POLICY: tl.constexpr = "evict_first" if AGAIN else ""
    pointers = head_of(tensor, b, h) + rows[:, None] * tensor.row + tl.arange(0, D)[None, :]
    if FULL:
        tile = tl.load(pointers, eviction_policy=POLICY)
    else:
        tile = tl.load(pointers, mask=rows[:, None] < L, other=0.0, eviction_policy=POLICY)
    return tile


@triton.jit
def store_tile(tensor, b, h, rows, tile, L, D: tl.constexpr, FULL: tl.constexpr):
    pointers = head_of(tensor, b, h) + rows[:, None] * tensor.row + tl.arange(0, D)[None, :]
    if FULL:
        tl.store(pointers, tile.to(tensor.pointer.dtype.element_ty))
    else:
        tl.store(pointers, tile.to(tensor.pointer.dtype.element_ty), mask=rows[:, None] < L)


@triton.jit
def through_memory(tensor, b, h, rows, tile, L, D: tl.constexpr, FULL: tl.constexpr, DOT: tl.constexpr):
    """The tile, by way of rows of `tensor` that this program alone writes to, later.

    What comes straight from memory lies in shared memory for the left side of a product. What was computed is brought
    into registers again for every product of a loop, and the products no longer overlap.
    """
    store_tile(tensor, b, h, rows, tile, L, D, FULL)
    tl.debug_barrier()
    return load_tile(tensor, b, h, rows, L, D, FULL).to(DOT)


@triton.jit
def load_statistic(pointer, b, h, H, rows, L):
    """One number a row, from a (B, H, L) tensor."""
    return tl.load(pointer + (b * H + h).to(tl.int64) * L + rows, mask=rows < L, other=0.0)


@triton.jit
def load_scale(pointer, h, D: tl.constexpr, SCALED: tl.constexpr, AGAIN: tl.constexpr = False):
    if SCALED:
        POLICY: tl.constexpr = "evict_first" if AGAIN else ""
        scale = tl.load(pointer + h * D + tl.arange(0, D), eviction_policy=POLICY).to(tl.float32)
    else:
        scale = tl.full([D], 1.0, tl.float32)
    return scale


@triton.jit
def load_angles(angles, b, rows, L, D: tl.constexpr):
    offsets = b.to(tl.int64) * angles.batch + rows[:, None] * D + tl.arange(0, D)[None, :]
    cos = tl.load(angles.cos + offsets, mask=rows[:, None] < L, other=1.0).to(tl.float32)
    sin = tl.load(angles.sin + offsets, mask=rows[:, None] < L, other=0.0).to(tl.float32)
    return cos, sin


@triton.jit
def load_ids(pointer, b, rows, L, SEGMENTED: tl.constexpr):
    # Rows behind the last repeat it, so that they widen no range; `hide` knows them by their position.
    return tl.load(pointer + b.to(tl.int64) * L + tl.minimum(rows, L - 1)) if SEGMENTED else rows


@triton.jit
def scale_channels(tile, scale, SCALED: tl.constexpr, DOT: tl.constexpr):
    if SCALED:
        tile = tile.to(tl.float32) * scale[None, :]
    return tile.to(DOT)


@triton.jit
def load_prepared(
    tensor, b, h, rows, scale_ptr, angles, L,
    D: tl.constexpr, SCALED: tl.constexpr, ROTARY: tl.constexpr, FULL: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Queries or keys as they enter the product: scaled, then rotated."""
    tile = load_tile(tensor, b, h, rows, L, D, FULL)
    tile = scale_channels(tile, load_scale(scale_ptr, h, D, SCALED), SCALED, tl.float32 if ROTARY else DOT)
    if ROTARY:
        # A channel's partner lies half a head away. To load it again is cheaper than to exchange it between threads.
        channels = tl.arange(0, D)
        partners = (channels + D // 2) % D
        pointers = head_of(tensor, b, h) + rows[:, None] * tensor.row + partners[None, :]
        turned = tl.load(pointers, mask=rows[:, None] < L, other=0.0).to(tl.float32)
        if SCALED:
            turned = turned * tl.load(scale_ptr + h * D + partners).to(tl.float32)[None, :]
        cos, sin = load_angles(angles, b, rows, L, D)
        tile = tile * cos + tl.where(channels < D // 2, -1.0, 1.0)[None, :] * turned * sin
    return tile.to(DOT)


@triton.jit
def rotate_back(grad, angles, b, rows, L, ROTARY: tl.constexpr):
    """The rotation's transpose."""
    if ROTARY:
        M: tl.constexpr = grad.shape[0]
        D: tl.constexpr = grad.shape[1]
        cos, sin = load_angles(angles, b, rows, L, D)
        halves = tl.permute(tl.reshape(grad * sin, (M, 2, D // 2)), (0, 2, 1))
        first, second = tl.split(halves)
        turned = tl.reshape(tl.permute(tl.join(second, -first), (0, 2, 1)), (M, D))
        grad = grad * cos + turned
    return grad


@triton.jit
def product(a, b, acc):
    # For float32 operands only; without it they would be rounded to tf32.
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def product_of_rows(a, b):
    return tl.dot(a, tl.trans(b), input_precision="ieee")


@triton.jit
def hide(
    logits, queries, keys, query_ids, key_ids, L, SEGMENTED: tl.constexpr, CAUSAL: tl.constexpr, FULL: tl.constexpr
):
    """-inf where a query may not see a key. Positions and ids may lie along either axis."""
    if SEGMENTED:
        logits = tl.where(query_ids == key_ids, logits, float("-inf"))
    if CAUSAL:
        logits = tl.where(queries >= keys, logits, float("-inf"))
    if not FULL:
        logits = tl.where((queries < L) & (keys < L), logits, float("-inf"))
    return logits


@triton.jit
def reach(own_ids, other_ids, b, L, SEGMENTED: tl.constexpr, N: tl.constexpr):
    """From where to where the rows lie whose ids are among a tile's own: exact when ids are sorted, too wide if not."""
    first = L * 0
    last = L
    if SEGMENTED:
        lowest = tl.min(tl.where(own_ids == _HIDDEN, _LARGEST_ID, own_ids))
        highest = tl.max(own_ids)
        first = L
        last = L * 0
        for start in range(0, L, 1024):
            rows = start + tl.arange(0, 1024)
            ids = tl.load(other_ids + b.to(tl.int64) * L + rows, mask=rows < L, other=_HIDDEN)
            near = (ids >= lowest) & (ids <= highest) & (ids != _HIDDEN)
            first = tl.minimum(first, tl.min(tl.where(near, rows, L)))
            last = tl.maximum(last, tl.max(tl.where(near, rows + 1, 0)))
    return first // N * N, last


@triton.jit
def load_row_bits(dropout, b, h, H, rows, L, DROPOUT: tl.constexpr):
    """32 random bits a row, by which its weights are hashed."""
    return tl.randint(tl.load(dropout.seed), (b * H + h) * L + rows).to(tl.uint32, bitcast=True) if DROPOUT else rows


@triton.jit
def keep(weights, row_bits, columns, dropout, DROPOUT: tl.constexpr):
    """Zero what dropout takes: a hash of row and column, the same whichever kernel asks and along whichever axis.

    A hash (two rounds of a 32-bit finaliser) instead of Philox, which takes many times the instructions.
    """
    if DROPOUT:
        bits = row_bits ^ (columns.to(tl.uint32) * 0x9E3779B9)
        bits = (bits ^ (bits >> 16)) * 0x7FEB352D
        bits = (bits ^ (bits >> 15)) * 0x846CA68B
        weights = tl.where((bits >> 1).to(tl.int32) >= dropout.threshold, weights * dropout.rescale, 0.0)
    return weights


@triton.jit
def store_sum_of_rows(pointer, tile):
    # The sum stays a matrix: for a vector the compiler would move the whole tile to another layout first.
    D: tl.constexpr = tile.shape[1]
    tl.store(pointer + tl.arange(0, D)[None, :], tl.sum(tile, 0, keep_dims=True))


@triton.jit
def finish_queries(
    query_sum, q, b, h, rows, scales, angles, scaling, scale_grads_ptr, L,
    SCALED: tl.constexpr, ROTARY: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """From the gradient of the queries in the product to that of q; the sum for the first scale on the way."""
    D: tl.constexpr = query_sum.shape[1]
    grad = rotate_back(query_sum, angles, b, rows, L, ROTARY) * scaling
    if SCALED:
        queries = load_tile(q, b, h, rows, L, D, FULL, AGAIN=True)
        store_sum_of_rows(scale_grads_ptr, queries.to(tl.float32) * grad)
        grad = grad * load_scale(scales.query, h, D, SCALED, AGAIN=True)[None, :]
    return grad


@triton.jit
def finish_keys_and_values(
    key_sum, value_sum, s, b, h, rows, scales, angles, scaling, scale_grads_ptr, L,
    SCALED: tl.constexpr, ROTARY: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """The gradient of s in its two roles; the sum for the keys' scale, the second, on the way."""
    D: tl.constexpr = key_sum.shape[1]
    key_grad = rotate_back(key_sum, angles, b, rows, L, ROTARY) * scaling
    if SCALED and ROTARY:
        tile = load_tile(s, b, h, rows, L, D, FULL, AGAIN=True).to(tl.float32)
        store_sum_of_rows(scale_grads_ptr + D, tile * key_grad)
        key_grad = key_grad * load_scale(scales.key, h, D, SCALED, AGAIN=True)[None, :]
    return key_grad + value_sum
