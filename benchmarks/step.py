"""A whole training step at GRIT's statistics, against the plain step and the image tower alone.

Hyper3-CLIP as the paper has it, float32: 1.9 parts and 4 to 6 queries an image, the longest text
of the batch 77 tokens. One step is augmentation, towers, pooling, loss, backward pass, clipping and
AdamW. The plain side has the same, but tokenizes in the step, calls the towers once for each kind
of picture and text, pads all texts to the longest of the batch and encodes each as often as it
occurs, and repeats an image's patches for each of its queries. The limit is the image tower there
and back on the same pictures. Losses and gradients are checked equal first. Peak memory is of a
process that takes two steps of one side and does nothing else.

    python -m benchmarks.step
    python -m benchmarks.step --recipe hyper3_vit_b16-smoke --images 4 --rounds 2
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.timing import alternate, arguments, peak_mib, report, tabulate, worst_difference
from core.queries import Query, build_queries
from core.text import TextSpec, Tokenizer
from trainer.allocator import keep_freed_memory
from trainer.config import load_recipe
from trainer.data.augment import augment
from trainer.data.batch import Batch, Decoded, collate
from trainer.distributed import Shares, World
from trainer.model import DualEncoder
from trainer.objectives.loss import loss_terms
from trainer.objectives.nodes import Nodes
from trainer.optim import build_optimizer
from trainer.step import Training, backward, exact_products, train_step
from trainer.vocabulary import write_tokenizer

TOLERANCE = 2e-5  # of the largest value, of losses and of all gradients together
PARTS = (1, 1, 2, 1, 3, 2, 1, 4, 2, 2)  # of the images in turn: 1.9 on average
WORDS = [
    "dog", "cat", "bird", "house", "tree", "street", "river", "table", "chair", "lamp", "bottle",
    "apple", "bicycle", "car", "boat", "bridge", "woman", "man", "child", "hat", "coat", "red",
    "blue", "green", "yellow", "small", "large", "old", "wooden", "round", "bright",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A training and one batch, made and not yet made."""

    training: Training
    samples: list[Decoded]
    batch: Batch
    tokenizer: Tokenizer


def make_samples(count: int, side: int, seed: int) -> list[Decoded]:
    """Pictures of noise; captions of two sentences, the first one longer than 77 tokens."""
    draw = np.random.default_rng(seed)

    def words(number: int) -> str:
        return " ".join(draw.choice(WORDS, number))

    def picture() -> Any:
        return draw.integers(0, 256, (side, side, 3), dtype=np.uint8)

    made = []
    for number in range(count):
        length = 90 if number == 0 else int(draw.integers(3, 12))
        caption = f"A {words(length)}, a {words(3)} and a {words(2)}. It is {words(2)}."
        phrases = [f"a {words(2)}" for _ in range(PARTS[number % len(PARTS)])]
        made.append(Decoded(picture(), caption, [picture() for _ in phrases], phrases, phrases))
    return made


def make_case(options: argparse.Namespace) -> Case:
    """A fresh model of the recipe, and one batch for it."""
    overrides = [f'optim.precision="{options.precision}"', "optim.peak_lr=1e-6"]
    recipe = load_recipe(Path(options.recipe), overrides)
    torch.manual_seed(options.seed)
    model = DualEncoder(recipe).to(options.device)
    optimizer = build_optimizer(model, recipe.optim)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        write_tokenizer(file)
        tokenizer = Tokenizer(file, TextSpec(context_length=recipe.text_tower.context_length))
    samples = make_samples(options.images, recipe.data.side, options.seed)
    batch = collate(samples, tokenizer, recipe.needed, ())
    return Case(Training(recipe, model, model, optimizer, World()), samples, batch, tokenizer)


def device_of(case: Case) -> torch.device:
    """Of the model."""
    return case.training.model.image_proj.weight.device


def ours(case: Case, number: int) -> object:
    """One step as training takes it, the batch made by the loader."""
    device, batch = device_of(case), case.batch
    generator = torch.Generator(device).manual_seed(number)
    shares = Shares((), batch.links, batch.links)
    return train_step(case.training, batch.to(device), shares, generator)


