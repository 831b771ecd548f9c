import numpy as np
import pytest

from fedat_service.errors import ConfigError, RuleError
from workers.data import partition
from workers.data.partition_setting import FORMS, Partition, split

LABELS = np.repeat(np.arange(10), 60)
GROUPS = np.arange(600) % 10


@pytest.mark.parametrize("text", FORMS)
def test_every_form_is_read_and_splits(text):
    parts = split(LABELS, Partition.parse(text), num_clients=10, seed=1, groups=GROUPS)
    assert sorted(np.concatenate(parts).tolist()) == list(range(600))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("iid", partition.iid(LABELS, 10, 7)),
        ("shards:3", partition.shards(LABELS, 10, 3, 7)),
        ("classes:4", partition.classes_per_client(LABELS, 10, 4, 7)),
        ("dirichlet:0.7", partition.dirichlet(LABELS, 10, 0.7, 7)),
        ("dirichlet-balanced:0.7", partition.dirichlet_balanced(LABELS, 10, 0.7, 7)),
        ("lda:0.7", partition.lda(LABELS, 10, 0.7, 7)),
        ("natural:60", partition.natural(GROUPS, 10, 60, 7)),
    ],
)
def test_a_text_stands_for_its_function_number_and_seed(text, expected):
    parts = split(LABELS, Partition.parse(text), 10, 7, GROUPS)
    assert [part.tolist() for part in parts] == [part.tolist() for part in expected]


def test_natural_clients_need_data_that_knows_them():
    with pytest.raises(RuleError, match="where each example comes from"):
        split(LABELS, Partition.parse("natural:1"), 10, 7)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "unknown partition ''"),
        ("IID", "unknown partition 'IID'"),
        ("zipf:2", "unknown partition 'zipf': one of iid, shards:2"),
        ("iid:1", "'iid' cannot take 1.0"),
        ("shards", "'shards' cannot take None"),
        ("shards:two", "'two' is not a number"),
        ("shards:1.5", "'shards' cannot take 1.5"),
        ("classes:0", "'classes' cannot take 0.0"),
        ("classes:inf", "'classes' cannot take inf"),
        ("dirichlet:", "'' is not a number"),
        ("dirichlet:0", "'dirichlet' cannot take 0.0"),
        ("natural", "'natural' cannot take None"),
        ("lda:nan", "'lda' cannot take nan"),
    ],
)
def test_a_text_that_is_no_partition_is_named(text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        Partition.parse(text)
