"""Environments of the other frameworks, made by venv and pip the first time that they are needed."""

import sys
from pathlib import Path

from loadtest.benchmarks.peers.processes import output_of

REQUIREMENTS = {name: Path(__file__).with_name(f"{name}.txt") for name in ("pfl", "flower")}
"""Exact versions, by contestant."""

_INSTALLED = "installed.txt"
_PIP_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def python_of(environment: Path, requirements: Path) -> Path:
    """The Python of an environment that holds what is required; nothing is asked of the network if it does.

    Otherwise the environment is made, or brought to what is required.

    Args:
        environment: Folder of the environment.
        requirements: A requirements file of pip's.

    Raises:
        NotMeasured: If that fails; the message is the last line that venv or pip wrote.
    """
    python = environment.absolute() / "bin" / "python"
    wanted, installed = requirements.read_text(), environment / _INSTALLED
    if python.exists() and installed.exists() and installed.read_text() == wanted:
        return python
    sys.stderr.write(f"making {environment} of what {requirements.name} requires: a long download, once\n")
    installed.unlink(missing_ok=True)
    output_of([sys.executable, "-m", "venv", environment])
    output_of([python, *_PIP_INSTALL, "-r", requirements])
    installed.write_text(wanted)
    return python
