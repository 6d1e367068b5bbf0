"""Every exact value against an integral of the model's own density, which shares no code with it.

If one of these fails, every accuracy claim that rests on the exact systems is void.
"""

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from scipy import stats
from scipy.special import gammaln, logsumexp

from pm_evidence import testing
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.testing import ExactSystem, gaussian
from pm_evidence.testing.systems import log_integral
from tests.systems.exact import exact_systems

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

SYSTEMS = exact_systems()
CHUNK = 100_000  # points evaluated at once: bounds the memory of the three-dimensional grids


# --- the independent reference: sums, grids and exact Gaussian integrals of exp(model.logp()) ---


@dataclass(frozen=True)
class Density:
    """``model.logp()`` as a function of many points at once."""

    compiled: Callable[..., np.ndarray]
    shapes: tuple[tuple[int, ...], ...]
    is_discrete: tuple[bool, ...]

    @property
    def n_continuous(self) -> int:
        return self._count(False)

    @property
    def n_discrete(self) -> int:
        return self._count(True)

    def _count(self, discrete: bool) -> int:
        pairs = zip(self.shapes, self.is_discrete, strict=True)
        return sum(math.prod(shape) for shape, kind in pairs if kind == discrete)

    def __call__(self, continuous: np.ndarray, discrete: np.ndarray) -> np.ndarray:
        """Rows of ``continuous`` (n, n_continuous) and ``discrete`` (n, n_discrete)."""
        n_rows = len(continuous)
        parts = [
            self._evaluate(continuous[start : start + CHUNK], discrete[start : start + CHUNK])
            for start in range(0, n_rows, CHUNK)
        ]
        return np.concatenate(parts)

    def _evaluate(self, continuous: np.ndarray, discrete: np.ndarray) -> np.ndarray:
        taken, arguments = {False: 0, True: 0}, []
        for shape, kind in zip(self.shapes, self.is_discrete, strict=True):
            start, source = taken[kind], discrete if kind else continuous
            taken[kind] = start + math.prod(shape)
            arguments.append(source[:, start : taken[kind]].reshape(len(source), *shape))
        with np.errstate(all="ignore"):  # log(0) in corners of the grids
            return np.broadcast_to(self.compiled(*arguments), len(continuous))


@cache
def model_of(name: str) -> pm.Model:
    return SYSTEMS[name].build()


@cache
def density_of(name: str) -> Density:
    model = model_of(name)
    point = model.initial_point()
    rows = [
        pt.tensor(value.name, dtype=value.dtype, shape=(None, *point[value.name].shape))
        for value in model.value_vars
    ]
    # sum=True adds up every term, potentials included
    batched = vectorize_graph(model.logp(), dict(zip(model.value_vars, rows, strict=True)))
    compiled = pytensor.function(rows, batched, mode="FAST_COMPILE", on_unused_input="ignore")
    return Density(
        compiled,
        tuple(point[value.name].shape for value in model.value_vars),
        tuple(value.dtype.startswith("int") for value in model.value_vars),
    )


@dataclass(frozen=True)
class Plan:
    """How to integrate a system.

    ``grid`` holds bounds for those continuous coordinates (of the unconstrained space) that need
    quadrature; in the others the log density must be quadratic, and is integrated exactly.
    Those in ``stretched`` are logs of gaps, see ``stretch``; their bounds are those of ``t``.
    ``support`` holds the values of each discrete coordinate. ``centres`` are points about each of
    which the density is Gaussian, when there are several.
    """

    grid: dict[int, tuple[float, float]] = field(default_factory=dict)
    support: tuple[range, ...] = ()
    stretched: tuple[int, ...] = ()
    n_nodes: int | tuple[int, ...] = 160  # per coordinate of the grid
    centres: tuple[float, ...] = (0.0,)
    step: float = 1.0


