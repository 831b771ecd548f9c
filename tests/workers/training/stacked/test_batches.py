import torch

from fedat_service.wire.settings import Solver
from workers.training.batches import Batches
from workers.training.stacked.batches import StackedBatches
from workers.training.stacked.job import Job


def jobs(sizes, batch_size):
    solver = Solver(batch_size=batch_size)
    return [
        Job(torch.arange(100.0 * k, 100.0 * k + size).unsqueeze(1), torch.arange(size), {}, solver, seed=k)
        for k, size in enumerate(sizes)
    ]


def test_every_client_sees_the_batches_that_it_sees_alone():
    clients = jobs((11, 9, 12), 4)
    stacked = StackedBatches(clients)
    epochs = [
        [(b.inputs.clone(), b.labels.clone(), b.label_gradients) for b in stacked.epoch()] for _ in range(2)
    ]
    for k, job in enumerate(clients):
        torch.manual_seed(job.seed)
        for epoch in epochs:
            alone = Batches((job.inputs, job.labels)).shuffled(4)
            for (x, y), (inputs, labels, gradients) in zip(alone, epoch, strict=True):
                assert gradients[k].count_nonzero() == len(y)
                assert torch.equal(inputs[k, : len(y)], x)
                assert torch.equal(labels[k, : len(y), 0], y)


def test_a_loss_is_the_mean_over_what_a_client_really_has():
    *_, last = StackedBatches(jobs((9, 12), 4)).epoch()
    assert last.label_gradients.squeeze(2).tolist() == [[-1, 0, 0, 0], [-0.25, -0.25, -0.25, -0.25]]


def test_what_is_real_of_a_client_are_its_examples():
    batches = StackedBatches(jobs((9, 12), 4))
    assert batches.real.tolist() == [[1] * 9 + [0] * 3, [1] * 12]


def test_small_clients_fill_no_more_than_the_largest_of_them():
    (only,) = StackedBatches(jobs((2, 3), 10)).epoch()
    assert only.inputs.shape == (2, 3, 1)
