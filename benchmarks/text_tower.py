"""The text tower per step, forward and backward, against padded texts.

Both encode the texts of the same batches of shards (12 layers of 512, float32): every caption, box
text and query. The plain side pads them to the longest of the batch and encodes each text as often
as it occurs. Ours encodes each distinct text once, in groups of like length, and scatters the
states back. States and all gradients are checked equal on the first batch.

    python -m benchmarks.text_tower
    python -m benchmarks.text_tower SHARDS --batch 8 --width 64 --layers 2 --rounds 2
"""

import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.timing import alternate, arguments, report, tabulate, worst_difference
from core.text import TextSpec
from trainer.allocator import keep_freed_memory
from trainer.data.batch import Batch
from trainer.data.loader import BatchDataset, Schedule
from trainer.data.shards import find_shards, index_shards
from trainer.sections import DataSection
from trainer.sections import TextTower as TextSection
from trainer.towers import TextTower
from trainer.vocabulary import write_tokenizer

TOLERANCE = 1e-5  # of the largest value


@dataclass(frozen=True)
class Case:
    """The texts of one batch, as they occur and as they differ."""

    padded: Tensor  # (occurrences, longest)
    groups: tuple[Tensor, ...]  # of distinct texts
    occurrence: Tensor  # (occurrences,) row of each among the distinct ones
    weight: Tensor  # (occurrences, width): the gradient that comes from above


def make_case(batch: Batch, width: int) -> Case:
    """Every caption, box text and query of a batch."""
    links = batch.links
    occurrence = torch.cat([links.caption, links.part_text, links.query_text])
    longest = max(group.shape[1] for group in batch.tokens)
    distinct = torch.cat(
        [functional.pad(group, (0, longest - group.shape[1])) for group in batch.tokens]
    )
    draw = torch.Generator().manual_seed(len(occurrence))
    weight = torch.randn((len(occurrence), width), generator=draw)
    return Case(distinct[occurrence], batch.tokens, occurrence, weight)


def ours(tower: TextTower, case: Case) -> Tensor:
    """The state of each occurrence."""
    states: Tensor = tower(*case.groups)
    return states[case.occurrence]


def plain(tower: TextTower, case: Case) -> Tensor:
    """The same, of padded texts."""
    states: Tensor = tower(case.padded)
    return states


def run(tower: TextTower, cases: list[Case], side: str, number: int) -> dict[str, Tensor]:
    """States and gradients, after one pass there and back over the batch of a round."""
    case = cases[number % len(cases)]
    tower.zero_grad(set_to_none=True)
    states = {"ours": ours, "plain": plain}[side](tower, case)
    states.backward(case.weight)
    found = {name: value.grad for name, value in tower.named_parameters()}
    return {name: grad for name, grad in found.items() if grad is not None} | {
        "states": states.detach()
    }


def difference(tower: TextTower, cases: list[Case]) -> float:
    """Of states and gradients, each by the largest value of its tensor."""
    found, expected = (
        {name: value.clone() for name, value in run(tower, cases, side, 0).items()}
        for side in ("ours", "plain")
    )
    return max(worst_difference({name: found[name]}, {name: expected[name]}) for name in expected)


def batches(shards: str, size: int, count: int, seed: int) -> list[Batch]:
    """The first batches of a training on these shards, with small pictures."""
    options = DataSection(train=shards, side=16)
    index = index_shards(find_shards(shards))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder) / "tokenizer.json"
        write_tokenizer(tokenizer)
        dataset = BatchDataset(index, tokenizer, TextSpec(), options, seed)
        made = [dataset[request] for request in Schedule(index, size, seed, 0, count)]
    for batch in made:
        if not isinstance(batch, Batch):
            sys.exit(str(batch))
    return [batch for batch in made if isinstance(batch, Batch)]


def main() -> None:
    """Check, measure, and print one table."""
    keep_freed_memory()
    sizes = {"batch": 32, "width": 512, "layers": 12, "heads": 8}
    parser = arguments("The text tower against padded texts.", rounds=6, seed=0, **sizes)
    parser.add_argument("shards", nargs="?", default="data/flickr8k-boxes/train")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    section = TextSection(width=options.width, layers=options.layers, heads=options.heads)
    tower = TextTower(section)
    given = batches(options.shards, options.batch, options.rounds + 1, options.seed)
    cases = [make_case(batch, options.width) for batch in given]
    worst = difference(tower, cases)
    if worst > TOLERANCE:
        sys.exit(f"states or gradients differ by {worst:.1e} of their largest value")
    sides = {side: partial(run, tower, cases, side) for side in ("plain", "ours")}
    seconds = alternate(sides, options.rounds)
    occurrences = sum(len(case.occurrence) for case in cases)
    distinct = sum(len(group) for case in cases for group in case.groups)
    tokens = [
        sum(case.padded.numel() for case in cases),
        sum(group.numel() for case in cases for group in case.groups),
    ]
    about = (
        f"forward + backward, {section.layers} layers of {section.width}, float32; {len(cases)} "
        f"batches of {options.batch} samples of {options.shards}, another in each round\n"
        f"{occurrences:,} texts, {distinct:,} of them distinct; {tokens[0]:,} tokens with their "
        f"padding, and {tokens[1]:,} in groups of like length\n"
        f"states and gradients equal to {worst:.1e} of their largest value"
    )
    report("text-tower", tabulate(seconds, "plain"), about, options)


if __name__ == "__main__":
    main()
