"""Per-sample errors: values by hand, against SciPy, and laws of Procrustes."""

import numpy as np
import pytest
import roma
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from metrics import errors, mean_distance, pa_mpjpe


def by_scipy(pred: np.ndarray, target: np.ndarray) -> float:
    """PA-MPJPE of one sample (P, 3)."""
    x, y = pred - pred.mean(0), target - target.mean(0)
    turned = Rotation.align_vectors(y, x)[0].apply(x)
    scale = (turned * y).sum() / (x * x).sum()
    return float(np.linalg.norm(scale * turned - y, axis=1).mean())


def bodies(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(5, 14, 3))
    pred = target + rng.normal(scale=0.3, size=target.shape)
    return torch.from_numpy(pred), torch.from_numpy(target)


def similar(points: torch.Tensor, seed: int) -> torch.Tensor:
    """Apply a random rotation, scale and shift to each sample."""
    generator = torch.Generator().manual_seed(seed)
    n = len(points)
    vectors = torch.randn(n, 3, dtype=points.dtype, generator=generator)
    scale = torch.rand(n, 1, 1, dtype=points.dtype, generator=generator) * 3 + 0.2
    shift = torch.randn(n, 1, 3, dtype=points.dtype, generator=generator) * 5
    return scale * (points @ roma.rotvec_to_rotmat(2 * vectors).mT) + shift


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_pa_mpjpe_matches_scipy_and_ignores_similarities(seed, reflected):
    pred, target = bodies(seed)
    if reflected:
        pred = pred * torch.tensor([-1.0, 1.0, 1.0])
    found = pa_mpjpe(pred, target)
    expected = [by_scipy(p, t) for p, t in zip(pred.numpy(), target.numpy(), strict=True)]
    # 1e-7: nearly equal singular values (reflected bodies) lose half the digits.
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    # 1e-9: shifts of 5 to 20 body sizes cost one or two of the sixteen digits.
    torch.testing.assert_close(pa_mpjpe(similar(pred, seed), target), found, rtol=1e-9, atol=0)


def test_pa_mpjpe_of_copies_reflections_and_points():
    _, target = bodies(0)
    # 1e-12: rounding of coordinates of size 10.
    assert pa_mpjpe(similar(target, 1), target).max() < 1e-12
    # 0.1: far above rounding; a fit with reflections would give 0.
    assert pa_mpjpe(target * torch.tensor([-1.0, 1.0, 1.0]), target).min() > 0.1
    spread = mean_distance(target, target.mean(1, keepdim=True).expand_as(target))
    for constant in (0.0, 0.3):  # all points coincide: the fit puts them on the centroid
        error = pa_mpjpe(torch.full_like(target, constant), target)
        # 1e-12: centring 0.3 leaves rounding of 1e-17, which the fit may scale up a little.
        torch.testing.assert_close(error, spread, rtol=1e-12, atol=0)


def test_points_may_be_float32_numpy_with_gradient_or_empty():
    pred, target = bodies(0)
    single = pa_mpjpe(pred.float().requires_grad_(), target.float().numpy())
    assert single.dtype == torch.float64
    assert not single.requires_grad
    # 1e-5: the inputs were rounded to float32.
    torch.testing.assert_close(single, pa_mpjpe(pred, target), rtol=1e-5, atol=0)
    assert pa_mpjpe(torch.zeros(0, 14, 3), torch.zeros(0, 14, 3)).shape == (0,)


@pytest.mark.parametrize("function", [pa_mpjpe, mean_distance])
@pytest.mark.parametrize("shapes", [((4, 14, 3), (4, 13, 3)), ((4, 42), (4, 42)), ((0,), (0,))])
def test_points_of_a_wrong_shape(function, shapes):
    with pytest.raises(ValueError, match=r"must both be \(N, points, 3\); got .*Reshape"):
        function(*(torch.zeros(shape) for shape in shapes))


def test_errors_by_hand():
    points = np.array([[[3, 4, 0], [0, 0, 1]], [[0, 0, 0], [1, 2, 2]]])
    assert mean_distance(np.zeros((2, 2, 3)), points).tolist() == [3.0, 1.5]
    pred, target = torch.tensor([1.25, 0.8125, 0.75, 1.5, 0.0, -1.0]), torch.ones(6)
    assert errors.within_ratio(pred, target, power=1).tolist() == [1, 1, 0, 0, 0, 0]
    assert errors.within_ratio(pred, target, power=2).tolist() == [1, 1, 1, 1, 0, 0]
