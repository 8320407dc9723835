"""What a run warns of: each sign of `measure` as a sentence that says what to try."""

import math
from collections.abc import Iterator

from core.lorentz import MIN_RADIUS
from trainer.config import Recipe
from trainer.health.measure import AT_BOUND
from trainer.model import MAX_LOG_SCALE
from trainer.objectives.options import Hyper3Objective, PhyclipObjective

COLLAPSED_RADIUS = 0.02
"""√c r, a tenth of the saturated region. The space is flat to 7e-5 there, and even the largest
inverse temperature of 100 makes logits that differ by 4 / √c at most."""

COLLAPSED_SPREAD = 0.01
"""Deviation of all radii over their mean; untrained models have 0.05 and more."""

SATURATED_SHARE = 0.98
"""Of the nodes of one kind. That general ones come near the origin is what losses ask for, and
visual nodes of an untrained convolutional tower begin with 0.96."""

SATISFIED, SATISFIED_BY_OTHERS = 0.95, 0.9
"""Shares of cones. Where only the first is reached, entailment is learned."""

WIDE_APERTURE = 0.6 * math.pi / 2
"""In radians. Cones about as wide as this hold half of all directions: a saturated cone of the
scale 0.7 has 0.7 π/2."""

IDENTICAL_NODES = 0.002
"""Distance of visual nodes within an image over that between images; untrained ones have
0.04, and the first steps may bring them to 0.004."""

Sign = tuple[str, str]  # what is wrong; the values, and what to try


def warnings(recipe: Recipe, numbers: dict[str, float]) -> dict[str, str]:
    """What a person should look at, by what is wrong: a sentence with values and a remedy.

    Args:
        recipe: Of the run.
        numbers: As `measure` names them, of training or of held-out data. Those that are
            missing or not finite say nothing.
    """
    known = {name: value for name, value in numbers.items() if math.isfinite(value)}
    rules = (
        _curvature,
        _alphas,
        _temperatures,
        _radii,
        _saturation,
        _entailment,
        _queries,
        _towers,
    )
    signs = [sign for rule in rules for sign in rule(recipe, known)]
    return {what: f"{what}: {told}" for what, told in signs}


def _curvature(recipe: Recipe, numbers: dict[str, float]) -> Iterator[Sign]:
    """That it comes to rest at the lower bound is the family's habit: said, not called a fault."""
    start = recipe.model.curvature
    factors = recipe.objective.factors if isinstance(recipe.objective, PhyclipObjective) else 1
    for side, extreme, meaning in (
        (
            "lower", "lowest",
            ("the space is nearly flat there, and cones are wide. Common, and no harm to "
            f"retrieval; for the hierarchy try a larger model.curvature (now {start:g}), whose "
            "bounds move with it, or model.learn_curvature=false"),
        ),
        (
            "upper", "highest",
            (f"try a larger model.curvature (now {start:g}), whose bounds move with it, "
            "model.learn_curvature=false, or a lower optim.peak_lr"),
        ),
    ):  # fmt: skip
        count = round(numbers.get(f"health/curvature_at_{side}", 0))
        if count:
            value = numbers.get(f"scalar/curvature_{extreme}", numbers["scalar/curvature"])
            where = f" in {count} of {factors} factors" if factors > 1 else ""
            yield f"curvature at its {side} bound", f"{value:.3g}{where}; {meaning}"


def _alphas(recipe: Recipe, numbers: dict[str, float]) -> Iterator[Sign]:
    if numbers.get("health/alphas_at_bound") and recipe.model.dim > 2:
        visual, textual = numbers["scalar/visual_alpha"], numbers["scalar/textual_alpha"]
        yield (
            "scale of the tangents at its bound",
            (
                f"visual {visual:.3g}, textual {textual:.3g}, of at most 1: points ran outward; "
                f"try a lower optim.peak_lr (now {recipe.optim.peak_lr:g})"
            ),
        )


def _temperatures(_recipe: Recipe, numbers: dict[str, float]) -> Iterator[Sign]:
    limit = math.exp(MAX_LOG_SCALE)
    for name in ("global", "local", "global_local"):
        value = numbers.get(f"scalar/{name}_scale", 0)
        if value >= limit * (1 - AT_BOUND):
            yield (
                f"{name} temperature at its clamp",
                (
                    f"1/{value:.0f}, and 1/{limit:.0f} is the least: the contrast cannot become "
                    "sharper. Usual late in a long run; early, try a larger optim.batch_size or a "
                    "lower optim.peak_lr"
                ),
            )


