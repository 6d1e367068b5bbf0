"""The error of a log Z that is tracked while a machine is trained."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["TrackingError", "slowest_mode"]

Floats = NDArray[np.float64]

# Number of earlier updates to which chains respond one by one. What is left of the response after
# these is taken to happen at once.
_LONGEST = 50
# Share of the autocovariances that an update keeps: they are those of the last 100 updates.
_KEPT = 0.99


class TrackingError:
    """What each chain has contributed to the error of a tracked log Z.

    Parameters
    ----------
    influence : ndarray, shape (n_chains,)
        Contributions to the first estimate, in nats, with a mean of 0.
    mode : ndarray, shape (n_chains,)
        Values of ``slowest_mode`` at the chains.

    Notes
    -----
    If log Z of the machine is too large by ``d``, chains visit its temperature too rarely; this is
    how later updates correct the error. But chains take some time to move. Until they have done so,
    every update corrects the same error again: the tracked value overshoots, and its error is
    larger than that of an estimate from chains in equilibrium.

    To first order, the mean of the log ratio of visits at update ``t`` is ``-sum_j (C_j - C_(j+1))
    d_(t-j)``, where ``d_t`` is the error at update ``t`` and ``C_j`` the autocorrelation over ``j``
    updates of what the chains move along. This is linear response theory: a system in equilibrium
    forgets its own fluctuations as it forgets a small disturbance (Kubo 1966, "The
    fluctuation-dissipation theorem"). ``C_j`` is measured on the slowest mode of a walk along the
    ladder.
    """

    def __init__(self, influence: Floats, mode: Floats) -> None:
        self._influence = influence
        # of the last updates, the newest first
        self._errors = np.zeros((_LONGEST, len(influence)))
        self._modes = np.zeros((_LONGEST + 1, len(mode)))
        self._modes[0] = mode - mode.mean()
        self._covariance, self._variance = np.zeros((2, _LONGEST + 1))
        self._n_updates = 0

    @property
    def mcse(self) -> float:
        """Standard error of log Z in nats, from the scatter over the chains."""
        n = len(self._influence)
        return float(self._influence.std(ddof=1) / np.sqrt(n))

    def predicted(self, influence: Floats) -> None:
        """Add what chains contribute to a predicted change of log Z, shape (n_chains,)."""
        self._influence = self._influence + influence

    def corrected(self, alpha: float, influence: Floats, mode: Floats) -> None:
        """Follow an update of log Z by ``alpha`` times the log ratio of visits.

        Parameters
        ----------
        alpha : float
            Share of the log ratio.
        influence : ndarray, shape (n_chains,)
            What chains contribute to the log ratio, in nats, with a mean of 0.
        mode : ndarray, shape (n_chains,)
            Values of ``slowest_mode`` at the chains after the visits.
        """
        self._n_updates += 1
        _put_first(self._errors, self._influence)
        _put_first(self._modes, mode - mode.mean())
        response = self._response() @ self._errors
        self._influence = self._influence + alpha * (influence - response)

    def _response(self) -> Floats:
        """Return the response to the errors of the last updates, the newest first."""
        n = min(self._n_updates, _LONGEST)
        products = self._modes[: n + 1] @ self._modes[0]
        self._covariance[: n + 1] = _KEPT * self._covariance[: n + 1] + products
        self._variance[: n + 1] = _KEPT * self._variance[: n + 1] + products[0]
        correlation = np.ones(_LONGEST + 1)  # that of chains that never move
        known = self._variance > 0.0
        correlation[known] = self._covariance[known] / self._variance[known]
        correlation = np.minimum.accumulate(np.clip(correlation, 0.0, 1.0))
        response: Floats = correlation[:-1] - correlation[1:]
        response[n:] = 0.0
        if n == _LONGEST:
            response[-1] += correlation[-1]
        return response


def _put_first(rows: Floats, row: Floats) -> None:
    """Put a row before all others, the last of which is dropped."""
    rows[1:] = rows[:-1]
    rows[0] = row


def slowest_mode(log_prior: Floats) -> Floats:
    """Return the slowest mode of a walk along a ladder, shape ``(n_temperatures,)``.

    Parameters
    ----------
    log_prior : ndarray, shape (n_temperatures,)
        Log probabilities of the temperatures, in nats.

    Returns
    -------
    ndarray
        ``cos(pi u)`` with the probability ``u`` below each temperature, half of its own included:
        the mode of a diffusion between reflecting ends that relaxes most slowly.
    """
    share = np.exp(log_prior)
    found: Floats = np.cos(np.pi * (np.cumsum(share) - 0.5 * share))
    return found
