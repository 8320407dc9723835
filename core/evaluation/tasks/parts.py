"""How many parts the pictures have, and what a cap on them keeps (Fig. 2, left)."""

from collections import Counter
from typing import Any

from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder
from core.evaluation.measure import Finding, Measure
from core.evaluation.metrics import part_statistics
from core.evaluation.task import Kind, Options

CAPS = (2, 3, 4, 5, 6)


def protocol(_data: Dataset, _options: Options) -> dict[str, Any]:
    """What counts as a part."""
    return {"part": "a box of a record", "caps": list(CAPS), "pictures": "also those without"}


def measure(_embedder: Embedder, data: Dataset, _options: Options) -> Finding:
    """Statistics of the records alone: nothing is embedded.

    ``details["histogram"]`` holds the pictures by their number of parts.
    """
    histogram = Counter(len(record.boxes) for record in data.records)
    found = part_statistics(histogram, CAPS)

    pictures = found.examples
    numbers = (
        ("all", found.parts),
        ("mean of a picture", found.mean),
        ("most of a picture", found.most),
    )
    shares = [
        ("pictures", "with one part", found.one, pictures),
        ("pictures", "with two or fewer", found.one_or_two, pictures),
        *(("parts kept", f"cap {cap}", found.retained[cap], found.parts) for cap in CAPS),
        *(("pictures kept whole", f"cap {cap}", found.untruncated[cap], pictures) for cap in CAPS),
    ]
    measures = [Measure("parts", name, n, None, pictures, unit="number") for name, n in numbers]
    measures += [Measure(group, name, value, None, n) for group, name, value, n in shares]
    counts = {str(parts): histogram[parts] for parts in sorted(histogram)}
    return Finding(tuple(measures), {"histogram": counts})


KIND = Kind(
    name="parts",
    about="how many parts pictures have, and what a cap keeps; no model is asked",
    applies=lambda data: any(record.boxes for record in data.records),
    protocol=protocol,
    measure=measure,
)
