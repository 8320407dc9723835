"""The points of one batch, and the learned scalars, as the losses see them; sums of terms."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Nodes:
    """Points of wholes, parts and queries.

    A point is ``(dim + 1,)``, time first, on a hyperboloid; ``(factors, dim + 1)`` in a product
    of them; a unit vector ``(dim,)`` in Euclidean space. Every index was made by the loader, so
    that no loss has to ask the device how many there are. Ids are equal for what is the same.
    """

    images: Tensor  # (n, ...) whole images
    texts: Tensor  # (n, ...) their captions
    text_id: Tensor  # (n,) of the captions
    part_images: Tensor  # (p, ...)
    part_texts: Tensor  # (p, ...)
    part_owner: Tensor  # (p,) row of the whole that a part belongs to
    part_count: Tensor  # (n,) parts of each whole
    part_id: Tensor  # (p,) of the thing that a part shows or names
    part_text_id: Tensor  # (p,) of the phrase
    query_images: Tensor  # (q, ...) visual nodes of the non-root queries; (0, ...) if not made
    query_texts: Tensor  # (q, ...)
    query_text_id: Tensor  # (q,)
    query_parents: Tensor  # (q, ...) text nodes of the parents; anything where there is none
    query_owner: Tensor  # (q,) row of the whole
    query_weight: Tensor  # (q,) reliability w > 0
    query_has_parent: Tensor  # (q,) 1.0 or 0.0


@dataclass(frozen=True)
class Temperature:
    """How similarities become logits: ``scale * similarity + bias``."""

    scale: Tensor
    bias: Tensor | None = None  # of the sigmoid loss; None: softmax


@dataclass(frozen=True)
class Scalars:
    """What is learned beside the towers, with gradient."""

    curvature: Tensor  # c > 0, (); of each factor of a product, (factors,)
    whole: Temperature
    part: Temperature
    cross: Temperature


def total(terms: dict[str, Tensor]) -> Tensor:
    """The sum of all terms."""
    return torch.stack(list(terms.values())).sum()
