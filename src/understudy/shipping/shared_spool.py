"""One spool for several shippers: a row's room is given back once every one of them has come past it."""

import threading
from collections.abc import Generator
from contextlib import closing

from understudy.core.prediction_log.lake import Place
from understudy.ports.prediction_log.prediction_log import SpooledBatch, SpoolReader, SpoolShelf
from understudy.shipping.kept_batches import KeptBatches


class SharedSpool:
    """Remembers how far each shipper has come, spool by spool; rows of the own one are read once for all of them.

    Until a shipper has said where it is in a spool, nothing of that is given back.

    Args:
        shelf: The spools.
        shippers: How many of them there are; each takes a :meth:`shelf_of` its own number.
    """

    def __init__(self, shelf: SpoolShelf, shippers: int) -> None:
        self._shelf = shelf
        self._shippers = shippers
        self._places: dict[str, dict[int, Place]] = {}
        self._lock = threading.Lock()
        """Shippers read and forget in threads of their own."""
        self._kept: tuple[SpoolReader, KeptBatches] | None = None
        self.turn = threading.Lock()
        """Held by the shipper that goes through spools of dead workers: one that is removed under another would be
        removed twice."""

    def shelf_of(self, shipper: int) -> SpoolShelf:
        """Return the spools as one shipper sees them."""
        return _Shelf(self, self._shelf, shipper)

    def kept_of(self, spool: SpoolReader) -> KeptBatches | None:
        """Return what is kept of the own spool's rows; none with one shipper alone."""
        with self._lock:
            if self._kept is None or self._kept[0] is not spool:
                self._kept = (spool, KeptBatches())
            return self._kept[1] if self._shippers > 1 else None

    def forget(self, spool: SpoolReader, shipper: int, place: Place) -> None:
        """Remember where a shipper is, and give back what lies before all of them."""
        with self._lock:
            places = self._places.setdefault(spool.spool_id, {})
            places[shipper] = max(place, places.get(shipper, place))
            slowest = min(places.values()) if len(places) == self._shippers else None
        if slowest is not None:
            spool.forget(*slowest)

    def place_of(self, spool: SpoolReader, shipper: int) -> Place:
        """Return where a shipper is; before it said so, where the spool begins."""
        with self._lock:
            return self._places.get(spool.spool_id, {}).get(shipper, spool.forgotten)

    def rename(self, spool: SpoolReader, spool_id: str) -> None:
        """Have a spool go on under another id, with every shipper where it was."""
        with self._lock:
            places = self._places.pop(spool.spool_id, {})
            spool.rename(spool_id)
            self._places[spool_id] = places

    def keep_only(self, spool_ids: set[str]) -> None:
        """Drop what is known of all other spools, which are gone."""
        with self._lock:
            self._places = {one: places for one, places in self._places.items() if one in spool_ids}


class _Shelf:
    """Implements ``ports.SpoolShelf`` for one shipper."""

    def __init__(self, shared: SharedSpool, shelf: SpoolShelf, shipper: int) -> None:
        self._shared = shared
        self._shelf = shelf
        self._shipper = shipper
        self._own = _Reader(shared, shelf.own, shipper, shared.kept_of(shelf.own))

    @property
    def own(self) -> SpoolReader:
        own = self._shelf.own
        if self._own.spool is not own:  # its folder was lost, and another one made
            self._own = _Reader(self._shared, own, self._shipper, self._shared.kept_of(own))
        return self._own

    def orphans(self) -> Generator[SpoolReader, None, None]:
        if not self._shared.turn.acquire(blocking=False):
            return
        seen = {self._shelf.own.spool_id}
        try:
            with closing(self._shelf.orphans()) as orphans:
                for orphan in orphans:
                    yield _Reader(self._shared, orphan, self._shipper)
                    seen.add(orphan.spool_id)
            self._shared.keep_only(seen)
        finally:
            self._shared.turn.release()


class _Reader:
    """Implements ``ports.SpoolReader`` for one shipper."""

    def __init__(self, shared: SharedSpool, spool: SpoolReader, shipper: int, kept: KeptBatches | None = None) -> None:
        self.spool = spool
        self._kept = kept
        self._shared = shared
        self._shipper = shipper

    @property
    def spool_id(self) -> str:
        return self.spool.spool_id

    def read_from(self, segment: int, offset: int, max_rows: int, max_bytes: int) -> SpooledBatch | None:
        if self._kept is None:
            return self.spool.read_from(segment, offset, max_rows, max_bytes)
        place = segment, offset
        batch = self._kept.take(self._shipper, place, max_rows)
        if batch is not None and batch.spool_id == self.spool.spool_id:
            return batch
        batch = self.spool.read_from(segment, offset, max_rows, max_bytes)
        if batch is not None:
            self._kept.keep(self._shipper, place, batch)
        return batch

    def forget(self, segment: int, offset: int) -> None:
        self._shared.forget(self.spool, self._shipper, (segment, offset))

    @property
    def forgotten(self) -> Place:
        return self._shared.place_of(self.spool, self._shipper)

    def is_beyond(self, segment: int, offset: int) -> bool:
        return self.spool.is_beyond(segment, offset)

    def rename(self, spool_id: str) -> None:
        self._shared.rename(self.spool, spool_id)

    @property
    def unshipped_bytes(self) -> int:
        return self.spool.bytes_behind(*self.forgotten)

    def bytes_behind(self, segment: int, offset: int) -> int:
        return self.spool.bytes_behind(segment, offset)
