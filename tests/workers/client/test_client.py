import httpx
import numpy as np
import pytest

from fedat_service.errors import ServiceRefused, WireError
from fedat_service.wire.bundle import parse_bundle
from fedat_service.wire.codecs import Float32
from fedat_service.wire.messages import (
    BUNDLE_TYPE,
    ClientEvaluation,
    CreateFederation,
    EvaluateVersion,
    Evaluation,
    ManifestMessage,
    RegisterClient,
)
from fedat_service.wire.settings import CodecSettings


def same(left, right):
    return list(left) == list(right) and all(np.array_equal(left[name], right[name]) for name in left)


def test_a_task_arrives_as_the_service_gave_it(virtually, connect, service):
    service.tasks = [service.task(7)]
    assert virtually(connect().next_task("c000", 30.0)) == service.task(7)
    assert service.requests[0].url.params["wait"] == "30.0"


def test_no_task_now_is_none_after_the_time_the_service_asks_for(virtually, connect, service):
    service.tasks = [httpx.Response(204, headers={"Retry-After": "3"}), service.task()]

    async def main():
        client = connect()
        return await client.next_task("c000", 30.0), await client.next_task("c000", 30.0)

    assert virtually(main()) == (None, service.task())
    assert service.at_s == pytest.approx([0.0, 3.0])


@pytest.mark.parametrize("fields", [{"client": "c001"}, {"federation": "g"}])
def test_a_task_of_somebody_else_is_refused(virtually, connect, service, fields):
    service.tasks = [service.task(**fields)]
    with pytest.raises(WireError, match="'c000' got a task"):
        virtually(connect().next_task("c000", 30.0))


def test_a_message_that_breaks_the_protocol_is_refused_by_name(virtually, connect, service):
    service.tasks = [httpx.Response(200, json={**service.task().model_dump(), "seed": -1})]
    with pytest.raises(WireError, match="Task is wrong: seed"):
        virtually(connect().next_task("c000", 30.0))


def test_a_model_arrives_bit_for_bit(virtually, connect, service, models, params):
    model = virtually(connect().fetch_model(service.task(), models))
    assert model.version == 3
    assert same(model.params, params)


def test_a_model_is_asked_for_by_its_task_and_uncompressed(virtually, connect, service, models):
    virtually(connect().fetch_model(service.task(4), models))
    request = service.requests[0]
    assert dict(request.url.params) == {"task": "t1.r4.s0.c000"}
    assert request.headers["accept"] == BUNDLE_TYPE
    assert request.headers["accept-encoding"] == "identity"


def test_a_model_that_the_client_holds_is_not_sent_again(virtually, connect, service, models):
    async def main():
        client = connect()
        return [await client.fetch_model(service.task(n), models) for n in (1, 2)]

    first, second = virtually(main())
    assert second is first
    assert service.requests[1].headers["if-none-match"] == '"v3"'


def test_a_new_version_replaces_the_one_that_is_held(virtually, connect, service, models):
    async def main():
        client = connect()
        await client.fetch_model(service.task(1), models)
        service.version = 4
        return await client.fetch_model(service.task(2), models)

    assert virtually(main()).version == 4


def test_clients_of_a_process_share_decoded_models_but_each_makes_its_transfer(
    virtually, connect, service, models
):
    async def main():
        return [await connect().fetch_model(service.task(), models) for _ in range(2)]

    first, second = virtually(main())
    assert second is first
    assert all("if-none-match" not in request.headers for request in service.requests)


def test_without_entity_tags_every_model_is_read_anew(virtually, connect, service, models):
    bare = [httpx.Response(200, content=service.bundle())]
    service.version = 4
    service.first["model"] = [*bare, httpx.Response(200, content=service.bundle())]

    async def main():
        client = connect()
        return [(await client.fetch_newest(models, Float32())).version for _ in range(2)]

    assert virtually(main()) == [3, 4]


def test_an_answer_not_modified_to_who_holds_nothing_is_refused(virtually, connect, service, models):
    service.first["model"] = [httpx.Response(304)]
    with pytest.raises(WireError, match="304"):
        virtually(connect().fetch_newest(models, Float32()))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"version": 9}, "asked for version 3, got 9"),
        ({"federation": "other"}, "got version 3 of 'other'"),
        ({"version": None, "base_version": 3, "num_examples": 1}, "expected a version of 'f'"),
        ({"entries": ()}, "weights of tensor 'fc.bias' is missing"),
    ],
)
def test_another_model_than_was_asked_for_is_refused(virtually, connect, service, models, header, message):
    service.first["model"] = [httpx.Response(200, content=service.bundle(**header))]
    with pytest.raises(WireError, match=message):
        virtually(connect().fetch_model(service.task(), models))


