"""The points of one batch, as the losses see them."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Nodes:
    """Points of wholes, parts and queries; all of one curvature, time first.

    Every index was made by the loader, so that no loss has to ask the device how many there are.
    """

    images: Tensor  # (n, dim + 1) whole images
    texts: Tensor  # (n, dim + 1) their captions
    text_id: Tensor  # (n,) equal for captions that read the same
    part_images: Tensor  # (p, dim + 1)
    part_texts: Tensor  # (p, dim + 1)
    part_owner: Tensor  # (p,) row of the whole that a part belongs to
    part_count: Tensor  # (n,) parts of each whole
    part_id: Tensor  # (p,) equal for parts that show or name the same thing
    part_text_id: Tensor  # (p,) equal for phrases that read the same
    query_images: Tensor  # (q, dim + 1) visual nodes of the non-root queries
    query_texts: Tensor  # (q, dim + 1)
    query_parents: Tensor  # (q, dim + 1) text nodes of the parents; anything where there is none
    query_owner: Tensor  # (q,) row of the whole
    query_weight: Tensor  # (q,) reliability w > 0
    query_has_parent: Tensor  # (q,) 1.0 or 0.0


@dataclass(frozen=True)
class Scales:
    """Inverse temperatures ``exp(log scale)`` of the three contrastive groups."""

    whole: Tensor
    part: Tensor
    cross: Tensor
