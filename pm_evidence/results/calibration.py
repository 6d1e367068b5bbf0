"""Whether posterior model probabilities are calibrated, from data sets whose model is known."""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pandas as pd
import scipy
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import Status, with_pointer
from pm_evidence.core.text import facts
from pm_evidence.estimators.errors import is_heavy, pareto_k

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_SHUFFLES = 9999  # label sets by which p values are computed
_AT_ONCE = 2_000_000  # labels that are drawn together
_UNSEEN = 0.05  # share of a mean from which on it tells nothing
# Relative size of what is taken for a rounding error, and of a sum that cannot occur.
_ROUNDING, _IMPOSSIBLE = 1e-10, 1e-3
_LEAST_LOG = -700.0  # of a probability, so that scores remain finite
# Level at which probabilities are called miscalibrated: the rate of false alarms.
_LEVEL = 0.01
# A shift is found with a probability of 80 % at a level of 5 % if it is so many errors large.
_ERRORS_TO_FIND = 1.96 + 0.84
# Share of runs with another status than ok from which on the message names them.
_MANY = 0.05


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


@dataclass(frozen=True, eq=False)
class Calibration:
    """Whether posterior model probabilities are right, on data sets whose model is known."""

    # ``log_evidence`` and ``mcse`` in nats, ``status`` and ``prob`` of each data set and model,
    # ``drawn_from``, the model that each data set came from, and ``prior_prob``
    runs: xr.Dataset
    test: CalibrationTest  # the test of all probabilities together, and the logarithmic score
    # For each model: ``n_drawn``, the number of data sets from it; ``prior_prob``; ``mean_prob``
    # and ``mean_prob_se``, its mean posterior probability, which is ``prior_prob`` on average;
    # ``detectable_shift``, how large an error of its log evidence, in nats, must be to be found by
    # these data sets with a probability of 80 %
    models: pd.DataFrame
    # For each pair of a right and a wrong model: ``n``, the number of data sets from the right one;
    # ``mean_bf`` in favour of the wrong model, which is 1 on average, with ``mcse``; ``unseen``,
    # the share of this mean that belongs to larger Bayes factors than any that occurred;
    # ``p_value``; ``status``, ``"heavy_tail"`` where few data sets carry the mean, so that it is no
    # evidence against the law
    bayes_factors: pd.DataFrame
    # ``"ok"``; ``"miscalibrated"`` if the p value is below 0.01; ``"failed"`` if runs failed;
    # ``"interrupted"``
    status: str
    message: str  # what the status means here

    @property
    def p_value(self) -> float:
        """Probability of so large a deviation if all probabilities are calibrated."""
        return self.test.p_value

    def __str__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self._facts() if text)

    def __repr__(self) -> str:
        return (
            f"Calibration(n={self.runs.sizes['data_set']}, p_value={self.p_value:.4f}, "
            f'status="{self.status}")'
        )

    def _repr_html_(self) -> str:
        return facts("Calibration", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        test, shift = self.test, self.models["detectable_shift"]
        found = ", ".join(f"{value:.2g} ({name})" for name, value in shift.items())
        return [
            ("data sets", str(self.runs.sizes["data_set"])),
            ("p value of calibration", f"{test.p_value:.4f}"),
            (
                "log score",
                f"{test.log_score:.3f}, expected {test.expected_log_score:.3f} "
                f"with a standard deviation of {test.log_score_sd:.3f}",
            ),
            ("errors of log evidence that would be found", f"{found} nats"),
            ("status", self.status),
            ("message", with_pointer(self.status, self.message)),
        ]


def calibration_of(
    runs: xr.Dataset, rng: np.random.Generator, *, interrupted: bool = False
) -> Calibration:
    """Return the calibration of some runs."""
    failed = runs["log_evidence"].isnull().any("model").values
    if failed.all():
        raise NumericalError("every data set had a run that failed; sample_evidence says why.")
    kept = runs.isel(data_set=np.flatnonzero(~failed))
    names = [str(name) for name in runs["model"].values]
    log_evidence = kept["log_evidence"].transpose("data_set", "model").values
    prior = runs["prior_prob"].values
    label = np.array([names.index(str(name)) for name in kept["drawn_from"].values], np.int64)
    probability = model_probabilities(log_evidence, prior)
    test = calibration_test(probability, label, rng)
    bayes_factors = wrong_models(names, log_evidence, probability, label, rng)
    models = _models(names, prior, probability, label)
    status, message = _status(runs, test, int(failed.sum()), interrupted=interrupted)
    runs = kept.assign(prob=(("data_set", "model"), probability))
    return Calibration(runs, test, models, bayes_factors, str(status), message)


def _models(
    names: list[str],
    prior: Floats,
    probability: Floats,
    label: Indices,
) -> pd.DataFrame:
    n = len(label)
    information = (probability * (1.0 - probability)).sum(axis=0)
    with np.errstate(divide="ignore"):
        shift = _ERRORS_TO_FIND / np.sqrt(information)
    return pd.DataFrame(
        {
            "n_drawn": np.bincount(label, minlength=len(names)),
            "prior_prob": prior,
            "mean_prob": probability.mean(axis=0),
            "mean_prob_se": probability.std(axis=0, ddof=1) / np.sqrt(n),
            "detectable_shift": shift,
        },
        index=pd.Index(names, name="model"),
    )


def _status(
    runs: xr.Dataset, test: CalibrationTest, n_failed: int, *, interrupted: bool
) -> tuple[Status, str]:
    n, parts, status = runs.sizes["data_set"], [], Status.OK
    if interrupted:
        status = Status.INTERRUPTED
        parts.append(f"Ctrl-C ended the runs after {n} data sets.")
    if n_failed:
        status = Status.FAILED
        parts.append(f"{n_failed} of {n} data sets are left out, because a run failed.")
    if test.p_value < _LEVEL:
        status = Status.MISCALIBRATED
        parts.insert(0, f"The probabilities are not those of the models (p = {test.p_value:.2g}).")
    doubtful = runs["status"].values != str(Status.OK)
    share = float(doubtful.mean())
    if share > _MANY:
        kinds, counts = np.unique(runs["status"].values[doubtful], return_counts=True)
        found = ", ".join(f"{kind} {count}" for kind, count in zip(kinds, counts, strict=True))
        parts.append(f"{share:.0%} of the runs are not ok ({found}).")
    return status, " ".join(parts)


def model_probabilities(log_evidence: Floats, prior: Floats) -> Floats:
    """Return posterior model probabilities of each data set."""
    probability: Floats = scipy.special.softmax(log_evidence + np.log(prior), axis=1)
    return probability


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
    names: list[str],
    log_evidence: Floats,
    probability: Floats,
    label: Indices,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return the mean Bayes factor in favour of each wrong model.

    For data of one model, the expected Bayes factor in favour of any other model is one: its
    evidence integrates to one over data. Few data sets carry most of this mean if the models are
    easy to tell apart, and it is then far below one in most runs. For the same reason the part of
    the mean beyond a Bayes factor is the share of data sets of the wrong model with a larger one.
    """
    sets, rows = _label_sets(probability, rng), []
    for right, wrong in permutations(range(len(names)), 2):
        mine, others = label == right, label == wrong
        n = int(mine.sum())
        with np.errstate(over="ignore", invalid="ignore"):
            log_bf = log_evidence[:, wrong] - log_evidence[:, right]
            bf = np.exp(log_bf)
        bf = np.where(np.isfinite(bf), bf, 0.0)
        total = np.concatenate([(labels == right) @ bf for labels in sets])
        own = float(bf[mine].sum())
        above, below = (1 + (total >= own).sum()), (1 + (total <= own).sum())
        largest = log_bf[mine].max() if n else -np.inf
        unseen = float((log_bf[others] > largest).mean()) if others.any() else np.nan
        heavy = n < 2 or not unseen < _UNSEEN or is_heavy(pareto_k(log_bf[mine]), n)
        rows.append(
            {
                "right": names[right],
                "wrong": names[wrong],
                "n": n,
                "mean_bf": float(np.exp(log_mean_exp(log_bf[mine]))) if n else np.nan,
                "mcse": float(bf[mine].std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan,
                "unseen": unseen,
                "p_value": float(min(1.0, 2.0 * min(above, below) / (1 + total.size))),
                "status": str(Status.HEAVY_TAIL if heavy else Status.OK),
            }
        )
    return pd.DataFrame(rows).set_index(["right", "wrong"])


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
