"""Feature distribution smoothing (Yang et al. 2021), the other half of DIR's LDS + FDS.

Images of neighbouring labels should have neighbouring features. So the mean and variance of the
features in each label bin b, tracked over epochs, are smoothed over the bins with a kernel k,

    m~_b = sum_b' k(b - b') m_b',      v~_b = sum_b' k(b - b') v_b',

and in the next epoch every feature is moved from its bin's statistics to the smoothed ones:

    z~ = sqrt(v~_b / v_b) (z - m_b) + m~_b.

The kernel is the Gaussian one of LDS, with sum one; at the ends the bins are mirrored.

Deviation: DIR computes the statistics in a second pass over the training set. Here they are summed
up during the epoch, which costs nothing and sees the same images. They are used in the next epoch,
in DIR's code one epoch later.

N: images; F: feature width; B: label bins.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..batches import has_ranks
from ..reweight import lds_kernel


class FDS(nn.Module):
    """Smooths features between a backbone and its head, in training only.

    Arguments:
        width: F.
        low, high, step: bins [low, low + step), ... up to high; labels outside go to the end bins.
        kernel_size, kernel_sigma: the Gaussian kernel over bins.
        clip: the least and the greatest change of a variance.
        momentum: how much of the running statistics an epoch keeps.
        first_epoch: the first epoch whose features are smoothed.

    Examples:
        >>> fds = FDS(width=512, low=0, high=100)  # ages
        >>> features = backbone(x)
        >>> pred = head(fds(features, target))  # unchanged in eval mode
        >>> fds.end_epoch()  # after each epoch
    """

    def __init__(
        self,
        width: int,
        low: float,
        high: float,
        step: float = 1.0,
        kernel_size: int = 5,
        kernel_sigma: float = 2.0,
        clip: tuple[float, float] = (0.1, 10.0),
        momentum: float = 0.9,
        first_epoch: int = 1,
    ):
        super().__init__()
        if kernel_size % 2 == 0 or first_epoch < 1:
            got = f"{kernel_size} and {first_epoch}"
            raise ValueError(f"FDS needs an odd kernel_size and first_epoch >= 1, got {got}")
        bins = round((high - low) / step) if step > 0 else 0
        if bins <= kernel_size // 2:
            raise ValueError(f"FDS needs more than {kernel_size // 2} bins, got {bins}")
        self.low, self.step, self.clip = low, step, (clip[0], clip[1])
        self.momentum, self.first_epoch = momentum, first_epoch
        kernel = torch.from_numpy(lds_kernel("gaussian", kernel_size, kernel_sigma)).float()
        zeros, ones = torch.zeros(bins, width), torch.ones(bins, width)
        self.kernel = nn.Buffer(kernel / kernel.sum(), persistent=False)
        self.epoch = nn.Buffer(torch.zeros((), dtype=torch.long))
        self.mean, self.smooth_mean = nn.Buffer(zeros), nn.Buffer(zeros.clone())
        self.total, self.square = nn.Buffer(zeros.clone()), nn.Buffer(zeros.clone())  # this epoch's
        self.var, self.smooth_var = nn.Buffer(ones), nn.Buffer(ones.clone())
        self.seen = nn.Buffer(torch.zeros(bins))  # 1 if a bin has had a sample
        self.count = nn.Buffer(torch.zeros(bins))  # of this epoch

    def forward(self, features: Tensor, target: Tensor, known: Tensor | None = None) -> Tensor:
        """(N, F), (N, 1) -> (N, F), in float32 and without synchronising the GPU. Samples that are
        not `known`, (N,), are neither smoothed nor counted. In eval mode nothing is.
        """
        if not self.training:
            return features
        # In this order 2 m in steps of 0.1 m, which float32 cannot represent, falls into the same
        # bin as in DIR's code.
        bins = (target[:, 0].float() * (1 / self.step) - self.low / self.step).floor().long()
        bins = bins.clamp(0, len(self.count) - 1)
        self._collect(features.detach().float(), bins, known)
        ratio = (self.smooth_var / self.var.clamp(min=1e-30)).clamp(*self.clip)
        exact = features.to(torch.promote_types(features.dtype, torch.float32))
        smooth = (exact - self.mean[bins]) * ratio[bins].sqrt() + self.smooth_mean[bins]
        # A feature without variance in its bin is not smoothed either.
        moved = (self.epoch >= self.first_epoch) & (self.var[bins] > 0)
        moved = moved if known is None else moved & known[:, None]
        return torch.where(moved, smooth.to(features.dtype), features)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Update the running statistics with the epoch's, and smooth them."""
        some = self.count > 0
        n = self.count.clamp(min=1)[:, None]
        mean = self.total / n
        var = ((self.square - n * mean**2) / (n - 1).clamp(min=1)).clamp(min=0)
        keep = self.momentum * self.seen[:, None]  # 0 for a bin seen for the first time
        self.mean.copy_(torch.where(some[:, None], keep * self.mean + (1 - keep) * mean, self.mean))
        self.var.copy_(torch.where(some[:, None], keep * self.var + (1 - keep) * var, self.var))
        self.seen.copy_(torch.maximum(self.seen, some.float()))
        self.smooth_mean.copy_(self._smooth(self.mean))
        self.smooth_var.copy_(self._smooth(self.var))
        for sums in (self.count, self.total, self.square):
            sums.zero_()
        self.epoch += 1

    @torch.no_grad()
    def _collect(self, features: Tensor, bins: Tensor, known: Tensor | None) -> None:
        """Add to the sums of the epoch, over all ranks."""
        width = features.shape[1]
        added = torch.cat([features, features**2, features.new_ones(len(features), 1)], 1)
        added = added if known is None else torch.where(known[:, None], added, 0)
        sums = features.new_zeros(len(self.count), 2 * width + 1).index_add_(0, bins, added)
        if has_ranks():
            torch.distributed.all_reduce(sums)
        self.total += sums[:, :width]
        self.square += sums[:, width:-1]
        self.count += sums[:, -1]

    def _smooth(self, table: Tensor) -> Tensor:
        """Return kernel averages over the bins; an unseen bin has mean 0 and variance 1."""
        pad = len(self.kernel) // 2
        columns = functional.pad(table.T[:, None], (pad, pad), mode="reflect")  # (F, 1, B + 2 pad)
        return functional.conv1d(columns, self.kernel[None, None])[:, 0].T
