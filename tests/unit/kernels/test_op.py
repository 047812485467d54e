"""The kernels against the formula in double precision, with SDPA's own error as the yardstick."""

from itertools import product

import pytest
import torch
from kernel_helpers import (
    DEVICE,
    Case,
    Inputs,
    by_formula,
    by_kernel,
    by_sdpa,
    needs_gpu,
    needs_kernels,
    values_and_gradients,
)
from torch.testing import assert_close

from sharedqkv.kernels import Segments, segments_of, shared_kv_attention
from sharedqkv.kernels.op import _forward

pytestmark = needs_kernels

SHARED = {}
TIED = {"scaled": False}
KEY_VALUE = {"same": False, "scaled": False}
GROUPED = {"same": False, "scaled": False, "heads": 4, "groups": 2}
SHARED_ROTARY = {"rotary": True}
GROUPED_ROTARY = {**GROUPED, "rotary": True}
QUERIES_APART_SCALED = {"same": False}
KINDS = (SHARED, TIED, KEY_VALUE, GROUPED, SHARED_ROTARY, GROUPED_ROTARY, QUERIES_APART_SCALED)
MASKS = ("none", "padding", "documents", "random")

# In float32 a tile has 32 rows: 17 is a whole head, 40 two tiles, 70 three, the last not full.
SMALL = [
    *(Case(17, **kind) for kind in KINDS),
    *(Case(40, **kind, batch=1) for kind in KINDS),
    *(Case(17, **kind, mask=mask) for kind, mask in product((SHARED, SHARED_ROTARY), MASKS[1:])),
    *(Case(40, **kind, mask=mask) for kind, mask in product((SHARED, KEY_VALUE), MASKS[1:])),
    *(Case(length, **kind, causal=True, batch=1) for length, kind in product((17, 70), (SHARED, KEY_VALUE))),
    Case(70, mask="documents", batch=1),
    Case(40, **GROUPED_ROTARY, mask="random", causal=True, batch=1),
    Case(1),
    Case(1, **KEY_VALUE),
    Case(64, batch=1),
    *(Case(20, head_size, batch=1, heads=1) for head_size in (64, 128)),
    *(Case(127, 64, torch.float16, **kind, batch=1) for kind in (SHARED, KEY_VALUE)),
    *(Case(150, 64, torch.float16, **kind, batch=1, heads=1) for kind in (SHARED, SHARED_ROTARY)),
    *(Case(length, 64, torch.float16, batch=1, spread=2.0) for length in (127, 150)),
    *(Case(17, dtype=torch.bfloat16, **kind) for kind in (SHARED, GROUPED_ROTARY)),
]
HALF = (torch.bfloat16, torch.float16)
# More batches than programs, so that each goes through several.
MANY = {"batch": 300, "heads": 12}
LARGE = [
    *(Case(length, 64, dtype, **MANY) for length, dtype in product((17, 64, 127, 128), HALF)),
    *(Case(length, 64, torch.bfloat16, mask=mask, **MANY) for length, mask in product((17, 127), MASKS[1:])),
    *(Case(length, size, torch.bfloat16, **MANY) for length, size in ((128, 32), (64, 128))),
    Case(127, 64, torch.bfloat16, causal=True, **MANY),
    Case(128, 64, torch.bfloat16, scaled=False, **MANY),
    *(Case(length, 64, torch.bfloat16) for length in (1, 17, 127, 128, 256, 512, 1023, 2048, 8192)),
    *(Case(length, 64, torch.bfloat16, **kind) for length, kind in product((128, 1023), KINDS[1:])),
    *(Case(length, size, dtype) for length, size, dtype in product((127, 1023), (32, 64, 128), HALF)),
    *(
        Case(length, 64, torch.bfloat16, **kind, mask=mask, causal=mask == "documents")
        for length, kind, mask in product((127, 1023), (SHARED, KEY_VALUE), MASKS[1:])
    ),
    *(Case(1023, size, **kind) for size, kind in product((32, 64, 128), (SHARED, KEY_VALUE))),
    Case(8192, 64, torch.bfloat16, **KEY_VALUE),
    Case(1023, 128, torch.bfloat16, **GROUPED_ROTARY, mask="random"),
]


def check(case: Case) -> None:
    exact = Inputs.of(case)
    rounded = exact.to(DEVICE, case.dtype)
    expected = values_and_gradients(by_formula, exact)
    ours, sdpas = (values_and_gradients(attend, rounded) for attend in (by_kernel, by_sdpa))
    for name, reference in expected.items():
        error, yardstick = (float((found[name].double() - reference).norm()) for found in (ours, sdpas))
        # SDPA is exact where a row sees one key; then sums in float32 are the measure.
        floor = 8 * torch.finfo(torch.float32).eps * float(reference.norm() + exact.grad.norm())
        assert error <= 2 * yardstick + floor, f"{name}: error {error:.1e}, SDPA's {yardstick:.1e}"


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_error_within_twice_that_of_sdpa(case):
    check(case)


