"""Environments are made once; the one real one here has no packages, so that nothing is fetched."""

import subprocess
from pathlib import Path

import pytest

from fedat_service.errors import NotMeasured
from loadtest.benchmarks.peers import environments
from loadtest.benchmarks.peers.environments import REQUIREMENTS, python_of


def requiring(folder, text):
    requirements = folder / "required.txt"
    requirements.write_text(text)
    return requirements


@pytest.fixture
def making(tmp_path, monkeypatch):
    """The commands that made an environment, of which those with a word of `broken` fail."""

    class Making:
        commands, broken, environment = [], set(), tmp_path / "made"

        def run(self, command):
            self.commands.append(command)
            if self.broken.intersection(command):
                raise NotMeasured("the line is dead")
            (self.environment / "bin").mkdir(parents=True, exist_ok=True)
            (self.environment / "bin" / "python").touch()

        def times(self, requirements):
            """How many commands it took to have an environment."""
            before = len(self.commands)
            python_of(self.environment, requirements)
            return len(self.commands) - before

    making = Making()
    monkeypatch.setattr(environments, "output_of", making.run)
    return making


def test_an_environment_is_made_with_its_own_python(tmp_path):
    python = python_of(tmp_path / "made", requiring(tmp_path, "# nothing\n"))
    done = subprocess.run(
        [python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tmp_path / "made")


def test_an_environment_is_made_once_and_that_is_told(making, tmp_path, capsys):
    requirements = requiring(tmp_path, "one==1\n")
    assert making.times(requirements) > 0
    assert f"making {making.environment}" in capsys.readouterr().err
    assert making.times(requirements) == 0
    assert capsys.readouterr().err == ""


def test_an_environment_of_other_versions_is_brought_to_what_is_required(making, tmp_path):
    making.times(requiring(tmp_path, "one==1\n"))
    assert making.times(requiring(tmp_path, "one==2\n")) > 0


def test_an_environment_that_was_not_finished_is_made_again(making, tmp_path):
    requirements = requiring(tmp_path, "one==1\n")
    making.broken.add("pip")
    with pytest.raises(NotMeasured, match="dead"):
        python_of(making.environment, requirements)
    making.broken.clear()
    assert making.times(requirements) > 0


def test_an_environment_that_could_not_be_changed_is_no_longer_what_it_was(making, tmp_path):
    before = requiring(tmp_path, "one==1\n").rename(tmp_path / "before.txt")
    making.times(before)
    making.broken.add("pip")
    with pytest.raises(NotMeasured):
        python_of(making.environment, requiring(tmp_path, "one==2\n"))
    making.broken.clear()
    assert making.times(before) > 0


def pins(file):
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("==") for line in lines)


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_everybody_computes_with_the_same_torch_and_numpy(name):
    ours = pins(Path(__file__).parents[4] / "constraints.txt")
    theirs = pins(REQUIREMENTS[name])
    assert [theirs[package] for package in ("torch", "numpy")] == [ours["torch"], ours["numpy"]]
