"""What a drawing shows of one sample: pictures, parts and queries, as training takes them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from PIL import Image

from core.errors import ImageError
from core.image import decode, resize
from core.queries import Query, build_queries
from trainer.data.sample import Corners, Part, Sample, cut
from trainer.inspection.samples import Found
from trainer.sections import DataSection


@dataclass(frozen=True)
class Crop:
    """A part."""

    text: str
    box: Corners | None
    pixels: npt.NDArray[np.uint8] | None  # (side, side, 3); None where it cannot be had
    is_taken: bool
    """Whether it is among the random `max_parts` of this visit."""


@dataclass(frozen=True)
class Panel:
    """One sample, ready to be drawn."""

    title: str
    faults: tuple[str, ...] = ()
    """What training would leave the sample, or a part, out for."""
    whole: Image.Image | None = None
    crops: tuple[Crop, ...] = ()
    queries: tuple[Query, ...] = ()
    """``source_part`` is a place among the crops."""
    beyond: int = 0
    """How many more there would be without `max_queries`."""


def panel_of(found: Found, options: DataSection, rng: np.random.Generator) -> Panel:
    """The panel of a sample; what is wrong with it is in ``faults``.

    Args:
        found: The sample, or why there is none.
        options: What training takes of a sample, and how it fits pictures.
        rng: Chooses the parts where there are more than are taken.
    """
    sample = found.sample
    if sample is None:
        return Panel(found.shard.name, (found.fault,))
    title = f"{found.shard.name} · {sample.key}"
    if sample.photo not in ("", sample.key):
        title += f" · photo {sample.photo}"
    faults = [] if sample.text else ["empty caption"]
    whole = _whole(sample, faults)
    taken = _taken(sample.parts, options.max_parts, rng)
    crops = tuple(
        Crop(part.text, part.box, _pixels(part, number, whole, options, faults), number in taken)
        for number, part in enumerate(sample.parts)
    )
    queries = _queries(sample, [number for number in taken if sample.parts[number].text], options)
    limit = options.max_queries
    return Panel(title, tuple(faults), whole, crops, queries[:limit], len(queries[limit:]))


def _queries(sample: Sample, used: Sequence[int], options: DataSection) -> tuple[Query, ...]:
    """All queries; a limit only ever takes from their end."""
    queries = build_queries(
        sample.text,
        [sample.parts[number].text for number in used],
        limit=None,
        phrase_parent=options.phrase_parent,
        phrases_end_at_sentences=options.phrases_end_at_sentences,
    )
    return tuple(
        replace(query, source_part=used[query.source_part]) if query.source_part >= 0 else query
        for query in queries
    )


def _whole(sample: Sample, faults: list[str]) -> Image.Image | None:
    try:
        return decode(sample.jpeg)
    except ImageError as error:
        faults.append(f"unreadable image: {error}")
        return None


def _taken(parts: Sequence[Part], most: int, rng: np.random.Generator) -> list[int]:
    """The parts of one visit, as the loader draws them."""
    if len(parts) <= most:
        return list(range(len(parts)))
    return sorted(rng.choice(len(parts), most, replace=False).tolist())


def _pixels(
    part: Part, number: int, whole: Image.Image | None, options: DataSection, faults: list[str]
) -> npt.NDArray[np.uint8] | None:
    """The part as the image tower would see it."""
    if not part.text:
        faults.append(f"part {number + 1} has an empty phrase and is left out")
    try:
        if part.jpeg is not None:
            return resize(decode(part.jpeg), options.side, options.fit)
    except ImageError as error:
        faults.append(f"unreadable image of part {number + 1}: {error}")
        return None
    if whole is None or part.box is None:
        return None
    return resize(cut(whole, part.box), options.side, options.fit)
