"""Advice for given labels: how imbalanced they are, which prior fits them, and how Theorem 1 would
change the predictions of a model.

With Gaussian noise sigma, the balanced prediction p and the least-squares prediction m of the same
input are related by Tweedie's formula:

    m(p) = p + sigma^2 f'(p),    f(p) = log E_{y' ~ p_train}[ N(y'; p, sigma^2) ]

So balancing stretches predictions by dp/dm = 1 / (1 + sigma^2 f''), which is (v + sigma^2) / v for
normal labels of variance v: close to one if the noise is small compared with the spread of the
labels. The effect on the errors is estimated by sampling p = y + noise for the labels y.

N: labels.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..priors import Prior
from . import estimates
from .estimates import RANGES, Region, numbers
from .leverage import Leverage, leverage

FEWEST = 30  # labels; fewer do not show the tails
LITTLE = 0.2  # sigmas: smaller moves make no difference
MUCH = 3.0  # stretch above which the advice warns


@dataclass(frozen=True)
class Diagnosis:
    """Result of `diagnose`: `print` it, or `plot` it to a file."""

    labels: NDArray[np.float64] = field(repr=False)
    imbalance: float  # count of the fullest of 20 ranges / count of the emptiest non-empty one
    empty: int  # ranges without a label
    tail_mass: float  # share of the labels in ranges with less than a tenth of the fullest count
    tail_range: float  # share of the label range covered by these ranges and the empty ones
    effective_range: tuple[float, float]  # of the middle 95% of the labels
    fits: dict[str, float]  # prior: held-out log-likelihood per label, in nats
    prior: Prior  # the best of them, fitted to all labels
    prior_code: str  # code that builds it
    sigma: float
    measured: bool  # sigma comes from residuals
    pull: float | None  # share of a label's distance to the mean that the model misses
    regions: tuple[Region, ...]
    rmse: tuple[float, float]  # expected with the plain and the balanced loss
    balanced_rmse: tuple[float, float]  # the same, with equal weight for every range
    leverage: Leverage | None  # of held-out predictions

    @property
    def stretch(self) -> float:
        """Return the largest stretch of the regions that have labels."""
        return max(region.stretch for region in self.regions if region.share > 0)

    @property
    def advice(self) -> str:
        if self.imbalance < 2 and not self.empty:
            return "The labels are nearly uniform: there is little to balance. Use the plain loss."
        moved = [abs(region.shift) for region in self.regions if region.share > 0]
        if max(moved) < LITTLE * self.sigma:
            return (
                "The noise is small compared with the spread of the labels: a balanced loss hardly "
                "moves a prediction. Use the plain loss."
            )
        if self.stretch > MUCH:
            return (
                "The noise is as large as the spread of the labels: full balancing stretches "
                "predictions far. Temper it (power=0.5, or strength=0.5), or use a smaller sigma, "
                "and choose on validation data."
            )
        return "Balancing can help where labels are rare. Choose sigma on validation data."

    def __str__(self) -> str:
        low, high = self.effective_range
        whole = np.ptp(self.labels)
        lines = [
            f"{len(self.labels)} labels from {self.labels.min():.4g} to {self.labels.max():.4g}, "
            f"mean {self.labels.mean():.4g}, standard deviation {self.labels.std():.4g}.",
            f"Imbalance: of {RANGES} equally wide ranges the fullest has {self.imbalance:.0f} "
            f"times the labels of the emptiest; {self.empty} have none.",
            f"Tails: {self.tail_mass:.1%} of the labels lie in {self.tail_range:.0%} of the range. "
            f"95% of them lie between {low:.4g} and {high:.4g}, {(high - low) / whole:.0%} of it.",
            "",
            "Prior (held-out log-likelihood per label, higher is better):",
            *(f"  {name:<14} {value:8.3f}" for name, value in self.fits.items()),
            f"  use {self.prior_code}",
            "",
            self._about_sigma(),
            "Effect of balancing with this sigma: ranges, their share of the labels, how far a "
            "prediction in the middle moves, and the stretch (v + sigma^2) / v:",
            *(
                f"  {r.low:10.4g} to {r.high:10.4g}  {r.share:6.1%}   moved by {r.shift:+10.4g}   "
                f"stretched by {r.stretch:.2f}"
                for r in self.regions
            ),
            "",
            "If all errors are such noise, the balanced loss changes the RMSE "
            f"from {self.rmse[0]:.4g} to {self.rmse[1]:.4g},",
            "because most test labels are frequent; with equal weight for every range it changes "
            f"from {self.balanced_rmse[0]:.4g} to {self.balanced_rmse[1]:.4g}.",
            self.advice,
            *([] if self.leverage is None else ["", str(self.leverage)]),
        ]
        return "\n".join(lines)

    def _about_sigma(self) -> str:
        if not self.measured:
            return (
                f"Sigma: start from {self.sigma:.4g}, half the labels' standard deviation. That is "
                "a guess; the residuals of a plain model on held-out data give a better one."
            )
        known = f"Sigma: start from {self.sigma:.4g}, the RMSE of the plain model."
        if self.pull is None:
            return known
        return f"{known} It misses {self.pull:.0%} of a label's distance to the mean."

    def plot(self, path: str | Path | BinaryIO, form: str | None = None) -> None:
        """Plot the labels with the prior, and the stretch along them.

        form: png, pdf or svg; None: by the suffix of the path.
        """
        from matplotlib.figure import Figure

        grid = np.linspace(self.labels.min(), self.labels.max(), 400)
        figure = Figure(figsize=(6, 5), layout="constrained")
        top, bottom = figure.subplots(2, sharex=True)
        top.hist(self.labels, 2 * RANGES, density=True, color="#bbbbbb", label="labels")
        density = estimates.smoothed_density(self.prior, self.sigma / 4, grid)
        top.plot(grid, density, color="#0072b2", label="prior")
        top.set(ylabel="density", title="Labels and their prior")
        top.legend(frameon=False)
        bottom.plot(grid, estimates.stretch_of(self.prior, self.sigma, grid)[1], color="#d55e00")
        bottom.axhline(1, color="#999999", linewidth=0.8)
        bottom.set(xlabel="label", ylabel="stretch", ylim=(0, None))
        bottom.set_title(f"Stretch of predictions by balancing with sigma {self.sigma:.3g}")
        figure.savefig(path, dpi=120, format=form)  # pyright: ignore[reportArgumentType]


def diagnose(
    labels: ArrayLike, residuals: ArrayLike | None = None, target: ArrayLike | None = None
) -> Diagnosis:
    """Diagnose labels (N,) of the training set.

    residuals (N',): label minus prediction of a plain model, best on held-out data. With N' = N
    they belong to the labels, in the same order. With target (N',), the labels of held-out
    samples, they are instead the predictions of these samples, whose leverage is reported: the
    most that any monotone map of them gains.

    Examples:
        >>> print(diagnose(train_ages))
        >>> print(diagnose(train_ages, val_pred, val_ages))
    """
    y = numbers(labels, "labels")
    if len(y) < FEWEST:
        raise ValueError(
            f"expected at least {FEWEST} labels, got {len(y)}; fewer do not show the tails"
        )
    if np.ptp(y) == 0:
        raise ValueError(f"all {len(y)} labels are {y[0]:g}: there is nothing to balance")
    found = None
    if target is not None:
        if residuals is None:
            raise ValueError("target needs predictions: diagnose(labels, pred, target)")
        pred, truth = numbers(residuals, "pred"), numbers(target, "target")
        found, residuals = leverage(y, pred, truth), truth - pred
    unit = np.abs(y).max()  # so that no square underflows
    center, scale = float(y.mean()), float((y / unit).std() * unit)
    z = (y - center) / scale  # the results do not depend on the unit
    sigma, pull = 0.5, None
    if residuals is not None:
        r = numbers(residuals, "residuals") / scale
        if len(r) < 2:
            raise ValueError(f"expected at least two residuals, got {len(r)}")
        if not 1e-9 < np.abs(r).max() < 1e9:
            raise ValueError(
                f"the residuals reach {np.abs(r).max():.0e} standard deviations of the labels; "
                "give label minus prediction in the labels' unit"
            )
        sigma = float(np.sqrt(np.mean(r**2)))
        if len(r) == len(y) and found is None:
            pull = float(np.cov(r, z, bias=True)[0, 1] / z.var())
    counts, edges = np.histogram(z, RANGES)
    rare = counts < counts.max() / 10
    fits = {name: estimates.held_out(fit, z) for name, (fit, _) in estimates.CANDIDATES.items()}
    fit, code = estimates.CANDIDATES[max(fits, key=lambda name: fits[name])]
    shape = fit(estimates.spread(z))[1]
    low, high = np.quantile(y, [0.025, 0.975])
    plain, balanced = (scale * estimates.expected_errors(z, shape, sigma, edges)).tolist()
    return Diagnosis(
        labels=y,
        imbalance=float(counts.max() / counts[counts > 0].min()),
        empty=int((counts == 0).sum()),
        tail_mass=float(counts[rare].sum() / len(y)),
        tail_range=float(rare.mean()),
        effective_range=(float(low), float(high)),
        fits={name: value - float(np.log(scale)) for name, value in fits.items()},
        prior=fit(estimates.spread(y))[1],
        prior_code=code,
        sigma=sigma * scale,
        measured=residuals is not None,
        pull=pull,
        regions=estimates.regions_of(z, shape, sigma, center, scale),
        rmse=tuple(plain),
        balanced_rmse=tuple(balanced),
        leverage=found,
    )
