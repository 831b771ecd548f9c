import numpy as np
import pytest

from fedat_service.errors import WireError
from fedat_service.params import Manifest, Model, TensorSpec, to_model, to_params
from fedat_service.wire.affine import Affine8
from fedat_service.wire.bundle import Bundle, check_bundle, decode_bundle, encode_bundle, parse_bundle
from fedat_service.wire.codecs import Float32, Int64, Polyline, make_codec
from fedat_service.wire.differences import make_update_codec, stepped, update_entries
from fedat_service.wire.entries import model_entries
from fedat_service.wire.qsgd import Qsgd
from fedat_service.wire.settings import CodecSettings

MANIFEST = Manifest(
    (
        TensorSpec("conv.weight", (40, 20), "float32", "conv"),
        TensorSpec("norm.var", (40,), "float32", "norm", trainable=False),
        TensorSpec("norm.count", (), "int64", "norm", trainable=False),
        TensorSpec("head.weight", (8, 5), "float32", "head"),
    )
)
SPANS = MANIFEST.spans


def drawn(seed):
    rng = np.random.default_rng(seed)
    return Model(rng.standard_normal(MANIFEST.num_floats).astype(np.float32), np.array([seed]))


BASE, UPDATE = drawn(1), drawn(2)


def entries(update=UPDATE, base=BASE, layers=MANIFEST.layers, seed=0, **fields):
    settings = CodecSettings(**{"name": "qsgd", **fields})
    start, tensors = None if base is None else to_params(base, MANIFEST), MANIFEST.select(layers)
    return update_entries(to_params(update, MANIFEST), start, tensors, settings, np.random.default_rng(seed))


def body(found):
    return encode_bundle(Bundle(federation="f", entries=found, base_version=4, num_examples=1))


@pytest.mark.parametrize(
    ("settings", "codec"),
    [
        (CodecSettings(name="float32"), Float32()),
        (CodecSettings(precision=6, layout="flat"), Polyline(6, "flat")),
        (CodecSettings(name="qsgd", levels=15), Qsgd(15)),
        (CodecSettings(name="affine8"), Affine8()),
    ],
    ids=str,
)
def test_settings_make_the_codec_of_what_learns(settings, codec):
    assert make_update_codec(settings) == codec


QSGD, AFFINE = {"name": "qsgd", "levels": 15}, {"name": "affine8"}
every_rounding = pytest.mark.parametrize("rounding", [QSGD, AFFINE], ids=["qsgd", "affine8"])


@pytest.mark.parametrize(("rounding", "codec"), [(QSGD, Qsgd(15)), (AFFINE, Affine8())], ids=str)
def test_what_learns_travels_as_differences_and_the_rest_as_it_is(rounding, codec):
    found = entries(**rounding)
    assert [entry.codec for entry in found] == [codec, Float32(), Int64(), codec]
    assert [entry.reference for entry in found] == ["base", "absolute", "absolute", "base"]
    assert found[1].codec.decode(found[1].payload, 40).tolist() == UPDATE.floats[SPANS["norm.var"]].tolist()
    assert found[2].codec.decode(found[2].payload, 1).tolist() == [2]


@pytest.mark.parametrize(
    ("rounding", "step_of"),
    [
        ({"name": "qsgd", "levels": 100}, lambda way: np.linalg.norm(way) / 100),
        (AFFINE, lambda way: np.ptp(way) / 255),
    ],
    ids=["qsgd", "affine8"],
)
def test_a_difference_is_no_more_than_a_step_off(rounding, step_of):
    for entry in entries(**rounding)[::3]:
        span = SPANS[entry.tensor.name]
        way = UPDATE.floats[span] - BASE.floats[span]
        decoded = entry.codec.decode(entry.payload, entry.tensor.size)
        assert np.abs(decoded - way).max() <= step_of(way) * 1.0001


