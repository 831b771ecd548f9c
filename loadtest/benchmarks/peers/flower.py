"""Flower's simulation engine: federated averaging with two actors of one processor each."""

# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from time import perf_counter

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from loadtest.benchmarks.peers import workload


class _MarkedFedAvg(FedAvg):
    """Notes when rounds begin."""

    marks_s: list[float]

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        self.marks_s.append(perf_counter())
        messages: list[Message] = super().configure_train(server_round, arrays, config, grid)
        return messages


def _client_app(options: workload.Options) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        examples = workload.load_examples(options.data)
        client = int(context.node_config["partition-id"])
        y = examples["y"][client]
        model = workload.Network(options.model)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        workload.train(model, examples["x"][client], y, options.epochs)
        metrics = MetricRecord({"num-examples": len(y)})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    return app


def _server_app(options: workload.Options) -> ServerApp:
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, _: Context) -> None:
        torch.set_num_threads(1)
        examples = workload.load_examples(options.data)
        model = workload.Network(options.model)
        strategy = _MarkedFedAvg(
            fraction_train=workload.COHORT / workload.CLIENTS,
            fraction_evaluate=0.0,
            min_available_nodes=workload.CLIENTS,
        )
        strategy.marks_s = []

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            if number == options.rounds:
                strategy.marks_s.append(perf_counter())
            elif number == 0 or not options.evaluate:
                return None
            model.load_state_dict(arrays.to_torch_state_dict())
            return MetricRecord({"accuracy": workload.accuracy(model, examples)})

        start = ArrayRecord(workload.start_of(examples, options.model))
        result = strategy.start(grid, start, options.rounds, evaluate_fn=evaluate)
        reached = result.evaluate_metrics_serverapp[options.rounds]["accuracy"]
        workload.report(strategy.marks_s, reached, "flwr", "ray")

    return app


def main() -> None:
    """Run server and clients on a Ray of its own."""
    options = workload.read_options()
    run_simulation(
        _server_app(options),
        _client_app(options),
        workload.CLIENTS,
        backend_config={
            "init_args": {"num_cpus": workload.PROCESSES},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main()