@exact_products()
def plain(case: Case, number: int) -> object:
    """The same step, straightforward."""
    training, model = case.training, case.training.model
    generator = torch.Generator(device_of(case)).manual_seed(number)
    training.optimizer.zero_grad(set_to_none=True)
    loss = plain_loss(case, pictures(case, generator))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), training.recipe.optim.max_grad_norm)
    training.optimizer.step()
    model.clamp_scalars()
    return loss.item()


def limit(case: Case, number: int) -> object:
    """The image tower there and back."""
    tower = case.training.model.image_tower
    images = pictures(case, torch.Generator(device_of(case)).manual_seed(number))
    tower.zero_grad(set_to_none=True)
    with rounding(case):
        seen = tower(images)
    (seen.feature.sum() + seen.patches.sum()).backward()
    return seen


SIDES: dict[str, Callable[[Case, int], object]] = {"plain": plain, "ours": ours, "limit": limit}


def finished(side: Callable[[Case, int], object], case: Case, number: int) -> None:
    """One step, until the device has done it."""
    side(case, number)
    if device_of(case).type == "cuda":
        torch.cuda.synchronize()


def rounding(case: Case) -> torch.autocast:
    """Autocast, where the recipe has it."""
    enabled = case.training.recipe.optim.precision == "bf16"
    return torch.autocast(device_of(case).type, torch.bfloat16, enabled=enabled)


def pictures(case: Case, generator: torch.Generator) -> Tensor:
    """The wholes, then the parts, augmented and normalised."""
    recipe, pixels = case.training.recipe, case.batch.pictures
    if not isinstance(pixels, Tensor):
        raise TypeError("the batch holds stored features")
    pixels = pixels.to(generator.device)
    return augment(pixels, recipe.augment, generator, recipe.data)


def plain_loss(case: Case, images: Tensor) -> Tensor:
    """The loss, with texts and pictures encoded by kind, padded, and as often as they occur."""
    model, links = case.training.model, case.batch.links.to(device_of(case))
    wholes = images[: len(case.samples)]
    queries = [plain_queries(case, sample) for sample in case.samples]
    flat = [query for own in queries for query in own]
    starts = np.cumsum([0, *map(len, queries[:-1])]).repeat([len(own) for own in queries])
    active = [row for row, query in enumerate(flat) if query.weight > 0]
    parents = [int(starts[row]) + max(flat[row].parent, 0) for row in active]
    texts = [
        [sample.caption for sample in case.samples],
        [phrase for sample in case.samples for phrase in sample.phrases],
        [query.text for query in flat],
    ]
    with rounding(case):
        tokens = plain_tokens(case, texts)
        whole, part = model.image_tower(wholes), model.image_tower(images[len(wholes) :])
        captions, phrases, asked = (model.text_tower(group) for group in tokens)
        found = plain_pooling(model, whole.patches[links.query_owner], asked[active])
        found = model.node_proj(found)
    with torch.autocast(images.device.type, enabled=False):
        lift = model.space.lift
        seen = [lift(model.image_tangents(x.float())) for x in (whole.feature, part.feature, found)]
        read = [lift(model.text_tangents(x.float())) for x in (captions, phrases, asked)]
        nodes = Nodes(
            images=seen[0], texts=read[0], text_id=links.caption_id, part_images=seen[1],
            part_texts=read[1], part_owner=links.part_owner, part_count=links.part_count,
            part_id=links.part_id, part_text_id=links.part_text_id, query_images=seen[2],
            query_texts=read[2][active], query_text_id=links.query_text_id,
            query_parents=read[2][parents], query_owner=links.query_owner,
            query_weight=links.query_weight, query_has_parent=links.query_has_parent,
        )  # fmt: skip
        return loss_terms(nodes, model.scalars(), model.objective)["loss"] + model.anchor()


def plain_queries(case: Case, sample: Decoded) -> list[Query]:
    """All queries of a sample, the root first."""
    options = case.training.recipe.data
    return build_queries(
        sample.caption,
        sample.phrases,
        limit=options.max_queries,
        phrase_parent=options.phrase_parent,
        phrases_end_at_sentences=options.phrases_end_at_sentences,
    )


