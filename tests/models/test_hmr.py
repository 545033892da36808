"""The regressor starts at the mean and corrects it; stage two trains a new one."""

from pathlib import Path

import pytest
import torch

from models.hmr import LiteHMR, MeshRegressor
from models.smpl import matrix_from_6d, read_mean


def test_it_starts_at_the_mean_and_corrects_it_three_times(bodies: Path):
    path = bodies / "ihmr" / "smpl_mean_params.npz"
    head = MeshRegressor(8, mean=path, hidden=16).eval()
    pose, _, camera = read_mean(path)
    for layer in (head.decpose, head.decshape, head.deccam):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    torch.nn.init.constant_(head.decshape.bias, 0.1)
    rotations, shape, made = head.head(torch.randn(5, 8))
    mean = matrix_from_6d(pose.unflatten(0, (24, 6)))
    torch.testing.assert_close(rotations, mean.expand(5, -1, -1, -1))
    torch.testing.assert_close(shape, torch.full((5, 10), 0.3))
    torch.testing.assert_close(made, camera.expand(5, -1))


def test_an_iteration_is_the_layers_one_after_the_other():
    """fc1 is applied in two parts, features and guess; an oracle applies it to both at once."""
    torch.manual_seed(1)
    head = MeshRegressor(8, hidden=16, iterations=1).eval()
    features = torch.randn(3, 8)
    start = torch.cat([head.init_pose, head.init_shape, head.init_cam], 1).expand(3, -1)
    hidden = head.fc2(head.fc1(torch.cat([features, start], 1)))
    rotations, shape, camera = head.head(features)
    pose = (head.init_pose + head.decpose(hidden)).unflatten(1, (24, 6))
    torch.testing.assert_close(rotations, matrix_from_6d(pose))
    torch.testing.assert_close(shape, head.decshape(hidden))
    torch.testing.assert_close(camera, head.init_cam + head.deccam(hidden))


def test_stage_two_trains_a_new_regressor():
    head = small()
    before, norm = head.fc1.weight.detach().clone(), head.norm.num_batches_tracked.clone()
    features = head.features(torch.randn(4, 3, 64, 64)).detach()
    head.freeze(freeze_bn=True).train()
    assert not torch.equal(head.fc1.weight, before)
    head.head(features)
    assert head.norm.num_batches_tracked == norm + 1  # the standardisation belongs to the head
    with pytest.raises(ValueError, match="216 numbers; this likelihood needs 50"):
        MeshRegressor(8, outputs=50)


def small() -> LiteHMR:
    torch.manual_seed(0)
    return LiteHMR(pretrained=False, hidden=16, grid=2, kept=3).train()


def test_the_small_network_learns_through_its_trunk_and_keeps_the_first_blocks():
    model = small()
    assert model.width == 112 * 4
    x = torch.randn(4, 3, 64, 64)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    rotations, shape, camera = model(x)
    assert (rotations.shape, shape.shape, camera.shape) == ((4, 24, 3, 3), (4, 10), (4, 3))
    (rotations.sum() + shape.square().sum() + camera.sum()).backward()
    first = ("trunk._conv_stem", "trunk._bn0", *(f"trunk._blocks.{i}." for i in range(3)))
    for key, parameter in model.named_parameters():
        assert (parameter.grad is None) == key.startswith(first), key
    after = model.state_dict()
    moved = {key for key in before if not torch.equal(before[key], after[key])}
    assert any(key.startswith("trunk._blocks.3.") for key in moved)  # statistics of batch-norm
    assert not any(key.startswith(first) for key in moved)
