"""Which GPU is asked whether the kernels run on it: the tensor's own, also while torch compiles."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from sharedqkv.kernels import hardware

CAPABILITIES = {0: (9, 0), 1: (7, 5), None: (9, 0)}
"""Of a machine with a new GPU, which is the current one, and an old one."""


@pytest.fixture
def two_gpus(monkeypatch):
    def capability(device=None):
        return CAPABILITIES[None if device is None else device.index]

    monkeypatch.setattr(hardware, "TRITON_INSTALLED", True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)


@pytest.mark.parametrize(("device", "knows"), [("cuda:0", True), ("cuda:1", False), ("cpu", False)])
def test_a_tensors_own_gpu_is_asked(two_gpus, device, knows):
    with FakeTensorMode():
        states = torch.zeros(1, dtype=torch.float16, device=device)
        assert hardware.kernels_know(states) == knows


def test_a_compiled_graph_has_the_answer_for_its_tensors_device(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: asked.append(device) or (7, 5))
    torch.compiler.reset()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def sign(states):
        states = states * 2  # made inside of the graph, as states of a model are
        return states if hardware._gpu_is_new_enough(states.device) else -states

    assert sign(torch.ones(1)).item() == -2
    assert asked == [torch.device("cpu")]
