"""What UNCHA's terms are made of, point by point, against its own code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from core import lorentz  # noqa: E402
from trainer.objectives.contrastive import uncertainty  # noqa: E402
from trainer.objectives.entailment import WITHIN_MODALITY, Cones, calibration, residual  # noqa: E402

HERE = Path(__file__).parent
Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def inputs() -> Arrays:
    with np.load(HERE / "objective.npz") as file:
        return {name: file[name] for name in file.files if name.startswith(("input/", "param/"))}


@pytest.fixture(scope="module")
def pieces() -> Arrays:
    with np.load(HERE / "systems.npz") as file:
        return {name[7:]: file[name] for name in file.files if name.startswith("pieces/")}


def pieces_of_ours(inputs: Arrays) -> dict[str, Tensor]:
    c = torch.tensor(inputs["param/log_curv"]).exp()
    valid = torch.tensor(inputs["input/part_valid"]).bool()
    owner = torch.arange(len(valid)).repeat_interleave(valid.sum(1))

    def points(name: str, side: str) -> Tensor:
        scale = torch.tensor(inputs[f"param/{side}_alpha"]).exp()
        lifted: Tensor = lorentz.lift(scale * torch.tensor(inputs[f"input/{name}_tangent"]), c)
        return lifted

    images, texts = points("image", "visual"), points("text", "textual")
    part_images = points("part_image", "visual")[valid]
    part_texts = points("part_text", "textual")[valid]
    visual = residual(part_images, images[owner], c, WITHIN_MODALITY, "piecewise")
    textual = residual(part_texts, texts[owner], c, WITHIN_MODALITY, "piecewise")
    return {
        "owner": owner,
        "space_image": images[:, 1:],
        "space_text": texts[:, 1:],
        "space_part_image": part_images[:, 1:],
        "space_part_text": part_texts[:, 1:],
        "ang_I_T": lorentz.exterior_angle(texts, images, c),
        "ang_PI_PT": lorentz.exterior_angle(part_texts, part_images, c),
        "ang_I_PI": lorentz.exterior_angle(part_images, images[owner], c),
        "ang_T_PT": lorentz.exterior_angle(part_texts, texts[owner], c),
        "ap_T": lorentz.half_aperture(texts, c),
        "ap_PT": lorentz.half_aperture(part_texts, c),
        "ap_PI": lorentz.half_aperture(part_images, c),
        "logu_PI": uncertainty(visual.length),
        "logu_PT": uncertainty(textual.length),
        "resid_I_PI": visual.violation,
        "resid_T_PT": textual.violation,
        "mean_cal_img": _means(visual),
        "mean_cal_txt": _means(textual),
    }


def _means(cones: Cones) -> Tensor:
    """Half the mean violation, which is how UNCHA logs it, and the mean calibration."""
    calibrated = calibration(cones, entropy=True)
    both: Tensor = torch.stack([cones.violation.mean() / 2, calibrated.mean()])
    return both


def test_with_its_guards_every_piece_is_uncha_s(
    inputs: Arrays, pieces: Arrays, guard: Callable[[float], None]
) -> None:
    guard(1e-8)
    ours = pieces_of_ours(inputs)
    assert ours.keys() == pieces.keys()
    for name, want in pieces.items():
        np.testing.assert_allclose(ours[name], want, rtol=0, atol=1e-6, err_msg=name)


def test_without_guards_every_piece_is_uncha_s_but_for_what_a_guard_takes(
    inputs: Arrays, pieces: Arrays
) -> None:
    """A guard of 1e-8 takes √(2e-8) = 1.4e-4 rad off the aperture of a part near the origin."""
    ours = pieces_of_ours(inputs)
    for name, want in pieces.items():
        tolerance = 1.5e-4 if name.startswith("ap_") else 1e-5
        np.testing.assert_allclose(ours[name], want, rtol=0, atol=tolerance, err_msg=name)
