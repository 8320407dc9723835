"""The evaluation from embeddings, against its plain form.

*retrieval*: all recalls both ways, 5,000 images against 25,000 captions, from embeddings; plain is
one matrix of textbook distances and the ten nearest of each row and column.
*metrics*: average precision and AUROC of 104,000 scores; plain is scikit-learn.
*cones*: the same from embeddings; plain takes the textbook angle of every pair at once.
Each run has a process of its own, whose memory at its peak is that of embeddings and all.

    python -m benchmarks.evaluation [--save]
"""

import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Group
from rich.table import Table
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks.timing import arguments, peak_mib, report, tabulate
from core.evaluation.entailment import score_pairs
from core.evaluation.metrics import auroc, average_precision
from core.evaluation.retrieval import retrieval
from core.spaces import Lorentz

SPACE: Lorentz[Any] = Lorentz(0.7)
DIM = 512
CAPTIONS = 5  # of an image, in retrieval
OWN, WRONG = 4, 100  # captions of an image, in metrics and cones
KS = (1, 5, 10)
TOLERANCE = 1e-9  # of figures between both sides; recalls are to agree exactly

Floats = npt.NDArray[np.float64]
Figures = dict[str, float]


@dataclass(frozen=True)
class Case:
    """Points, and which of them belong together."""

    images: Floats  # (n, DIM + 1)
    texts: Floats  # (m, DIM + 1)
    image: npt.NDArray[np.intp]  # of each pair
    text: npt.NDArray[np.intp]
    is_own: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Timed:
    """One run in a process of its own."""

    seconds: float
    peak_mib: float
    figures: Figures


def make_case(images: int, captions: int, wrong: int, seed: int) -> Case:
    """Images with captions that lie towards them, further in; each pair with its own and wrong."""
    generator = np.random.default_rng(seed)
    tangents = generator.normal(size=(images, DIM)) / DIM**0.5
    noise = generator.normal(size=(images * captions, DIM)) / DIM**0.5
    owner = np.repeat(np.arange(images), captions)
    texts = SPACE.lift(0.15 * tangents[owner] + noise)
    others = generator.integers(0, len(texts), (images, wrong))
    return Case(
        SPACE.lift(1.5 * tangents),
        texts,
        np.concatenate([owner, np.repeat(np.arange(images), wrong)]),
        np.concatenate([np.arange(len(texts)), others.ravel()]),
        np.arange(len(texts) + others.size) < len(texts),
    )


def our_retrieval(case: Case) -> Figures:
    """In tiles."""
    found = retrieval(case.images, case.texts, case.image[case.is_own], SPACE, KS)
    shares = {f"text to image {k}": found.text_to_image[k] for k in KS}
    return shares | {f"image to text {k}": found.image_to_text[k] for k in KS}


def plain_retrieval(case: Case) -> Figures:
    """One matrix of distances, and the ten nearest of each row and column."""
    owner = case.image[case.is_own]
    products = case.texts[:, 1:] @ case.images[:, 1:].T
    products -= case.texts[:, :1] @ case.images[:, :1].T
    distances = np.arccosh(np.maximum(-SPACE.curvature * products, 1)) / SPACE.curvature**0.5
    hits = nearest(distances) == owner[:, None]
    found = {f"text to image {k}": float(hits[:, :k].any(axis=1).mean()) for k in KS}
    hits = owner[nearest(distances.T)] == np.arange(len(case.images))[:, None]
    return found | {f"image to text {k}": float(hits[:, :k].any(axis=1).mean()) for k in KS}


def nearest(distances: Floats) -> npt.NDArray[np.intp]:
    """The columns of the nearest of each row, in order."""
    best = np.argpartition(distances, max(KS), axis=1)[:, : max(KS)]
    order = np.argsort(np.take_along_axis(distances, best, axis=1), axis=1)
    return np.take_along_axis(best, order, axis=1)


def scores(case: Case) -> Floats:
    """Rounded, so that some of them tie."""
    noise = np.random.default_rng(1).normal(size=len(case.is_own))
    rounded: Floats = np.round(noise + case.is_own, 3)
    return rounded


def our_metrics(case: Case) -> Figures:
    """The figures of scores."""
    found = scores(case)
    return {"AP": average_precision(found, case.is_own), "AUROC": auroc(found, case.is_own)}


def plain_metrics(case: Case) -> Figures:
    """The same by scikit-learn."""
    return by_sklearn(scores(case), case.is_own)


def our_cones(case: Case) -> Figures:
    """Angles in blocks, and the figures of both scores."""
    found = score_pairs(case.texts, case.images, case.text, case.image, SPACE)
    return {
        "AP": average_precision(found.margin, case.is_own),
        "AUROC": auroc(found.margin, case.is_own),
        "clamped AP": average_precision(found.clamped, case.is_own),
        "clamped AUROC": auroc(found.clamped, case.is_own),
    }


