"""The rotation in one pass against the plain one, whose rounding it keeps; who takes it."""

import pytest
import torch
from helpers import tiny_config
from kernel_helpers import DEVICE, assert_within_twice, needs_kernels
from torch.func import grad, jvp, vmap
from torch.testing import assert_close

from sharedqkv import SharedQKVModel
from sharedqkv.attention.base import Projected
from sharedqkv.attention.rotary import plain_queries_keys_values, rotate, rotation_for
from sharedqkv.kernels import kernels_know, rotate_alone, rotation
from sharedqkv.kernels.rotation import rotate_in_one_pass

pytestmark = needs_kernels


def angles(batch, length, size, dtype=torch.float32):
    positions_BL = torch.arange(length, device=DEVICE) + 3 * torch.arange(batch, device=DEVICE)[:, None]
    return rotation_for(positions_BL, size, 100.0, dtype)


def in_one_pass(states, turn):
    return rotate_in_one_pass(states, *turn, False)


def value_and_gradient(function, states, turn, weight):
    states = states.detach().requires_grad_()
    out = function(states, turn)
    return out.detach(), torch.autograd.grad(out, states, weight.to(out.dtype))[0]


# Heads and sizes that are no powers of two, tokens that fill no program, one head as `grouped` has it.
@pytest.mark.parametrize(("heads", "length", "size"), [(2, 5, 8), (7, 3, 12), (1, 70, 64), (8, 33, 32)])
@pytest.mark.parametrize("own_positions", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_error_within_twice_that_of_the_plain_form(heads, length, size, own_positions, dtype):
    torch.manual_seed(0)
    packed = torch.randn(2, length, 3 * heads * size, device=DEVICE).to(dtype)  # as one product of q, k and v leaves it
    states = packed.split(heads * size, dim=-1)[1].unflatten(-1, (heads, size)).transpose(1, 2)
    weight = torch.randn(2, heads, length, size, device=DEVICE).to(dtype)
    turn = angles(2 if own_positions else 1, length, size)
    rounded = tuple(angle.to(dtype).double() for angle in turn)
    exact = value_and_gradient(rotate, states.double(), rounded, weight)
    found = value_and_gradient(in_one_pass, states, turn, weight)
    plain = value_and_gradient(rotate, states, turn, weight)
    assert_within_twice(found, plain, exact, dtype)


def test_takes_any_strides():
    states, turn = torch.randn(2, 3, 8, 5, device=DEVICE).half().transpose(2, 3), angles(1, 5, 8)
    assert torch.equal(in_one_pass(states, turn), in_one_pass(states.contiguous(), turn))


def test_the_operator_keeps_torchs_rules():
    states = torch.randn(2, 3, 5, 8, device=DEVICE).half().requires_grad_()
    torch.library.opcheck(rotate_in_one_pass, (states, *angles(1, 5, 8), False))


@pytest.mark.parametrize("own_positions", [True, False])
@pytest.mark.parametrize(("states_dim", "angles_dim"), [(0, None), (2, None), (0, 1), (None, 0)])
def test_a_stack_of_models_turns_as_each_alone(own_positions, states_dim, angles_dim):
    states_MBHLK = torch.randn(4, 2, 3, 5, 8, device=DEVICE).half()
    by_model = [angles(2 if own_positions else 1, 5, 8) for _ in range(4)]
    by_model = by_model if angles_dim is None else [(number * cos, sin) for number, (cos, sin) in enumerate(by_model)]
    states = [states_MBHLK[number if states_dim is not None else 0] for number in range(4)]
    expected = torch.stack([in_one_pass(*one) for one in zip(states, by_model, strict=True)])
    cos, sin = zip(*by_model, strict=True)
    given = [
        states_MBHLK[0] if states_dim is None else states_MBHLK.movedim(0, states_dim),
        *(part[0] if angles_dim is None else torch.stack(part, dim=angles_dim) for part in (cos, sin)),
    ]
    dims = (states_dim, angles_dim, angles_dim)
    found = vmap(lambda *one: rotate_in_one_pass(*one, False), in_dims=dims)(*given)
    assert torch.equal(found, expected)


def test_gradients_of_a_stack_are_those_of_each():
    states_MBHLK, weight = torch.randn(2, 4, 2, 3, 5, 8, device=DEVICE)
    found = value_and_gradient(vmap(in_one_pass, in_dims=(0, None)), states_MBHLK, angles(1, 5, 8), weight)
    expected = value_and_gradient(rotate, states_MBHLK, angles(1, 5, 8), weight)
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs)


