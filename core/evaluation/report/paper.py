"""Tables 2 to 6 of the paper: which figures stand in them."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.evaluation.report.compare import Groups
from core.evaluation.report.figures import Figure
from core.evaluation.report.names import TITLES
from core.evaluation.suites import CLASSIFICATION

_IMAGENET = "classification/imagenet"
_AUDITED = ("food101", "cub2011", "flowers102")
_RECALLS = ("R@1", "R@5", "R@10")
_PER_CLASS = "mean per class"
_LABELLED = "mAP, pictures with a label alone"
_OFFICIAL, _PHOTO = "official prompts, names of *", "photo prompts, names of *"


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper."""

    suite: str
    """That of `hyper3 eval`."""
    title: str
    about: str
    groups: Groups


def _accuracy(name: str, group: str = _OFFICIAL, label: str = "") -> Figure:
    key = (f"classification/{name}", group, _PER_CLASS)
    prompts = group.partition(" ")[0]
    otherwise = (f"prompts/{name}", "prompt sets", prompts) if name in _AUDITED else None
    return Figure(label or TITLES[name], key, otherwise)


def _retrieval(name: str) -> tuple[str, list[Figure]]:
    task = f"retrieval/{name}"
    ways = (("text", "image to text"), ("image", "text to image"))
    rows = [Figure(f"{say} {k}", (task, way, k)) for say, way in ways for k in _RECALLS]
    return TITLES[name], rows


def _hierarchy(variant: str) -> tuple[str, list[Figure]]:
    group = f"hierarchy, official prompts, names of {variant}"
    names = ("TIE", "LCA", "Jaccard", "H-precision", "H-recall")
    rows = [
        Figure(name, (_IMAGENET, group, name), is_lower_better=name in ("TIE", "LCA"))
        for name in names
    ]
    return f"the tree of ImageNet, names of {variant}", rows


def _imagenet() -> list[Figure]:
    variants = [f"names of {whose}" for whose in ("open_clip", "torchvision")]
    return [
        _accuracy("imagenet", f"official prompts, {names}", f"ImageNet, {names}")
        for names in variants
    ]


def _mean(label: str, key: tuple[str, str, str], parts: Sequence[Figure]) -> Figure:
    return Figure(label, key, parts=tuple(parts))


def _sixteen(audited: str) -> list[Figure]:
    """A figure a data set, under official prompts, the three audited ones under ``audited``."""
    return [_accuracy(name, audited if name in _AUDITED else _OFFICIAL) for name in CLASSIFICATION]


_THREE = {group: [_accuracy(name, group) for name in _AUDITED] for group in (_OFFICIAL, _PHOTO)}

_AS_PRINTED = _mean(
    "average, Food-101, CUB and Flowers by the photo prompt",
    ("table3", "average", "as the paper has it"),
    _sixteen(_PHOTO),
)
_ALL_OFFICIAL = _mean(
    "average, official prompts throughout",
    ("table3", "average", "official prompts"),
    _sixteen(_OFFICIAL),
)
_UNKNOWN = Figure(
    "average, as published, by which prompts of the three is not known",
    ("table3", "average", "prompts not known"),
)


def _audit(say: str, group: str) -> tuple[str, list[Figure]]:
    key = f"{say} prompt" if say == "photo" else f"{say} prompts"
    return key, [
        *_THREE[group],
        _mean("mean of the three", ("table6", key, "mean of the three"), _THREE[group]),
        _mean("mean of the sixteen", ("table6", key, "mean of the sixteen"), _sixteen(group)),
    ]


def _objects(data: str, *rows: tuple[str, str]) -> tuple[str, list[Figure]]:
    """Rows of a data set, each a variant of its names and a measure."""
    task = f"multilabel/{data}"
    named = [
        (name if names == "*" else f"{name}, names {names}", names, name) for names, name in rows
    ]
    return TITLES[data], [Figure(label, (task, names, name)) for label, names, name in named]


def _cones(score: str) -> tuple[str, list[Figure]]:
    rows = [
        Figure(
            f"{name}, {rule} negatives",
            ("chains/hierarcaps", f"own captions against {rule} negatives, {score}", name),
        )
        for rule in ("fixed", "seeded")
        for name in ("AP", "AUROC")
    ]
    return f"HierarCaps, {score}", rows


def _average_recall(coco: str) -> Figure:
    tasks = (f"retrieval/{coco}", "retrieval/flickr30k")
    parts = [Figure(task, (task, "average", "R@10")) for task in tasks]
    return _mean(
        f"average R@10, {TITLES[coco]} and Flickr30k", ("table5", "average R@10", coco), parts
    )


_PUBLISHED_CHANGE = Figure(
    "change of average R@10, as published", ("table5", "change of average R@10", "points")
)

PAPER_TABLES = (
    PaperTable(
        "table2",
        "Table 2: retrieval, and mistakes on the tree of ImageNet",
        "Text R@k: any of a picture's captions is among the k nearest; image R@k: the caption's "
        "picture is. Each published number stands at the split that it was measured on.",
        (
            *(_retrieval(name) for name in ("coco-karpathy", "coco-val2017", "flickr30k")),
            _hierarchy("open_clip"),
            _hierarchy("torchvision"),
        ),
    ),
    PaperTable(
        "table3",
        "Table 3: zero-shot naming on sixteen data sets",
        "Accuracy, mean over classes.",
        (
            (
                "",
                [
                    *_imagenet(),
                    *(_accuracy(n) for n in CLASSIFICATION if n not in ("imagenet", *_AUDITED)),
                ],
            ),
            ("by the official prompts", _THREE[_OFFICIAL]),
            ("by the photo prompt", _THREE[_PHOTO]),
            ("average of the sixteen", [_AS_PRINTED, _ALL_OFFICIAL, _UNKNOWN]),
        ),
    ),
    PaperTable(
        "table4",
        "Table 4: several things in a picture",
        "Mean average precision over classes, by one prompt. The first row of each set is what we "
        "would report; the published numbers stand at their own rules.",
        (
            _objects("voc2007", ("spaced", "mAP")),
            _objects(
                "voc2007-all", ("spaced", "mAP"), ("raw tokens", "mAP, ties in insertion order")
            ),
            _objects("coco-objects", ("*", "mAP"), ("*", f"{_LABELLED}, ties in insertion order")),
            (
                "as UNCHA reports it, by a protocol of its own",
                [
                    Figure(say, (f"multilabel/{data}", "UNCHA's protocol", "mAP"))
                    for say, data in (("VOC", "voc2007"), ("COCO", "coco-objects"))
                ],
            ),
        ),
    ),
    PaperTable(
        "table5",
        "Table 5: captions from general to specific, and the ablation",
        "Own captions of a picture against a hundred wrong ones each, by the cone of the caption. "
        "The published columns are the paper's ablation; its changes are to the row without query "
        "terms: name that run with --baseline to see ours.",
        (
            _cones("clamped score"),
            _cones("signed margin"),
            (
                "retrieval",
                [
                    _average_recall("coco-val2017"),
                    _average_recall("coco-karpathy"),
                    _PUBLISHED_CHANGE,
                ],
            ),
        ),
    ),
    PaperTable(
        "table6",
        "Table 6: what the prompts do",
        "Accuracy, mean over classes, of three data sets under their official prompts and under "
        "the one photo prompt, and what that does to the average of all sixteen.",
        (_audit("official", _OFFICIAL), _audit("photo", _PHOTO)),
    ),
)

MEANS = tuple(
    figure
    for part in PAPER_TABLES
    for _, figures in part.groups
    for figure in figures
    if figure.parts
)
"""The means that tables show, which are of several tasks."""
