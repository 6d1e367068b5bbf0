"""The evidence of a compiled target in one call: that of `sample_evidence`, without its result."""

import pytest

from pm_evidence.runs.repeated import evidence_of
from pm_evidence.targets.model.cache import target_of
from tests.models import shared

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def test_it_is_the_exact_evidence_and_the_seed_counts():
    model, exact = shared("normal").model, shared("normal").log_evidence
    target = target_of(model, reparameterise=True)
    found = [evidence_of(target, 0.1, 1, seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert all(abs(each.value - exact) < 4 * each.mcse and each.status == "ok" for each in found)
