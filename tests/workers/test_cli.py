import json
import subprocess
import sys
from types import SimpleNamespace
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from fedat_service.errors import ConfigError, NotNow, Unprocessable
from fedat_service.wire.messages import CreateFederation, ManifestMessage
from fedat_service.wire.settings import CodecName, CodecSettings
from workers import cli


@pytest.fixture
def command():
    """`command(*words)` runs `fedat`; errors of ours come out as they are."""
    app = typer.Typer()
    cli.register(app)

    def run(*words):
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        return result.exit_code, result.stdout, result.stderr

    return run


@pytest.fixture
def sent(monkeypatch):
    """The messages that `create` would send."""
    messages = []

    async def create_federation(url, message, model):
        messages.append(message)
        raise NotNow("nobody there", 0.0)

    monkeypatch.setattr("workers.fleet.creation.create_federation", create_federation)
    return messages


def created(command, sent, *words) -> CreateFederation:
    with pytest.raises(NotNow):
        command("create", "tour", "--model", "logistic", *words)
    return sent[-1]


def test_the_manifest_of_a_model_is_printed_as_the_service_takes_it(command):
    status, text, _ = command("manifest", "--model", "logistic", "--data", "digits")
    manifest = ManifestMessage.model_validate(json.loads(text)).to_manifest()
    assert status == 0
    assert [(t.name, t.shape) for t in manifest.tensors] == [("fc.weight", (10, 64)), ("fc.bias", (10,))]


def test_a_preset_stands_for_its_whole_method(command, sent):
    method = created(command, sent, "--preset", "fedat").method
    assert (method.participation.name, method.solver.prox_mu, method.codec.name) == ("fedat", 0.4, "polyline")


def test_what_is_given_changes_the_preset_and_nothing_else(command, sent):
    plain = created(command, sent, "--preset", "fedavg").method
    words = ["--lr", "0.5", "--epochs", "2", "--batch-size", "7", "--prox-mu", "0.1"]
    method = created(
        command, sent, "--preset", "fedavg", *words, "--codec", "polyline", "--precision", "5"
    ).method
    assert (method.solver.lr, method.solver.epochs, method.solver.batch_size, method.solver.prox_mu) == (
        0.5, 2, 7, 0.1
    )  # fmt: skip
    assert (method.codec.name, method.codec.precision) == ("polyline", 5)
    assert method.participation == plain.participation
    assert method.solver.name == plain.solver.name


@pytest.mark.parametrize("codec", get_args(CodecName))
def test_a_federation_may_have_any_codec(command, sent, codec):
    plain = created(command, sent, "--preset", "fedcom").method
    method = created(command, sent, "--preset", "fedcom", "--codec", codec).method
    assert method == plain.model_copy(update={"codec": CodecSettings(name=codec)})


def test_rounds_tiers_and_the_end_are_what_was_asked_for(command, sent):
    words = [
        "--tiers",
        "3",
        "--retier-every",
        "7",
        "--cohort",
        "4",
        "--deadline",
        "90",
        "--start-clients",
        "12",
        "--max-time",
        "500",
    ]
    message = created(command, sent, *words, "--max-versions", "9", "--target-accuracy", "0.8", "--seed", "3")
    assert (message.tiering.num_tiers, message.tiering.retier_every) == (3, 7)
    assert (message.rounds.cohort_size, message.rounds.deadline_s, message.rounds.start_clients) == (
        4,
        90,
        12,
    )
    assert (message.stop.max_time_s, message.stop.max_versions, message.stop.target_accuracy) == (500, 9, 0.8)
    assert message.seed == 3


def test_the_service_draws_a_built_in_model_itself(command, sent):
    assert created(command, sent).initial_model == "glorot"


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["create", "Tour"], ConfigError, "federation"),
        (["create", "tour", "--lr", "-1"], ConfigError, "^--lr: .*, got -1"),
        (["create", "tour", "--batch-size", "0"], ConfigError, "^--batch-size: .*, got 0"),
        (["create", "tour", "--precision", "9"], ConfigError, "^--precision: .*, got 9"),
        (["create", "tour", "--codec", "foo"], ConfigError, "^--codec: .*'qsgd' or 'affine8', got 'foo'"),
        (["create", "tour", "--seed", "-1"], ConfigError, "^--seed: .*, got -1"),
        (["create", "tour", "--retier-every", "-1"], ConfigError, "^--retier-every: .*, got -1"),
        (["create", "tour", "--cohort", "0"], ConfigError, "^--cohort: .*, got 0"),
        (["create", "tour", "--max-time", "inf"], ConfigError, "^--max-time: .*, got inf"),
        (["create", "tour", "--preset", "best"], Unprocessable, "no method 'best'"),
        (["fleet", "tour", "--clients", "0"], ConfigError, "^--clients: .*, got 0"),
        (["fleet", "tour", "--processes", "0"], ConfigError, "^--processes: .*, got 0"),
        (["fleet", "tour", "--unstable", "21"], ConfigError, r"^--unstable: must lie in 0\.\.20, got 21"),
        (["fleet", "tour", "--rate", "0"], ConfigError, "^--rate: .*, got 0"),
        (["fleet", "tour", "--url", "tour.example"], ConfigError, "address"),
        (
            ["fleet", "tour", "--device", "gpu"],
            ConfigError,
            "^device 'gpu' is none of auto, cpu, cuda, cuda:N",
        ),
        (["fleet", "tour", "--device", "cuda:7"], ConfigError, "^device 'cuda:7' is not there"),
        (["manifest", "--model", "gpt"], ConfigError, "gpt"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(command, words, error, message):
    with pytest.raises(error, match=message):
        command(*words)


def test_a_fleet_trains_where_and_how_its_options_say(command, monkeypatch):
    runs = []
    monkeypatch.setattr(cli, "_run", runs.append)
    for words in ((), ("--device", "cpu", "--bfloat16", "--test-fraction", "0.5")):
        assert command("fleet", "tour", *words)[0] == 0
    found = [(one.device, one.bfloat16, one.test_fraction) for one in runs]
    assert found == [("auto", False, 0.2), ("cpu", True, 0.5)]


@pytest.mark.parametrize("name", ["create", "fleet", "manifest"])
def test_every_option_has_help(name):
    app = typer.Typer()
    cli.register(app)
    parameters = typer.main.get_command(app).commands[name].params
    assert all(getattr(parameter, "help", None) for parameter in parameters if parameter.name != "help")


def test_the_commands_are_listed_without_waiting_for_torch_or_httpx():
    program = (
        "import sys, typer, workers.cli; workers.cli.register(typer.Typer());"
        "sys.exit(bool({'torch', 'httpx', 'stamina'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize("words", [["manifest"], ["create", "tour"], ["fleet", "tour"]])
def test_without_the_extra_a_command_tells_how_to_install_it(words):
    program = (
        "import sys; sys.modules['stamina'] = None; from fedat_service.cli import main;"
        f"sys.argv[1:] = {words}; main()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    advice = "error: this command needs stamina: pip install 'fedat-service[worker]'\n"
    assert (ended.returncode, ended.stderr) == (2, advice)


def test_a_federation_is_told_as_the_service_sees_it(command, monkeypatch):
    async def create_federation(url, message, model):
        return SimpleNamespace(name=message.name, status="waiting", reason="for 20 clients")

    monkeypatch.setattr("workers.fleet.creation.create_federation", create_federation)
    status, _, told = command("create", "tour", "--model", "logistic")
    assert (status, told) == (0, "federation tour: waiting, for 20 clients\n")
