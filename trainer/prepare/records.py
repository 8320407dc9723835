"""What is prepared: photos with captions and boxes, and the judgement of every record.

Every format is turned into records, ``{"image": path below the images' folder, "captions": [...],
"boxes": [{"phrase", "xyxy": 0..1 of the image, "caption": index, "name"}], "id", "orig_size":
[width, height], "license"}``, of which `image` and `captions` are needed. A box without
`caption` belongs to every caption. ``orig_size`` is that of a photo that was stored squashed;
where one was only made smaller, published formats have its first size, ``true_size`` here. What
cannot be used is left out and counted by its reason.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

from core.evaluation.records import MAX_ASPECT, check_size, clip_box
from trainer.data.sample import Corners

LEAST_AREA = 1_024  # square pixels of the original photo; a box must have more
_MOST = 1e9  # of any number in a record
_LONGEST_ID = 200  # letters

Record = dict[str, Any]
Kind = Literal["photos", "captions", "boxes", "phrases", "shards"]


@dataclass
class Tally:
    """What was left out, by kind and reason, with the first place of each."""

    left_out: dict[str, dict[str, int]] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)  # "photos: no JSON" -> "line 3"
    without_parts: int = 0  # samples that were kept
    notes: dict[str, int] = field(default_factory=dict)  # of what was kept, but changed

    def skip(self, kind: Kind, reason: str, where: str, count: int = 1) -> None:
        """Count something that is left out.

        Args:
            kind: What it is.
            reason: Why; one of few, since reasons are counted.
            where: Which it is; of each reason, the first is remembered.
            count: How many.
        """
        _count(self.left_out.setdefault(kind, {}), reason, count)
        self.first.setdefault(f"{kind}: {reason}", printable(where))

    def note(self, what: str, count: int = 1) -> None:
        """Count something that was kept, but changed."""
        _count(self.notes, what, count)

    def add(self, other: "Tally") -> None:
        """Count what came after this as well."""
        for kind, reasons in other.left_out.items():
            for reason, count in reasons.items():
                _count(self.left_out.setdefault(kind, {}), reason, count)
        for what, count in other.notes.items():
            self.note(what, count)
        self.first = other.first | self.first
        self.without_parts += other.without_parts

    def counts(self) -> dict[str, dict[str, int]]:
        """How many were left out, by kind and reason."""
        return {kind: dict(sorted(found.items())) for kind, found in sorted(self.left_out.items())}


def sound_record(found: Any, where: str, tally: Tally) -> Record | None:
    """What can be used of a record; None, and counted under ``where``, if that is nothing.

    Captions keep their index; ``usable`` has the indices of those that can be used.
    """
    record = found if isinstance(found, dict) else {}
    image, captions, size = record.get("image"), record.get("captions"), record.get("orig_size")
    if not isinstance(found, dict):
        fault = "not a JSON object"
    elif not isinstance(image, str) or not image:
        fault = "record without an image"
    elif not isinstance(captions, list) or not captions:
        fault = "record without captions"
    elif size is not None and not _is_size(size):
        fault = "orig_size is not [width, height]"
    elif size is not None and _is_strip(size):
        fault = f"orig_size is beyond 1:{MAX_ASPECT}"
    elif not is_text(str(record.get("id")) + str(record.get("license")) + image):
        fault = "image, id or license is not valid text"
    else:
        usable = _sound_captions(captions, where, tally)
        if not usable:
            return None
        kept = {key: record[key] for key in ("captions", "orig_size", "license") if key in record}
        kept |= {
            "usable": usable,
            "id": str(record.get("id") or image)[:_LONGEST_ID],
            "image": image,
        }
        true_size = record.get("true_size")
        if true_size and _is_size(true_size) and not _is_strip(true_size):
            kept["true_size"] = true_size
        return kept | {"boxes": _sound_boxes(record, where, tally)}
    tally.skip("photos", fault, where)
    return None


def parts_of(
    record: Record, caption: int, size: tuple[int, int], tally: Tally
) -> list[tuple[str, str | None, Corners]]:
    """Phrase, name and box (0..1) of every part of one caption, in stored order.

    The rules are those of HyCoCLIP's preparation of GRIT (arXiv:2410.06912): a text seen before
    in the sample is skipped, even where the earlier one was too small; corners are brought to
    whole pixels by truncation, and the area between them must be over 1,024 square pixels.

    Args:
        record: With its boxes, of which none is malformed.
        caption: Index of the caption.
        size: Width and height of the original photo in pixels.
        tally: Counts what is left out.
    """
    kept, seen, where = [], set(), record["id"]
    for box in record["boxes"]:
        if box["caption"] not in (None, caption):
            continue
        phrase = box["phrase"]
        if phrase in seen:
            tally.skip("boxes", "text seen before", where)
            continue
        seen.add(phrase)
        try:
            corners = clip_box(box["xyxy"])
        except ValueError:
            tally.skip("boxes", "empty or outside the image", where)
            continue
        left, top, right, bottom = whole_pixels(corners, size)
        if right <= left or bottom <= top:
            tally.skip("boxes", "empty or outside the image", where)
        elif (right - left) * (bottom - top) <= LEAST_AREA:
            tally.skip("boxes", f"area not over {LEAST_AREA:,} px²", where)
        else:
            kept.append((phrase, box["name"], corners))
    return kept


def whole_pixels(box: Corners, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The corners of a box in pixels of a picture, truncated; it may have no area."""
    left, top, right, bottom = (int(c * size[axis % 2]) for axis, c in enumerate(box))
    return left, top, right, bottom


