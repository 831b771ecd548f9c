import asyncio
import io
from contextlib import asynccontextmanager

import pytest
from rich.console import Console

from fedat_service.errors import NotNow
from loadtest.experiments.progress import Progress
from loadtest.experiments.settings import ExperimentSettings


class Federation:
    """Answers as a client of a running federation would; `fails` times it cannot be reached."""

    def __init__(self, run, fails=0):
        self.run = run
        self._fails = fails

    async def view(self):
        if self._fails:
            self._fails -= 1
            raise NotNow("no answer", retry_after_s=0)
        return self.run.federation

    async def metrics(self):
        return self.run.metrics


@asynccontextmanager
async def watched(progress, federation):
    finished = asyncio.Event()
    watching = asyncio.create_task(progress.watch("fedat")(federation, finished))
    yield
    finished.set()
    await watching


@pytest.fixture
def run(make_run):
    return make_run("fedat", [0.25, 0.75], num_tiers=2)


@pytest.mark.anyio
async def test_off_a_terminal_the_last_line_stays(run):
    output = io.StringIO()
    with Progress(ExperimentSettings(), Console(file=output, width=200)) as progress:
        async with watched(progress, Federation(run)):
            await asyncio.sleep(0)
    assert "accuracy 0.750" in output.getvalue()


@pytest.mark.anyio
async def test_the_last_line_is_about_the_end(run, make_run):
    output, federation = io.StringIO(), Federation(make_run("fedat", [0.25]))
    with Progress(ExperimentSettings(), Console(file=output, width=200), look_every_s=100.0) as progress:
        async with watched(progress, federation):
            await asyncio.sleep(0)
            federation.run = run
    assert "version 2, accuracy 0.750" in output.getvalue()


@pytest.mark.anyio
async def test_on_a_terminal_every_method_has_a_line(run):
    output = io.StringIO()
    console = Console(file=output, width=200, force_terminal=True)
    with Progress(ExperimentSettings(), console) as progress:
        async with watched(progress, Federation(run)):
            await asyncio.sleep(0)
    assert "fedavg" in output.getvalue()
    assert "version 2, accuracy 0.750" in output.getvalue()


@pytest.mark.anyio
async def test_a_service_out_of_reach_does_not_end_the_watch(run):
    with Progress(ExperimentSettings(), Console(file=io.StringIO())) as progress:
        async with watched(progress, Federation(run, fails=1)):
            await asyncio.sleep(0)


def test_a_run_that_is_there_already_is_said_to_be_kept():
    output = io.StringIO()
    with Progress(ExperimentSettings(), Console(file=output, width=200)) as progress:
        progress.keep("fedat")
    assert "fedat: kept from an earlier run" in output.getvalue()


@pytest.mark.parametrize(
    ("is_begun", "words"), [(True, "goes on where it was interrupted"), (False, "starts")]
)
def test_off_a_terminal_a_line_says_whether_a_method_begins_or_goes_on(is_begun, words):
    output = io.StringIO()
    with Progress(ExperimentSettings(), Console(file=output, width=200)) as progress:
        progress.watch("fedat", is_begun=is_begun)
    assert f"fedat: {words}; 1,800 simulated seconds" in output.getvalue()


@pytest.mark.anyio
async def test_on_a_narrow_terminal_names_and_words_are_all_there(make_run):
    run = make_run("fedat", [0.5] * 999, num_tiers=5)
    output = io.StringIO()
    console = Console(file=output, width=80, force_terminal=True, color_system=None)
    with Progress(ExperimentSettings(), console) as progress:
        async with watched(progress, Federation(run)):
            await asyncio.sleep(0)
    shown = " ".join(output.getvalue().rpartition("fedavg")[2].split())
    assert " fedat \u2501" in shown
    for words in ("finished, 1,200 s, version 999, accuracy 0.500", "4 clients (1 lost)"):
        assert words in shown
