"""A scan as files: figures as JSON, the histogram as CSV, and the plot."""

import csv
from dataclasses import asdict
from pathlib import Path

from trainer.inspection.part_plot import plot
from trainer.inspection.scan import Scan
from trainer.storage import replacing, write_json


def write(folder: Path, scan: Scan) -> list[Path]:
    """Write scan.json, scan.csv and, where there are parts, scan.png.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    paths = [folder / "scan.json", folder / "scan.csv", folder / "scan.png"]
    figures = scan.figures()
    with (
        replacing(paths[1]) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        rows = csv.writer(file)
        rows.writerow(("parts", "samples"))
        rows.writerows(scan.histogram.items())
    write_json(paths[0], {"figures": figures, **asdict(scan)})
    if not figures["parts"]:
        return paths[:2]
    plot(paths[2], scan)
    return paths
