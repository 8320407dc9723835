"""Many items in one request: those that are good, and an error for each that is not."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from core.errors import Hyper3Error, RequestTooLarge
from service.schemas import Fault, OnError

Good = TypeVar("Good")

_MAX_DETAIL_CHARS = 1000  # an error may quote what was sent


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item stood in the request."""

    kind: str
    index: int
    id: str | None = None


class BadItemsError(Hyper3Error):
    """Some items cannot be used, and the request asked to fail then.

    Args:
        first: The error of the first of them, which decides the status.
        faults: What is wrong with each.
    """

    def __init__(self, first: Hyper3Error, faults: list[Fault]) -> None:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{faults[0].kind} {faults[0].index}: {first}{more}")
        self.first, self.faults = first, faults


def code_of(error: Hyper3Error) -> str:
    """The name of an error's kind in an answer: ``ImageTooLarge`` is ``image_too_large``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()


def settle(
    places: Sequence[Place], results: Sequence[Good | Hyper3Error], on_error: OnError
) -> tuple[list[tuple[Place, Good]], list[Fault]]:
    """The good results with their places, and the faults of the rest.

    Raises:
        BadItemsError: There are faults, and ``on_error`` is fail.
    """
    good: list[tuple[Place, Good]] = []
    faults: list[Fault] = []
    first: Hyper3Error | None = None
    for place, result in zip(places, results, strict=True):
        if isinstance(result, Hyper3Error):
            first = first or result
            faults.append(
                Fault(
                    code=code_of(result),
                    detail=str(result)[:_MAX_DETAIL_CHARS],
                    index=place.index,
                    kind=place.kind,
                    id=place.id,
                )
            )
        else:
            good.append((place, result))
    if first is not None and on_error == "fail":
        raise BadItemsError(first, faults)
    return good, faults


def check_size(count: int, limit: int, what: str) -> None:
    """Refuse a request of too many items.

    Raises:
        RequestTooLarge: ``count`` is over ``limit``.
    """
    if count > limit:
        raise RequestTooLarge(f"{count:,} {what} in one request: the limit is {limit:,}")
