"""The fit of a cost against size, on values whose growth is known: the answers were written before the fit was run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from joulediff.measuring.scaling.fit import Costs, fit_growth
from joulediff.model.apis.scaling import Growth

SIZES = np.array([1e3, 3162, 1e4, 31623, 1e5, 316228, 1e6])
Cost = Callable[[np.ndarray], np.ndarray]

GROWTHS: dict[str, tuple[Cost, tuple[str, ...]]] = {
    "constant": (lambda n: np.full_like(n, 4.0), ("1",)),
    "log n": (lambda n: np.log(n), ("log n",)),
    "n": (lambda n: 3e-6 * n, ("n",)),
    "n log n": (lambda n: 2e-9 * n * np.log(n), ("n log n",)),
    "n^1.5": (lambda n: n**1.5, ("n^1.5",)),
    "n^2": (lambda n: 1e-12 * n**2, ("n^2",)),
    "n^3": (lambda n: 1e-15 * n**3, ("n^3",)),
    "n with overhead": (lambda n: 0.3 + 1e-5 * n, ("n",)),
    "n^2 with overhead": (lambda n: 5.0 + 1e-10 * n**2, ("n^2",)),
    "n^1.2": (lambda n: n**1.2, ("n log n", "n^1.5")),
}


def fit(values: np.ndarray, *, share: float, sizes: np.ndarray = SIZES) -> Growth:
    return fit_growth("energy", None, Costs(sizes, values, share * np.abs(values)))


def holds(growth: Growth, order: tuple[str, ...]) -> bool:
    """Return whether the orders of a growth include the true one."""
    orders = ("1", "log n", "n", "n log n", "n^1.5", "n^2", "n^3")
    first, last = orders.index(growth.orders[0]), orders.index(growth.orders[-1])
    return first <= orders.index(order[0]) and orders.index(order[-1]) <= last


@pytest.mark.parametrize("name", GROWTHS)
def test_exact_values_have_their_order(name: str) -> None:
    cost, order = GROWTHS[name]
    found = fit(cost(SIZES), share=0.003)
    assert found.orders == order
    assert found.reason is None
    assert found.law is not None
    assert found.law.misfit_share < 0.03


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.2, 2.0, 3.0])
def test_the_exponent_is_within_its_interval(exponent: float) -> None:
    found = fit(1e-6 * SIZES**exponent, share=0.01)
    assert found.law is not None
    assert found.law.exponent is not None
    assert found.law.exponent.low <= exponent <= found.law.exponent.high
    assert found.law.exponent.value == pytest.approx(exponent, abs=0.02)
    assert found.law.exponent.high - found.law.exponent.low < 0.2


@pytest.mark.parametrize("name", GROWTHS)
def test_noise_within_the_intervals_never_excludes_the_order(name: str) -> None:
    cost, order = GROWTHS[name]
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(40):
        noisy = cost(SIZES) * (1 + 0.02 * rng.standard_normal(len(SIZES)))
        found = fit(noisy, share=0.02)
        wrong += bool(found.orders) and not holds(found, order)
    assert wrong <= 4, "an interval of 95 % may miss in 2 of 40"


def test_overhead_is_the_constant_and_does_not_lower_the_exponent() -> None:
    found = fit(2.0 + 4e-5 * SIZES, share=0.005)
    assert found.law is not None
    assert found.law.constant.low <= 2.0 <= found.law.constant.high
    assert found.law.exponent is not None
    assert found.law.exponent.value == pytest.approx(1.0, abs=0.05)
    assert found.law.equal_at == pytest.approx(5e4, rel=0.1)
    assert found.law.value_at(1e6) == pytest.approx(42.0, rel=0.02)


def test_a_constant_has_no_exponent() -> None:
    found = fit(np.full(7, 0.25), share=0.01)
    assert found.law is not None
    assert found.law.exponent is None
    assert found.law.equal_at is None
    assert found.law.value_at(10) == pytest.approx(0.25)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_sizes_have_no_order(count: int) -> None:
    found = fit(SIZES[:count], share=0.01, sizes=SIZES[:count])
    assert found.orders == ()
    assert found.law is None
    assert found.reason == f"{count} sizes are too few to see growth; measure 3 or more"


def test_one_size_three_times_is_one_size() -> None:
    assert "1 sizes are too few" in str(fit(np.ones(3), share=0.01, sizes=np.full(3, 1e3)).reason)


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 5.0, 2.0, 9.0, 1.0, 7.0, 3.0],
        [100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1],
        [1.0, 1.0, 1.0, 50.0, 1.0, 1.0, 1.0],
    ],
)
def test_values_that_are_not_monotone_have_no_order(values: list[float]) -> None:
    found = fit(np.array(values), share=0.01)
    assert found.orders == ()
    assert found.reason is not None


def test_growth_hidden_in_the_overhead_is_not_claimed() -> None:
    found = fit(1.0 + 0.04 * SIZES**2 / 1e12, share=0.02)
    assert found.orders in ((), ("1",))
    unsure = fit(1.0 + 0.3 * SIZES / 1e6, share=0.08)
    assert unsure.orders == ()
    assert unsure.reason is not None


def test_wide_intervals_are_not_called_constant() -> None:
    rng = np.random.default_rng(3)
    found = fit(1.0 + 0.1 * rng.standard_normal(7), share=0.5)
    assert found.orders == ()
    assert "too wide" in str(found.reason)


def test_narrow_sizes_leave_the_order_open() -> None:
    sizes = np.array([1000.0, 1050.0, 1100.0])
    found = fit(sizes**1.0, share=0.02, sizes=sizes)
    assert found.orders == ()


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0]])
def test_values_without_a_meaning_have_no_order(values: list[float]) -> None:
    found = fit_growth("net energy", "gpu0", Costs([1, 2, 4], values, [0.1, 0.1, 0.1]))
    assert (found.quantity, found.domain, found.orders, found.law) == ("net energy", "gpu0", (), None)
    assert found.reason == "its values are not positive numbers"


def test_faster_than_cubic_growth_has_an_exponent_and_no_order() -> None:
    found = fit(1e-24 * SIZES**4, share=0.01)
    assert found.orders == ()
    assert found.reason == "it grows faster than n^3"
    assert found.law is not None
    assert found.law.exponent is not None
    assert found.law.exponent.value == pytest.approx(4.0, abs=0.02)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e6])
def test_the_unit_does_not_matter(unit: float) -> None:
    found = fit(unit * (1.0 + 1e-4 * SIZES), share=0.01)
    assert found.orders == ("n",)
    assert found.law is not None
    assert found.law.constant.value == pytest.approx(unit, rel=0.1)
    assert found.law.factor == pytest.approx(1e-4 * unit, rel=0.2)