def product_rule(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Trapezoidal nodes (n, n_grid) and log weights (n,), spectral where the integrand vanishes
    at both ends or is periodic."""
    if not plan.grid:
        return np.zeros((1, 0)), np.zeros(1)
    axes, log_weights = [], []
    sizes = np.broadcast_to(plan.n_nodes, len(plan.grid))
    for (i, (lower, upper)), size in zip(plan.grid.items(), sizes, strict=True):
        nodes, spacing = np.linspace(lower, upper, size, retstep=True)
        weights = np.full(size, math.log(spacing))
        weights[[0, -1]] -= math.log(2)
        if i in plan.stretched:
            nodes, weights = stretch(nodes, weights)
        axes.append(nodes)
        log_weights.append(weights)
    points = np.array(np.meshgrid(*axes, indexing="ij")).reshape(len(axes), -1).T
    total = np.array(np.meshgrid(*log_weights, indexing="ij")).reshape(len(axes), -1).sum(axis=0)
    return points, total


def stretch(t: np.ndarray, log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Substitute ``log(softplus(t))``: even steps of a gap where wide, of its log where narrow."""
    softplus = np.logaddexp(0, t)
    return np.log(softplus), log_weights - np.logaddexp(0, -t) - np.log(softplus)


def log_gaussian_integral(evaluate, centre: np.ndarray, step: float) -> np.ndarray:
    """Integrate a batch of functions whose log is quadratic, exactly, from finite differences.

    ``evaluate`` takes one point (d,) and returns the batch (n,).
    """
    d = centre.size
    if d == 0:
        return evaluate(centre)
    unit = step * np.eye(d)
    middle = evaluate(centre)
    up = np.array([evaluate(centre + e) for e in unit])
    down = np.array([evaluate(centre - e) for e in unit])
    gradient = ((up - down) / (2 * step)).T
    precision = np.empty((middle.size, d, d))
    for i, j in product(range(d), repeat=2):
        if i == j:
            precision[:, i, i] = -(up[i] - 2 * middle + down[i]) / step**2
        elif i < j:
            both = evaluate(centre + unit[i] + unit[j])
            mixed = -(both - up[i] - up[j] + middle) / step**2
            precision[:, i, j] = precision[:, j, i] = mixed
    # One more point: is it quadratic at all?
    probe = step * np.linspace(-0.9, 0.7, d)
    predicted = middle + gradient @ probe - 0.5 * np.einsum("i,nij,j->n", probe, precision, probe)
    actual = evaluate(centre + probe)
    np.testing.assert_allclose(predicted, actual, rtol=1e-9, atol=1e-7)
    shift = np.linalg.solve(precision, gradient[..., None])[..., 0]
    sign, log_det = np.linalg.slogdet(precision)
    assert np.all(sign > 0)
    return middle + 0.5 * ((gradient * shift).sum(axis=1) + d * np.log(2 * np.pi) - log_det)


def integrate(density: Density, plan: Plan) -> float:
    """Log of the sum and integral of the density over everything, in nats."""
    points, log_weights = product_rule(plan)
    states = np.array(list(product(*plan.support)), dtype=np.int64)
    assert len(plan.support) == density.n_discrete, "one support for each discrete coordinate"
    on_grid = np.array(list(plan.grid), dtype=int)
    quadratic = np.setdiff1d(np.arange(density.n_continuous), on_grid)
    rows = np.zeros((len(states) * len(points), density.n_continuous))
    rows[:, on_grid] = np.tile(points, (len(states), 1))
    discrete = np.repeat(states, len(points), axis=0)

    def evaluate(inner: np.ndarray) -> np.ndarray:
        rows[:, quadratic] = inner
        return density(rows, discrete)

    peaks = [
        log_gaussian_integral(evaluate, np.full(quadratic.size, centre), plan.step)
        for centre in plan.centres
    ]
    return float(logsumexp(np.array(peaks) + np.tile(log_weights, len(states))))


def _observed(model: pm.Model) -> np.ndarray:
    return model.rvs_to_values[model["y"]].data


def check(system: ExactSystem, numerical: float) -> None:
    """The one criterion: 1e-6 nats, after restoring the normalisation of a cut prior."""
    np.testing.assert_allclose(
        numerical - system.log_prior_mass, system.log_evidence, atol=1e-6, rtol=0
    )


LOGIT_OF_MAXIMUM = math.log(3.6 / 6.4)  # where "uniform_width" jumps: its largest datum of 10
BINARY, TERNARY = range(2), range(3)
PLANS = {
    "normal_mean": Plan({0: (-8, 8)}),
    "gamma_poisson": Plan({0: (-3, 3.5)}),
    "beta_binomial": Plan({0: (-4, 6)}),
    "dirichlet_multinomial": Plan({0: (-14, 14), 1: (-14, 14)}),
    "normal_inverse_gamma": Plan({0: (-5, 5)}),
    "radiata_pine_like": Plan({0: (-16, -7)}),
    "mvnormal_mean": Plan(),
    "gaussian_2": Plan({0: (-8, 8), 1: (-8, 8)}, n_nodes=640),
    "gaussian_10": Plan(),
    "correlated_gaussian_50": Plan(),
    "random_walk": Plan(),
    "uniform_interval": Plan({0: (-30, 35)}, n_nodes=800),
    "uniform_width": Plan({0: (LOGIT_OF_MAXIMUM + 1e-13, 35)}, n_nodes=400_000),
    "half_cauchy_scale": Plan({0: (-5, 12)}),
    "von_mises": Plan({0: (-math.pi, math.pi)}),  # one period: the whole line would diverge
    "interval_cut_normal": Plan({0: (-35, 35)}, n_nodes=800),
    "truncated_normal": Plan({0: (-30, 3)}, n_nodes=800),
    "lkj_correlation": Plan({0: (-20, 20)}, n_nodes=640),
    "lkj_covariance": Plan({0: (-3, 2), 1: (-5, 5), 2: (-3, 2)}, n_nodes=(28, 80, 36)),
    "zero_sum": Plan(),
    "ordered_two": Plan({0: (-14, 12), 1: (-18, 24)}, stretched=(1,)),
    "ordered_three": Plan(
        {0: (-14, 5), 1: (-16, 14), 2: (-16, 14)}, stretched=(1, 2), n_nodes=(40, 56, 56)
    ),
    "ordered_unequal": Plan({0: (-14, 12), 1: (-18, 24)}, stretched=(1,)),
    "student_t_prior": Plan({0: (4, 13)}),
    "student_t_likelihood": Plan({0: (-60, 60)}, n_nodes=800),
    "eight_schools_half_cauchy_noncentred": Plan({1: (-25, 8)}, n_nodes=320),
    "eight_schools_half_normal_noncentred": Plan({1: (-25, 5)}, n_nodes=320),
    "eight_schools_pooled": Plan(),
    "funnel": Plan({0: (-24, 24)}),
    "bimodal": Plan({0: (-20, 20)}, n_nodes=320),
    "square": Plan({0: (-20, 20)}, n_nodes=640),
    "bimodal_10": Plan(centres=(-3.0, 3.0), step=0.1),
    "label_switching": Plan({0: (-12, 12), 1: (-12, 12)}),
    "potential_and_data": Plan({0: (-8, 8)}),
    "sprinkler": Plan(support=(BINARY,) * 2),
    "category": Plan(support=(TERNARY,)),
    "ising_chain": Plan(support=(BINARY,) * 10),
    "hidden_markov": Plan(support=(TERNARY,) * 6),
    "poisson_captures": Plan(support=(range(80),)),
    "spike_and_slab": Plan(support=(BINARY,) * 3),
    "change_point": Plan({0: (-8, 4), 1: (-8, 4)}, support=(range(1, 12),), n_nodes=96),
    "dirichlet_mixture": Plan({0: (-12, 12), 1: (-12, 12)}, support=(TERNARY,) * 3, n_nodes=56),
    "missing_normal": Plan(),
    "missing_poisson": Plan({0: (-5, 3.5)}, support=(range(60),) * 2, n_nodes=64),
    "no_free_variable": Plan(),
    "observed_parent": Plan({0: (-5, 10)}),
    "initval": Plan({0: (-8, 8)}),
    "data_container": Plan(),
}
LONG = {
    "dirichlet_mixture",
    "dirichlet_multinomial",
    "label_switching",
    "lkj_correlation",
    "lkj_covariance",
    "ordered_three",
    "ordered_two",
    "ordered_unequal",
}
OWN_TEST = {
    "eight_schools_half_cauchy_centred",
    "eight_schools_half_normal_centred",
    "gaussian_shells",
    "phase_transition",
    "student_t_groups",
}


def test_every_system_is_integrated():
    """A new system without a plan would claim exactness that nobody has checked."""
    assert PLANS.keys() | OWN_TEST == SYSTEMS.keys()
    assert not PLANS.keys() & OWN_TEST


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else []) for n in PLANS]
)
def test_exact_value_is_the_integral_of_the_model(name):
    check(SYSTEMS[name], integrate(density_of(name), PLANS[name]))


