"""Which part of an image a chain of layers looks at: what the rest gives is dropped again."""

from collections.abc import Sequence
from dataclasses import dataclass

Size = tuple[int, int]
"""Of an image: rows and columns."""

Setting = int | Sequence[int]
"""One for both directions, or one for each."""


@dataclass(frozen=True, slots=True)
class Window:
    """A layer whose every result is made of the values in a window of its own, and of no padding.

    Args:
        extent: Rows and columns from a window's first to its last, both counted.
        stride: Rows and columns between two windows.
    """

    extent: Size = (1, 1)
    stride: Size = (1, 1)

    def results(self, size: Size) -> Size:
        """How many windows fit into an image; less than one if it is too small."""
        height, width = ((n - e) // s + 1 for n, e, s in zip(size, self.extent, self.stride, strict=True))
        return height, width

    def reach(self, results: Size) -> Size:
        """How much of an image that many windows cover, from its upper left corner on."""
        height, width = ((n - 1) * s + e for n, e, s in zip(results, self.extent, self.stride, strict=True))
        return height, width


ELEMENT = Window()
"""A layer that works on each value alone."""


def window_of(
    kernel_size: Setting, stride: Setting, padding: Setting | str = 0, dilation: Setting = 1
) -> Window | None:
    """The window of a layer with torch's settings; None if it pads."""
    if padding != "valid" and (isinstance(padding, str) or any(_both(padding))):
        return None
    rows, columns = (d * (k - 1) + 1 for k, d in zip(_both(kernel_size), _both(dilation), strict=True))
    return Window((rows, columns), _both(stride))


def _both(setting: Setting) -> Size:
    return (setting, setting) if isinstance(setting, int) else (setting[0], setting[-1])


def looked_at(windows: Sequence[Window | None], size: Size) -> Size:
    """How much of an image, from its upper left corner on, the last layer's results depend on.

    Args:
        windows: Those of the layers, from the image on; None for one that looks at all.
        size: Of the image.
    """
    first = windows[0] if windows else None
    if first is None:
        return size
    results = first.results(size)
    return first.reach(looked_at(windows[1:], results)) if min(results) > 0 else size
