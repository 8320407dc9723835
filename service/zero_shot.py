"""Labels and templates to class points, and distances to probabilities."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from core.errors import Hyper3Error, RequestError, TextError
from core.evaluation.classification import class_points
from core.prompts import fill
from core.spaces import Lorentz
from service.embedder import Embedder

Doubles = npt.NDArray[np.float64]

_CACHED_SETS = 64


class LabelSets:
    """Class points of label sets; those used last are kept.

    Args:
        embedder: Embeds the filled templates.
        curvature: c > 0.
    """

    def __init__(self, embedder: Embedder, curvature: float) -> None:
        self._embedder, self._curvature = embedder, curvature
        self._kept: OrderedDict[tuple[tuple[str, ...], tuple[str, ...]], Doubles] = OrderedDict()
        self._lock = threading.Lock()

    def points(self, labels: Sequence[str], templates: Sequence[str]) -> Doubles:
        """One point a label, ``(labels, dim + 1)``: the mean tangent over templates, lifted once.

        Raises:
            RequestError: A template has no place for the label, or a label comes twice.
            TextError: A label or template cannot be embedded.
        """
        key = tuple(labels), tuple(templates)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        points = self._embed(labels, templates)
        with self._lock:
            self._kept[key] = points
            while len(self._kept) > _CACHED_SETS:
                self._kept.popitem(last=False)
        return points

    def _embed(self, labels: Sequence[str], templates: Sequence[str]) -> Doubles:
        ((label, times),) = Counter(labels).most_common(1)
        if times > 1:
            raise RequestError(f"label {label!r} comes {times} times: send each once")
        blank = next((at for at, label in enumerate(labels) if not label.strip()), None)
        if blank is not None:
            raise TextError(f"label {blank} is blank: send at least one word")
        texts = [fill(template, label) for label in labels for template in templates]
        tangents = []
        for text, vector in zip(texts, self._embedder.texts(texts), strict=True):
            if isinstance(vector, Hyper3Error):
                raise type(vector)(f"label text {text[:80]!r}: {vector}")
            tangents.append(vector.tangent)
        return class_points(np.stack(tangents), len(templates), Lorentz(self._curvature))


def probabilities(distances: Doubles, logit_scale: float) -> Doubles:
    """The softmax of ``-logit_scale * distance`` over the last axis."""
    logits = -logit_scale * distances
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Doubles = weights / weights.sum(axis=-1, keepdims=True)
    return shares
