"""Integrals over the elements of plates against sums and quadratures that are written out."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln, logit, logsumexp
from scipy.stats import binom, multivariate_normal, norm, poisson, t

import pm_evidence as pe
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.plates import integrals, programs
from pm_evidence.targets.plates.target import PlateTarget
from tests.systems.plates import plates

RNG = np.random.default_rng(5)
GROUP = np.repeat(np.arange(5), 4)
COUNTS = RNG.poisson(np.exp(0.5 + RNG.normal(size=5)[GROUP]))
Y = np.array([-2.2, -1.4, 0.2, 1.9, 2.4, 3.1])


def counts_of_groups(*, heavy: bool = False) -> pm.Model:
    with pm.Model() as model:
        mean, scale = pm.Normal("mean", 0, 1), pm.HalfNormal("scale", 1)
        if heavy:
            effect = pm.StudentT("effect", nu=2, mu=mean, sigma=scale, shape=5)
        else:
            effect = pm.Normal("effect", mean, scale, shape=5)
        pm.Poisson("y", pm.math.exp(effect)[GROUP], observed=COUNTS)
    return model


def log_likelihood(mean: float, scale: float, *, heavy: bool) -> float:
    s = np.linspace(-22.0, 22.0, 100_001)  # equal steps of the area sine reach far tails
    z, log_step = np.sinh(s), np.log(np.cosh(s)) + np.log(s[1] - s[0])
    u = mean + scale * z
    log_prior = t.logpdf(z, 2) if heavy else norm.logpdf(z)
    total = 0.0
    for g in range(5):
        y = COUNTS[g == GROUP]
        log_f = (
            log_prior + y.sum() * u - y.size * np.exp(np.minimum(u, 700.0)) - gammaln(y + 1).sum()
        )
        total += logsumexp(log_f + log_step)
    return total


@pytest.mark.parametrize("heavy", [False, True])
def test_quadrature_and_its_gradient(heavy: bool) -> None:
    target = PlateTarget(counts_of_groups(heavy=heavy))
    x = np.array([[0.2, -0.3], [1.0, 0.7], [-0.5, -4.0]])
    values, gradient = target.differentiable.evaluate(x)
    exact = [log_likelihood(m, np.exp(s), heavy=heavy) for m, s in x]
    np.testing.assert_allclose(values[:, 1], exact, rtol=0, atol=1e-5)
    for k in range(2):
        step = np.zeros(2)
        step[k] = 0.01
        slope = (target.density.values(x + step) - target.density.values(x - step)) / 0.02
        np.testing.assert_allclose(gradient[:, :, k], slope, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("n", [3, 10])
def test_elements_that_are_chosen_by_flags(n: int) -> None:
    """As in ``effect[group == k]`` of a loop, of few turns and of many; an error before."""
    number = np.arange(2 * n) % n
    with pm.Model() as model:
        effect = pm.Normal("effect", 0, 1, shape=2 * n)
        for k in range(n):
            pm.Normal(f"y{k}", effect[number == k], 1, observed=Y[k % 3 : k % 3 + 2])
    found = pe.log_evidence(
        pe.sample_evidence(model, marginalise=True, random_seed=1, progressbar=False)
    )
    exact = sum(norm.logpdf(Y[k % 3 : k % 3 + 2], 0, 2**0.5).sum() for k in range(n))
    assert found.status == "ok" and found.value == pytest.approx(exact, abs=1e-5)


def test_normal_elements_have_a_closed_form() -> None:
    with pm.Model() as model:
        mean, scale = pm.Normal("mean", 0, 1), pm.HalfNormal("scale", 1)
        effect = pm.Normal("effect", mean, scale, shape=6)
        pm.Normal("y", effect, 0.5, observed=Y)
    x = np.array([[0.3, 0.2], [0.1, -12.0], [0.0, 9.0]])
    found = PlateTarget(model).density.values(x)[:, 1]
    spread = np.hypot(np.exp(x[:, 1]), 0.5)[:, None]
    np.testing.assert_allclose(found, norm.logpdf(Y, x[:, :1], spread).sum(axis=1), rtol=1e-10)


DESIGN = np.stack([np.ones(20), RNG.normal(size=20), RNG.normal(size=20)], axis=-1)
MEASURED = RNG.normal(size=20)


def regressions_of_groups() -> pm.Model:
    """An intercept and two slopes for each of five groups."""
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1, shape=3)
        scale = pm.HalfNormal("scale", 1, shape=3)
        effect = pm.Normal("effect", mean, scale, shape=(5, 3))
        noise = pm.HalfNormal("noise", 1)
        pm.Normal("y", (DESIGN * effect[GROUP]).sum(axis=-1), noise, observed=MEASURED)
    return model


def test_normal_elements_of_several_coordinates() -> None:
    target = PlateTarget(regressions_of_groups())
    x = np.array(
        [
            [0.3, -0.2, 0.1, 0.2, -0.4, 0.1, -0.3],
            [0.3, -0.2, 0.1, -12.0, 0.5, 5.0, 1.0],
            [9.0, -0.2, 0.1, 0.2, -0.4, 6.0, -2.0],
        ]
    )
    values, gradient = target.differentiable.evaluate(x)
    for row, value in zip(x, values[:, 1], strict=True):
        mean, variance, noise = row[:3], np.exp(2 * row[3:6]), np.exp(2 * row[6])
        exact = 0.0
        for g in range(5):
            design = DESIGN[g == GROUP]
            covariance = design * variance @ design.T + noise * np.eye(len(design))
            exact += multivariate_normal.logpdf(MEASURED[g == GROUP], design @ mean, covariance)
        assert value == pytest.approx(exact, rel=1e-7)
    for k in range(7):
        step = 1e-4 * np.eye(7)[k]
        slope = (target.density.values(x + step) - target.density.values(x - step)) / 2e-4
        np.testing.assert_allclose(gradient[:, :, k], slope, rtol=1e-4, atol=1e-3)


def test_draws_of_normal_elements_of_several_coordinates() -> None:
    target = PlateTarget(regressions_of_groups())
    row = np.array([0.3, -0.2, 0.1, 0.2, -0.4, 0.1, -0.3])
    n = 20_000
    drawn = target.posterior(row + 1e-9 * np.arange(n)[:, None])["effect"]
    for g in range(5):
        design = DESIGN[g == GROUP]
        precision = design.T @ design / np.exp(2 * row[6]) + np.diag(np.exp(-2 * row[3:6]))
        covariance = np.linalg.inv(precision)
        pull = design.T @ MEASURED[g == GROUP] / np.exp(2 * row[6])
        mean = covariance @ (pull + row[:3] * np.exp(-2 * row[3:6]))
        error = np.sqrt(np.diag(covariance) / n)
        assert (np.abs(drawn[:, g].mean(axis=0) - mean) < 5 * error).all()
        np.testing.assert_allclose(np.cov(drawn[:, g].T), covariance, atol=0.04 * error[0] * n**0.5)


def test_a_density_without_a_maximum_has_no_normal_integral() -> None:
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        effect = pm.Normal("effect", 0, 1, shape=(4, 2))
        pm.Potential("growing", scale * (effect[:, 0] * effect[:, 1]))
    found = PlateTarget(model).density.values(np.log([[0.5], [2.0]]))[:, 1]
    assert found[0] == pytest.approx(-2.0 * np.log(1 - 0.5**2)) and found[1] == -np.inf


@pytest.mark.parametrize(
    ("prior", "ends"),
    [
        (lambda s: pm.Truncated.dist(pm.Normal.dist(0, s), lower=0.2, shape=6), (0.2, 12)),
        (lambda s: pm.NormalMixture.dist([0.5, 0.5], [-2, 2], [s, 0.5], shape=6), (-12, 12)),
        (
            lambda s: pm.Mixture.dist(
                [0.4, 0.6], [pm.Normal.dist(0, s), pm.Laplace.dist(2, 1)], shape=6
            ),
            (-12, 12),
        ),
        (lambda s: pm.Beta.dist(2, 1 + s, shape=6), (0, 1)),
        (lambda s: pm.Uniform.dist(-s, s, shape=6), (-0.8, 0.8)),
    ],
)
def test_priors_of_elements(prior, ends) -> None:
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        effect = model.register_rv(prior(scale), "effect")
        pm.Normal("y", effect, 0.5, observed=Y)
    found = PlateTarget(model).density.values(np.log([[0.8]]))[0, 1]
    edges = np.linspace(*ends, 401)
    node, weight = np.polynomial.legendre.leggauss(8)
    half = np.diff(edges)[:, None] / 2
    grid, weights = (edges[:-1, None] + half * (1 + node)).ravel(), (half * weight).ravel()
    log_prior = pm.logp(prior(0.8), np.tile(grid[:, None], 6)).eval()
    exact = logsumexp(log_prior + norm.logpdf(Y, grid[:, None], 0.5), axis=0, b=weights[:, None])
    assert found == pytest.approx(exact.sum(), abs=1e-4)


def test_sums_over_labels_and_counts() -> None:
    seen = np.array([[3, 2, 4], [45, 61, 33]])  # sums start with 32 terms
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2, shape=2)
        label = pm.Categorical("label", [0.4, 0.6], shape=6)
        pm.Normal("y", mean[label], 1, observed=Y)
        rate = pm.HalfNormal("rate", 50)
        n = pm.Poisson("n", rate, shape=2)
        pm.Binomial("k", n[:, None], 0.4, observed=seen)
    target = PlateTarget(model)
    found = target.density.values(np.array([[-1.0, 2.0, np.log(60.0)]]))[0, 1]
    labels = np.logaddexp(np.log(0.4) + norm.logpdf(Y, -1), np.log(0.6) + norm.logpdf(Y, 2)).sum()
    every = np.arange(400)
    log_f = poisson.logpmf(every, 60.0) + binom.logpmf(seen[:, :, None], every, 0.4).sum(axis=1)
    assert found == pytest.approx(labels + logsumexp(log_f, axis=1).sum(), abs=1e-9)


def test_labels_that_choose_rows() -> None:
    """Latent classes: a person's answers have the probabilities of a row, or of a column."""
    share = np.array([[0.8, 0.7, 0.1], [0.2, 0.4, 0.6]])
    answers = np.random.default_rng(3).integers(0, 2, (5, 3))
    log_f = answers @ np.log(share.T) + (1 - answers) @ np.log1p(-share.T)
    exact = np.logaddexp(np.log(0.4) + log_f[:, 0], np.log(0.6) + log_f[:, 1]).sum()
    first = np.zeros(5, int)
    for form, choose in (
        (share, lambda table, label: table[label]),
        (share.T, lambda table, label: table[:, label].T),
        (share[:, :, None], lambda table, label: table[label, :, first]),
    ):
        with pm.Model() as model:
            table = pm.Beta("table", 1, 1, shape=form.shape)
            label = pm.Categorical("label", [0.4, 0.6], shape=5)
            pm.Bernoulli("y", choose(table, label), observed=answers)
        found = PlateTarget(model).density.values(logit(form).reshape(1, 6))
        assert found[0, 1] == pytest.approx(exact, abs=1e-9)


