"""Who may see whom, in a form the kernels and SDPA both can be given: padding and packing as ids."""

from typing import NamedTuple

import torch
from torch import Tensor

HIDDEN_KEY = -(2**31)
"""The id of keys that nobody sees."""


class Segments(NamedTuple):
    """A query sees the keys that have its id. Both are (B, L) int32."""

    query_ids_BL: Tensor
    key_ids_BL: Tensor

    def visible(self) -> Tensor:
        """As a mask, (B, 1, L, L), true where a query may look."""
        return (self.query_ids_BL[:, :, None] == self.key_ids_BL[:, None, :]).unsqueeze(1)


def segments_of(mask_BL: Tensor | None, document_ids_BL: Tensor | None) -> Segments | None:
    """From a padding mask, nonzero for tokens to be seen, and ids of documents that must not see each other."""
    if mask_BL is None and document_ids_BL is None:
        return None
    if document_ids_BL is None:
        assert mask_BL is not None
        query_ids_BL = torch.zeros_like(mask_BL, dtype=torch.int32)
    else:
        query_ids_BL = document_ids_BL.to(torch.int32)
    if mask_BL is None:
        return Segments(query_ids_BL, query_ids_BL)
    return Segments(query_ids_BL, torch.where(mask_BL != 0, query_ids_BL, HIDDEN_KEY))
