"""The trainer's commands, mounted into `hyper3` by the entry point."""

from trainer.commands.training import app

__all__ = ["app"]
