"""Strategies of Hypothesis: the inputs that property-based tests are given."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pm_evidence.core.numerics import normalised
from pm_evidence.core.records import BlockRecord, Facts, Role, RunRecord, StageTrace

INF = np.inf

# For the few tests whose property needs random numbers.
seeds = st.integers(0, 2**32 - 1)

# --- numbers and vectors ---


def floats(low, high):
    """Finite numbers of an interval, with both of its ends."""
    return st.floats(low, high, allow_nan=False)


def powers(low, high):
    """Positive numbers from ``10**low`` to ``10**high``, every decade as likely as any other."""
    return st.builds(lambda mantissa, k: mantissa * 10.0**k, floats(1, 10), st.integers(low, high))


def vectors(elements, min_size, max_size, dtype=np.float64):
    """Arrays of one dimension: every entry drawn by itself, or most of them equal."""
    sizes = st.integers(min_size, max_size)
    own = hnp.arrays(dtype, sizes, elements=elements, fill=st.nothing())
    return own | hnp.arrays(dtype, sizes, elements=elements, fill=elements)


def tables(n_rows, elements, min_size=1, max_size=40):
    """Arrays of so many rows of equal length."""
    shapes = st.tuples(st.just(n_rows), st.integers(min_size, max_size))
    return hnp.arrays(np.float64, shapes, elements=elements)


# --- weights and log likelihoods ---


def log_terms(min_size=1, max_size=40, largest=1e6):
    """Log terms of any size, some of which are ``-inf``, at least one of which is not."""
    some = floats(-largest, largest) | floats(-5, 5) | st.just(-INF)
    return vectors(some, min_size, max_size).filter(lambda terms: (terms > -INF).any())


def weights(min_size=1, max_size=40):
    """Weights that sum to one, of which some are zero and others underflow."""
    return log_terms(min_size, max_size).map(normalised)


# --- work ---

# Work and its shifts are multiples of this number of nats: their sums are then exact, so that no
# two values become equal or different by rounding.
GRID = 2.0**-20


def on_grid(low, high):
    """Whole numbers of nats, and parts of them that can be added without rounding."""
    return st.integers(round(low / GRID), round(high / GRID)).map(lambda k: k * GRID)


def works(min_size=1, max_size=50, low=1, high=8, dead=False):
    """Work of some paths in nats; with ``dead``, some may have weight zero, even all of them."""
    elements = on_grid(low, high)
    return vectors(elements | st.just(INF) if dead else elements, min_size, max_size)


def uneven_works(min_size=2, max_size=50, low=4, high=5.5):
    """Work that differs, by less than 2 nats.

    Among values that are further apart there are some of which the estimated error is zero: minus
    the work plus half its square is the same for residuals of 3 and -1 nats.
    """
    return works(min_size, max_size, low, high).filter(lambda work: np.ptp(work) > 0.01)


@st.composite
def bridge_works(draw, min_blocks=1, max_blocks=8):
    """Work of both sides of every block, as `bridge` takes it."""
    n_blocks = draw(st.integers(min_blocks, max_blocks))
    pair = st.tuples(works(1, 20, dead=True), works(1, 8))
    return draw(st.lists(pair, min_size=n_blocks, max_size=n_blocks))


# --- schedules ---


@st.composite
def schedules(draw, max_stages=40, smallest=1e-3):
    """Schedules that rise strictly from 0 to 1, of steps that differ by a factor of 1/smallest."""
    n_stages = draw(st.integers(1, max_stages))
    return schedule_of(draw(steps(n_stages, smallest)))


def steps(n_stages, smallest=1e-3):
    """Steps of a schedule in any unit."""
    elements = floats(smallest, 1) | powers(round(np.log10(smallest)), -1)
    return hnp.arrays(np.float64, n_stages, elements=elements)


def schedule_of(step):
    beta = np.append(0.0, np.cumsum(step)) / np.sum(step)
    beta[-1] = 1.0
    return beta


@st.composite
def trial_runs(draw, max_stages=40, smallest=1e-3):
    """A schedule and the variance of the energy at each of its stages.

    Variances differ by many decades; some are zero, or below it by rounding.
    """
    n_stages = draw(st.integers(1, max_stages))
    elements = powers(-8, 7) | st.sampled_from([0.0, 1.0, -1e-12])
    variance = draw(hnp.arrays(np.float64, n_stages, elements=elements))
    return schedule_of(draw(steps(n_stages, smallest))), variance


# --- records ---


@st.composite
def traces(draw, n_stages):
    """Diagnostics of every stage; some energies are infinite, and their variances NaN."""
    energy = hnp.arrays(np.float64, n_stages, elements=floats(-1e6, 1e6))
    variance = hnp.arrays(np.float64, n_stages, elements=floats(0, 1e6))
    share = hnp.arrays(np.float64, n_stages, elements=floats(0, 1))
    mean, var = draw(energy), draw(variance)
    if draw(st.integers(0, 9)) == 9:
        mean[-1], var[-1] = INF, np.nan
    return StageTrace(mean, var, draw(share), draw(share))


@st.composite
def blocks(draw, index, n_stages, *, island=False, reverse=False, bridged=False, origins=False):
    """One block: an island, or some paths, of which those of a reverse run have finite work.

    A forward block of a single path would be an island. An island may not know the variance of its
    evidence. Its bridge has work of both sides, and that of paths only that of the fitted density.
    """
    fewest, most = (1, 1) if island else (1 if reverse else 2, 6)
    work = draw(works(fewest, most, dead=not reverse))
    variance, end, bridge = np.nan, (np.nan, np.nan), None
    if island:
        variance = draw(floats(0, 0.5) | st.just(np.nan))
        end = draw(st.tuples(floats(-1e6, 1e6), floats(0, 1e6)))
    if bridged:
        other = works(1, 4) if island else st.just(np.empty(0))
        bridge = draw(st.tuples(works(1, 6, dead=True), other))
    group = hnp.arrays(np.int64, work.size, elements=st.integers(0, 9))
    return BlockRecord(
        index,
        work,
        draw(traces(n_stages)),
        relative_variance=variance,
        end=end,
        bridge=bridge,
        origin=draw(group) if origins else None,
        n_evaluations=draw(st.integers(0, 2**40)),
        n_nan=draw(st.integers(0, 5)),
    )


@st.composite
def sides(draw, n_stages, max_blocks=4, **kinds):
    """Blocks of one direction, whose indices rise and may have gaps."""
    indices = draw(st.sets(st.integers(0, 99), min_size=1, max_size=max_blocks))
    return tuple(draw(blocks(index, n_stages, **kinds)) for index in sorted(indices))


# Facts of a run that estimates do not depend on.
facts = st.builds(
    Facts,
    n_evaluations=st.integers(0, 2**60),
    route=st.none() | st.just("importance"),
    tuning_time=st.none() | floats(0, 1e6) | st.just(np.inf),
    shared=st.none() | st.just(["x", "y"]),
    centring=st.none() | st.just({"theta": 0.25}),
)


@st.composite
def run_records(draw, kind=None):
    """Runs of ``islands``, of paths ``forward``, or of paths in ``both`` directions.

    Those of both directions may have islands that their reverse paths start from. A density is
    fitted for all blocks or for none, and in both directions only if there are islands.
    """
    kind = kind or draw(st.sampled_from(["islands", "forward", "both"]))
    beta = draw(schedules(max_stages=5))
    n_stages, bridged = beta.size - 1, draw(st.booleans())
    alone = kind == "islands"
    forward = draw(sides(n_stages, island=alone, bridged=bridged and kind != "both"))
    reverse = islands = ()
    if kind == "both":
        reverse = draw(sides(n_stages, reverse=True, origins=draw(st.booleans())))
        if draw(st.booleans()):
            islands = draw(sides(draw(st.integers(1, 3)), island=True, bridged=bridged))
    settings = {"scale": draw(hnp.arrays(np.float64, n_stages, elements=floats(0, 10)))}
    method = "smc" if alone else "ais"
    blocks = {Role.FORWARD: forward, Role.REVERSE: reverse, Role.ISLAND: islands}
    made = {role: part for role, part in blocks.items() if part}
    return RunRecord(method, beta, made, settings, draw(facts))
