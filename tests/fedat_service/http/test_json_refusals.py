"""JSON that is no message gets a problem document that names what was wrong, and changes nothing."""

import pytest

from fedat_service.wire.messages import BUNDLE_TYPE

BASE = "/v1/federations/f"


CREATIONS = {
    "unknown field": ({"colour": "red"}, "colour"),
    "unknown preset": ({"method": "fedsgd"}, "method"),
    "no tensors": ({"manifest": {"tensors": []}}, "manifest.tensors"),
    "tensor twice": ({"manifest": {"tensors": [{"name": "w", "shape": [1]}] * 2}}, "manifest"),
    "boolean cohort": ({"rounds": {"cohort_size": True}}, "rounds.cohort_size"),
    "zero cohort": ({"rounds": {"cohort_size": 0}}, "rounds.cohort_size"),
    "text seed": ({"seed": "1"}, "seed"),
    "quorum above one": ({"rounds": {"quorum": 1.5}}, "rounds.quorum"),
    "quantiles missing": (
        {"method": "fedat", "tiering": {"rule": "quantiles", "num_tiers": 3}},
        "tiering.quantiles",
    ),
    "quantiles descend": (
        {"method": "fedat", "tiering": {"rule": "quantiles", "num_tiers": 3, "quantiles": [0.7, 0.2]}},
        "tiering.quantiles",
    ),
    "quantiles that nobody asks for": (
        {"method": "fedat", "tiering": {"num_tiers": 2, "quantiles": [0.7]}},
        "tiering.quantiles",
    ),
    "a margin for tiers that stay": (
        {"method": "fedat", "tiering": {"hysteresis": 0.5}},
        "tiering.hysteresis",
    ),
    "quantiles for one tier": (
        {"tiering": {"rule": "quantiles", "num_tiers": 2, "quantiles": [0.7]}},
        "tiering",
    ),
    "tiers that move where there is one": ({"tiering": {"retier_every": 2}}, "tiering"),
    "precision of another codec": (
        {"method": {"codec": {"name": "float32", "precision": 5}}},
        "method.codec.precision",
    ),
    "a member of a member of a method": ({"method": {"codec": {"precision": 9}}}, "method.codec.precision"),
    "a method of another kind": ({"method": 7}, "method"),
    "a head that is no number": (
        {"method": {"schedule": {"name": "fedals", "head": 0}}},
        "method.schedule.head",
    ),
    "a setting of another solver": (
        {"method": {"solver": {"name": "sgd", "beta1": 0.5}}},
        "method.solver.beta1",
    ),
    "a member called body": ({"body": 1}, "body"),
    "name": ({"name": "../etc"}, "name"),
}


@pytest.mark.parametrize("case", CREATIONS)
async def test_a_wrong_federation_is_named(service, case):
    fields, field = CREATIONS[case]
    answer = await service.create(**fields)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == field, answer.json()
    assert "\n" not in answer.json()["detail"]
    assert (await service.http.get("/v1/federations")).json()["federations"] == []


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"name": "f",}',
        b'{"name": "\xff"}',
        b'{"seed": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=["cut short", "comma", "encoding", "digits", "deep lists", "deep objects"],
)
async def test_what_is_no_json_is_told_of_the_body(service, content):
    answer = await service.http.post(
        "/v1/federations", content=content, headers={"Content-Type": "application/json"}
    )
    problem = answer.json()
    assert (answer.status_code, problem["field"]) == (400, "body"), problem
    assert problem["detail"].startswith("the body is no JSON: ")
    assert problem["type"].endswith("/bad-request")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", BUNDLE_TYPE, None]
)
@pytest.mark.parametrize("path", ["/v1/federations", f"{BASE}/clients", f"{BASE}/evaluations"])
async def test_json_must_be_said_to_be_json(service, path, content_type):
    await service.create()
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = await service.http.post(path, content=b'{"name": "g", "num_examples": 1}', headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (415, "content-type"), answer.text
    assert (content_type or "no type") in answer.json()["detail"]


async def test_no_body_at_all_is_told(service):
    answer = await service.http.post("/v1/federations", headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["field"]) == (422, "body")


async def test_a_place_is_told_from_a_member_called_like_it(service):
    answer = await service.create(rounds={"body": 1})
    assert (answer.status_code, answer.json()["field"]) == (422, "rounds.body")


async def test_a_parameter_is_named(service):
    answer = await service.http.get("/v1/federations", params={"limit": 0})
    assert (answer.status_code, answer.json()["field"]) == (422, "limit")


async def test_nan_in_json_is_refused(service):
    await service.create()
    answer = await service.http.post(
        f"{BASE}/evaluations",
        content='{"version": 0, "clients": [{"client": "a", "num_examples": 1, "correct": 1, "loss": NaN}]}',
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 422
    assert "loss" in answer.json()["field"]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (
            {"version": 5, "clients": [{"client": "a", "num_examples": 1, "correct": 1, "loss": 0}]},
            404,
            "version",
        ),
        (
            {"version": 0, "clients": [{"client": "a", "num_examples": 1, "correct": 2, "loss": 0}]},
            422,
            "correct",
        ),
        (
            {"version": 0, "clients": [{"client": "a", "num_examples": 1, "correct": 1, "loss": 0}] * 2},
            422,
            "clients",
        ),
        ({"version": 0, "clients": []}, 422, "clients"),
    ],
)
async def test_a_wrong_evaluation_is_named(service, body, status, field):
    await service.create()
    answer = await service.http.post(f"{BASE}/evaluations", json=body)
    assert (answer.status_code, answer.json()["field"]) == (status, field)


async def test_too_large_a_model_is_refused(service):
    tensors = [{"name": "w", "shape": [1_000_000, 1_000]}]
    answer = await service.create(manifest={"tensors": tensors})
    assert (answer.status_code, answer.json()["limit"]) == (413, 200_000_000)


async def test_a_huge_json_body_is_refused(service):
    answer = await service.http.post("/v1/federations", json={"name": "x" * (17 << 20)})
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
