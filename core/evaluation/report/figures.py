"""Figures of a report: named, looked up, averaged, written as people read them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.errors import DataError
from core.evaluation.measure import Measure
from core.evaluation.report.document import Tone
from core.evaluation.report.likeness import why_not_paired
from core.evaluation.report.models import Model
from core.evaluation.report.published import Key, Published, published
from core.evaluation.result import Result
from core.evaluation.statistics import RESAMPLES, Difference, compare

NOTHING = "\N{EN DASH}"
"""Stands for a number that there is not."""

PAPER = "Hyper3-CLIP"
"""Whose published figures differences are taken to."""

_SURE = 0.05
"""Under this p a difference is taken for more than chance."""

_LEAST_P = 2 / (RESAMPLES + 1)
"""No draw fell on the other side: the true p may be anything below."""

_FRACTIONS = "hierarchy"
"""How groups begin whose shares are printed as 0.82, not as 82, wherever they are published."""


@dataclass(frozen=True)
class Figure:
    """What stands in one row of a table."""

    label: str
    key: Key
    otherwise: Key | None = None
    """Where else the same figure stands."""
    parts: tuple["Figure", ...] = ()
    """Of a mean: what it is of. It exists where all of them do."""
    is_lower_better: bool = False
    """Said already where nothing was measured."""

    def of(self, model: Model) -> Measure | None:
        """A model's figure, or None where it was not measured."""
        if not self.parts:
            return self._found(model)[0]
        measures = [part.of(model) for part in self.parts]
        known = [measure for measure in measures if measure is not None]
        return mean_of(known, self.key) if len(known) == len(measures) else None

    def result_of(self, model: Model) -> Result | None:
        """The result that holds a model's figure; None of a mean, which is of several."""
        return None if self.parts else self._found(model)[1]

    @property
    def published(self) -> tuple[Published, ...]:
        """What others have published for it."""
        return published().get(self.key, ())

    def _found(self, model: Model) -> tuple[Measure | None, Result | None]:
        for key in (self.key, self.otherwise):
            measure = model.find(*key) if key else None
            if key and measure is not None:
                return measure, model.results[key[0]]
        return None, None


def mean_of(measures: Sequence[Measure], key: Key) -> Measure:
    """The mean of figures of different data sets.

    Pictures of different sets are drawn apart, so half widths of intervals add as squares.
    """
    count = len(measures)
    value = sum(measure.value for measure in measures) / count
    halves = [_half(measure) for measure in measures]
    low = high = None
    if all(half is not None for half in halves):
        width = math.sqrt(sum(half**2 for half in halves if half is not None)) / count
        low, high = value - width, value + width
    chances = [m.chance for m in measures if m.chance is not None]
    return replace(
        measures[0],
        group=key[1],
        name=key[2],
        value=value,
        chance=sum(chances) / count if len(chances) == count else None,
        count=sum(measure.count for measure in measures),
        outcomes=None,
        low=low,
        high=high,
    )


def _half(measure: Measure) -> float | None:
    if measure.low is None or measure.high is None:
        return None
    return (measure.high - measure.low) / 2


def shown(measure: Measure) -> str:
    """A value with its interval: ``43.2 [41.8, 44.6]``, shares in percent."""
    text = number(measure, measure.value)
    if measure.low is None or measure.high is None or math.isnan(measure.low):
        return text
    return f"{text} [{number(measure, measure.low)}, {number(measure, measure.high)}]"


def number(measure: Measure, value: float) -> str:
    """A value of a measure; a dash where it is of nothing."""
    if not math.isfinite(value):
        return NOTHING
    if is_percent(measure):
        return f"{value * 100:.1f}"
    return f"{value:.3f}" if measure.unit == "share" else measure.number(value)


def is_percent(measure: Measure) -> bool:
    """Whether it is shown in percent: a share, but for those that are printed as fractions."""
    return measure.unit == "share" and not measure.group.startswith(_FRACTIONS)


def printed(row: Published, *, in_percent: bool) -> str:
    """A published value, with as many decimals as its source has; † where it is secondary."""
    value = row.value * 100 if in_percent else row.value
    decimals = row.decimals + (0 if in_percent == row.is_percent else 2 * _shift(row))
    return f"{value:,.{max(0, decimals)}f}{'†' if row.is_secondary else ''}"


def _shift(row: Published) -> int:
    return 1 if row.is_percent else -1


def signed(measure: Measure, delta: float) -> str:
    """A difference, of percent in points."""
    if not math.isfinite(delta):
        return NOTHING
    if is_percent(measure):
        return f"{round(delta * 100, 1) + 0.0:+.1f}"  # no -0.0
    if measure.unit == "share":
        return f"{round(delta, 3) + 0.0:+.3f}"
    delta = round(delta, 4) + 0.0
    return f"{'-' if delta < 0 else '+'}{measure.number(abs(delta))}"


@dataclass(frozen=True)
class Delta:
    """A difference as a cell of a table."""

    text: str = ""
    tone: Tone = ""


def delta(figure: Figure, model: Model, base: Model, seed: int) -> Delta:
    """A model less the baseline: ``+1.2 [0.4, 2.0] p=0.004``; without a test where none can be."""
    mine, theirs = figure.of(model), figure.of(base)
    if mine is None or theirs is None:
        return Delta()
    found = _tested(figure, model, base, seed)
    if found is None:
        return marked(mine, mine.value - theirs.value)
    low, high = signed(mine, found.low), signed(mine, found.high)
    p = f"p={found.p:.3f}" if found.p > _LEAST_P else f"p≤{_LEAST_P:.3f}"
    return marked(mine, found.delta, f" [{low}, {high}] {p}", is_sure=found.p < _SURE)


def marked(measure: Measure, difference: float, more: str = "", *, is_sure: bool = False) -> Delta:
    """A difference and whether it is for the better; in a word where less is better.

    A mean radius, or how many texts a path meets, is not better for being large: what is neither
    a headline nor set against chance, and not better when small, has no tone.
    """
    text = signed(measure, difference)
    has_aim = measure.is_lower_better or measure.is_headline or measure.chance is not None
    if not has_aim or not math.isfinite(difference) or not text.strip("+-0."):
        return Delta(f"{text}{more}")
    is_better = (difference < 0) == measure.is_lower_better
    word = f" {'better' if is_better else 'worse'}" if measure.is_lower_better else ""
    if is_sure:
        return Delta(f"{text}{word}{more}", "better sure" if is_better else "worse sure")
    return Delta(f"{text}{word}{more}", "better" if is_better else "worse")


def _tested(figure: Figure, model: Model, base: Model, seed: int) -> Difference | None:
    """The paired difference of a headline figure of the same items of two models."""
    mine, theirs = figure.of(model), figure.of(base)
    ours, others = figure.result_of(model), figure.result_of(base)
    if mine is None or theirs is None or ours is None or others is None:
        return None
    if not (mine.is_headline and theirs.is_headline and mine.outcomes and theirs.outcomes):
        return None
    if why_not_paired(ours, others, mine.group):
        return None
    try:
        return compare(mine.outcomes, theirs.outcomes, seed)
    except DataError:  # of other pictures after all
        return None
