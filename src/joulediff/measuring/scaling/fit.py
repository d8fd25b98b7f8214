"""Fit a cost against the input size: `constant + factor * size ** exponent`, and the orders of growth that fit as well.

The constant holds the overhead of small inputs, so that it does not lower the exponent. No part is negative. An order
is returned only if the measurements exclude the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from joulediff.model.apis.scaling import Growth, Order, PowerLaw, Quantity
from joulediff.model.energy import Amount
from joulediff.model.stats import CONFIDENCE, CONFIDENCE_SIGMAS, student_t
from joulediff.model.units import format_share

LEAST_SIZES = 3
_EXPONENT_STEP = 0.01
_EXPONENTS = np.arange(0.05, 6.0, _EXPONENT_STEP)
_DRAWS = 300
# The sensors are no better than this (MEASUREMENT.md has 0.6 % for a GPU), whatever an interval says.
_LEAST_SIGMA_SHARE = 1e-3
# Measurements that are farther from the best fit follow no such law: steps, caches, a change of algorithm.
MOST_MISFIT = 0.15
# A cost is called constant if it changes by less over all sizes, surely. A logarithm from 1e3 to 1e6 doubles.
MOST_CHANGE = 0.25
# Orders that are farther apart in their exponents say nothing worth reporting.
_MOST_RANGE = 1.0

_TOO_WIDE = "its intervals are too wide to tell growth from a constant"

_ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True, slots=True)
class Costs:
    """One quantity at several sizes, with the standard deviation of each value. A size may occur twice."""

    sizes: Sequence[float]
    values: Sequence[float]
    sigmas: Sequence[float]


def fit_growth(quantity: Quantity, domain: str | None, costs: Costs) -> Growth:
    """Return the growth of a quantity: its law, and the orders that the measurements allow."""
    distinct = len(set(costs.sizes))
    if distinct < LEAST_SIZES:
        return Growth(quantity, domain, None, (), f"{distinct} sizes are too few to see growth; measure 3 or more")
    values = np.array(costs.values, dtype=float)
    unit = float(np.abs(values).max())
    if not np.isfinite(values).all() or not unit > 0:
        return Growth(quantity, domain, None, (), "its values are not positive numbers")
    found = _Fit(np.array(costs.sizes, dtype=float), values / unit, np.array(costs.sigmas, dtype=float) / unit)
    law, orders, reason = found.judge()
    if law is not None:
        law = replace(law, constant=law.constant.times(unit), factor=law.factor * unit)
    return Growth(quantity, domain, law, orders, reason)


class _Fit:
    """The fits of one quantity, whose largest value is 1."""

    def __init__(self, sizes: np.ndarray, values: np.ndarray, sigmas: np.ndarray) -> None:
        self.sizes, self.values = sizes, values
        self.sigmas = np.maximum(sigmas, np.maximum(_LEAST_SIGMA_SHARE * np.abs(values), 1e-9))
        self.weights = self.sigmas**-2
        self.largest = float(sizes.max())
        powers = (sizes / self.largest)[None, :] ** _EXPONENTS[:, None]
        constants, factors, misfits = _solve(powers, values[None, :], self.weights)
        self.powers = powers
        self.best = int(misfits[0].argmin())
        self.constant, self.factor = float(constants[0, self.best]), float(factors[0, self.best])
        self.order_misfits = {order: self._misfit_of(order) for order in _ORDERS}
        self.least = min(float(misfits[0, self.best]), *self.order_misfits.values())
        self._set_tolerance()

    def _misfit_of(self, order: Order) -> float:
        _, _, misfits = _solve(_basis(order, self.sizes)[None, :], self.values[None, :], self.weights)
        return float(misfits[0, 0])

    def _set_tolerance(self) -> None:
        """Widen the errors if the best fit misses the values by more than their own: caches, clocks, other programs."""
        dof = len(self.sizes) - LEAST_SIZES
        excess = self.least / dof if dof else 0.0
        self.is_off = excess > 1
        self.limit = max(1.0, excess) * (student_t(dof) if self.is_off else CONFIDENCE_SIGMAS) ** 2
        self.draw_sigmas = self.sigmas * np.sqrt(self.limit) / CONFIDENCE_SIGMAS

    def judge(self) -> tuple[PowerLaw | None, tuple[Order, ...], str | None]:
        """Return the law with its interval, and the orders or why there are none."""
        constants, exponents, changes = self._draw()
        fitted = self.constant + self.factor * self.powers[self.best]
        misfit_share = _misfit_share(self.values, fitted)
        exponent = float(_EXPONENTS[self.best])
        law = PowerLaw(
            constant=_amount(self.constant, constants),
            factor=self.factor / self.largest**exponent,
            exponent=_amount(exponent, exponents, margin=_EXPONENT_STEP / 2),
            misfit_share=misfit_share,
        )
        is_flat = self.order_misfits["1"] - self.least <= 1.5 * self.limit  # it has two parameters less: 6.0 for 3.84
        if is_flat:
            return self._judge_flat(law, changes)
        if self.is_off and misfit_share > MOST_MISFIT:
            return law, (), f"it follows no power of n: the fit is off by {format_share(misfit_share)}"
        allowed = [each for each in _ORDERS[1:] if self.order_misfits[each] - self.least <= self.limit]
        orders, reason = self._settle(allowed, law)
        return law, orders, reason

    def _judge_flat(self, law: PowerLaw, changes: np.ndarray) -> tuple[PowerLaw | None, tuple[Order, ...], str | None]:
        mean = float((self.weights * self.values).sum() / self.weights.sum())
        half = CONFIDENCE_SIGMAS * float((self.weights**2 * self.draw_sigmas**2).sum() ** 0.5 / self.weights.sum())
        flat = PowerLaw(Amount(mean, mean - half, mean + half), 0.0, None, _misfit_share(self.values, np.array(mean)))
        if not mean > 0 or float(np.abs(self.values / mean - 1).max()) > MOST_CHANGE:
            return None, (), "neither a constant nor a power of n fits" if self.is_off else _TOO_WIDE
        most = float(np.quantile(changes, 0.5 + CONFIDENCE / 2))
        if most > 1 + MOST_CHANGE:
            return law, (), _TOO_WIDE
        return flat, ("1",), None

    def _draw(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return constants, exponents and changes over all sizes, of values drawn from the measured intervals."""
        noise = np.random.default_rng(0).standard_normal((_DRAWS, len(self.values)))
        drawn = self.values[None, :] + noise * self.draw_sigmas[None, :]
        constants, factors, misfits = _solve(self.powers, drawn, self.weights)
        best, rows = misfits.argmin(axis=1), np.arange(_DRAWS)
        constant, factor = constants[rows, best], factors[rows, best]
        first, last = self.powers[best, self.sizes.argmin()], self.powers[best, self.sizes.argmax()]
        changes = (constant + factor * last) / np.maximum(constant + factor * first, 1e-12)
        return constant, _EXPONENTS[best], changes

    def _settle(self, allowed: Sequence[Order], law: PowerLaw) -> tuple[tuple[Order, ...], str | None]:
        """Return the orders between which the growth lies, or why they are too far apart."""
        assert law.exponent is not None
        slopes = {order: _slope(order, self.sizes) for order in _ORDERS}
        if not allowed:
            below = [each for each in _ORDERS if slopes[each] <= law.exponent.low]
            above = [each for each in _ORDERS if slopes[each] >= law.exponent.high]
            if not below or not above:
                return (), "it grows faster than n^3" if below else "its exponent is not known"
            allowed = [below[-1], above[0]]
        low, high = allowed[0], allowed[-1]
        if slopes[high] - slopes[low] > _MOST_RANGE:
            return (), f"the intervals allow every order from {low} to {high}"
        return tuple(dict.fromkeys((low, high))), None


