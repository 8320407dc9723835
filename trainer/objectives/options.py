"""What each system's loss can be told; a recipe's `[objective]` is one of these."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.config import Section

Weight = Annotated[float, Field(ge=0)]
Relation = Literal["image_text", "visual_hierarchy", "text_hierarchy"]


class Contrast(Section):
    """What all objectives share: pairs are told apart."""

    contrast: Literal["softmax", "sigmoid"] = Field(
        "softmax", description="Cross-entropy over the batch, or SigLIP's over single pairs."
    )
    mask_repeats: bool = Field(
        default=False,
        description="Same captions, and same things in parts and wholes, are no negatives.",
    )

    needs_parts: ClassVar[bool] = True
    """Whether boxes are embedded."""

    @property
    def needs_queries(self) -> bool:
        """Whether the texts of queries are embedded."""
        return False

    @property
    def needs_visual_nodes(self) -> bool:
        """Whether a loss reaches visual nodes of queries."""
        return self.needs_queries

    @property
    def needs_pooling(self) -> bool:
        """Whether queries attend over patches."""
        return self.needs_visual_nodes


class ClipObjective(Contrast):
    """CLIP: cosines of unit vectors; with queries, the idea of beta-CLIP."""

    kind: Literal["clip"]
    query_weight: Weight = Field(
        0.0, description="Of the contrast between queries' visual nodes and texts; 0: none."
    )

    needs_parts: ClassVar[bool] = False

    @property
    def needs_queries(self) -> bool:
        """Whether the texts of queries are embedded."""
        return self.query_weight > 0


class MeruObjective(Contrast):
    """MERU: distances, and images within the cones of their captions."""

    kind: Literal["meru"]
    entailment_weight: Weight = Field(0.2, description="λ")

    needs_parts: ClassVar[bool] = False


class AtmgObjective(Contrast):
    """ATMG: exterior angles in place of distances."""

    kind: Literal["atmg"]
    contrast: Literal["softmax"] = "softmax"

    needs_parts: ClassVar[bool] = False


class HycoclipObjective(Contrast):
    """HyCoCLIP: MERU, and one part of each image below its whole."""

    kind: Literal["hycoclip"]
    entailment_weight: Weight = Field(0.2, description="λ")


class PhyclipObjective(Contrast):
    """PHyCLIP: HyCoCLIP in a product of small hyperboloids."""

    kind: Literal["phyclip"]
    entailment_weight: Weight = Field(0.2, description="λ")
    factors: int = Field(64, ge=1, description="Hyperboloids; each has dim / factors dimensions.")
    norm: Literal["l1", "l2"] = Field("l1", description="How their distances are added up.")


class WholePart(Contrast):
    """What UNCHA and Hyper3-CLIP share: all parts of each image, and calibrated cones."""

    entailment_weight: Weight = Field(0.2, description="λ")
    part_columns: Literal["repeated", "unique"] = Field(
        "repeated", description="Whether a whole stands once per part among the columns."
    )
    residual: Literal["hinge", "piecewise"] = Field(
        "hinge", description="Cone violations, or UNCHA's with a constant pull to the axis."
    )
    relation_weights: tuple[Weight, Weight, Weight, Weight] = Field(
        (1.0, 1.0, 1.0, 1.0),
        description="Of image-text, part image-text, image-part and text-part entailment.",
    )
    entropy: bool = Field(default=False, description="UNCHA's entropy in the calibration.")


class UnchaObjective(WholePart):
    """UNCHA, as its code has it."""

    kind: Literal["uncha"]
    residual: Literal["hinge", "piecewise"] = "piecewise"
    relation_weights: tuple[Weight, Weight, Weight, Weight] = (0.5, 0.5, 0.25, 0.25)
    entropy: bool = True


class Hyper3Objective(WholePart):
    """Hyper3-CLIP, with the controls of its ablation."""

    kind: Literal["hyper3"] = "hyper3"
    query_weight: Weight = Field(1.0, description="Of the query relations within λ; 0: none.")
    relations: tuple[Relation, ...] = Field(
        ("image_text", "visual_hierarchy", "text_hierarchy"),
        description="The query relations that are trained.",
    )
    query_normaliser: Literal["count", "weight", "sum", "images"] = Field(
        "count", description="Query terms are divided by: queries, their weights, 1, images."
    )
    visual_nodes: Literal["pooled", "mean"] = Field(
        "pooled", description="What a query finds in the image, or the mean of all patches."
    )
    visual_order: Literal["forward", "reversed"] = Field(
        "forward", description="Whether the whole lies below the query's node, or above it."
    )
    parents: Literal["own", "shuffled"] = Field(
        "own", description="A query's parent, or that of the query before it in the batch."
    )

    @property
    def needs_queries(self) -> bool:
        """Whether the texts of queries are embedded."""
        return self.query_weight > 0 and len(self.relations) > 0

    @property
    def needs_visual_nodes(self) -> bool:
        """Whether a loss reaches visual nodes of queries."""
        visual = {"image_text", "visual_hierarchy"} & set(self.relations)
        return self.query_weight > 0 and bool(visual)

    @property
    def needs_pooling(self) -> bool:
        """Whether queries attend over patches."""
        return self.needs_visual_nodes and self.visual_nodes == "pooled"


Objective = (
    ClipObjective
    | MeruObjective
    | AtmgObjective
    | HycoclipObjective
    | UnchaObjective
    | PhyclipObjective
    | Hyper3Objective
)
