"""Losses that stay right under gradient accumulation and on many processes.

`num_items_in_batch` is the Trainer's count of labels over the whole step. A sum divided by it makes the step's
gradient independent of how the step is cut up; a mean per micro-batch does not.
"""

import torch
from torch import Tensor, nn

IGNORED = -100


def cross_entropy(logits: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """Over the last axis of `logits`, in fp32; labels of -100 do not count."""
    losses = nn.functional.cross_entropy(
        logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    count = (labels != IGNORED).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
    return losses / count


def next_sentence_loss(logits: Tensor, labels: Tensor, weights_B: Tensor, num_items_in_batch: Tensor | int) -> Tensor:
    """NSP beside MLM under accumulation, where only the number of MLM labels in the step is known.

    Each row weighs as much as it has MLM labels: with the same number in every row this is the plain mean over
    the step's rows, and always it is independent of how the step is cut up.
    """
    losses_B = nn.functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="none")
    return (losses_B * weights_B).sum() / num_items_in_batch


def classification_loss(
    logits: Tensor, labels: Tensor, problem_type: str, num_items_in_batch: Tensor | int | None = None
) -> Tensor:
    """The loss of a sequence classifier; `problem_type` as in HF configs."""
    if problem_type == "single_label_classification":
        return cross_entropy(logits, labels, num_items_in_batch)
    if problem_type == "regression":
        losses = nn.functional.mse_loss(logits.float().reshape(labels.shape), labels.float(), reduction="sum")
    else:
        losses = nn.functional.binary_cross_entropy_with_logits(logits.float(), labels.float(), reduction="sum")
    return losses / (labels.numel() if num_items_in_batch is None else num_items_in_batch)


def problem_type_for(configured: str | None, num_labels: int, labels: Tensor) -> str:
    """HF's rule: one output is regression, whole labels are classes, float labels are many labels at once."""
    if configured is not None:
        return configured
    if num_labels == 1:
        return "regression"
    return "multi_label_classification" if torch.is_floating_point(labels) else "single_label_classification"
