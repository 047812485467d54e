"""Tiny models, batches for every head, and models that attend as the reference does."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import sharedqkv
from sharedqkv import SharedQKVConfig
from sharedqkv.attention.reference import reference_attention
from sharedqkv.models.encoder import SharedQKVAttention

VOCAB, BATCH, LENGTH, CLASSES = 40, 2, 7, 3
BACKENDS = ("eager", "sdpa")
POSITIONS = ("absolute", "rotary")
HEADS = {
    "Model": sharedqkv.SharedQKVModel,
    "PreTraining": sharedqkv.SharedQKVForPreTraining,
    "MaskedLM": sharedqkv.SharedQKVForMaskedLM,
    "SequenceClassification": sharedqkv.SharedQKVForSequenceClassification,
    "TokenClassification": sharedqkv.SharedQKVForTokenClassification,
    "QuestionAnswering": sharedqkv.SharedQKVForQuestionAnswering,
    "MultipleChoice": sharedqkv.SharedQKVForMultipleChoice,
}


def tiny_config(variant: str = "standard", **overrides: Any) -> SharedQKVConfig:
    values: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 16,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "num_labels": CLASSES,
        # Large weights make the attention weights differ from uniform, and so differences visible.
        "initializer_range": 0.3,
    }
    return SharedQKVConfig(attention_variant=variant, **{**values, **overrides})


def tiny_model(head: str, config: SharedQKVConfig, backend: str = "sdpa", dtype: torch.dtype = torch.float32) -> Any:
    model = HEADS[head]._from_config(config, attn_implementation=backend, dtype=dtype)
    unlike_the_start(model)
    return model.eval()


def unlike_the_start(model: nn.Module) -> None:
    """Move what starts at ones or zeros, where mistakes hide."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("_scale", "bias", "LayerNorm.weight")):
                parameter.add_(torch.randn_like(parameter) * 0.3)


@dataclass
class Batch:
    inputs: dict[str, Tensor]
    labels: dict[str, Tensor]

    def all(self) -> dict[str, Tensor]:
        return {**self.inputs, **self.labels}

    def rows(self, rows: slice) -> dict[str, Tensor]:
        return {name: tensor[rows] for name, tensor in self.all().items()}


def make_batch(head: str, batch: int = BATCH, length: int = LENGTH, padded: bool = True) -> Batch:
    """Random inputs; with `padded`, the last rows are shorter than the first."""
    shape = (batch, 2, length) if head == "MultipleChoice" else (batch, length)
    mask = torch.ones(shape, dtype=torch.long)
    if padded:
        mask[-1, ..., length - 3 :] = 0
    inputs = {
        "input_ids": torch.randint(5, VOCAB, shape),
        "attention_mask": mask,
        "token_type_ids": torch.randint(0, 2, shape),
    }
    return Batch(inputs, _labels(head, mask))


def _labels(head: str, mask: Tensor) -> dict[str, Tensor]:
    batch = mask.shape[0]
    if head in ("MaskedLM", "PreTraining"):
        labels = torch.where((torch.rand(mask.shape) < 0.5) & mask.bool(), torch.randint(5, VOCAB, mask.shape), -100)
        labels[:, 0] = 7  # no row without a label
        next_sentence = {"next_sentence_label": torch.arange(batch) % 2} if head == "PreTraining" else {}
        return {"labels": labels, **next_sentence}
    if head == "SequenceClassification":
        return {"labels": torch.arange(batch) % CLASSES}
    if head == "TokenClassification":
        return {"labels": torch.where(mask.bool(), torch.randint(0, CLASSES, mask.shape), -100)}
    if head == "QuestionAnswering":
        return {"start_positions": torch.arange(batch) % 3, "end_positions": torch.arange(batch) % 3 + 1}
    if head == "MultipleChoice":
        return {"labels": torch.arange(batch) % 2}
    return {}


def objective(head: str, outputs: Any) -> Tensor:
    """The loss, or for the bare model something that depends on all it returns."""
    if head != "Model":
        return outputs.loss
    return outputs.last_hidden_state.pow(2).mean() + outputs.pooler_output.sin().sum()


def tensors_of(outputs: Any) -> dict[str, Tensor]:
    return {name: value for name, value in outputs.items() if isinstance(value, Tensor)}


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def run_with_gradients(model: Any, head: str, batch: Batch) -> tuple[Any, dict[str, Tensor]]:
    model.zero_grad()
    outputs = model(**batch.all())
    objective(head, outputs).backward()
    return outputs, gradients(model)


@contextmanager
def attending_as_the_reference(model: nn.Module, mask: Tensor) -> Iterator[None]:
    """Inside, every attention layer computes by the written-out formulas; `mask` is (rows, length)."""
    attentions = [module for module in model.modules() if isinstance(module, SharedQKVAttention)]
    visible_BLL = mask.bool()[:, None, :].expand(-1, mask.shape[1], -1)

    def replace(attention: SharedQKVAttention) -> None:
        config = attention.config

        def forward(hidden_BLD: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
            context = reference_attention(
                config.attention_variant,
                attention.self,
                attention.output.sublayer_input(hidden_BLD),
                visible_BLL,
                rotary_base=config.rotary_base if config.position_embedding_type == "rotary" else None,
            )
            return attention.output(context, hidden_BLD), None

        attention.forward = forward

    for attention in attentions:
        replace(attention)
    try:
        yield
    finally:
        for attention in attentions:
            del attention.forward
