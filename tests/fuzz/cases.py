"""Calls of every public name, each with one argument, or two, that somebody gave by mistake."""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import pymc as pm
from matplotlib import pyplot as plt

import pm_evidence as pe
from pm_evidence import estimators
from tests.fuzz.values import VALUES, broken_trees, kernels
from tests.posteriors import posterior_tree

__all__ = ["Call", "calls", "covered", "pairs"]

WORK = np.linspace(1.0, 2.0, 20)
BOTH = {"work_forward": WORK, "work_reverse": WORK - 1.0}
LADDER = np.linspace(0.0, 1.0, 3)
ON_LADDER = {"beta": LADDER, "energy": WORK, "rung": np.arange(20) % 3}
WEIGHTED = {"beta": LADDER, "energy": WORK, "log_z": np.zeros(3)}
ROUNDS = {"beta": LADDER, "rounds": [(WORK, np.zeros(3))] * 2}
TABLE = {"potential": np.stack([WORK, WORK + 1.0]), "counts": [10, 10]}
EVIDENCE = VALUES["evidence"]
PLOT = {"backend": "none"}


@dataclass(frozen=True)
class Call:
    """A call with wrong arguments.

    Parameters
    ----------
    name : str
        What is called.
    function : callable
        What does it.
    arguments : mapping
        All arguments.
    wrong : mapping of str to str
        Which of them are wrong, and how.
    """

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(repr=False)
    wrong: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}: {what}' for key, what in self.wrong.items())})"


def state_space(**arguments):
    """``pe.StateSpace`` in a model of its own."""
    with pm.Model(coords={"time": range(5)}):
        return pe.StateSpace(**arguments)


def random_effects(**arguments):
    """``pe.RandomEffects`` in a model of its own."""
    with pm.Model(coords={"time": range(5)}):
        return pe.RandomEffects(**arguments)


def sample(target=None, *, method="auto", draws=40, **options):
    """A run that is over in an instant where nothing is wrong with it."""
    if isinstance(method, str):
        methods = {"auto": pe.methods.AIS(n_stages=10), "smc": pe.methods.SMC(islands=2)}
        method = methods.get(method, method)
    return pe.sample_evidence(
        pe.mixtures.Gaussian() if target is None else target,
        method=method,
        draws=draws,
        target_mcse=options.pop("target_mcse", None),
        **{"random_seed": 1, "progressbar": False, "cores": 1, **options},
    )


def sample_from(target, reverse_start):
    """A short run whose reverse paths start from what is given."""
    return sample(target, method=pe.methods.AIS(n_stages=3, reverse_start=reverse_start), draws=10)


@cache
def model():
    """Two continuous coordinates, one of bounds 0 to 2 and one without an upper bound."""
    with pm.Model() as built:
        x = pm.Normal("x", 0.0, 1.0, shape=2)
        k = pm.Categorical("k", p=np.full(3, 1.0 / 3.0))
        n = pm.Poisson("n", 2.0)
        pm.Normal("y", x.sum() + k + n, 1.0, observed=[3.0, 4.0])
    return built


@cache
def result():
    """A stored result with work of both directions."""
    return sample(method=pe.methods.AIS(n_stages=5))


@cache
def tempered_result():
    """A stored result of parallel tempering."""
    method = pe.methods.ParallelTempering(n_temperatures=4, ladders=4)
    return sample(method=method, schedule="linear", draws=20)


def walk():
    """A random walk that is observed with noise."""
    with pm.Model() as built:
        step = pm.HalfNormal("step", 1.0)
        pe.StateSpace(
            "y",
            init=lambda: pm.Normal.dist(0.0, 1.0),
            transition=lambda h, t: pm.Normal.dist(h, step),
            emission=lambda h, t: pm.Normal.dist(h, 1.0),
            observed=[0.1, 0.4, 0.9, 1.1],
            n_particles=4,
        )
    return built


@cache
def estimated():
    """A model whose likelihood is estimated."""
    return walk()


@cache
def of_estimated():
    """A result for it."""
    return sample(estimated(), method=pe.methods.AISEL(islands=2, chain_length=1), draws=16)


