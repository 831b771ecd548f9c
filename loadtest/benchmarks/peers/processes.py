"""Processes that may fail: what they write, or why they wrote nothing."""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from fedat_service.errors import NotMeasured

T = TypeVar("T")

_LONGEST_S = 3600
"""A download of some GB and twenty rounds take a part of that on a slow machine."""


def output_of(command: Sequence[str | Path], variables: Mapping[str, str] | None = None) -> str:
    """Run a command to its end.

    Args:
        command: The program and its arguments.
        variables: Its environment; None for ours.

    Returns:
        What it wrote to standard output. Standard error is shown only when it fails.

    Raises:
        NotMeasured: If it fails: the message is the last line of its standard error. Or if it does not end.
    """
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, check=False, env=variables, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"it did not end within {_LONGEST_S} s") from None
    if done.returncode:
        errors = done.stderr.decode(errors="replace")
        sys.stderr.write(errors)
        raise NotMeasured(_last_words(errors) or f"exit status {done.returncode}")
    return done.stdout.decode(errors="replace")


def _last_words(text: str) -> str:
    """The last line that is more than a ruler."""
    return next((line.strip() for line in reversed(text.splitlines()) if re.search(r"\w", line)), "")


def tried_twice(name: str, attempt: Callable[[], T]) -> T:
    """What an attempt returns, or a second one if the first cannot be measured.

    Raises:
        NotMeasured: If the second fails, too.
    """
    try:
        return attempt()
    except NotMeasured as error:
        sys.stderr.write(f"{name} failed, and gets a second try: {error}\n")
        return attempt()
