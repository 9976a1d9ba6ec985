"""Lengths by formula: families, cuts, correlation, and agreement of strata and draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from models.workload.distribution import request_moments
from models.workload.parametric import (
    LengthFormula,
    RequestFormula,
    draw_requests,
    formula_distribution,
    length_quantile,
)

WIDE = {family: LengthFormula(2000, 1500, family) for family in ("lognormal", "gamma")}


@pytest.mark.parametrize("family", WIDE)
def test_positive_families_keep_their_mean_and_spread(family):
    atoms = formula_distribution(RequestFormula(WIDE[family], LengthFormula(100)))
    mean = atoms.weight @ atoms.input_tokens
    assert mean == pytest.approx(2000, rel=2e-3)
    assert (atoms.weight @ atoms.input_tokens**2 - mean**2) ** 0.5 == pytest.approx(1500, rel=1e-2)


def test_normal_cut_at_one_token_has_the_mean_of_the_truncated_normal():
    # closed form of a normal truncated at half a token, where rounding goes to 1
    expected = stats.truncnorm((0.5 - 150) / 80, np.inf, 150, 80).mean()
    atoms = formula_distribution(RequestFormula(LengthFormula(550, 150), LengthFormula(150, 80)))
    assert atoms.weight @ atoms.output_tokens == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("correlation", [-0.6, 0.0, 0.8])
def test_strata_and_draws_agree(correlation):
    # 40,000 draws: the mean of lengths with cv 0.75 is within 1.5 % but for one run in 10,000
    formula = RequestFormula(WIDE["gamma"], LengthFormula(300, 200, "lognormal"), correlation)
    moments = request_moments(formula_distribution(formula))
    drawn = draw_requests(formula, 40_000, seed=3)
    assert drawn.input_tokens.mean() == pytest.approx(moments.input_tokens, rel=0.015)
    assert drawn.output_tokens.mean() == pytest.approx(moments.output_tokens, rel=0.015)
    context = (drawn.output_tokens * (drawn.input_tokens + drawn.output_tokens / 2)).mean() / drawn.output_tokens.mean()
    assert context == pytest.approx(moments.context_tokens, rel=0.03)


def test_correlation_of_the_normal_scores_is_that_asked_for():
    drawn = draw_requests(RequestFormula(WIDE["gamma"], WIDE["gamma"], 0.7), 20_000, seed=0)
    rank = stats.spearmanr(drawn.input_tokens, drawn.output_tokens).statistic
    # rank correlation of a Gaussian copula: 6 / pi asin(rho / 2)
    assert rank == pytest.approx(6 / np.pi * np.arcsin(0.35), abs=0.02)


@pytest.mark.parametrize("family", ["normal", "lognormal", "gamma"])
def test_quantiles_are_those_of_an_independent_implementation(family):
    mean, std, sigma = 900.0, 200.0, np.sqrt(np.log1p((200 / 900) ** 2))
    independent = {
        "normal": stats.norm(mean, std),
        "lognormal": stats.lognorm(sigma, scale=mean * np.exp(-(sigma**2) / 2)),
        "gamma": stats.gamma((mean / std) ** 2, scale=std**2 / mean),
    }[family]
    shares = np.array([0.01, 0.3, 0.5, 0.9, 0.999])
    np.testing.assert_allclose(
        length_quantile(LengthFormula(mean, std, family), shares), independent.ppf(shares), rtol=1e-4
    )


def test_limits_hold_for_strata_and_draws():
    length = LengthFormula(1000, 900, min_tokens=200, max_tokens=1200)
    formula = RequestFormula(length, length)
    drawn = draw_requests(formula, 5000, seed=0)
    atoms = formula_distribution(formula)
    for values in (drawn.input_tokens, atoms.input_tokens, atoms.output_tokens):
        assert values.min() >= 200
        assert values.max() <= 1200


def test_no_spread_is_one_atom():
    atoms = formula_distribution(RequestFormula(LengthFormula(1000), LengthFormula(500)))
    assert len(atoms.weight) == 1
    assert atoms.input_tokens[0] == pytest.approx(1000)


def test_same_seed_gives_the_same_requests():
    formula = RequestFormula(WIDE["gamma"], WIDE["lognormal"], 0.3, prefix_hit_fraction=0.5)
    first, second = draw_requests(formula, 100, seed=7), draw_requests(formula, 100, seed=7)
    np.testing.assert_array_equal(first.input_tokens, second.input_tokens)
    np.testing.assert_array_equal(first.cached_prefix_tokens, np.floor(first.input_tokens / 2))


def test_draws_from_a_distribution_follow_its_weights():
    atoms = formula_distribution(RequestFormula(WIDE["gamma"], LengthFormula(100)))
    drawn = draw_requests(atoms, 40_000, seed=0)
    assert drawn.input_tokens.mean() == pytest.approx(atoms.weight @ atoms.input_tokens, rel=0.015)


def test_quantiles_rise():
    quantiles = length_quantile(WIDE["lognormal"], np.linspace(0.01, 0.99, 30))
    assert (np.diff(quantiles) > 0).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LengthFormula(0), "mean must be at least 1"),
        (lambda: LengthFormula(10, -1), "std must be zero or positive"),
        (lambda: LengthFormula(np.nan), "mean must be at least 1"),
        (lambda: LengthFormula(10, 5, "weibull"), "unknown length family 'weibull'"),
        (lambda: LengthFormula(10, 5, max_tokens=0.5), "max must be at least 1"),
        (lambda: LengthFormula(10, 1, min_tokens=900), "beyond normal"),
        (lambda: RequestFormula(LengthFormula(10), LengthFormula(10), 1.5), "correlation must be between -1 and 1"),
        (lambda: RequestFormula(LengthFormula(10), LengthFormula(10), 0, 2.0), "prefix_hit_fraction must be between"),
    ],
)
def test_bad_formula_is_refused(build, message):
    with pytest.raises((ValueError, LookupError), match=message):
        build()