def test_where_torch_would_not_take_its_gradient_it_is_left(monkeypatch):
    monkeypatch.setattr(rotation, "kernels_know", lambda *_: True)
    states, turn = torch.randn(2, 3, 5, 8, device=DEVICE), angles(1, 5, 8)
    tangent = torch.randn_like(states)
    assert_close(jvp(lambda x: rotate_alone(x, turn), (states,), (tangent,))[1], rotate(tangent, turn))

    def loss(function):
        return lambda x: function(x, turn).square().mul(tangent).sum()

    assert_close(grad(loss(rotate_alone))(states), grad(loss(rotate))(states))
    each = vmap(grad(lambda x: rotate_alone(x[None], turn).pow(3).sum()))(states)
    assert_close(each, grad(lambda x: rotate(x, turn).pow(3).sum())(states))


def test_only_what_a_kernel_knows_on_a_gpu():
    assert not kernels_know(torch.zeros(1, dtype=torch.float16))
    assert not kernels_know(torch.zeros(1, device=DEVICE))
    assert kernels_know(torch.zeros(1, device=DEVICE), (torch.float32,)) == (DEVICE == "cuda")


@pytest.fixture
def passes():
    """A `rotate_alone`, and the number of heads in what it turned."""
    turned = []
    return turned, lambda states, turn: turned.append(states.shape[1]) or rotate(states, turn)


def test_what_has_a_scale_is_left_to_the_compiler(passes):
    turned, alone = passes
    q, k, scale = (torch.randn(shape, device=DEVICE) for shape in ((1, 3, 5, 8), (1, 1, 5, 8), (3, 8)))
    plain_queries_keys_values(Projected(q, k, k, query_scale_HK=scale), angles(1, 5, 8), alone)
    assert turned == [1], "the compiler turns and scales in one pass"
    plain_queries_keys_values(Projected(q, k, k), None, alone)
    assert turned == [1], "no rotary positions"


def test_queries_that_are_the_keys_turn_once(passes):
    turned, alone = passes
    q, v = torch.randn(2, 1, 3, 5, 8, device=DEVICE)
    turned_q, turned_k, _ = plain_queries_keys_values(Projected(q, q, v), angles(1, 5, 8), alone)
    assert turned_k is turned_q
    assert turned == [3]
    assert_close(turned_q, rotate(q, angles(1, 5, 8)))


@pytest.mark.parametrize("name", ["standard", "symmetric", "grouped"])
def test_a_compiled_model_gives_what_it_gives_without(name, monkeypatch):
    torch.manual_seed(0)
    model = SharedQKVModel(tiny_config(name, position_embedding_type="rotary", initializer_range=0.1)).to(DEVICE)
    input_ids, weights = torch.randint(5, 40, (2, 12), device=DEVICE), torch.randn(2, 12, 32, device=DEVICE)

    def outputs(in_one_pass):
        if DEVICE == "cpu" or not in_one_pass:  # a GPU is asked as it will be
            monkeypatch.setattr(rotation, "kernels_know", lambda *_: in_one_pass)
        torch.compiler.reset()
        model.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            compiled = torch.compile(model, backend="inductor" if DEVICE == "cuda" else "aot_eager", fullgraph=True)
            states = compiled(input_ids).last_hidden_state.float()
        (states * weights).mean().backward()
        matrices = [p.grad.clone() for p in model.parameters() if p.grad is not None and p.dim() > 1]
        return [states.detach(), *matrices]

    for ours, theirs in zip(outputs(True), outputs(False), strict=True):
        assert (ours - theirs).norm() <= 0.1 * theirs.norm()
