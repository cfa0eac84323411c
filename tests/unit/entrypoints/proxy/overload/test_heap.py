"""When a process under memory pressure gives memory back, and what it gives back."""

import gc
import threading
import weakref
from threading import Event

import pytest

from understudy.entrypoints.proxy.overload.heap import SHRINK_SECONDS, HeapShrinker, malloc_trim


class Trims:
    """Counts its calls; each ends when it may."""

    def __init__(self) -> None:
        self.count, self.may_end = 0, Event()
        self.may_end.set()

    def __call__(self) -> None:
        self.count += 1
        self.may_end.wait(10)


def wait_for_attempts() -> None:
    for thread in threading.enumerate():
        if thread.name == "heap-shrinker":
            thread.join(10)


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.deep
def test_while_the_pressure_lasts_the_heap_is_shrunk_every_ten_seconds():
    now, trims = [0.0], Trims()
    heap = HeapShrinker(lambda: now[0], trims)

    for tick in range(int(4 * SHRINK_SECONDS) + 1):  # four ticks a second
        now[0] = tick / 4
        heap.shrink()
        wait_for_attempts()

    assert trims.count == 2


@pytest.mark.deep
def test_an_attempt_that_takes_long_is_not_followed_by_another_one_beside_it():
    now, trims = [0.0], Trims()
    heap = HeapShrinker(lambda: now[0], trims)
    trims.may_end.clear()

    for now[0] in (0.0, SHRINK_SECONDS, 2 * SHRINK_SECONDS):
        heap.shrink()
    trims.may_end.set()
    wait_for_attempts()

    assert trims.count == 1


@pytest.mark.deep
def test_what_only_the_garbage_collector_frees_is_freed():
    gc.disable()
    try:
        found = weakref.ref(Node())
        assert found() is not None

        HeapShrinker(lambda: 0.0, lambda: None).shrink()

        assert found() is None
    finally:
        gc.enable()


def test_the_c_librarys_own_function_can_be_called():
    malloc_trim()()
