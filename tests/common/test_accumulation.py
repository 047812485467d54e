"""Gradient accumulation: 8 rows at once and 8 times one row are the same step, for every variant and loss."""

import contextlib
import io

import pytest
import torch
from helpers import BACKENDS, HEADS, POSITIONS, make_batch, tiny_config, tiny_model
from torch.testing import assert_close
from transformers import Trainer, TrainingArguments

HEADS_WITH_LOSS = [head for head in HEADS if head != "Model"]


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("head", HEADS_WITH_LOSS)
def test_accumulation_changes_nothing(variant, head, backend, positions):
    model = tiny_model(head, tiny_config(variant, position_embedding_type=positions), backend)
    batch = make_batch(head, batch=8, padded=head != "QuestionAnswering")
    labels = batch.labels.get("labels")
    items = {} if labels is None else {"num_items_in_batch": (labels != -100).sum()}
    (model(**batch.all(), **items)).loss.backward()
    whole = {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    for row in range(8):
        loss = model(**batch.rows(slice(row, row + 1)), **items).loss
        (loss if items else loss / 8).backward()
    for name, gradient in whole.items():
        assert_close(dict(model.named_parameters())[name].grad, gradient, atol=1e-5, rtol=1e-4)


class Rows(torch.utils.data.Dataset):
    def __init__(self, head: str):
        torch.manual_seed(0)
        self.batch = make_batch(head, batch=16, padded=head != "QuestionAnswering")

    def __len__(self) -> int:
        return 16

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {name: tensor[row] for name, tensor in self.batch.all().items()}


def losses_and_norms(variant: str, head: str, rows: int, steps: int, folder) -> list[tuple[float, float]]:
    torch.manual_seed(0)
    model = tiny_model(head, tiny_config(variant))
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=steps,
        max_steps=2,
        learning_rate=1e-3,
        max_grad_norm=1e9,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, train_dataset=Rows(head))
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    return [(log["loss"], log["grad_norm"]) for log in trainer.state.log_history if "loss" in log]


@pytest.mark.parametrize("head", HEADS_WITH_LOSS)
def test_trainer_steps_are_the_same_however_they_are_cut(variant, head, tmp_path):
    at_once = losses_and_norms(variant, head, 8, 1, tmp_path)
    one_by_one = losses_and_norms(variant, head, 1, 8, tmp_path)
    assert len(at_once) == 2
    assert_close(torch.tensor(one_by_one), torch.tensor(at_once), atol=1e-4, rtol=1e-4)
