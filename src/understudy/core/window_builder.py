"""From the rows of the log to windows, while the rows are shipped.

The shipper stages a batch, writes the rows and the staged windows in one transaction, and commits the staged batch when
the database has: what is written is each changed window's whole new state, so writing it again changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from re import compile as pattern
from typing import NamedTuple

import numpy as np

from understudy.core.policy import Role
from understudy.core.prediction import Status
from understudy.core.routing import Reason
from understudy.core.seen_entities import SeenEntities
from understudy.core.window_tally import WindowTally
from understudy.core.windows import WINDOW_SECONDS, Window, WindowKey

OPEN_SECONDS = 180
"""A window is kept open until rows this much younger were committed."""
MAX_OPEN_WINDOWS = 256
MAX_ROLLOUTS = 8
"""Rollouts whose entities are remembered; the one that was met longest ago is forgotten, and its entities are new."""

SlowThreshold = Callable[[int], int | None]
"""From a rollout's id to its threshold τ in microseconds: the champion's 95th percentile before it started."""

_AS_CHALLENGER = 0x9E37_79B9_7F4A_7C15
"""2**64 divided by the golden ratio. Any constant would do that changes many bits of a hash, which then stands for the
entity as a challenger's."""
_ESCAPED = pattern(rb"\\(.)")
_ESCAPES = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"\\": b"\\"}
_NULL = b"\\N"
_OK = Status.OK.encode()
_FORCED = Reason.FORCED.encode()
_CATEGORY = Reason.CATEGORY.encode()
_NEEDED = (
    "predicted_at",
    "model_version_id",
    "assigned_version_id",
    "role",
    "reason",
    "policy_generation",
    "rollout_id",
    "entity_id",
    "score",
    "latency_us",
    "cache_hit",
    "status",
)
"""The columns that windows need: first those that decide whose window it is."""
_SECOND = len("2025-11-20T18:01:40")


class Staged(NamedTuple):
    """What a batch changes."""

    windows: tuple[Window, ...]
    """The new, whole state of each window that the batch touched."""
    unreadable_rows: int
    """Rows that are not what the proxy writes; they are in no window."""
    batch: "_Batch"


@dataclass(slots=True)
class _Open:
    """A committed window, and which entities are in it."""

    window: Window
    entities: set[int] = field(default_factory=set)
    error_entities: set[int] = field(default_factory=set)


class _Group(NamedTuple):
    """What rows of one window have in common."""

    tally: WindowTally
    rollout_id: int
    is_challenger: bool
    is_compared: bool
    """Whether chance chose the version."""
    is_fallback: bool
    """Whether another version had to stand in, or tried to."""


class WindowBuilder:
    """The open windows of one shipper, in bounded memory.

    Args:
        shipper: A name that no other builder ever has, elsewhere or before a restart: a builder that forgot its windows
            would overwrite theirs, and call all entities new again.
    """

    def __init__(self, shipper: str) -> None:
        self._shipper = shipper
        self._open: dict[WindowKey, _Open] = {}
        self._seen: dict[int, SeenEntities] = {}
        self._closed_before = 0
        """Rows of windows that start earlier are late."""
        self._late_epoch = 1
        self._commits = 0

    def stage(self, rows: Sequence[bytes], columns: Sequence[str], slow_us_of: SlowThreshold) -> Staged:
        """Return what the rows add; nothing is kept until :meth:`commit`.

        Args:
            rows: Lines of COPY text as they lie in the spool.
            columns: What their fields are. Rows that lack a column which windows need count as unreadable.
            slow_us_of: Without a threshold no call is slow.
        """
        batch = _Batch(self, slow_us_of)
        if not set(_NEEDED).issubset(columns):
            return Staged((), len(rows), batch)
        needed_of = itemgetter(*map(columns.index, _NEEDED))
        unreadable_rows = 0
        for row in rows:
            try:
                batch.add(needed_of(row.split(b"\t")))
            except (ValueError, IndexError):
                unreadable_rows += 1
        return Staged(batch.windows(), unreadable_rows, batch)

    def commit(self, staged: Staged) -> None:
        """Keep what was staged, once the same rows and windows are committed in the database.

        Raises:
            ValueError: Something else was committed since it was staged, which its windows do not hold.
        """
        batch = staged.batch
        if batch.after_commits != self._commits:
            raise ValueError("another batch was committed since this one was staged; stage its rows again")
        self._commits += 1
        self._late_epoch += any(window.key.epoch for window in staged.windows)
        for window in staged.windows:
            tally = batch.tallies[window.key]
            opened = self._open.setdefault(window.key, _Open(window))
            opened.window = window
            opened.entities |= tally.fresh
            opened.error_entities |= tally.fresh_with_error
        for rollout_id, entities in batch.fresh.items():
            self._remember(rollout_id, entities)
        self._close()

    def opened(self, key: WindowKey) -> _Open:
        """Return what is committed of a window."""
        return self._open.get(key) or _Open(Window(key))

    def has_seen(self, rollout_id: int, entity: int) -> bool:
        """Whether a rollout has met what the hash stands for."""
        seen = self._seen.get(rollout_id)
        return seen is not None and seen.has(entity)

    def key_of(self, version_id: int, role: Role, rollout_id: int, generation: int, start: int) -> WindowKey:
        """Return the key of the window that gets a row."""
        epoch = self._late_epoch if start < self._closed_before else 0
        return WindowKey(self._shipper, epoch, version_id, role, rollout_id, generation, start)

    @property
    def commits(self) -> int:
        """How many batches were committed."""
        return self._commits

    def _remember(self, rollout_id: int, entities: set[int]) -> None:
        seen = self._seen.pop(rollout_id) if rollout_id in self._seen else SeenEntities()
        self._seen[rollout_id] = seen  # now the last one
        for entity in entities:
            seen.remember(entity)
        if len(self._seen) > MAX_ROLLOUTS:
            del self._seen[next(iter(self._seen))]

    def _close(self) -> None:
        """Forget windows that are old, and the oldest ones of too many."""
        starts = sorted((key.start for key in self._open), reverse=True)
        if not starts:
            return
        self._closed_before = max(self._closed_before, starts[0] - OPEN_SECONDS)
        if len(starts) > MAX_OPEN_WINDOWS:
            self._closed_before = max(self._closed_before, starts[MAX_OPEN_WINDOWS] + WINDOW_SECONDS)
        self._open = {key: opened for key, opened in self._open.items() if key.start >= self._closed_before}


