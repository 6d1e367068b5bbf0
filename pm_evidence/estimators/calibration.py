"""Whether posterior model probabilities are calibrated, from data sets whose model is known."""

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.estimators.errors import is_heavy, pareto_k

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_SHUFFLES = 9999  # label sets by which p values are computed
_AT_ONCE = 2_000_000  # labels that are drawn together
_UNSEEN = 0.05  # share of a mean from which on it tells nothing
# Relative size of what is taken for a rounding error, and of a sum that cannot occur.
_ROUNDING, _IMPOSSIBLE = 1e-10, 1e-3
_LEAST_LOG = -700.0  # of a probability, so that scores remain finite


def model_probabilities(log_evidence: Floats, prior: Floats) -> Floats:
    """Return posterior model probabilities of each data set."""
    log_weight = log_evidence + np.log(prior)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    probability: Floats = weight / weight.sum(axis=1, keepdims=True)
    return probability


@dataclass(frozen=True)
class CalibrationTest:
    """A test of whether labels are draws from the probabilities that they were given."""

    statistic: float  # the score statistic
    # Share of label sets, drawn from the probabilities, with a statistic that is as large
    p_value: float
    # Mean over data sets of minus the log probability of the model that they came from, in nats
    log_score: float
    # What it is on average, and its standard deviation, if the probabilities are calibrated
    expected_log_score: float
    log_score_sd: float


@dataclass(frozen=True)
class WrongModel:
    """Bayes factors in favour of a wrong model, whose mean is one."""

    right: int  # the model that data came from, and the other one
    wrong: int
    n: int  # number of data sets
    mean_bf: float  # mean Bayes factor of the wrong against the right model, and its error
    mcse: float
    unseen: float  # share of the mean that belongs to larger Bayes factors than any of these
    # Whether the mean and its error tell nothing, because of these or because the tail of the Bayes
    # factors is too heavy for their number
    heavy: bool
    p_value: float  # two-sided, from label sets that are drawn from the probabilities


def calibration_test(
    probability: Floats, label: Indices, rng: np.random.Generator
) -> CalibrationTest:
    """Test whether labels are draws from probabilities.

    Data are drawn from a model that is itself drawn from the prior. Then the model is, given the
    data, a draw from its posterior probabilities, whatever the data are. The test is conditional on
    the data, and exact but for the number of label sets: its false-alarm rate is its level.

    The statistic is that of the score test of logistic recalibration (Cox 1958), ``q_k`` in
    proportion to ``p_k ** b * exp(a_k)``, at ``a = 0``, ``b = 1``: a log evidence that is shifted
    for one model appears in ``a``, probabilities that are too extreme or too cautious in ``b``.

    Cox, D. R. (1958). Two further applications of a model for binary regression. Biometrika 45,
    562-565.
    """
    with np.errstate(divide="ignore"):
        log_p = np.maximum(np.log(probability), _LEAST_LOG)
    score = _Score.of(probability, log_p)
    entropy = -(probability * log_p).sum(axis=1)
    observed = score.statistics(label[None])[0]
    drawn = [score.statistics(labels) for labels in _label_sets(probability, rng)]
    larger = np.concatenate(drawn) >= observed * (1.0 - _ROUNDING)
    variance = (probability * log_p**2).sum(axis=1) - entropy**2
    n = len(label)
    return CalibrationTest(
        statistic=float(observed),
        p_value=(1.0 + float(larger.sum())) / (1.0 + larger.size),
        log_score=-float(log_p[np.arange(n), label].mean()),
        expected_log_score=float(entropy.mean()),
        log_score_sd=float(np.sqrt(np.maximum(variance, 0.0).sum())) / n,
    )


