"""How exact the geometry and the objectives are: the worst error of each against its target.

Geometry in float32 against sixty digits, the objective in float64 against an independent oracle
(tests/golden), and 1, 2 and 4 processes against one on the whole batch. The tests hold the same
errors below the targets; here they are told.

    python -m benchmarks.numerics
"""

import json
import math
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.table import Table

from benchmarks.timing import arguments, report
from core import lorentz
from trainer.objectives.angles import angle_and_length
from trainer.objectives.distances import Distances
from trainer.objectives.loss import loss_terms
from trainer.objectives.options import Hyper3Objective
from trainer.vocabulary import write_tokenizer

TESTS = Path(__file__).parents[1] / "tests"


def geometry() -> Iterator[tuple[str, float, float]]:
    """What, target and worst error of distances and angles in float32."""
    cases = json.loads((TESTS / "golden/geometry.json").read_text(encoding="utf-8"))["cases"]
    distances, angles, pairs = [], [], []
    for case in cases:
        a, b = point(case, "a"), point(case, "b")
        apart = float(lorentz.distance(a, b, case["c"]))
        distances.append(abs(apart / case["dist"] - 1) if case["dist"] else abs(apart))
        for root, leaf, name in ((b, a, "a_wrt_b"), (a, b, "b_wrt_a")):
            angle = float(lorentz.exterior_angle(root, leaf, case["c"]))
            angles.append(abs(angle - case[f"exterior_angle_{name}"]))
        (pair,) = lorentz.pairwise_distance(a[None], b[None], case["c"]).ravel()
        pairs.append(math.sqrt(case["c"]) * abs(float(pair) - case["dist"]))
    yield from trained(cases)
    yield f"distance of {len(cases)} pairs, float32, relative", 5e-7, max(distances)
    yield "exterior angle, float32, rad", 5e-7, max(angles)
    yield "distance by matrix product, float32, times √c", 3e-5, max(pairs)


def trained(cases: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float, float]]:
    """The forms that the objectives have of the last two."""
    angles, pairs = [], []
    for case in cases:
        a, b = (torch.from_numpy(point(case, side))[None] for side in "ab")
        c = torch.tensor(case["c"], dtype=torch.float32)
        for root, leaf, name in ((b, a, "a_wrt_b"), (a, b, "b_wrt_a")):
            angle, _ = angle_and_length(root, leaf, c)
            angles.append(abs(angle.item() - case[f"exterior_angle_{name}"]))
        _, _, right = Distances(a, b, c).softmax(torch.zeros(1, dtype=torch.int64), torch.ones(()))
        pairs.append(math.sqrt(case["c"]) * abs(-right.item() - case["dist"]))
    yield "exterior angle of the objectives, float32, rad", 5e-7, max(angles)
    yield "distance of the contrasts, float32, times √c", 3e-5, max(pairs)


def point(case: Mapping[str, Any], side: str) -> npt.NDArray[np.float32]:
    """A golden point in float32."""
    space = np.array(case[f"exp0_{side}"], np.float32)
    found: npt.NDArray[np.float32] = lorentz.from_space(space, case["c"])
    return found


def objective() -> Iterator[tuple[str, float, float]]:
    """The same of every term and gradient of every variant, in float64."""
    golden = runpy.run_path(str(TESTS / "golden/test_objective.py"))
    with np.load(TESTS / "golden/objective.npz") as file:
        arrays = {name: file[name] for name in file.files}
    oracle = json.loads((TESTS / "golden/objective.json").read_text(encoding="utf-8"))
    terms, gradients = [], []
    for variant, options in golden["VARIANTS"].items():
        inputs = golden["Inputs"](arrays)
        found = loss_terms(inputs.nodes(), inputs.scalars(), Hyper3Objective(**options))
        for ours, theirs in golden["ORACLE_NAMES"].items():
            if ours in found:
                terms.append(abs(found[ours].item() - oracle[variant].get(theirs, 0.0)))
        for name, gradient in inputs.gradients(found["loss"]).items():
            expected = golden["golden_gradient"](arrays, variant, name)
            gradients.append(float(np.abs(gradient - expected).max()))
    yield f"terms of {len(golden['VARIANTS'])} variants, float64", 1e-9, max(terms)
    yield "their gradients, float64", 1e-9, max(gradients)


def processes() -> Iterator[tuple[str, float, float]]:
    """The same of gradients of processes with uneven shares, by the largest of them."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tokenizer(folder / "tokenizer.json")
        test = TESTS / "trainer/test_distributed.py"
        subprocess.run([sys.executable, str(test), str(folder)], check=True)
        worlds = [json.loads((folder / f"{size}-0.json").read_text()) for size in (1, 2, 4)]
    for kind, target in (("float64", 1e-10), ("float32", 1e-6)):
        worst = 0.0
        for world in worlds:
            for system in world.values():
                if isinstance(system, dict) and kind in system:
                    rows = system[kind]["gradients"].values()
                    worst = max(worst, max(error for _, error in rows) / max(rows)[0])
        yield f"gradients of 1, 2 and 4 processes, {kind}", target, worst


def main() -> None:
    """Print one table."""
    options = arguments("How exact geometry and objectives are.").parse_args()
    table = Table("what", "target", "worst error")
    for rows in (geometry(), objective(), processes()):
        for what, target, worst in rows:
            table.add_row(what, f"{target:.0e}", f"{worst:.1e}")
    report("numerics", table, "against tests/golden, and one process on the whole batch", options)


if __name__ == "__main__":
    main()
