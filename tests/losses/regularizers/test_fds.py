"""FDS moves features from their bin's statistics to the smoothed ones."""

import numpy as np
import pytest
import torch

from losses.regularizers import FDS


def epoch(fds: FDS, features: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    out = torch.cat([fds(f, t) for f, t in zip(features.split(7), target.split(7), strict=True)])
    fds.end_epoch()
    return out


# The first eight features that the released modules give for those of the test below, and the sum
# of squares of all: of ages 0..7, and of depths in 0.1 m bins from 0.75 m on.
AGES = [[2.10618, 2.07646], [5.04337, 5.36483], [8.50612, 3.91574], [11.32113, 10.09466]]
AGES += [[14.0013, 22.97055], [21.73277, 24.09723], [30.88815, 29.51802], [38.83767, 40.95039]]
DEPTHS = [[2.1005, 2.07646], *AGES[1:]]  # another bound of the variance's change


@pytest.mark.parametrize(
    ("options", "scale", "first", "squares"),
    [
        ({"low": 0, "high": 8}, 1.0, AGES, 56787.7422),
        ({"low": 0.7, "high": 1.5, "step": 0.1, "clip": (0.2, 5)}, 0.1, DEPTHS, 56783.8477),
    ],
    ids=["ages", "depths"],
)
def test_numbers_of_the_released_code(options, scale, first, squares):
    i = torch.arange(64.0)
    label = i % 8
    z = torch.stack([torch.sin(i * (j + 1)) * (1 + label) + label**2 for j in range(2)], 1)
    target = label[:, None] if scale == 1 else (0.75 + label[:, None] / 10)
    fds = FDS(2, kernel_size=5, kernel_sigma=2.0, **options)
    assert torch.equal(epoch(fds, z, target), z)  # the first epoch collects statistics
    got = fds(z, target)
    # 3e-5: variances from float32 sums of squares
    np.testing.assert_allclose(got[:8], first, rtol=3e-5, atol=3e-5)
    assert got.square().sum().item() == pytest.approx(squares, rel=3e-5)


def test_a_variance_keeps_its_digits_far_from_zero():
    """Mean 1000, deviation 1, in float32, against a sum in float64."""
    fds, z = FDS(3, 0, 4), 1000 + torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    epoch(fds, z, torch.ones(500, 1))
    torch.testing.assert_close(fds.var[1], z.double().var(0).float(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("shape", [(4,), (4, 2), (3, 1)])
def test_labels_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"target \(N, 1\), got \(4, 2\) and"):
        FDS(2, 0, 4)(torch.zeros(4, 2), torch.zeros(shape))


def test_statistics_are_a_running_mean():
    fds = FDS(1, 0, 4, momentum=0.9)
    target = torch.zeros(4, 1)
    epoch(fds, torch.tensor([[1.0], [1.0], [3.0], [3.0]]), target)
    assert fds.mean[0].item() == pytest.approx(2)  # the first epoch is taken as it is
    epoch(fds, torch.tensor([[11.0], [11.0], [13.0], [13.0]]), target)
    assert fds.mean[0].item() == pytest.approx(0.9 * 2 + 0.1 * 12)


def test_state_is_in_the_checkpoint_and_unseen_bins_change_nothing():
    fds, other = FDS(2, 0, 10), FDS(2, 0, 10)
    epoch(fds, torch.randn(20, 2), torch.randint(0, 4, (20, 1)).float())
    other.load_state_dict(fds.state_dict())
    x, y = torch.randn(5, 2), torch.tensor([[0.0], [1], [2], [3], [9]])
    assert torch.equal(fds(x, y), other(x, y))
    assert torch.equal(fds(x, y)[4], x[4])


@pytest.mark.parametrize(
    "options", [{"kernel_size": 4}, {"first_epoch": 0}, {"kernel_size": 9}, {"step": 0}]
)
def test_bad_arguments(options: dict):
    with pytest.raises(ValueError, match="FDS "):
        FDS(2, 0, 4, **options)


def test_a_depth_on_an_edge_is_in_the_bin_that_it_opens():
    """Whole decimetres from 0.7 m on, each with features of its own: DIR's bin is floor(10 y)."""
    depth = torch.arange(7, 100).repeat_interleave(2).float() / 10
    fds = FDS(1, low=0.7, high=10, step=0.1)
    fds.train()
    fds(depth[:, None].clone(), depth[:, None])
    assert fds.count.tolist() == [2.0] * 93


def test_small_features_keep_their_spread_and_eval_mode_changes_nothing():
    torch.manual_seed(0)
    features, target = torch.randn(400, 6), torch.arange(10.0).repeat_interleave(40)[:, None]
    for scale in (1.0, 1e-4):
        fds, z = FDS(6, 0, 10), scale * features
        fds(z, target)
        fds.end_epoch()
        assert (fds(z, target).std() / z.std()).item() == pytest.approx(0.99, abs=0.03)
    before = fds.count.clone()
    assert fds.eval()(z, target) is z
    assert torch.equal(fds.count, before)
