"""Is this body an answer to this task? Checked whole before anything is counted."""

import hashlib
from dataclasses import asdict, dataclass

import numpy as np

from fedat_service.aggregation.report import summarise
from fedat_service.errors import StaleBase, Unprocessable, WireError
from fedat_service.federation.events import ClientEvaluated, VersionEvaluated
from fedat_service.federation.spec import Spec
from fedat_service.federation.state import Lease, State
from fedat_service.federation.tasks import TaskId
from fedat_service.params import Model
from fedat_service.store.base import Body
from fedat_service.wire.bundle import Bundle, check_bundle, decode_model, head_of, model_entries, parse_bundle
from fedat_service.wire.codecs import make_codec, make_update_codec
from fedat_service.wire.differences import codecs_of
from fedat_service.wire.messages import EvaluateVersion, Evaluation


@dataclass(frozen=True, slots=True)
class Submission:
    """A readable update whose values are all finite and in range, and a digest that tells it from others.

    The digest is that of the frame's head, which holds the verified checksum and size of every payload:
    enough to know the same bytes again, at a thousandth of the cost of hashing them all.
    """

    bundle: Bundle
    digest: str


def read_submission(body: Body, spec: Spec) -> Submission:
    """Parse and check a body in one go: linear time, nothing allocated on its word.

    Raises:
        Unprocessable: If the bytes are no bundle of this model; `field` names the part at fault.
    """
    bundle = _read(body, spec)
    return Submission(bundle, hashlib.sha256(head_of(body)).hexdigest())


def read_initial_model(body: Body, spec: Spec) -> Model:
    """Read a whole model in whatever codec it came.

    Raises:
        Unprocessable: If the bytes are not all layers of this model.
    """
    bundle = _read(body, spec)
    sent = {entry.tensor.layer for entry in bundle.entries}
    if missing := [layer for layer in spec.manifest.layers if layer not in sent]:
        raise Unprocessable(f"layer {missing[0]!r} of the initial model is missing", missing[0])
    try:
        model = decode_model(bundle, spec.manifest)
        # What is accepted must be able to leave again.
        model_entries(model, spec.manifest, spec.manifest.layers, make_codec(spec.method.codec))
    except WireError as error:
        raise Unprocessable(str(error), error.field) from error
    largest = make_update_codec(spec.method.codec).largest
    for tensor in spec.manifest.tensors:
        if tensor.trainable and (np.abs(model.floats[spec.manifest.spans[tensor.name]]) > largest).any():
            raise Unprocessable(f"tensor {tensor.name!r} has values beyond {largest:g}", tensor.name)
    return model


def _read(body: Body, spec: Spec) -> Bundle:
    try:
        bundle = parse_bundle(body, spec.manifest)
        check_bundle(bundle)
    except WireError as error:
        raise Unprocessable(str(error), error.field) from error
    return bundle


def check_submission(submission: Submission, lease: Lease, returns: tuple[str, ...], spec: Spec) -> int:
    """Check that a bundle answers a lease.

    Args:
        submission: The readable body.
        lease: The task it claims to answer.
        returns: Layers the task asks for.
        spec: The federation.

    Returns:
        The number of examples it claims.

    Raises:
        StaleBase: If it was trained from another version.
        Unprocessable: If it is another federation's, lacks `num_examples`, or holds other layers, slots
            or codecs than the task asks for.
    """
    bundle = submission.bundle
    if bundle.federation != spec.name:
        raise Unprocessable(f"the bundle is for federation {bundle.federation!r}", "federation")
    if bundle.num_examples is None or bundle.base_version is None:
        missing = "num_examples" if bundle.num_examples is None else "base_version"
        raise Unprocessable(f"an update must say its {missing}", missing)
    if bundle.base_version != lease.base_version:
        raise StaleBase(
            f"the task starts from version {lease.base_version}, the update from {bundle.base_version}",
            "base_version",
            current_version=lease.base_version,
        )
    sent = {entry.tensor.layer for entry in bundle.entries}
    if missing_layers := [layer for layer in returns if layer not in sent]:
        raise Unprocessable(f"layer {missing_layers[0]!r} is due and missing", missing_layers[0])
    if undue := [entry.tensor.layer for entry in bundle.entries if entry.tensor.layer not in returns]:
        raise Unprocessable(f"layer {undue[0]!r} is not due", undue[0])
    for entry in bundle.entries:
        values, differences = codecs_of(entry.tensor, spec.method.codec)
        codec = values if entry.reference == "absolute" else differences
        if entry.tensor.dtype == "float32" and entry.codec != codec:
            came, taken = f"{entry.reference} {entry.codec}", f"absolute {values} or base {differences}"
            raise Unprocessable(
                f"tensor {entry.tensor.name!r} came as {came}, the federation takes {taken}",
                entry.tensor.name,
            )
    return bundle.num_examples


def evaluation_of(message: Evaluation, task: TaskId, at_s: float) -> ClientEvaluated:
    """A client's report on its task as an event.

    Raises:
        Unprocessable: If its numbers contradict each other.
    """
    summarise([message.num_examples], [message.correct], [message.loss])
    return ClientEvaluated(at_s, str(task), message.num_examples, message.correct, message.loss)


def summary_of(message: EvaluateVersion, state: State, at_s: float) -> VersionEvaluated:
    """An observer's report on a version as an event, with what it says of the tiers as they are.

    Raises:
        Unprocessable: If a client stands twice, or its numbers contradict each other.
    """
    clients = message.clients
    if len({client.client for client in clients}) < len(clients):
        raise Unprocessable("a client stands twice", "clients")
    summary = summarise(
        [client.num_examples for client in clients],
        [client.correct for client in clients],
        [client.loss for client in clients],
    )
    right, tested = [0] * len(state.tiers), [0] * len(state.tiers)
    for report in clients:
        client = state.clients.get(report.client)
        if client is not None and client.tier is not None:
            right[client.tier - 1] += report.correct
            tested[client.tier - 1] += report.num_examples
    accuracies = tuple(c / n if n else None for c, n in zip(right, tested, strict=True))
    return VersionEvaluated(at_s, message.version, **asdict(summary), tier_accuracies=accuracies)