@cache
def conjugate():
    """A model with a normal posterior."""
    with pm.Model() as built:
        pm.Normal("y", pm.Normal("x", 0.0, 1.0), 1.0, observed=[0.5, 1.5])
    return built


@cache
def posterior():
    """Exact draws from its posterior."""
    draws = np.random.default_rng(1).normal(2 / 3, 3**-0.5, (4, 250))
    return posterior_tree(conjugate(), {"x": draws})


@cache
def of_model():
    """A short result of that model."""
    return sample(conjugate(), method=pe.methods.SMC(islands=2), draws=80)


@cache
def of_data():
    """A short result of that model, whose data are added one after the other."""
    path = pe.paths.DataPoints(order="given", batches=1)
    method = pe.methods.ResampleMove(islands=2)
    return sample(conjugate(), method=method, path=path, draws=80, target_mcse=None)


@cache
def comparison():
    """A table of two evidences."""
    return pe.compare({"a": EVIDENCE, "b": EVIDENCE})


def of_models():
    """Results of two models."""
    return {"a": of_model(), "b": of_model()}


def factor_of_models(**options):
    """``pe.bayes_factor`` of two models, of the first of which posterior draws are there."""
    given = (posterior(), None) if options["idata"] is None else options["idata"]
    return pe.bayes_factor(conjugate(), wider(), **{**options, "idata": given})


@cache
def wider():
    """The model of these draws with a wider prior."""
    with pm.Model() as built:
        pm.Normal("y", pm.Normal("x", 0.0, 2.0), 1.0, observed=[0.5, 1.5])
    return built


@cache
def both_results():
    """Stored results of two models."""
    return {"a": result(), "b": result()}


def constants():
    """Two models without free variables."""
    models = {}
    for name, mean in {"a": 0.0, "b": 1.0}.items():
        with pm.Model() as models[name]:
            pm.Normal("y", mean, 1.0, observed=[0.0, 0.0])
    return models


SENSITIVITY = {"new_runs": "never", "target_mcse": 0.1, "random_seed": 1, "progressbar": False}


@cache
def calibration():
    """What is found of models without free variables, which have nothing to sample."""
    return pe.calibrate(constants(), 20, random_seed=1, progressbar=False)


@cache
def priors_table():
    """A table of other priors, by reweighting alone."""
    return pe.prior_sensitivity(conjugate(), {"x": [0.5]}, result=of_model(), **SENSITIVITY)


def plot_samples(**options):
    """``pe.plot_samples``, whose figure is closed; another backend cannot draw it."""
    plt.switch_backend("agg")
    try:
        return pe.plot_samples(**options)
    finally:
        plt.close("all")


MACHINE = pe.rbm.RBM(np.ones((3, 2)), np.zeros(3), np.zeros(2), base="uniform")


def of(function, **given):
    """Return a function with good arguments: those that are given, and its defaults."""
    parameters = inspect.signature(function).parameters.values()
    return function, {p.name: p.default for p in parameters if p.default is not p.empty} | given


