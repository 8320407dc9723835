"""Towers, projections and lift, and the scalars that are learned beside them."""

import math

import torch
from torch import Tensor, nn

from core import lorentz
from core.errors import ConfigError
from trainer.batch import Batch
from trainer.config import Recipe
from trainer.objectives.nodes import Nodes, Scales
from trainer.pooling import QueryPooling
from trainer.towers import TextTower, build_image_tower

MAX_LOG_SCALE = math.log(100)
"""Inverse temperatures stay within 100 (CLIP)."""

_CURVATURE_SPAN = 10.0  # learned within a tenth and ten times its start (MERU)


class Hyper3(nn.Module):
    """The dual encoder on the hyperboloid, with the query pooling that only training uses."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        section = recipe.model
        self.image_tower = build_image_tower(recipe.image_tower, recipe.data.side)
        self.text_tower = TextTower(recipe.text_tower)
        bias = section.projection_bias
        self.image_proj = nn.Linear(self.image_tower.width, section.dim, bias=bias)
        self.text_proj = nn.Linear(self.text_tower.width, section.dim, bias=bias)
        for projection in (self.image_proj, self.text_proj):
            nn.init.normal_(projection.weight, std=projection.in_features**-0.5)
        patch_width = self.image_tower.patch_width
        if patch_width % section.pooling_heads:
            raise ConfigError(
                f"model.pooling_heads {section.pooling_heads} does not divide the patches' width "
                f"{patch_width}"
            )
        self.pooling = QueryPooling(self.text_tower.width, patch_width, section.pooling_heads)
        # The visual node shares the image projection, so it must have the width of a feature.
        self.node_proj = (
            nn.Identity()
            if patch_width == self.image_tower.width
            else nn.Linear(patch_width, self.image_tower.width)
        )
        start = -math.log(section.dim) / 2
        self.visual_alpha = nn.Parameter(torch.tensor(start))
        self.textual_alpha = nn.Parameter(torch.tensor(start))
        self.log_curv = nn.Parameter(
            torch.tensor(math.log(section.curvature)), requires_grad=section.learn_curvature
        )
        self.global_logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.local_logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.05)))
        self.global_local_logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.06)))
        self._log_curv_bounds = (
            math.log(section.curvature / _CURVATURE_SPAN),
            math.log(section.curvature * _CURVATURE_SPAN),
        )

    @property
    def curvature(self) -> Tensor:
        """C > 0, with gradient."""
        return self.log_curv.exp()

    def scales(self) -> Scales:
        """The inverse temperatures, with gradient."""
        return Scales(
            self.global_logit_scale.exp(),
            self.local_logit_scale.exp(),
            self.global_local_logit_scale.exp(),
        )

    @torch.no_grad()
    def clamp_scalars(self) -> None:
        """Put the learned scalars back into their ranges; call it after each optimizer step.

        The stored values are clamped, not the ones in use, so that a bound can be left again
        (docs/mathematics.md).
        """
        self.visual_alpha.clamp_(max=0)
        self.textual_alpha.clamp_(max=0)
        self.log_curv.clamp_(*self._log_curv_bounds)
        for scale in (
            self.global_logit_scale,
            self.local_logit_scale,
            self.global_local_logit_scale,
        ):
            scale.clamp_(max=MAX_LOG_SCALE)

    def image_tangents(self, feature: Tensor) -> Tensor:
        """Tangents, ``(n, dim)``, of features of the image tower."""
        tangents: Tensor = self.image_proj(feature) * self.visual_alpha.exp()
        return tangents

    def text_tangents(self, state: Tensor) -> Tensor:
        """Tangents, ``(n, dim)``, of states of the text tower."""
        tangents: Tensor = self.text_proj(state) * self.textual_alpha.exp()
        return tangents

    def encode_images(self, images: Tensor) -> Tensor:
        """Tangents of ``(n, 3, side, side)`` normalised pixels."""
        return self.image_tangents(self.image_tower(images).feature)

    def encode_texts(self, tokens: Tensor) -> Tensor:
        """Tangents of ``(n, length)`` token ids."""
        return self.text_tangents(self.text_tower(tokens))

    def nodes(self, batch: Batch, images: Tensor, *, queries: bool) -> Nodes:
        """All points of a batch.

        Args:
            batch: Indices and tokens.
            images: ``(n + p, 3, side, side)`` augmented and normalised wholes and parts.
            queries: Whether the query pooling runs; without it there are no query nodes.
        """
        n = len(batch)
        seen = self.image_tower(images)
        states = self.text_tower(*batch.tokens)
        visual = [seen.feature]
        if queries:
            pooled = self.pooling(
                seen.patches[:n], states[batch.query_text], batch.query_slot, batch.query_slots
            )
            visual.append(self.node_proj(pooled))
        # From here on in float32: a lift multiplies what bfloat16 would round off.
        with torch.autocast(images.device.type, enabled=False):
            curvature = self.curvature
            texts = lorentz.lift(self.text_tangents(states.float()), curvature)
            features = torch.cat([feature.float() for feature in visual])
            points = lorentz.lift(self.image_tangents(features), curvature)
        return _gather(batch, points, texts)


def _gather(batch: Batch, visual: Tensor, texts: Tensor) -> Nodes:
    """Every node by its index; ``visual`` holds wholes, parts, and queries where they were made."""
    n, p = len(batch), len(batch.part_owner)
    queries = visual[n + p :]
    q = len(queries)
    return Nodes(
        images=visual[:n],
        texts=texts[batch.caption],
        text_id=batch.caption,
        part_images=visual[n : n + p],
        part_texts=texts[batch.part_text],
        part_owner=batch.part_owner,
        part_count=batch.part_count,
        part_id=batch.part_id,
        part_text_id=batch.part_text,
        query_images=queries,
        query_texts=texts[batch.query_text[:q]],
        query_parents=texts[batch.query_parent[:q]],
        query_owner=batch.query_owner[:q],
        query_weight=batch.query_weight[:q],
        query_has_parent=batch.query_has_parent[:q],
    )
