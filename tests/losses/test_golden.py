"""Numbers recorded from the public implementations, on the inputs recorded with them."""

import re

import numpy as np
import pytest
import torch

from losses import BMC, BNI, GAI, Bins, GaussianMixture
from losses.reweight import bin_weights, histogram, label_weights, smooth
from tests.recorded import recorded

LOSSES, AGES, DEPTHS = recorded("losses"), recorded("age_weights"), recorded("depth_bins")
DEPTHS_FROM = 7  # bins of 0.1 m below 0.7 m are empty


def tensor(name: str) -> torch.Tensor:
    return torch.from_numpy(LOSSES[name])


def mixture(name: str) -> GaussianMixture:
    return GaussianMixture(
        *(tensor(f"{name}_{part}") for part in ("weights", "means", "variances"))
    )


def check(loss, pred, target, name: str, rel: float) -> None:
    pred = tensor(pred).requires_grad_()
    value = loss(pred, tensor(target))
    value.backward()
    assert value.item() == pytest.approx(LOSSES[f"{name}_loss"].item(), rel=rel)
    np.testing.assert_allclose(pred.grad, LOSSES[f"{name}_dpred"], rtol=rel, atol=rel)
    sigma = loss.likelihood.sigma.grad.item()
    assert sigma == pytest.approx(LOSSES[f"{name}_dsigma"].item(), rel=rel)


# 1e-6 is what is promised for one dimension, 1e-5 for several, where the recorded numbers went
# through a Cholesky factorisation of every covariance.
@pytest.mark.parametrize("sigma", [8, 1])
@pytest.mark.parametrize("name", ["gai", "bmc", "bni"])
def test_one_dimension(name, sigma):
    s = torch.tensor(float(sigma), dtype=torch.float64)
    makers = {
        "gai": lambda: GAI(mixture("gmm"), s, learn_sigma=True),
        "bmc": lambda: BMC(s, learn_sigma=True),
        "bni": lambda: BNI(Bins(tensor("bin_centers"), tensor("bin_weights")), s, True),
    }
    check(makers[name](), "pred1", "target1", f"{name}_s{sigma}", rel=1e-6)


@pytest.mark.parametrize("name", ["gaim", "bmcm"])
def test_six_dimensions(name):
    s = torch.tensor(1.3, dtype=torch.float64)
    loss = GAI(mixture("gmmm"), s, True) if name == "gaim" else BMC(s, True)
    check(loss, "predm", "targetm", name, rel=1e-5)


AGE_EDGES = np.arange(122)


def settings(name: str) -> dict:
    """Return the options of `bin_weights` from the name of an array."""
    scheme, kernel, size, sigma = re.fullmatch(
        r"\w*weights_(inverse|sqrt_inv)_(?:plain|lds_(\w+)_(\d)_(\d))", name
    ).groups()
    scheme = "inverse" if scheme == "inverse" else "sqrt_inverse"
    lds = {"kernel": kernel, "size": int(size), "sigma": int(sigma)} if kernel else None
    return {"scheme": scheme, "lds": lds}


# 1e-6: the public weights are float32 (7 digits), though stored as float64.
@pytest.mark.parametrize("name", [name for name in AGES if name.startswith("weights_")])
def test_age_weights(name):
    options = settings(name)
    ours = bin_weights(histogram(AGES["train_labels"], AGE_EDGES), **options)
    np.testing.assert_allclose(ours, AGES[name], rtol=1e-6)
    per_label = label_weights(AGES["train_labels"], AGE_EDGES, **options)
    np.testing.assert_allclose(per_label, AGES[name][AGES["train_labels"]], rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in DEPTHS if name.startswith("bucket_weights_")])
def test_depth_weights(name):
    options = settings(name)
    lds = options.pop("lds")
    lds = lds and {**lds, "padding": "reflect"}
    counts = DEPTHS["train_depth_histogram"][DEPTHS_FROM:]
    ours = bin_weights(counts, clip=None, lds=lds, **options)
    np.testing.assert_allclose(ours, DEPTHS[name][DEPTHS_FROM:], rtol=1e-6)

    # the same from bin centres and how often each occurs, as the depth experiments do
    edges = np.linspace(0.7, 10.0, 94)
    every = DEPTHS["train_depth_histogram"]
    table = label_weights(DEPTHS["bni_centers"], edges, every, clip=None, lds=lds, **options)
    np.testing.assert_allclose(table, DEPTHS[name], rtol=1e-6)  # the empty bins have the first's
    # BNI's prior is the same density, the empty bins filled with the first one's
    expected = DEPTHS[name.replace("bucket", "bni")]
    if options["scheme"] == "inverse":
        smoothing, bounds = lds and {**lds, "whole": True}, np.linspace(0, 10, 101)
        given = {"sample_weight": every, "fill_below": True}
        prior = Bins.fit(DEPTHS["bni_centers"], bounds, smoothing, **given)
    else:
        density = np.sqrt(counts) if lds is None else smooth(np.sqrt(counts), **lds)
        filled = np.concatenate([np.repeat(density[:1], DEPTHS_FROM), density])
        prior = Bins(DEPTHS["bni_centers"], filled)
    np.testing.assert_allclose(prior.weights, expected, rtol=1e-6)
    np.testing.assert_allclose(prior.centers, DEPTHS["bni_centers"], rtol=1e-6)
