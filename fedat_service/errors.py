"""Every error the project raises on purpose.

FedATError
├── ConfigError            a setting, a method or a command-line value makes no sense
├── RuleError              a rule is given numbers it is not defined for
├── ManifestError          a model cannot be described, or tensors do not fit its description
├── WireError              bytes from the network do not decode
├── RequestError           the service refuses a request; has an HTTP status and a stable type
│   ├── NotFound           no such federation, client, task, tier or version
│   ├── Conflict           the same key with other content
│   ├── Gone               the round or the federation is over
│   ├── StaleBase          trained from another version than the task's
│   ├── Unprocessable      readable, but not acceptable: names the field
│   ├── TooSlow            the body did not arrive in time
│   ├── TooLarge           more bytes than the resource takes
│   ├── UnsupportedMedia   not a content type or encoding the resource takes
│   └── NotNow             try again after `retry_after_s`
├── LogDamaged             an event log cannot be read or played again; says where
├── Deadlock               on virtual time everything waits and nothing will happen
├── ThreadForbidden        on virtual time something asked for a thread
├── DataMissing            a data set is not on this machine; says how to get it
├── DataDamaged            a data file is not what it should be: cut short, another hash, no image
├── TrainingError          local training produced something that must not be sent
├── ServiceRefused         the worker's view of a refusal that trying again cannot cure
├── ServiceFailed          a service process ended, or did not become ready; the message ends its log
├── NotMeasured            a benchmark could not measure all that it should; holds the other results
└── FleetFailed            a process of a fleet ended with an error; the message is its own
"""

from typing import Any, ClassVar


class FedATError(Exception):
    """Root of the tree."""


class ConfigError(FedATError, ValueError):
    """A setting, a method or a command-line value makes no sense."""


class RuleError(FedATError, ValueError):
    """A rule is given numbers it is not defined for: no weight, a negative count, a latency of NaN."""


class ManifestError(FedATError, ValueError):
    """A model cannot be described, or tensors do not fit its description."""


class WireError(FedATError, ValueError):
    """Bytes do not decode; `field` names the part of the bundle that is wrong."""

    def __init__(self, message: str, field: str = "body") -> None:
        super().__init__(message)
        self.field = field


class RequestError(FedATError):
    """The service refuses a request: the HTTP layer turns it into problem+json.

    Args:
        message: What is wrong, with the offending value.
        field: The field, layer or parameter at fault, if there is one.
        extensions: Further members of the problem document (`current_version`, `limit` ...).
    """

    status: ClassVar[int] = 400
    kind: ClassVar[str] = "bad-request"

    def __init__(self, message: str, field: str | None = None, **extensions: int | float | str) -> None:
        super().__init__(message)
        self.field = field
        self.extensions = extensions


class NotFound(RequestError):
    """No such federation, client, task, tier or version."""

    status = 404
    kind = "not-found"


class Conflict(RequestError):
    """The same key with other content."""

    status = 409
    kind = "conflict"


class Gone(RequestError):
    """The round or the federation is over: ask for a new task."""

    status = 410
    kind = "gone"


class StaleBase(RequestError):
    """The update was trained from another version than its task says."""

    status = 412
    kind = "stale-base-version"


class TooSlow(RequestError):
    """The body did not arrive in time."""

    status = 408
    kind = "too-slow"


class TooLarge(RequestError):
    """More bytes than the resource takes."""

    status = 413
    kind = "too-large"


class UnsupportedMedia(RequestError):
    """Not a content type or content encoding the resource takes."""

    status = 415
    kind = "unsupported-media-type"


class Unprocessable(RequestError):
    """Readable, but not acceptable."""

    status = 422
    kind = "unprocessable"


class NotNow(RequestError):
    """Try again after `retry_after_s` seconds."""

    status = 503
    kind = "not-now"

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class LogDamaged(FedATError):
    """An event log cannot be read or played again; the message says where."""


class Deadlock(FedATError):
    """On virtual time everything waits and nothing will happen; the message says who waits where."""


class ThreadForbidden(FedATError):
    """On virtual time something asked for a thread."""


class DataMissing(FedATError, FileNotFoundError):
    """A data set is not on this machine; the message says how to get it."""


class DataDamaged(FedATError):
    """A data file is not what it should be; the message names the file."""


class TrainingError(FedATError):
    """Local training produced something that must not be sent."""


class ServiceRefused(FedATError):
    """The service refused a request and trying again cannot cure it."""

    def __init__(self, message: str, status: int, kind: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class ServiceFailed(FedATError):
    """A service process ended, or did not become ready; the message holds the end of its log."""


class NotMeasured(FedATError):
    """A benchmark could not measure all that it should; `results` are those of the rest."""

    def __init__(self, message: str, results: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.results = {} if results is None else results


class FleetFailed(FedATError):
    """A process of a fleet ended with an error; the message is its own."""