def _radii(recipe: Recipe, numbers: dict[str, float]) -> Iterator[Sign]:
    radii = {
        name.partition("/")[2]: value
        for name, value in numbers.items()
        if name.startswith("radius/")
    }
    if not radii:
        return
    limit = COLLAPSED_RADIUS / math.sqrt(numbers["scalar/curvature"])
    small = [f"{kind} {value:.2g}" for kind, value in radii.items() if value < limit]
    if small:
        yield (
            "radius collapse",
            (
                f"mean radius of {', '.join(small)}, under {limit:.2g}: points so near the origin "
                f"are not told apart; {_less_pull(recipe)}, from a checkpoint before it"
            ),
        )
    spread = numbers.get("health/radius_spread", 1)
    if spread < COLLAPSED_SPREAD:
        yield (
            "radii without spread",
            (
                f"all are within {spread:.2%} of {max(radii.values()):.3g} (at least "
                f"{COLLAPSED_SPREAD:.0%} is usual), so that none is more general; look "
                "whether captions and parts differ in detail, or try a lower "
                f"optim.peak_lr (now {recipe.optim.peak_lr:g})"
            ),
        )


def _saturation(recipe: Recipe, numbers: dict[str, float]) -> Iterator[Sign]:
    prefix = "health/saturated_"
    shares = [
        f"{value:.0%} of {name.removeprefix(prefix)}"
        for name, value in numbers.items()
        if name.startswith(prefix) and value >= SATURATED_SHARE
    ]
    if shares:
        start = recipe.model.curvature
        limit = 2 * MIN_RADIUS / math.sqrt(numbers["scalar/curvature"])
        yield (
            "saturated cones",
            (
                f"{', '.join(shares)} nodes lie within 2K/√c = {limit:.2g} of the origin, where "
                "the aperture is π/2 and has no gradient; "
                f"{_less_pull(recipe)}, or a larger model.curvature (now {start:g})"
            ),
        )


def _entailment(recipe: Recipe, numbers: dict[str, float]) -> Iterator[Sign]:
    """The term of images and texts is at 0, but not learned: the cones hold other images too.

    Cones of parts are not judged: near the origin they may rightly hold nearly everything.
    """
    weight = getattr(recipe.objective, "entailment_weight", 0)
    own = numbers.get("health/satisfied_image_text", 0)
    others = numbers.get("health/satisfied_by_others_image_text", 0)
    if not weight or own < SATISFIED or others < SATISFIED_BY_OTHERS:
        return
    aperture = numbers["health/aperture_image_text"]
    why = (
        f"they are {aperture:.2f} rad wide; try a larger model.curvature "
        f"(now {recipe.model.curvature:g}), or"
        if aperture >= WIDE_APERTURE
        else "all points lie on one axis; start again with"
    )
    told = (
        f"the cones of {own:.0%} of texts hold their own image, and of {others:.0%} another one: "
        "the term has no gradient and tells nothing apart, for "
        f"{why} a lower objective.entailment_weight (now {weight:g})"
    )
    yield "vanishing entailment", told


def _queries(recipe: Recipe, numbers: dict[str, float]) -> Iterator[Sign]:
    diversity = numbers.get("health/query_diversity", 1)
    if diversity < IDENTICAL_NODES:
        weight = getattr(recipe.objective, "query_weight", 0)
        remedy = f"a larger objective.query_weight (now {weight:g})"
        if isinstance(recipe.objective, Hyper3Objective):
            remedy += ', or objective.visual_nodes="mean", which gives the same for less'
        yield (
            "identical visual nodes",
            (
                f"those of one image's queries are {diversity:.2%} as far apart as those of two "
                f"images ({IDENTICAL_NODES:.1%} is the least): the pooling ignores its queries; "
                f"try a lower optim.peak_lr, {remedy}"
            ),
        )


def _towers(recipe: Recipe, numbers: dict[str, float]) -> Iterator[Sign]:
    for tower in ("image_tower", "text_tower"):
        if numbers.get(f"health/gradient_{tower}", 1) == 0:
            yield (
                f"{tower} without gradient",
                (
                    "its norm is 0, and the tower learns nothing more: its units have died, or its "
                    "projection is 0. Go back to an earlier checkpoint with a lower optim.peak_lr "
                    f"(now {recipe.optim.peak_lr:g})"
                ),
            )


def _less_pull(recipe: Recipe) -> str:
    """What draws points to the origin and to one axis, if the system has it."""
    weight = getattr(recipe.objective, "entailment_weight", 0)
    if weight:
        return f"try a lower objective.entailment_weight (now {weight:g})"
    return f"try a lower optim.peak_lr (now {recipe.optim.peak_lr:g})"
