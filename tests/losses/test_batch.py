"""The batch prior: its queue, its sub-sampling, and several ranks that see one batch."""

import io
from datetime import timedelta
from pathlib import Path

import torch

from losses import BMC, BalancedLoss, Batch, Flat, Gaussian, Huber, Laplace
from losses.batches import gather
from tests import process
from tests.losses.pairs import D64


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


def test_a_long_batch_fills_the_queue_alone():
    prior = Batch(queue=2)
    assert atoms(prior, 1, 2, 3) == [1, 2, 3]
    assert atoms(prior, 4, 5, 6) == [4, 5, 6, 1, 2]
    assert prior.earlier[:, 0].tolist() == [4, 5]


def test_evaluation_reads_the_queue_and_does_not_push():
    prior = Batch(queue=4)
    atoms(prior, 1, 2)
    prior.eval()
    assert atoms(prior, 9, 8) == [9, 8, 1, 2]
    assert atoms(prior, 9, 8) == [9, 8, 1, 2]
    assert prior.earlier[:, 0].tolist() == [1, 2]


def test_the_loss_pushes_once_per_step():
    loss = BMC(1.0, queue=100)
    for step in range(1, 4):
        loss(torch.randn(5, 1), torch.randn(5, 1))
        assert len(loss.prior.earlier) == 5 * step
    plain = BalancedLoss(Laplace(1.0), Batch(queue=100))
    for step in range(1, 4):
        plain(torch.randn(5, 1), torch.randn(5, 1))
        assert len(plain.prior.earlier) == 5 * step


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


def test_max_atoms_draws_without_replacement():
    prior = Batch(max_atoms=6)
    labels = range(50)
    draws = [atoms(prior, *labels) for _ in range(40)]
    assert all(len(set(draw)) == 6 and set(draw) <= set(labels) for draw in draws)
    assert len({x for draw in draws for x in draw}) > 40  # others each time: 240 draws of 50
    assert atoms(Batch(max_atoms=60), *labels) == list(labels)


def test_labels_get_no_gradient():
    atoms, _ = Batch().atoms(torch.randn(5, 1).requires_grad_())
    assert not atoms.requires_grad


RANKS = 2
SHARES = (slice(0, 5), slice(5, 16))  # ragged


def samples(dims: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(dims)
    pred, target = torch.randn(2, 16, dims, generator=g, dtype=D64)
    return pred, target


def losses() -> dict[str, tuple[BalancedLoss, int]]:
    s = torch.tensor(0.9, dtype=D64)
    return {
        "fused": (BalancedLoss(Gaussian(s, True), Batch()), 1),
        "several dimensions": (BalancedLoss(Gaussian(s, True), Batch()), 3),
        "plain": (BalancedLoss(Laplace(s, True), Batch()), 1),
        "queue": (BalancedLoss(Gaussian(s, True), Batch(queue=20)), 1),
    }


def step(loss: BalancedLoss, pred: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    """Two calls, so that a queue is used; the second one's numbers."""
    loss(pred, target)
    loss.zero_grad()
    pred = pred.clone().requires_grad_()
    value = loss(pred, target)
    value.backward()
    (scale,) = loss.parameters()
    return {"value": value.detach(), "pred": pred.grad, "scale": scale.grad}


def run_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    torch.distributed.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60)
    )
    results = {}
    for name, (loss, dims) in losses().items():
        pred, target = samples(dims)
        results[name] = step(loss, pred[SHARES[rank]], target[SHARES[rank]])
    if rank == 0:  # evaluates on its own, and waits for nobody
        alone, (pred, target) = BMC(0.9).eval(), samples(1)
        results["alone"] = alone(pred, target)
    _, target = samples(3)
    results["gathered"] = gather(target[SHARES[rank]])
    pred, target = samples(1)
    for kind in (Gaussian, Laplace, Huber):
        loss = BalancedLoss(kind("auto"), Flat())
        if rank == 0:
            loss.eval()(pred, target)  # waits for nobody
        loss.train()(pred[SHARES[rank]], target[SHARES[rank]])  # ragged
        results[f"auto {kind.__name__}"] = loss.likelihood.value
    torch.save(results, Path(folder, f"{rank}.pt"))
    torch.distributed.destroy_process_group()


def test_two_ranks_equal_one_process(tmp_path):
    started = [process.start(run_rank, rank, str(tmp_path)) for rank in range(RANKS)]
    for one in started:
        one.join()
        assert one.exitcode == 0
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]
    for rank in ranks:
        assert torch.equal(rank["gathered"], samples(3)[1])  # in rank order, nothing twice
        for kind in (Gaussian, Laplace, Huber):
            alone = BalancedLoss(kind("auto"), Flat())
            alone(*samples(1))
            # 1e-6: a scale is float32
            torch.testing.assert_close(
                rank[f"auto {kind.__name__}"], alone.likelihood.value, rtol=1e-6, atol=0
            )
    torch.testing.assert_close(ranks[0]["alone"], BMC(0.9)(*samples(1)))
    counts = [share.stop - share.start for share in SHARES]
    for name, (loss, dims) in losses().items():
        whole = step(loss, *samples(dims))
        parts = [rank[name] for rank in ranks]
        # means over ranks weighted by rows are the joined batch's; 1e-12: float64 rounding
        for key in ("value", "scale"):
            mean = sum(n / 16 * part[key] for n, part in zip(counts, parts, strict=True))
            torch.testing.assert_close(mean, whole[key], rtol=1e-12, atol=1e-12)
        rows = [n / 16 * part["pred"] for n, part in zip(counts, parts, strict=True)]
        torch.testing.assert_close(torch.cat(rows), whole["pred"], rtol=1e-12, atol=1e-12)
