"""Launching the kernels: which one, with which tiles, and where its results go."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from sharedqkv.kernels.forward import forward_kernel
from sharedqkv.kernels.general import delta_kernel, general_head_kernel, general_kernel
from sharedqkv.kernels.symmetric import symmetric_head_kernel, symmetric_kernel
from sharedqkv.kernels.tiles import Angles, Dropout, Ids, Rows, Scales

LOG2_E = math.log2(math.e)
DELTA_ROWS = 64
DOT_TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@dataclass(frozen=True)
class Call:
    """What is to be computed, checked by `shared_kv_attention`."""

    q_BHLD: Tensor | None
    """None says that s is its own queries."""
    s_BGLD: Tensor
    query_scale_HD: Tensor | None
    key_scale_HD: Tensor | None
    cos_BLD: Tensor | None
    sin_BLD: Tensor | None
    query_ids_BL: Tensor | None
    key_ids_BL: Tensor | None
    seed: Tensor | None
    scaling: float
    causal: bool
    dropout: float

    @property
    def queries(self) -> Tensor:
        return self.s_BGLD if self.q_BHLD is None else self.q_BHLD

    @property
    def length(self) -> int:
        return self.s_BGLD.shape[2]

    @property
    def head_size(self) -> int:
        return self.s_BGLD.shape[3]

    @property
    def scaled(self) -> bool:
        return self.query_scale_HD is not None

    @property
    def rotary(self) -> bool:
        return self.cos_BLD is not None

    @property
    def symmetric(self) -> bool:
        """Whether a token looks at another as the other at it."""
        return self.q_BHLD is None and not self.rotary

    def shared_arguments(self) -> dict[str, Any]:
        """The arguments that every attention kernel takes."""
        survive = 1.0 - self.dropout
        return {
            "scales": Scales(self.query_scale_HD, self.key_scale_HD),
            "ids": Ids(self.query_ids_BL, self.key_ids_BL),
            "dropout": Dropout(self.seed, min(round(self.dropout * 2**31), 2**31 - 1), 1.0 / survive),
            "H": self.queries.shape[1],
            "L": self.length,
            "scale_log2": self.scaling * LOG2_E,
            "D": self.head_size,
            "DOT": dot_type(self.s_BGLD.dtype),
            "SCALED": self.scaled,
            "SEGMENTED": self.query_ids_BL is not None,
            "CAUSAL": self.causal,
            "DROPOUT": self.dropout > 0,
        }

    def general_arguments(self) -> dict[str, Any]:
        """What the kernels take besides that know of queries apart and of rotation."""
        batch_stride = 0 if self.cos_BLD is None else self.cos_BLD.stride(0) * (self.cos_BLD.shape[0] > 1)
        return {
            "q": rows_of(self.queries),
            "s": rows_of(self.s_BGLD),
            "angles": Angles(self.cos_BLD, self.sin_BLD, batch_stride),
            "GROUP": self.queries.shape[1] // self.s_BGLD.shape[1],
            "ROTARY": self.rotary,
        }


@dataclass(frozen=True)
class Tiles:
    """How a kernel is cut."""

    rows: int
    """Rows a program owns."""
    columns: int
    """Rows it takes at a time of those it goes through."""
    warps: int
    stages: int
    """Tiles in flight."""
    whole_head: bool = False
    """Backward only: a program has a whole head, all rows and columns in one tile."""
    registers: int | None = None
    """Limit a thread, so that more programs share a multiprocessor."""

    def arguments(self, length: int) -> dict[str, Any]:
        rows = {} if self.whole_head else {"M": self.rows}
        full = length % self.rows == 0 and length % self.columns == 0
        options = {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}
        return {**rows, "N": self.columns, "FULL": full, **options}

    def programs_a_head(self, call: Call) -> int:
        """Of a kernel whose programs go through the batches: as many as run at once, eight warps a multiprocessor."""
        device = call.s_BGLD.device
        processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
        return max(1, min(call.s_BGLD.shape[0], processors * 8 // self.warps // call.s_BGLD.shape[1]))


def forward_tiles(call: Call) -> Tiles:
    if call.s_BGLD.dtype == torch.float32:
        return Tiles(exact_tile(call), exact_tile(call), warps=4, stages=1)
    wide = call.head_size > 64
    if call.length <= 128:
        columns = short_tile(call.length)
        return Tiles(min(64, columns), columns, warps=8 if wide else 4, stages=1)
    # With a rotation Triton 3.6 computes wrongly once loads overlap: stages must be 1 there, also below.
    return Tiles(128 if wide else 64, 64, warps=8 if wide else 4, stages=1 if call.rotary else 3)


def backward_tiles(call: Call) -> Tiles:
    if call.s_BGLD.dtype == torch.float32:
        size = exact_tile(call)
        return Tiles(size, size, warps=4, stages=1, whole_head=call.length <= size)
    wide = call.head_size > 64
    registers = None if wide or call.rotary else 168
    if call.length <= (64 if wide else 128):
        size = short_tile(call.length)
        warps = 8 if wide or size == 128 else 4
        if call.symmetric:
            return Tiles(size, size, warps, stages=3, whole_head=True)
        return Tiles(size, size, warps, stages=1, whole_head=True, registers=registers and 128)
    if call.symmetric:
        return Tiles(64, 64, warps=8, stages=2) if wide else Tiles(64, 32, warps=4, stages=3, registers=registers)
    return Tiles(64, 64, warps=8 if wide else 4, stages=1, registers=registers)


def exact_tile(call: Call) -> int:
    # No matrix unit multiplies float32: every number of a tile takes a register.
    return 32 if call.head_size <= 64 else 16


def short_tile(length: int) -> int:
    # Products of tiles need at least 16 in every direction.
    return max(16, triton.next_power_of_2(length))


def dot_type(dtype: torch.dtype) -> Any:
    # Triton's interpreter computes bfloat16 products wrongly.
    return tl.float32 if knobs.runtime.interpret and dtype == torch.bfloat16 else DOT_TYPES[dtype]


def rows_of(tensor_BHLD: Tensor) -> Rows:
    return Rows(tensor_BHLD, tensor_BHLD.stride(0), tensor_BHLD.stride(1), tensor_BHLD.stride(2))


def transposed_rows_of(tensor_BLHD: Tensor) -> Rows:
    return rows_of(tensor_BLHD.transpose(1, 2))


def forward(call: Call, tiles: Tiles | None = None) -> tuple[Tensor, Tensor]:
    """The output, (B, L, H, D), and the base-2 logsumexp of each row's logits, (B, H, L)."""
    tiles = tiles or forward_tiles(call)
    B, H, L, D = call.queries.shape
    out_BLHD = call.queries.new_empty(B, L, H, D)
    lse_BHL = call.queries.new_empty(B, H, L, dtype=torch.float32)
    with torch.cuda.device_of(call.s_BGLD):
        forward_kernel[(B * H * triton.cdiv(L, tiles.rows),)](
            out=transposed_rows_of(out_BLHD),
            lse_ptr=lse_BHL,
            ONE_TILE=tiles.columns >= L,
            **call.shared_arguments(),
            **call.general_arguments(),
            **tiles.arguments(L),
        )
    return out_BLHD, lse_BHL


