"""The curves of runs: what is drawn over what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.runs.named import Run
from trainer.runs.reports import Reports

_WINDOWS = 40  # of smoothing, in a curve

KINDS = {
    "image": "images",
    "text": "captions",
    "part_image": "part images",
    "part_text": "part texts",
    "query_image": "visual nodes",
    "query_text": "queries",
}
"""What points are of, as `radius/KIND` names them: pictures and their texts in pairs."""

DIRECTIONS = {"text_to_image": "text to image", "image_to_text": "image to text"}


@dataclass(frozen=True)
class Line:
    """One curve."""

    colour: int
    stroke: int
    name: str  # in the panel's own legend; none where it has none
    steps: Sequence[int]
    values: Sequence[float]
    is_dotted: bool = False  # few points, of held-out data, which are marked
    is_faint: bool = False  # what another line smooths


@dataclass(frozen=True)
class Panel:
    """Curves over one another."""

    title: str
    lines: tuple[Line, ...]
    has_names: bool = False  # whether it has a legend of its own
    from_zero: bool = False

    @property
    def is_log(self) -> bool:
        """Whether the small ones would lie on one another: a ratio of 20 or more."""
        values = [value for line in self.lines for value in line.values]
        return self.title == "loss" and 0 < 20 * min(values) < max(values)


def panels(runs: Sequence[Run]) -> list[Panel]:
    """Every panel that some run has figures for; a colour is a run's, where there are several."""
    is_one = len(runs) == 1
    found = [
        _panel(runs, "loss", "loss"),
        *(_recalls_of_one(runs[0]) if is_one else _recalls(runs)),
        *(_radii_of_one(runs[0]) if is_one else _radii(runs)),
        _panel(runs, "curvature", "scalar/curvature"),
        _panel(runs, "learning rate", "optim/lr", from_zero=True),
        _panel(runs, "norm of the gradient", "optim/grad_norm", from_zero=True),
        _panel(runs, "samples/s", "speed/samples_per_second", from_zero=True),
        _panel(runs, "waiting for data, % of the time", "speed/share_waiting_for_data",
               factor=100, from_zero=True),
        _panel(runs, "TFLOP/s of a device", "speed/teraflops_per_second", from_zero=True),
    ]  # fmt: skip
    return [panel for panel in found if panel.lines]


def _panel(
    runs: Sequence[Run], title: str, name: str, *, factor: float = 1, from_zero: bool = False
) -> Panel:
    """One figure of every run."""
    lines = [line for run in runs for line in _lines(run.reports, name, run.look, "", factor)]
    return Panel(title, tuple(lines), from_zero=from_zero)


def _recalls(runs: Sequence[Run]) -> Iterator[Panel]:
    for direction, words in DIRECTIONS.items():
        yield _panel(runs, f"R@1 {words}, held out, %", f"recall/{direction}@1", from_zero=True)


def _recalls_of_one(run: Run) -> Iterator[Panel]:
    lines = [
        line
        for colour, (direction, words) in enumerate(DIRECTIONS.items())
        for line in _lines(run.reports, f"recall/{direction}@1", (colour, 0), words)
    ]
    yield Panel("R@1, held out, %", tuple(lines), has_names=True, from_zero=True)


def _radii(runs: Sequence[Run]) -> Iterator[Panel]:
    for kind, words in KINDS.items():
        yield _panel(runs, f"mean radius of {words}", f"radius/{kind}")


def _radii_of_one(run: Run) -> Iterator[Panel]:
    """A colour each pair, texts dashed."""
    lines = [
        line
        for number, (kind, words) in enumerate(KINDS.items())
        for line in _lines(run.reports, f"radius/{kind}", divmod(number, 2), words)
    ]
    yield Panel("mean radius", tuple(lines), has_names=True)


def _lines(
    reports: Reports, name: str, look: tuple[int, int], label: str, factor: float = 1
) -> Iterator[Line]:
    """A figure of training, smoothed over what was reported, and of held-out data.

    Args:
        reports: Of a run.
        name: Of the figure.
        look: Colour and stroke.
        label: In a legend.
        factor: The values are multiplied by it.
    """
    steps, values = reports.series(name)
    if steps:
        raw = np.asarray(values) * factor
        smooth = smoothed(raw)
        if smooth is not raw:
            yield Line(*look, "", steps, raw.tolist(), is_faint=True)
        yield Line(*look, label, steps, smooth.tolist())
    held_out, values = reports.series(name, is_held_out=True)
    if held_out:
        scaled = [factor * value for value in values]
        if not steps:  # dots alone would say little
            yield Line(*look, label, held_out, scaled)
        yield Line(*look, "", held_out, scaled, is_dotted=True)


def smoothed(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Means over a window about each value, narrower at the ends; of few values themselves."""
    half = len(values) // _WINDOWS // 2
    if not half:
        return values
    total = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    reach = np.minimum(half, np.minimum(place, len(values) - 1 - place))
    sums = total[place + reach + 1] - total[place - reach]
    means: npt.NDArray[np.float64] = sums / (2 * reach + 1)
    return means
