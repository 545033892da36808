"""The losses as a textbook writes them: Theorem 1 term by term, times 2 sigma^2."""

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.nn import functional

from engine.speed.timing import Loss
from losses import GaussianMixture


def mse(pred: Tensor, target: Tensor) -> Tensor:
    return functional.mse_loss(pred, target)


def broadcast_atoms(centers: Tensor | None, weights: Tensor | None, sigma: Tensor) -> Loss:
    """BNI, or BMC without centers: every row with every label, (N, K, D)."""

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        c = target if centers is None else centers
        log_w = 0.0 if weights is None else weights.log()
        square = (pred[:, None] - c).square().sum(-1)  # (N, K)
        balance = torch.logsumexp(log_w - square / 2 / sigma**2, -1)
        rows = (pred - target).square().sum(-1) / 2 / sigma**2 + balance
        return rows.mean() * 2 * sigma.detach() ** 2

    return loss


def normal_mixture(prior: GaussianMixture, sigma: Tensor, both: bool = False) -> Loss:
    """GAI through MultivariateNormal(mu_k, Sigma_k + sigma^2 I); if `both`, the noise's term
    through MultivariateNormal(pred, sigma^2 I) too, as the released code has it for D > 1.
    """

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        noise = sigma**2 * torch.eye(pred.shape[-1], device=pred.device)
        log_p = MultivariateNormal(prior.means, prior.covariances + noise).log_prob(pred[:, None])
        balance = torch.logsumexp(log_p + prior.weights.log(), -1)
        if both:
            rows = balance - MultivariateNormal(pred, noise).log_prob(target)
        else:
            rows = (pred - target).square().sum(-1) / 2 / sigma**2 + balance
        return rows.mean() * 2 * sigma.detach() ** 2

    return loss


def broadcast_mixture(prior: GaussianMixture, sigma: Tensor) -> Loss:
    """GAI in one dimension without MultivariateNormal."""

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        variance = prior.covariances[:, 0, 0] + sigma**2
        log_p = -(pred - prior.means[:, 0]).square() / 2 / variance - variance.log() / 2
        balance = torch.logsumexp(log_p + prior.weights.log(), -1)
        rows = (pred - target).square()[:, 0] / 2 / sigma**2 + balance
        return rows.mean() * 2 * sigma.detach() ** 2

    return loss


def normal_batch(sigma: Tensor) -> Loss:
    """BMC as the paper's pseudo-code: a softmax over MultivariateNormal(pred, sigma^2 I)."""

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        noise = sigma**2 * torch.eye(pred.shape[-1], device=pred.device)
        logits = MultivariateNormal(pred[:, None], noise).log_prob(target[None])  # (N, N, D) inside
        labels = torch.arange(len(pred), device=pred.device)
        return functional.cross_entropy(logits, labels) * 2 * sigma.detach() ** 2

    return loss
