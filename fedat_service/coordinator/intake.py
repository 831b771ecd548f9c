"""Is this body an answer to this task? Checked whole before anything is counted."""

import hashlib
from collections.abc import Mapping
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
from fedat_service.wire.bundle import Bundle, check_bundle, decode_model, head_of, parse_bundle
from fedat_service.wire.codecs import Codec, Float32, Int64, make_codec
from fedat_service.wire.differences import make_update_codec, ways_of
from fedat_service.wire.entries import model_entries
from fedat_service.wire.messages import EvaluateVersion, Evaluation
from fedat_service.wire.rounded import Rounded
from fedat_service.wire.settings import Reference, Slot


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
    return Submission(bundle, digest_of(body))


def digest_of(body: Body) -> str:
    """What an update that was accepted is known by; see `Submission`."""
    return hashlib.sha256(head_of(body)).hexdigest()


def read_initial_model(body: Body, spec: Spec) -> Model:
    """Read a whole model in whatever codec it came.

    Raises:
        Unprocessable: If the bytes are not all layers of this model, or more than that.
    """
    bundle = _read(body, spec)
    _require_initial(bundle, spec)
    sent = {entry.tensor.layer for entry in bundle.entries}
    if missing := [layer for layer in spec.manifest.layers if layer not in sent]:
        raise Unprocessable(f"layer {missing[0]!r} of the initial model is missing", missing[0])
    try:
        model = decode_model(bundle, spec.manifest)
        # What is accepted must be able to leave again.
        model_entries(model, spec.manifest, spec.manifest.tensors, make_codec(spec.method.codec))
    except WireError as error:
        raise Unprocessable(str(error), error.field) from error
    largest = make_update_codec(spec.method.codec).largest
    for tensor in spec.manifest.tensors:
        if tensor.trainable and (np.abs(model.floats[spec.manifest.spans[tensor.name]]) > largest).any():
            raise Unprocessable(f"tensor {tensor.name!r} has values beyond {largest:g}", tensor.name)
    return model


def _require_initial(bundle: Bundle, spec: Spec) -> None:
    _require_own(bundle, spec)
    if bundle.version != 0:
        raise Unprocessable(f"an initial model is version 0, got {bundle.version}", "version")
    for entry in bundle.entries:
        if entry.slot != "weights":
            name = entry.tensor.name
            raise Unprocessable(f"{_what(entry.slot, name)} is no part of a model", name)


def _require_own(bundle: Bundle, spec: Spec) -> None:
    if bundle.federation != spec.name:
        raise Unprocessable(f"the bundle is for federation {bundle.federation!r}", "federation")


def _read(body: Body, spec: Spec) -> Bundle:
    try:
        bundle = parse_bundle(body, spec.manifest)
        check_bundle(bundle)
    except WireError as error:
        raise Unprocessable(str(error), error.field) from error
    return bundle


def check_submission(
    submission: Submission, lease: Lease, up: Mapping[Slot, tuple[str, ...]], spec: Spec
) -> int:
    """Check that a bundle answers a lease.

    Args:
        submission: The readable body.
        lease: The task it claims to answer.
        up: Tensors the task asks for, by slot.
        spec: The federation.

    Returns:
        The number of examples it claims.

    Raises:
        StaleBase: If it was trained from another version.
        Unprocessable: If it is another federation's, lacks `num_examples`, or holds other tensors, slots or
            codecs than the task asks for.
    """
    bundle = submission.bundle
    _require_own(bundle, spec)
    if bundle.num_examples is None or bundle.base_version is None:
        missing = "num_examples" if bundle.num_examples is None else "base_version"
        raise Unprocessable(f"an update must say its {missing}", missing)
    if bundle.base_version != lease.base_version:
        raise StaleBase(
            f"the task starts from version {lease.base_version}, the update from {bundle.base_version}",
            "base_version",
            current_version=lease.base_version,
        )
    _check_contents(bundle, up, spec)
    return bundle.num_examples


def _check_contents(bundle: Bundle, up: Mapping[Slot, tuple[str, ...]], spec: Spec) -> None:
    sent = {(entry.slot, entry.tensor.name) for entry in bundle.entries}
    due = {(slot, name): None for slot, names in up.items() for name in names}
    for slot, name in due:
        if (slot, name) not in sent:
            raise Unprocessable(f"{_what(slot, name)} is due and missing", name)
    beside: list[tuple[Codec | Rounded, Reference]] = [(Float32(), "absolute")]
    for entry in bundle.entries:
        name = entry.tensor.name
        if (entry.slot, name) not in due:
            raise Unprocessable(f"{_what(entry.slot, name)} is not due", name)
        taken = beside if entry.slot != "weights" else ways_of(entry.tensor, spec.method.codec)
        if entry.tensor.dtype == "float32" and (entry.codec, entry.reference) not in taken:
            came = _told(entry.codec, entry.reference)
            wanted = " or ".join(_told(*way) for way in taken)
            what = _what(entry.slot, name)
            raise Unprocessable(f"{what} came as {came}, the federation takes {wanted}", name)


def _what(slot: Slot, name: str) -> str:
    return f"tensor {name!r}" if slot == "weights" else f"{slot} of tensor {name!r}"


def _told(codec: Codec | Int64 | Rounded, reference: Reference) -> str:
    """A codec in words: `polyline, precision 4, layout plain, reference base`."""
    name, *members = codec.fields().items()
    words = [str(name[1]), *(f"{member} {value}" for member, value in members)]
    return ", ".join(words if reference == "absolute" else [*words, f"reference {reference}"])


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
