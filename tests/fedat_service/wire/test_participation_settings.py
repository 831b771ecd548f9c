import pytest
from pydantic import ValidationError

from fedat_service.wire.settings import Participation

OWN = {
    "cold_start": ("reported", {"fedat"}),
    "mixing": ("uniform", {"fedat"}),
    "weighting": ("uniform", {"fedavg", "fedat", "tifl"}),
    "interval": (3, {"tifl"}),
    "num_rounds": (100, {"tifl"}),
    "alpha": (0.5, {"fedasync"}),
    "staleness": ("constant", {"fedasync", "fedbuff"}),
    "poly_a": (0.7, {"fedasync", "fedbuff"}),
    "buffer_size": (4, {"fedbuff"}),
}


@pytest.mark.parametrize("field", OWN)
@pytest.mark.parametrize("name", ["fedavg", "tifl", "fedasync", "fedbuff", "fedat"])
def test_a_field_belongs_to_those_that_have_it(name, field):
    value, owners = OWN[field]
    if name in owners:
        assert getattr(Participation(name=name, **{field: value}), field) == value
    else:
        with pytest.raises(ValidationError, match=f"{field} belongs to .*, not to {name}"):
            Participation(name=name, **{field: value})


@pytest.mark.parametrize(
    ("staleness", "field"), [("polynomial", "hinge_a"), ("constant", "hinge_b"), ("hinge", "poly_a")]
)
def test_a_number_belongs_to_its_staleness(staleness, field):
    with pytest.raises(ValidationError, match=f"{field} belongs to .*, not to {staleness}"):
        Participation(name="fedasync", staleness=staleness, **{field: 0.25})
    own = "polynomial" if field == "poly_a" else "hinge"
    assert getattr(Participation(name="fedasync", staleness=own, **{field: 0.25}), field) == 0.25


def test_uniform_mixing_counts_no_updates_that_could_be_smoothed():
    with pytest.raises(ValidationError, match="smoothed belongs to inverse-frequency mixing, not to uniform"):
        Participation(mixing="uniform", cold_start="smoothed")
    assert Participation(mixing="uniform", cold_start="reported").mixing == "uniform"


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "fedasync", "alpha": 0},
        {"name": "fedasync", "alpha": 1.1},
        {"name": "fedasync", "staleness": "hinge", "hinge_a": 0},
        {"name": "fedasync", "poly_a": -1},
        {"name": "fedbuff", "buffer_size": 0},
        {"name": "tifl", "interval": 0},
        {"name": "tifl", "num_rounds": True},
        {"name": "fedsgd"},
    ],
)
def test_numbers_that_make_no_rule_are_refused(fields):
    with pytest.raises(ValidationError):
        Participation(**fields)


def test_what_is_written_down_is_read_again():
    one = Participation(name="fedbuff", staleness="hinge", hinge_a=3, buffer_size=7)
    assert Participation.model_validate_json(one.model_dump_json()) == one
