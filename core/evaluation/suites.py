"""Which tasks there are, and which of them make a table of the paper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from core.errors import ConfigError, DataError
from core.evaluation.dataset import Dataset, open_dataset
from core.evaluation.manifest import MANIFEST
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

_TASK_OF = {
    task.partition("/")[2]: task for task in reversed((*SUITES["paper"], *SUITES["beyond"]))
}
"""The first task of a data set: what its bare name means where it is not there."""


@dataclass(frozen=True)
class Job:
    """One task to do, or the reason why it cannot be."""

    task: str
    """``family/data``; the word of the user where its data cannot be opened."""
    path: Path
    is_missing: bool = False
    fault: str = ""
    """Why the data cannot be opened."""

    @property
    def family(self) -> str:
        """What is measured."""
        return self.task.partition("/")[0]

    @property
    def data(self) -> str:
        """What it is measured on."""
        return self.task.partition("/")[2]

    @property
    def kind(self) -> Kind:
        """How it is measured."""
        return KINDS[self.family]


def plan(
    what: Sequence[str], root: Path, open_data: Callable[[Path], Dataset] = open_dataset
) -> list[Job]:
    """The jobs that words of a user mean, each once, in their order.

    Args:
        what: Suites; tasks (``family/data``); data sets below ``root``; JSONL files or prepared
            folders. ``family/PATH`` measures one family on a file, ``DATA`` all that it allows.
        root: Where prepared data sets are.
        open_data: How a data set is opened.

    Raises:
        ConfigError: A word means nothing; the message lists what there is. Or two data sets have
            one name.
    """
    jobs: dict[str, Job] = {}
    for word in what:
        for job in _meant(word, root, open_data):
            other = jobs.setdefault(job.task, job)
            if other.path.resolve() != job.path.resolve():
                raise ConfigError(
                    f"{other.path} and {job.path} would both be {job.task}; measure them with "
                    "different --out, or rename one"
                )
    return list(jobs.values())


def _meant(word: str, root: Path, open_data: Callable[[Path], Dataset]) -> list[Job]:
    if word in SUITES:
        return [_known(task, root) for task in SUITES[word]]
    family, _, rest = word.partition("/")
    if family in KINDS and rest and not Path(word).exists():
        path = Path(rest)
        if rest.endswith(".jsonl") or path.exists():
            return _opened(word, path, open_data, lambda _: [family])
        return [_known(word, root)]
    path = Path(word)
    if word.endswith(".jsonl") or path.exists():
        return _opened(word, path, open_data, _default_families)
    if (root / word / MANIFEST).is_file():
        return _opened(word, root / word, open_data, _default_families)
    if word in _TASK_OF:
        return [_known(_TASK_OF[word], root)]
    near = get_close_matches(word, (*SUITES, *_TASK_OF), 3)
    raise ConfigError(
        f"{word}: means nothing here; {_perhaps(near)}name suites ({', '.join(SUITES)}), tasks as "
        f"{SUITES['table2'][0]}, data sets below {root}, or a JSONL file of records; "
        "`hyper3 eval --list` shows them"
    )


def _known(task: str, root: Path) -> Job:
    name = task.partition("/")[2]
    is_missing = not (root / name / MANIFEST).is_file()
    if is_missing and name not in _TASK_OF:
        near = get_close_matches(name, _TASK_OF, 3)
        raise ConfigError(
            f"{task}: {root} has no data set {name}, and none is known by that name; "
            f"{_perhaps(near)}`hyper3 eval --list` shows them"
        )
    return Job(task, root / name, is_missing)


def _perhaps(near: Sequence[str]) -> str:
    return f"did you mean {' or '.join(near)}? " if near else ""


def _opened(
    word: str,
    path: Path,
    open_data: Callable[[Path], Dataset],
    families: Callable[[Dataset], list[str]],
) -> list[Job]:
    """One job a family, or the one that says why the data cannot be opened."""
    try:
        data = open_data(path)
    except DataError as error:
        return [Job(word, path, fault=str(error))]
    return [Job(f"{family}/{data.name}", path) for family in families(data)]


def _default_families(data: Dataset) -> list[str]:
    """Those that its records are made for."""
    own = set(data.families) | {"eccv"}
    return [name for name, kind in KINDS.items() if name in own and kind.applies(data)]
