"""The errors raised on purpose.

::

    Hyper3Error
    ├── ConfigError            a recipe, an override or a setting is wrong
    ├── DataError              a shard, a folder or a file of records is wrong
    ├── ImageError             one image cannot be used
    │   ├── UnsupportedImage   not an image, or of a type that is not accepted
    │   ├── BrokenImage        truncated or undecodable
    │   └── ImageTooLarge      over the limit of bytes or pixels
    ├── TextError              one text cannot be used
    ├── VectorError            one vector is not a point of the model's space
    ├── BundleError            an exported model is missing, incomplete or altered
    ├── CheckpointError        a checkpoint is missing, torn or of another recipe
    ├── TrainingDiverged       the loss or a gradient is not finite
    ├── ProcessLost            another process of the same training has ended
    ├── ParityError            an export that differs from what was trained
    ├── FingerprintMismatch    vectors and model do not belong together
    ├── NotFound               no item of that name
    ├── StorageError           the data folder cannot be used, or the disk is full
    ├── RequestError           a request is malformed
    │   ├── RequestTooLarge    over the limit of bytes or items
    │   └── RequestTimeout     its body took too long to arrive
    └── Unavailable            the service cannot be reached, or is not ready
        └── Overloaded         it has as much to do as it may take on

Every message names the thing, the value and the remedy. Built-in errors mean a
programmer's mistake, and are never caught.
"""


class Hyper3Error(Exception):
    """Something a user can put right; the message says how."""


class ConfigError(Hyper3Error):
    """A recipe, an override or a setting is wrong."""


class DataError(Hyper3Error):
    """A shard, a folder or a file of records is wrong."""


class ImageError(Hyper3Error):
    """One image cannot be used."""


class UnsupportedImage(ImageError):
    """Not an image, or of a type that is not accepted."""


class BrokenImage(ImageError):
    """Truncated or undecodable."""


class ImageTooLarge(ImageError):
    """Over the limit of bytes or pixels."""


class TextError(Hyper3Error):
    """One text cannot be used."""


class VectorError(Hyper3Error):
    """One vector is not a point of the model's space."""


class BundleError(Hyper3Error):
    """An exported model is missing, incomplete or altered."""


class CheckpointError(Hyper3Error):
    """A checkpoint is missing, torn or of another recipe."""


class TrainingDiverged(Hyper3Error):
    """The loss or a gradient is not finite; the weights are those of the step before."""


class ProcessLost(Hyper3Error):
    """Another process of the same training has ended; its own message says why."""


class ParityError(Hyper3Error):
    """An exported graph does not compute what was trained."""


class FingerprintMismatch(Hyper3Error):
    """Stored vectors and the loaded model do not belong together."""


class NotFound(Hyper3Error):
    """No item of that name."""


class StorageError(Hyper3Error):
    """The data folder cannot be used, or the disk is full."""


class RequestError(Hyper3Error):
    """A request, or a template in it, is malformed."""


class RequestTooLarge(RequestError):
    """Over the limit of bytes or items."""


class RequestTimeout(RequestError):
    """The body of a request took too long to arrive."""


class Unavailable(Hyper3Error):
    """The service cannot be reached, or is not ready."""


class Overloaded(Unavailable):
    """The service has as much to do as it may take on; ask again later."""
