"""VADER's ground truth: sentences that people rated for sentiment, as bags of words or as text."""

import hashlib
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import DataDamaged, DataMissing
from workers.data.dataset import Dataset

SDIST = "vaderSentiment-3.3.2.tar.gz"
"""The source distribution that carries the sentences; the wheel of the package does not."""

SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
"""Of the source distribution."""

NUM_WORDS = 1000
"""Words of the bag: about as many as the bytes in FedAT's Table 2 allow for its logistic regression."""

CONTEXT = 16
"""Characters from which the next one is told."""

PIECES_PER_SOURCE = 16_000
"""As many as each source has, nearly: none outweighs the others."""

_HOW = "run: python -m pip download --no-deps --no-binary :all: vaderSentiment==3.3.2"
_INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
_SOURCES = ("tweets", "movieReviewSnippets", "amazonReviewSnippets", "nytEditorialSnippets")
_NEUTRAL = 0.5
_NUM_CHARACTERS = 128
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, the mean of its ratings (-4 to 4), and the document that it stands in."""

    document: str
    rating: float
    text: str


def load_vader(data_dir: Path | None = None) -> Dataset:
    """Load 19,136 tweets and sentences of reviews and editorials, negative (0) or positive (1).

    Hutto & Gilbert (ICWSM 2014). Sentences rated within 0.5 of neutral are left out. An image is the binary
    bag of the `NUM_WORDS` most frequent words, of shape ``(1, 1, V)``; the groups are the documents: a
    review or an editorial, or a tweet or snippet by itself. There is no test split.

    Args:
        data_dir: The only folder to look in for `SDIST`; without it, this one and ``data``.

    Raises:
        DataMissing: If the file is not there.
        DataDamaged: If it is not the published one.
    """
    sentences = read_sentences(_published(data_dir))
    rated = [sentence for sentence in sentences if abs(sentence.rating) > _NEUTRAL]
    bags, _ = bags_of_words([sentence.text for sentence in rated], NUM_WORDS)
    return Dataset(
        "vader",
        bags[:, None, None, :],
        np.array([sentence.rating > 0 for sentence in rated], np.int64),
        num_classes=2,
        max_value=1,
        groups=np.unique([sentence.document for sentence in rated], return_inverse=True)[1],
    )


def load_vader_text(data_dir: Path | None = None) -> Dataset:
    """Load the text of VADER's sentences, for a language model: 64,000 pieces, and what follows each.

    Sentences are joined source by source, one a line, and cut into pieces of `CONTEXT` characters; the label
    is the character that follows, which no piece holds. Of a source the first `PIECES_PER_SOURCE` are taken.
    Characters are ASCII codes, of which an image is a row, of shape ``(1, 1, CONTEXT)``; those that ASCII
    lacks are question marks. The groups are the four sources. There is no test split.

    Args:
        data_dir: See `load_vader`.

    Raises:
        DataMissing: If the file is not there.
        DataDamaged: If it is not the published one.
    """
    texts: dict[str, list[str]] = {source: [] for source in _SOURCES}
    for sentence in read_sentences(_published(data_dir)):
        texts[sentence.document.partition("/")[0]].append(sentence.text)
    cut = [pieces_of("\n".join(lines), CONTEXT + 1)[:PIECES_PER_SOURCE] for lines in texts.values()]
    pieces = np.concatenate(cut)
    return Dataset(
        "vader-text",
        pieces[:, None, None, :CONTEXT],
        pieces[:, CONTEXT].astype(np.int64),
        num_classes=_NUM_CHARACTERS,
        max_value=1,
        groups=np.repeat(np.arange(len(cut)), [len(of_source) for of_source in cut]),
    )


def pieces_of(text: str, length: int) -> NDArray[np.uint8]:
    """Cut a text into pieces of ASCII codes, of shape ``(n, length)``; what is left at the end is dropped."""
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8)
    return codes[: len(codes) // length * length].reshape(-1, length)


def read_sentences(sdist: bytes) -> Iterator[Sentence]:
    """Read all rated sentences of the source distribution, source after source.

    A line is ``number<TAB>rating<TAB>text``; a number such as ``12_3`` is sentence 3 of document 12.

    Raises:
        DataDamaged: If one of the packed files is not there.
    """
    inner = _member(sdist, _INNER)
    for source in _SOURCES:
        content = _member(inner, f"hutto_ICWSM_2014/{source}_GroundTruth.txt")
        for line in content.decode().splitlines():
            if line.strip():
                number, rating, text = line.split("\t", 2)
                yield Sentence(f"{source}/{number.partition('_')[0]}", float(rating), text)


def bags_of_words(texts: Sequence[str], num_words: int) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Say for each text which of the most frequent words it holds.

    Words are of the letters a to z, in lower case, with one apostrophe inside at most. The most frequent
    ones count most often in all `texts`; of equals the first in the alphabet.

    Returns:
        0 or 1 of shape ``(len(texts), V)``, and the V words, the most frequent first; V is `num_words`, or
        the number of different words if that is smaller.
    """
    words = [_WORD.findall(text.lower()) for text in texts]
    counts = Counter(word for of_text in words for word in of_text)
    vocabulary = sorted(counts, key=lambda word: (-counts[word], word))[:num_words]
    columns = {word: column for column, word in enumerate(vocabulary)}
    bags = np.zeros((len(texts), len(vocabulary)), np.uint8)
    for bag, of_text in zip(bags, words, strict=True):
        bag[[columns[word] for word in of_text if word in columns]] = 1
    return bags, tuple(vocabulary)


def _published(data_dir: Path | None) -> bytes:
    """Find the source distribution, and see that it is the published one."""
    folders = (Path(), Path("data")) if data_dir is None else (data_dir,)
    paths = [path for folder in folders if (path := folder / SDIST).is_file()]
    if not paths:
        if data_dir is None:
            raise DataMissing(f"vader is not on this machine; {_HOW}")
        raise DataMissing(f"vader is not in {data_dir}; {_HOW} -d {quote(str(data_dir))}")
    content = paths[0].read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != SHA256:
        raise DataDamaged(f"{paths[0]} is not the published file: its sha256 is {found}, not {SHA256}")
    return content


def _member(archive: bytes, name: str) -> bytes:
    """Unpack one file of a gzipped tar."""
    with tarfile.open(fileobj=BytesIO(archive), mode="r:gz") as tar:
        file = tar.extractfile(name) if name in tar.getnames() else None
        if file is None:
            raise DataDamaged(f"{SDIST} does not hold the file {name}")
        return file.read()