@pytest.mark.parametrize(
    ("rounding", "head", "bits"),
    [
        ({"name": "qsgd", "levels": 16}, 4, 6),
        ({"name": "qsgd", "levels": 15}, 4, 5),
        ({"name": "qsgd", "levels": 1}, 4, 2),
        (AFFINE, 9, 8),
    ],
    ids=str,
)
def test_a_tensor_takes_its_bits_and_a_head(rounding, head, bits):
    sizes = [len(entry.payload) for entry in entries(**rounding)]
    assert sizes == [head + 800 * bits // 8, 160, 8, head + 40 * bits // 8]


@every_rounding
def test_the_bundle_comes_back_from_its_bytes(rounding):
    found = entries(**rounding)
    parsed = parse_bundle(body(found), MANIFEST)
    check_bundle(parsed)
    assert parsed.entries == found


def test_the_same_generator_gives_the_same_bytes():
    assert body(entries(seed=1)) == body(entries(seed=1)) != body(entries(seed=2))


@every_rounding
def test_every_tensor_is_rounded_by_itself(rounding):
    alone = entries(layers=("conv",), **rounding)
    assert alone == entries(**rounding)[:1]


class Uniforms:
    """A generator whose numbers are known."""

    def __init__(self, numbers):
        self.numbers = numbers

    def random(self, size):
        return np.array(self.numbers[:size])


def test_a_version_goes_the_golden_step_of_fedpaq_both_ways(golden):
    case = golden("fedpaq_bidirectional")
    inputs, outputs = case["inputs"], case["outputs"]
    manifest = Manifest((TensorSpec("w", (2,), "float32", "w"),))
    x = Model(np.array(inputs["x"], np.float32), np.zeros(0, np.int64))
    target = Model((x.floats + outputs["mean_q"]).astype(np.float32), x.integers)
    settings = CodecSettings(name="qsgd", levels=inputs["s"], directions="both")
    model, (entry,) = stepped(x, target, manifest, settings, Uniforms(inputs["u_server"]))
    assert entry.codec.decode(entry.payload, 2).tolist() == pytest.approx(outputs["q_server"], rel=1e-6)
    assert model.floats.tolist() == pytest.approx(outputs["x"], rel=1e-6)


@pytest.mark.parametrize(
    ("rounding", "seed"),
    [({"name": "qsgd", "levels": 3}, seed) for seed in range(20)] + [(AFFINE, 0)],
    ids=str,
)
def test_who_holds_a_version_reaches_the_next_bit_for_bit(rounding, seed):
    settings = CodecSettings(**rounding, directions="both")
    model, found = stepped(BASE, UPDATE, MANIFEST, settings, np.random.default_rng(seed))
    assert {entry.reference for entry in found} == {"base", "absolute"}
    body = encode_bundle(Bundle(federation="f", entries=found, version=5, base_version=4))
    params = decode_bundle(parse_bundle(body, MANIFEST), to_params(BASE, MANIFEST))["weights"]
    assert to_model(params, MANIFEST).digest() == model.digest()
    assert model.floats[SPANS["norm.var"]].tolist() == UPDATE.floats[SPANS["norm.var"]].tolist()


def test_differences_without_what_they_are_taken_to_are_no_model():
    with pytest.raises(WireError, match=r"'conv\.weight': differences came without") as refusal:
        decode_bundle(parse_bundle(body(entries()), MANIFEST))
    assert refusal.value.field == "conv.weight"


GRID = {"name": "polyline", "reference": "base"}


def near(base, seed=3):
    """A model a small way from another one."""
    step = np.random.default_rng(seed).standard_normal(base.floats.size).astype(np.float32)
    return Model(base.floats + np.float32(0.003) * step, base.integers + 1)


@pytest.mark.parametrize("precision", [3, 4, 5, 6])
def test_differences_on_the_grid_lose_nothing(precision):
    update = near(BASE)
    found = entries(update, precision=precision, **GRID)
    assert [entry.reference for entry in found] == ["base", "base", "absolute", "base"]
    base = to_params(BASE, MANIFEST)
    based = decode_bundle(parse_bundle(body(found), MANIFEST), base)["weights"]
    plain = entries(update, name="polyline", precision=precision, reference="absolute")
    absolute = decode_bundle(parse_bundle(body(plain), MANIFEST))["weights"]
    assert to_model(based, MANIFEST).digest() == to_model(absolute, MANIFEST).digest()
    assert len(body(found)) < 0.8 * len(body(plain))


def test_every_tensor_goes_the_shorter_way():
    update = near(BASE)
    update.floats[SPANS["conv.weight"]] = 1e-4
    found = entries(update, **GRID)
    assert [entry.reference for entry in found] == ["absolute", "base", "absolute", "base"]


def test_tensors_whose_neighbours_move_alike_travel_flat_and_the_others_plain():
    update = near(BASE)
    update.floats[SPANS["conv.weight"]] = BASE.floats[SPANS["conv.weight"]] + np.float32(0.01)
    layouts = [entry.codec.layout for entry in entries(update, **GRID) if entry.reference == "base"]
    assert layouts == ["flat", "plain", "plain"]


def test_integers_too_far_apart_for_a_difference_go_as_they_are():
    base = Model(np.full_like(BASE.floats, 50_000), BASE.integers)
    update = Model(np.full_like(BASE.floats, -50_000), BASE.integers)
    assert {entry.reference for entry in entries(update, base, **GRID)} == {"absolute"}


@pytest.mark.parametrize("fields", [{"name": "float32"}, {"name": "polyline", "precision": 5}, GRID])
def test_other_codecs_send_values_and_need_no_base(fields):
    codec = make_codec(CodecSettings(**fields))
    expected = model_entries(UPDATE, MANIFEST, MANIFEST.tensors, codec)
    assert entries(base=None, **fields) == expected


def backwards(array):
    return np.flip(np.flip(array).copy())


def with_gaps(array):
    return np.repeat(array.reshape(-1), 2)[::2].reshape(array.shape)


def unaligned(array):
    room = np.empty(array.nbytes + 1, np.int8)[1:].view(array.dtype).reshape(array.shape)
    room[...] = array
    return room


@pytest.mark.parametrize("lay", [np.asfortranarray, backwards, with_gaps, unaligned])
@pytest.mark.parametrize(
    "fields", [{"name": "float32"}, {"name": "float16"}, {"name": "polyline"}, GRID, QSGD, AFFINE]
)
def test_how_arrays_lie_in_memory_does_not_matter(fields, lay):
    update, base = ({n: lay(a) for n, a in to_params(one, MANIFEST).items()} for one in (UPDATE, BASE))
    rng, settings = np.random.default_rng(0), CodecSettings(**{"name": "qsgd", **fields})
    assert update_entries(update, base, MANIFEST.tensors, settings, rng) == entries(**fields)


@every_rounding
def test_without_a_base_there_is_no_difference(rounding):
    with pytest.raises(WireError, match=r"'conv\.weight' has no base") as refusal:
        entries(base=None, **rounding)
    assert refusal.value.field == "conv.weight"


@pytest.mark.parametrize(
    ("rounding", "reason"),
    [(QSGD, "the norm of the values is"), (AFFINE, "values must be from")],
    ids=["qsgd", "affine8"],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_a_difference_that_cannot_travel_is_refused_by_the_name_of_its_tensor(value, rounding, reason):
    floats = UPDATE.floats.copy()
    floats[SPANS["head.weight"]] = value
    base = Model(np.full_like(floats, -3e38 if value == 3e38 else 0), BASE.integers)
    with pytest.raises(WireError, match=rf"'head\.weight': {reason}") as refusal:
        entries(Model(floats, UPDATE.integers), base, layers=("head",), **rounding)
    assert refusal.value.field == "head.weight"
