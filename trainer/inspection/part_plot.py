"""Fig. 2 (left) of Hyper3-CLIP for any shards: parts of a sample, and what a cap keeps."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from core.evaluation.report.canvas import COLOURS
from core.evaluation.report.svg import INK
from trainer.inspection.canvas import write_png
from trainer.inspection.scan import CAPS, Scan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_BARS = 10  # numbers of parts with a bar of their own; all above share one

_BLUE, _ORANGE = COLOURS[:2]


def plot(path: Path, scan: Scan) -> None:
    """Write the plot as PNG; there is at least one part.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    figures = scan.figures()

    def draw(figure: "Figure") -> None:
        figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.08, wspace=0.04)
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
        _histogram(left, scan.histogram)
        _caps(right, figures)
        figure.suptitle(
            f"{figures['samples']:,} samples, {figures['parts']:,} parts: "
            f"{figures['parts of a sample, mean']:.4g} parts a sample, "
            f"{figures['parts of a sample, most']:,} at most",
            x=0.012, ha="left", fontsize=11, fontweight="bold",
        )  # fmt: skip

    write_png(path, (9.6, 3.9), draw)


def _histogram(axes: "Axes", histogram: Mapping[int, int]) -> None:
    most = max(histogram)
    last = most if most <= _MOST_BARS + 1 else _MOST_BARS + 1
    numbers = np.arange(0 if 0 in histogram else 1, last + 1)
    samples = np.array([histogram.get(int(number), 0) for number in numbers], dtype=float)
    samples[-1] += sum(count for number, count in histogram.items() if number > last)
    shares = samples / samples.sum() * 100
    axes.bar(numbers, shares, 0.78, color=_BLUE)
    for number, share in zip(numbers, shares, strict=True):
        axes.annotate(_percent(share), (number, share), (0, 2), textcoords="offset points",
                      ha="center", va="bottom", fontsize=8.5, color=INK)  # fmt: skip
    axes.set_xticks(numbers, [*map(str, numbers[:-1]), f"≥{last}" if last < most else str(last)])
    axes.set_xlabel("parts of a sample")
    axes.set_ylabel("share of samples, %")
    axes.set_ylim(0, shares.max() * 1.12)
    axes.grid(visible=False, axis="x")


def _caps(axes: "Axes", figures: Mapping[str, float]) -> None:
    """What stays, of parts and of samples, by the most parts that are taken."""
    lines = (("parts kept", _BLUE, "s", "-"), ("samples whole", _ORANGE, "o", "--"))
    for name, colour, marker, stroke in lines:
        values = [figures[f"cap {cap}, {name}"] * 100 for cap in CAPS]
        axes.plot([*CAPS, CAPS[-1] + 1], [*values, 100], color=colour, marker=marker,
                  linestyle=stroke, markersize=5, linewidth=1.8, label=name)  # fmt: skip
    axes.set_xticks([*CAPS, CAPS[-1] + 1], [*map(str, CAPS), "all"])
    axes.set_xlabel("most parts taken of a sample")
    axes.set_ylabel("kept, %")
    axes.set_ylim(0, 108)
    axes.set_yticks(range(0, 101, 20))
    axes.legend(loc="lower right")


def _percent(share: float) -> str:
    """A share in percent, short; what is there is never called 0."""
    if share == 0:
        return ""
    return f"{share:.1f}" if share >= 0.05 else "<0.1"