_OF_BOTH = [estimators.bar, estimators.cumulant, estimators.histogram, estimators.work_density]
_OF_WORK = [
    *(estimators.cumulant_forward, estimators.cumulant_reverse, estimators.effective_sample_size),
    *(estimators.importance, estimators.jarzynski, estimators.jarzynski_reverse),
    *(estimators.lower_bound, estimators.upper_bound),
]
_OF_LADDER = [
    *(estimators.chained_bar, estimators.mbar, estimators.mbar_curve),
    *(estimators.stepping_stone, estimators.ti),
]
_OF_WEIGHTED = [estimators.rts, estimators.rts_curve, estimators.ti_rb]
# What is called, and good arguments for all that may be wrong.
# fmt: off
GOOD = {
    **{each.__name__: of(each) for each in (
        pe.methods.AIS, pe.methods.AISEL, pe.methods.ARM, pe.methods.ParallelTempering,
        pe.methods.ResampleMove, pe.methods.SMC, pe.methods.SimulatedTempering,
        pe.schedules.GMS13, pe.schedules.VarOpt, pe.paths.DataPoints, pe.kernels.HMC,
        pe.kernels.PseudoMarginal, pe.kernels.RandomWalk, pe.mixtures.Gaussian, pe.lattices.Ising,
        pe.lattices.Potts, pe.rbm.TrackLogZ,
    )},
    "Cycle": of(pe.kernels.Cycle, parts=(pe.kernels.HMC(),)),
    "DiscreteGibbs": of(pe.kernels.DiscreteGibbs, coordinates=[0], lower=[0], upper=[1]),
    "IntegerWalk": of(pe.kernels.IntegerWalk, coordinates=[0], spread=[1.0]),
    "GPClassification": of(
        pe.gp.GPClassification, inputs=np.array([0.0, 1.0, 3.0]), labels=np.array([0, 1, 1]),
    ),
    "GaussianMixture": of(
        pe.mixtures.GaussianMixture, y=np.array([1.0, 2.0, 4.0]), n_components=2, mean_mu=0.0,
        mean_sigma=1.0, variance_alpha=2.0, variance_beta=1.0,
    ),
    "DetouredPath": of(pe.paths.DetouredPath, target=pe.lattices.Ising(4)),
    "RBM": of(
        pe.rbm.RBM, W=np.ones((3, 2)), visible_bias=np.zeros(3), hidden_bias=np.zeros(2),
        data=np.eye(3),
    ),
    "MomentAveragedPath": of(pe.paths.MomentAveragedPath, target=MACHINE, n_knots=2, n_updates=3),
    "UnitByUnitPath": of(pe.paths.UnitByUnitPath, target=MACHINE, n_sweeps=2),
    "RBM.free_energy": of(MACHINE.free_energy, visible=np.eye(3)),
    "RBM.hidden_probabilities": of(MACHINE.hidden_probabilities, visible=np.eye(3)),
    "RBM.visible_probabilities": of(MACHINE.visible_probabilities, hidden=np.eye(2)),
    "RBM.log_likelihood": of(
        MACHINE.log_likelihood, visible=np.eye(3), log_z=pe.LogEvidence(1.0, 0.1, "bar")
    ),
    "Gaussian.check": of(pe.mixtures.Gaussian().check, draws=WORK),
    "Ising.energy": of(pe.lattices.Ising(4).energy, draws=np.ones((2, 4, 4))),
    "Potts.energy": of(pe.lattices.Potts(4, q=3).energy, draws=np.ones((2, 4, 4))),
    "LogEvidence": of(
        pe.LogEvidence, value=-1.0, mcse=0.1, estimator="bar", lower=-1.2, upper=-0.8
    ),
    "StateSpace": (state_space, {
        "name": "y", "init": lambda: pm.Normal.dist(0.0, 1.0),
        "transition": lambda h, t: pm.Normal.dist(h, 1.0),
        "emission": lambda h, t: pm.Normal.dist(h, 1.0), "observed": np.linspace(-1.0, 1.0, 5),
        "n_particles": 10, "filter": "bootstrap", "proposal": None, "init_proposal": None,
        "look_ahead": None, "resampling": "systematic", "ess": 0.5, "dims": None, "model": None,
    }),
    "RandomEffects": (random_effects, {
        "name": "y", "effects": lambda: pm.Normal.dist(0.0, 1.0),
        "emission": lambda u, i: pm.Normal.dist(u, 1.0), "groups": [0, 0, 1, 1, 1],
        "observed": np.linspace(-1.0, 1.0, 5), "n_particles": 10, "draws": "quasi", "dims": None,
        "model": None,
    }),
    "sample_evidence": (sample, {
        "target": None, "method": "auto", "draws": 40, "schedule": "adaptive", "kernel": "auto",
        "reference": "prior", "potentials": "likelihood", "cores": 1, "executor": None,
        "checkpoint": None, "target_mcse": None, "max_time": None, "max_draws": None,
        "random_seed": 1, "idata_kwargs": None, "compile_kwargs": None,
    }),
    "structure": (pe.structure, {"model": model}),
    "simulate_and_certify": (pe.simulate_and_certify, {
        "target": model, "draws": 20, "n_stages": 3, "kernel": "auto", "cores": 1,
        "executor": None, "random_seed": 1, "progressbar": False,
    }),
    "compare": of(pe.compare, models={"a": EVIDENCE, "b": EVIDENCE}),
    "average_models": of(pe.average_models, models=of_models, draws=8, random_seed=1),
    "prior_sensitivity": (pe.prior_sensitivity, {
        "model": conjugate, "priors": {"x": [0.5]}, "result": of_model, **SENSITIVITY,
        "sample_kwargs": None,
    }),
    "calibrate": (pe.calibrate, {
        "models": constants, "n": 20, "prior_probs": None, "simulators": None, "target_mcse": 0.1,
        "cores": 1, "random_seed": 1, "progressbar": False,
    }),
    "format_table": of(pe.format_table, table=pe.compare({"a": EVIDENCE, "b": EVIDENCE})),
    "bayes_factor": (pe.bayes_factor, {"dt1": EVIDENCE, "dt2": EVIDENCE}),
    "bayes_factor.models": (factor_of_models, {
        "idata": None, "target_mcse": 0.1, "cores": 1, "executor": None, "random_seed": 1,
        "progressbar": False, "compile_kwargs": None,
    }),
    "bayes_factor.point": (pe.bayes_factor, {
        "dt1": posterior, "model": conjugate, "point": {"x": 0.5}, "target_mcse": 0.1,
        "random_seed": 1, "progressbar": False,
    }),
    "bayes_factor.constraint": (pe.bayes_factor, {
        "dt1": posterior, "model": conjugate, "constraint": lambda values: values["x"] > 0.5,
        "target_mcse": 0.1,
    }),
    "report": of(pe.report, comparison=comparison),
    "sequential_evidence": of(pe.sequential_evidence, dt=of_data),
    "compare_models": of(
        pe.compare_models, models=both_results, target_mcse=0.1, random_seed=1, progressbar=False
    ),
    "attach_evidence": of(pe.attach_evidence, idata=result, evidence=result),
    "log_evidence": of(pe.log_evidence, dt=result),
    "to_record": of(pe.to_record, dt=result),
    "estimate": of(pe.estimate, dt=result),
    "summary": of(pe.summary, dt=result),
    "sample_latent": (pe.gp.sample_latent, {
        "dt": of_estimated, "model": estimated, "draws": 5, "random_seed": 1,
    }),
    "Bridge": of(pe.methods.Bridge, idata=result),
    "bridge_sampling": (pe.bridge_sampling, {
        "idata": posterior, "model": conjugate, "target_mcse": None, "max_time": None,
        "max_draws": None, "draws": 320, "kernel": "auto", "potentials": "likelihood",
        "reparameterise": True, "backend": "numba", "cores": 1, "executor": None,
        "checkpoint": None, "random_seed": 1, "progressbar": False, "compile_kwargs": None,
    }),
    "train_rbm": (pe.rbm.train_rbm, {
        "data": np.eye(4), "n_hidden": 2, "algorithm": "pcd", "steps": 1, "n_updates": 2,
        "batch_size": 2, "learning_rate": 0.1, "linear_decay": False, "weight_decay": 0.0,
        "n_chains": 3, "random_seed": 1, "progressbar": False,
    }),
    "train_rbm.track": (pe.rbm.train_rbm, {
        "data": np.eye(4), "n_hidden": 2, "algorithm": "tempering", "n_updates": 2,
        "track": pe.rbm.TrackLogZ(n_temperatures=3, n_chains=5, n_sweeps=1),
        "validation": np.eye(4),
        "start": pe.rbm.RBM(np.ones((4, 2)), np.zeros(4), np.zeros(2)), "progressbar": False,
    }),
    "raise_log_likelihood": (pe.rbm.raise_log_likelihood, {
        "machine": MACHINE, "visible": np.eye(3), "n_stages": 5, "n_paths": 1,
        "schedule": "linear", "kernel": "auto", "path": "auto", "cores": 1, "executor": None,
        "random_seed": 1, "progressbar": False,
    }),
    "plot_samples": (plot_samples, {
        "samples": np.eye(4), "shape": (2, 2), "n_columns": 2, "backend": None, "visuals": None,
        "figure_kwargs": None,
    }),
    "plot_compare": of(pe.plot_compare, models={"a": EVIDENCE, "b": EVIDENCE}, **PLOT),
    "plot_sequential": of(pe.plot_sequential, dt1=of_data, dt2=of_data, **PLOT),
    "plot_sensitivity": of(pe.plot_sensitivity, table=priors_table, **PLOT),
    "plot_calibration": of(pe.plot_calibration, calibration=calibration, bins=5, **PLOT),
    "plot_temperatures": of(pe.plot_temperatures, dt=tempered_result, **PLOT),
    **{each.__name__: of(each, dt=result, **PLOT) for each in (
        pe.plot_energy, pe.plot_estimates, pe.plot_schedule, pe.plot_work,
    )},
    **{f"estimators.{name}": of(getattr(estimators, name), **given) for name, given in {
        **{each.__name__: BOTH for each in _OF_BOTH},
        **{each.__name__: {"work": WORK} for each in _OF_WORK},
        **{each.__name__: ON_LADDER for each in _OF_LADDER},
        **{each.__name__: WEIGHTED for each in _OF_WEIGHTED},
        "bridge": {"works": [(WORK, WORK - 1.0)] * 2},
        "difference": {"minuend": EVIDENCE, "subtrahend": EVIDENCE},
        "histogram_draws": {**BOTH, "draws": 5, "random_seed": 1},
        "histogram_posterior": {**BOTH, "draws": 5, "random_seed": 1},
        "multistate": TABLE,
        "multistate_curve": TABLE,
        "optimal_allocation": {"variance": np.array([0.1, 0.4]), "n_particles": 100.0},
        "power_posterior": {"beta": LADDER, "energy": np.ones((2, 3))},
        "recommend": {
            "found": [pe.LogEvidence(-1.0, 0.1, "bridge"), pe.LogEvidence(-1.0, 0.2, "smc")],
        },
        "rts_combined": ROUNDS,
        "rts_combined_curve": ROUNDS,
        "single_run": {"work": WORK, "relative_variance": np.ones(20)},
        "ts": {"rung": ON_LADDER["rung"], "log_z": np.zeros(3)},
    }.items()},
}
# fmt: on
# Which of them read a stored result, and as which argument.
_READERS = {
    "attach_evidence": "evidence",
    "bayes_factor": "dt1",
    "estimate": "dt",
    "log_evidence": "dt",
    "plot_energy": "dt",
    "plot_estimates": "dt",
    "plot_schedule": "dt",
    "plot_temperatures": "dt",
    "plot_work": "dt",
    "summary": "dt",
    "to_record": "dt",
}
_STARTS = [
    *("array", "array of nan", "cube", "empty array", "0-d array", "texts", "objects", "text"),
    *("empty tree", "other tree", "masked", "complex", "records", "large whole numbers"),
]


