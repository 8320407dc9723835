"""What `hyper3 data fetch --list` shows."""

from pathlib import Path

from rich import box
from rich.table import Table

from trainer.fetch.catalogue import TREE, catalogue
from trainer.fetch.folder import TREE_FILE, read_manifest


def table(root: Path) -> Table:
    """The known data sets: how each is got, whether it is below ``root``, and its licence."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("name", no_wrap=True)
    shown.add_column("task", no_wrap=True)
    shown.add_column("there", no_wrap=True, justify="right")
    shown.add_column("GB", no_wrap=True, justify="right")
    shown.add_column("how", overflow="fold")
    shown.add_column("licence")
    for name, entry in catalogue().items():
        task = ", ".join(entry.families) or "hierarchy"
        licence = entry.licence.partition(" (")[0]  # the address is in the manifest
        how = entry.needs or "download"
        shown.add_row(name, task, _state(root, name), f"{entry.size_gb:g}", how, licence)
    return shown


def _state(root: Path, name: str) -> str:
    if name == TREE:
        return "yes" if (root / TREE / TREE_FILE).is_file() else "no"
    manifest = read_manifest(root / name)
    return f"{manifest.counts['test']:,}" if manifest else "no"