def test_counts_that_may_be_zero_or_thousands() -> None:
    """Between zero and the mode of a zero-inflated count, densities are too small for a float."""
    seen = np.array([[0, 0, 0], [9, 7, 11]])
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 2000)
        n = pm.ZeroInflatedPoisson("n", 0.6, rate, shape=2)
        pm.Binomial("k", n[:, None], 0.004, observed=seen)
    found = PlateTarget(model).density.values(np.log([[5.0], [800.0], [2000.0]]))[:, 1]
    every = np.arange(8000)[:, None]
    log_f = binom.logpmf(seen, every[..., None], 0.004).sum(axis=2)
    for value, mean in zip(found, (5, 800, 2000), strict=True):
        log_prior = np.log(0.6) + poisson.logpmf(every, mean)
        log_prior = np.logaddexp(log_prior, np.where(every == 0, np.log(0.4), -np.inf))
        assert value == pytest.approx(logsumexp(log_f + log_prior, axis=0).sum(), abs=1e-9)


@pytest.mark.parametrize(
    ("size", "width"),
    [
        pytest.param(2, 1e-4, marks=pytest.mark.slow),
        (4, 2e-3),
        pytest.param(20, 0.02, marks=pytest.mark.slow),
    ],
)
def test_narrow_modes_beside_wide_ones(size: int, width: float) -> None:
    y = 2.82 * np.resize([1, -1, 1.02, 0.98, -1.01, 1.03, -0.97], size)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=size)
        narrow = np.log(0.9) + pm.logp(pm.Normal.dist(theta, width), y)
        wide = np.log(0.1) + pm.logp(pm.Normal.dist(theta, 5.0), y)
        pm.Potential("likelihood", pm.math.logaddexp(narrow, wide).sum())
    dt = pe.sample_evidence(model, random_seed=1, progressbar=False)
    exact = np.logaddexp(
        np.log(0.9) + norm.logpdf(y, 0, np.hypot(1, width)),
        np.log(0.1) + norm.logpdf(y, 0, np.sqrt(26)),
    ).sum()
    found = pe.log_evidence(dt)
    assert (found.status, found.value) == ("ok", pytest.approx(exact, abs=1e-5))
    assert dt["posterior"]["theta"].shape[2:] == (size,)


