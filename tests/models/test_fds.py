"""FDS moves features from their bin's statistics to the smoothed ones."""

import numpy as np
import pytest
import torch

from models.fds import FDS


def epoch(fds: FDS, features: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    out = torch.cat([fds(f, t) for f, t in zip(features.split(7), target.split(7), strict=True)])
    fds.end_epoch()
    return out


def test_against_loops():
    """The equations of the module's docstring, bin by bin, in NumPy."""
    rng = np.random.default_rng(0)
    bins, width, n = 6, 3, 120
    target = rng.integers(0, bins, n).astype(np.float32)
    z = (
        rng.normal(size=(n, width)).astype(np.float32) * (1 + target[:, None])
        + target[:, None] ** 2
    )
    fds = FDS(width, 0, bins, kernel_size=3, kernel_sigma=1.0)
    tensors = torch.from_numpy(z), torch.from_numpy(target)[:, None]
    assert torch.equal(epoch(fds, *tensors), tensors[0])  # the first epoch only looks
    got = epoch(fds, *tensors).numpy()

    mean = np.stack([z[target == b].mean(0) for b in range(bins)])
    var = np.stack([z[target == b].var(0, ddof=1) for b in range(bins)])
    kernel = np.exp(-0.5 * np.array([-1.0, 0.0, 1.0]) ** 2)
    for i in range(n):
        b = int(target[i])
        near = [(kernel[o + 1], b + o) for o in (-1, 0, 1) if 0 <= b + o < bins]
        total = sum(k for k, _ in near)
        m = sum(k * mean[c] for k, c in near) / total
        v = sum(k * var[c] for k, c in near) / total
        expected = np.sqrt(np.clip(v / var[b], 0.1, 10)) * (z[i] - mean[b]) + m
        np.testing.assert_allclose(
            got[i], expected, rtol=2e-3, atol=2e-3
        )  # float32 sums of squares


def test_statistics_are_a_running_mean():
    fds = FDS(1, 0, 2, momentum=0.9)
    target = torch.zeros(4, 1)
    epoch(fds, torch.tensor([[1.0], [1.0], [3.0], [3.0]]), target)
    assert fds.mean[0].item() == pytest.approx(2)  # the first epoch is taken as it is
    epoch(fds, torch.tensor([[11.0], [11.0], [13.0], [13.0]]), target)
    assert fds.mean[0].item() == pytest.approx(0.9 * 2 + 0.1 * 12)


def test_bins_never_seen_change_nothing():
    fds = FDS(2, 0, 10)
    epoch(fds, torch.randn(20, 2), torch.full((20, 1), 3.0))
    far = torch.randn(4, 2)
    assert torch.allclose(fds(far, torch.full((4, 1), 9.0)), far)


def test_state_is_in_the_checkpoint():
    fds, other = FDS(2, 0, 4), FDS(2, 0, 4)
    epoch(fds, torch.randn(20, 2), torch.randint(0, 4, (20, 1)).float())
    other.load_state_dict(fds.state_dict())
    x, y = torch.randn(5, 2), torch.randint(0, 4, (5, 1)).float()
    assert torch.equal(fds(x, y), other(x, y))


def test_bad_arguments():
    with pytest.raises(ValueError, match="odd kernel_size"):
        FDS(2, 0, 4, kernel_size=4)
