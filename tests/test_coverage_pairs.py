"""Intervals of Bayes factors between models, over many seeds, on pairs with exact values.

Of those that are "ok" 90 to 99 % cover the exact log Bayes factor, errors are not too wide, and
hardly any is far off. Some minutes of one core for each pair.
"""

import warnings

import numpy as np
import pytest

import pm_evidence as pe
from tests.systems.pairs import model_pairs

pytestmark = pytest.mark.slow
N_SEEDS, LEAST_OK, FAR = 60, 0.9, 5.0
LOWEST, HIGHEST, LEAST_SPREAD = 0.9, 0.99, 0.7
PAIRS = [
    "regression_covariate",
    "regression_prior",
    "logistic_covariate",
    "count_likelihood",
    "groups_prior",
]


def repeated(name, n_seeds=N_SEEDS):
    """Errors in units of their standard errors, whether intervals cover, and whether ok."""
    pair, rows = model_pairs()[name], []
    models = pair.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        for seed in range(n_seeds):
            found = pe.bayes_factor(*models, random_seed=seed, progressbar=False, cores=1)
            covers = found.lower <= pair.log_bf <= found.upper
            rows.append(((found.log_bf - pair.log_bf) / found.mcse, covers, found.status == "ok"))
    z, covers, ok = (np.array(column) for column in zip(*rows, strict=True))
    print(
        f"\n{name:22s} cover {covers[ok].mean():.1%}, mean z {z[ok].mean():+.2f}, "
        f"sd z {z[ok].std():.2f}, ok {ok.mean():.0%}",
        flush=True,
    )
    return z[ok], covers[ok], ok


@pytest.mark.parametrize("name", PAIRS)
def test_coverage(name):
    z, covers, ok = repeated(name)
    assert ok.mean() >= LEAST_OK
    assert LOWEST <= covers.mean() <= HIGHEST
    assert z.std() >= LEAST_SPREAD and (np.abs(z) < FAR).all()
