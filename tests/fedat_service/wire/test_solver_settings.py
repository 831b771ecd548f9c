import pytest
from pydantic import ValidationError

from fedat_service.wire.settings import Solver


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"name": "sgd", "option": "I"}, "option belongs to scaffold, not to sgd"),
        ({"name": "scaffold", "reset": "never"}, "reset belongs to sgd and momentum and adam and adamw"),
        ({"name": "fedlamb", "prox_mu": 0.4}, "prox_mu belongs to .* and scaffold, not to fedlamb"),
        ({"name": "sgd", "momentum": 0.5}, "momentum belongs to momentum and mime, not to sgd"),
        ({"name": "momentum", "beta1": 0.5}, "beta1 belongs to adam and .*, not to momentum"),
        ({"name": "scaffold", "beta2": 0.5}, "beta2 belongs to adam and .*, not to scaffold"),
        ({"name": "mime", "eps": 0.5}, "eps belongs to adam and .*, not to mime"),
        ({"name": "mime", "moment_every": 2}, "moment_every belongs to fedams and .*, not to mime"),
    ],
)
def test_a_setting_of_another_solver_is_refused(fields, complaint):
    with pytest.raises(ValidationError, match=complaint):
        Solver(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "scaffold", "option": "I", "prox_mu": 0.4, "steps": 10},
        {"name": "momentum", "reset": "never", "steps": 6},
        {"name": "mimelamb", "moment_every": 5},
    ],
)
def test_a_setting_of_its_own_is_taken_and_survives_json(fields):
    solver = Solver(**fields)
    assert Solver.model_validate_json(solver.model_dump_json()) == solver


@pytest.mark.parametrize("fields", [{"steps": 0}, {"steps": True}, {"moment_every": 0}, {"option": "III"}])
def test_what_is_out_of_bounds_is_refused(fields):
    with pytest.raises(ValidationError):
        Solver(**{"name": "fedams" if "moment_every" in fields else "scaffold", **fields})
