"""Warnings over time: each is said when it comes and when it goes, and counted."""

from collections import Counter
from dataclasses import dataclass, field

from trainer.config import Recipe
from trainer.health.signs import warnings

REPORTS_UNTIL_WELL = 3
"""Reports in a row without a sign before it counts as gone: scalars tremble at their bounds."""


@dataclass
class Watch:
    """Which warnings were said already, and how often each was due."""

    recipe: Recipe
    counts: Counter[str] = field(default_factory=Counter)
    last: dict[str, int] = field(default_factory=dict)  # the step of each sign's last report
    _absent: dict[str, dict[str, int]] = field(default_factory=dict)  # by sign and split

    def look(self, split: str, step: int, numbers: dict[str, float]) -> list[str]:
        """The sentences to say now: of what is newly wrong, or well again.

        Nothing is judged during the warm-up, while the weights are next to random.
        """
        if step <= self.recipe.optim.warmup_steps and step < self.recipe.last_step:
            return []
        found = warnings(self.recipe, numbers)
        said = [
            f"[yellow]step {step:,}: {told}[/]"
            for what, told in found.items()
            if what not in self._absent
        ]
        for what in found:
            self.counts[what] += 1
            self.last[what] = step
            self._absent.setdefault(what, {})[split] = 0
        return said + [f"step {step:,}: no more {what}" for what in self._gone(split, found)]

    def summary(self) -> list[str]:
        """A line for each sign that was seen."""
        return [
            f"[yellow]{what}:[/] in {count:,} reports, last at step {self.last[what]:,}"
            for what, count in self.counts.most_common()
        ]

    def _gone(self, split: str, found: dict[str, str]) -> list[str]:
        gone = []
        for what, splits in list(self._absent.items()):
            if what in found or split not in splits:
                continue
            splits[split] += 1
            if splits[split] == REPORTS_UNTIL_WELL:
                del splits[split]
            if not splits:
                del self._absent[what]
                gone.append(what)
        return gone
