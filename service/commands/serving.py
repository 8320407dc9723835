"""What `hyper3 serve` does."""

import logging
import os
import signal
import socket
from typing import Any

import uvicorn
from pydantic import ValidationError
from rich.console import Console

from core.errors import ConfigError, Unavailable
from service.app import create_app
from service.settings import Settings

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_BACKLOG = 2048
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def run(given: dict[str, Any]) -> None:
    """Serve until SIGTERM or SIGINT; then finish what was taken.

    Args:
        given: Settings that the command line sets; the others come from the environment.

    Raises:
        ConfigError: A setting is missing or wrong.
        Unavailable: The address cannot be listened on.
        Hyper3Error: The bundle or the data folder cannot be used.
    """
    settings = _settings(given)
    console = Console(stderr=True, highlight=False)
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT)
    with listen(settings) as listener:
        with console.status(f"Loading {settings.bundle}"):
            app = create_app(settings)
        _announce(console, settings, app.state.runtime, listener.getsockname()[1])
        config = uvicorn.Config(
            app,
            log_level="warning",
            log_config=None,
            timeout_graceful_shutdown=settings.shutdown_s,
        )
        # The server raises the signal again once it has shut down: by then nothing is left to do.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        uvicorn.Server(config).run(sockets=[listener])
    console.print("Stopped; everything that was acknowledged is on the disk.")


def _settings(given: dict[str, Any]) -> Settings:
    if "bundle" not in given and not os.environ.get("H3_BUNDLE"):
        raise ConfigError("no bundle: name the folder that `hyper3 export` wrote with --bundle")
    try:
        return Settings(**given)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
        ]
        raise ConfigError(
            "settings (options of the command, or H3_* variables):\n" + "\n".join(lines)
        ) from error


def listen(settings: Settings) -> socket.socket:
    """A socket that listens on the settings' address.

    Raises:
        Unavailable: It cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named because asyncio turns off Nagle's delay (40 ms an answer) only then.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except (socket.gaierror, TypeError) as error:  # the latter for what cannot be a name
        listener.close()
        raise Unavailable(
            f"host {settings.host!r} has no address; choose another --host: 127.0.0.1 for this "
            "machine alone, 0.0.0.0 for its network"
        ) from error
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"cannot listen on {settings.host}:{settings.port}: "
            f"{os.strerror(error.errno or 0)}; choose another --port or --host"
        ) from error
    return listener


def _announce(console: Console, settings: Settings, runtime: Any, port: int) -> None:
    manifest = runtime.manifest
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{port}"
    console.print(f"Serving {manifest.name} on {url}", markup=False)
    console.print(f"  fingerprint  {manifest.fingerprint}")
    console.print(f"  geometry     lorentz, dim {manifest.dim}, curvature {manifest.curvature:g}")
    console.print(f"  items        {len(runtime.index):,} in {settings.data}")
    console.print(f"  try it       {url}/docs", markup=False)
    if settings.host not in _LOOPBACK:
        console.print("  note         no key is asked for: whoever reaches this address may write")
