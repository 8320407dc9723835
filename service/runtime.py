"""What a running service holds, and whether it can do its work."""

import os
from dataclasses import dataclass

import numpy as np

from core import lorentz
from core.bundle import Bundle, Manifest, open_bundle
from core.errors import Hyper3Error
from service.embedder import Embedder
from service.encoder import Encoder
from service.index import Index
from service.settings import Settings
from service.store import Change, Put, Store
from service.workers import Workers
from service.zero_shot import LabelSets

_LEAST_FREE_BYTES = 64 * 2**20
_CANARY = "a photo"


@dataclass(frozen=True)
class Runtime:
    """All parts of one running service."""

    settings: Settings
    bundle: Bundle
    workers: Workers
    embedder: Embedder
    labels: LabelSets
    index: Index
    store: Store

    @property
    def manifest(self) -> Manifest:
        """What the served model is."""
        return self.bundle.manifest

    def answer(self) -> dict[str, object]:
        """What every answer with vectors or distances begins with."""
        geometry = {
            "model": "lorentz",
            "curvature": self.manifest.curvature,
            "dim": self.manifest.dim,
            "time_index": 0,
        }
        return {"fingerprint": self.manifest.fingerprint, "geometry": geometry}

    def close(self) -> None:
        """Finish what was taken and commit it."""
        self.workers.close()
        self.store.close()


def open_runtime(settings: Settings) -> Runtime:
    """Load the bundle, open the data folder and fill the index from it.

    Raises:
        BundleError: The bundle cannot be used.
        StorageError: The data folder cannot be used, or another process uses it.
        FingerprintMismatch: The data folder belongs to another model.
    """
    bundle = open_bundle(settings.bundle)
    manifest = bundle.manifest
    encoder = Encoder(bundle)
    index = Index(manifest.dim, manifest.curvature)
    store = Store(settings.data, manifest.fingerprint, manifest.dim, lambda it: _follow(index, it))
    try:
        for ids, space in store.vectors():
            index.put(ids, space)
    except Hyper3Error:
        store.close()
        raise
    workers = Workers(settings.workers, settings.max_waiting)
    embedder = Embedder(encoder, workers, settings)
    labels = LabelSets(embedder, manifest.curvature)
    return Runtime(settings, bundle, workers, embedder, labels, index, store)


def check_ready(runtime: Runtime) -> dict[str, str]:
    """Each part's state: ``ok``, or the reason why it cannot do its work."""
    checks = {"encoder": _check_encoder(runtime), "index": "ok", "disk": "ok"}
    if runtime.store.failure is not None:
        checks["index"] = f"behind the store ({runtime.store.failure}): restart the service"
    status = os.statvfs(runtime.settings.data)
    free = status.f_bavail * status.f_frsize
    if free < _LEAST_FREE_BYTES:
        checks["disk"] = f"{runtime.settings.data}: {free:,} bytes free; make room"
    elif not os.access(runtime.settings.data, os.W_OK):
        checks["disk"] = f"{runtime.settings.data}: not writable"
    return checks


def _check_encoder(runtime: Runtime) -> str:
    (vector,) = runtime.embedder.texts([_CANARY])
    if isinstance(vector, Hyper3Error):
        return str(vector)
    point = lorentz.lift(vector.tangent, runtime.manifest.curvature)
    if not np.allclose(point, vector.point, rtol=1e-3, atol=1e-3):
        return "the canary's point is not where its tangent leads: the bundle is wrong"
    return "ok"


def _follow(index: Index, change: Change) -> None:
    if isinstance(change, Put):
        items = change.items
        if items:
            index.put([item.id for item in items], np.stack([item.space for item in items]))
    else:
        index.delete([change.id])
