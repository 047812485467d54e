"""Operators of a stacked pass, and the bytes they touch: `python count.py standard rotary`."""

import sys
from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sharedqkv import SharedQKVForSequenceClassification
from sharedqkv.models.specs import config_from_spec
from sharedqkv.tasks.together import Stack

MODELS, ROWS, LENGTH = 5, 32, 24
VIEWS = [
    "view",
    "t",
    "transpose",
    "expand",
    "unsqueeze",
    "squeeze",
    "permute",
    "slice",
    "select",
    "detach",
    "alias",
    "_unsafe_view",
    "as_strided",
    "split",
    "unbind",
    "_reshape_alias",
    "empty",
    "empty_like",
    "movedim",
    "diagonal",
    "unfold",
    "split_with_sizes",
    "chunk",
    "new_empty",
    "reshape",
]


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls, self.bytes = Counter(), Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function._schema.name.split("::")[1]
        if name not in VIEWS:
            self.calls[name] += 1
            self.bytes[name] += sum(map(touched, tensors((args, kwargs))))
            self.bytes[name] += sum(one.numel() * one.element_size() for one in tensors(out))
        return out


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def touched(tensor):
    expanded = 0 in tensor.stride()
    return tensor.untyped_storage().nbytes() if expanded else tensor.numel() * tensor.element_size()


variant, positions = sys.argv[1:]
norm = "pre" if positions == "rotary" else "post"
dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1)
config = config_from_spec(
    variant, "medium", num_labels=2, position_embedding_type=positions, norm_placement=norm, **dropout
)
stack = Stack([SharedQKVForSequenceClassification(config) for _ in range(MODELS)])
shape = (MODELS, ROWS, LENGTH)
mask = torch.ones(shape, dtype=torch.bool)
mask[..., -1] = False
batch = {
    "input_ids": torch.randint(1000, 30000, shape),
    "token_type_ids": torch.zeros(shape, dtype=torch.long),
    "attention_mask": mask,
    "labels": torch.zeros(shape[:2], dtype=torch.long),
}
with Count() as count:
    stack.backward(stack(batch), 1.0)
print(f"{variant}, {positions}: {count.calls.total():,} operators, {count.bytes.total() / 1e9:.1f} GB")
for name, size in count.bytes.most_common(25):
    print(f"{size / 1e9:7.2f} GB {count.calls[name]:5} {name}")