def covered() -> set[str]:
    """Return the public names that are called, without their methods."""
    return {name for name in GOOD if name.partition(".")[0] not in GOOD or "." not in name}


def calls() -> Iterator[Call]:
    """Return all calls with one wrong argument."""
    for name, (function, good) in GOOD.items():
        for parameter, what in itertools.product(good, VALUES):
            arguments = {key: _made(value) for key, value in good.items()}
            arguments[parameter] = VALUES[what]
            yield Call(name, function, arguments, {parameter: what})
    yield from _with_kernels()
    yield from _with_starts()
    yield from _with_extremes()
    yield from _with_broken_trees()


def pairs(n: int, rng: np.random.Generator) -> Iterator[Call]:
    """Return ``n`` random calls with two wrong arguments."""
    names = [name for name, (_, good) in GOOD.items() if len(good) > 1]
    for _ in range(n):
        name = str(rng.choice(names))
        function, good = GOOD[name]
        wrong = {
            str(parameter): str(rng.choice(list(VALUES)))
            for parameter in rng.choice(list(good), 2, replace=False)
        }
        arguments = {key: _made(value) for key, value in good.items()}
        arguments |= {key: VALUES[what] for key, what in wrong.items()}
        yield Call(name, function, arguments, wrong)


def _made(value: Any) -> Any:
    makers = (result, tempered_result, model, of_models, of_data, comparison, priors_table)
    makers += (calibration, both_results, constants, conjugate, posterior, of_model)
    makers += (estimated, of_estimated)
    return value() if any(value is make for make in makers) else value


