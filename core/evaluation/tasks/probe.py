"""A linear probe: logistic regression on the pictures alone, as CLIP and MERU train it.

The features are tangents. They are flat, so that a linear map suits them, they are what every
encoder gives, served ones too, and their lift loses nothing of them. MERU's own figures are of
the tower's features before the projection, and are not to be set against these.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.progress import Progress

from core.errors import ConfigError, DataError
from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.metrics import mean_per_class_accuracy
from core.evaluation.task import Kind, Options
from core.evaluation.zero_shot import has_classes, per_class

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

_COARSE = tuple(range(-6, 7, 2))
"""Exponents of the costs that are tried first: a step of a hundred (CLIP, arXiv:2103.00020,
appendix A.3)."""
_FINER = 4  # times the step is halved around the best: to an eighth of a power of ten, as there
_MOST_STEPS = 1_000
_FIFTH = 5

_GROUP = "linear probe"


@dataclass(frozen=True)
class _Split:
    """Features and classes of some pictures."""

    features: Floats
    labels: Indices

    def take(self, rows: npt.NDArray[Any]) -> "_Split":
        """Those of some rows."""
        return _Split(self.features[rows], self.labels[rows])


def _applies(data: Dataset) -> bool:
    return has_classes(data) and data.train is not None


def _protocol(data: Dataset, options: Options) -> dict[str, Any]:
    train = _train(data)
    return {
        "preprocess": options.preprocess or "classification",
        "train": {"records": len(train.records), "digest": train.digest, "pictures": train.state()},
        "features": "tangents as they are",
        "classifier": f"logistic regression, L2, L-BFGS, {_MOST_STEPS:,} steps at most",
        "costs": f"10^{_COARSE[0]} to 10^{_COARSE[-1]} by 10^2, the step halved {_FINER} times",
        "chosen on": "a fifth of each class of train, by mean per class; of equal ones the least",
        "refit": "on all of train",
        "mean per class": "over the classes that have pictures",
        "scikit-learn": _version(),
    }


def _measure(embedder: Embedder, data: Dataset, options: Options) -> Finding:
    """The accuracy of the refitted classifier.

    ``details``: ``cost``, the chosen one; ``sweep``, ``[cost, mean per class]`` on the held-out
    fifth; ``unconverged``, how many fits took all of their steps.
    """
    _version()
    classes = len(next(iter(data.classes.values())))
    learnt, _, train_left_out = _split(embedder, _train(data), options, "pictures to learn from")
    tested, rows, left_out = _split(embedder, data, options, "pictures")
    sweep, unconverged = _sweep(learnt, classes, options.seed, embedder.progress)
    cost = _best(sweep)
    predicted, is_converged = _fit(learnt, tested.features, cost)
    hits = predicted == tested.labels
    measures = (
        per_class(_GROUP, "mean per class", predicted, tested.labels, rows, classes),
        Measure(
            _GROUP,
            "top-1",
            float(np.mean(hits)),
            1 / classes,
            len(hits),
            outcomes=Outcomes("mean", hits, rows),
        ),
    )
    details = {
        "cost": cost,
        "sweep": [[tried, sweep[tried]] for tried in sorted(sweep)],
        "unconverged": unconverged + (not is_converged),
    }
    return Finding(measures, details, (*left_out, *(f"train: {why}" for why in train_left_out)))


def _train(data: Dataset) -> Dataset:
    if data.train is None:
        raise DataError(f"{data.folder}: no train.jsonl there; `hyper3 data fetch` makes it")
    return data.train


def _version() -> str:
    """Of scikit-learn, which decides where its iterations end.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import sklearn  # noqa: PLC0415  # of the extra, and slow to load
    except ModuleNotFoundError as error:
        raise ConfigError(
            "a linear probe needs scikit-learn; run `pip install '.[eval]'` in a checkout"
        ) from error
    return str(sklearn.__version__)


def _split(
    embedder: Embedder, data: Dataset, options: Options, title: str
) -> tuple[_Split, Indices, tuple[str, ...]]:
    """Features and classes of the pictures that can be read, their rows, and why others cannot."""
    labels = data.labels()
    found = embedder.pictures(data.pictures(options.preprocess or "classification"), title)
    rows = np.array([row for row in range(len(labels)) if row not in found.faults], np.intp)
    split = _Split(found.tangents[rows].astype(np.float64), labels[rows])
    return split, rows, tuple(found.faults.values())


def _sweep(
    learnt: _Split, classes: int, seed: int, progress: Progress
) -> tuple[dict[float, float], int]:
    """The accuracy on the held-out fifth by cost, and how many fits took all of their steps."""
    held_out = _fifth(learnt.labels, seed)
    rest, held = learnt.take(~held_out), learnt.take(held_out)
    if not len(held.labels) or len(np.unique(rest.labels)) < 2:
        raise DataError(
            f"{len(learnt.labels):,} pictures to learn from, of {len(np.unique(learnt.labels)):,} "
            f"classes: a linear probe needs two classes, and one of {_FIFTH} pictures or more"
        )
    found: dict[float, float] = {}
    unconverged = 0
    task = progress.add_task("costs of the probe", total=len(_COARSE) + 2 * _FINER)

    def attempt(exponents: tuple[float, ...]) -> None:
        nonlocal unconverged
        for cost in (10.0**exponent for exponent in exponents):
            predicted, is_converged = _fit(rest, held.features, cost)
            unconverged += not is_converged
            found[cost] = mean_per_class_accuracy(predicted, held.labels, classes, "observed")
            progress.advance(task)

    attempt(_COARSE)
    step = float(_COARSE[1] - _COARSE[0])
    for _ in range(_FINER):
        step /= 2
        middle = np.log10(_best(found))
        attempt((middle - step, middle + step))
    progress.remove_task(task)
    return found, unconverged


def _best(sweep: dict[float, float]) -> float:
    return max(sorted(sweep), key=lambda cost: sweep[cost])


def _fifth(labels: Indices, seed: int) -> npt.NDArray[np.bool_]:
    """A fifth of each class drawn at random, ``(n,)``; a class of fewer than five is learnt."""
    random = np.random.default_rng(seed)
    held_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == label))
        held_out[rows[: len(rows) // _FIFTH]] = True
    return held_out


def _fit(learnt: _Split, features: Floats, cost: float) -> tuple[Indices, bool]:
    """What a classifier of this cost takes features for, and whether it converged."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  # as in _version
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    model = LogisticRegression(C=cost, max_iter=_MOST_STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # counted, and said in the details
        model.fit(learnt.features, learnt.labels)
    return model.predict(features).astype(np.intp), bool(np.all(model.n_iter_ < _MOST_STEPS))


KIND = Kind(
    "probe",
    "a linear classifier on the pictures, learnt from the training split",
    _applies,
    _protocol,
    _measure,
)