@dataclass(frozen=True)
class _Score:
    """The score of logistic recalibration."""

    # shape (n_data_sets, n_models, n_features): what it adds up of a data set for each label, in
    # units of the standard deviation of the sum: indicators of all models but the last, and the log
    # probability, less their means
    features: Floats
    inverse: Floats  # shape (n_features, n_features): inverse of the correlations of the sums
    # shape (n_features, n_features): projection on the directions in which the sums do not vary
    impossible: Floats

    @classmethod
    def of(cls, probability: Floats, log_p: Floats) -> "_Score":
        """Return the score for some probabilities."""
        n, n_models = probability.shape
        indicator = np.broadcast_to(np.eye(n_models)[:, :-1], (n, n_models, n_models - 1))
        features = np.concatenate([indicator, log_p[:, :, None]], axis=2)
        features -= (probability[:, :, None] * features).sum(axis=1, keepdims=True)
        variance = np.einsum("ik,ikf,ikf->f", probability, features, features)
        features /= np.where(variance > 0.0, np.sqrt(variance), 1.0)
        correlation = np.einsum("ik,ikf,ikg->fg", probability, features, features)
        inverse = np.linalg.pinv(correlation, rcond=_ROUNDING, hermitian=True)
        return cls(features, inverse, np.eye(len(variance)) - correlation @ inverse)

    def statistics(self, labels: Indices) -> Floats:
        """Return the statistic of label sets, shape ``(n_sets, n_data_sets)``."""
        rows = np.arange(len(self.features))
        total = np.stack([self.features[rows, each].sum(axis=0) for each in labels])
        beyond = np.abs(total @ self.impossible.T).max(axis=1) > _IMPOSSIBLE
        statistic = np.einsum("sf,fg,sg->s", total, self.inverse, total)
        return np.where(beyond, np.inf, statistic)


def _label_sets(probability: Floats, rng: np.random.Generator) -> list[Indices]:
    """Return sets of labels that are drawn from the probabilities, in parts."""
    n = len(probability)
    part = max(min(_SHUFFLES, _AT_ONCE // n), 1)
    cumulative = np.cumsum(probability, axis=1)[:, :-1]
    found = []
    for start in range(0, _SHUFFLES, part):
        u = rng.uniform(size=(min(part, _SHUFFLES - start), n))
        found.append((u[:, :, None] > cumulative).sum(axis=2))
    return found


def wrong_models(
    log_evidence: Floats, probability: Floats, label: Indices, rng: np.random.Generator
) -> list[WrongModel]:
    """Return the mean Bayes factor in favour of each wrong model.

    For data of one model, the expected Bayes factor in favour of any other model is one: its
    evidence integrates to one over data. Few data sets carry most of this mean if the models are
    easy to tell apart, and it is then far below one in most runs. For the same reason the part of
    the mean beyond a Bayes factor is the share of data sets of the wrong model with a larger one.
    """
    sets = _label_sets(probability, rng)
    n_models, found = probability.shape[1], []
    for right in range(n_models):
        mine = label == right
        for wrong in (k for k in range(n_models) if k != right):
            with np.errstate(over="ignore", invalid="ignore"):
                log_bf = log_evidence[:, wrong] - log_evidence[:, right]
                bf = np.exp(log_bf)
            bf = np.where(np.isfinite(bf), bf, 0.0)
            total = np.concatenate([(labels == right) @ bf for labels in sets])
            own, n = float(bf[mine].sum()), int(mine.sum())
            above, below = (1 + (total >= own).sum()), (1 + (total <= own).sum())
            k = pareto_k(log_bf[mine]) if n else float("nan")
            largest = log_bf[mine].max() if n else -np.inf
            others = log_bf[label == wrong]
            unseen = float((others > largest).mean()) if others.size else float("nan")
            known = n > 1
            found.append(
                WrongModel(
                    right,
                    wrong,
                    n,
                    float(np.exp(log_mean_exp(log_bf[mine]))) if n else float("nan"),
                    float(bf[mine].std(ddof=1) / np.sqrt(n)) if known else float("nan"),
                    unseen,
                    not known or not unseen < _UNSEEN or is_heavy(k, n),
                    float(min(1.0, 2.0 * min(above, below) / (1 + total.size))),
                )
            )
    return found


def reliability(probability: Floats, hit: NDArray[np.bool_], n_bins: int) -> dict[str, Floats]:
    """Return how often a model was the right one, by the probability that it was given."""
    parts = np.array_split(np.argsort(probability, kind="stable"), min(n_bins, len(hit)))
    count = np.array([len(part) for part in parts], float)
    hits = np.array([hit[part].sum() for part in parts], float)
    lower, upper = np.zeros(len(parts)), np.ones(len(parts))
    some, missing = hits > 0, hits < count
    lower[some] = scipy.special.betaincinv(hits[some], (count - hits + 1.0)[some], 0.025)
    upper[missing] = scipy.special.betaincinv((hits + 1.0)[missing], (count - hits)[missing], 0.975)
    mean = np.array([probability[part].mean() for part in parts])
    return {
        "probability": mean,
        "frequency": hits / count,
        "lower": lower,
        "upper": upper,
        "count": count,
    }