def plain_tokens(case: Case, texts: list[list[str]]) -> list[Tensor]:
    """Tokens of each kind of text, padded to the longest text of the batch."""
    ids = [[entry.ids for entry in case.tokenizer.encode(kind)] for kind in texts]
    longest = max(len(row) for kind in ids for row in kind)
    made = []
    for kind in ids:
        padded = np.zeros((len(kind), longest), np.int64)
        for row, own in zip(padded, kind, strict=True):
            row[: len(own)] = own
        made.append(torch.from_numpy(padded).to(device_of(case)))
    return made


def plain_pooling(model: DualEncoder, repeated: Tensor, states: Tensor) -> Tensor:
    """What each query finds in its own copy of the patches."""
    pooling = model.pooling
    if pooling is None:
        raise TypeError("the recipe has no pooling")
    query = pooling.text_query_proj(states)[:, None]
    attended, _ = pooling.cross_attention(query, repeated, repeated, need_weights=False)
    found: Tensor = attended[:, 0]
    return found + pooling.pool_mlp(pooling.mlp_norm(found))  # type: ignore[no-any-return]


def difference(case: Case) -> float:
    """Of loss and gradients, relative to the largest entry of all."""
    model, batch, device = case.training.model, case.batch, device_of(case)

    def results(loss: Tensor) -> dict[str, Tensor]:
        named = model.named_parameters()
        found = {name: value.grad for name, value in named if value.grad is not None}
        model.zero_grad(set_to_none=True)
        return found | {"loss": loss.detach()}

    images = pictures(case, torch.Generator(device).manual_seed(0))
    shares = Shares((), batch.links, batch.links)
    terms, _ = backward(case.training, batch.to(device), images, shares, seed=0)
    found = results(terms["loss"])
    loss = plain_loss(case, images)
    loss.backward()
    return worst_difference(found, results(loss))


def peak(options: argparse.Namespace) -> dict[str, float]:
    """MiB of this process after two steps of one side, and before them."""

    def held() -> float:
        if options.device != "cpu":
            return float(torch.cuda.max_memory_allocated()) / 2**20
        return peak_mib()

    case = make_case(options)
    before = held()
    for number in range(2):
        SIDES[options.alone](case, number)
    return {"before": before, "peak": held()}


def peaks(arguments_given: list[str]) -> dict[str, dict[str, float]]:
    """The same of each side, in a process of its own."""
    found = {}
    for side in SIDES:
        command = [sys.executable, "-m", "benchmarks.step", "--alone", side, *arguments_given]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[side] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Check, measure, and print one table."""
    keep_freed_memory()
    title = "A whole step against the plain one and the image tower."
    parser = arguments(title, rounds=3, seed=0, images=8)
    parser.add_argument("--recipe", default="hyper3_vit_b16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--alone", choices=tuple(SIDES), help="print one side's peak memory alone")
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(peak(options)))
        return
    case = make_case(options)
    worst = difference(case)
    if worst > (TOLERANCE if options.precision == "fp32" else 5e-2):
        sys.exit(f"losses or gradients differ by {worst:.1e} of their largest value")
    sides = {name: partial(finished, side, case) for name, side in SIDES.items()}
    seconds = alternate(sides, options.rounds)
    memory = peaks(sys.argv[1:])
    share = {
        side: f"{own['peak']:,.0f} ({own['peak'] / memory['plain']['peak']:.2f})"
        for side, own in memory.items()
    }
    above = {side: f"{own['peak'] - own['before']:,.0f}" for side, own in memory.items()}
    columns = {"peak MiB (of plain's)": share, "above the start": above}
    links, recipe = case.batch.links, case.training.recipe
    about = (
        f"{recipe.name}, {options.precision} on {options.device}: {options.images} images, "
        f"{len(links.part_owner)} parts, {len(links.query_owner)} queries below the captions, "
        f"longest text {max(group.shape[1] for group in case.batch.tokens)} tokens\n"
        f"loss and gradients equal to {worst:.1e} of their largest value; {options.rounds} rounds, "
        "alternating; memory of a process for each side, weights and AdamW's state included"
    )
    report("step", tabulate(seconds, "plain", columns), about, options)


if __name__ == "__main__":
    main()
