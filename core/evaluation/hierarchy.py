"""How wrong a wrong label is, measured on a tree of labels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.errors import DataError

Indices = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TreeScores:
    """A predicted label against the true one; with A their ancestor sets."""

    tree_edges: int
    """TIE: edges on the path between the two, 0 where right."""
    lca: int
    """``|A_pred| - |A_pred ∩ A_true| + 1``, 1 where right."""
    jaccard: float
    precision: float
    """``|A_pred ∩ A_true| / |A_pred|``."""
    recall: float
    """``|A_pred ∩ A_true| / |A_true|``."""


class Tree:
    """A tree of labels from (parent, child) edges.

    Raises:
        DataError: A node has two parents, or its line of ancestors never ends.
    """

    def __init__(self, edges: Iterable[tuple[str, str]]) -> None:
        self._parent: dict[str, str] = {}
        for parent, child in edges:
            if self._parent.setdefault(child, parent) != parent:
                raise DataError(
                    f"{child}: has two parents, {self._parent[child]} and {parent}; keep one"
                )
        self._lines = {node: self._climb(node) for node in {*self._parent, *self._parent.values()}}

    def path(self, node: str) -> list[str]:
        """From the root down to the node itself.

        Raises:
            DataError: The node is not in the tree.
        """
        return sorted(
            self.ancestors(node, inclusive=True), key=lambda above: len(self._lines[above])
        )

    def heights(self) -> dict[str, int]:
        """Of each node the edges down to its farthest leaf, 0 for a leaf."""
        heights = dict.fromkeys(self._lines, 0)
        for line in self._lines.values():
            for above in line:
                heights[above] = max(heights[above], len(line) - len(self._lines[above]))
        return heights

    def ancestors(self, node: str, *, inclusive: bool) -> frozenset[str]:
        """The nodes above one, with or without itself.

        Raises:
            DataError: The node is not in the tree.
        """
        line = self._lines.get(node)
        if line is None:
            raise DataError(f"{node}: not in the tree of {len(self._lines):,} labels")
        return line if inclusive else line - {node}

    def compare(self, predicted: str, actual: str, *, inclusive: bool) -> TreeScores:
        """Score a prediction.

        Without the labels themselves in the sets (``inclusive=False``, as published numbers
        are), a sibling of the truth counts as fully right in all but `TreeScores.tree_edges`.
        """
        above = self.ancestors(predicted, inclusive=inclusive)
        truth = self.ancestors(actual, inclusive=inclusive)
        common = len(above & truth)
        return TreeScores(
            tree_edges=len(self._lines[predicted] ^ self._lines[actual]),
            lca=len(above) - common + 1,
            jaccard=common / max(len(above | truth), 1),
            precision=common / max(len(above), 1),
            recall=common / max(len(truth), 1),
        )

    def _climb(self, node: str) -> frozenset[str]:
        line = {node}
        while (above := self._parent.get(node)) is not None:
            if above in line:
                raise DataError(f"{node}: is its own ancestor; the edges must form a tree")
            line.add(above)
            node = above
        return frozenset(line)


@dataclass(frozen=True)
class Paths:
    """The ways from the root to each class, for scoring many predictions at once.

    Ancestors that two classes have in common are a beginning of both ways, so that all of
    `TreeScores` follows from three lengths.
    """

    nodes: Indices
    """``(classes, depth)``: the root first, padded by -1."""
    heights: Indices
    """``(nodes,)``: edges down to the farthest leaf; last, that of a root above all roots."""

    def compare(self, predicted: Indices, actual: Indices, *, inclusive: bool) -> dict[str, Floats]:
        """`Tree.compare` of many pairs of classes, by the names of `TreeScores`' fields.

        Also ``height``: of the lowest node above both (or both themselves), 0 where right.

        Args:
            predicted: Classes, of any shape.
            actual: Classes that broadcast against them.
            inclusive: Whether a label counts among its ancestors.
        """
        ours, theirs = self.nodes[predicted], self.nodes[actual]
        shared = np.count_nonzero((ours == theirs) & (ours >= 0), axis=-1)
        length, truth = (np.count_nonzero(nodes >= 0, axis=-1) for nodes in (ours, theirs))
        edges = length + truth - 2 * shared
        lowest = np.where(shared > 0, self.nodes[predicted, np.maximum(shared - 1, 0)], -1)
        common = shared
        if not inclusive:
            length, truth = length - 1, truth - 1
            common = np.minimum(shared, np.minimum(length, truth))
        return {
            "tree_edges": edges.astype(np.float64),
            "lca": (length - common + 1).astype(np.float64),
            "jaccard": common / np.maximum(length + truth - common, 1),
            "precision": common / np.maximum(length, 1),
            "recall": common / np.maximum(truth, 1),
            "height": self.heights[lowest].astype(np.float64),
        }


def paths_of(tree: Tree, classes: Sequence[str]) -> Paths:
    """The ways to the nodes of classes, in their order.

    Raises:
        DataError: A node is not in the tree.
    """
    heights = tree.heights()
    number = {node: row for row, node in enumerate(heights)}
    ways = [tree.path(node) for node in classes]
    nodes = np.full((len(ways), max(map(len, ways), default=0)), -1, np.intp)
    for row, way in enumerate(ways):
        nodes[row, : len(way)] = [number[node] for node in way]
    return Paths(nodes, np.array([*heights.values(), max(heights.values(), default=0) + 1]))


def read_tree(file: Path) -> Tree:
    """The tree of a file of ``parent child`` lines; empty lines are passed over.

    Raises:
        DataError: The file is missing or holds no tree; the message names the line.
    """
    parent_of: dict[str, str] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: {error}") from error
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2:
            raise DataError(f"{file}:{number}: {line!r}: must be a parent and a child")
        parent, child = words
        if parent_of.setdefault(child, parent) != parent:
            raise DataError(
                f"{file}:{number}: {child} has two parents, {parent_of[child]} and {parent}; "
                "keep one"
            )
    if not parent_of:
        raise DataError(f"{file}: holds no edges; write `parent child` lines")
    try:
        return Tree((parent, child) for child, parent in parent_of.items())
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
