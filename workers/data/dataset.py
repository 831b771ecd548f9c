"""A labelled set of images, or of what can be laid out like images, in memory."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import RuleError


@dataclass(frozen=True, eq=False)
class Dataset:
    """A labelled set of images, one byte a pixel; a bag of V words is one too: V pixels of 0 or 1.

    Args:
        name: What the user calls it.
        images: uint8 of shape ``(N, C, H, W)``.
        labels: int64 of shape ``(N,)``, in ``0..num_classes - 1``.
        num_classes: Number of classes of the task.
        max_value: The pixel value that means white.
        test: The set's own test split, if it has one.
        groups: Who or what each example comes from (a writer, a document), of shape ``(N,)``, if known.

    Raises:
        RuleError: If images, labels and groups do not fit together.
    """

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    num_classes: int
    max_value: int = 255
    test: "Dataset | None" = None
    groups: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if images.ndim != 4 or images.dtype != np.uint8:
            raise RuleError(
                f"{self.name}: images must be uint8 (N, C, H, W), got {images.dtype}{images.shape}"
            )
        if labels.shape != images.shape[:1] or labels.dtype != np.int64:
            raise RuleError(
                f"{self.name}: {len(images)} images need {len(images)} int64 labels, "
                f"got {labels.dtype}{labels.shape}"
            )
        if self.groups is not None and self.groups.shape != labels.shape:
            raise RuleError(f"{self.name}: {len(labels)} labels with groups of shape {self.groups.shape}")
        if len(labels) and not 0 <= labels.min() <= labels.max() < self.num_classes:
            raise RuleError(
                f"{self.name}: labels {labels.min()}..{labels.max()} are not in 0..{self.num_classes - 1}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape ``(C, H, W)`` of one image."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    def inputs(self, indices: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return the images at `indices` (all if None) as float32 ``(n, C, H, W)`` scaled to 0..1."""
        chosen = self.images if indices is None else self.images[indices]
        return np.divide(chosen, self.max_value, dtype=np.float32)

    def first_per_class(self, limit: int) -> "Dataset":
        """Return this set with only the first `limit` images of every class, test split included.

        Raises:
            RuleError: If `limit` is not positive.
        """
        if limit < 1:
            raise RuleError(f"the limit per class must be 1 or more, got {limit}")
        of_class = (np.flatnonzero(self.labels == c)[:limit] for c in range(self.num_classes))
        kept = np.sort(np.concatenate(list(of_class)))
        return replace(
            self,
            images=self.images[kept],
            labels=self.labels[kept],
            test=None if self.test is None else self.test.first_per_class(limit),
            groups=None if self.groups is None else self.groups[kept],
        )
