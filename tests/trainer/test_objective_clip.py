"""CLIP, SigLIP's loss and the contrast of queries, against their plain statements."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from core.spaces import Euclidean
from trainer.objectives.loss import loss_terms
from trainer.objectives.nodes import Nodes, Scalars, Temperature
from trainer.objectives.options import ClipObjective

TOLERANCE = 1e-12


def features(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((count, 8), dtype=torch.float64, generator=generator)


IMAGES, TEXTS, SEEN, ASKED = (features(count, seed) for seed, count in enumerate((4, 4, 5, 5)))
WHOLE, PART = (torch.tensor(value, dtype=torch.float64) for value in (14.0, 7.0))
BIAS = torch.tensor(-10.0, dtype=torch.float64)


def batch() -> Nodes:
    lift = Euclidean().lift
    images, texts = lift(IMAGES), lift(TEXTS)
    none = torch.zeros(0, dtype=torch.int64)
    return Nodes(
        images=images,
        texts=texts,
        text_id=torch.arange(4),
        part_images=images[:0],
        part_texts=texts[:0],
        part_owner=none,
        part_count=torch.zeros(4, dtype=torch.int64),
        part_id=none,
        part_text_id=none,
        query_images=lift(SEEN),
        query_texts=lift(ASKED),
        query_text_id=torch.tensor([0, 1, 2, 1, 3]),
        query_parents=texts[[0, 0, 1, 2, 3]],
        query_owner=torch.tensor([0, 0, 1, 2, 3]),
        query_weight=torch.ones(5),
        query_has_parent=torch.ones(5),
    )


def scalars(bias: Tensor | None = None) -> Scalars:
    whole, part = Temperature(WHOLE, bias), Temperature(PART, bias)
    return Scalars(torch.tensor(0.0), whole, part, whole)


def cosines(images: Tensor, texts: Tensor) -> Tensor:
    return functional.normalize(images, dim=1) @ functional.normalize(texts, dim=1).T


def test_clip_is_half_the_cross_entropies_of_scaled_cosines() -> None:
    terms = loss_terms(batch(), scalars(), ClipObjective(kind="clip"))
    logits, own = WHOLE * cosines(IMAGES, TEXTS), torch.arange(4)
    plain = functional.cross_entropy(logits, own) + functional.cross_entropy(logits.T, own)
    assert terms.keys() == {"contrastive/global", "loss"}
    assert terms["loss"].item() == pytest.approx(plain.item() / 2, abs=TOLERANCE)


def test_siglip_is_a_sum_over_all_pairs_divided_by_the_images() -> None:
    options = ClipObjective(kind="clip", contrast="sigmoid")
    logits = WHOLE * cosines(IMAGES, TEXTS) + BIAS
    sign = 2 * torch.eye(4, dtype=torch.float64) - 1  # z: 1 of a pair, -1 of any other two
    plain = -functional.logsigmoid(sign * logits).sum() / 4
    loss = loss_terms(batch(), scalars(BIAS), options)["loss"]
    assert loss.item() == pytest.approx(plain.item(), abs=TOLERANCE)


def test_queries_find_their_own_texts_and_a_shared_text_is_no_negative() -> None:
    terms = loss_terms(batch(), scalars(), ClipObjective(kind="clip", query_weight=0.5))
    near = (PART * cosines(SEEN, ASKED)).tolist()
    text_id = batch().query_text_id.tolist()
    plain = 0.0
    for one in range(5):
        others = [two for two in range(5) if two == one or text_id[two] != text_id[one]]
        row = sum(math.exp(near[one][two]) for two in others)
        column = sum(math.exp(near[two][one]) for two in others)
        plain += (math.log(row) + math.log(column) - 2 * near[one][one]) / 2 / 5
    assert terms["contrastive/queries"].item() == pytest.approx(plain, abs=TOLERANCE)
    total = terms["contrastive/global"] + 0.5 * terms["contrastive/queries"]
    assert terms["loss"].item() == pytest.approx(total.item(), abs=TOLERANCE)


def test_a_batch_without_queries_has_clips_loss() -> None:
    nodes = replace(batch(), query_images=batch().query_images[:0])
    with_queries = ClipObjective(kind="clip", query_weight=0.5)
    plain = loss_terms(nodes, scalars(), ClipObjective(kind="clip"))
    assert loss_terms(nodes, scalars(), with_queries) == plain


def test_a_repeated_caption_is_a_negative_unless_masked() -> None:
    nodes = replace(batch(), text_id=torch.tensor([0, 1, 2, 0]))
    logits, own = WHOLE * cosines(IMAGES, TEXTS), torch.arange(4)
    logits[0, 3] = logits[3, 0] = -torch.inf
    plain = functional.cross_entropy(logits, own) + functional.cross_entropy(logits.T, own)
    masked = loss_terms(nodes, scalars(), ClipObjective(kind="clip", mask_repeats=True))["loss"]
    assert masked.item() == pytest.approx(plain.item() / 2, abs=TOLERANCE)
    unmasked = loss_terms(nodes, scalars(), ClipObjective(kind="clip"))["loss"]
    assert unmasked == loss_terms(batch(), scalars(), ClipObjective(kind="clip"))["loss"]