@needs_gpu
@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_error_within_twice_that_of_sdpa_for_all_shapes(case):
    check(case)


def test_gradients_are_the_slopes():
    """Independent of any formula: a small step changes the output as the gradients say."""
    inputs = Inputs.of(Case(17, mask="documents")).to(DEVICE, torch.float32)
    gradients = values_and_gradients(by_kernel, inputs)
    generator = torch.Generator().manual_seed(0)
    for name, leaf in inputs.leaves.items():
        direction = torch.randn(leaf.shape, generator=generator).to(DEVICE)
        objectives = []
        for step in (2e-3, -2e-3):
            with torch.no_grad():
                leaf.add_(direction, alpha=step)
                objectives.append((by_kernel(inputs).double() * inputs.grad.double()).sum())
                leaf.sub_(direction, alpha=step)
        slope = (objectives[0] - objectives[1]) / 4e-3
        # Along a random direction a slope is about as large as the gradient's norm, and may be zero by chance.
        allowed = 2e-3 * float(gradients[name].norm())
        assert_close((gradients[name] * direction).double().sum(), slope, rtol=0, atol=allowed)


@pytest.mark.parametrize("kind", [SHARED, KEY_VALUE, SHARED_ROTARY])
@pytest.mark.parametrize("length", [17, 40])
def test_rows_that_see_nothing_give_zeros_and_take_no_gradient(length, kind):
    inputs = Inputs.of(Case(length, **kind)).to(DEVICE, torch.float32)
    mask = torch.ones(2, length, device=DEVICE)
    mask[1] = 0
    inputs.segments = segments_of(mask, None)
    found = values_and_gradients(by_kernel, inputs)
    assert all(torch.isfinite(tensor).all() for tensor in found.values())
    assert not found["out"][1].any()
    assert not found["s"][1].any()
    assert found["out"][0].any()