def test_hostile_bytes_are_refused_whatever_they_are(virtually, connect, service, models):
    good = service.bundle()
    rng = np.random.default_rng(0)
    flipped = [bytearray(good) for _ in range(50)]
    for body in flipped:
        body[rng.integers(len(body))] ^= 1 << rng.integers(8)
    hostile = [b"", b"PK\x03\x04", b"\x80\x04.", good[:-1], good + b"\0", *map(bytes, flipped)]

    async def main():
        client = connect()
        for body in hostile:
            service.first["model"] = [httpx.Response(200, content=body, headers={"ETag": '"v3"'})]
            with pytest.raises(WireError):
                await client.fetch_model(service.task(), models)
        return await client.fetch_model(service.task(), models)

    assert virtually(main()).version == 3


def test_a_body_larger_than_any_model_is_refused(virtually, connect, service, models):
    service.first["model"] = [httpx.Response(200, content=b"\0" * 1_000_000)]
    with pytest.raises(WireError, match="over"):
        virtually(connect().fetch_newest(models, Float32()))


def test_an_update_holds_the_due_layers_its_base_and_its_examples(
    virtually, connect, service, models, params
):
    virtually(connect().put_update(service.task(5), {"weights": params}, 8, models))
    (bundle,) = service.updates
    assert (bundle.federation, bundle.base_version, bundle.num_examples) == ("f", 3, 8)
    assert [entry.tensor.name for entry in bundle.entries] == ["fc.weight", "fc.bias"]
    assert service.requests[0].url.path == "/v1/federations/f/tasks/t1.r5.s0.c000/update"
    assert service.requests[0].headers["content-type"] == BUNDLE_TYPE


def test_an_update_travels_in_the_codec_of_its_task(virtually, connect, service, models, params):
    codec = CodecSettings(name="polyline", precision=5)
    virtually(connect().put_update(service.task(codec=codec), {"weights": params}, 8, models))
    assert {entry.codec.precision for entry in service.updates[0].entries} == {5}


def test_a_profile_sends_no_layer(virtually, connect, service, models, params):
    virtually(connect().put_update(service.task(purpose="profile"), {"weights": params}, 8, models))
    assert service.updates[0].entries == ()


def test_an_update_whose_answer_is_lost_is_sent_again_byte_for_byte(
    virtually, connect, service, models, params
):
    service.first["update"] = [httpx.ReadError("cut off")]
    virtually(connect().put_update(service.task(), {"weights": params}, 8, models))
    first, second = service.requests
    assert first.content == second.content


def test_the_initial_model_is_uploaded_whole_as_version_0(virtually, connect, service, models, params):
    service.first["model"] = [httpx.Response(201, json={"version": 0})]
    virtually(connect().upload_model(params, models))
    bundle = parse_bundle(service.requests[0].content, service.manifest)
    assert bundle.version == 0
    assert {type(entry.codec) for entry in bundle.entries} == {Float32}


def test_a_federation_is_created_by_its_message(virtually, connect, service):
    message = CreateFederation(name="f", manifest=ManifestMessage.of(service.manifest), seed=5)
    service.first["federations"] = [service._f(None)]
    view = virtually(connect().create_federation(message))
    assert view.name == "f"
    assert CreateFederation.model_validate_json(service.requests[0].content) == message


@pytest.mark.parametrize("fields", [{}, {"codecs": ("float32",)}], ids=["all codecs", "one codec"])
def test_registration_says_who_the_client_is(virtually, connect, service, fields):
    me = RegisterClient(name="c000", num_examples=8, **fields)
    assert virtually(connect().register(me)).status == "tiered"
    assert RegisterClient.model_validate_json(service.requests[0].content) == me


def test_evaluations_are_reported(virtually, connect, service):
    clients = (ClientEvaluation(client="c000", num_examples=2, correct=1, loss=0.5),)

    async def main():
        client = connect()
        await client.post_evaluations(3, clients)
        await client.put_evaluation(service.task(), Evaluation(num_examples=2, correct=1, loss=0.5))

    virtually(main())
    of_version, of_task = service.requests
    assert EvaluateVersion.model_validate_json(of_version.content) == EvaluateVersion(
        version=3, clients=clients
    )
    assert of_task.url.path.endswith("/tasks/t1.r1.s0.c000/evaluation")


@pytest.mark.parametrize("name", ["../secret", "a/b", "x?y=1"])
def test_a_task_name_cannot_lead_elsewhere(virtually, connect, service, models, params, name):
    virtually(connect().put_update(service.task(task=name), {"weights": params}, 8, models))
    assert service.requests[0].url.raw_path.count(b"/") == 6
    assert b"?" not in service.requests[0].url.raw_path


def test_a_refused_update_says_why(virtually, connect, service, models, params, refusal):
    service.first["update"] = [refusal(410, "gone", "round 7 is over")]
    with pytest.raises(ServiceRefused, match="round 7 is over") as caught:
        virtually(connect().put_update(service.task(), {"weights": params}, 8, models))
    assert caught.value.status == 410


def test_a_federation_is_forgotten_by_its_name(virtually, connect, service):
    virtually(connect().forget())
    assert service.calls == {"DELETE f": 1}
    assert dict(service.requests[0].url.params) == {"forget": "true"}


def test_a_federation_is_stopped_by_its_name(virtually, connect, service):
    virtually(connect().stop())
    assert service.calls == {"DELETE f": 1}
    assert service.requests[0].url.path == "/v1/federations/f"
