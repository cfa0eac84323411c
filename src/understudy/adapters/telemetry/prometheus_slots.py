"""Counters and histograms as plain numbers, copied to prometheus_client before a scrape reads them (ADR 23).

A child of prometheus_client takes a lock for every number that it changes, searches its buckets one by one, and with
several workers writes each into a shared file. The request path adds to a slot instead; :meth:`share` brings the child
up to date. Names, labels, texts, ``_created`` and the page itself stay the library's.

One thread adds to a slot. Another may share it, since sharing only reads the slot; callers must not share twice at
once.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar, cast

from prometheus_client import Counter, Histogram

MetricT = TypeVar("MetricT", bound=Counter | Histogram)


class Slot(Protocol):
    """Numbers of one label set."""

    def share(self) -> None:
        """Bring the library's child up to date."""


SlotT = TypeVar("SlotT", bound=Slot)


class CounterSlot:
    """The total of one counter."""

    __slots__ = ("_shared", "_value", "total")

    def __init__(self, child: Counter) -> None:
        # Not 0 where an earlier process with this process' id left its file.
        self._value = child._value  # noqa: SLF001 - inc() takes differences, whose sum differs in the last bit
        self.total: float = self._value.get()
        self._shared = self.total

    def share(self) -> None:
        """Bring the library's child up to date."""
        total = self.total
        if total != self._shared:
            self._value.set(total)
            self._shared = total


class HistogramSlot:
    """The sum of one histogram's values, and their number in each bucket: up to its edge and above the previous one."""

    __slots__ = ("_buckets", "_shared", "_sum", "counts", "edges", "total")

    def __init__(self, child: Histogram) -> None:
        # The library has no method that adds counts to a bucket.
        self._sum = child._sum  # noqa: SLF001
        self._buckets = child._buckets  # noqa: SLF001
        self.edges: tuple[float, ...] = tuple(child._upper_bounds)  # noqa: SLF001
        self.total: float = self._sum.get()
        self.counts: list[float] = [bucket.get() for bucket in self._buckets]
        self._shared = self.counts.copy()

    def observe(self, value: float) -> None:
        """Add a value. NaN is in no bucket, and makes the sum NaN."""
        self.total += value
        if value == value:  # noqa: PLR0124 - as isnan(), at half its cost
            self.counts[bisect_left(self.edges, value)] += 1

    def observe_all(self, values: Iterable[float]) -> None:
        """Add several values."""
        counts, edges, total = self.counts, self.edges, self.total
        for value in values:
            total += value
            if value == value:  # noqa: PLR0124 - as above
                counts[bisect_left(edges, value)] += 1
        self.total = total

    def share(self) -> None:
        """Bring the library's child up to date."""
        counts = self.counts.copy()
        for bucket, count, shared in zip(self._buckets, counts, self._shared, strict=True):
            if count != shared:
                bucket.set(count)
        self._shared = counts
        self._sum.set(self.total)


class Slots(Generic[MetricT, SlotT]):
    """The slots of one metric, one for each label set; registered versions bound their number (cardinality)."""

    def __init__(self, metric: MetricT, make: Callable[[MetricT], SlotT]) -> None:
        self._metric = metric
        self._make = make
        self._bound: dict[tuple[str, ...], SlotT] = {}
        self.find = self._bound.get
        """The slot of some labels, if it is bound."""

    def bind(self, labels: tuple[str, ...]) -> SlotT:
        """Return the slot of some labels; from now on the metrics page has their series.

        Raises:
            ValueError: The metric has another number of labels.
        """
        child = self._metric.labels(*labels) if labels else self._metric
        # The library's types do not say which of the two it is.
        return self._bound.setdefault(labels, self._make(cast("MetricT", child)))

    def share(self) -> None:
        """Bring all children up to date."""
        for slot in list(self._bound.values()):  # in one step: another thread may be binding
            slot.share()
