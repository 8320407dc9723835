"""The settings of one service process, from `H3_*` variables and the options of `hyper3 serve`."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from core.cores import available_cores
from core.image import ImageLimits


class Settings(BaseSettings):
    """Settings of one service process."""

    model_config = SettingsConfigDict(env_prefix="H3_", frozen=True)

    bundle: Path = Field(description="Folder that `hyper3 export` wrote.")
    data: Path = Field(Path("hyper3-data"), description="Folder of the stored items.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65_535, description="Port to listen on.")
    workers: int = Field(
        default_factory=available_cores, ge=1, le=1024, description="Threads that embed."
    )
    keep_images: Literal["full", "thumbnail", "none"] = Field(
        "full", description="What is stored of an image beside its vector."
    )
    max_body_bytes: int = Field(64 * 2**20, ge=1, description="Most bytes of a request.")
    body_timeout_s: float = Field(60, gt=0, description="Most seconds a request's body may take.")
    max_requests: int = Field(64, ge=1, le=4096, description="Most requests with a body at once.")
    max_waiting: int = Field(1024, ge=1, description="Most images and texts that wait for workers.")
    max_items: int = Field(256, ge=1, description="Most items of one request.")
    max_labels: int = Field(10_000, ge=1, description="Most labels x templates of one request.")
    max_image_bytes: int = Field(20 * 2**20, ge=1, description="Most bytes of one image.")
    max_image_pixels: int = Field(50_000_000, ge=1, description="Most pixels of one image.")
    max_text_chars: int = Field(10_000, ge=1, description="Most characters of one text.")
    max_metadata_bytes: int = Field(64 * 2**10, ge=2, description="Most bytes of an item's JSON.")
    max_k: int = Field(1000, ge=1, description="Most hits of one search, and items of one page.")
    shutdown_s: int = Field(30, ge=1, description="Seconds to finish what was taken on SIGTERM.")

    @property
    def image_limits(self) -> ImageLimits:
        """What one image may cost."""
        return ImageLimits(self.max_image_bytes, self.max_image_pixels)
