"""The batch prior: its queue and its sub-sampling; several ranks are in test_ranks.py."""

import io

import pytest
import torch

from losses import BMC, BalancedLoss, Batch, Gaussian, Laplace


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def atoms(prior: Batch, *labels: float) -> list[float]:
    return prior.atoms(column(*labels))[0][:, 0].tolist()


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


def test_queue_survives_a_checkpoint():
    saved, file = BMC(1.0, learn_sigma=True, queue=6), io.BytesIO()
    saved(torch.randn(4, 2), torch.arange(8.0).reshape(4, 2))
    torch.save(saved.state_dict(), file)
    file.seek(0)
    loaded = BMC(1.0, learn_sigma=True, queue=6)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert loaded.prior.earlier.tolist() == torch.arange(8.0).reshape(4, 2).tolist()


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


def test_labels_get_no_gradient():
    atoms, *_ = Batch().atoms(torch.randn(5, 1).requires_grad_())
    assert not atoms.requires_grad
