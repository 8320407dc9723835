"""PHyCLIP: HyCoCLIP in a product of small hyperboloids, each of its own curvature."""

from torch import Tensor

from core.spaces import Product
from trainer.objectives.hycoclip import compose
from trainer.objectives.nodes import Nodes, Scalars
from trainer.objectives.options import PhyclipObjective


def phyclip_objective(
    nodes: Nodes, scalars: Scalars, options: PhyclipObjective
) -> dict[str, Tensor]:
    """The objective with the mean of the factors' distances (l1), or their root mean square.

    Entailment is a mean over the factors too: there is a cone in each.
    """
    return compose(nodes, scalars, options, Product(scalars.curvature, options.norm).similarity)
