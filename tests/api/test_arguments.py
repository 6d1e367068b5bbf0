"""Arguments are resolved before anything costs time."""

from functools import partial

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.api.arguments import (
    TARGET_MCSE,
    chosen_sampler,
    chosen_schedule,
    compile_options,
    first_round,
    limits,
)
from pm_evidence.samplers.planning import ADAPTIVE
from tests.api.refusals import check_refusals

KINDS = {
    "linear": pe.schedules.Linear,
    "sm08": pe.schedules.SM08,
    "gms13": pe.schedules.GMS13,
    "varopt": pe.schedules.VarOpt,
}


def test_methods_by_name_class_and_object():
    for method, default, kind in (
        ("auto", "smc", pe.methods.SMC),
        ("auto", "aisel", pe.methods.AISEL),
        ("ais", "smc", pe.methods.AIS),
        (pe.methods.SMC, "ais", pe.methods.SMC),
        (pe.methods.AISEL(islands=4), "aisel", pe.methods.AISEL),
    ):
        assert isinstance(chosen_sampler(method, default), kind), (method, default)


def test_arguments_of_other_packages_are_answered():
    for name, said in {
        "seed": r"sample_evidence has no argument seed; pass random_seed=\.",
        "chains": r"no argument chains; target_mcse= sets the error",
        "nuts_sampler": r"no argument nuts_sampler; .* pe.bridge_sampling\(idata, model\)",
    }.items():
        with pytest.raises(TypeError, match=said):
            pe.sample_evidence(None, **{name: 1})


def test_other_methods_are_refused():
    names = r"method must be one of 'auto', 'smc', 'ais', 'aisel'"
    cases = [
        ("metropolis", ValueError, names),
        ("SMC", ValueError, names + r".*got 'SMC'; did you mean 'smc'\?"),
        ("nuts", ValueError, r"method must .* got 'nuts'; .* pe.bridge_sampling\(idata, model\)"),
        (3, TypeError, r"method must be a name .* or a sampler such as"),
        ("aisel", ValueError, r"method='aisel' needs a likelihood that is estimated"),
    ]
    for method, *said in cases:
        check_refusals(partial(chosen_sampler, method, "smc"), [({}, *said)])


def test_draws_are_shared_by_islands():
    """100 draws on 16 islands are 7 each; an island has at least two chains of ten."""
    assert first_round(pe.methods.SMC(), 100) == (20, 320)
    assert first_round(pe.methods.SMC(), 1600) == (100, 1600)
    assert first_round(pe.methods.AIS(), 100) == (100, 100)
    assert first_round(pe.methods.AISEL(islands=8, chain_length=5), None) == (125, 1000)


def test_schedules():
    """A name, a class, an object or an array."""
    assert chosen_schedule("adaptive", pe.methods.SMC()) is ADAPTIVE
    for name, kind in KINDS.items():
        for given in (name, kind, kind()):
            assert chosen_schedule(given, pe.methods.SMC()) == kind()
    own = chosen_schedule([0, 0.1, 1], pe.methods.AIS())
    np.testing.assert_array_equal(own.beta, [0.0, 0.1, 1.0])


def test_other_schedules_are_refused():
    for schedule in ("cosine", 0.5, None, pe.methods.SMC(), [0.0, 2.0]):
        call = partial(chosen_schedule, schedule, pe.methods.AIS())
        check_refusals(call, [({}, ValueError, "schedule must")])


def test_a_bound_of_the_steps_is_compared_with_the_stages_before_anything_is_compiled():
    with pytest.raises(ValueError, match=r"largest_step must be at least 1 / n_stages = 0.1"):
        chosen_schedule(pe.schedules.VarOpt(largest_step=0.09), pe.methods.AIS(n_stages=10))
    assert (
        chosen_schedule(
            pe.schedules.VarOpt(largest_step=0.1), pe.methods.AIS(n_stages=10)
        ).largest_step
        == 0.1
    )


def test_limits():
    """The default error ends at 10 times the first round, an error of the user's at 1,000."""
    assert limits(TARGET_MCSE, None, None, 50).max_draws == 500
    asked = limits(0.1, None, None, 50)
    assert (asked.max_draws, asked.asked, asked.max_time) == (50_000, True, np.inf)
    assert limits(None, None, None, 50).target_mcse is None
    timed = limits(None, 3.0, None, 50)
    assert (timed.target_mcse, timed.max_time, timed.max_draws) == (None, 3.0, 50_000)
    with pytest.raises(ValueError, match="max_draws needs target_mcse or max_time"):
        limits(None, None, 100, 50)
    with pytest.raises(ValueError, match="max_time must be"):
        limits(None, -3.0, None, 50)


def test_options_of_the_compiler():
    assert compile_options({"mode": "numba", "profile": True}) == {"profile": True}
    with pytest.raises(ValueError, match="another 'mode' than 'NUMBA'"):
        compile_options({"mode": "JAX"})
    with pytest.raises(ValueError, match="compile_kwargs must hold only"):
        compile_options({"speed": 1})
