import hashlib
import io
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.errors import DataDamaged, DataMissing
from workers.data import vader
from workers.data.catalog import load
from workers.data.vader import (
    SDIST,
    Sentence,
    bags_of_words,
    load_vader,
    load_vader_text,
    pieces_of,
    read_sentences,
)

LINES = {
    "tweets": "1\t2.7\tSo good, so GOOD!\r\n2\t0.5\tfine\r\n",
    "movieReviewSnippets": "1\t-0.6\tNot good\r\n",
    "amazonReviewSnippets": "1_1\t-3.25\tit doesn't work\r\n1_2\t-0.1\tit\twork\r\n\r\n",
    "nytEditorialSnippets": "1_1\t1\tgood work\r\n1_2\t-1.5\tbad work",
}


def _tar(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _sdist(lines):
    texts = {f"hutto_ICWSM_2014/{name}_GroundTruth.txt": text.encode() for name, text in lines.items()}
    return _tar({"vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz": _tar(texts)})


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The folder of a source distribution that holds `LINES`."""
    content = _sdist(LINES)
    (tmp_path / SDIST).write_bytes(content)
    monkeypatch.setattr(vader, "SHA256", hashlib.sha256(content).hexdigest())
    return tmp_path


@pytest.fixture(scope="module")
def published():
    try:
        return load("vader")
    except DataMissing as missing:
        pytest.skip(str(missing))


def test_a_line_is_number_rating_and_text_and_blank_ones_are_none():
    assert list(read_sentences(_sdist(LINES))) == [
        Sentence("tweets/1", 2.7, "So good, so GOOD!"),
        Sentence("tweets/2", 0.5, "fine"),
        Sentence("movieReviewSnippets/1", -0.6, "Not good"),
        Sentence("amazonReviewSnippets/1", -3.25, "it doesn't work"),
        Sentence("amazonReviewSnippets/1", -0.1, "it\twork"),
        Sentence("nytEditorialSnippets/1", 1.0, "good work"),
        Sentence("nytEditorialSnippets/1", -1.5, "bad work"),
    ]


def test_what_is_rated_clearly_is_labelled_and_knows_its_document(tiny):
    dataset = load_vader(tiny)
    assert dataset.labels.tolist() == [1, 0, 0, 1, 0]
    assert dataset.groups.tolist() == [3, 1, 0, 2, 2]
    assert dataset.inputs()[1].ravel().tolist() == [1, 0, 0, 0, 0, 0, 1]  # good work so bad doesn't it not
    assert dataset.input_shape == (1, 1, 7)


def _told(dataset):
    """Each piece and what follows it, as text."""
    contexts = [bytes(image.ravel()).decode() for image in dataset.images]
    return list(zip(contexts, (chr(label) for label in dataset.labels), strict=True))


def test_text_is_cut_source_by_source_into_pieces_and_what_follows(tiny, monkeypatch):
    monkeypatch.setattr(vader, "CONTEXT", 5)
    dataset = load_vader_text(tiny)
    assert _told(dataset) == [
        ("So go", "o"),
        ("d, so", " "),
        ("GOOD!", "\n"),
        ("Not g", "o"),
        ("it do", "e"),
        ("sn't ", "w"),
        ("ork\ni", "t"),
        ("good ", "w"),
        ("ork\nb", "a"),
        ("d wor", "k"),
    ]
    assert dataset.groups.tolist() == [0, 0, 0, 1, 2, 2, 2, 3, 3, 3]
    assert dataset.inputs()[0].ravel().tolist() == [ord(c) for c in "So go"]
    assert (dataset.input_shape, dataset.num_classes) == ((1, 1, 5), 128)


def test_no_source_has_more_pieces_than_asked_for(tiny, monkeypatch):
    monkeypatch.setattr(vader, "CONTEXT", 5)
    monkeypatch.setattr(vader, "PIECES_PER_SOURCE", 2)
    assert load("vader-text", tiny).groups.tolist() == [0, 0, 1, 2, 2, 3, 3]


@given(st.text(max_size=30), st.integers(1, 5))
def test_pieces_are_the_text_in_ascii_without_its_end(text, length):
    pieces = pieces_of(text, length)
    joined = "".join(c if c.isascii() else "?" for c in text)
    assert bytes(pieces.ravel()).decode() == joined[: len(joined) // length * length]
    assert pieces.shape[1] == length


def test_the_catalog_loads_it_and_cuts_it(tiny):
    assert load("vader", tiny, limit_per_class=1).labels.tolist() == [1, 0]


def test_words_are_lower_case_letters_and_the_most_frequent_come_first():
    bags, words = bags_of_words(["It's 2 late, it's LATE -- 'tis don't", "tis don't", ""], 4)
    assert words == ("don't", "it's", "late", "tis")
    assert bags.tolist() == [[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0]]


@given(st.lists(st.text("abcd '"), max_size=8), st.integers(0, 6))
def test_a_bag_says_which_of_the_words_a_text_holds(texts, num_words):
    bags, words = bags_of_words(texts, num_words)
    assert bags.shape == (len(texts), len(words))
    assert len(words) <= num_words
    for text, bag in zip(texts, bags, strict=True):
        held = set(vader._WORD.findall(text))
        assert [word in held for word in words] == bag.tolist()


def test_without_the_file_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    with pytest.raises(
        DataMissing, match=rf"vader is not in {tmp_path}; run: python -m pip download .* -d {tmp_path}$"
    ):
        load_vader(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataMissing, match=r"vader is not on this machine; run: .*==3\.3\.2$"):
        load_vader()


def test_without_a_folder_this_one_and_data_are_searched(tiny, monkeypatch):
    monkeypatch.chdir(tiny)
    assert len(load_vader()) == 5
    (tiny / "data").mkdir()
    (tiny / SDIST).rename(tiny / "data" / SDIST)
    assert len(load_vader()) == 5


def test_another_file_is_not_opened(tmp_path):
    (tmp_path / SDIST).write_bytes(_sdist(LINES))
    with pytest.raises(DataDamaged, match=r"vaderSentiment-3\.3\.2\.tar\.gz is not the published file"):
        load_vader(tmp_path)


def test_a_file_that_is_not_in_the_archive_is_named():
    with pytest.raises(DataDamaged, match=r"does not hold the file .*amazonReviewSnippets_GroundTruth"):
        list(read_sentences(_sdist({name: LINES[name] for name in ("tweets", "movieReviewSnippets")})))


def test_the_published_set_is_complete(published):
    assert published.images.shape == (19_136, 1, 1, 1000)
    assert published.labels.sum() == 10_107
    assert len(np.unique(published.groups)) == 14_200
    assert (np.bincount(published.groups) >= 8).sum() == 256


@pytest.mark.usefixtures("published")
def test_the_published_texts_make_as_many_pieces_of_each_source():
    dataset = load("vader-text")
    assert np.bincount(dataset.groups).tolist() == [16_000] * 4
    assert dataset.images.max() < 128
    assert _told(dataset)[0] == ("Somehow I was bl", "e")
