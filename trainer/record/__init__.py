"""What a run tells of itself while it trains: the screen, files, TensorBoard, W&B."""

from trainer.record.record import Record

__all__ = ["Record"]
