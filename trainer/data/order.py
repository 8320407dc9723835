"""The order of samples in an epoch, which any process can compute for itself.

It is a permutation of all samples, whatever shards they lie in and whoever reads them, so that
going on after a crash is arithmetic.
"""

import itertools

import numpy as np
import numpy.typing as npt

from core.errors import DataError
from trainer.data.shards import ShardIndex


def epoch_order(index: ShardIndex, batch_size: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The samples of each batch of an epoch, ``(batches, batch_size)``, shuffled anew.

    No batch holds two captions of one photo, since each would be the other's false negative;
    the few samples that no batch can take are left out this time.

    Raises:
        DataError: There are fewer photos than a batch needs.
    """
    order = np.random.default_rng((seed, epoch)).permutation(len(index))
    if index.photo.max() + 1 < batch_size:
        raise DataError(
            f"{index.shards[0].parent}: {index.photo.max() + 1} photos cannot fill a batch of "
            f"{batch_size}; lower optim.batch_size"
        )
    if index.photo.max() + 1 == len(index):
        whole = len(order) // batch_size * batch_size
        return order[:whole].reshape(-1, batch_size)
    return _spread_photos(order, index.photo, batch_size)


def _spread_photos(
    order: npt.NDArray[np.int64], photo: npt.NDArray[np.int64], batch_size: int
) -> npt.NDArray[np.int64]:
    """Batches in the given order, a sample whose photo is already there waiting for the next."""
    photos = photo.tolist()
    stream = iter(order.tolist())
    batches: list[list[int]] = []
    waiting: list[int] = []
    while True:
        batch: list[int] = []
        taken: set[int] = set()
        again: list[int] = []
        ahead = iter(waiting)
        for candidate in itertools.chain(ahead, stream):
            if photos[candidate] in taken:
                again.append(candidate)
                continue
            batch.append(candidate)
            taken.add(photos[candidate])
            if len(batch) == batch_size:
                break
        else:
            return np.array(batches, dtype=np.int64).reshape(-1, batch_size)
        batches.append(batch)
        waiting = again + list(ahead)
