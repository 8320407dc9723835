"""What a run warns of."""

from trainer.config import Recipe
from trainer.health import warnings

WELL = {
    "scalar/curvature": 0.5,
    "scalar/global_scale": 20.0,
    "radius/image": 1.5,
    "radius/text": 1.0,
    "contrastive/global": 0.4,
    "entailment/image_text": 0.3,
}


def test_a_run_that_is_well_says_nothing(recipe: Recipe) -> None:
    assert warnings(recipe, WELL) == []


def test_each_fault_is_told_with_its_remedy(recipe: Recipe) -> None:
    for change, words in [
        ({"scalar/curvature": 0.1}, "model.learn_curvature=false"),
        ({"scalar/global_scale": 100.0}, "larger batch"),
        ({"radius/text": 0.1}, "text points lie within the saturated cones"),
        ({"contrastive/global": 2.08, "entailment/image_text": 0.0}, "one axis"),  # ln 8 = 2.08
    ]:
        (told,) = warnings(recipe, WELL | change)
        assert words in told