@pytest.mark.parametrize("length", [17, 40])
def test_documents_are_what_they_are_alone(length):
    inputs = Inputs.of(Case(length, batch=1)).to(DEVICE, torch.float32)
    first = length // 3
    inputs.segments = segments_of(None, (torch.arange(length, device=DEVICE) >= first).int()[None])
    s = inputs.leaves["s"]
    packed = shared_kv_attention(s, s, segments=inputs.segments)
    for part in (slice(0, first), slice(first, length)):
        alone = s[:, :, part].clone()
        assert_close(packed[:, part], shared_kv_attention(alone, alone), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", [SHARED, KEY_VALUE])
def test_same_inputs_same_bits(kind):
    inputs = Inputs.of(Case(40, **kind, batch=1)).to(DEVICE, torch.float32)
    first, second = (values_and_gradients(by_kernel, inputs) for _ in range(2))
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_takes_any_strides_and_gives_heads_side_by_side():
    s = torch.randn(2, 2, 32, 17, device=DEVICE).transpose(2, 3)
    assert s.stride(-1) != 1
    out = shared_kv_attention(s, s)
    assert out.shape == (2, 17, 2, 32)
    assert out.is_contiguous()
    assert_close(out, shared_kv_attention(s.contiguous(), s.contiguous()), atol=1e-6, rtol=1e-5)


def test_scales_may_be_given_one_by_one():
    inputs = Inputs.of(Case(17)).to(DEVICE, torch.float32)
    s, scale = inputs.leaves["s"], inputs.leaves["key_scale"]
    ones = torch.ones_like(scale)
    for name in ("query_scale_HD", "key_scale_HD"):
        all_given = {"query_scale_HD": ones, "key_scale_HD": ones, name: scale}
        assert torch.equal(shared_kv_attention(s, s, **{name: scale}), shared_kv_attention(s, s, **all_given)), name


# Which weights dropout takes shows when values are unit vectors: a channel of the output is a weight.
DROPOUT_RATE = 0.3


def kept_weights(case: Case, seed: int) -> torch.Tensor:
    """(B, H, L, L), true where a weight survives."""
    kept = []
    for start in range(0, case.length, case.head_size):
        unit = torch.zeros(case.batch, case.heads, case.length, case.head_size, device=DEVICE, dtype=case.dtype)
        width = min(case.head_size, case.length - start)
        unit[:, :, start : start + width, :width] = torch.eye(width, device=DEVICE)
        torch.manual_seed(seed)
        kept.append(shared_kv_attention(unit, unit, dropout=DROPOUT_RATE)[..., :width] > 0)
    return torch.cat(kept, dim=-1).transpose(1, 2)


@pytest.mark.parametrize("kind", [SHARED, KEY_VALUE, SHARED_ROTARY])
@pytest.mark.parametrize("length", [17, 40])
def test_dropout_takes_the_same_weights_forward_and_backward(length, kind):
    case = Case(length, **kind, batch=1)
    inputs = Inputs.of(case).to(DEVICE, torch.float32)
    kept = kept_weights(case, seed=5)

    def with_recovered_mask(inputs: Inputs) -> torch.Tensor:
        return by_formula(inputs, kept / (1 - DROPOUT_RATE))

    def dropping(inputs: Inputs) -> torch.Tensor:
        torch.manual_seed(5)
        return by_kernel(inputs, dropout=DROPOUT_RATE)

    found, expected = values_and_gradients(dropping, inputs), values_and_gradients(with_recovered_mask, inputs)
    for name, tensor in expected.items():
        assert_close(found[name], tensor, atol=2e-5, rtol=2e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_dropout_takes_its_share_everywhere_and_anew_each_time():
    case = Case(128, batch=2, head_size=128, dtype=torch.float16)
    kept = kept_weights(case, seed=1).float()
    count = kept[0, 0].numel()
    spread = (DROPOUT_RATE * (1 - DROPOUT_RATE) / count) ** 0.5
    assert (kept.mean(dim=(-1, -2)) - (1 - DROPOUT_RATE)).abs().max() < 5 * spread
    # No row, column or diagonal is favoured, and heads, rows and calls have nothing to do with each other.
    for along in (-1, -2):
        means = kept.mean(dim=along)
        assert (means - (1 - DROPOUT_RATE)).abs().max() < 5 * spread * 128**0.5
    centred = (kept - kept.mean()).flatten(0, 1)
    again = (kept_weights(case, seed=2).float() - kept.mean()).flatten(0, 1)
    variance = DROPOUT_RATE * (1 - DROPOUT_RATE)
    for other in (centred.roll(1, 0), centred.roll(1, 1), centred.roll(1, 2), centred.transpose(1, 2), again):
        correlation = (centred * other).mean() / variance
        assert correlation.abs() < 5 / centred.numel() ** 0.5 + 1 / 128  # the transposed shares its diagonal


def test_no_dropout_is_dropout_of_nothing():
    inputs = Inputs.of(Case(17)).to(DEVICE, torch.float32)
    assert torch.equal(by_kernel(inputs, dropout=0.0), by_kernel(inputs))
    assert not torch.equal(by_kernel(inputs, dropout=0.5), by_kernel(inputs))


@pytest.mark.parametrize("kind", [SHARED, KEY_VALUE, SHARED_ROTARY])
def test_compiles_without_graph_breaks(kind):
    torch._dynamo.reset()
    inputs = Inputs.of(Case(17, **kind, mask="padding")).to(DEVICE, torch.float32)
    compiled = torch.compile(by_kernel, backend="aot_eager", fullgraph=True)
    expected = values_and_gradients(by_kernel, inputs)
    for name, tensor in values_and_gradients(compiled, inputs).items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("kind", [SHARED, KEY_VALUE])
def test_the_operator_keeps_torchs_rules(kind):
    inputs = Inputs.of(Case(17, **kind)).to(DEVICE, torch.float32)
    q, s, query_scale = (inputs.leaves.get(name) for name in ("q", "s", "query_scale"))
    arguments = (q, s, query_scale, *[None] * 6, 0.2, False, 0.0)
    torch.library.opcheck(_forward, arguments)


S = torch.zeros(2, 4, 5, 32)


@pytest.mark.parametrize(
    ("q", "s", "options", "message"),
    [
        (S[0], S[0], {}, r"must be \(batch, heads, length, head size\), not of shape \(4, 5, 32\)"),
        (S, S[:, :3], {}, "heads of s must divide those of q"),
        (S, S[:, :, :4], {}, "must agree in all but the heads"),
        (S, S.half(), {}, "must be alike"),
        (S[..., :8], S[..., :8], {}, "head sizes 32, 64, 128, not 8"),
        (S.double(), S.double(), {}, "not torch.float64"),
        (S, S, {"dropout": 1.0}, r"dropout must be in \[0, 1\), not 1.0"),
        (S, S, {"scaling": 0.0}, "scaling must be positive"),
        (S, S, {"query_scale_HD": S[0, :, 0, :5]}, r"must be \(heads, head size\) = \(4, 32\), not \(4, 5\)"),
        (S, S[:, :2], {"key_scale_HD": S[0, :, 0]}, "scales need as many heads of s as of q, not 2 and 4"),
        (S, S, {"segments": Segments(S[:, 0, :, 0], S[:, 0, :, 0])}, "query_ids must be int32"),
        (S, S, {"segments": Segments(S[:, 0, :4, 0].int(), S[:, 0, :, 0].int())}, r"of shape \(2, 5\)"),
        (S, S, {"rotation": (S[:1, :1, :4], S[:1, :1, :4])}, r"cos and sin must be \(1 or 2, 1, 5, 32\)"),
    ],
)
def test_wrong_arguments_are_named(q, s, options, message):
    q, s = (tensor.to(DEVICE) for tensor in (q, s))
    if "segments" in options:
        options = {"segments": Segments(*(ids.to(DEVICE) for ids in options["segments"]))}
    with pytest.raises(ValueError, match=message):
        shared_kv_attention(q, q if s.shape == q.shape and s.dtype == q.dtype else s, **options)