def plain_cones(case: Case) -> Figures:
    """The textbook angle (MERU, arXiv:2304.09172, eq. 8) of all pairs at once."""
    c = SPACE.curvature
    a, b = case.images[case.image], case.texts[case.text]
    product = c * ((a[:, 1:] * b[:, 1:]).sum(1) - a[:, 0] * b[:, 0])
    norm = np.linalg.norm(b[:, 1:], axis=1)
    above = a[:, 0] + product * b[:, 0]
    cosine = above / (norm * np.sqrt(np.maximum(product**2 - 1, 1e-12)))
    angle = np.arccos(np.clip(cosine, -1, 1))
    aperture = np.arcsin(np.minimum(0.2 / (c**0.5 * norm), 1))
    margin = np.round(aperture - angle, 9)
    clamped = np.round(np.maximum(1 - 2 * angle / np.pi, 0), 9)
    figures = by_sklearn(clamped, case.is_own)
    return by_sklearn(margin, case.is_own) | {f"clamped {name}": figures[name] for name in figures}


def by_sklearn(found: Floats, is_own: npt.NDArray[np.bool_]) -> Figures:
    """Average precision and AUROC as scikit-learn has them."""
    return {
        "AP": float(average_precision_score(is_own, found)),
        "AUROC": float(roc_auc_score(is_own, found)),
    }


SIDES: dict[str, dict[str, Callable[[Case], Figures]]] = {
    "retrieval": {"plain": plain_retrieval, "ours": our_retrieval},
    "metrics": {"plain": plain_metrics, "ours": our_metrics},
    "cones": {"plain": plain_cones, "ours": our_cones},
}


def run(task: str, side: str, images: int, seed: int) -> Timed:
    """One run; a small one before it loads what is loaded once."""
    captions, wrong = (CAPTIONS, 0) if task == "retrieval" else (OWN, WRONG)
    work = SIDES[task][side]
    work(make_case(12, captions, wrong, seed))
    case = make_case(images, captions, wrong, seed)
    start = time.perf_counter()
    figures = work(case)
    return Timed(time.perf_counter() - start, peak_mib(), figures)


def measure(sizes: dict[str, int], rounds: int, seed: int) -> dict[str, dict[str, list[Timed]]]:
    """Both sides of every task, alternating, each run in a fresh process."""
    found: dict[str, dict[str, list[Timed]]] = {
        task: {side: [] for side in sides} for task, sides in SIDES.items()
    }
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as pool:
        for task, sides in found.items():
            for _ in range(rounds):
                for side, runs in sides.items():
                    runs.append(pool.submit(run, task, side, sizes[task], seed).result())
            worst = worst_difference(sides["plain"][0].figures, sides["ours"][0].figures)
            if worst > (0 if task == "retrieval" else TOLERANCE):
                sys.exit(f"{task}: the figures of the two sides differ by {worst:.1e}")
    return found


def worst_difference(a: Figures, b: Figures) -> float:
    """The largest difference of figures of the same name."""
    return max(abs(a[name] - b[name]) for name in a.keys() | b.keys())


def table_of(task: str, sides: dict[str, list[Timed]]) -> Table:
    """Times and memory of both sides of a task."""
    seconds = {side: [each.seconds for each in runs] for side, runs in sides.items()}
    peaks = {side: f"{max(each.peak_mib for each in runs):,.0f}" for side, runs in sides.items()}
    table = tabulate(seconds, "plain", {"peak MiB": peaks})
    table.title = task
    return table


def main() -> None:
    """Check, measure, and print a table of each task."""
    parser = arguments("The evaluation against its plain form.", rounds=3, seed=0)
    parser.add_argument("--images", type=int, default=5_000, help="in retrieval")
    parser.add_argument("--chains", type=int, default=1_000, help="in metrics and cones")
    options = parser.parse_args()
    sizes = {"retrieval": options.images} | dict.fromkeys(("metrics", "cones"), options.chains)
    found = measure(sizes, options.rounds, options.seed)
    recall = found["retrieval"]["ours"][0].figures["text to image 1"]
    about = (
        f"retrieval: {options.images:,} images x {CAPTIONS * options.images:,} captions (R@1 "
        f"{recall:.0%}); metrics and cones: {(OWN + WRONG) * options.chains:,} pairs; "
        f"{DIM} dimensions, float64\nfigures equal: recalls exactly, others to {TOLERANCE}; "
        f"{options.rounds} rounds, alternating"
    )
    tables = Group(*(table_of(task, sides) for task, sides in found.items()))
    report("evaluation", tables, about, options, modules=("numpy", "sklearn"))


if __name__ == "__main__":
    main()
