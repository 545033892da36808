"""The batch prior: its queue and its sub-sampling; several ranks are in test_ranks.py."""

import math

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from losses import BMC, BalancedLoss, Batch, Gaussian, Heteroscedastic, Huber, Laplace
from tests.losses.pairs import D64, assert_close, evaluate, evaluate_exactly, generator


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def atoms(prior: Batch, *labels: float) -> list[float]:
    found, log_weights, _ = prior.atoms(column(*labels))
    return found[log_weights == 0, 0].tolist()


def test_queue_holds_the_latest_labels():
    prior = Batch(queue=5)
    assert atoms(prior, 1, 2, 3) == [1, 2, 3]
    assert atoms(prior, 4, 5, 6) == [4, 5, 6, 1, 2, 3]  # this batch first, then the earlier
    assert atoms(prior, 7, 8) == [7, 8, 4, 5, 6, 1, 2]  # five were kept, the oldest left
    assert prior.earlier[:, 0].tolist() == [7, 8, 4, 5, 6]
    atoms(prior, *range(10, 17))  # a long batch fills the queue alone
    assert prior.earlier[:, 0].tolist() == [10, 11, 12, 13, 14]


def test_evaluation_reads_the_queue_and_does_not_push():
    prior = Batch(queue=4)
    atoms(prior, 1, 2)
    prior.eval()
    assert atoms(prior, 9, 8) == [9, 8, 1, 2]
    assert atoms(prior, 9, 8) == [9, 8, 1, 2]
    assert prior.earlier[:, 0].tolist() == [1, 2]


@pytest.mark.parametrize("likelihood", [Gaussian, Laplace])
def test_the_loss_pushes_once_per_step(likelihood):
    loss = BalancedLoss(likelihood(1.0), Batch(queue=100))
    for step in range(1, 4):
        loss(torch.randn(5, 1), torch.randn(5, 1))
        assert len(loss.prior.earlier) == 5 * step


def test_a_queue_lets_a_batch_of_one_learn():
    loss = BMC(1.0, queue=8)
    loss(torch.zeros(2, 1), column(1, 2))
    pred = torch.zeros(1, 1, requires_grad=True)
    loss(pred, column(3.0)).backward()
    assert pred.grad.abs().item() > 0


def test_max_atoms_samples_without_replacement():
    prior = Batch(max_atoms=6)
    labels = range(50)
    sampled = [atoms(prior, *labels) for _ in range(40)]
    assert all(len(set(draw)) == 6 and set(draw) <= set(labels) for draw in sampled)
    assert len({x for draw in sampled for x in draw}) > 40  # others each time: 240 of 50
    assert atoms(Batch(max_atoms=60), *labels) == list(labels)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("count", [40, 1100])
@pytest.mark.parametrize("queue", [0, 9])
def test_few_atoms_keep_the_own_label(count, weighted, queue, small_limits):
    """All labels but one are atoms: only the sample whose label was left out has them all."""
    y, noise = torch.randn(2, count, 1, generator=generator(), dtype=D64)
    x, earlier = y + 0.5 * noise, torch.linspace(-1, 1, queue, dtype=D64)[:, None]
    weight = (torch.arange(count) % 4 > 0).to(D64) if weighted else None
    some = torch.arange(count) if weight is None else weight.nonzero()[:, 0]
    sigma = torch.tensor(0.5, dtype=D64)
    loss = BMC(sigma, queue=queue, max_atoms=len(some) + queue - 1)
    loss.prior.earlier = earlier
    ours = loss(x, y, weight)
    likely = (-((x[some] - torch.cat([y[some], earlier]).mT) ** 2) / 2 / sigma**2).exp()
    every = likely.sum(-1, keepdim=True) - likely  # (N, K): without the k-th
    index = torch.arange(len(some))
    every[index, index] += likely[index, index]
    rows = 2 * sigma**2 * every.log() + ((x[some] - y[some]) ** 2)
    assert (rows.mean(0) - ours).abs().min() < 1e-9


