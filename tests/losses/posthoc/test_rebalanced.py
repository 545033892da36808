"""RebalancedRegressor: scikit-learn's contract, its dial, weights and several outputs."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from losses import RebalancedRegressor

RNG = np.random.default_rng(0)
Y = RNG.normal(size=1000)
X = np.stack([Y + RNG.normal(size=1000), RNG.normal(size=1000)], 1)  # least squares: slope 1/2
EVEN = np.stack([np.linspace(-2, 2, 50), np.zeros(50)], 1)


@pytest.mark.filterwarnings("ignore:.*held-out:UserWarning")  # the checks have few samples
def test_it_keeps_scikit_learns_contract():
    weights = {  # as of CalibratedClassifierCV: a sample and its copy may be in different folds
        f"check_sample_weight_equivalence_on_{kind}_data": "cross-validation"
        for kind in ("dense", "sparse")
    }
    results = check_estimator(RebalancedRegressor(), on_skip=None, expected_failed_checks=weights)
    failed = {r["check_name"] for r in results if r["status"] != "passed"}
    assert failed <= {"check_array_api_input", *weights}
    assert len(results) > 40


@pytest.mark.parametrize("method", ["theorem", "isotonic", "blend"])
def test_the_dial_goes_from_plain_to_balanced(method):
    model = RebalancedRegressor(method=method, criterion="brmse").fit(X, Y)
    plain = LinearRegression().fit(X, Y).predict(EVEN)
    np.testing.assert_allclose(model.predict(EVEN, strength=0.0), plain)
    slopes = [np.polyfit(EVEN[:, 0], model.predict(EVEN, strength=s), 1)[0] for s in (0, 0.5, 1)]
    assert (np.diff(slopes) > 0.05).all()
    assert slopes[0] == pytest.approx(0.5, abs=0.05)


def test_maximum_likelihood_restores_the_slope():
    model = RebalancedRegressor(criterion="nll").fit(X, Y)
    near = EVEN[15:-15]
    assert np.polyfit(near[:, 0], model.predict(near), 1)[0] == pytest.approx(1.0, abs=0.12)
    assert model.sigma_ == pytest.approx([1.0], rel=0.1)


def test_several_outputs_pipelines_and_search():
    both = np.stack([Y, 10 * Y + 3], 1)
    model = RebalancedRegressor(criterion="nll").fit(X, both)
    np.testing.assert_allclose(model.sigma_[1], 10 * model.sigma_[0], rtol=0.02)
    assert model.predict(EVEN).shape == (50, 2)
    pipeline = make_pipeline(StandardScaler(), RebalancedRegressor(Ridge(), cv=3))
    search = GridSearchCV(pipeline, {"rebalancedregressor__strength": [0.0, 1.0]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"rebalancedregressor__strength": 0.0}  # R^2 is not balanced
    inner = RebalancedRegressor(make_pipeline(StandardScaler(), Ridge()))
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert list(clone(inner).fit(frame, Y).feature_names_in_) == ["a", "b"]
    outer = TransformedTargetRegressor(RebalancedRegressor(cv=2), func=np.exp, inverse_func=np.log)
    assert np.isfinite(outer.fit(X, Y).predict(EVEN)).all()


def test_weights_reach_the_regressor_and_the_prior():
    rare = Y > 1.5
    weight = np.where(rare, 0.0, 1.0)
    found = RebalancedRegressor(criterion="nll").fit(X, Y, sample_weight=weight)
    without = RebalancedRegressor(criterion="nll").fit(X[~rare], Y[~rare])
    np.testing.assert_allclose(found.predict(EVEN), without.predict(EVEN), rtol=1e-6)
    heavy = RebalancedRegressor().fit(X, Y, sample_weight=np.where(rare, 20.0, 1.0))
    assert heavy.predict(EVEN, strength=0.0).mean() > found.predict(EVEN, strength=0.0).mean()


def test_any_regressor():
    model = RebalancedRegressor(HistGradientBoostingRegressor(max_iter=5), cv=2).fit(X, Y)
    assert np.isfinite(model.predict(EVEN)).all()
    with pytest.warns(UserWarning, match="Balancing cannot help"):
        constant = RebalancedRegressor(DummyRegressor(strategy="constant", constant=0.5)).fit(X, Y)
    assert (constant.predict(EVEN) == 0.5).all()


def test_unit_weights_change_nothing():
    for settings in ({"power": 0.25, "criterion": "nll"}, {"cv": np.int64(5)}):
        models = [RebalancedRegressor(**settings).fit(X, Y, w) for w in (None, np.ones(len(Y)))]
        np.testing.assert_allclose(*(model.predict(EVEN) for model in models), rtol=1e-6)


def test_weights_with_given_splits_or_a_regressor_that_takes_none():
    weight = np.where(np.arange(len(Y)) < 5, 0.0, 1.0)
    splits = list(KFold(4).split(X))
    assert RebalancedRegressor(cv=splits).fit(X, Y, weight).sigma_ > 0
    with pytest.warns(UserWarning, match="KNeighborsRegressor.fit takes no sample_weight"):
        RebalancedRegressor(KNeighborsRegressor()).fit(X, Y, weight)


def test_the_dial_can_be_turned_up_from_zero():
    model = RebalancedRegressor(strength=0.0).fit(X, Y)
    expected = RebalancedRegressor().fit(X, Y).predict(EVEN)
    np.testing.assert_allclose(model.predict(EVEN, strength=1.0), expected, rtol=1e-3)
