"""`hyper3 data prepare`: a data set as it was published, or your own -> shards to train on."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from core.cores import available_cores

if TYPE_CHECKING:
    from trainer.prepare.samples import PrepareSettings
    from trainer.prepare.sources.source import Source


class Format(StrEnum):
    """What can be prepared."""

    JSONL = "jsonl"
    GRIT = "grit"
    COCO = "coco"
    FLICKR30K = "flickr30k-entities"
    VISUAL_GENOME = "visual-genome"


class Crops(StrEnum):
    """How parts are kept."""

    STORED = "stored"
    BOXES = "boxes"


class Phrases(StrEnum):
    """Which boxes of GRIT are parts."""

    BOTH = "both"
    NOUNS = "nouns"
    EXPRESSIONS = "expressions"


Images = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, help="Folder of the pictures, if they lie apart."),
]
Captions = Annotated[
    list[Path] | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="COCO's captions_*.json, for Visual Genome's pictures of COCO.",
    ),
]
Side = Annotated[
    int | None,
    typer.Option(min=8, max=4096, help="Pixels of a whole: 224; with boxes its longest side: 512."),
]
PartSide = Annotated[
    int | None, typer.Option(min=8, max=1024, help="Pixels of a stored part; as a whole's.")
]
RequireParts = Annotated[
    bool | None,
    typer.Option(
        "--require-parts/--keep-all",
        help="Leave out captions that have no usable box; GRIT's are unless you say otherwise.",
    ),
]

_SIDE = {Crops.STORED: 224, Crops.BOXES: 512}


def prepare(
    *,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A JSONL file, a data set's folder, or tars.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the data set to write.")],
    format_: Annotated[
        Format | None, typer.Option("--format", help="What SOURCE is; found if not given.")
    ] = None,
    images: Images = None,
    captions: Captions = None,
    split: Annotated[
        str, typer.Option(help="Name of the split, and which it is of COCO or Flickr30k.")
    ] = "",
    crops: Annotated[
        Crops, typer.Option(help="Parts as pictures, or as boxes that are cut out in training.")
    ] = Crops.STORED,
    side: Side = None,
    part_side: PartSide = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most photos to read.")] = None,
    require_parts: RequireParts = None,
    phrases: Annotated[
        Phrases, typer.Option(help="Of GRIT: noun chunks, referring expressions, or both.")
    ] = Phrases.BOTH,
    min_score: Annotated[
        float, typer.Option(min=0, max=1, help="Of GRIT: the least score of a box.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the order of the samples.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; all cores if not given.")
    ] = None,
) -> None:
    """Turn photos with captions and boxes into shards to train on.

    SOURCE is a JSONL file of records, a folder of COCO, Flickr30k Entities or Visual Genome, or
    the tars in which img2dataset stores GRIT. Stopped at any time, the same command goes on.
    """
    from trainer.prepare.samples import PrepareSettings  # noqa: PLC0415 - loads numpy and Pillow
    from trainer.prepare.sources.find import find_source  # noqa: PLC0415
    from trainer.prepare.sources.source import GritRules, Request  # noqa: PLC0415

    rules = GritRules(phrases.value, min_score)
    request = Request(source, split, images, tuple(captions or ()), rules)
    found = find_source(request, format_)
    whole = side or _SIDE[crops]
    settings = PrepareSettings(
        side=whole,
        part_side=part_side or whole,
        crops=crops.value,
        seed=seed,
        limit=limit,
        require_parts=found.format == "grit" if require_parts is None else require_parts,
    )
    _write(found, out, settings, workers or available_cores())


def _write(found: "Source", out: Path, settings: "PrepareSettings", workers: int) -> None:
    from trainer.prepare.run import is_complete  # noqa: PLC0415 - as above
    from trainer.prepare.run import prepare as write_split  # noqa: PLC0415

    console = Console(highlight=False)
    if is_complete(found, out, settings):
        console.print(f"{escape(str(out / found.split))} is up to date.", soft_wrap=True)
        return
    with _progress(console, is_bytes=found.format == "grit") as progress:
        task = progress.add_task(found.split, total=None)
        entry = write_split(
            found,
            out,
            settings,
            workers=workers,
            advance=lambda done, total: progress.update(task, advance=done, total=total),
            say=lambda text: progress.console.print(escape(text), soft_wrap=True),
        )
    _report(console, out / found.split, entry)


def _report(console: Console, folder: Path, entry: dict[str, Any]) -> None:
    from trainer.prepare.run import left_out  # noqa: PLC0415 - as above

    console.print(
        f"{escape(str(folder))}: {entry['samples']:,} samples of {entry['photos']:,} photos, "
        f"{entry['parts']:,} parts; {entry['samples_without_parts']:,} samples have no part.",
        soft_wrap=True,
    )
    for note, count in entry["notes"].items():
        console.print(f"{count:>11,} {escape(note)}", soft_wrap=True)
    lines = left_out(entry)
    if lines:
        console.print("left out, each with the first of its kind:")
        console.print("\n".join(lines), markup=False, soft_wrap=True)


def _progress(console: Console, *, is_bytes: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if is_bytes else MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=False),
        console=console,
    )