@pytest.mark.parametrize("scale_prior", ["half_cauchy", "half_normal"])
def test_centred_schools_are_the_noncentred_ones_in_other_coordinates(scale_prior):
    """The integral over theta is ill-conditioned at small tau; the change of variables is not."""
    centred = SYSTEMS[f"eight_schools_{scale_prior}_centred"]
    noncentred = SYSTEMS[f"eight_schools_{scale_prior}_noncentred"]
    points = np.random.default_rng(8).normal(size=(50, 10))
    moved, none = points.copy(), np.empty((50, 0), dtype=int)
    moved[:, 2:] = points[:, :1] + np.exp(points[:, 1:2]) * points[:, 2:]
    log_jacobian = 8 * points[:, 1]
    np.testing.assert_allclose(
        density_of(centred.name)(moved, none) + log_jacobian,
        density_of(noncentred.name)(points, none),
        rtol=1e-10,
    )
    assert centred.log_evidence == noncentred.log_evidence


def test_literature_values():
    """Eight schools to four decimals, as the project states them."""
    for name, value in {
        "eight_schools_half_cauchy_centred": -31.3113,
        "eight_schools_half_normal_centred": -31.0362,
        "eight_schools_pooled": -30.8442,
    }.items():
        assert round(SYSTEMS[name].log_evidence, 4) == value


