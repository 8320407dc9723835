"""Captions from general to specific: HierarCaps (arXiv:2407.08521) and Table 5."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder, Points
from core.evaluation.entailment import score_pairs
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.metrics import recall_at_k
from core.evaluation.retrieval import chance_of_hit
from core.evaluation.statistics import compute
from core.evaluation.task import Kind, Options
from core.spaces import Euclidean, Ordered

NEGATIVES = 100
"""Wrong captions for each picture."""

_KS = (1, 5, 10)
_BINS = 40
_MANY_ZEROS = 0.5
_RULES: dict[Literal["fixed", "seeded"], str] = {
    "fixed": "the first 100 finest captions of other pictures, in the order of the data",
    "seeded": "100 finest captions of other pictures, drawn for each picture",
}
_NOTES = (
    "By the paper its table has clamped scores, by the documentation of its code signed margins.",
    "Fixed negatives are nearly the same captions for every picture.",
)
_ONE_RULE = (
    f"No picture has more than {NEGATIVES} negatives, so those drawn would be the fixed ones: they "
    "have no rows of their own."
)

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class _Chains:
    """Pictures and their captions; equal captions are one text."""

    images: Points
    rows: Indices
    """Of each picture, which record of the data set it is."""
    points: Points
    """Of the distinct texts."""
    chain: list[Indices]
    """Of each picture, its texts from general to specific."""

    @property
    def depth(self) -> int:
        """How many levels the longest chain has."""
        return max(map(len, self.chain))


def protocol(_data: Dataset, options: Options) -> dict[str, Any]:
    """Scores, negatives, ties and preprocessing."""
    return {
        "preprocess": options.preprocess or "classification",
        "pair": "the caption is the root of the cone, the picture the specific one",
        "clamped score": "max(1 - 2 angle / pi, 0)",
        "signed margin": "half aperture - angle, K = 0.1",
        "rounding": "scores are rounded to 9 decimals: what differs by less is tied",
        "negatives": _RULES | {"without": "captions that are also in the picture's own chain"},
        "ties": "grouped for AP, one half for AUROC",
        "levels": "equal captions of a level are one text; of several own pictures any is right",
    }


def measure(embedder: Embedder, data: Dataset, options: Options) -> Finding:
    """Cones against wrong captions, order of the radii, and retrieval by level.

    ``details``: ``radii`` holds for each level and the pictures the ``edges`` and ``counts`` of a
    histogram over common edges; ``ties`` of each score and rule of negatives how many scores are
    distinct, and the share of the most frequent one and of zero; ``notes`` are for the reader.
    Where the space has no order, only retrieval is measured and ``not_applicable`` says why.
    """
    chains, left_out = _embed(embedder, data, options)
    space = embedder.space
    levels = _levels(chains)
    if isinstance(space, Euclidean):
        why = "the sphere has no cones and no radii: retrieval by level alone"
        retrieved = _retrieval(chains, levels, embedder)
        return Finding(tuple(retrieved), {"not_applicable": why}, left_out)
    measures, ties = _cones(chains, space, options.seed)
    radii = {name: space.radius(chains.points[texts]) for name, (_, texts) in levels.items()}
    radii["pictures"] = space.radius(chains.images)
    measures += [
        Measure("mean radius", name, float(np.mean(found)), None, len(found), unit="number")
        for name, found in radii.items()
    ]
    measures += _order(chains, space)
    measures += _retrieval(chains, levels, embedder)
    details = {"radii": _histograms(radii), "ties": ties, "notes": _notes(ties)}
    return Finding(tuple(measures), details, left_out)


def _embed(embedder: Embedder, data: Dataset, options: Options) -> tuple[_Chains, tuple[str, ...]]:
    rows = np.array([row for row, record in enumerate(data.records) if record.levels], np.intp)
    preprocess = options.preprocess or "classification"
    found = embedder.readable([data.picture(data.records[row], preprocess) for row in rows])
    rows = rows[found.rows]
    texts = dict.fromkeys(text for row in rows for text in data.records[row].levels)
    index = {text: number for number, text in enumerate(texts)}
    chain = [np.array([index[text] for text in data.records[row].levels], np.intp) for row in rows]
    points = embedder.text_points(list(texts), "captions")
    return _Chains(found.points, rows, points, chain), found.left_out


def _levels(chains: _Chains) -> dict[str, tuple[Indices, Indices]]:
    """By level: which pictures have it, and its text for each of them."""
    found = {}
    for level in range(chains.depth):
        has = np.array([at for at, own in enumerate(chains.chain) if level < len(own)], np.intp)
        texts = np.array([chains.chain[at][level] for at in has], np.intp)
        found[f"level {level + 1}{' (most general)' * (level == 0)}"] = has, texts
    return found


def _cones(
    chains: _Chains, space: Ordered, seed: int
) -> tuple[list[Measure], dict[str, dict[str, float]]]:
    """Average precision and AUROC of own captions against wrong ones, by score and negatives."""
    drawn = negatives(chains.chain, seed)
    own_image = np.repeat(np.arange(len(chains.chain)), [len(own) for own in chains.chain])
    own_text = np.concatenate(chains.chain)
    measures, ties = [], {}
    for rule, wrong in drawn.items():
        image = np.repeat(np.arange(len(wrong)), [len(texts) for texts in wrong])
        image = np.concatenate([own_image, image])
        text = np.concatenate([own_text, *wrong])
        is_own = np.arange(len(text)) < len(own_text)
        scored = score_pairs(chains.points, chains.images, text, image, space)
        for name, scores in (("clamped score", scored.clamped), ("signed margin", scored.margin)):
            group = f"own captions against {rule} negatives, {name}"
            measures += _precision(group, scores, is_own, chains.rows[image])
            found = ties[f"{name}, {rule}"] = _ties(scores)
            if name == "clamped score":
                zero = found["zero"]
                measures.append(Measure(group, "pairs at exactly 0", zero, None, len(scores)))
    return measures, ties


def negatives(chain: list[Indices], seed: int) -> dict[Literal["fixed", "seeded"], list[Indices]]:
    """Of each picture the texts that are wrong, under both rules.

    Args:
        chain: Of each picture its own texts, the finest last.
        seed: Of the second rule.

    Returns:
        By rule. Without ``seeded`` where that would take the same: where there are no more than
        `NEGATIVES` for any picture.
    """
    finest = np.array([own[-1] for own in chain], np.intp)
    generator = np.random.default_rng(seed)
    found: dict[Literal["fixed", "seeded"], list[Indices]] = {"fixed": [], "seeded": []}
    has_choice = False
    for own in chain:
        wrong = finest[~np.isin(finest, own)]
        found["fixed"].append(wrong[:NEGATIVES])
        found["seeded"].append(generator.permutation(wrong)[:NEGATIVES])
        has_choice |= len(wrong) > NEGATIVES
    if not has_choice:
        del found["seeded"]
    return found


def _precision(
    group: str, scores: npt.NDArray[np.float64], is_own: npt.NDArray[np.bool_], cluster: Indices
) -> list[Measure]:
    if is_own.all():
        return []
    ap, auroc = (Outcomes(statistic, scores, cluster, is_own) for statistic in ("ap", "auroc"))
    chance = float(np.mean(is_own))
    return [
        Measure(group, "AP", compute(ap), chance, len(scores), is_headline=True, outcomes=ap),
        Measure(group, "AUROC", compute(auroc), 0.5, len(scores), is_headline=True, outcomes=auroc),
    ]


def _ties(scores: npt.NDArray[np.float64]) -> dict[str, float]:
    counts = np.unique(scores, return_counts=True)[1]
    return {
        "distinct": float(len(counts)),
        "most frequent": float(counts.max() / len(scores)),
        "zero": float(np.mean(scores == 0)),
    }


def _notes(ties: dict[str, dict[str, float]]) -> list[str]:
    """What a reader should know, also of these figures."""
    notes = [*_NOTES] if "clamped score, seeded" in ties else [*_NOTES, _ONE_RULE]
    zero = ties["clamped score, fixed"]["zero"]
    if zero < _MANY_ZEROS:
        return notes
    note = (
        f"{zero:.0%} of the clamped scores are 0, which says nothing of their order: most pictures "
        "lie beside or before the captions, not behind them. The signed margin still orders them."
    )
    return [*notes, note]


def _order(chains: _Chains, space: Ordered) -> list[Measure]:
    """Whether the radii grow down the chain, by link, by chain and over all pairs of levels."""
    radius = space.radius(chains.points)
    own_radii = [radius[own] for own in chains.chain]
    group = "the radius grows with the level"
    measures = []
    for level in range(chains.depth - 1):
        links = np.array([r[level] < r[level + 1] for r in own_radii if level + 1 < len(r)])
        name = f"level {level + 1} to {level + 2}"
        measures.append(Measure(group, name, float(np.mean(links)), 0.5, len(links)))
    long = [own for own in own_radii if len(own) > 1]
    if not long:
        return measures
    whole = np.array([(np.diff(own) > 0).all() for own in long])
    guessed = float(np.mean([1 / np.prod(np.arange(1, len(own) + 1)) for own in long]))
    pairs = np.concatenate([(own[None, :] > own[:, None])[np.triu_indices(len(own), 1)]
                            for own in long])  # fmt: skip
    inside = np.array([own[-1] for own in own_radii]) < space.radius(chains.images)
    measures += [
        Measure(group, "finest caption to picture", float(np.mean(inside)), 0.5, len(inside)),
        Measure(group, "all pairs of levels", float(np.mean(pairs)), 0.5, len(pairs)),
        Measure(group, "whole chains", float(np.mean(whole)), guessed, len(whole)),
    ]
    return measures


def _retrieval(
    chains: _Chains, levels: dict[str, tuple[Indices, Indices]], embedder: Embedder
) -> list[Measure]:
    """Recalls both ways among the texts of one level; a tie is a miss, as in `rank`."""
    space = embedder.space
    measures = []
    for level, (has, texts) in levels.items():
        distinct, text_of = np.unique(texts, return_inverse=True)
        right = np.arange(len(distinct))[:, None] == text_of
        points, images = chains.points[distinct], chains.images[has]
        ranking = space.ranking(points, images)
        as_near = ranking + space.grain(points)[:, None] * space.grain(images)
        scores = np.where(right, ranking, as_near)
        for way, way_scores, way_right in (
            ("image to text", scores.T, right.T),
            ("text to image", scores, right),
        ):
            queries, items = way_scores.shape
            for k in _KS:
                chance = np.mean([chance_of_hit(items, int(n), k) for n in way_right.sum(axis=1)])
                recall = recall_at_k(way_scores, way_right, k)
                group = f"{way}, {level}"
                measures.append(Measure(group, f"R@{k}", recall, float(chance), queries))
    return measures


def _histograms(radii: dict[str, npt.NDArray[np.float64]]) -> dict[str, dict[str, list[float]]]:
    edges = np.histogram_bin_edges(np.concatenate(list(radii.values())), _BINS)
    return {
        name: {
            "edges": edges.tolist(),
            "counts": np.histogram(found, edges)[0].tolist(),
        }
        for name, found in radii.items()
    }


KIND = Kind(
    name="chains",
    about="captions from general to specific: cones, radii and retrieval by level (HierarCaps)",
    applies=lambda data: "chains" in data.families,
    protocol=protocol,
    measure=measure,
)
