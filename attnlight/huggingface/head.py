"""A linear head on any model of transformers, for those that have no classifier of texts there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from typing_extensions import override

from attnlight.probing.leave_one_out import last_places


class LinearForSequenceClassification(PreTrainedModel):  # type: ignore[misc]  # it has no types
    """A model of transformers with an affine map of one token's last state to classes.

    It is that of the last token where tokens read no later ones, otherwise that of the first.

    Args:
        config: The model's configuration; `num_labels` is the number of classes.
        model: The model; None: it is made from the configuration, with random parameters.
    """

    base_model_prefix = "model"
    _supports_sdpa = True  # if the model does, which its own class says

    def __init__(self, config: PretrainedConfig, model: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.model = (
            AutoModel.from_config(config, trust_remote_code=False) if model is None else model
        )
        settings = config.get_text_config()
        self.score = nn.Linear(settings.hidden_size, config.num_labels)
        nn.init.normal_(self.score.weight, std=getattr(settings, "initializer_range", 0.02))
        nn.init.zeros_(self.score.bias)
        self.reads_last = any(getattr(part, "is_causal", False) for part in self.model.modules())

    @override
    def get_input_embeddings(self) -> Any:
        return self.model.get_input_embeddings()

    @override
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **options: Any,
    ) -> SequenceClassifierOutput:
        """Logits (B, C) of texts (B, N), whose arguments are those of the model."""
        options |= {"input_ids": input_ids, "attention_mask": attention_mask}
        states = self.model(inputs_embeds=inputs_embeds, **options).last_hidden_state
        mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        mask = mask if attention_mask is None else attention_mask.bool()
        read = last_places(mask) if self.reads_last else mask.int().argmax(-1)
        texts = torch.arange(len(states), device=states.device)
        return SequenceClassifierOutput(logits=self.score(states[texts, read]))