def _solve(bases: np.ndarray, values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the constant, the factor of the basis and the sum of weighted squares, of each value row and basis.

    Both are zero or more, so the best fit with two parameters is the free one or has one of them at zero.
    """
    total = weights.sum()
    of_basis, of_square = (bases * weights).sum(axis=1), (bases**2 * weights).sum(axis=1)
    of_value = (values * weights).sum(axis=1)[:, None]
    product = (values * weights) @ bases.T
    determinant = np.maximum(total * of_square - of_basis**2, 1e-12 * total * of_square)
    factor = (total * product - of_basis * of_value) / np.where(determinant > 0, determinant, 1.0)
    constant = (of_value - factor * of_basis) / total
    alone = np.maximum(product / np.where(of_square > 0, of_square, 1.0), 0.0)
    factor = np.where(constant < 0, alone, factor)
    constant = np.where(factor < 0, np.maximum(of_value / total, 0.0), np.maximum(constant, 0.0))
    factor = np.maximum(factor, 0.0)
    left = values[:, None, :] - constant[:, :, None] - factor[:, :, None] * bases[None, :, :]
    return constant, factor, (left**2 * weights).sum(axis=2)


def _basis(order: Order, sizes: np.ndarray) -> np.ndarray:
    """Return the growing part of an order at each size, at most 1."""
    logs = np.log(sizes)
    shape = {
        "1": np.zeros_like(sizes),
        "log n": logs,
        "n": sizes,
        "n log n": sizes * logs,
        "n^1.5": sizes**1.5,
        "n^2": sizes**2,
        "n^3": sizes**3,
    }[order]
    most = float(shape.max())
    return np.asarray(shape / most) if most > 0 else shape


def _slope(order: Order, sizes: np.ndarray) -> float:
    """Return the exponent that an order has over the larger half of these sizes, on a logarithmic scale."""
    last = float(sizes.max())
    middle = float(np.sqrt(sizes.min() * last))
    first_part, last_part = _basis(order, np.array([max(middle, 1.5), max(last, 2.0)]))
    if order == "1":
        return 0.0
    return float(np.log(last_part / first_part) / np.log(max(last, 2.0) / max(middle, 1.5)))


def _amount(value: float, drawn: np.ndarray, *, margin: float = 0.0) -> Amount:
    low, high = np.quantile(drawn, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    return Amount(value, min(value, float(low)) - margin, max(value, float(high)) + margin)


def _misfit_share(values: np.ndarray, fitted: np.ndarray) -> float:
    return float(np.sqrt(((values - fitted) ** 2 / np.maximum(np.abs(values), 1e-12) ** 2).mean()))
