"""One sample, from its shard to what a batch is made of."""

from collections.abc import Sequence

import numpy as np

from core.errors import DataError, ImageError
from trainer.data.batch import Decoded, Picture
from trainer.data.pictures import pictures
from trainer.data.shards import ShardIndex, read_sample
from trainer.features.store import Features
from trainer.sections import DataSection


def decode_sample(
    index: ShardIndex,
    number: int,
    options: DataSection,
    rng: np.random.Generator,
    features: Features | None = None,
) -> Decoded:
    """Read and decode one sample, taking a random subset of its parts before decoding them.

    Args:
        index: Where it lies.
        number: Its row there.
        options: Sizes, and how many parts.
        rng: Draws the parts.
        features: Of these shards; with them no picture is read.

    Raises:
        DataError: The caption is empty, or a member is missing or unreadable.
    """
    sample = read_sample(index, number, pictures=features is None)
    where = f"{index.shards[index.shard[number]]}: sample {sample.key}"
    if not sample.text:
        raise DataError(f"{where}: empty caption")
    chosen: Sequence[int] = range(len(sample.parts))
    if len(chosen) > options.max_parts:
        chosen = sorted(rng.choice(len(chosen), options.max_parts, replace=False).tolist())
    chosen = [part for part in chosen if sample.parts[part].text]
    taken = [sample.parts[part] for part in chosen]
    found: Sequence[Picture]
    patches = None
    try:
        if features is None:
            found = pictures(sample, taken, options)
        else:
            found, patches = features.of(number, chosen)
    except ImageError as error:
        raise DataError(f"{where}: unreadable image: {error}") from error
    phrases = [part.text for part in taken]
    names = [part.name or part.text for part in taken]
    return Decoded(found[0], sample.text, list(found[1:]), phrases, names, patches)