def backward(
    call: Call, grad_BLHD: Tensor, out_BLHD: Tensor, lse_BHL: Tensor, tiles: Tiles | None = None
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Gradients of q (unless s is its own queries), of s, and of the scales, (H, 1 or 2, D): query, key."""
    tiles = tiles or backward_tiles(call)
    B, G, L, D = call.s_BGLD.shape
    blocks = triton.cdiv(L, tiles.rows)
    going_through = call.symmetric and tiles.whole_head
    programs = tiles.programs_a_head(call) if going_through else B * blocks
    grad_q_BLHD = None if call.q_BHLD is None else torch.empty_like(out_BLHD)
    grad_s_BLGD = call.s_BGLD.new_empty(B, L, G, D)
    scale_grads = None
    if call.scaled:
        batches = programs if going_through else B
        scale_grads = call.s_BGLD.new_empty(batches, G, blocks, 2 if call.rotary else 1, D, dtype=torch.float32)
    arguments = {
        "grad_out": transposed_rows_of(grad_BLHD),
        "grad_s": transposed_rows_of(grad_s_BLGD),
        "lse_ptr": lse_BHL,
        "scale_grads_ptr": scale_grads,
        "scaling": call.scaling,
        **call.shared_arguments(),
        **tiles.arguments(L),
    }
    with torch.cuda.device_of(call.s_BGLD):
        if not tiles.whole_head:
            arguments["delta_ptr"] = row_products(out_BLHD, grad_BLHD)
        if call.symmetric:
            kernel = symmetric_head_kernel if tiles.whole_head else symmetric_kernel
            arguments["s"] = rows_of(call.s_BGLD)
            if going_through:
                arguments |= {"B": B, "programs": programs, "STAGES": tiles.stages}
        else:
            kernel = general_head_kernel if tiles.whole_head else general_kernel
            grad_q = None if grad_q_BLHD is None else transposed_rows_of(grad_q_BLHD)
            arguments |= {"grad_q": grad_q, "SAME": grad_q is None, **call.general_arguments()}
        kernel[(programs * G,)](**arguments)
    return grad_q_BLHD, grad_s_BLGD, None if scale_grads is None else scale_grads.sum((0, 2))


def row_products(out_BLHD: Tensor, grad_BLHD: Tensor) -> Tensor:
    """Σ output · gradient for each row, (B, H, L)."""
    B, L, H, D = out_BLHD.shape
    delta_BHL = out_BLHD.new_empty(B, H, L, dtype=torch.float32)
    delta_kernel[(B * H * triton.cdiv(L, DELTA_ROWS),)](
        out=transposed_rows_of(out_BLHD),
        grad_out=transposed_rows_of(grad_BLHD),
        delta_ptr=delta_BHL,
        H=H,
        L=L,
        D=D,
        M=DELTA_ROWS,
    )
    return delta_BHL