def test_student_t_groups_by_conditional_independence():
    """Given the mean the effects are independent: five one-dimensional grids, not one of five."""
    density, n_groups = density_of("student_t_groups"), 5
    mean, mean_weight = product_rule(Plan({0: (-40, 40)}, n_nodes=400))
    effect, effect_weight = product_rule(Plan({0: (-16, 26)}, n_nodes=800))
    rows = np.zeros((len(mean) * len(effect), 1 + n_groups))
    rows[:, 0] = np.repeat(mean[:, 0], len(effect))
    none = np.empty((len(rows), 0), dtype=int)
    base = density(rows, none).reshape(len(mean), -1)[:, 0]  # all effects at zero
    total = base + mean_weight
    for group in range(1, n_groups + 1):
        rows[:, 1:] = 0
        rows[:, group] = np.tile(effect[:, 0], len(mean))
        values = density(rows, none).reshape(len(mean), -1)
        total = total + logsumexp(values + effect_weight, axis=1) - base
    check(SYSTEMS["student_t_groups"], float(logsumexp(total)))


def test_phase_transition_by_its_radius():
    """The density depends on the distance alone: one integral over spherical shells."""
    density, d = density_of("phase_transition"), 10
    direction = np.random.default_rng(6).normal(size=(2, d))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    radius, log_weight = product_rule(Plan({0: (1e-6, 12)}, n_nodes=3200))
    none = np.empty((len(radius), 0), dtype=int)
    values = [density(radius * unit, none) for unit in direction]
    np.testing.assert_allclose(*values, rtol=1e-10)
    log_sphere = np.log(2) + 0.5 * d * np.log(np.pi) - gammaln(d / 2)
    shells = values[0] + log_sphere + (d - 1) * np.log(radius[:, 0]) + log_weight
    check(SYSTEMS["phase_transition"], float(logsumexp(shells)))


@pytest.mark.slow
def test_gaussian_shells_about_their_axis():
    """The density depends on the position along one axis and the distance from it."""
    (x, along), (rho, across) = (
        (nodes[:, 0], weights)
        for nodes, weights in (
            product_rule(Plan({0: (-5.9, 5.9)}, n_nodes=1601)),
            product_rule(Plan({0: (1e-9, 3.0)}, n_nodes=801)),
        )
    )
    points = np.zeros((x.size, rho.size, 5))
    points[..., 0], points[..., 1] = x[:, None], rho
    logit = np.log(points + 6.0) - np.log(6.0 - points)
    jacobian = (np.log(points + 6.0) + np.log(6.0 - points) - math.log(12.0)).sum(axis=-1)
    flat = logit.reshape(-1, 5)
    values = density_of("gaussian_shells")(flat, np.empty((len(flat), 0), dtype=int))
    log_sphere = math.log(2) + 2.0 * math.log(math.pi) - gammaln(2.0)
    terms = values.reshape(jacobian.shape) - jacobian + log_sphere + 3.0 * np.log(rho)
    check(SYSTEMS["gaussian_shells"], float(logsumexp(terms + along[:, None] + across)))


