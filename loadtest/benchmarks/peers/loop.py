"""The loop that one would write by hand: plain torch, one process, one thread."""

from time import perf_counter

import torch

from loadtest.benchmarks.peers import workload


def main() -> None:
    """Federated averaging of clients with equally many examples, in the cohorts that ours has."""
    options = workload.read_options()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    examples = workload.load_examples(options.data)
    weights = workload.start_of(examples, options.model)
    model = workload.Network(options.model)
    reached = 0.0
    marks_s = [perf_counter()]
    for number in range(1, options.rounds + 1):
        total = {key: torch.zeros_like(value) for key, value in weights.items()}
        for client in examples["cohorts"][number - 1].tolist():
            model.load_state_dict(weights)
            workload.train(model, examples["x"][client], examples["y"][client], options.epochs)
            for key, value in model.state_dict().items():
                total[key] += value
        weights = {key: value / workload.COHORT for key, value in total.items()}
        marks_s.append(perf_counter())
        if options.evaluate or number == options.rounds:
            model.load_state_dict(weights)
            reached = workload.accuracy(model, examples)
    workload.report(marks_s, reached)


if __name__ == "__main__":
    main()
