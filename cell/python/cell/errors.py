"""The exceptions of Cell. All are `Error`; some are standard ones as well, so that code which knows nothing of Cell can
catch them."""

import re
from typing import Optional


class Error(Exception):
    """Anything that a cluster, or a client, refuses or cannot do."""


class Cancelled(Error):
    """The client was closed, or was opened by the process from which this one was forked."""


class InvalidArgument(Error, ValueError):
    """A key, a value or an option cannot be."""


class DeadlineExceeded(Error, TimeoutError):
    """The time was over before anything was written."""


class NotFound(Error, LookupError):
    """There is no such cluster or table."""


class PermissionDenied(Error, PermissionError):
    """The user has no grant for this."""


class ResourceExhausted(Error):
    """The store is full; there are too many snapshots; or the process has no descriptors left."""


class FailedPrecondition(Error):
    """The value, or the state of the object, does not allow it."""


class Aborted(Error):
    """A transaction met a change, or another transaction: begin it again."""


class OutOfRange(Error, OverflowError):
    """A key is not in the snapshot's range, or a result cannot be stored."""


class Internal(Error):
    """A fault of Cell."""


class Unavailable(Error, ConnectionError):
    """No server answers."""


class DataLoss(Error):
    """Bytes that nobody has written."""


class MaybeApplied(Error):
    """A write was sent, and its answer was lost: it has taken effect, or may still, or never will.

    `transaction_id`: if it was the commit of a transaction, what `Client.outcome` takes; else None.
    """

    transaction_id: Optional[bytes] = None


class SnapshotTooOld(Error):
    """The snapshot is not there any more."""


_CLASSES = {
    "CANCELLED": Cancelled,
    "INVALID_ARGUMENT": InvalidArgument,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "NOT_FOUND": NotFound,
    "PERMISSION_DENIED": PermissionDenied,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "FAILED_PRECONDITION": FailedPrecondition,
    "ABORTED": Aborted,
    "OUT_OF_RANGE": OutOfRange,
    "INTERNAL": Internal,
    "UNAVAILABLE": Unavailable,
    "DATA_LOSS": DataLoss,
    "MAYBE_APPLIED": MaybeApplied,
    "SNAPSHOT_TOO_OLD": SnapshotTooOld,
}


def make(name: str, message: str) -> Error:
    """Makes the exception of a code of the C API. Its message names the programs of this package."""
    message = re.sub(r"\./bazelw run //tools:(up|down|wipe)( --)?", r"python -m cell.\1", message)
    return _CLASSES.get(name, Error)(re.sub(r"\./bazelw run //tools:(\w+)( --)?", r"\1", message))
