"""Sequences of different lengths through an encoder, with next to no padding computed."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sharedqkv.models.modeling import SharedQKVModel

LAYOUTS = ("sorted", "packed")
_FILLER = -1
"""Owner of the tokens that only fill a row."""

TokenLists = Sequence[Sequence[int]]


def batches_by_length(lengths: Sequence[int], max_tokens: int, max_padding: float = 0.05) -> list[list[int]]:
    """Indices of all sequences, the longest first, in batches nearly of one length.

    No row is padded by more than `max_padding` of the batch's length, and no batch holds more than `max_tokens`,
    padding included, unless one sequence does. Small batches cost little on a CPU; padding costs as much as text.
    """
    batches: list[list[int]] = []
    for index in _longest_first(lengths):
        longest = lengths[batches[-1][0]] if batches else 0
        full = not batches or (len(batches[-1]) + 1) * longest > max_tokens
        if full or lengths[index] < (1 - max_padding) * longest:
            batches.append([])
        batches[-1].append(index)
    return batches


def packed_rows(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Indices of the sequences in each row of at most `row_length` tokens: the longest first, each where it fits."""
    rows: list[list[int]] = []
    room: list[int] = []
    for index in _longest_first(lengths):
        row = next((row for row, left in enumerate(room) if left >= lengths[index]), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(row_length)
        rows[row].append(index)
        room[row] -= lengths[index]
    return rows


@torch.no_grad()
def encode_sequences(
    model: SharedQKVModel,
    sequences: TokenLists,
    token_type_ids: TokenLists | None = None,
    layout: str = "sorted",
    max_tokens: int = 4096,
) -> list[Tensor]:
    """The last hidden states of token sequences, (length, width) each, as if each had been encoded alone.

    `sorted` makes batches of sequences nearly of one length. `packed` puts several into a row as long as the longest,
    kept apart by `document_ids`: fewer and larger batches. A batch has at most `max_tokens`.
    """
    _check(sequences, token_type_ids, layout)
    if not isinstance(model, SharedQKVModel) or model.training:
        raise ValueError(
            "expected a SharedQKVModel in evaluation mode: of a model with a head take .bert, call .eval()"
        )
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be positive, not {max_tokens}")
    lengths = [len(sequence) for sequence in sequences]
    owners = [[index] * length for index, length in enumerate(lengths)]
    encoded: dict[int, Tensor] = {}
    for rows in _batches(lengths, layout, max_tokens):
        inputs = {"input_ids": _joined(rows, sequences, 0)}
        if token_type_ids is not None:
            inputs["token_type_ids"] = _joined(rows, token_type_ids, 0)
        owners_BL = _joined(rows, owners, _FILLER)
        if layout == "packed":
            inputs["document_ids"] = owners_BL
        elif (owners_BL == _FILLER).any():
            inputs["attention_mask"] = (owners_BL != _FILLER).long()
        on_device = {name: tensor.to(model.device) for name, tensor in inputs.items()}
        hidden_BLD = model(**on_device, return_dict=True).last_hidden_state
        for row, hidden_LD in zip(rows, hidden_BLD, strict=True):
            own_lengths = [lengths[index] for index in row]
            encoded.update(zip(row, hidden_LD[: sum(own_lengths)].split(own_lengths), strict=True))
    return [encoded[index] for index in range(len(sequences))]


def _check(sequences: TokenLists, token_type_ids: TokenLists | None, layout: str) -> None:
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    for index, sequence in enumerate(sequences):
        if len(sequence) == 0:
            raise ValueError(f"sequence {index} is empty; expected at least one token, like the tokenizer's [CLS]")
    if token_type_ids is not None and list(map(len, token_type_ids)) != list(map(len, sequences)):
        raise ValueError("token_type_ids must be as many lists as sequences, each as long as its sequence")


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda index: -lengths[index])


def _batches(lengths: Sequence[int], layout: str, max_tokens: int) -> list[list[list[int]]]:
    """Batches of rows of indices."""
    if layout == "sorted":
        return [[[index] for index in batch] for batch in batches_by_length(lengths, max_tokens)]
    row_length = max(lengths, default=1)
    rows, count = packed_rows(lengths, row_length), max(1, max_tokens // row_length)
    return [rows[first : first + count] for first in range(0, len(rows), count)]


def _joined(rows: list[list[int]], values: TokenLists, filler: int) -> Tensor:
    """Each row's lists one after the other, and the filler up to the longest row."""
    joined = [torch.tensor([value for index in row for value in values[index]]) for row in rows]
    return nn.utils.rnn.pad_sequence(joined, batch_first=True, padding_value=filler)
