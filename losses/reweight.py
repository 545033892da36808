"""Re-weighting baselines and label distribution smoothing (LDS).

    loss = mean_i w_i error(pred_i, target_i)

The weights w_i = `label_weights` grow as a label gets rarer: inverse or square-root inverse label
frequencies, either of them smoothed. LDS (Yang et al., ICML 2021) convolves the label histogram
with a symmetric kernel of peak one.

N: samples; D: label dimensions; B: label bins.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from .batches import as_array, check_samples, check_tensors, even
from .likelihoods import Likelihood

Error = Literal["mse", "l1", "huber", "focal_mse", "focal_l1"]
Kernel = Literal["gaussian", "triang", "laplace"]
Padding = Literal["constant", "reflect"]
SHAPES = Likelihood()  # checks that pred and target have the same shape


class WeightedLoss(nn.Module):
    """loss(pred (N, D), target (N, D), weight (N,) or None) -> scalar.

    error: mse, l1, huber (quadratic below `delta`), or the focal forms, which scale each error by
    (2 sigmoid(beta |r|) - 1)^gamma, so that well-fitted samples count less (Yang et al., ICML
    2021). normalise: divide the weights by their sum in the batch (the paper's synthetic
    baseline), instead of trusting that their mean over the training set is one (DIR's
    convention). Computed in float32 or better whatever the autocast state.
    """

    def __init__(
        self,
        error: Error = "mse",
        normalise: bool = False,
        delta: float = 1.0,
        beta: float = 0.2,
        gamma: float = 1.0,
    ):
        super().__init__()
        if error not in Error.__args__:
            raise ValueError(f"error is one of {', '.join(Error.__args__)}, got {error!r}")
        self.error, self.normalise = error, normalise
        self.delta, self.beta, self.gamma = delta, beta, gamma

    def forward(self, pred: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        check_tensors(pred, target)
        with torch.autocast(pred.device.type, enabled=False):
            pred = pred.to(torch.promote_types(pred.dtype, torch.float32))
            pred, target = SHAPES.as_rows(pred, target)
            target, weight = check_samples(pred, target, weight)
            errors = self.errors(pred, target)
            if weight is None:
                return errors.mean()
            return weight @ errors / (weight.sum() if self.normalise else len(errors))

    def errors(self, pred: Tensor, target: Tensor) -> Tensor:
        """(N, D), (N, D) -> (N,), summed over the dimensions."""
        size = (pred - target).abs()
        if self.error == "huber":
            zero = torch.zeros_like(size)
            return functional.huber_loss(size, zero, reduction="none", delta=self.delta).sum(-1)
        error = size if self.error.endswith("l1") else size.square()
        if self.error.startswith("focal"):
            error = error * (2 * torch.sigmoid(self.beta * size) - 1) ** self.gamma
        return error.sum(-1)


def histogram(
    labels: ArrayLike, edges: ArrayLike, sample_weight: ArrayLike | None = None
) -> NDArray:
    """(B,) counts of the labels in the B bins between B + 1 edges; labels outside are an error.

    sample_weight: how often each label occurs, where the labels are the distinct ones. The counts
    are integers if all weights are whole.
    """
    values, bounds = as_array(labels), np.asarray(edges, dtype=float)
    if sum(n != 1 for n in values.shape) > 1:
        raise ValueError(f"expected labels of one dimension, (N,) or (N, 1), got {values.shape}")
    values = values.ravel()
    times = np.ones(values.shape, np.int64) if sample_weight is None else np.asarray(sample_weight)
    if times.shape != values.shape or not (np.isfinite(times) & (times >= 0)).all():
        raise ValueError(
            f"sample weights must be finite and not negative, one for each of {values.size} labels"
        )
    values, times = values[times > 0], times[times > 0]
    if bounds.ndim != 1 or len(bounds) < 2 or not (np.diff(bounds) > 0).all():
        raise ValueError(f"edges must be at least two increasing numbers, got {edges!r}")
    if not values.size or not np.isfinite(values).all():
        raise ValueError(f"expected finite labels, got {values.size}, not all of them finite")
    outside = (values < bounds[0]) | (values > bounds[-1])
    if outside.any():
        raise ValueError(
            f"{outside.sum()} of {outside.size} labels lie outside the edges "
            f"[{bounds[0]}, {bounds[-1]}]: they span [{values.min()}, {values.max()}]. "
            "Widen the edges."
        )
    counts = np.bincount(bin_index(values, bounds), times, len(bounds) - 1)
    return counts.astype(np.int64) if (times % 1 == 0).all() else counts


def bin_index(labels: NDArray, edges: NDArray) -> NDArray[np.int64]:
    """(N,) the bin of each label; the last edge belongs to the last bin."""
    return np.clip(np.searchsorted(edges, labels, side="right") - 1, 0, len(edges) - 2)


def lds_kernel(kernel: Kernel = "gaussian", size: int = 5, sigma: float = 2.0) -> NDArray:
    """(size,) symmetric weights with peak one. The Gaussian is an impulse filtered within its own
    window, edges reflected, as in the released code.
    """
    from scipy.ndimage import gaussian_filter1d  # slow to import, and only needed here

    if size < 1 or size % 2 == 0:
        raise ValueError(f"an LDS kernel has an odd size, got {size}")
    distance = np.abs(np.arange(size) - size // 2)
    shapes: dict[str, Callable[[], NDArray]] = {
        "gaussian": lambda: gaussian_filter1d((distance == 0).astype(float), sigma),
        "triang": lambda: (size // 2 + 1 - distance) / (size // 2 + 1),
        "laplace": lambda: np.exp(-distance / sigma),
    }
    if kernel not in shapes:
        raise ValueError(f"kernel is one of {', '.join(shapes)}, got {kernel!r}")
    window = shapes[kernel]()
    return window / window.max()


def smooth(
    counts: NDArray,
    kernel: Kernel = "gaussian",
    size: int = 5,
    sigma: float = 2.0,
    padding: Padding = "constant",
    whole: bool = True,
) -> NDArray:
    """LDS: (B,) -> (B,). whole: integer counts stay integers, rounded down as in the release."""
    from scipy.ndimage import convolve1d

    counts = counts if whole else counts.astype(float)
    return convolve1d(counts, lds_kernel(kernel, size, sigma), mode=padding)


def fill_below(counts: NDArray) -> NDArray:
    """(B,) counts -> the same, those before the first that is not zero raised to it.

    NYUD2 has no depth below 0.7 m; the released depth code fills those seven bins so, because a
    prior that ends there would push every near pixel beyond the end.
    """
    first = int(np.argmax(counts > 0))
    return np.concatenate([np.repeat(counts[first], first), counts[first:]])


def bin_mass(
    labels: ArrayLike,
    edges: NDArray,
    smoothing: Mapping[str, Any] | None = None,
    sample_weight: ArrayLike | None = None,
    filled: bool = False,
) -> NDArray:
    """(B,) label counts of `Bins.fit`, smoothed and filled as densities if the bins differ."""
    counts, widths = histogram(labels, edges, sample_weight), np.diff(edges)
    equal = bool((even(torch.from_numpy(widths)) == 1).all())
    density = counts if equal else counts / widths
    if smoothing is not None:
        if not isinstance(smoothing, Mapping):
            raise TypeError(
                'smoothing is a dict of LDS settings, such as {"kernel": "gaussian", "sigma": 2}, '
                f"or None; got {smoothing!r}."
            )
        first = int(np.argmax(density > 0)) if filled else 0
        smoothed = smooth(density[first:], **{"whole": False, **smoothing})
        density = np.concatenate([density[:first], smoothed])
    density = fill_below(density) if filled else density
    return density if equal else density * widths


def bin_weights(
    counts: NDArray[np.integer],
    scheme: Literal["inverse", "sqrt_inverse"] = "inverse",
    clip: tuple[int, int] | None = (5, 1000),
    lds: dict | None = None,
    power: float = 1.0,
) -> NDArray[np.float64]:
    """(B,) re-weighting weights 1 / density^power, of mean one over the samples.

    The density is the counts clipped to `clip` (inverse) or their square root (sqrt_inverse),
    smoothed by `smooth(**lds)` if asked. Bins without samples get NaN.
    """
    if scheme not in ("inverse", "sqrt_inverse"):
        raise ValueError(f"scheme is inverse or sqrt_inverse, got {scheme!r}")
    if not counts.sum() > 0:
        raise ValueError("the counts must sum to a positive number: there is no label to weight")
    clipped = counts if clip is None else np.clip(counts, *clip)
    density = np.sqrt(counts) if scheme == "sqrt_inverse" else clipped
    density = density if lds is None else smooth(density, **lds)
    seen = counts > 0
    weights = np.full(counts.shape, np.nan)
    weights[seen] = density[seen] ** -float(power)
    return weights * counts.sum() / (weights[seen] * counts[seen]).sum()


def label_weights(
    labels: ArrayLike, edges: ArrayLike, sample_weight: ArrayLike | None = None, **options
) -> NDArray[np.float64]:
    """(N,) one weight per label: `bin_weights` of the labels' histogram."""
    weights = bin_weights(histogram(labels, edges, sample_weight), **options)
    return weights[bin_index(as_array(labels).ravel(), np.asarray(edges))]