@pytest.mark.parametrize("kind", [Laplace, Huber, lambda s: Heteroscedastic(Laplace(s))])
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("transformed", [False, True])
def test_few_atoms_hold_the_evidence_at_the_ends_of_all_labels(kind, dims, transformed):
    """A prediction beyond two of three labels is not held if it is within all of them."""
    likelihood = kind(torch.tensor(0.8, dtype=D64))
    y = torch.tensor([[0.0], [1.0], [5.0]], dtype=D64).expand(3, dims)
    x = torch.tensor([[-1.0], [3.0], [7.0]], dtype=D64).expand(3, dims)
    x = torch.cat([x, torch.zeros(3, likelihood.width(dims) - dims, dtype=D64)], -1)
    held = x.clamp(0, 5)
    likely = torch.stack([likelihood.log_prob(a.expand(3, dims), held) for a in y], -1)  # (N, K)
    prior = Batch(max_atoms=2)
    evidence = prior.log_evidence
    if transformed:
        evidence = torch.vmap(prior.log_evidence, (None, 0, 0), randomness="different")
        x, y = x[None], y[None]
    found = evidence(likelihood, x, y).reshape(3)
    every, index = likely.exp().sum(-1, keepdim=True) - likely.exp(), torch.arange(3)
    every[index, index] += likely[index, index].exp()  # (N, K): without the k-th, unless own
    assert (every.log() - found[:, None]).abs().amax(0).min() < 1e-9


def test_a_compiled_batch_prefers_labels_with_a_weight():
    """Where no number can be read, others are sampled last and leave the queue first."""
    weight = torch.tensor([0.0] * 60 + [1.0] * 4)
    pred, target = torch.randn(2, 64, 1, generator=generator())
    torch.compiler.reset()
    loss = BMC(1.0, max_atoms=8)
    compiled = torch.compile(loss, backend="aot_eager")
    for _ in range(10):
        assert compiled(pred, target, weight).isfinite()
    prior = Batch(queue=5)
    marked = target.where(weight[:, None] > 0, math.nan)
    torch.vmap(lambda y: prior.atoms(y)[0])(marked[None])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dims", [1, 3])
@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_weights_of_zero_cost_no_digits(kind, dims, compiled):
    """Labels at 1e6, of which most have no weight."""
    target = (1e6 + 3 * torch.randn(40, dims, generator=generator())).float()
    pred = target + torch.randn(40, dims, generator=generator(1))
    weight = (torch.arange(40) % 3 == 0).float()
    loss = BalancedLoss(kind(1.0, True), Batch())
    torch.compiler.reset()
    call = torch.compile(loss, backend="aot_eager") if compiled else loss
    single = evaluate(loss.float(), pred, target, weight, call=call)
    some = weight > 0
    exact = evaluate_exactly(loss.double(), pred[some].double(), target[some].double())
    assert_close([single[1][some].double(), single[2].double()], exact[1:], 1e-4)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_loss_fills_the_queue_once(reentrant):
    plain, kept = BMC(0.8, True, queue=12), BMC(0.8, True, queue=12)
    for step in range(3):
        pred, target = torch.randn(2, 5, 1, generator=generator(step))
        leaf = pred.clone().requires_grad_()
        checkpoint(kept, leaf, target, use_reentrant=reentrant).backward()
        expected = evaluate(plain, pred, target)
        assert_close([leaf.grad], expected[1:2], 1e-6)
        assert torch.equal(kept.prior.earlier, plain.prior.earlier)


def test_a_checkpointed_loss_is_recomputed_from_its_own_queue_or_not_at_all():
    loss = BMC(0.8, queue=4)
    loss(*torch.randn(2, 4, 1))
    leaf = torch.randn(4, 1, requires_grad=True)
    first = checkpoint(loss, leaf, torch.randn(4, 1), use_reentrant=False)
    loss(*torch.randn(2, 4, 1))
    with pytest.raises(RuntimeError, match="queue"):
        first.backward()


def test_an_automatic_scale_can_be_checkpointed():
    pred, target = torch.randn(2, 6, 1, generator=generator())
    loss, other = BMC("auto", True), BMC("auto", True)
    leaf = pred.clone().requires_grad_()
    checkpoint(loss, leaf, target, use_reentrant=False).backward()
    assert_close([leaf.grad, loss.likelihood.sigma.grad], evaluate(other, pred, target)[1:], 1e-6)