def _with_kernels() -> Iterator[Call]:
    small = {"target": model(), "method": pe.methods.SMC(islands=2, chain_length=2), "draws": 8}
    for what, kernel in kernels().items():
        arguments = {**small, "schedule": [0.0, 0.5, 1.0], "kernel": kernel}
        yield Call("sample_evidence", sample, arguments, {"kernel": what})
    for lattice in (
        pe.lattices.Ising(4),
        pe.lattices.Potts(4, q=3),
        pe.lattices.Ising(5, field=0.5),
    ):
        for what, kernel in kernels().items():
            yield Call(
                "sample_evidence",
                sample,
                {"target": lattice, "kernel": kernel, "draws": 12},
                {"kernel": what},
            )


def _with_starts() -> Iterator[Call]:
    for target in (
        pe.mixtures.Gaussian(),
        pe.lattices.Ising(4),
        pe.lattices.Potts(4, q=3),
        model(),
    ):
        for what in _STARTS:
            arguments = {"target": target, "reverse_start": VALUES[what]}
            yield Call("sample_evidence", sample_from, arguments, {"reverse_start": what})


def _with_extremes() -> Iterator[Call]:
    """Lattices at the ends of what is legal, where tables of probabilities have their ends, too."""
    shapes, strengths = (2, (2, 3), (3, 2, 2), (2, 70)), (1e6, -1e6, 0.4, 0.0)
    lattices = [
        *(
            pe.lattices.Ising(shape, coupling=coupling, field=field, periodic=periodic)
            for shape in shapes
            for coupling in strengths
            for field in (0.0, -1e6)
            for periodic in (True, False)
        ),
        *(
            pe.lattices.Potts(shape, coupling=coupling, q=q)
            for shape in shapes
            for coupling in strengths
            for q in (2, 250)
        ),
    ]
    for lattice in lattices:
        for kernel in ("auto", "metropolis", "swendsen_wang", "wolff"):
            method = pe.methods.AIS(n_stages=3, islands=2)
            arguments = {"target": lattice, "kernel": kernel, "method": method, "draws": 11}
            yield Call("sample_evidence", sample, arguments, {"kernel": f"{kernel} of {lattice}"})


