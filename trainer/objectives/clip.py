"""CLIP (arXiv:2103.00020): cosines, told apart over the batch.

With a query weight, the idea of beta-CLIP as the Hyper3-CLIP paper tells it: the visual node
of every query is contrasted with the query's own text. Its own code was not found; what is
here follows that one sentence.
"""

from torch import Tensor

from trainer.objectives.contrastive import repeats, symmetric
from trainer.objectives.nodes import Nodes, Scalars
from trainer.objectives.options import ClipObjective


def clip_objective(nodes: Nodes, scalars: Scalars, options: ClipObjective) -> dict[str, Tensor]:
    """``loss = global + query weight * queries``; nodes are unit vectors ``(n, dim)``.

    A text that two queries share is the negative of neither: nothing could tell them apart.
    """
    masked = repeats(nodes.text_id) if options.mask_repeats else None
    terms = {"contrastive/global": symmetric(nodes.images @ nodes.texts.T, scalars.whole, masked)}
    loss = terms["contrastive/global"]
    if options.needs_queries and len(nodes.query_images):
        terms["contrastive/queries"] = symmetric(
            nodes.query_images @ nodes.query_texts.T, scalars.part, repeats(nodes.query_text_id)
        )
        loss = loss + options.query_weight * terms["contrastive/queries"]
    return terms | {"loss": loss}
