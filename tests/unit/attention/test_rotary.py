"""What a compiler makes of rotary positions; that they are right is in test_reference.py."""

import pytest
import torch
from torch.testing import assert_close

from sharedqkv.attention.rotary import rotate, rotation_for

POSITIONS = torch.tensor([[0, 1, 2, 0, 1], [5, 6, 7, 8, 9]])
STATES = torch.randn(2, 3, 5, 8)


def turned(states, positions):
    rotation = rotation_for(positions, 8, 100.0, states.dtype)
    return rotate(rotate(states, rotation), rotation)


@pytest.fixture
def graphs():
    torch.compiler.reset()
    return []


def compiled(function, graphs):
    def look(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    return torch.compile(function, backend=look, fullgraph=True)


def names(graph):
    return [
        getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes if node.op != "placeholder"
    ]


def test_angles_are_made_once_and_out_of_the_compilers_sight(graphs):
    """Seen, pow, cos and sin were computed for every element of q and k in every layer."""
    assert_close(compiled(turned, graphs)(STATES, POSITIONS), turned(STATES, POSITIONS))
    found = names(graphs[0])
    assert sum("rotation" in name for name in found) == 1
    assert not {"cos", "sin", "pow"} & set(found)


def test_the_op_is_as_torch_expects_of_one():
    torch.library.opcheck(torch.ops.sharedqkv.rotation.default, (POSITIONS, 8, 100.0, torch.bfloat16))


def test_gradients_come_through(graphs):
    by_hand, by_compiler = (STATES.clone().requires_grad_() for _ in range(2))
    turned(by_hand, POSITIONS).square().sum().backward()
    torch.compile(turned, backend="aot_eager", fullgraph=True)(by_compiler, POSITIONS).square().sum().backward()
    assert_close(by_compiler.grad, by_hand.grad)


def test_an_exported_program_needs_no_op_of_ours():
    class Turn(torch.nn.Module):
        def forward(self, states, positions):
            return turned(states, positions)

    program = torch.export.export(Turn(), (STATES, POSITIONS))
    assert not any("sharedqkv" in str(node.target) for node in program.graph.nodes)
    assert_close(program.module()(STATES, POSITIONS), turned(STATES, POSITIONS))