def _with_broken_trees() -> Iterator[Call]:
    """Trees are made when a call is: there are thousands of them, of which a test makes some."""

    def call(name, function, good, parameter, what, make):
        def made(**arguments):
            return function(**arguments, **{parameter: make()})

        return Call(name, made, good, {parameter: what})

    for what, make in broken_trees(result()).items():
        for name, parameter in _READERS.items():
            function, good = GOOD[name]
            others = {key: _made(value) for key, value in good.items() if key != parameter}
            yield call(name, function, others, parameter, what, make)
        yield call("compare", pe.compare, {}, "models", what, lambda make=make: {"a": make()})
        target = {"target": pe.mixtures.Gaussian()}
        yield call("sample_evidence", sample_from, target, "reverse_start", what, make)
    for name, parameter, dt in (
        ("bridge_sampling", "idata", posterior()),
        ("prior_sensitivity", "result", of_model()),
        ("sample_latent", "dt", of_estimated()),
    ):
        function, good = GOOD[name]
        others = {key: _made(value) for key, value in good.items() if key != parameter}
        for what, make in broken_trees(dt).items():
            yield call(name, function, others, parameter, what, make)
    for what, make in broken_trees(of_model()).items():
        both = partial(_beside, make)
        yield call("average_models", pe.average_models, {}, "models", what, both)


def _beside(make):
    return {"a": of_model(), "b": make()}
