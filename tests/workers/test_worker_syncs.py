"""What a client keeps from one sync to the next, and from one round to the next."""

import httpx
import numpy as np

HEAD = {"weights": ("fc.bias",)}


def test_what_is_not_fetched_for_a_sync_goes_on_from_where_the_client_left_it(work, service, params, trainer):
    service.tasks = [
        service.task(1, up=HEAD, last=False),
        service.task(1, sync=1, task="t1.r1.s1.c000", down=HEAD),
    ]
    work()
    (first, *_), (second, _, _, sync, _) = trainer.given
    assert np.array_equal(second["fc.weight"], first["fc.weight"] + 1)
    assert np.array_equal(second["fc.bias"], params["fc.bias"])
    assert (sync.index, sync.last, tuple(sync.fetched)) == (1, True, ("fc.bias",))
    assert [[entry.tensor.name for entry in bundle.entries] for bundle in service.updates] == [
        ["fc.bias"],
        ["fc.weight", "fc.bias"],
    ]


def test_a_client_that_has_lost_its_model_goes_on_from_what_its_round_has(work, service, params, trainer):
    service.tasks = [service.task(1, sync=1, down=HEAD)]
    work()
    assert np.array_equal(trainer.given[0][0]["fc.weight"], params["fc.weight"])
    assert service.calls["GET model"] == 2


def test_what_a_client_keeps_is_what_its_last_accepted_training_gave(work, service, refusal, trainer):
    service.tasks = [service.task(n) for n in (1, 2, 3, 4)]
    service.first["update"] = [
        httpx.Response(201, json={"task": "t", "accepted": True}),
        refusal(410, "gone"),
    ]
    work()
    assert [len(kept.client) and int(kept.client["count"]["n"][0]) for *_, kept in trainer.given] == [
        0,
        1,
        1,
        2,
    ]
