"""Query-conditioned pooling: each text query attends over its image's patches.

Needed in training only: the visual node of a query is what its own text finds in the image.
"""

import torch
from torch import Tensor, nn


class QueryPooling(nn.Module):
    """Multi-head attention of text queries over patches, then an MLP with residual.

    Keys and values are never made per query. A key enters a score only by its product with the
    query, so its map is folded into the query: ``q·(W_k z + b_k) = (W_k' q)·z + q·b_k``, whose
    last term is the same for all patches and cancels in the softmax; a value enters only the
    weighted mean, so its map is applied after it. The results are those of
    `nn.MultiheadAttention` over the repeated patches, whose parameters these are.

    Args:
        text_width: Of the states of the text tower.
        width: Of the patches.
        heads: Of the attention; divides ``width``.
    """

    def __init__(self, text_width: int, width: int, heads: int) -> None:
        super().__init__()
        self.text_query_proj = nn.Linear(text_width, width)
        self.cross_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp_norm = nn.LayerNorm(width)
        self.pool_mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.width, self.heads = width, heads

    def forward(self, patches: Tensor, states: Tensor, slot: Tensor, slots: int) -> Tensor:
        """Visual features of the queries, ``(q, width)``.

        Args:
            patches: ``(n, patches, width)``.
            states: ``(q, text_width)``: text states of the queries.
            slot: ``(q,)``: ``image * slots + place``; no two queries share one.
            slots: Most queries of an image.
        """
        attended = self.attend(patches, states, slot, slots)
        return attended + self.pool_mlp(self.mlp_norm(attended))  # type: ignore[no-any-return]

    def attend(self, patches: Tensor, states: Tensor, slot: Tensor, slots: int) -> Tensor:
        """The attention alone, ``(q, width)``; arguments as for `forward`."""
        n, width, heads = len(patches), self.width, self.heads
        query_map, key_map, value_map = self.cross_attention.in_proj_weight.chunk(3)
        query_bias, _, value_bias = self.cross_attention.in_proj_bias.chunk(3)
        query = nn.functional.linear(self.text_query_proj(states), query_map, query_bias)
        query = query.view(-1, heads, width // heads) * (width // heads) ** -0.5
        folded = torch.einsum("qhd,hdw->qhw", query, key_map.view(heads, -1, width))
        padded = folded.new_zeros((n * slots, heads, width)).index_copy(0, slot, folded)
        scores = padded.view(n, slots * heads, width) @ patches.mT
        mean = scores.softmax(-1) @ patches  # (n, slots * heads, width)
        mean = mean.view(n * slots, heads, width)[slot]
        value = torch.einsum("qhw,hdw->qhd", mean, value_map.view(heads, -1, width))
        return self.cross_attention.out_proj(value.flatten(1) + value_bias)  # type: ignore[no-any-return]
