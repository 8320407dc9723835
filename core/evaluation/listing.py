"""What `hyper3 eval` shows on the console."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from core.evaluation.manifest import MANIFEST
from core.evaluation.measure import Measure
from core.evaluation.result import Result
from core.evaluation.suites import KINDS, SUITES


def heading(result: Result, encoder: str, *, is_kept: bool) -> str:
    """What was measured, of whom, and how long it took."""
    records = result.determined_by["data"]["records"]
    seconds = "measured before" if is_kept else f"{result.seconds:,.1f} s"
    said = f"{_plain(result.task)}[/] · {records:,} records · {_plain(encoder)} · {seconds}"
    return f"\n[bold]{said}"


def result_table(result: Result) -> Table:
    """The figures of a task: shares in percent beside chance, others as they are."""
    table = Table()
    table.add_column("measure")
    for heading in ("value", "95% interval", "chance", "of"):
        table.add_column(heading, justify="right")
    group = None
    for measure in result.measures:
        if measure.group != group:
            group = measure.group
            table.add_section()
            table.add_row(f"[bold]{_plain(group)}[/]")
        table.add_row(
            f"  {_plain(measure.name)}{' ↓' if measure.is_lower_better else ''}",
            shown(measure, measure.value),
            "" if measure.low is None or measure.high is None
            else f"{shown(measure, measure.low)} .. {shown(measure, measure.high)}",
            "" if measure.chance is None else shown(measure, measure.chance),
            f"{measure.count:,}",
        )  # fmt: skip
    return table


def remarks(result: Result) -> list[str]:
    """What a task says of its figures: reasons, cautions, the best and the worst template."""
    details = result.details
    said = [details["not_applicable"]] if "not_applicable" in details else []
    said += details.get("notes", [])
    said += [f"not measured: {what}" for what in details.get("not_measured", [])]
    for name, extremes in details.get("extremes", {}).items():
        said += [f"{name}, {end}: {found['template']}" for end, found in extremes.items()]
    return said


def shown(measure: Measure, value: float) -> str:
    """A value of a measure as people read it."""
    return f"{value:.1%}" if measure.unit == "share" else measure.number(value)


def list_tasks(console: Console, root: Path) -> None:
    """Print the families, the suites and the data sets that are there."""
    families = Table(title="families", title_justify="left")
    families.add_column("family")
    families.add_column("what it measures")
    for kind in KINDS.values():
        families.add_row(kind.name, kind.about)
    console.print(families)
    suites = Table(title="suites", title_justify="left")
    for heading in ("suite", "task", f"data below {root}"):
        suites.add_column(heading)
    for suite, tasks in SUITES.items():
        if suite == "paper":
            suites.add_row("paper", "all of the above", "")
            continue
        suites.add_section()
        for row, task in enumerate(tasks):
            name = task.partition("/")[2]
            there = (root / name / MANIFEST).is_file()
            suites.add_row(suite if row == 0 else "", task, "there" if there else how_to_get(name))
    console.print(suites)


def how_to_get(name: str) -> str:
    """The command that makes the folder of a data set."""
    return f"hyper3 data fetch {name}{_FILES.get(name, '')}"


_FILES = {
    "imagenet": " --from VAL_FOLDER",
    "cars": " --from stanford_cars",
    "resisc45": " --from NWPU-RESISC45",
    "coco-karpathy": " --from dataset_coco.json --images COCO",
    "coco-val2017": " --from captions_val2017.json --images val2017",
    "coco-objects": " --from instances_val2017.json --images val2017",
    "flickr30k": " --from dataset_flickr30k.json --images flickr30k-images",
    "hierarcaps": " --from hierarcaps_test.csv --images val2014",
    "sugarcrepe": " --from sugar-crepe/data --images val2017",
    "eccv-caption": " --from dataset_coco.json --images COCO",
    "voc2007": " --from VOCdevkit/VOC2007",
    "voc2007-all": " --from VOCdevkit/VOC2007",
}
"""What a user has to have: these cannot be fetched by an address."""


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
