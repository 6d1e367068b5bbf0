"""Positive variables, shares and gamma functions by their logarithms, without rounding."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.distributions.transforms import SimplexTransform
from pymc.logprob.transforms import LogOddsTransform, LogTransform
from pymc.pytensorf import constant_fold
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.math import GammaLn
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import BetaRV, DirichletRV, GammaRV, InvGammaRV
from pytensor.tensor.symbolic import FusibleSymbolicOp

from pm_evidence.targets.compile.rewrite import rewrite

# A sign or factor, and what it belongs to; of sums of numbers this is None.
type _Term = tuple[float, Any]
type Shape = tuple[int, ...]
type Parameters = Sequence[Any]

_MANY = 10.0  # from here on Stirling's series with five terms is exact
_NEAR = 1e-3  # nearer to the tangent, the first terms of a series are exact
_LEAST_SHAPE = 1e-100  # the inverse square of a shape parameter is finite from here on
_PEAKED = 1e6  # from this sum of shapes on, shares are written by their distance from the mode


def is_elementwise(op: Any, kinds: type | tuple[type, ...]) -> bool:
    """Return whether an operation is elementwise, of a kind."""
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, kinds)


def bare(variable: Variable) -> Variable:
    """Return a variable before it was named, or its dimensions were arranged."""
    owner = variable.owner
    while owner is not None and (
        isinstance(owner.op, DimShuffle) or is_elementwise(owner.op, ps.Identity)
    ):
        variable = owner.inputs[0]
        owner = variable.owner
    return variable


def log_of(scale: Variable) -> Variable:
    """Return the log of a positive graph, without computing a power of what may round to zero.

    A precision of ``exp(-2000)`` rounds to zero, and its inverse root to infinity, the log of which
    is 1,000.
    """
    if scale.owner is None:
        return _log(scale)
    op, inputs = scale.owner.op, scale.owner.inputs
    if isinstance(op, DimShuffle):
        return op(log_of(inputs[0]))
    match getattr(op, "scalar_op", None):
        case ps.Pow() if isinstance(bare(inputs[1]), Constant):
            return inputs[1] * log_of(inputs[0])
        case ps.TrueDiv() if isinstance(bare(inputs[0]), Constant):
            return _log(inputs[0]) - log_of(inputs[1])
        case ps.Reciprocal():
            return -log_of(inputs[0])
        case ps.Sqrt():
            return 0.5 * log_of(inputs[0])
        case ps.Abs():
            return log_of(inputs[0])
        case ps.Mul() if len(factors := [x for x in inputs if not _is_sign(x)]) == 1:
            return log_of(factors[0])  # PyMC multiplies by the sign of a precision
    return _log(scale)


def _is_sign(graph: Variable) -> bool:
    return isinstance(getattr(getattr(graph.owner, "op", None), "scalar_op", None), ps.Sign)


def _log(number: Any) -> Variable:
    return pt.log(number.astype("float64"))  # PyMC stores 2.0 in single precision


class ExponentialExcess(FusibleSymbolicOp):
    """The operation of `exponential_excess`."""

    def build_inner_graph(self, w: Any) -> list[Variable]:
        """Return the graph of the result."""
        series = _near(w, 1.0, 1.0)
        return [pt.switch(pt.abs(w) < _NEAR, series, pt.expm1(w) - w)]


class BinomialExcess(FusibleSymbolicOp):
    """The operation of `binomial_excess`."""

    def build_inner_graph(self, w: Any, a: Any, b: Any) -> list[Variable]:
        """Return the graph of the result."""
        share = a / (a + b)
        spread = share * (b / (a + b))
        series = (a + b) * spread * _near(w, 1.0 - 2.0 * share, 1.0 - 6.0 * spread)
        tangent = pt.log(a) - pt.log(b)
        to_zero = pt.softplus(-tangent - w) - pt.softplus(-tangent)
        to_one = pt.softplus(tangent + w) - pt.softplus(tangent)
        return [pt.switch(pt.abs(w) < _NEAR, series, a * to_zero + b * to_one)]


def exponential_excess(w: Variable) -> Variable:
    """Return ``exp(w) - 1 - w``, which is convex and at least zero."""
    return ExponentialExcess()(w)


def binomial_excess(w: Variable, a: Variable, b: Variable) -> Variable:
    """Return ``n log(1 + m (exp(w) - 1)) - a w`` with ``n = a + b`` and ``m = a / n``.

    It is ``n`` times the Kullback-Leibler divergence of a Bernoulli variable of probability ``m``
    from one whose log odds are larger by ``w``, in nats. It is convex in ``w``, and at least zero.
    """
    return BinomialExcess()(w, a, b)


def _near(w: Any, third: Any, fourth: Any) -> Any:
    """Return the series to fourth order, with these ratios of cumulants to the variance."""
    w = pt.clip(w, -_NEAR, _NEAR)  # the gradient of the series has to be finite everywhere
    return w**2 * (0.5 + w * (third / 6.0 + w * fourth / 24.0))


class LogGammaRatio(FusibleSymbolicOp):
    """The operation of `log_gamma_ratio`."""

    def build_inner_graph(self, a: Any, k: Any) -> list[Variable]:
        """Return the graph of the result."""
        both_large = (a > _MANY) & (a + k > _MANY)
        # the gradient has to be finite in the branch that is not chosen
        base, step = pt.switch(both_large, a, _MANY), pt.switch(both_large, k, 0.0)
        end = base + step
        large = (base - 0.5) * pt.log1p(step / base) + step * (pt.log(end) - 1.0)
        large += stirling_series(end) - stirling_series(base)
        base, step = pt.switch(both_large, 1.0, a), pt.switch(both_large, 0.0, k)
        return [pt.switch(both_large, large, pt.gammaln(base + step) - pt.gammaln(base))]


def log_gamma_ratio(a: Any, k: Any) -> Variable:
    """Return ``log G(a + k) - log G(a)`` for positive ``a`` and ``a + k``."""
    return LogGammaRatio()(a, k)


def stirling_series(a: Any) -> Any:
    """Return ``log G(a) - (a - 1 / 2) log a + a - log(2 pi) / 2`` for ``a`` of 10 and more."""
    inverse = 1.0 / a
    square = inverse**2
    terms = 1 / 1260 - square * (1 / 1680 - square / 1188)
    return inverse * (1 / 12 - square * (1 / 360 - square * terms))


def with_gamma_ratios(outputs: Sequence[Variable], data: Iterable[Variable] = ()) -> list[Variable]:
    """Return graphs in which differences of two log gamma functions are single operations.

    These are those whose arguments differ by data, and are not data themselves.
    """
    return rewrite(outputs, partial(_with_ratios, frozenset(data)))


def _with_ratios(data: Set[Variable], node: Any, inputs: list[Variable]) -> list[Variable] | None:
    """Return the output of a sum in which ratios are single terms; None if it has none."""
    if _kind(node) not in (ps.Add, ps.Sub):
        return None
    (total,) = node.clone_with_new_inputs(inputs, strict=False).outputs
    terms, has_ratio = list(_terms(total)), False
    while (found := _pair(terms, data)) is not None:
        i, j, a, k = found
        ratio = (terms[i][0], log_gamma_ratio(a, k))
        terms = [term for at, term in enumerate(terms) if at not in (i, j)] + [ratio]
        has_ratio = True
    return [_total(terms)] if has_ratio else None


def _pair(terms: Sequence[_Term], data: Set[Variable]) -> tuple[int, int, Any, Any] | None:
    """Return the positions of ``log G(a + k)`` and ``-log G(a)`` among terms, ``a``, and ``k``."""
    gammas = [(i, sign, _argument(term)) for i, (sign, term) in enumerate(terms)]
    sums = [(i, sign, a, _linear(a)) for i, sign, a in gammas if a is not None]
    sums = [each for each in sums if not _is_data(each[-1], data)]
    for i, sign, _, above in sums:
        for j, other, a, below in sums:
            if sign == -other:
                every = {**above, **below}
                difference = {v: above.get(v, 0.0) - below.get(v, 0.0) for v in every}
                difference = {v: c for v, c in difference.items() if c != 0.0}
                if _is_data(difference, data):
                    return i, j, a, _total([(c, v) for v, c in difference.items()])
    return None


def _argument(graph: Any) -> Any:
    """Return the argument of a log gamma function; None of another graph."""
    return graph.owner.inputs[0] if _kind(graph.owner) is GammaLn else None


def _terms(graph: Any, sign: float = 1.0) -> Iterator[_Term]:
    """Return the terms of a sum with their signs."""
    graph = _unexpanded(graph)
    inputs = [] if graph.owner is None else graph.owner.inputs
    match _kind(graph.owner):
        case ps.Add:
            signed = [(sign, each) for each in inputs]
        case ps.Sub:
            signed = [(sign, inputs[0]), (-sign, inputs[1])]
        case ps.Neg:
            signed = [(-sign, inputs[0])]
        case _:
            yield sign, graph
            return
    for each, part in signed:
        yield from _terms(part, each)


def _linear(graph: Any) -> dict[Any, float]:
    """Return the coefficients of the variables in a sum; that of None is the sum of numbers."""
    found: dict[Any, float] = {}
    for sign, term in _terms(graph):
        factor, variable = _factor(term)
        inner = {None: 1.0} if variable is None else {variable: 1.0}
        if variable is not None and variable is not term:
            inner = _linear(variable)
        for each, c in inner.items():
            found[each] = found.get(each, 0.0) + sign * factor * c
    return found


def _factor(term: Any) -> _Term:
    """Return a term as a number times a variable; the variable is None if it is a number."""
    if (number := _number(term)) is not None:
        return number, None
    inputs = [] if term.owner is None else [_unexpanded(v) for v in term.owner.inputs]
    kind = _kind(term.owner)
    if kind is ps.TrueDiv and (number := _number(inputs[1])) is not None:
        return 1.0 / number, inputs[0]
    if kind is ps.Mul and len(inputs) == 2:
        for one, other in (inputs, inputs[::-1]):
            if (number := _number(one)) is not None:
                return number, other
    return 1.0, term


def _total(terms: Sequence[_Term]) -> Any:
    """Return the sum of terms."""
    parts = [pt.constant(c) if v is None else v if c == 1.0 else c * v for c, v in terms]
    return sum(parts[1:], parts[0]) if parts else pt.constant(0.0)


def _number(graph: Any) -> float | None:
    if isinstance(graph, Constant) and np.size(graph.data) == 1:
        return float(np.asarray(graph.data).item())
    return None


def _is_data(linear: Mapping[Any, float], data: Set[Variable]) -> bool:
    """Return whether a sum depends on data only."""
    variables = [variable for variable in linear if variable is not None]
    roots = (v for v in ancestors(variables) if v.owner is None)
    return all(isinstance(root, Constant | SharedVariable) or root in data for root in roots)


def _unexpanded(graph: Any) -> Any:
    """Return a graph without dimensions in front of its own, which sums add by broadcasting."""
    op = None if graph.owner is None else graph.owner.op
    if isinstance(op, DimShuffle):
        inner = graph.owner.inputs[0]
        expanded = ("x",) * (graph.type.ndim - inner.type.ndim) + tuple(range(inner.type.ndim))
        if op.new_order == expanded:
            return inner
    return graph


def _kind(node: Any) -> type | None:
    return type(node.op.scalar_op) if node is not None and isinstance(node.op, Elemwise) else None


@dataclass(frozen=True)
class LogGamma:
    """The log of a gamma variable or of its inverse, or the log odds of a beta variable.

    They are sums of the logs of gamma variables with signs, and of the log of a scale. The
    unconstrained value is its mode plus a number ``w``, and nearly its mean plus its standard
    deviation times a noise. Mean and deviation need not be exact, because coordinates may have any
    location and scale.
    """

    transform: type
    signs: tuple[int, ...]  # of the shape parameters, which are the first of PyTensor's parameters
    # If shapes are at least as large, values practically never round to an end of the support.
    least: float

    @property
    def n_shapes(self) -> int:
        """Number of shape parameters."""
        return len(self.signs)

    def _signed(self, terms: Sequence[Any]) -> Any:
        """Return the sum of terms with their signs."""
        return reduce(
            add, (t if sign > 0 else -t for t, sign in zip(terms, self.signs, strict=True))
        )

    def _of_shapes(self, function: Callable[..., Any], parameters: Parameters, *more: Any) -> Any:
        return self._signed([function(a, *more) for a in parameters[: self.n_shapes]])

    def mode(self, parameters: Parameters) -> Variable:
        """Return the mode of the unconstrained value."""
        of_shapes = self._of_shapes(lambda a: pt.log(_positive(a)), parameters)
        return sum((log_of(scale) for scale in parameters[self.n_shapes :]), of_shapes)

    def mean_of_w(self, parameters: Parameters) -> Variable:
        """Return nearly the mean of ``w``."""
        return self._of_shapes(_mean, parameters)

    def draw_w(self, parameters: Parameters, shape: Shape) -> Variable:
        """Return the graph of a draw of ``w``."""
        return self._of_shapes(_drawn, parameters, shape)

    def scale(self, parameters: Parameters) -> Variable:
        """Return nearly the standard deviation of ``w``."""
        return pt.sqrt(sum(_variance(a) for a in parameters[: self.n_shapes]))

    def log_density_of_w(self, w: Variable, parameters: Parameters) -> Variable:
        """Return the log density of ``w``, in nats."""
        a, *others = (_positive(a) for a in parameters[: self.n_shapes])
        if not others:
            return _log_height(a) - a * exponential_excess(self._signed([w]))
        (b,) = others
        height = _log_height(a) + _log_height(b) - _log_height(a + b)
        return height - binomial_excess(w, a, b)

    def location(self, parameters: Parameters) -> Variable:
        """Return nearly the mean of the unconstrained value."""
        return self.mode(parameters) + self.mean_of_w(parameters)

    def draw(self, parameters: Parameters, shape: Shape) -> Variable:
        """Return the graph of a draw of the unconstrained value of a variable of this shape."""
        return self.mode(parameters) + self.draw_w(parameters, shape)

    def log_density(self, x: Variable, parameters: Parameters) -> Variable:
        """Return the graph of the log density of an unconstrained value, in nats."""
        return _within(parameters, self.log_density_of_w(x - self.mode(parameters), parameters))

    def draw_noise(self, parameters: Parameters, shape: Shape) -> Variable:
        """Return the graph of a draw of the noise."""
        w = self.draw_w(parameters, shape)
        return (w - self.mean_of_w(parameters)) / self.scale(parameters)

    def log_density_of_noise(self, noise: Variable, parameters: Parameters) -> Variable:
        """Return the log density of the noise, in nats.

        It keeps its digits where the scale is tiny beside the location, unlike ``log_density``.
        """
        scale = self.scale(parameters)
        w = self.mean_of_w(parameters) + scale * noise
        return _within(parameters, self.log_density_of_w(w, parameters) + pt.log(scale))


class _Dirichlet:
    """The centred log ratios of the shares of a Dirichlet variable, without the last."""

    transform, n_shapes, least = SimplexTransform, 1, 0.1

    def draw(self, parameters: Parameters, shape: Shape) -> Variable:
        """Return the graph of a draw of the unconstrained value of a variable of this shape."""
        (a,) = parameters
        log_gamma = pt.log(_positive(a)) + _drawn(a, shape)
        return (log_gamma - log_gamma.mean(axis=-1, keepdims=True))[..., :-1]

    def log_density(self, x: Variable, parameters: Parameters) -> Variable:
        """Return the graph of the log density of an unconstrained value, in nats."""
        (a,) = parameters
        log_ratio = pt.concatenate([x, -x.sum(axis=-1, keepdims=True)], axis=-1)
        log_share = log_ratio - pt.logsumexp(log_ratio, axis=-1, keepdims=True)
        total = a.sum(axis=-1)
        log_norm = pt.gammaln(a).sum(axis=-1) - pt.gammaln(total)
        usual = (a * log_share).sum(axis=-1) - log_norm
        height = _log_height(a).sum(axis=-1) - _log_height(total)
        above_mean = log_share - pt.log(a / total[..., None])
        peaked = height - (a * exponential_excess(above_mean)).sum(axis=-1)
        log_volume = pt.log(a.shape[-1].astype("float64"))
        return _within(parameters, pt.switch(total < _PEAKED, usual, peaked) + log_volume)


def _within(parameters: Parameters, log_density: Variable) -> Variable:
    """Return a log density that is minus infinity where a parameter is not positive."""
    return pt.switch(pt.all([pt.all(p > 0) for p in parameters]), log_density, -np.inf)


def _positive(a: Any) -> Any:
    """Return a shape parameter whose inverse square is finite."""
    return pt.maximum(a, _LEAST_SHAPE)


def _drawn(a: Any, shape: Shape) -> Any:
    """Return the log of a gamma variable less that of its shape.

    It is drawn by the log of the next shape: G(a) = G(a + 1) U^(1 / a).
    """
    larger = pm.Gamma.dist(alpha=a + 1.0, beta=1.0, shape=shape)
    above = pt.log(larger) - pt.log(_positive(a))
    return above - pm.Exponential.dist(1.0, shape=shape) / _positive(a)


def _mean(a: Any) -> Any:
    """Return nearly the mean of the log of a gamma variable less that of its shape."""
    a = _positive(a)
    return pt.log1p(0.5 / a) - 1.0 / a


def _variance(a: Any) -> Any:
    """Return nearly the variance of the log of a gamma variable."""
    a = _positive(a)
    return 1.0 / (a + 0.5) + 1.0 / a**2


def _log_height(a: Any) -> Any:
    """Return the greatest log density of the log of a gamma variable: ``a log a - a - log G(a)``.

    Of large shapes it is half of ``log(a / 2 pi)``, less the correction of Stirling's formula.
    """
    small, large = pt.minimum(a, _MANY), pt.maximum(a, _MANY)
    by_gamma = small * pt.log(small) - small - pt.gammaln(small)
    by_series = 0.5 * pt.log(large / (2.0 * np.pi)) - stirling_series(large)
    return pt.switch(a < _MANY, by_gamma, by_series)


type LogScale = LogGamma | _Dirichlet

# A gamma variable of shape 0.1 rounds to zero with a probability of 1e-31. Shares round to one
# where the odds exceed 1e16: with a probability of 1e-8 if both shapes are 0.5.
_OF: dict[type, LogScale] = {
    GammaRV: LogGamma(LogTransform, (1,), 0.1),
    InvGammaRV: LogGamma(LogTransform, (-1,), 0.1),
    BetaRV: LogGamma(LogOddsTransform, (1, -1), 0.5),
    DirichletRV: _Dirichlet(),
}


def log_scale_of(rv: Variable, transform: Any) -> LogScale | None:
    """Return the distribution of a variable on the scale of its transform."""
    node: Any = rv.owner
    found = _OF.get(type(node.op))
    if found is None or type(transform) is not found.transform:
        return None
    shapes = node.op.dist_params(node)[: found.n_shapes]
    shapes = constant_fold(shapes, raise_not_constant=False)
    if all(not isinstance(p, Variable) and bool(np.all(p >= found.least)) for p in shapes):
        return None
    return found
