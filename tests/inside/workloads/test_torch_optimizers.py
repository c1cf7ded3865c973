"""LAMB updates many tensors at once: by the numbers of the plain rule, and with few launches."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from lamb_by_tensor import LambByTensor  # noqa: E402
from small_networks import smaller  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import OptimizerRule  # noqa: E402
from entrypoints.workloads.pytorch import build, optimizers  # noqa: E402

BERT = cards.load()["bert_large_pretraining_128"]
needs_fused = pytest.mark.skipif(torch.__version__ < "2.4", reason="no fused Adam on a CPU")
SHAPES = ((31, 8), (8,), (1,), (16, 8, 3), (5, 5))


def rule(**changed):
    base = OptimizerRule.from_problem(BERT.problem["optimizer"], 4)
    return OptimizerRule(base.name, base.learning_rate, 0.1, (), None, {**base.settings, **changed})


def grouped(parameters, own):
    middle = len(parameters) // 2
    return [
        {"params": parameters[:middle], "weight_decay": own.weight_decay, "lr": own.learning_rate},
        {"params": parameters[middle:], "weight_decay": 0.0, "lr": own.learning_rate},
    ]


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("together", [1, 300, 1 << 20])
@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=needs_fused)])
def test_lamb_is_the_rule_tensor_by_tensor(monkeypatch, corrected, together, fused):
    monkeypatch.setattr(optimizers, "BUNDLE_LIMITS", {"cpu": together})
    own, chance = rule(bias_correction=corrected), torch.Generator().manual_seed(1)
    start = [torch.randn(shape, generator=chance) for shape in SHAPES]
    start[1].zero_()  # what is zero moves too
    ours, theirs = ([torch.nn.Parameter(each.clone()) for each in start] for _ in range(2))
    updates = optimizers.Lamb(grouped(ours, own), own, fused), LambByTensor(grouped(theirs, own), own)
    for number in range(6):
        for index, pair in enumerate(zip(ours, theirs)):
            gradient = torch.randn(SHAPES[index], generator=chance)
            for parameter in pair:
                parameter.grad = None if (number, index) in ((0, 2), (3, 0)) else gradient.clone()
        for update in updates:
            update.step()
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine, other, rtol=3e-6, atol=1e-6)


def test_a_gradient_of_nothing_moves_nothing():
    own, weight = rule(), torch.nn.Parameter(torch.ones(3))
    lamb = optimizers.Lamb([{"params": [weight], "weight_decay": 0.0, "lr": own.learning_rate}], own, False)
    weight.grad = torch.zeros(3)
    lamb.step()
    assert weight.tolist() == [1.0] * 3


@needs_fused
@pytest.mark.parametrize("corrected", [False, True])
def test_a_step_that_overflows_is_skipped_without_a_host_that_waits(monkeypatch, corrected):
    """A scaler reads what it has found on the host, unless the optimizer looks at it itself."""
    own, chance = rule(bias_correction=corrected), torch.Generator().manual_seed(1)
    start = [torch.randn(shape, generator=chance) for shape in SHAPES]
    scaled, plain = ([torch.nn.Parameter(each.clone()) for each in start] for _ in range(2))
    lamb, other = (optimizers.Lamb(grouped(parameters, own), own, True) for parameters in (scaled, plain))
    scaler, waits = torch.amp.GradScaler("cpu", init_scale=4.0), []
    scaler.scale(torch.ones(()))  # a scaler begins with the first loss
    read = torch.Tensor.item

    def waited(tensor):
        waits.append(tensor)
        return read(tensor)

    for overflows in (True, False, False, True, False):
        gradients = [torch.randn(shape, generator=chance) for shape in SHAPES]
        for mine, others, gradient in zip(scaled, plain, gradients):
            mine.grad, others.grad = scaler.get_scale() * gradient, gradient
        scaled[2].grad *= float("inf") if overflows else 1.0
        before = [each.detach().clone() for each in scaled]
        scaler.unscale_(lamb)
        with monkeypatch.context() as watched:
            watched.setattr(torch.Tensor, "item", waited)
            scaler.step(lamb)
        scaler.update()
        if overflows:
            assert all(map(torch.equal, scaled, before))
        else:
            other.step()
    assert not waits
    for mine, others in zip(scaled, plain):
        torch.testing.assert_close(mine, others, rtol=1e-6, atol=1e-7)


def test_shards_without_a_gradient_take_part_in_the_exchange_of_norms():
    exchanged = []

    def norms(tensors, parameters):
        exchanged.append([tuple(tensor.shape) for tensor in tensors])
        return [tensor.norm() for tensor in tensors]

    own = rule()
    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    lamb = optimizers.Lamb(grouped(parameters, own), own, False)
    lamb.shard_norms = norms
    parameters[3].grad = torch.ones(SHAPES[3])
    lamb.step()
    middle = len(SHAPES) // 2
    assert exchanged == [list(part) for part in (SHAPES[:middle], SHAPES[middle:]) for _ in range(2)]
    moved = [bool((parameter != 1).any()) for parameter in parameters]
    assert moved == [False, False, False, True, False]


def launches_of_both(card):
    """How many operations LAMB starts on a GPU in its second step, and how many the rule tensor by tensor."""
    launches = pytest.importorskip("launches")
    network, own, counts = build.model(card, seed=1), OptimizerRule.from_problem(card.problem["optimizer"], 4), []
    for make in (lambda groups: optimizers.Lamb(groups, own, False), lambda groups: LambByTensor(groups, own)):
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        groups = [{**group, "lr": own.learning_rate} for group in optimizers.parameter_groups(network, own)]
        update = make(groups)
        update.step()
        with launches.Launches() as counted:
            update.step()
        counts.append(counted.count)
    return counts


def test_lamb_starts_at_most_half_as_many_operations():
    ours, theirs = launches_of_both(smaller(BERT))
    assert ours <= theirs / 2, (ours, theirs)


@pytest.mark.full
@pytest.mark.skipif(torch.__version__ < (2, 0), reason="no default device")
def test_lamb_for_bert_large_starts_at_most_half_as_many_operations():
    with torch.device("meta"):  # which bundles as GPUs do, and computes nothing
        ours, theirs = launches_of_both(BERT)
    assert ours <= theirs / 2, (ours, theirs)
