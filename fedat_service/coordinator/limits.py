"""How much one service takes on."""

from typing import Annotated

from pydantic import Field

from fedat_service.wire.strict import Strict


class Limits(Strict):
    """Bounds on what anybody may ask of a service.

    Attributes:
        max_parameters: Largest model a federation may have.
        max_memory_bytes: Arrays of all federations together; one with M tiers counts as M + 2 models, each
            as float32 and as a float64 sum, and one whose clients work each by itself as all they start from;
            a finished one counts as M + 2 models.
        max_federations: How many federations may be at work.
        max_finished: How many finished federations stay readable; those that finished first are forgotten.
        max_clients: How many clients may register with one federation.
        max_uploads_bytes: Bytes of updates being received at once; beyond it: 503, try again.
        max_receive_s: Longest time to receive one body, in real seconds.
        max_wait_s: Longest long-poll, in real seconds.
    """

    max_parameters: Annotated[int, Field(ge=1)] = 200_000_000
    max_memory_bytes: Annotated[int, Field(ge=1)] = 64 << 30
    max_federations: Annotated[int, Field(ge=1)] = 1_000
    max_finished: Annotated[int, Field(ge=1)] = 1_000
    max_clients: Annotated[int, Field(ge=1)] = 1_000_000
    max_uploads_bytes: Annotated[int, Field(ge=1)] = 1 << 30
    max_receive_s: Annotated[float, Field(gt=0)] = 600.0
    max_wait_s: Annotated[float, Field(ge=0)] = 60.0
