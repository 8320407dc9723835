"""The Hyper3-CLIP objective: UNCHA's terms, read as the paper does, and the query relations."""

from torch import Tensor

from trainer.objectives.nodes import Nodes, Scalars, total
from trainer.objectives.options import Hyper3Objective
from trainer.objectives.queries import query_terms
from trainer.objectives.uncha import groups, inheritance


def hyper3_objective(nodes: Nodes, scalars: Scalars, options: Hyper3Objective) -> dict[str, Tensor]:
    """Every term by name, and their sum under ``loss`` (docs/mathematics.md).

    ``loss = contrastive + λ (base entailments + query weight * query relations)``.

    Args:
        nodes: The points of the batch.
        scalars: Curvature, and a temperature for each contrastive group.
        options: Weights and switches.

    Returns:
        Scalars. Entailment terms are given before λ.
    """
    terms = groups(nodes, scalars, options)
    cones = inheritance(nodes, scalars.curvature, options)
    below_lambda = total(cones)
    queries: dict[str, Tensor] = {}
    if options.needs_queries and len(nodes.query_weight):
        queries = query_terms(nodes, scalars.curvature, options)
        below_lambda = below_lambda + options.query_weight * total(queries)
    loss = total(terms) + options.entailment_weight * below_lambda
    return terms | cones | queries | {"loss": loss}