# --- the checks above catch errors ---


@pytest.mark.parametrize("name", ["normal_mean", "hidden_markov", "spike_and_slab", "random_walk"])
def test_planted_wrong_value_is_caught(name):
    numerical = integrate(density_of(name), PLANS[name])
    for error in (1e-5, -1e-5, math.log(2)):
        system = replace(SYSTEMS[name], log_evidence=SYSTEMS[name].log_evidence + error)
        with pytest.raises(AssertionError):
            check(system, numerical)


@pytest.mark.parametrize(
    "name", [pytest.param("ordered_two", marks=pytest.mark.slow), "interval_cut_normal"]
)
def test_forgotten_renormalisation_is_caught(name):
    system = replace(SYSTEMS[name], log_prior_mass=0.0)
    with pytest.raises(AssertionError):
        check(system, integrate(density_of(name), PLANS[name]))


def test_planted_wrong_model_is_caught():
    """A builder that drifts from its formula: here the data are shifted."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, np.float64(2.0))
        pm.Normal("y", mu, 1, observed=np.array([1.2, 0.4, 2.1, 1.7, 0.9]) + 0.001)
    log_density = model.compile_logp(mode="FAST_COMPILE")
    density = Density(
        lambda mu: np.array([log_density({"mu": value}) for value in mu]), ((),), (False,)
    )
    with pytest.raises(AssertionError):
        check(SYSTEMS["normal_mean"], integrate(density, Plan()))


def test_gaussian_integral_refuses_what_is_not_gaussian():
    with pytest.raises(AssertionError):
        integrate(density_of("student_t_prior"), Plan())


# --- the registry ---


def test_the_package_has_a_handful_of_them():
    found = testing.exact_systems()
    assert len(found) >= 10 and found.items() <= SYSTEMS.items()
    found.clear()  # a copy: callers cannot spoil the registry
    assert testing.exact_systems()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else []) for n in SYSTEMS]
)
def test_models_can_be_sent_and_started(name):
    """A sampler that starts where PyMC would must be able to; process pools send builders."""
    model, density = model_of(name), density_of(name)
    values = [np.asarray(value)[None] for value in model.initial_point().values()]
    assert np.isfinite(density.compiled(*values)).all()
    assert not SYSTEMS[name].smooth or density.n_discrete == 0
    assert callable(pickle.loads(pickle.dumps(SYSTEMS[name].build)))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="log_evidence of 'normal_mean' must be finite, got nan"):
        replace(SYSTEMS["normal_mean"], log_evidence=math.nan)
    with pytest.raises(ValueError, match="n_dims"):
        gaussian(0)
    with pytest.raises(ValueError, match="noise"):
        gaussian(2, noise=0.0)


@pytest.mark.parametrize("n_dims", [1, 10, 300])
def test_gaussian_of_any_size(n_dims):
    """The scaling benchmark divides by this number."""
    system = gaussian(n_dims, noise=0.3)
    y = _observed(system.build())
    cov = (1 + 0.3**2) * np.eye(n_dims)
    expected = stats.multivariate_normal.logpdf(y, np.zeros(n_dims), cov)
    np.testing.assert_allclose(system.log_evidence, expected, rtol=1e-10)


# --- the quadrature behind some of the exact values ---


def test_quadrature_in_three_dimensions():
    value = log_integral(lambda x, y, z: -0.5 * (x**2 + y**2 + z**2), *[(-9.0, 9.0)] * 3)
    np.testing.assert_allclose(value, 1.5 * np.log(2 * np.pi), atol=1e-10, rtol=0)


def test_quadrature_refuses_a_jump():
    """A wrong number with no warning is the one thing it must not return."""
    with pytest.raises(NumericalError, match="smooth"):
        log_integral(lambda x: np.where(x < 1 / np.pi, 0.0, -np.inf), (0.0, 1.0))
