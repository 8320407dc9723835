"""Worker processes that end with the process that began them."""

import multiprocessing
import os
import threading


def follow_parent() -> None:
    """Make ready a worker, as the initializer of a pool: a killed parent tells it nothing."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
