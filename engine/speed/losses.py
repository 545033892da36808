"""Speed of the losses against the textbook formulas, and of the batched synthetic benchmark.

The textbook losses are Theorem 1 term by term, times 2 sigma^2. N: samples; D: dimensions.
"""

from collections.abc import Callable, Iterator

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

from engine import CONFIGS
from engine.speed.timing import Compare, Loss, Row, backward
from losses import BMC, BNI, GAI, Bins, GaussianMixture, WeightedLoss
from synthetic.benchmark.methods import METHODS, trained_together
from synthetic.benchmark.problems import TABLE, Problem, make_splits
from synthetic.benchmark.program import Runs, Training


def broadcast(bins: Bins, sigma: Tensor) -> Loss:
    """BNI: every sample with every bin, (N, K)."""

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        balance = bins.weights.log() - (pred - bins.centers).square() / 2 / sigma**2
        rows = (pred - target).square()[:, 0] / 2 / sigma**2 + torch.logsumexp(balance, -1)
        return rows.mean() * 2 * sigma.detach() ** 2

    return loss


def normal(prior: GaussianMixture | None, sigma: Tensor) -> Loss:
    """GAI through MultivariateNormal(mu_k, Sigma_k + sigma^2 I), as in the released code; without a
    prior BMC, as in the paper's pseudo-code: a softmax over MultivariateNormal(pred, sigma^2 I)."""

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        noise = sigma**2 * torch.eye(pred.shape[-1], device=pred.device)
        if prior is None:
            logits = MultivariateNormal(pred[:, None], noise).log_prob(target[None])  # (N, N)
            value = cross_entropy(logits, torch.arange(len(pred), device=pred.device))
        else:
            mixture = MultivariateNormal(prior.means, prior.covariances + noise)
            balance = torch.logsumexp(mixture.log_prob(pred[:, None]) + prior.weights.log(), -1)
            if pred.shape[-1] > 1:
                value = (balance - MultivariateNormal(pred, noise).log_prob(target)).mean()
            else:
                value = ((pred - target).square()[:, 0] / 2 / sigma**2 + balance).mean()
        return value * 2 * sigma.detach() ** 2

    return loss


def losses(cfg: DictConfig, compare: Compare) -> Iterator[Row]:
    """Forward and backward of depth maps, body poses and a small batch."""
    g, device = torch.Generator().manual_seed(0), torch.device(cfg.device)

    def batch(n: int, dims: int, low: float, high: float) -> list[Tensor]:
        return [(low + (high - low) * torch.rand(n, dims, generator=g)).to(device) for _ in "pt"]

    def mixture(components: int, dims: int, spread: float) -> GaussianMixture:
        root = torch.randn(components, dims, dims, generator=g) / dims**0.5
        covariances = root @ root.mT + 0.1 * torch.eye(dims)
        means = spread * torch.rand(components, dims, generator=g)
        weights = torch.rand(components, generator=g) + 0.1
        return GaussianMixture(weights, means, covariances).to(device)

    maps, poses, few = batch(cfg.pixels, 1, 0.7, 10), batch(128, 216, -1, 1), batch(256, 1, 0, 10)
    bins = Bins(torch.arange(0.05, 10, 0.1), torch.rand(100, generator=g) + 0.05).to(device)
    depth, pose, small = mixture(16, 1, 10), mixture(16, 216, 1), mixture(8, 1, 10)
    for learn in (False, True):
        sigma = torch.tensor(1.0, device=device, requires_grad=learn)
        bni, bmc = BNI(bins, 1.0, learn), BMC(1.0, learn)
        many, high, low = f"N = {cfg.pixels:,}", "D = 216, N = 128", "N = 256, D = 1"
        mvn, plain = "MultivariateNormal", ("plain MSE", mse_loss, few)
        for name, ours, against, other, data in (
            (f"BNI 100 bins, {many}", bni, "broadcast", broadcast(bins, sigma), maps),
            (f"GAI 16 components, {many}", GAI(depth, 1.0, learn), mvn, normal(depth, sigma), maps),
            (f"GAI 16 components, {high}", GAI(pose, 1.0, learn), mvn, normal(pose, sigma), poses),
            (f"BMC, {high}", bmc, mvn, normal(None, sigma), poses),
            (f"GAI 8 components, {low}", GAI(small, 1.0, learn), *plain),
            (f"BMC, {low}", bmc, *plain),
            (f"BNI 100 bins, {low}", bni, *plain),
        ):
            title = f"{name}, sigma learned" if learn else name
            steps = backward(ours.to(device), *data), backward(other, *data)
            yield compare(title, steps[0], against, steps[1], memory=data is maps)


def synthetic(cfg: DictConfig, compare: Compare) -> Iterator[Row]:
    """An epoch of all runs of a method in one program, against one run at a time."""
    settings, rows = OmegaConf.load(CONFIGS / "synthetic.yaml").training, []
    seeds, against = range(cfg.seeds), "one run at a time"
    for family in ("normal", "exponential", "mvn"):
        training = Training(**settings["mvn" if family == "mvn" else "linear"])
        columns = [problem for problem in TABLE if problem.family == family]
        for method, make_loss in METHODS.items():
            problems = trained_together(method, columns, len(seeds))[0]
            runs = len(problems) * len(seeds)
            ours = Runs(make_loss, problems, seeds, training).epoch
            other = single_run(make_loss, problems[0], training)
            row = compare(f"{family}, {method}, {runs} runs", ours, against, other, runs)
            rows.append(row)
            yield row
    ours, other = (sum(row[key] for row in rows) for key in ("ours_ms", "other_ms"))
    total = {"name": "an epoch of every column and method", "ours_ms": ours, "other_ms": other}
    yield {**rows[0], **total, "time": ours / other}


def single_run(
    make_loss: Callable[[Problem], nn.Module], problem: Problem, training: Training
) -> Callable[[], None]:
    """An epoch of one run with a DataLoader, one nn.Linear and one optimiser."""
    data = make_splits(problem, 0, training.samples, training.held_out)["train"]
    loader = DataLoader(TensorDataset(data.x, data.y, 1 / data.density), training.batch, True)
    linear, loss = nn.Linear(data.x.shape[-1], data.y.shape[-1]), make_loss(problem)
    parameters = [*linear.parameters(), *loss.parameters()]
    optimizer = getattr(torch.optim, training.optimizer)(parameters, lr=training.learning_rate)

    def epoch() -> None:
        for x, y, weight in loader:
            optimizer.zero_grad()
            loss(linear(x), y, weight if isinstance(loss, WeightedLoss) else None).backward()
            optimizer.step()

    return epoch
