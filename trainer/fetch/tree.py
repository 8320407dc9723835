"""The tree over ImageNet's classes, by which published comparisons grade mistakes."""

import hashlib
from pathlib import Path

from core.errors import DataError

TREE_SHA256 = "693089a7e3e1cb3e1ca7bde05d77d27e3f6c31b68fe3815eaa131542343436b7"


def read_tree(file: Path) -> bytes:
    """The tree's ``parent child`` lines.

    Raises:
        DataError: The file is missing, or not that tree.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; check --from") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != TREE_SHA256:
        raise DataError(
            f"{file}: sha256 {digest[:12]}... where the tree of the published comparisons has "
            f"{TREE_SHA256[:12]}...; `hyper3 data fetch imagenet-tree --force` gets that one"
        )
    return content
