"""An experiment as a TOML file: conditions, methods, what it should show, and what the paper prints."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from fedat_service.errors import ConfigError
from fedat_service.wire.settings import MethodName
from fedat_service.wire.strict import Float, Name, Strict
from loadtest.experiments.quantities import QuantityName
from loadtest.experiments.settings import ExperimentSettings

_SUITE = files("loadtest.experiments") / "suite"
_SUFFIX = ".toml"

ByMethod = dict[MethodName, Float]


class Paper(Strict):
    """Numbers that a paper prints; a report shows them beside ours.

    Attributes:
        table: Which table or figure of which paper.
        values: By quantity and method.
        ratios: By quantity and method: how many times the reference's value.
        note: What to bear in mind about them.
    """

    table: str
    values: dict[QuantityName, ByMethod] = Field(default_factory=dict)
    ratios: dict[QuantityName, ByMethod] = Field(default_factory=dict)
    note: str = ""


class Expectation(Strict):
    """A part of a claim that runs can show: a method's quantity is so many times another's.

    Attributes:
        quantity: What is compared.
        method: Whose.
        at_most: Largest ratio that still shows it; either this or `at_least`.
        at_least: Smallest ratio that still shows it.
        of: The methods that it is compared with, each by itself.
    """

    quantity: QuantityName
    method: MethodName
    at_most: Annotated[Float, Field(gt=0)] | None = None
    at_least: Annotated[Float, Field(gt=0)] | None = None
    of: Annotated[tuple[MethodName, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("an expectation has either at_most or at_least")
        return self


class Experiment(ExperimentSettings):
    """Conditions and methods with a name, and what their runs should show.

    Raises:
        ConfigError: If a value makes no sense; the message names its field.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: Name
    """Of its folder in a comparison; that of its file, if the file says nothing else."""

    title: str = ""
    """Heading of its report; methods and data, if empty."""

    claim: str = ""
    """What it should show, in words."""

    expect: tuple[Expectation, ...] = ()
    """What it should show, in numbers."""

    paper: Paper | None = None
    """What the paper prints."""

    @model_validator(mode="after")
    def _speaks_of_its_methods(self) -> Self:
        for expectation in self.expect:
            self.require_methods("expect", expectation.method, *expectation.of)
        if self.paper is not None:
            for numbers in (self.paper.values, self.paper.ratios):
                for quantity, by_method in numbers.items():
                    self.require_methods(f"paper: {quantity}", *by_method)
        return self

    @property
    def heading(self) -> str:
        """Title of its report."""
        return self.title or f"{' and '.join(self.methods)} on {self.data}"

    @property
    def named_heading(self) -> str:
        """That, where other experiments stand beside it."""
        return f"{self.name}: {self.heading}"


def load_experiment(source: Path | str, **changes: Any) -> Experiment:  # noqa: ANN401 - values of its fields
    """Read an experiment; its name and its folder in `runs` are those of its file, if it says nothing else.

    Args:
        source: A TOML file, or the name of one that comes with the package (see `suite_names`).
        changes: Values for other fields than the file's.

    Raises:
        ConfigError: If there is no such file, or what it says makes no experiment: the message names the
            file and the field.
    """
    path = Path(source)
    packaged = _SUITE / f"{source}{_SUFFIX}"
    if path.suffix != _SUFFIX and not packaged.is_file():
        raise ConfigError(
            f"no experiment {str(source)!r}: a .toml file, or one of {', '.join(suite_names())}"
        )
    try:
        text = path.read_text("utf-8") if path.suffix == _SUFFIX else packaged.read_text("utf-8")
        own = {"name": _name_like(path.stem), "out": Path("runs") / path.stem}
        fields = {**own, **tomllib.loads(text)}
        _require_run(Experiment(**fields))
        return Experiment(**{**fields, **changes})
    except OSError as error:
        raise ConfigError(f"{source}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, ConfigError) as error:
        raise ConfigError(f"{source}: {error}") from error


def _require_run(experiment: Experiment) -> None:
    """Whatever a file expects is of methods that it runs; a user may run fewer."""
    expected = {name for one in experiment.expect for name in (one.method, *one.of)}
    if missing := sorted(expected.difference(experiment.methods)):
        raise ConfigError(f"expect: {', '.join(missing)} is not among the methods")


def _name_like(text: str) -> str:
    """The name of a file, as far as an experiment can be called so."""
    return re.sub("[^a-z0-9_-]+", "-", text.lower()).strip("-_")


def suite_names() -> list[str]:
    """Names of the experiments that come with the package."""
    return sorted(file.name.removesuffix(_SUFFIX) for file in _SUITE.iterdir() if file.name.endswith(_SUFFIX))
