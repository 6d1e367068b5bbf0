"""The errors and warnings of the package.

Every message names the parameter, the rule, the value and the remedy.
"""

__all__ = ["EvidenceWarning", "ModelError", "NumericalError"]


class ModelError(ValueError):
    """The model has no well-defined evidence, or not one that can be annealed to."""


class NumericalError(RuntimeError):
    """A density returned NaN, or no draw has any support under the data."""


class EvidenceWarning(UserWarning):
    """An evidence estimate should not be relied on without a second look."""
