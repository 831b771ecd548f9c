import math

import pytest
import torch
from torch.nn import functional

from fedat_service.errors import RuleError
from fedat_service.schedules.fedals import head_by_name
from workers.models.language import Attention, CausalLanguageModel, LanguageShape, rotate, rotation_angles
from workers.models.networks import build
from workers.models.state import manifest_of

SMALL = LanguageShape(width=24, depth=2, heads=6, key_heads=2, hidden=32)


@pytest.fixture
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield CausalLanguageModel(11, SMALL)


@pytest.fixture
def tokens():
    return torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(1))


def test_smollm2_has_as_many_parameters_as_published():
    with torch.device("meta"):
        whole = CausalLanguageModel(49_152)
    assert sum(parameter.numel() for parameter in whole.parameters()) == 134_515_008
    assert len(whole.state_dict()) == 272


def test_the_small_llama_is_six_blocks_of_smollm2s_kind():
    manifest = manifest_of(build("llama-6-64", (1, 1, 16), 128, seed=0))
    assert sum(tensor.size for tensor in manifest.tensors) == 267_072
    assert all(tensor.trainable for tensor in manifest.tensors)
    assert head_by_name(manifest, ["layers.5.*"]) < head_by_name(manifest, ["layers.[45].*"])
    with pytest.raises(RuleError, match="matches no layer"):
        head_by_name(manifest, ["layers.6.*"])


@pytest.mark.slow
def test_smollm2_is_built_and_a_step_lowers_its_loss():
    whole = build("smollm2-135m", (1, 1, 16), 49_152, seed=0)
    assert manifest_of(whole).num_floats == 134_515_008
    tokens, following = torch.arange(32).reshape(2, 1, 1, 16), torch.tensor([16, 32])
    before = functional.cross_entropy(whole(tokens), following)
    before.backward()
    torch.optim.SGD(whole.parameters(), lr=0.1).step()
    with torch.inference_mode():
        assert functional.cross_entropy(whole(tokens), following) < before


def test_what_is_known_at_a_position_depends_on_no_later_token(model, tokens):
    features = model.features(tokens)
    for length in range(1, 9):
        torch.testing.assert_close(model.features(tokens[:, :length]), features[:, :length])


def test_what_is_known_at_a_position_depends_on_the_order_of_earlier_tokens(model):
    here, there = model.features(torch.tensor([[1, 2, 3], [2, 1, 3]]))[:, -1]
    assert not torch.allclose(here, there)


def test_tokens_may_come_as_an_image_of_floats(model, tokens):
    torch.testing.assert_close(model(tokens.float().reshape(3, 1, 3, 3)), model(tokens))


def test_scores_are_products_with_the_embedding_itself(model, tokens):
    expected = model.features(tokens)[:, -1] @ model.embed_tokens.weight.T
    torch.testing.assert_close(model(tokens), expected)


def test_attention_is_softmax_of_scaled_products_with_shared_keys():
    attention = Attention(SMALL)
    x, angles = torch.rand(1, 5, 24), rotation_angles(5, 4, 100.0)
    q, k, v = ((p(x)[0].reshape(5, -1, 4)) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
    heads = []
    for head in range(6):
        products = rotate(q[:, head], angles) @ rotate(k[:, head // 3], angles).T / math.sqrt(4)
        products += torch.full((5, 5), -torch.inf).triu(1)
        heads.append(products.softmax(1) @ v[:, head // 3])
    torch.testing.assert_close(attention(x, angles)[0], attention.o_proj(torch.cat(heads, 1)))


def test_products_of_rotated_vectors_depend_on_their_distance_only():
    q, k = torch.rand(2, 8).unbind()
    angles = rotation_angles(20, 8, 100.0)
    products = rotate(q.expand(20, 8), angles) @ rotate(k.expand(20, 8), angles).T
    for distance in range(-19, 20):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    torch.testing.assert_close(products[0, 0], q @ k)
    assert not torch.allclose(products[0, 1], q @ k)


def test_the_first_pair_turns_by_one_radian_a_token_and_the_last_slowest():
    angles = rotation_angles(3, 8, 10_000.0)
    assert angles[:, 0].tolist() == [0, 1, 2]
    assert angles[1].tolist() == pytest.approx([1, 1e-1, 1e-2, 1e-3])


def test_it_learns_to_repeat_what_followed_a_token_before(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(2)
    for _ in range(80):
        a, b = torch.randint(11, (2, 64), generator=generator)
        loss = functional.cross_entropy(model(torch.stack((a, b, a), 1)), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.2 < math.log(11)
