"""The JSON messages and the paths of the HTTP protocol, written once for service, workers and load tests."""

from typing import Annotated, Literal, get_args

from pydantic import Field, StrictBool

from fedat_service.params import Manifest, TensorSpec
from fedat_service.wire.settings import (
    CodecName,
    CodecSettings,
    Method,
    MethodName,
    Rounds,
    Slot,
    Solver,
    Stop,
    Tiering,
)
from fedat_service.wire.strict import Float, Int, Name, Seed, Strict, judged_as

BUNDLE_TYPE = "application/vnd.fedat.bundle"
PROBLEM_TYPE = "application/problem+json"

PREFIX = "/v1"
FEDERATIONS = PREFIX + "/federations"
FEDERATION = FEDERATIONS + "/{federation}"
TIERS = FEDERATION + "/tiers"
TIER = TIERS + "/{tier}"
TIER_MODEL = TIER + "/model"
MODEL = FEDERATION + "/model"
CLIENTS = FEDERATION + "/clients"
CLIENT_TASK = CLIENTS + "/{client}/task"
UPDATE = FEDERATION + "/tasks/{task}/update"
TASK_EVALUATION = FEDERATION + "/tasks/{task}/evaluation"
EVALUATIONS = FEDERATION + "/evaluations"
METRICS = FEDERATION + "/metrics"

MAX_EXAMPLES = 1 << 24
"""Largest number of examples a client may claim: a bound on its weight in a round."""

NumExamples = Annotated[Int, Field(ge=1, le=MAX_EXAMPLES)]
Version = Annotated[Int, Field(ge=0, lt=2**53)]


class TensorMessage(Strict):
    """One tensor of a manifest; `layer` defaults to the name up to its last dot."""

    name: str = Field(min_length=1, max_length=128)
    shape: tuple[Annotated[Int, Field(ge=0, lt=2**40)], ...] = Field(max_length=8)
    dtype: Literal["float32", "int64"] = "float32"
    layer: str | None = None
    trainable: StrictBool | None = None


class ManifestMessage(Strict):
    """The tensors of a model, in `state_dict` order."""

    tensors: tuple[TensorMessage, ...] = Field(min_length=1, max_length=100_000)

    def to_manifest(self) -> Manifest:
        """Build the manifest.

        Raises:
            ManifestError: If the tensors cannot be a model.
        """
        return Manifest(
            tuple(
                TensorSpec(
                    name=t.name,
                    shape=t.shape,
                    dtype=t.dtype,
                    layer=t.layer or t.name.rpartition(".")[0] or t.name,
                    trainable=t.dtype == "float32" if t.trainable is None else t.trainable,
                )
                for t in self.tensors
            )
        )

    @staticmethod
    def of(manifest: Manifest) -> "ManifestMessage":
        """Describe a manifest for the wire."""
        return ManifestMessage(
            tensors=tuple(
                TensorMessage(name=t.name, shape=t.shape, dtype=t.dtype, layer=t.layer, trainable=t.trainable)
                for t in manifest.tensors
            )
        )


class CreateFederation(Strict):
    """`POST /v1/federations`: everything a federation is, but its initial model's values.

    `initial_model` is `glorot` (the service draws it from `seed`) or `upload` (the federation waits for
    `PUT .../model`). A preset name stands for its whole method.
    """

    name: Name
    method: Annotated[
        Method | MethodName, judged_as(lambda value: MethodName if isinstance(value, str) else Method)
    ] = "fedat"
    manifest: ManifestMessage
    initial_model: Literal["glorot", "upload"] = "glorot"
    tiering: Tiering = Tiering()
    rounds: Rounds = Rounds()
    stop: Stop = Stop()
    seed: Seed = 0


class RegisterClient(Strict):
    """`POST .../clients`: the same name again is the same client, which reads all codecs if it names none."""

    name: Name
    num_examples: NumExamples
    codecs: tuple[str, ...] = Field(default=get_args(CodecName), max_length=16)


class Task(Strict):
    """`GET .../clients/{c}/task`: one unit of work; repeated until done or its lease ends.

    Of a round's syncs it is number `sync`, from 0, and if `last` the one that ends it: fetch the tensors
    `down`, train `blocks` times as the solver says, send the tensors `up`; what is not fetched goes on from
    where the client left it. A `profile` task sends nothing: it measures how long fetching and training take.
    """

    task: str
    federation: str
    client: str
    purpose: Literal["train", "profile"]
    tier: int
    round: int
    sync: int
    last: bool
    base_version: int
    blocks: int
    down: dict[Slot, tuple[str, ...]]
    up: dict[Slot, tuple[str, ...]]
    solver: Solver
    codec: CodecSettings
    seed: Seed
    deadline_in_s: float


class Receipt(Strict):
    """`PUT .../update` answered: the update is accepted and will be counted exactly once."""

    task: str
    accepted: Literal[True] = True


class Evaluation(Strict):
    """One client's metrics on its own test split."""

    num_examples: NumExamples
    correct: Annotated[Int, Field(ge=0, le=MAX_EXAMPLES)]
    loss: Annotated[Float, Field(ge=0, le=1e30)]


class ClientEvaluation(Evaluation):
    """The same, with the client's name."""

    client: Name


class EvaluateVersion(Strict):
    """`POST .../evaluations`: an observer's metrics of one version over many clients' test splits."""

    version: Version
    clients: tuple[ClientEvaluation, ...] = Field(min_length=1, max_length=1_000_000)
