import asyncio
import io

import pytest
from rich.console import Console

from fedat_service.errors import ServiceRefused
from fedat_service.wire.views import AccuracyPoint, FederationView
from workers.fleet.creation import create_federation, describe_model
from workers.fleet.progress import describe, run_visibly


@pytest.fixture
def view(service) -> FederationView:
    return FederationView.model_validate_json(service._f(None).content)


def test_a_line_says_status_time_version_and_clients(view):
    late = view.model_copy(update={"now_s": 1234.5, "clients": 20})
    assert describe(late, None) == "training, 1,234 s, version 3, 20 clients"


def test_a_line_says_accuracy_and_lost_clients_once_there_are_any(view):
    evaluated = AccuracyPoint(
        version=2,
        at_s=9.0,
        num_clients=4,
        num_examples=40,
        accuracy=0.8125,
        loss=0.5,
        client_accuracy_variance=0.0,
    )
    line = describe(view.model_copy(update={"clients": 4, "lost_clients": 1}), evaluated)
    assert line.endswith("version 3, accuracy 0.812 (version 2), 4 clients (1 lost)")


def test_a_line_counts_the_updates_of_every_tier_if_there_are_several(view):
    tiered = view.model_copy(update={"update_counts": (2, 0), "clients": 4})
    assert describe(tiered, None).endswith("version 3, tiers 2 0, 4 clients")


def test_a_federation_that_does_not_exist_is_told_before_a_process_starts(live_url, fleet):
    with pytest.raises(ServiceRefused, match="no federation 'absent'"):
        asyncio.run(run_visibly(fleet(url=live_url, federation="absent"), Console(file=io.StringIO())))


@pytest.mark.e2e
def test_without_a_terminal_lines_come_with_what_is_new_and_the_last_says_how_it_ended(
    live_url, fleet, federation
):
    settings = fleet(url=live_url, federation="shown", num_processes=1, latency="none")
    asyncio.run(create_federation(live_url, federation(settings), describe_model(settings)))
    shown = io.StringIO()
    tally = asyncio.run(run_visibly(settings, Console(file=shown, width=200)))
    lines = shown.getvalue().splitlines()
    assert tally.finished
    assert lines[0].startswith("shown: waiting")
    assert lines[-1].startswith("shown: finished")
    assert "accuracy" in lines[-1]
    assert len(set(lines)) == len(lines)
