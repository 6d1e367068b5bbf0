"""``train_rbm``: restricted Boltzmann machines trained on binary data."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_count, check_flag, check_kind, described
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.random import resolve_seed
from pm_evidence.execution.counter import counting
from pm_evidence.families.rbm.target import RBM
from pm_evidence.families.rbm.tracking import TrackLogZ
from pm_evidence.families.rbm.training import Training, binary_rows, train

__all__ = ["train_rbm"]

_MOST_HIDDEN = 100_000


@usual_floats()
def train_rbm(
    data: ArrayLike,
    n_hidden: int,
    *,
    algorithm: str = "cd",
    steps: int = 1,
    n_updates: int = 10_000,
    batch_size: int | None = None,
    learning_rate: float = 0.05,
    linear_decay: bool = False,
    weight_decay: float = 0.0,
    n_chains: int | None = None,
    track: TrackLogZ | None = None,
    validation: ArrayLike | None = None,
    start: RBM | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> RBM:
    """Train a restricted Boltzmann machine on binary data by contrastive divergence.

    It makes machines on which estimates of log Z can be tried. Neither the learning rate nor the
    number of updates is tuned. With ``track=pe.TrackLogZ()`` log Z is estimated all along, and with
    it the mean log-likelihoods of data and ``validation``.

    Parameters
    ----------
    data : array_like, shape (n_rows, n_visible)
        Observations, of 0 and 1 (booleans or numbers). Grey images must be binarised first: ``x >
        127`` for bytes, or ``rng.random(x.shape) < x / 255``.
    n_hidden : int
        Number of hidden units.
    algorithm : {"cd", "pcd", "tempering"}
        Contrastive divergence, whose chains start at the rows of each batch; persistent
        contrastive divergence, whose chains continue from update to update; or the tempered chains
        of ``track``, which also continue, and move between modes more easily.
    steps : int
        Gibbs steps of each update: the k of CD-k. Tempered chains make the sweeps of ``track``.
    n_updates : int
        Number of updates of the parameters.
    batch_size : int, optional
        Rows of each update; 100 by default, or all rows if there are fewer.
    learning_rate : float
        Step size: the parameters move by this times the estimated gradient of the mean log
        likelihood in nats.
    linear_decay : bool
        Whether the step size falls linearly towards 0 over the updates. Persistent chains need
        this to approach a maximum of the likelihood.
    weight_decay : float
        Strength of the penalty ``weight_decay / 2 * sum(W**2)``.
    n_chains : int, optional
        Number of persistent chains; as many as rows of a batch by default.
    track : TrackLogZ, optional
        How log Z is tracked; required by ``algorithm="tempering"``.
    validation : array_like, shape (n_validation, n_visible), optional
        Other observations, for a training with ``track``. The machine with their largest mean
        log-likelihood, among the points of the history, is returned.
    start : RBM, optional
        The machine that the training continues from, with ``n_hidden`` hidden units.
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same parameters on one machine with one number of BLAS threads.
        Other machines round matrix products differently.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    RBM
        The machine, with ``data`` as its data: reverse paths start from them. Its ``history`` is a
        `TrainingHistory` if ``track`` is given.

    Raises
    ------
    ValueError
        If ``data`` are not binary, or an option is out of range.
    NumericalError
        If the parameters become infinite because the learning rate is too large.

    Notes
    -----
    Hinton (2002) for contrastive divergence, Tieleman (2008) for persistent chains, Carlson et al.
    (2016) for tempered ones. The products are in single precision. Steps are those of plain
    stochastic gradient ascent. CD does not climb the likelihood: it stops where ``steps`` Gibbs
    steps from the data leave the statistics of the data unchanged.

    Examples
    --------
    Two units that are always equal, and a third that does not depend on them:

    >>> import numpy as np
    >>> import pm_evidence as pe
    >>> data = [[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]]
    >>> rbm = pe.train_rbm(
    ...     data, 1, steps=5, n_updates=3000, learning_rate=0.5, random_seed=1, progressbar=False
    ... )
    >>> bool(rbm.W[0, 0] * rbm.W[1, 0] > 4.0), bool(abs(rbm.W[2, 0]) < 0.5)
    (True, True)
    """
    check_count("n_hidden", n_hidden, 1, _MOST_HIDDEN)
    training = Training(
        algorithm=algorithm,
        steps=steps,
        n_updates=n_updates,
        batch_size=batch_size,
        learning_rate=learning_rate,
        linear_decay=linear_decay,
        weight_decay=weight_decay,
        n_chains=n_chains,
        track=track,
    )
    check_flag("progressbar", progressbar)
    rows = binary_rows(data)
    training.rows(len(rows))
    others = _checked_validation(validation, rows.shape[1], track)
    if start is not None:
        _check_start(start, (rows.shape[1], n_hidden))
    seed: Any = np.random.SeedSequence(resolve_seed(random_seed))
    with counting("Training", training.n_updates, progressbar) as report:
        return train(rows, n_hidden, training, seed, report, start=start, validation=others)


def _checked_validation(
    validation: ArrayLike | None, n_visible: int, track: TrackLogZ | None
) -> NDArray[np.uint8] | None:
    """Return validation data as uint8."""
    if validation is None:
        return None
    if track is None:
        raise ValueError(
            f"validation needs track, got {described(validation)} with track=None; pass "
            "track=pe.TrackLogZ(), by which likelihoods are estimated."
        )
    rows = binary_rows(validation, "validation")
    if rows.shape[1] != n_visible:
        raise ValueError(
            f"validation must have the {n_visible} columns of data, got shape {rows.shape}; pass "
            "rows of the same kind."
        )
    return rows


def _check_start(start: RBM, shape: tuple[int, int]) -> None:
    """Raise an error unless a machine has the right numbers of units."""
    check_kind("start", start, RBM, "pass what pe.train_rbm returned")
    if start.W.shape != shape:
        raise ValueError(
            f"start must have {shape[0]} visible and {shape[1]} hidden units, as data and n_hidden "
            f"say, got {start.W.shape}; change n_hidden, or leave start out."
        )
