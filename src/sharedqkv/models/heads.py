"""The encoder with a task on top: BERT's heads, under BERT's parameter names."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import (
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput, can_return_tuple

from sharedqkv.models.configuration import SharedQKVConfig
from sharedqkv.models.losses import (
    IGNORED,
    classification_loss,
    cross_entropy,
    next_sentence_loss,
    problem_type_for,
)
from sharedqkv.models.modeling import SharedQKVModel, SharedQKVPreTrainedModel
from sharedqkv.models.words import PreTrainingHeads, WordPredictingModel

Items = Tensor | int | None


@dataclass
class SharedQKVMaskedLMOutput(ModelOutput):
    """`logits[b, m]` belongs to token `masked_positions[b, m]`; without labels, to token m."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    masked_positions: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class SharedQKVForPreTrainingOutput(ModelOutput):
    """As `SharedQKVMaskedLMOutput`, with BERT's names for the two logits."""

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    masked_positions: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class SharedQKVForMaskedLM(WordPredictingModel):
    def __init__(self, config: SharedQKVConfig):
        super().__init__(config)
        self.bert = SharedQKVModel(config, add_pooling_layer=False)
        self.cls = PreTrainingHeads(config, next_sentence=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        document_ids: Tensor | None = None,
        labels: Tensor | None = None,
        masked_positions: Tensor | None = None,
        num_items_in_batch: Items = None,
        loss_only: bool = False,
        **kwargs: Any,
    ) -> SharedQKVMaskedLMOutput:
        """Predict masked words.

        Without `labels` the logits are of all tokens. With `labels` of shape (batch, length), -100 where nothing
        is asked, the head runs only on the labelled tokens. With `masked_positions` of shape (batch, count) and
        `labels` of the same shape that count is fixed, as `torch.compile` needs it; -100 fills short rows.
        With `loss_only` there are no logits in the output, which a compiled step would keep a gradient for.
        """
        outputs = self.bert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            document_ids,
            return_dict=True,
            **kwargs,
        )
        logits, labels, masked_positions = self.predict_words(
            outputs.last_hidden_state, labels, masked_positions, loss_only
        )
        return SharedQKVMaskedLMOutput(
            loss=None if labels is None else cross_entropy(logits, labels, num_items_in_batch),
            logits=None if loss_only else logits,
            masked_positions=masked_positions,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class SharedQKVForPreTraining(WordPredictingModel):
    def __init__(self, config: SharedQKVConfig):
        super().__init__(config)
        self.bert = SharedQKVModel(config)
        self.cls = PreTrainingHeads(config, next_sentence=True)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        document_ids: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        masked_positions: Tensor | None = None,
        num_items_in_batch: Items = None,
        loss_only: bool = False,
        **kwargs: Any,
    ) -> SharedQKVForPreTrainingOutput:
        """Predict masked words, as `SharedQKVForMaskedLM` does, and whether the second sentence follows the first
        (`next_sentence_label`: 0 it does, 1 it does not). With both labels the loss is the sum."""
        outputs = self.bert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            document_ids,
            return_dict=True,
            **kwargs,
        )
        logits, labels, masked_positions = self.predict_words(
            outputs.last_hidden_state, labels, masked_positions, loss_only
        )
        next_sentence_logits = self.cls.seq_relationship(outputs.pooler_output)
        losses = []
        if labels is not None:
            losses.append(cross_entropy(logits, labels, num_items_in_batch))
        if next_sentence_label is not None:
            if labels is None or num_items_in_batch is None:
                losses.append(cross_entropy(next_sentence_logits, next_sentence_label))
            else:
                weights_B = (labels != IGNORED).sum(dim=1)
                losses.append(
                    next_sentence_loss(next_sentence_logits, next_sentence_label, weights_B, num_items_in_batch)
                )
        return SharedQKVForPreTrainingOutput(
            loss=torch.stack(losses).sum() if losses else None,
            prediction_logits=None if loss_only else logits,
            seq_relationship_logits=None if loss_only else next_sentence_logits,
            masked_positions=masked_positions,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class ClassifyingModel(SharedQKVPreTrainedModel):
    """What the classifiers share: dropout and one linear layer, on the pooled output or on every token."""

    def __init__(self, config: SharedQKVConfig, num_outputs: int, pooled: bool):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = SharedQKVModel(config, add_pooling_layer=pooled)
        dropout = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if dropout is None else dropout)
        self.classifier = nn.Linear(config.hidden_size, num_outputs)
        self.post_init()


class SharedQKVForSequenceClassification(ClassifyingModel):
    def __init__(self, config: SharedQKVConfig):
        super().__init__(config, config.num_labels, pooled=True)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Items = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify, or with one label regress; `labels` (batch,), or (batch, num_labels) for many labels at once."""
        outputs = self.bert(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None
        if labels is not None:
            problem_type = problem_type_for(self.config.problem_type, self.num_labels, labels)
            loss = classification_loss(logits, labels, problem_type, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class SharedQKVForTokenClassification(ClassifyingModel):
    def __init__(self, config: SharedQKVConfig):
        super().__init__(config, config.num_labels, pooled=False)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        document_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Items = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Classify every token; `labels` (batch, length), -100 where nothing is asked."""
        outputs = self.bert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            document_ids,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        return TokenClassifierOutput(
            loss=None if labels is None else cross_entropy(logits, labels, num_items_in_batch),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class SharedQKVForMultipleChoice(ClassifyingModel):
    def __init__(self, config: SharedQKVConfig):
        super().__init__(config, num_outputs=1, pooled=True)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Items = None,
        **kwargs: Any,
    ) -> MultipleChoiceModelOutput:
        """Choose; all inputs are (batch, choices, length), `labels` (batch,) the right choice."""
        given = input_ids if input_ids is not None else inputs_embeds
        if given is None:
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if given.dim() < 3:
            raise ValueError(f"inputs of a multiple choice are (batch, choices, length), not {tuple(given.shape)}")
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self.bert(*(None if x is None else x.flatten(0, 1) for x in inputs), return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(given.shape[:2])
        return MultipleChoiceModelOutput(
            loss=None if labels is None else cross_entropy(logits, labels, num_items_in_batch),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class SharedQKVForQuestionAnswering(SharedQKVPreTrainedModel):
    def __init__(self, config: SharedQKVConfig):
        super().__init__(config)
        self.bert = SharedQKVModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Items = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Find a span; positions outside the sequence do not count towards the loss.

        The loss is a mean even under accumulation: the Trainer counts only `labels`, and rescales a mean itself.
        """
        outputs = self.bert(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            start_loss = cross_entropy(start_logits, _inside(start_positions, start_logits.shape[1]))
            end_loss = cross_entropy(end_logits, _inside(end_positions, end_logits.shape[1]))
            loss = (start_loss + end_loss) / 2
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


def _inside(positions: Tensor, length: int) -> Tensor:
    positions = positions.flatten()
    return torch.where((positions >= 0) & (positions < length), positions, IGNORED)
