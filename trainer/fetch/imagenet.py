"""ImageNet-1k in a folder per class, named by its wnid."""

from typing import Any

import open_clip
from timm.data.imagenet_info import ImageNetInfo
from torchvision.models import ResNet18_Weights

from core.errors import DataError
from trainer.fetch.draft import Classes, Draft, Job
from trainer.fetch.image_folder import class_folders, folder_rows, shown, splits_of


def read_imagenet(job: Job) -> Draft:
    """ImageNet from folders that are named by wnids, their sorted order that of the classes.

    Raises:
        DataError: The folders are not the 1,000 of ImageNet-1k.
    """
    known: Any = ImageNetInfo()  # timm annotates a part of its methods
    wnids = sorted(known.label_names())
    test, _ = splits_of(job.source)  # a probe on 1.28 million pictures is not what we offer
    found = class_folders(test, job)
    lacking, strange = sorted({*wnids} - {*found}), sorted({*found} - {*wnids})
    if lacking or strange:
        raise DataError(
            f"{test}: must hold a folder for each of the 1,000 wnids; without a folder: "
            f"{shown(lacking)}; not a wnid of ImageNet-1k: {shown(strange)}; the validation "
            "pictures come in one folder and are sorted into classes by the development kit's list"
        )
    return Draft(folder_rows(test, wnids, job), classes=names(), nodes=tuple(wnids))


def names() -> Classes:
    """The names of open_clip, which published comparisons use, and those of torchvision."""
    published = tuple(open_clip.IMAGENET_CLASSNAMES)
    others = tuple(ResNet18_Weights.DEFAULT.meta["categories"])
    differing = sum(a != b for a, b in zip(published, others, strict=True))
    return Classes(
        {"open_clip": published, "torchvision": others},
        {
            "open_clip": f"open_clip.IMAGENET_CLASSNAMES of open_clip {open_clip.__version__}",
            "torchvision": "the categories in the metadata of torchvision's weights",
        },
        notes=(
            f"{differing:,} of {len(others):,} names differ between open_clip and torchvision.",
        ),
    )
