"""``train_rbm``: restricted Boltzmann machines trained on binary data."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pm_evidence.core.checks import check_count, check_flag
from pm_evidence.core.random import resolve_seed
from pm_evidence.execution.counter import counting
from pm_evidence.families.rbm.target import RBM
from pm_evidence.families.rbm.training import Training, binary_rows, train

__all__ = ["train_rbm"]

_MOST_HIDDEN = 100_000


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
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> RBM:
    """Train a restricted Boltzmann machine on binary data by contrastive divergence.

    It makes machines on which estimates of log Z can be tried. Neither the learning rate nor the
    number of updates is tuned, and there is no validation.

    Parameters
    ----------
    data : array_like, shape (n_rows, n_visible)
        Observations, of 0 and 1 (booleans or numbers). Grey images must be binarised first: ``x >
        127`` for bytes, or ``rng.random(x.shape) < x / 255``.
    n_hidden : int
        Number of hidden units.
    algorithm : {"cd", "pcd"}
        Contrastive divergence, whose chains start at the rows of each batch, or persistent
        contrastive divergence, whose chains continue from update to update.
    steps : int
        Gibbs steps of each update: the k of CD-k.
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
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same parameters on one machine with one number of BLAS threads.
        Other machines round matrix products differently.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    RBM
        The machine, with ``data`` as its data: reverse paths start from them.

    Raises
    ------
    ValueError
        If ``data`` are not binary, or an option is out of range.
    NumericalError
        If the parameters become infinite because the learning rate is too large.

    Notes
    -----
    Hinton (2002) for contrastive divergence, Tieleman (2008) for persistent chains. The products
    are in single precision. CD does not climb the likelihood: it stops where ``steps`` Gibbs steps
    from the data leave the statistics of the data unchanged.

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
    training = Training(
        algorithm=algorithm,
        steps=steps,
        n_updates=n_updates,
        batch_size=batch_size,
        learning_rate=learning_rate,
        linear_decay=linear_decay,
        weight_decay=weight_decay,
        n_chains=n_chains,
    )
    check_count("n_hidden", n_hidden, 1, _MOST_HIDDEN)
    check_flag("progressbar", progressbar)
    rows = binary_rows(data)
    training.rows(len(rows))
    seed: Any = np.random.SeedSequence(resolve_seed(random_seed))
    with counting("Training", training.n_updates, progressbar) as report:
        return train(rows, n_hidden, training, seed, report)
