"""Priors of blocks and of subspaces against the mixtures that they are special cases of."""

import pytest
import torch
from torch import Tensor

from losses import (
    BalancedLoss,
    Batch,
    Flat,
    Gaussian,
    GaussianMixture,
    Heteroscedastic,
    Huber,
    Laplace,
    Product,
    Subspace,
)
from tests.losses.pairs import (
    D64,
    assert_close,
    evaluate,
    evaluate_exactly,
    generator,
    mixture,
)


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    pred, target = torch.randn(2, 7, 4, generator=generator, dtype=D64)
    return pred.requires_grad_(), target


def test_a_product_is_the_mixture_of_block_diagonal_covariance(rows):
    one = mixture(2, D64, components=1)
    two = GaussianMixture(one.weights, one.means + 1, 2 * one.covariances)
    covariance = torch.block_diag(one.covariances[0], two.covariances[0])
    joint = GaussianMixture(torch.ones(1), torch.cat([one.means, two.means], 1), covariance[None])
    likelihood = Gaussian(0.7)
    apart = Product([one, two]).log_evidence(likelihood, *rows)
    # 1e-5: sigma is float32
    torch.testing.assert_close(
        apart, joint.log_evidence(likelihood, *rows), rtol=1e-5, atol=1e-5, check_dtype=False
    )
    torch.testing.assert_close(
        Product([one, two]).log_prob(rows[1]), joint.log_prob(rows[1]), check_dtype=False
    )


def test_a_whole_subspace_is_the_prior_itself(rows):
    prior, likelihood = mixture(4, D64), Gaussian(0.7)
    turn = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))[0]
    turned = GaussianMixture(
        prior.weights,
        prior.means @ turn.double(),
        turn.double().mT @ prior.covariances @ turn.double(),
    )
    made = Subspace(turned, turn).log_evidence(likelihood, *rows)
    # 1e-5: the basis and sigma are float32
    torch.testing.assert_close(
        made, prior.log_evidence(likelihood, *rows), rtol=1e-5, atol=1e-5, check_dtype=False
    )


def test_outside_the_subspace_nothing_is_balanced(rows):
    """The gradient of the balancing term lies in the subspace; elsewhere the loss is MSE's."""
    pred, target = rows
    basis = torch.eye(4)[:, :2]
    balanced = BalancedLoss(Gaussian(0.7), Subspace(mixture(2, D64, components=1), basis))(
        pred, target
    )
    plain = BalancedLoss(Gaussian(0.7), Flat())(pred, target)
    (gap,) = torch.autograd.grad(balanced - plain, pred)
    assert gap[:, :2].abs().min() > 1e-6
    torch.testing.assert_close(gap[:, 2:], torch.zeros_like(gap[:, 2:]))


def test_blocks_of_batch_labels(rows):
    """An oracle in loops: each block's labels, mixed over the batch on their own."""
    pred, target = (r.detach() for r in rows)
    sigma, expected = 0.8, torch.zeros(7, dtype=D64)
    for i in range(7):
        for block in (slice(0, 2), slice(2, 4)):
            noise = torch.distributions.Normal(pred[i, block], sigma)
            each = torch.stack([noise.log_prob(target[j, block]).sum() for j in range(7)])
            expected[i] += torch.logsumexp(each, 0)
    made = Product([Batch(), Batch()]).log_evidence(Gaussian(sigma), pred, target)
    torch.testing.assert_close(made, expected, rtol=1e-6, atol=1e-6)


def test_bad_input(rows):
    with pytest.raises(ValueError, match="orthonormal columns"):
        Subspace(mixture(2, D64), torch.ones(4, 2))
    with pytest.raises(ValueError, match="4 dimensions cannot be split into 3 equal blocks"):
        Product([Batch()] * 3).log_evidence(Gaussian(1.0), *rows)


def test_blocks_of_a_scale_for_every_sample():
    pred, target = torch.randn(9, 8, dtype=D64), torch.randn(9, 4, dtype=D64)
    likelihood = Heteroscedastic(Laplace(torch.tensor(0.8, dtype=D64)))
    found = Product([Batch(), Batch()]).log_evidence(likelihood, pred, target)
    expected = sum(
        Batch().log_evidence(likelihood, pred[:, [*b, *(k + 4 for k in b)]], target[:, b])
        for b in ([0, 1], [2, 3])
    )
    assert_close(found, expected, 1e-12)


@pytest.mark.parametrize(
    "likelihood",
    [Gaussian([1.0, 1, 1, 2]), Laplace(), Huber(), Heteroscedastic(Gaussian())],
)
def test_a_subspace_needs_equal_noise_in_all_directions(likelihood):
    loss = BalancedLoss(likelihood, Subspace(Batch(), torch.eye(4)))
    with pytest.raises(ValueError, match="Subspace needs a Gaussian with one sigma"):
        loss(torch.randn(5, likelihood.width(4)), torch.randn(5, 4))


def test_the_basis_of_a_subspace_keeps_its_digits():
    basis = torch.linalg.qr(torch.randn(4, 2, generator=generator(), dtype=D64)).Q
    target = 1e6 + 3 * torch.randn(32, 4, generator=generator())
    pred = target + torch.randn(32, 4, generator=generator(1))
    assert off_by(BalancedLoss(Gaussian(1.0), Subspace(Batch(), basis)), pred, target) < 1e-4
    assert torch.equal(Subspace(Batch(), basis).basis, basis)


def off_by(loss, pred: Tensor, target: Tensor) -> float:
    """Largest difference of float32 gradients from float64, relative to the largest gradient."""
    single = evaluate(loss, pred, target)
    assert all(x.dtype == torch.float32 for x in single)
    exact = evaluate_exactly(loss.double(), pred.double(), target.double())
    pairs = zip(single[1:], exact[1:], strict=True)
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)
