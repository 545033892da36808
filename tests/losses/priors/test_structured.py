"""Priors of blocks and of subspaces against the mixtures that they are special cases of, and the
kernel of the released loss of human meshes."""

import numpy as np
import pytest
import torch

from losses import (
    BalancedLoss,
    Batch,
    Flat,
    Gaussian,
    GaussianKernel,
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
    blocks, likelihood = Product([one, two]), Gaussian(0.7)
    evidence = (prior.log_evidence(likelihood, *rows) for prior in (blocks, joint))
    assert_close(*evidence, 1e-5)  # sigma is float32
    torch.testing.assert_close(blocks.log_prob(rows[1]), joint.log_prob(rows[1]))


def test_a_whole_subspace_is_the_prior_itself(rows):
    prior, likelihood = mixture(4, D64), Gaussian(0.7)
    turn = torch.linalg.qr(torch.randn(4, 4, generator=generator(1), dtype=D64)).Q
    turned = GaussianMixture(prior.weights, prior.means @ turn, turn.mT @ prior.covariances @ turn)
    made = Subspace(turned, turn).log_evidence(likelihood, *rows)
    assert_close(made, prior.log_evidence(likelihood, *rows), 1e-5)  # sigma is float32


def test_outside_the_subspace_nothing_is_balanced(rows):
    """The gradient of the balancing term lies in the subspace; elsewhere the loss is MSE's."""
    pred, target = rows
    basis = torch.eye(4)[:, :2]
    priors = Subspace(mixture(2, D64, components=1), basis), Flat()
    balanced, plain = (BalancedLoss(Gaussian(0.7), prior)(pred, target) for prior in priors)
    (gap,) = torch.autograd.grad(balanced - plain, pred)
    assert gap[:, :2].abs().min() > 1e-6
    torch.testing.assert_close(gap[:, 2:], torch.zeros_like(gap[:, 2:]))


def test_bad_input(rows):
    with pytest.raises(ValueError, match="orthonormal columns"):
        Subspace(mixture(2, D64), torch.ones(4, 2))
    with pytest.raises(ValueError, match="4 dimensions cannot be split into 3 equal blocks"):
        Product([Batch()] * 3).log_evidence(Gaussian(1.0), *rows)


@pytest.mark.parametrize("scale", [0.8, [0.5, 0.8, 1.0, 2.0]])
@pytest.mark.parametrize("wrap", [lambda shape: shape, Heteroscedastic])
@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_blocks_of_scales(kind, wrap, scale):
    """One scale, one per dimension, and those of every sample."""
    scale = torch.tensor(scale, dtype=D64)
    likelihood, target = wrap(kind(scale)), torch.randn(9, 4, generator=generator(), dtype=D64)
    pred = torch.randn(9, likelihood.width(4), generator=generator(1), dtype=D64)
    found = Product([Batch(), Batch()]).log_evidence(likelihood, pred, target)
    expected = 0
    for b in ([0, 1], [2, 3]):
        outputs = pred[:, [k for k in range(pred.shape[1]) if k % 4 in b]]
        own = wrap(kind(scale[b] if scale.ndim else scale))
        expected += Batch().log_evidence(own, outputs, target[:, b])
    assert_close(found, expected, 1e-12)


def test_a_learned_scale_per_dimension_gets_a_gradient_through_blocks():
    pred, target = torch.randn(2, 9, 2, generator=generator(), dtype=D64)
    scale = torch.tensor([0.5, 2.0], dtype=D64)
    loss = BalancedLoss(Gaussian(scale, True), Product([Batch(), Batch()]), full_nll=True)
    found = evaluate(loss, pred, target)[2]
    for d in range(2):
        one = BalancedLoss(Gaussian(scale[d], True), Batch(), full_nll=True)
        assert_close(found[d], evaluate(one, pred[:, [d]], target[:, [d]])[2], 1e-12)


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
    loss = BalancedLoss(Gaussian(1.0), Subspace(Batch(), basis))
    single = evaluate(loss, pred, target)[1]
    exact = evaluate_exactly(loss.double(), pred.double(), target.double())[1]
    assert single.dtype == torch.float32
    assert (single - exact).abs().max() < 1e-4 * exact.abs().max()
    assert torch.equal(Subspace(Batch(), basis).basis, basis)


# Numbers of MMHuman3D's BMCLossMD with its config's weights, 60 and 5, on the same inputs; in our
# terms 60 / 216 times the loss at strength 5 / 120. sigma: (loss, its gradient to the first three
# numbers of the first prediction, the norm of the gradient to all predictions, that to sigma)
RELEASED = {
    0.3: (28.92392, [-0.0124257, 0.00604723, 0.01745354], 1.154633, -192.8238),
    1.0: (28.93644, [-0.01242309, 0.005851851, 0.0169927], 1.155219, -57.82682),
    5.0: (30.58189, [-0.01253897, 0.005653467, 0.01676388], 1.153098, -11.50039),
    21.4: (62.42526, [-0.01257095, 0.005657328, 0.01675319], 1.152887, -2.685551),
}


@pytest.mark.parametrize("sigma", RELEASED)
def test_the_kernel_is_the_released_loss_of_human_meshes(sigma: float):
    given = np.random.default_rng(0).normal(0, 0.5, (2, 24, 216)).astype(np.float32)
    loss = BalancedLoss(GaussianKernel(sigma, learn_sigma=True), Batch(), 5 / 120)
    value, slope, to_sigma = (60 / 216 * x for x in evaluate(loss, *torch.from_numpy(given)))
    expected, first, *others = RELEASED[sigma]
    # 2e-6: theirs are float32, written with seven digits
    found = [value.item(), slope.norm().item(), to_sigma.item()]
    assert found == pytest.approx([expected, *others], rel=2e-6)
    assert slope[0, :3].tolist() == pytest.approx(first, rel=1e-5)


@pytest.mark.parametrize("prior", [Batch(), mixture(3, D64), Flat(), Product([Batch()] * 3)])
def test_theorem_1_cannot_tell_the_kernel_from_a_gaussian(prior):
    """At strength 1 the normaliser cancels; else (1 - strength) of it is the difference."""
    pred, target = torch.randn(2, 7, 3, generator=generator(), dtype=D64)
    sigma = torch.tensor(0.7, dtype=D64)
    for strength in (1.0, 0.25):
        made = BalancedLoss(GaussianKernel(sigma), prior, strength)(pred, target)
        gaussian = Gaussian(sigma)
        expected = BalancedLoss(gaussian, prior, strength)(pred, target)
        expected -= gaussian.unit * (1 - strength) * gaussian.log_norm(pred)
        torch.testing.assert_close(made, expected)