def is_text(value: str) -> bool:
    """Whether a string can be written: JSON may hold halves of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_number(value: Any) -> TypeGuard[float]:
    """Whether something is a finite number of a size that a picture can have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST


def is_side(value: Any) -> TypeGuard[float]:
    """Whether something can be the width or height of a picture in pixels."""
    return is_number(value) and value >= 1  # what is less has no share that is finite


def printable(text: str) -> str:
    """A text that can be written and shown whatever a file held, cut to a line."""
    shown = text.encode(errors="replace").decode()[:_LONGEST_ID]
    return "".join(letter if letter.isprintable() else "?" for letter in shown)


def _count(counts: dict[str, int], what: str, more: int) -> None:
    counts[what] = counts.get(what, 0) + more


def _sound_captions(captions: list[Any], where: str, tally: Tally) -> list[int]:
    """Indices of the captions that can be used; others are counted."""
    usable = []
    for index, text in enumerate(captions):
        if not isinstance(text, str) or not text.strip():
            tally.skip("captions", "empty or not a text", where)
        elif not is_text(text):
            tally.skip("captions", "caption is not valid text", where)
        else:
            usable.append(index)
    return usable


def _sound_boxes(record: Record, where: str, tally: Tally) -> list[dict[str, Any]]:
    """The boxes that have a phrase, corners and a caption; others are counted."""
    boxes = record.get("boxes") or []
    kept = []
    for box in boxes if isinstance(boxes, list) else [boxes]:
        if not _is_box(box):
            tally.skip("boxes", "malformed", where)
        elif not is_text(box["phrase"]) or not is_text(str(box.get("name"))):
            tally.skip("boxes", "phrase is not valid text", where)
        elif not _has_caption(box, len(record["captions"])):
            tally.skip("boxes", "caption does not exist", where)
        else:
            name = box.get("name")
            kept.append(
                {
                    "phrase": box["phrase"].strip(),
                    "xyxy": box["xyxy"],
                    "caption": box.get("caption"),
                    "name": str(name) if name else None,
                }
            )
    return kept


def _is_size(size: Any) -> bool:
    return isinstance(size, list) and len(size) == 2 and all(map(is_side, size))


def _is_strip(size: list[int]) -> bool:
    try:
        check_size((size[0], size[1]))
    except ValueError:
        return True
    return False


def _has_caption(box: dict[str, Any], captions: int) -> bool:
    index = box.get("caption")
    return index is None or 0 <= index < captions


def _is_box(box: Any) -> bool:
    if not isinstance(box, dict):
        return False
    phrase, corners = box.get("phrase"), box.get("xyxy")
    if type(box.get("caption")) not in (type(None), int):  # true and 0.0 are equal to an index
        return False
    if not isinstance(phrase, str) or not phrase.strip():
        return False
    return isinstance(corners, list) and len(corners) == 4 and all(map(is_number, corners))
