"""What `hyper3 search` does: hits as a table, and as a sheet of pictures."""

import io
from pathlib import Path

from PIL import Image, ImageOps
from rich.console import Console
from rich.table import Table

from core.errors import DataError, NotFound
from core.image import decode
from service.client import Client
from service.schemas import Hit, SearchAnswer

_TILE = 192
_COLUMNS = 5
_GAP = 4


def show_hits(text: str | None, image: Path | None, k: int, save: Path | None, url: str) -> None:
    """Print the nearest items, and write their pictures to ``save`` where it is given.

    Raises:
        Unavailable: No service answers.
        DataError: The sheet cannot be written.
    """
    console = Console(highlight=False)
    with Client(url) as client:
        data = None if image is None else image.read_bytes()
        answer = client.search(text, image=data, k=k, extras=["metadata", "radius"])
        if not answer.hits:
            console.print(f"nothing is stored at {url}; fill it with `hyper3 index FOLDER`")
            return
        console.print(f"{text or image}  (radius {answer.query.radius:.3f})", markup=False)
        console.print(_table(answer))
        if save is not None:
            _save_sheet(client, answer.hits, save)
            console.print(f"pictures: {save}", markup=False)


def _table(answer: SearchAnswer) -> Table:
    table = Table()
    table.add_column("rank", justify="right")
    table.add_column("id", overflow="fold")
    table.add_column("distance", justify="right")
    table.add_column("radius", justify="right")
    captions = [str((hit.metadata or {}).get("caption", "")) for hit in answer.hits]
    if any(captions):
        table.add_column("caption", overflow="fold")
    for rank, (hit, caption) in enumerate(zip(answer.hits, captions, strict=True), 1):
        cells = [str(rank), _plain(hit.id), f"{hit.distance:.4f}", f"{hit.radius or 0:.3f}"]
        table.add_row(*cells, *([_plain(caption)] if any(captions) else []))
    return table


def _save_sheet(client: Client, hits: list[Hit], save: Path) -> None:
    """Tiles in the order of the hits; one without a picture stays grey."""
    rows = -(-len(hits) // _COLUMNS)
    size = _TILE + _GAP
    sheet = Image.new("RGB", (min(len(hits), _COLUMNS) * size + _GAP, rows * size + _GAP), "white")
    for place, hit in enumerate(hits):
        tile = Image.new("RGB", (_TILE, _TILE), "lightgrey")
        try:
            picture = ImageOps.contain(decode(client.picture(hit.id)), (_TILE, _TILE))
        except NotFound:
            pass
        else:
            tile = Image.new("RGB", (_TILE, _TILE), "white")
            tile.paste(picture, ((_TILE - picture.width) // 2, (_TILE - picture.height) // 2))
        sheet.paste(tile, (place % _COLUMNS * size + _GAP, place // _COLUMNS * size + _GAP))
    out = io.BytesIO()
    sheet.save(out, "PNG")
    try:
        save.write_bytes(out.getvalue())
    except OSError as error:
        raise DataError(f"{save}: cannot be written: {error.strerror}") from error


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
