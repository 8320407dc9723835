"""Query-conditioned pooling, forward and backward, against plain multi-head attention.

Both pool 16 images of 196 patches (width 768, 8 heads, float32) for 3 to 6 queries an image, with
the same parameters. The plain side repeats the patches of an image for each of its queries and
gives them to `nn.MultiheadAttention`. Outputs and all gradients are checked equal first.

    python -m benchmarks.pooling
    python -m benchmarks.pooling --save
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.timing import alternate, arguments, report, tabulate, worst_difference
from trainer.allocator import keep_freed_memory
from trainer.pooling import QueryPooling

IMAGES, PATCHES, WIDTH, HEADS, TEXT_WIDTH = 16, 196, 768, 8, 512
FEWEST, MOST = 3, 6  # queries of an image
TOLERANCE = 1e-5  # of the largest value, of outputs and of each gradient


@dataclass(frozen=True)
class Case:
    """Patches, the texts of the queries, and whose they are."""

    patches: Tensor  # (images, patches, width)
    states: Tensor  # (queries, text width)
    image: Tensor  # (queries,): the image of each query
    slot: Tensor  # (queries,): image * MOST + place
    weight: Tensor  # (queries, width): the gradient that comes from above


def make_case(seed: int) -> Case:
    """Random inputs, leaves of the gradient; the number of queries differs between images."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(FEWEST, MOST + 1, (IMAGES,), generator=generator)
    image = torch.arange(IMAGES).repeat_interleave(counts)
    place = torch.cat([torch.arange(int(count)) for count in counts])

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    return Case(
        normal(IMAGES, PATCHES, WIDTH).requires_grad_(),
        normal(len(image), TEXT_WIDTH).requires_grad_(),
        image,
        image * MOST + place,
        normal(len(image), WIDTH),
    )


def folded(pooling: QueryPooling, case: Case) -> Tensor:
    """Ours: the maps of keys and values folded."""
    return pooling.attend(case.patches, case.states, case.slot, MOST)


def plain(pooling: QueryPooling, case: Case) -> Tensor:
    """The library's attention over patches repeated for each query."""
    repeated = case.patches[case.image]
    query = pooling.text_query_proj(case.states)[:, None]
    attended, _ = pooling.cross_attention(query, repeated, repeated, need_weights=False)
    return attended[:, 0]  # type: ignore[no-any-return]


def run(pooling: QueryPooling, case: Case, pool: Callable[[QueryPooling, Case], Tensor]) -> Tensor:
    """One forward and backward pass; the gradients are left where they belong."""
    for leaf in leaves(pooling, case).values():
        leaf.grad = None
    out = pool(pooling, case)
    out.backward(case.weight)
    return out.detach()


def leaves(pooling: QueryPooling, case: Case) -> dict[str, Tensor]:
    """What gets a gradient: inputs, the map of the queries and the attention's parameters."""
    parameters = {
        name: parameter
        for name, parameter in pooling.named_parameters()
        if name.startswith(("text_query_proj", "cross_attention"))
    }
    return {"patches": case.patches, "states": case.states} | parameters


def difference(pooling: QueryPooling, case: Case) -> float:
    """The largest difference of outputs and gradients, each by the largest value of its tensor."""

    def results(pool: Callable[[QueryPooling, Case], Tensor]) -> dict[str, Tensor]:
        output = run(pooling, case, pool)
        gradients = {
            name: leaf.grad.clone()
            for name, leaf in leaves(pooling, case).items()
            if leaf.grad is not None
        }
        return {"output": output} | gradients

    found, expected = results(folded), results(plain)
    return max(worst_difference({name: found[name]}, {name: expected[name]}) for name in expected)


def main() -> None:
    """Check, measure, and print one table."""
    keep_freed_memory()
    title = "Query-conditioned pooling against plain."
    options = arguments(title, rounds=15, seed=0).parse_args()
    torch.manual_seed(options.seed)
    pooling, case = QueryPooling(TEXT_WIDTH, WIDTH, HEADS), make_case(options.seed)
    worst = difference(pooling, case)
    if worst > TOLERANCE:
        sys.exit(f"outputs or gradients differ by {worst:.1e} of their largest value")
    sides = {
        "plain": lambda _: run(pooling, case, plain),
        "folded": lambda _: run(pooling, case, folded),
    }
    seconds = alternate(sides, options.rounds)
    about = (
        f"forward + backward, {IMAGES} images of {PATCHES} patches, {len(case.image)} queries, "
        f"width {WIDTH}, {HEADS} heads, float32\n"
        f"outputs and gradients equal to {worst:.1e} of their largest value; "
        f"{options.rounds} rounds, alternating"
    )
    report("pooling", tabulate(seconds, "plain"), about, options)


if __name__ == "__main__":
    main()
