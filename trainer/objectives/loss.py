"""The loss of a recipe: the file of its system."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from trainer.objectives.atmg import atmg_objective
from trainer.objectives.clip import clip_objective
from trainer.objectives.hycoclip import hycoclip_objective
from trainer.objectives.hyper3 import hyper3_objective
from trainer.objectives.meru import meru_objective
from trainer.objectives.nodes import Nodes, Scalars
from trainer.objectives.options import Objective
from trainer.objectives.phyclip import phyclip_objective
from trainer.objectives.uncha import uncha_objective

_SYSTEMS: dict[str, Callable[[Nodes, Scalars, Any], dict[str, Tensor]]] = {
    "atmg": atmg_objective,
    "clip": clip_objective,
    "hycoclip": hycoclip_objective,
    "hyper3": hyper3_objective,
    "meru": meru_objective,
    "phyclip": phyclip_objective,
    "uncha": uncha_objective,
}


def loss_terms(nodes: Nodes, scalars: Scalars, options: Objective) -> dict[str, Tensor]:
    """Every term of the system's objective by name, and their weighted sum under ``loss``."""
    return _SYSTEMS[options.kind](nodes, scalars, options)
