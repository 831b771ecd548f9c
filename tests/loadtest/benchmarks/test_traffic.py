from contextlib import closing

import numpy as np
import pytest

from fedat_service.errors import ServiceRefused
from fedat_service.wire.bundle import decode_model, parse_bundle
from fedat_service.wire.messages import Task
from fedat_service.wire.settings import Solver
from loadtest.benchmarks.traffic import (
    CODEC,
    MANIFEST,
    Connection,
    cohort_of,
    count_reported,
    encode_update,
    fetch_model,
    fetch_task,
    open_federation,
    put_all,
    random_model,
    update_path,
)
from loadtest.experiments.service import fedat_serve, running


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with running(fedat_serve(rate=1.0), tmp_path_factory.mktemp("logs") / "service.log") as service:
        yield service.url


@pytest.fixture
def connection(url):
    with closing(Connection(url)) as connection:
        yield connection


@pytest.mark.e2e
def test_uploads_are_counted_by_the_real_service(url, connection):
    clients = open_federation(connection, "counted", num_clients=3, cohort_size=3)
    tasks = [fetch_task(connection, "counted", client) for client in clients[:2]]
    fetch_model(connection, tasks[0])
    body = encode_update(tasks[0], random_model(seed=1))
    assert put_all(url, [update_path(task) for task in tasks], body, num_connections=2) > 0
    assert count_reported(connection, "counted") == 2


@pytest.mark.e2e
def test_only_the_cohort_works(connection):
    clients = open_federation(connection, "some", num_clients=5, cohort_size=2)
    cohort = cohort_of(connection, "some")
    assert len(cohort) == 2
    assert set(cohort) < set(clients)


@pytest.mark.e2e
def test_a_refusal_is_raised_with_its_status(connection):
    with pytest.raises(ServiceRefused) as refused:
        connection.send("GET", "/v1/federations/nobody")
    assert refused.value.status == 404


def test_an_update_holds_the_whole_model():
    task = Task(
        task="t1.r1.s0.client",
        federation="f",
        client="client",
        purpose="train",
        tier=1,
        round=1,
        sync=0,
        base_version=0,
        last=True,
        blocks=1,
        down={"weights": tuple(MANIFEST.spans)},
        up={"weights": tuple(MANIFEST.spans)},
        solver=Solver(),
        codec=CODEC,
        seed=0,
        deadline_in_s=1.0,
    )
    model = random_model(seed=2)
    sent = decode_model(parse_bundle(encode_update(task, model), MANIFEST), MANIFEST)
    assert np.abs(sent.floats - model.floats).max() <= 0.5e-4 + 1e-7
