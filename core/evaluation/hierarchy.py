"""How wrong a wrong label is, measured on a tree of labels."""

from collections.abc import Iterable
from dataclasses import dataclass

from core.errors import DataError


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