@pytest.mark.parametrize("most", [16_000_000, 400_000])
def test_draws_of_local_variables(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all points at once, and of some after the other."""
    monkeypatch.setattr(integrals, "_MOST_NUMBERS", most)
    target = PlateTarget(counts_of_groups())
    x = np.tile([0.2, -0.3], (20_000, 1)) + 1e-9 * np.arange(20_000)[:, None]
    drawn = target.posterior(x)["effect"]
    u = 0.2 + np.exp(-0.3) * np.linspace(-10, 10, 4001)
    for g in range(5):
        y = COUNTS[g == GROUP]
        log_f = norm.logpdf(u, 0.2, np.exp(-0.3)) + y.sum() * u - y.size * np.exp(u)
        weight = np.exp(log_f - logsumexp(log_f))
        mean = weight @ u
        spread = np.sqrt(weight @ (u - mean) ** 2)
        assert abs(drawn[:, g].mean() - mean) < 5 * spread / np.sqrt(20_000)
        assert drawn[:, g].std() == pytest.approx(spread, rel=0.025)


def test_a_term_that_is_counted_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = programs._terms_of_plate

    def twice(*arguments):
        graphs, sums = usual(*arguments)
        return [*graphs, graphs[0]], [*sums, sums[0]]

    monkeypatch.setattr(programs, "_terms_of_plate", twice)
    target = PlateTarget(counts_of_groups())
    with pytest.raises(NotBatchedError, match="not independent"):
        target.rules  # noqa: B018


def test_what_cannot_be_integrated_is_refused() -> None:
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mean", 0, 1), 1, observed=[1.0, 2.0])
    with pytest.raises(pe.ModelError, match=r"pe\.structure"):
        pe.sample_evidence(model, marginalise=True, progressbar=False)
    with pytest.raises(ValueError, match="marginalise must be 'auto', True or False"):
        pe.sample_evidence(model, marginalise="yes", progressbar=False)


def test_sums_that_need_too_many_terms_are_not_made() -> None:
    with pm.Model() as model:
        rate = pm.Gamma("rate", 400, 0.02)
        n = pm.Poisson("n", rate, shape=2)
        pm.Binomial("k", n, 0.5, observed=[9_900, 10_100])
    with pytest.raises(NotBatchedError, match="more than 8192 terms"):
        PlateTarget(model).rules  # noqa: B018


@pytest.mark.parametrize(("name", "other"), [("zeros", 3.0), ("successes", 0.5)])
def test_an_element_as_narrow_as_its_rounding_errors_is_not_known(name, other):
    """Its density at the few numbers that there are would be summed to any value.

    The elements of the second system have nodes in common.
    """
    model, _ = plates(name)
    target = target_of(model, marginalise=True, backend="numpy")
    assert target.rules[0].is_common == (name == "successes")
    scale = np.log([1e-3, 1e-10, 1e-14, 1e-30])
    found, _ = target.differentiable.evaluate(np.column_stack([np.full(4, other), scale]))
    limit = found[0, 1]
    assert found[1, 1] == pytest.approx(limit, abs=1e-3)
    assert np.isnan(found[2:, 1]).all()
