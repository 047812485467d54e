"""Predicting words: the MLM head with its tied decoder, on the tokens that are asked for."""

import torch
from torch import Tensor, nn
from transformers import initialization
from transformers.activations import ACT2FN

from sharedqkv.attention.base import is_plain_linear
from sharedqkv.models.configuration import SharedQKVConfig
from sharedqkv.models.encoder import StreamLayerNorm
from sharedqkv.models.losses import IGNORED
from sharedqkv.models.modeling import SharedQKVPreTrainedModel

_COLUMNS = 64
"""Tensor cores want a number of words that this divides; BERT's 30,522 is none."""


class PredictionTransform(nn.Module):
    def __init__(self, config: SharedQKVConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.LayerNorm = StreamLayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.LayerNorm(self.activation(self.dense(hidden)))


class WordPredictions(nn.Module):
    """The MLM head proper; its decoder is the word embedding, its bias stands twice as in BERT."""

    def __init__(self, config: SharedQKVConfig):
        super().__init__()
        self.transform = PredictionTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, padded: bool = False) -> Tensor:
        """Padded, there may be logits of words that do not exist: -inf, so that no loss sees them."""
        hidden, decoder = self.transform(hidden), self.decoder
        missing = -decoder.out_features % _COLUMNS
        if not (padded and missing and is_plain_linear(decoder) and padding_is_faster(hidden)):
            return decoder(hidden)
        weight = nn.functional.pad(decoder.weight, (0, 0, 0, missing))
        bias = nn.functional.pad(decoder.bias, (0, missing), value=-torch.inf)
        return nn.functional.linear(hidden, weight, bias)


def padding_is_faster(hidden: Tensor) -> bool:
    """On a GPU, where odd widths cost a copy of the logits' gradient and a slower product."""
    return hidden.is_cuda


class PreTrainingHeads(nn.Module):
    def __init__(self, config: SharedQKVConfig, next_sentence: bool):
        super().__init__()
        self.predictions = WordPredictions(config)
        if next_sentence:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)


class WordPredictingModel(SharedQKVPreTrainedModel):
    """What MaskedLM and PreTraining share: the tied decoder, and predicting masked tokens only."""

    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    cls: PreTrainingHeads

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, WordPredictions):
            initialization.zeros_(module.bias)

    def get_output_embeddings(self) -> nn.Module:
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def predict_words(
        self, hidden_BLD: Tensor, labels: Tensor | None, masked_positions: Tensor | None, loss_only: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Logits where words are asked for, with their labels and positions (see `SharedQKVForMaskedLM.forward`).

        Those for a loss only are for nothing else: there may be more of them than words.
        """
        if loss_only and labels is None:
            raise ValueError("loss_only needs the labels of the masked words")
        if masked_positions is not None:
            if labels is not None and labels.shape != masked_positions.shape:
                raise ValueError(
                    f"labels {tuple(labels.shape)} and masked_positions {tuple(masked_positions.shape)} must have the "
                    "same shape: one label for each masked position"
                )
        elif labels is not None:
            if labels.shape != hidden_BLD.shape[:2]:
                raise ValueError(
                    f"labels of shape {tuple(labels.shape)} do not fit input of shape {tuple(hidden_BLD.shape[:2])}"
                )
            masked_positions = _masked_positions(labels)
            labels = labels.gather(1, masked_positions)
        if masked_positions is not None:
            rows = torch.arange(len(hidden_BLD), device=hidden_BLD.device).unsqueeze(1)
            hidden_BLD = hidden_BLD[rows, masked_positions]
        return self.cls.predictions(hidden_BLD, padded=loss_only), labels, masked_positions


def _masked_positions(labels_BL: Tensor) -> Tensor:
    """Where labels stand, as many columns as the fullest row has; rows with fewer are filled with unmasked tokens.

    A count that depends on the data would break the graph under `torch.compile`: there all positions are kept.
    Who compiles passes `masked_positions` of a fixed count instead.
    """
    if torch.compiler.is_compiling():
        return torch.arange(labels_BL.shape[1], device=labels_BL.device).expand_as(labels_BL)
    masked_BL = labels_BL != IGNORED
    count = max(1, int(masked_BL.sum(dim=1).max()))
    return masked_BL.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :count]
