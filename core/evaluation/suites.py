"""Which tasks there are, and which of them make a table of the paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError
from core.evaluation.dataset import MANIFEST, Dataset, open_dataset
from core.evaluation.task import Kind
from core.evaluation.tasks import (
    chains,
    classification,
    eccv,
    multilabel,
    pairs,
    parts,
    probe,
    prompts,
    retrieval,
    structure,
    traversal,
)

KINDS = {
    kind.name: kind
    for kind in (
        retrieval.KIND,
        classification.KIND,
        multilabel.KIND,
        chains.KIND,
        pairs.KIND,
        structure.KIND,
        prompts.KIND,
        probe.KIND,
        traversal.KIND,
        eccv.KIND,
        parts.KIND,
    )
}

CLASSIFICATION = (
    "imagenet", "cifar10", "cifar100", "sun397", "caltech101", "stl10", "food101", "cub2011",
    "cars", "aircraft", "pets", "flowers102", "dtd", "eurosat", "resisc45", "country211",
)  # fmt: skip
"""The sixteen data sets of Table 3."""

RETRIEVAL = ("coco-karpathy", "coco-val2017", "flickr30k")

_TABLES = {
    "table2": (*(f"retrieval/{name}" for name in RETRIEVAL), "classification/imagenet"),
    "table3": tuple(f"classification/{name}" for name in CLASSIFICATION),
    "table4": ("multilabel/voc2007", "multilabel/voc2007-all", "multilabel/coco-objects"),
    "table5": ("chains/hierarcaps", "retrieval/coco-val2017", "retrieval/flickr30k"),
    "table6": (
        *(f"prompts/{name}" for name in ("food101", "cub2011", "flowers102")),
        *(f"classification/{name}" for name in CLASSIFICATION),
    ),
}
_BEYOND = (
    "pairs/sugarcrepe",
    "eccv/eccv-caption",
    "traversal/hierarcaps",
    "probe/cifar10",
    "probe/cifar100",
    "probe/food101",
)

SUITES = {
    **_TABLES,
    "paper": tuple(dict.fromkeys(task for tasks in _TABLES.values() for task in tasks)),
    "beyond": _BEYOND,
}
"""Task names, ``family/data``, by suite."""


@dataclass(frozen=True)
class Job:
    """One task to do, or the reason why it cannot be."""

    family: str
    data: str
    path: Path
    is_missing: bool

    @property
    def task(self) -> str:
        """``family/data``."""
        return f"{self.family}/{self.data}"

    @property
    def kind(self) -> Kind:
        """How it is measured."""
        return KINDS[self.family]


def plan(what: Sequence[str], root: Path) -> list[Job]:
    """The jobs that words of a user mean, each once, in their order.

    Args:
        what: Suites; tasks (``family/data``); data sets below ``root``; JSONL files or prepared
            folders. ``family/PATH`` measures one family on a file, ``DATA`` all that it allows.
        root: Where prepared data sets are.

    Raises:
        ConfigError: A word means nothing; the message lists what there is.
        DataError: A file is missing or wrong.
    """
    jobs: dict[str, Job] = {}
    for word in what:
        for job in _meant(word, root):
            jobs.setdefault(job.task, job)
    return list(jobs.values())


def _meant(word: str, root: Path) -> list[Job]:
    if word in SUITES:
        return [_known(task, root) for task in SUITES[word]]
    family, _, rest = word.partition("/")
    if family in KINDS and rest and not Path(word).exists():
        path = Path(rest)
        if rest.endswith(".jsonl") or (path / MANIFEST).is_file():
            return [Job(family, open_dataset(path, limit=1).name, path, is_missing=False)]
        return [_known(word, root)]
    path = Path(word)
    if word.endswith(".jsonl") or path.exists():
        return _all_of(path)
    if (root / word / MANIFEST).is_file():
        return _all_of(root / word)
    known = {task.split("/")[1]: task for task in (*SUITES["paper"], *_BEYOND)}
    if word in known:
        return [_known(known[word], root)]
    raise ConfigError(
        f"{word}: means nothing here; name suites ({', '.join(SUITES)}), tasks as "
        f"{SUITES['table2'][0]}, data sets below {root}, or a JSONL file of records; "
        "`hyper3 eval --list` shows them"
    )


def _known(task: str, root: Path) -> Job:
    family, _, name = task.partition("/")
    return Job(family, name, root / name, not (root / name / MANIFEST).is_file())


def _all_of(path: Path) -> list[Job]:
    data = open_dataset(path)
    return [Job(name, data.name, path, is_missing=False) for name in _default_families(data)]


def _default_families(data: Dataset) -> list[str]:
    """Those that its records are made for."""
    own = set(data.families) | {"eccv"}
    return [name for name, kind in KINDS.items() if name in own and kind.applies(data)]