class _Batch:
    """What the rows of one batch come to, beside what the builder has committed."""

    def __init__(self, builder: WindowBuilder, slow_us_of: SlowThreshold) -> None:
        self._builder = builder
        self._slow_us_of = slow_us_of
        self._groups: dict[tuple[bytes, ...], _Group] = {}
        self.tallies: dict[WindowKey, WindowTally] = {}
        self.fresh: dict[int, set[int]] = {}
        """New entities of each rollout."""
        self.after_commits = builder.commits

    def windows(self) -> tuple[Window, ...]:
        return tuple(tally.window() for tally in self.tallies.values())

    def add(self, facts: tuple[bytes, ...]) -> None:
        """Add a row, given its fields of :data:`_NEEDED`; a ``ValueError`` leaves everything as it was."""
        at, version, assigned, role, reason, generation, rollout, entity_id, score, latency_us, cache_hit, status = (
            facts
        )
        if reason == _FORCED:
            return
        shared = (at[:_SECOND], version, assigned, role, reason, generation, rollout)
        group = self._groups.get(shared)
        tally, rollout_id, is_challenger, is_compared, is_fallback = group or self._new_group(shared)
        is_hit = cache_hit == b"t" and not is_fallback
        # Everything that can be wrong with a row is read before anything is counted.
        latency, value = int(latency_us), None if score == _NULL else float(score)
        tally.volume += 1
        tally.cache_hits += is_hit
        if not is_compared:
            return
        entity = analysis_hash(_unescaped(entity_id) if b"\\" in entity_id else entity_id)
        if rollout_id:
            self._meet(rollout_id, entity, tally, is_challenger=is_challenger)
        if is_hit:
            return
        if is_fallback or status != _OK:
            tally.add_failure(entity)
        else:
            tally.add_answer(entity, latency, value)

    def _new_group(self, shared: tuple[bytes, ...]) -> _Group:
        at, version, assigned, role_text, reason, generation, rollout = shared
        is_fallback = assigned != version
        role = Role.CHALLENGER if is_fallback else Role(role_text.decode())
        rollout_id = 0 if rollout == _NULL else int(rollout)
        key = self._builder.key_of(int(assigned), role, rollout_id, int(generation), _window_start(at))
        group = self._groups[shared] = _Group(
            self._tally(key),
            # A shadow's calls are copies: their entities were met in another role.
            0 if role is Role.SHADOW else rollout_id,
            role is Role.CHALLENGER,
            reason != _CATEGORY or role is Role.SHADOW,
            is_fallback,
        )
        return group

    def _tally(self, key: WindowKey) -> WindowTally:
        tally = self.tallies.get(key)
        if tally is None:
            opened = self._builder.opened(key)
            slow_us = self._slow_us_of(key.rollout_id)
            tally = self.tallies[key] = WindowTally(opened.window, opened.entities, opened.error_entities, slow_us)
        return tally

    def _meet(self, rollout_id: int, entity: int, tally: WindowTally, *, is_challenger: bool) -> None:
        """Count an entity that is new to the rollout, or to the challenger."""
        is_new = self._is_new(rollout_id, entity)
        tally.new_entities += is_new
        tally.new_in_role += self._is_new(rollout_id, entity ^ _AS_CHALLENGER) if is_challenger else is_new

    def _is_new(self, rollout_id: int, entity: int) -> bool:
        fresh = self.fresh.setdefault(rollout_id, set())
        if entity in fresh or self._builder.has_seen(rollout_id, entity):
            return False
        fresh.add(entity)
        return True


def analysis_hash(entity: bytes) -> int:
    """Return an entity's 64-bit hash for analyses, which no routing depends on; its analysis bucket is ``% 64``."""
    return int.from_bytes(blake2b(b"analysis:" + entity, digest_size=8).digest(), "little")


def _unescaped(text: bytes) -> bytes:
    """Undo what COPY text escapes."""
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)


@lru_cache(maxsize=1024)
def _window_start(second: bytes) -> int:
    """Return when the window of ``YYYY-MM-DDTHH:MM:SS`` (UTC) starts, in seconds since the epoch."""
    seconds = int(np.datetime64(second.decode(), "s").astype(np.int64))
    return seconds - seconds % WINDOW_SECONDS
