"""Models of open_clip by ``open_clip:NAME:WEIGHTS``; nothing that a file holds is run."""

import pickle
import warnings
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import open_clip
import torch
from safetensors import SafetensorError

from core.errors import CheckpointError, ConfigError
from core.image import ImageSpec

SCHEME = "open_clip:"
"""How such a model begins, where a run or a bundle could stand as well."""

_RANDOM = "random"
_TAGS = 5  # that a message lists

FAULTS = (
    RuntimeError, OSError, EOFError, ImportError, SafetensorError, LookupError, ValueError,
    TypeError, AttributeError, AssertionError, StopIteration,
)  # fmt: skip
"""What open_clip raises where a download fails, a library is missing, or a file is not what it
should be; its errors share no narrower base."""


def split_target(target: str) -> tuple[str, str]:
    """Name and weights of ``open_clip:NAME:WEIGHTS``: a file, a tag of open_clip, or ``random``.

    Raises:
        ConfigError: There is no such model or tag, or no weights are named.
    """
    name, _, weights = target.removeprefix(SCHEME).partition(":")
    known = open_clip.list_models()
    if name not in known:
        near = get_close_matches(name, known, n=5, cutoff=0.4)
        said = f"; near it: {', '.join(near)}" if near else ""
        raise ConfigError(f"{target}: open_clip has no model {name!r}{said}")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if weights != _RANDOM and weights not in tags and not Path(weights).is_file():
        what = f"no file and no tag {weights!r}" if weights else "no weights are named"
        near = get_close_matches(weights, tags, n=_TAGS, cutoff=0.4) or tags[:_TAGS]
        raise ConfigError(
            f"{target}: {what}; write {SCHEME}{name}:WEIGHTS with a .safetensors or .pt file, "
            f"{_RANDOM} (untrained, for chance levels) or one of its {len(tags)} tags"
            + (f", such as {', '.join(near)}" if near else "")
        )
    return name, weights


def load_clip(name: str, weights: str) -> Any:
    """The model with its weights, on the CPU; nothing in a file of weights is run.

    Raises:
        ConfigError: The weights of a tag cannot be fetched, or are of another activation.
        CheckpointError: A file holds more than tensors, or those of another model.
    """
    is_file = Path(weights).is_file()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        torch.manual_seed(0)
        # The wrong activation gives numbers that are a little too low, and no other sign.
        warnings.filterwarnings("error", "QuickGELU mismatch", UserWarning)
        warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
        try:
            return open_clip.create_model(
                name,
                pretrained=None if weights == _RANDOM else weights,
                pretrained_text=False,
                weights_only=True,
            )
        except UserWarning as error:
            raise ConfigError(
                f"{SCHEME}{name}:{weights}: {error}; name the model with or without -quickgelu"
            ) from error
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{weights}: no file of tensors alone: it is damaged, of another kind, or holds "
                "code, which is never run; save the model's state_dict, best as .safetensors"
            ) from error
        except FAULTS as error:
            reason = " ".join(str(error).split())[:250] or type(error).__name__
            if is_file:
                raise CheckpointError(f"{weights}: not weights of {name}: {reason}") from error
            raise ConfigError(
                f"{SCHEME}{name}:{weights}: {reason}; without a network, name a file of weights"
            ) from error


def image_spec(name: str, model: Any) -> ImageSpec:
    """What the model's image tower takes.

    Raises:
        ConfigError: Its pictures are no squares.
    """
    found = open_clip.get_model_preprocess_cfg(model)
    size = found["size"]
    height, width = size if isinstance(size, tuple | list) else (size, size)
    if height != width:
        raise ConfigError(f"{SCHEME}{name}: takes pictures of {width} x {height}, not squares")
    return ImageSpec(side=height, mean=tuple(found["mean"]), std=tuple(found["std"]))
