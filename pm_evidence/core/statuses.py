"""The statuses of an estimate.

The page ``docs/statuses.md`` has a table of them, with the cause, the meaning and the remedy of
each.
"""

from enum import StrEnum

__all__ = ["PAGE", "Status", "with_pointer"]

PAGE = "docs/statuses.md"


class Status(StrEnum):
    """Whether an estimate can be relied on and, if it cannot, why.

    A member equals its text, and is stored and shown as that text.
    """

    OK = "ok"
    # The estimate should not be relied on.
    DOMINATED = "dominated"
    HEAVY_TAIL = "heavy_tail"
    HIGH_VARIANCE = "high_variance"
    NO_OVERLAP = "no_overlap"
    NO_SUPPORT = "no_support"
    NO_ERROR = "no_error"
    MISSED_MASS = "missed_mass"
    FEW_VALUES = "few_values"
    INCONSISTENT = "inconsistent"
    ISLANDS_DIFFER = "islands_differ"
    NOT_MIXED = "not_mixed"
    DOUBTFUL_DRAWS = "doubtful_draws"
    UNBOUNDED = "unbounded"
    FAILED = "failed"
    MISCALIBRATED = "miscalibrated"
    NOT_NORMAL = "not_normal"
    COARSE_SCHEDULE = "coarse_schedule"
    NOISY_LIKELIHOOD = "noisy_likelihood"
    # The estimate is sound, but is not what was asked for.
    MAX_TIME = "max_time"
    MAX_DRAWS = "max_draws"
    INTERRUPTED = "interrupted"
    WITHIN_ISLANDS = "within_islands"
    BOUND = "bound"

    # without this a status in a message would read <Status.OK: 'ok'>
    __repr__ = str.__repr__


def with_pointer(status: str, message: str) -> str:
    """Return the message of an estimate, followed by where its status is explained.

    Parameters
    ----------
    status : str
        Status of the estimate; nothing is added to the message of one that is ``"ok"``.
    message : str
        Message of the estimate; it may be empty.
    """
    if status == Status.OK:
        return message
    return f"{message} See {PAGE}#{status}.".lstrip()
