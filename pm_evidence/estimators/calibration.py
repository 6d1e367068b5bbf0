"""Whether posterior model probabilities are calibrated, from data sets whose model is known."""

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.estimators.pareto import is_heavy, pareto_k

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_SHUFFLES = 9999  # label sets by which p values are computed
_AT_ONCE = 2_000_000  # labels that are drawn together
_UNSEEN = 0.05  # share of a mean from which on it tells nothing
# Relative size of what is taken for a rounding error, and of a sum that cannot occur.
_ROUNDING, _IMPOSSIBLE = 1e-10, 1e-3
_LEAST_LOG = -700.0  # of a probability, so that scores remain finite


def model_probabilities(log_evidence: Floats, prior: Floats) -> Floats:
    """Return posterior model probabilities of each data set.

    Parameters
    ----------
    log_evidence : ndarray, shape (n_data_sets, n_models)
        In nats; ``-inf`` for a model under which the data are impossible.
    prior : ndarray, shape (n_models,)
        Prior probabilities.
    """
    log_weight = log_evidence + np.log(prior)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    probability: Floats = weight / weight.sum(axis=1, keepdims=True)
    return probability


@dataclass(frozen=True)
class CalibrationTest:
    """A test of whether labels are draws from the probabilities that they were given.

    Parameters
    ----------
    statistic : float
        The score statistic.
    p_value : float
        Share of label sets, drawn from the probabilities, with a statistic that is as large.
    log_score : float
        Mean over data sets of minus the log probability of the model that they came from, in nats.
    expected_log_score, log_score_sd : float
        What it is on average, and its standard deviation, if the probabilities are calibrated.
    """

    statistic: float
    p_value: float
    log_score: float
    expected_log_score: float
    log_score_sd: float


@dataclass(frozen=True)
class WrongModel:
    """Bayes factors in favour of a wrong model, whose mean is one.

    Parameters
    ----------
    right, wrong : int
        The model that data came from, and the other one.
    n : int
        Number of data sets.
    mean_bf, mcse : float
        Mean Bayes factor of the wrong against the right model, and its error.
    unseen : float
        Share of the mean that belongs to larger Bayes factors than any of these.
    heavy : bool
        Whether the mean and its error tell nothing, because of these or because the tail of the
        Bayes factors is too heavy for their number.
    p_value : float
        Two-sided, from label sets that are drawn from the probabilities.
    """

    right: int
    wrong: int
    n: int
    mean_bf: float
    mcse: float
    unseen: float
    heavy: bool
    p_value: float


def calibration_test(
    probability: Floats, label: Indices, rng: np.random.Generator
) -> CalibrationTest:
    """Test whether labels are draws from probabilities.

    Parameters
    ----------
    probability : ndarray, shape (n_data_sets, n_models)
        Posterior model probabilities.
    label : ndarray of int64, shape (n_data_sets,)
        The model that each data set came from.
    rng : numpy.random.Generator
        Draws the label sets.

    Returns
    -------
    CalibrationTest
        Statistic, p value and score.

    Notes
    -----
    Data are drawn from a model that is itself drawn from the prior. Then the model is, given the
    data, a draw from its posterior probabilities, whatever the data are. The test is conditional on
    the data, and exact but for the number of label sets: its false-alarm rate is its level.

    The statistic is that of the score test of logistic recalibration (Cox 1958), ``q_k`` in
    proportion to ``p_k ** b * exp(a_k)``, at ``a = 0``, ``b = 1``: a log evidence that is shifted
    for one model appears in ``a``, probabilities that are too extreme or too cautious in ``b``.

    References
    ----------
    Cox, D. R. (1958). Two further applications of a model for binary regression. Biometrika 45,
    562-565.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> p = rng.uniform(size=(500, 1)) * [1.0, -1.0] + [0.0, 1.0]
    >>> label = (rng.uniform(size=500) > p[:, 0]).astype(np.int64)
    >>> calibration_test(p, label, rng).p_value > 0.05, calibration_test(p, 1 - label, rng).p_value
    (True, 0.0001)
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
    """The score of logistic recalibration.

    Parameters
    ----------
    features : ndarray, shape (n_data_sets, n_models, n_features)
        What it adds up of a data set for each label, in units of the standard deviation of the sum:
        indicators of all models but the last, and the log probability, less their means.
    inverse : ndarray, shape (n_features, n_features)
        Inverse of the correlations of the sums.
    impossible : ndarray, shape (n_features, n_features)
        Projection on the directions in which the sums do not vary.
    """

    features: Floats
    inverse: Floats
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

    Parameters
    ----------
    log_evidence, probability : ndarray, shape (n_data_sets, n_models)
        In nats, and posterior model probabilities.
    label : ndarray of int64, shape (n_data_sets,)
        The model that each data set came from.
    rng : numpy.random.Generator
        Draws the label sets.

    Notes
    -----
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
    """Return how often a model was the right one, by the probability that it was given.

    Parameters
    ----------
    probability : ndarray, shape (n_data_sets,)
        Posterior probability of a model.
    hit : ndarray of bool, shape (n_data_sets,)
        Whether the data came from it.
    n_bins : int
        Number of bins, which hold about equally many data sets.

    Returns
    -------
    dict of ndarray, each of shape (n_bins,)
        ``probability``, the mean in each bin; ``frequency`` of the model; ``lower`` and ``upper``,
        the 95 % interval of Clopper and Pearson (1934); ``count``.
    """
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
