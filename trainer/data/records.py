"""A JSONL file of photos, captions and boxes: reading it, and judging every record.

A record is ``{"image": path beside the file, "captions": [...], "boxes": [{"phrase", "xyxy":
0..1 of the image, "caption": index, "name"}], "id", "orig_size": [width, height], "license"}``,
of which `image` and `captions` are needed. A box without `caption` belongs to every caption.
What cannot be used is left out and counted by its reason.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import DataError
from core.evaluation.records import MAX_ASPECT
from trainer.data.sample import Corners

LEAST_AREA = 1_024  # square pixels of the original photo; a box must have more
_MOST = 1e9  # of any number in a record

Record = dict[str, Any]


@dataclass
class Tally:
    """What was left out, by reason; photos by their id, since each is met once per caption."""

    photos: dict[str, str] = field(default_factory=dict)
    captions: Counter[str] = field(default_factory=Counter)
    boxes: Counter[str] = field(default_factory=Counter)
    without_parts: int = 0  # samples that were kept

    def add(self, other: "Tally") -> None:
        """Count what another worker left out too."""
        self.photos.update(other.photos)
        self.captions.update(other.captions)
        self.boxes.update(other.boxes)
        self.without_parts += other.without_parts

    def counts(self) -> dict[str, dict[str, int]]:
        """How many photos, captions and boxes were left out, by reason."""
        kinds = {
            "photos": Counter(self.photos.values()),
            "captions": self.captions,
            "boxes": self.boxes,
        }
        return {kind: dict(sorted(reasons.items())) for kind, reasons in kinds.items()}


def read_records(path: Path, limit: int | None = None) -> Iterator[tuple[int, Record]]:
    """The records of a JSONL file with their line numbers, the first ``limit`` of them.

    Raises:
        DataError: No such file, or a line is not a JSON object; the message has its number.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    count = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if count == limit:
            return
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}, line {number}: not JSON ({error}); one record a line"
            ) from error
        if not isinstance(record, dict):
            raise DataError(f"{path}, line {number}: not a JSON object; one record a line")
        count += 1
        yield number, record


def record_id(record: Record) -> str:
    """What the captions of one photo share."""
    return str(record.get("id") or record["image"])


def parts_of(
    record: Record, caption: int, size: tuple[int, int], tally: Tally
) -> list[tuple[str, str | None, Corners]]:
    """Phrase, name and box (0..1) of every part of one caption, in stored order.

    Args:
        record: With its boxes, of which none is malformed.
        caption: Index of the caption.
        size: Width and height of the original photo in pixels.
        tally: Counts what is left out.
    """
    kept, seen = [], set()
    for box in record.get("boxes") or []:
        if box.get("caption") not in (None, caption):
            continue
        phrase = box["phrase"].strip()
        if phrase in seen:
            tally.boxes["text seen before"] += 1
            continue
        seen.add(phrase)
        x0, y0, x1, y1 = (min(max(float(value), 0.0), 1.0) for value in box["xyxy"])
        corners = (x0, y0, x1, y1)
        # Whole pixels by truncation, as GRIT's preparation has it.
        left, top, right, bottom = (int(c * size[axis % 2]) for axis, c in enumerate(corners))
        if right <= left or bottom <= top:
            tally.boxes["empty or outside the image"] += 1
        elif (right - left) * (bottom - top) <= LEAST_AREA:
            tally.boxes[f"area not over {LEAST_AREA:,} px²"] += 1
        else:
            name = box.get("name")
            kept.append((phrase, str(name) if name else None, corners))
    return kept


def sound_boxes(record: Record, tally: Tally) -> list[dict[str, Any]]:
    """The boxes of a record that have a phrase, corners and a caption; others are counted."""
    boxes = record.get("boxes") or []
    kept = []
    for box in boxes if isinstance(boxes, list) else [boxes]:
        if not _is_box(box):
            tally.boxes["malformed"] += 1
        elif not is_text(box["phrase"]) or not is_text(str(box.get("name"))):
            tally.boxes["phrase is not valid text"] += 1
        elif box.get("caption") not in (None, *range(len(record["captions"]))):
            tally.boxes["caption does not exist"] += 1
        else:
            kept.append(box)
    return kept


def is_text(value: str) -> bool:
    """Whether a string can be written: JSON may hold halves of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_usable(record: Record, where: str, tally: Tally) -> bool:
    """Whether a record has an image and captions; if not, it is counted under ``where``."""
    image, captions = record.get("image"), record.get("captions")
    size = record.get("orig_size")
    if not isinstance(image, str) or not image:
        tally.photos[where] = "record without an image"
    elif not isinstance(captions, list) or not captions:
        tally.photos[where] = "record without captions"
    elif size is not None and not _is_size(size):
        tally.photos[where] = "orig_size is not [width, height]"
    elif size is not None and max(size) > MAX_ASPECT * min(size):
        tally.photos[where] = f"orig_size is beyond 1:{MAX_ASPECT}"
    elif not is_text(str(record.get("id")) + str(record.get("license"))):
        tally.photos[where] = "id or license is not valid text"
    else:
        return True
    return False


def _is_size(size: Any) -> bool:
    return isinstance(size, list) and len(size) == 2 and all(_is_number(v) and v > 0 for v in size)


def _is_box(box: Any) -> bool:
    if not isinstance(box, dict):
        return False
    phrase, corners = box.get("phrase"), box.get("xyxy")
    if not isinstance(phrase, str) or not phrase.strip():
        return False
    return isinstance(corners, list) and len(corners) == 4 and all(map(_is_number, corners))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST
