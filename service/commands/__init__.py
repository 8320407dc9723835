"""The service's part of the `hyper3` command."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()

_DEFAULT_URL = "http://127.0.0.1:8000"

Url = Annotated[str, typer.Option(help="Where the service answers.", envvar="H3_URL")]


@app.command()
def serve(
    bundle: Annotated[
        Path | None, typer.Option(help="Folder that `hyper3 export` wrote (H3_BUNDLE).")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the stored items (H3_DATA).")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (H3_HOST).")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 for a free one (H3_PORT).")
    ] = None,
) -> None:
    """Serve a bundle: embed, store, search and classify over HTTP.

    Every other setting is an H3_* variable; /info shows the limits.
    """
    from service.commands.serving import run  # noqa: PLC0415  # heavy

    given = {"bundle": bundle, "data": data, "host": host, "port": port}
    run({name: value for name, value in given.items() if value is not None})


@app.command()
def index(
    folder: Annotated[Path, typer.Argument(help="Folder of images, or a JSONL file of records.")],
    records: Annotated[
        Path | None, typer.Option(help="JSONL with the image and captions of each record.")
    ] = None,
    url: Url = _DEFAULT_URL,
    batch: Annotated[int, typer.Option(help="Images of one request.", min=1)] = 32,
) -> None:
    """Store every image of a folder; those that are stored already are left alone.

    The id of an image is its path within the folder. With records, their captions become its
    metadata, and only the images they name are stored.
    """
    from service.commands.indexing import index_folder  # noqa: PLC0415  # heavy

    index_folder(folder, records, url, batch)


@app.command()
def search(
    text: Annotated[str | None, typer.Argument(help="What to look for.")] = None,
    image: Annotated[
        Path | None, typer.Option(help="An image to look for.", exists=True, dir_okay=False)
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many hits.", min=1)] = 5,
    save: Annotated[
        Path | None, typer.Option(help="Also write the pictures of the hits as one sheet.")
    ] = None,
    url: Url = _DEFAULT_URL,
) -> None:
    """Show the stored items nearest to a text or an image."""
    from service.commands.showing import show_hits  # noqa: PLC0415  # heavy

    if (text is None) == (image is None):
        raise typer.BadParameter("give a text or --image, one of the two")
    show_hits(text, image, k, save, url)
