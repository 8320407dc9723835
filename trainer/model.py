"""Towers, projections and space, and the scalars that are learned beside them."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from core.errors import ConfigError
from core.spaces import Euclidean, Lorentz, Product
from trainer.config import Recipe
from trainer.data.batch import Batch, Links, Seen
from trainer.objectives.nodes import Nodes, Scalars
from trainer.objectives.options import (
    AtmgObjective,
    ClipObjective,
    Hyper3Objective,
    PhyclipObjective,
)
from trainer.pooling import QueryPooling
from trainer.temperature import LearnedTemperature, first_temperatures
from trainer.towers import TextTower, build_image_tower

if TYPE_CHECKING:
    from core.spaces import Space

MAX_LOG_SCALE = math.log(100)
"""Inverse temperatures stay within 100 (CLIP)."""

CURVATURE_SPAN = 10.0
"""The curvature is learned within a tenth and ten times its start (MERU)."""

_ATMG_CURVATURE_SPAN = 5.0


class Tangents(NamedTuple):
    """What the towers give for one batch, before the lift; all ``(..., dim)``."""

    images: Tensor  # (n, dim)
    part_images: Tensor  # (p, dim)
    query_images: Tensor  # (q, dim); (0, dim) where no loss needs them
    texts: Tensor  # (distinct texts, dim)


class Asked(NamedTuple):
    """The queries of some images."""

    text: Tensor  # (q,) rows of the states
    owner: Tensor  # (q,)
    slot: Tensor  # (q,) owner * slots + its place among the owner's queries
    slots: int


class DualEncoder(nn.Module):
    """Two towers into one space; with queries, the pooling that only training uses."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        section, self.objective = recipe.model, recipe.objective
        self.image_tower = build_image_tower(recipe.image_tower, recipe.data.side)
        self.text_tower = TextTower(recipe.text_tower)
        bias = section.projection_bias
        self.image_proj = nn.Linear(self.image_tower.width, section.dim, bias=bias)
        self.text_proj = nn.Linear(self.text_tower.width, section.dim, bias=bias)
        for projection in (self.image_proj, self.text_proj):
            nn.init.normal_(projection.weight, std=projection.in_features**-0.5)
        self._add_query_nodes(section.pooling_heads)
        self._add_scalars(recipe)
        self._frozen = [
            tower
            for tower, options in (
                (self.image_tower, recipe.image_tower),
                (self.text_tower, recipe.text_tower),
            )
            if options.frozen
        ]
        for tower in self._frozen:
            tower.requires_grad_(requires_grad=False)
        if not recipe.optim.decay_idle_pooling:
            for module in self._idle_modules():
                module.requires_grad_(requires_grad=False)
        self.train()

    def _add_query_nodes(self, heads: int) -> None:
        """The pooling: of every Hyper3-CLIP, so that its ablations share their checkpoints."""
        self.pooling: QueryPooling | None = None
        if not (isinstance(self.objective, Hyper3Objective) or self.objective.needs_pooling):
            return
        patch_width = self.image_tower.patch_width
        if patch_width % heads:
            raise ConfigError(
                f"model.pooling_heads {heads} does not divide the patches' width {patch_width}"
            )
        self.pooling = QueryPooling(self.text_tower.width, patch_width, heads)
        # The visual node shares the image projection, so it must have the width of a feature.
        self.node_proj = (
            nn.Identity()
            if patch_width == self.image_tower.width
            else nn.Linear(patch_width, self.image_tower.width)
        )

    def _add_scalars(self, recipe: Recipe) -> None:
        """Scales of both modalities, curvature and temperatures, each as its logarithm."""
        section, objective = recipe.model, recipe.objective
        factors = objective.factors if isinstance(objective, PhyclipObjective) else None
        shape = () if factors is None else (factors,)
        self._curved = not isinstance(objective, ClipObjective)
        if self._curved:
            start = -math.log(section.dim // (factors or 1)) / 2
            self.visual_alpha = nn.Parameter(torch.full(shape, start))
            self.textual_alpha = nn.Parameter(torch.full(shape, start))
            self.log_curv = nn.Parameter(
                torch.full(shape, math.log(section.curvature)),
                requires_grad=section.learn_curvature,
            )
            span = _ATMG_CURVATURE_SPAN if isinstance(objective, AtmgObjective) else CURVATURE_SPAN
            self.curvature_bounds = (section.curvature / span, section.curvature * span)
        self.temperatures = nn.ModuleDict(
            {
                name: LearnedTemperature(start, objective.contrast, curved=self._curved)
                for name, start in first_temperatures(objective).items()
            }
        )

    def _idle_modules(self) -> list[nn.Module]:
        """Modules that no loss of this recipe reaches."""
        if self.pooling is None or self.objective.needs_pooling:
            return []
        if self.objective.needs_visual_nodes:  # of means
            return [self.pooling]
        return [self.pooling, self.node_proj]

    def anchor(self) -> Tensor:
        """0, of every trained value that a loss may pass by: its gradient is 0 then, not absent.

        An idle pooling decays by it where the recipe says so, and processes that wait for each
        other's gradients find one of every temperature.
        """
        beside = [module.parameters() for module in (*self._idle_modules(), self.temperatures)]
        values = [value for values in beside for value in values if value.requires_grad]
        return 0 * torch.stack([value.sum() for value in values]).sum()

    def train(self, mode: bool = True) -> "DualEncoder":  # noqa: FBT001, FBT002 - torch's
        """As ever, but that frozen towers keep their running statistics."""
        super().train(mode)
        for tower in self._frozen:
            tower.eval()
        return self

    @property
    def curvature(self) -> Tensor:
        """C > 0, with gradient: ``()``, or ``(factors,)``; 0 in Euclidean space."""
        return self.log_curv.exp() if self._curved else self.image_proj.weight.new_zeros(())

    @property
    def space(self) -> "Space":
        """Where the points lie, with gradient to the curvature."""
        return self._space(self.curvature)

    def fixed_space(self) -> "Space":
        """The same in numpy: for evaluation."""
        curvature = self.curvature.detach().double().cpu().numpy()
        return self._space(curvature if curvature.ndim else float(curvature))

    def _space(self, curvature: Any) -> "Space":
        if isinstance(self.objective, ClipObjective):
            return Euclidean()
        if isinstance(self.objective, PhyclipObjective):
            return Product(curvature, self.objective.norm)
        angled = isinstance(self.objective, AtmgObjective)
        return Lorentz(curvature, "angle" if angled else "distance")

    def scalars(self) -> Scalars:
        """Curvature and temperatures, with gradient; a system with one has it everywhere."""
        made = {name: module() for name, module in self._learned_temperatures().items()}
        whole = made["whole"]
        return Scalars(self.curvature, whole, made.get("part", whole), made.get("cross", whole))

    @torch.no_grad()
    def clamp_scalars(self) -> None:
        """Put the learned scalars back into their ranges; call it after each optimizer step.

        The stored values are clamped, not the ones in use, so that a bound can be left again
        (docs/mathematics.md).
        """
        if self._curved:
            self.visual_alpha.clamp_(max=0)
            self.textual_alpha.clamp_(max=0)
            low, high = self.curvature_bounds
            self.log_curv.clamp_(math.log(low), math.log(high))
        for temperature in self._learned_temperatures().values():
            temperature.log_scale.clamp_(max=MAX_LOG_SCALE)

    def _learned_temperatures(self) -> dict[str, LearnedTemperature]:
        named = self.temperatures.items()
        return {name: module for name, module in named if isinstance(module, LearnedTemperature)}

    def image_tangents(self, feature: Tensor) -> Tensor:
        """Tangents, ``(n, dim)``, of features of the image tower."""
        projected: Tensor = self.image_proj(feature)
        return self._scaled(projected, self.visual_alpha) if self._curved else projected

    def text_tangents(self, state: Tensor) -> Tensor:
        """Tangents, ``(n, dim)``, of states of the text tower."""
        projected: Tensor = self.text_proj(state)
        return self._scaled(projected, self.textual_alpha) if self._curved else projected

    def _scaled(self, projected: Tensor, log_scale: Tensor) -> Tensor:
        if log_scale.ndim == 0:
            return projected * log_scale.exp()
        factors = projected.unflatten(-1, (len(log_scale), -1))
        scaled: Tensor = (factors * log_scale.exp()[:, None]).flatten(-2)
        return scaled

    def encode_images(self, images: Tensor) -> Tensor:
        """Tangents of ``(n, 3, side, side)`` normalised pixels."""
        return self.image_tangents(self.image_tower(images).feature)

    def encode_texts(self, tokens: Tensor) -> Tensor:
        """Tangents of ``(n, length)`` token ids."""
        return self.text_tangents(self.text_tower(tokens))

    def forward(self, batch: Batch, images: Tensor | Seen) -> Tangents:
        """All tangents of a batch, in float32.

        Args:
            batch: Links and tokens.
            images: ``(n + p, 3, side, side)`` augmented and normalised wholes and parts; or what
                the frozen image tower gave for them, its patches of the wholes alone.
        """
        states = self.text_tower(*batch.tokens)
        links = batch.links
        asked = Asked(links.query_text, links.query_owner, batch.query_slot, batch.query_slots)
        return Tangents(*self.visual(images, len(batch), states, asked), self.textual(states))

    def visual(
        self, images: Tensor | Seen, wholes: int, states: Tensor, asked: Asked
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tangents of wholes, of parts and of queries' visual nodes, in float32.

        Args:
            images: As for `forward`.
            wholes: How many come first; the others are parts.
            states: What the text tower gives, ``(texts, width)``.
            asked: Queries of these wholes.
        """
        exact = self.image_proj.weight.dtype
        if isinstance(images, Seen):  # stored in half precision
            seen = Seen(*(kept.to(exact) for kept in images))
        else:
            seen = self.image_tower(images)
        found = [seen.feature]
        if self.objective.needs_visual_nodes and self.pooling is not None:
            patches = seen.patches[:wholes]
            if self.objective.needs_pooling:
                nodes = self.pooling(patches, states[asked.text], asked.slot, asked.slots)
            else:
                nodes = patches.mean(1)[asked.owner]
            found.append(self.node_proj(nodes))
        # From here on in the weights' float32: a lift multiplies what bfloat16 would round off.
        with torch.autocast(seen.feature.device.type, enabled=False):
            tangents = self.image_tangents(torch.cat([feature.to(exact) for feature in found]))
        images, parts, queries = tangents.tensor_split((wholes, len(seen.feature)))
        return images, parts, queries

    def textual(self, states: Tensor) -> Tensor:
        """Tangents of states, in float32 whatever the tower computed in."""
        with torch.autocast(states.device.type, enabled=False):
            return self.text_tangents(states.to(self.text_proj.weight.dtype))

    def nodes(self, tangents: Tangents, links: Links) -> Nodes:
        """Every point by its index."""
        lift = self.space.lift
        images, parts, queries, texts = (lift(rows) for rows in tangents)
        return Nodes(
            images=images,
            texts=texts[links.caption],
            text_id=links.caption_id,
            part_images=parts,
            part_texts=texts[links.part_text],
            part_owner=links.part_owner,
            part_count=links.part_count,
            part_id=links.part_id,
            part_text_id=links.part_text_id,
            query_images=queries,
            query_texts=texts[links.query_text],
            query_text_id=links.query_text_id,
            query_parents=texts[links.query_parent],
            query_owner=links.query_owner,
            query_weight=links.query_weight,
            query_has_parent=links.query_has_parent,
        )
