"""Log evidence from posterior draws, in one call."""

from typing import Any

from pm_evidence.api.sample import sample_evidence
from pm_evidence.samplers.bridge import Bridge

__all__ = ["bridge_sampling"]


def bridge_sampling(idata: Any, model: Any = None, **options: Any) -> Any:
    return sample_evidence(model, method=Bridge(idata), **options)
