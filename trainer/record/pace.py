"""How fast steps go by, and what they wait for: the data or the device."""

import math
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from core.cores import available_cores
from trainer.config import Recipe
from trainer.data.batch import Batch
from trainer.flops import Cost, cost_of, peak_of

WAITING = 0.1
"""Share of the time spent waiting from which the data is the bottleneck: a tenth could be won."""

_GIB = 2**30


@dataclass
class Stretch:
    """A stretch of training, without the evaluations in it."""

    seconds: float = 0.0
    waited: float = 0.0  # of them, for data
    saving: float = 0.0  # of them, for a checkpoint to be copied, and the one before written
    samples: int = 0  # of all processes
    flops: float = 0.0  # of this process

    @property
    def share_waiting(self) -> float:
        """Of the time."""
        return self.waited / self.seconds if self.seconds else 0.0

    @property
    def samples_per_second(self) -> float:
        """Of all processes."""
        return self.samples / self.seconds if self.seconds else 0.0

    def add(self, other: "Stretch") -> None:
        """Lengthen this stretch by another one."""
        self.seconds += other.seconds
        self.waited += other.waited
        self.saving += other.saving
        self.samples += other.samples
        self.flops += other.flops


@dataclass
class Pace:
    """The time of steps, since the last report and in all."""

    recipe: Recipe
    cost: Cost | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    total: Stretch = field(default_factory=Stretch)
    _now: Stretch = field(default_factory=Stretch)
    _since: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, recipe: Recipe) -> "Pace":
        """With what a step of the recipe costs, which takes a second to count."""
        return cls(recipe, cost_of(recipe))

    def restart(self) -> None:
        """Begin a stretch anew; what was measured since the last report does not count."""
        self._now, self._since = Stretch(), time.perf_counter()

    def waiting(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches; the time spent waiting for them is what the data path costs.

        The clock starts with the first, which waits for the workers to start.
        """
        is_first = True
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return
            self._now.waited += time.perf_counter() - start
            if is_first:
                self.restart()
                is_first = False
            self._now.flops += self.cost.of(batch) if self.cost else 0.0
            yield batch

    def step(self, samples: int, device: torch.device) -> None:
        """Note a step of so many samples of all processes."""
        self._now.samples += samples
        self.device = device

    def saved(self, seconds: float) -> None:
        """Note for how long the loop stood still for a checkpoint."""
        self._now.saving += seconds

    def report(self) -> dict[str, float]:
        """Figures of the stretch that ends here; the next one begins."""
        self._now.seconds = time.perf_counter() - self._since
        stretch = self._now
        self.total.add(stretch)
        self.restart()
        return {
            "speed/samples_per_second": stretch.samples_per_second,
            "speed/share_waiting_for_data": stretch.share_waiting,
            "speed/share_saving": stretch.saving / stretch.seconds,
            "speed/peak_memory_gib": peak_memory(self.device) / _GIB,
        } | self._flops(stretch)

    def _flops(self, stretch: Stretch) -> dict[str, float]:
        """What this process's device achieved, and of bfloat16 the share of its peak."""
        if not stretch.flops:
            return {}
        achieved = stretch.flops / stretch.seconds
        numbers = {"speed/teraflops_per_second": achieved / 1e12}
        peak = peak_of(self.device) if self.recipe.optim.precision == "bf16" else None
        return numbers | ({"speed/mfu": achieved / peak} if peak else {})

    def summary(self) -> str:
        """What the whole run's pace was and what limited it; nothing where no step was told."""
        total = self.total
        if not total.samples:
            return ""
        told = [f"{total.samples_per_second:,.3g} samples/s"]
        for name, value in self._flops(total).items():
            told.append(f"MFU {value:.0%}" if name.endswith("mfu") else f"{value:.3g} TFLOP/s")
        told.append(f"peak memory {peak_memory(self.device) / _GIB:.3g} GiB")
        return f"{', '.join(told)}; {verdict(total.share_waiting)}. {self._remedy()}".rstrip()

    def _remedy(self) -> str:
        """What to do where the data is the bottleneck."""
        share, workers = self.total.share_waiting, self.recipe.data.workers
        if share < WAITING:
            return ""
        gain = 1 / (1 - min(share, 0.99))
        cores, wanted = available_cores(), math.ceil(workers * gain)
        faster = f"Up to {gain:.2g} times as fast with"
        if self.recipe.data.features is None and self.recipe.image_tower.frozen:
            return f"{faster} data.features=FOLDER, which keeps what the frozen tower gives"
        if not workers:
            return f"{faster} data.workers=1: now the loop itself loads, and the device waits"
        if wanted <= cores:
            return f"{faster} more data.workers (now {workers}; try {wanted}, of {cores} cores)"
        return (
            f"{faster} smaller pictures in the shards, or more than these {cores} cores "
            f"(data.workers is {workers})"
        )


def verdict(share_waiting: float) -> str:
    """What limits the speed, in words."""
    if share_waiting < WAITING:
        return f"the device is the bottleneck ({share_waiting:.0%} of the time waiting for data)"
    return f"the data is the bottleneck ({share_waiting:.0%} of the time waiting for it)"


def peak_memory(device: torch.device) -> int:
    """The most bytes held so far: by tensors on a GPU, by this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:  # of this program alone: what getrusage tells begins at the peak of who started it
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return held if sys.platform == "darwin" else held * 1024
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
