"""Texts made to probe a model: HierarCaps' chains, SugarCrepe's pairs."""

import csv
import io
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from core.errors import DataError
from trainer.fetch.draft import Draft, Job, Row
from trainer.fetch.given import field, file_in, picture_in, read_json, read_text

_COLUMNS = ("id", "captions", "image_url")
_ARROW = " => "
_KINDS = (
    "add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj",
)  # fmt: skip


def read_hierarcaps(job: Job) -> Draft:
    """The chains of ``hierarcaps_test.csv``, the most general caption first.

    Raises:
        DataError: A column or a field is missing, or a chain has a single caption.
    """
    file = file_in(job.source, "hierarcaps_test.csv", "data/hierarcaps_test.csv")
    folder = job.images or file.parent
    rows: list[Row] = []
    reader = csv.DictReader(io.StringIO(read_text(file), newline=""), strict=True)
    try:
        lacking = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if lacking:
            there = ", ".join(map(str, reader.fieldnames or ())) or "no columns"
            raise DataError(
                f"{file}: no column {lacking[0]!r} (it has {there}); --from takes {job.entry.files}"
            )
        for line in reader:
            rows.append(_chain(line, f"{file}:{reader.line_num}"))
            name = rows[-1]["image"]
            rows[-1]["image"] = picture_in(folder, f"val2014/{name}", name)
    except csv.Error as error:
        line_number = reader.line_num + 1  # the last that was whole, and one
        raise DataError(f"{file}:{line_number}: not CSV: {error}; get it again") from error
    return Draft(rows, counts={"captions": sum(len(row["levels"]) for row in rows)})


def read_sugarcrepe(job: Job) -> Draft:
    """The seven files of SugarCrepe.

    Raises:
        DataError: A file or a key in it is missing.
    """
    inner = job.source / "data"
    base = inner if inner.is_dir() else job.source
    lacking = [f"{kind}.json" for kind in _KINDS if not (base / f"{kind}.json").is_file()]
    if lacking:
        raise DataError(
            f"{base}: no {', '.join(lacking)}; --from takes {job.entry.files} of {job.entry.where}"
        )
    folder = job.images or base
    rows: list[Row] = []
    for kind in _KINDS:
        file = base / f"{kind}.json"
        content = read_json(file)
        if not isinstance(content, dict):
            raise DataError(f"{file}: must be an object of pairs by number; get it again")
        for number, pair in content.items():
            where = f"{file}: {number}"
            name = field(pair, "filename", where)
            rows.append(
                {
                    "id": f"{kind}/{number}",
                    "image": picture_in(folder, f"val2017/{name}", name),
                    "kind": kind,
                    "positive": field(pair, "caption", where),
                    "negative": field(pair, "negative_caption", where),
                }
            )
    counts = {kind: sum(row["kind"] == kind for row in rows) for kind in _KINDS}
    return Draft(rows, counts=counts)


def _chain(line: dict[str, str | None], where: str) -> Row:
    fields = {name: line[name] for name in _COLUMNS}
    lacking = [name for name, value in fields.items() if not value]
    if lacking:
        raise DataError(f"{where}: nothing in column {lacking[0]!r}; get the file again")
    levels = [level.strip() for level in str(fields["captions"]).split(_ARROW.strip())]
    if len(levels) < 2 or not all(levels):
        raise DataError(
            f"{where}: {fields['captions']!r} is not a chain `general{_ARROW}specific`; get the "
            "file again"
        )
    name = PurePosixPath(urlsplit(str(fields["image_url"])).path).name
    return {"id": fields["id"], "image": name, "levels": levels}
