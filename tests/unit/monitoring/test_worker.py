"""The monitor's loop, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import floor
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import VirtualTimeLoop, run_in_virtual_time

from understudy.adapters.memory.lease import MemoryLease
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.errors import LeadershipLost, RegistryUnavailable
from understudy.monitoring.worker import HELD_SECONDS, RENEW_SECONDS, STANDBY_SECONDS, Job, MonitorWorker
from understudy.ports.monitoring.lease import LEASE_SECONDS, Epoch, Lease

FINISH_SECONDS = 3.0
WALL_SECONDS = 1_700_000_000.0
"""What the wall clock says when the virtual time is 0."""


def now() -> float:
    return asyncio.get_running_loop().time()


class Run(NamedTuple):
    """One run of a job; ``end`` also when it was cut short."""

    job: str
    epoch: Epoch
    start: float
    end: float
    is_whole: bool


class Diary:
    """What jobs did, in the order in which they ended."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def job(
        self,
        name: str = "rollouts",
        *,
        every: float = 5.0,
        takes: float = 0.0,
        timeout: float = 100.0,
        then: Callable[[], Awaitable[None]] | None = None,
    ) -> Job:
        async def run(epoch: Epoch) -> None:
            start, is_whole = now(), False
            try:
                await asyncio.sleep(takes)
                if then is not None:
                    await then()
                is_whole = True
            finally:
                self.runs.append(Run(name, epoch, start, now(), is_whole))

        return Job(name, every, timeout, run)

    def starts(self, name: str = "rollouts") -> list[float]:
        return [round(run.start, 6) for run in self.runs if run.job == name]


class Reach:
    """The way of one process to the lease, which may be cut."""

    def __init__(self, lease: Lease, *, hangs: bool = False) -> None:
        self._lease = lease
        self._hangs = hangs
        self.outages: list[tuple[float, float]] = []
        """From when to when nothing comes through."""

    async def take_or_renew(self, holder: str) -> Epoch | None:
        await self._pass()
        return await self._lease.take_or_renew(holder)

    async def release(self, holder: str) -> None:
        await self._pass()
        await self._lease.release(holder)

    async def close(self) -> None: ...

    async def _pass(self) -> None:
        if any(start <= now() < end for start, end in self.outages):
            if self._hangs:
                await asyncio.sleep(4)  # longer than there may be left of the lease
            raise RegistryUnavailable("cut off")


def a_worker(
    lease: Lease,
    jobs: Sequence[Job],
    telemetry: MemoryTelemetry | None = None,
    *,
    holder: str = "a:1:x",
    clock: Callable[[], float] = now,
    stand_down: Callable[[], Awaitable[None]] | None = None,
    stranded: Callable[[], None] | None = None,
) -> MonitorWorker:
    return MonitorWorker(
        lease,
        jobs,
        telemetry or MemoryTelemetry(),
        holder=holder,
        finish_seconds=FINISH_SECONDS,
        now=clock,
        unix=lambda: WALL_SECONDS + now(),
        stand_down=stand_down,
        stranded=stranded,
    )


async def run_for(seconds: float, *workers: MonitorWorker) -> None:
    """Let workers run until a moment of the virtual time, and stop them."""
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await asyncio.sleep(seconds - now())
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)


# -- the schedule ------------------------------------------------------------------------------------------------------


def test_jobs_are_due_at_once_and_then_on_a_grid_that_their_own_duration_does_not_shift():
    diary = Diary()

    async def scenario() -> None:
        await run_for(60.5, a_worker(MemoryLease(now), [diary.job(every=5, takes=3)]))

    run_in_virtual_time(scenario())
    assert diary.starts() == [5.0 * k for k in range(13)]


def test_a_clock_that_is_coarser_than_the_timers_does_not_run_a_job_twice():
    diary = Diary()

    async def scenario() -> None:
        worker = a_worker(MemoryLease(now), [diary.job(every=0.1)], clock=lambda: floor(now() * 64) / 64)
        await run_for(20.05, worker)

    run_in_virtual_time(scenario())
    assert len(diary.runs) == 201
    assert min(following - start for start, following in pairwise(diary.starts())) > 0.05


def test_runs_that_a_long_one_covered_are_skipped():
    diary = Diary()

    async def scenario() -> None:
        await run_for(46, a_worker(MemoryLease(now), [diary.job(every=5, takes=12)]))

    run_in_virtual_time(scenario())
    assert diary.starts() == [0.0, 15.0, 30.0, 45.0]


def test_jobs_run_one_after_another_and_a_slow_one_does_not_starve_the_others():
    diary = Diary()

    async def scenario() -> None:
        jobs = [diary.job("slow", every=5, takes=7), diary.job("quick", every=5, takes=1)]
        await run_for(100, a_worker(MemoryLease(now), jobs))

    run_in_virtual_time(scenario())
    assert all(one.end <= following.start for one, following in pairwise(diary.runs))
    assert len(diary.starts("quick")) >= 10


def test_a_job_that_fails_is_counted_and_the_others_go_on():
    diary, telemetry = Diary(), MemoryTelemetry()

    async def fail() -> None:
        raise ZeroDivisionError

    async def refuse() -> None:
        raise RegistryUnavailable

    async def scenario() -> None:
        jobs = [diary.job("defect", then=fail), diary.job("refused", then=refuse), diary.job("fine", takes=0.5)]
        await run_for(12, a_worker(MemoryLease(now), jobs, telemetry))

    run_in_virtual_time(scenario())
    assert diary.starts("fine") == [0.0, 5.0, 10.0]
    assert telemetry.counts == {("monitor_failures_total", "defect"): 3, ("monitor_failures_total", "refused"): 3}
    successes = {name: at for name, at in telemetry.gauges.items() if name[0].startswith("monitor_last")}
    assert successes == {
        ("monitor_last_success_timestamp_seconds", "defect"): WALL_SECONDS,
        ("monitor_last_success_timestamp_seconds", "refused"): WALL_SECONDS,
        ("monitor_last_success_timestamp_seconds", "fine"): WALL_SECONDS + 10.5,
    }
    assert telemetry.observed["monitor_tick_duration_seconds", "fine"] == [0.5] * 3
    assert len(telemetry.observed["monitor_tick_duration_seconds", "defect"]) == 3


def test_a_job_that_is_late_is_cut_short_and_counted_and_runs_again_when_it_is_due():
    diary, telemetry = Diary(), MemoryTelemetry()

    async def scenario() -> None:
        jobs = [diary.job("late", every=10, takes=1e6, timeout=4), diary.job("fine", every=10)]
        await run_for(19, a_worker(MemoryLease(now), jobs, telemetry))

    run_in_virtual_time(scenario())
    late = [run for run in diary.runs if run.job == "late"]
    assert [(run.start, run.end, run.is_whole) for run in late] == [(0, 4, False), (10, 14, False)]
    assert diary.starts("fine") == [4.0, 14.0]
    assert telemetry.counts == {("monitor_failures_total", "late"): 2}


def test_a_monitor_without_jobs_leads_and_stops():
    telemetry, leads = MemoryTelemetry(), []

    async def scenario() -> None:
        ending = asyncio.create_task(run_for(60, a_worker(MemoryLease(now), [], telemetry)))
        await asyncio.sleep(30)
        leads.append(telemetry.gauges["monitor_leader",])
        await ending
        assert now() == 60

    run_in_virtual_time(scenario())
    assert leads == [1]


# -- leadership --------------------------------------------------------------------------------------------------------


def test_of_two_one_leads_and_the_other_stands_by():
    one, other = Diary(), Diary()
    leaders = [MemoryTelemetry(), MemoryTelemetry()]
    seen: list[float] = []

    async def scenario() -> None:
        lease = MemoryLease(now)
        workers = [
            a_worker(lease, [one.job()], leaders[0]),
            a_worker(lease, [other.job()], leaders[1], holder="b:2:y"),
        ]
        ending = asyncio.create_task(run_for(60, *workers))
        await asyncio.sleep(30)
        seen.extend(telemetry.gauges["monitor_leader",] for telemetry in leaders)
        await ending

    run_in_virtual_time(scenario())
    assert len(one.runs) == 12
    assert other.runs == []
    assert seen == [1, 0]
    assert [telemetry.gauges["monitor_leader",] for telemetry in leaders] == [0, 0]


def test_a_leader_that_dies_is_followed_within_the_lease_and_one_pause_under_a_higher_epoch():
    diary = Diary()

    async def scenario() -> None:
        lease = MemoryLease(now)
        dead = await lease.take_or_renew("dead:1:z")
        await run_for(20, a_worker(lease, [diary.job()]))
        assert diary.runs[0].epoch > (dead or 0)

    run_in_virtual_time(scenario())
    assert LEASE_SECONDS <= diary.starts()[0] <= LEASE_SECONDS + STANDBY_SECONDS


def test_a_short_outage_of_postgres_costs_neither_the_lead_nor_a_run():
    diary = Diary()

    async def scenario() -> None:
        lease = Reach(MemoryLease(now))
        lease.outages = [(20.5, 23.5)]
        await run_for(40.5, a_worker(lease, [diary.job(every=2, takes=1.9)]))

    run_in_virtual_time(scenario())
    assert {run.epoch for run in diary.runs} == {1}
    assert diary.starts() == [2.0 * k for k in range(21)]


@pytest.mark.parametrize("hangs", [False, True])
def test_a_lease_that_cannot_be_renewed_ends_the_job_under_way_before_another_monitor_can_lead(hangs):
    diary, telemetry = Diary(), MemoryTelemetry()
    leads = []

    async def scenario() -> None:
        lease = Reach(MemoryLease(now), hangs=hangs)
        lease.outages = [(20.5, 1e6)]
        ending = asyncio.create_task(run_for(40, a_worker(lease, [diary.job(takes=90)], telemetry)))
        await asyncio.sleep(30)
        leads.append(telemetry.gauges["monitor_leader",])
        await ending

    run_in_virtual_time(scenario())
    last_renewal = 20 // RENEW_SECONDS * RENEW_SECONDS
    cut = diary.runs[-1]
    assert not cut.is_whole
    assert 20.5 < cut.end == last_renewal + HELD_SECONDS < last_renewal + LEASE_SECONDS
    assert leads == [0]


def test_after_an_outage_the_leader_leads_again_and_its_jobs_are_due_at_once():
    diary = Diary()

    async def scenario() -> None:
        lease = Reach(MemoryLease(now))
        lease.outages = [(20.5, 40.0)]
        await run_for(60, a_worker(lease, [diary.job(every=50)]))

    run_in_virtual_time(scenario())
    assert diary.starts()[0] == 0
    assert 40 <= diary.starts()[1] <= 40 + STANDBY_SECONDS


def test_who_cannot_ask_for_the_lease_is_told_so_each_second_and_who_stands_by_is_not():
    stranded: dict[str, list[float]] = {"a:1:x": [], "b:2:y": []}

    def note(told: list[float]) -> None:
        told.append(now())

    async def scenario() -> None:
        lease = Reach(MemoryLease(now))
        lease.outages = [(20.5, 40.0)]
        workers = [
            a_worker(lease, [], holder=holder, stranded=partial(note, told)) for holder, told in stranded.items()
        ]
        await run_for(60, *workers)

    run_in_virtual_time(scenario())
    led, stood_by = stranded.values()
    assert 20.5 + HELD_SECONDS - RENEW_SECONDS <= led[0] <= 20.5 + HELD_SECONDS + STANDBY_SECONDS
    assert 20.5 <= stood_by[0] <= 20.5 + STANDBY_SECONDS
    assert max(led[-1], stood_by[-1]) < 40
    assert len(stood_by) in (19, 20)


def test_a_job_that_never_succeeded_is_measured_from_when_the_process_first_led():
    diary, telemetry = Diary(), MemoryTelemetry()
    seen: list[float | None] = []

    async def fail() -> None:
        raise RegistryUnavailable

    async def scenario() -> None:
        lease = Reach(MemoryLease(now))
        lease.outages = [(0.0, 5.5), (20.5, 40.0)]
        ending = asyncio.create_task(run_for(60, a_worker(lease, [diary.job(then=fail)], telemetry)))
        for moment in (5.0, 10.0, 30.0, 59.0):
            await asyncio.sleep(moment - now())
            seen.append(telemetry.gauges.get(("monitor_last_success_timestamp_seconds", "rollouts")))
        await ending

    run_in_virtual_time(scenario())
    first_led = WALL_SECONDS + diary.starts()[0]
    assert 5.5 <= diary.starts()[0] <= 5.5 + STANDBY_SECONDS
    assert any(start >= 40 for start in diary.starts()), "it leads again"
    assert seen == [None, first_led, first_led, first_led]


def test_of_a_vital_job_nothing_is_said_before_its_first_success():
    diary, telemetry = Diary(), MemoryTelemetry()

    async def fail() -> None:
        raise RegistryUnavailable

    async def scenario() -> None:
        job = replace(diary.job(then=fail), is_vital=True)
        await run_for(20, a_worker(MemoryLease(now), [job], telemetry))

    run_in_virtual_time(scenario())
    assert len(diary.starts()) > 1
    assert not [name for name in telemetry.gauges if name[0].startswith("monitor_last")]


def test_a_leader_whose_lease_was_given_to_another_stops_at_its_next_renewal():
    diary, telemetry = Diary(), MemoryTelemetry()

    async def scenario() -> None:
        lease = MemoryLease(now)
        ending = asyncio.create_task(run_for(26, a_worker(lease, [diary.job(takes=90)], telemetry)))
        await asyncio.sleep(20.5)
        await lease.release("a:1:x")
        await lease.take_or_renew("b:2:y")
        await ending

    run_in_virtual_time(scenario())
    assert [(run.epoch, run.is_whole) for run in diary.runs] == [(1, False)]
    assert 20.5 < diary.runs[0].end <= 20.5 + RENEW_SECONDS


def test_what_jobs_began_beside_themselves_is_broken_off_whenever_leadership_ends():
    ends: list[float] = []

    async def stand_down() -> None:
        ends.append(now())

    async def scenario() -> None:
        lease = MemoryLease(now)
        ending = asyncio.create_task(run_for(26, a_worker(lease, [Diary().job()], stand_down=stand_down)))
        await asyncio.sleep(10.5)
        await lease.release("a:1:x")
        await lease.take_or_renew("b:2:y")
        await asyncio.sleep(RENEW_SECONDS)
        assert len(ends) == 1
        await ending

    run_in_virtual_time(scenario())
    assert ends[-1] == pytest.approx(26)
    assert len(ends) == 2  # it led again once the other one was silent


def test_a_fence_that_refuses_ends_leadership_and_is_no_failure_of_the_job():
    diary, telemetry = Diary(), MemoryTelemetry()

    async def refused() -> None:
        raise LeadershipLost("epoch 1 is over")

    async def scenario() -> None:
        jobs = [diary.job("fenced", then=refused), diary.job("behind")]
        await run_for(3.5, a_worker(MemoryLease(now), jobs, telemetry))

    run_in_virtual_time(scenario())
    assert diary.starts("fenced") == [0.0, 1.0, 2.0, 3.0]
    assert diary.starts("behind") == []
    assert telemetry.counts == {}


def test_a_process_that_was_frozen_while_another_took_over_does_nothing_more_in_its_old_epoch():
    frozen, other = Diary(), Diary()

    async def freeze() -> None:
        if now() > 7:
            return
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.freeze(30)
        # What the other process did meanwhile, as far as the row shows it.
        await lease.take_or_renew("b:2:y")

    lease = MemoryLease(now)

    async def scenario() -> None:
        jobs = [frozen.job("frozen", takes=1, then=freeze), frozen.job("following")]
        await run_for(34, a_worker(lease, jobs))
        await run_for(40, a_worker(lease, [other.job()], holder="b:2:y"))

    run_in_virtual_time(scenario())
    assert {run.epoch for run in frozen.runs} == {1}
    assert [run for run in frozen.runs if run.job == "following" and run.is_whole] == []
    assert {run.epoch for run in other.runs} == {2}


@pytest.mark.deep
@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 25)), max_size=4), min_size=2, max_size=3))
def test_whoever_is_cut_off_from_postgres_and_when_two_never_work_at_the_same_time(outages):
    diary = Diary()
    holders: dict[Epoch, set[str]] = {}

    async def scenario() -> None:
        lease, workers = MemoryLease(now), []
        for number, times in enumerate(outages):
            reach = Reach(lease, hangs=number % 2 == 1)
            reach.outages = [(start, start + seconds) for start, seconds in times]
            workers.append(a_worker(reach, [diary.job(str(number), every=1, takes=0.9)], holder=str(number)))
        # Enough time after the last outage for somebody to lead.
        await run_for(150, *workers)

    run_in_virtual_time(scenario())
    for run in diary.runs:
        holders.setdefault(run.epoch, set()).add(run.job)
    in_order = sorted(diary.runs, key=lambda run: run.start)
    assert all(one.end <= following.start for one, following in pairwise(in_order))
    assert [run.epoch for run in in_order] == sorted(run.epoch for run in in_order)
    assert all(len(names) == 1 for names in holders.values())
    assert in_order[-1].end > 140


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_stop_lets_the_job_under_way_finish_starts_no_other_and_frees_the_lease():
    diary, telemetry = Diary(), MemoryTelemetry()

    async def scenario() -> None:
        lease = MemoryLease(now)
        await run_for(6, a_worker(lease, [diary.job("first", takes=2), diary.job("second", takes=2)], telemetry))
        assert now() == 7
        assert await lease.take_or_renew("b:2:y") == 2

    run_in_virtual_time(scenario())
    assert diary.runs[-1] == Run("first", 1, 5.0, 7.0, is_whole=True)
    assert telemetry.counts == {}


def test_a_stop_cuts_a_job_that_goes_on_past_the_bound():
    diary = Diary()

    async def scenario() -> None:
        lease = MemoryLease(now)
        await run_for(1, a_worker(lease, [diary.job(takes=50)]))
        assert await lease.take_or_renew("b:2:y") == 2

    run_in_virtual_time(scenario())
    assert diary.runs == [Run("rollouts", 1, 0.0, 1 + FINISH_SECONDS, is_whole=False)]


def test_a_stop_leaves_a_job_no_more_than_its_own_time():
    diary = Diary()

    async def scenario() -> None:
        await run_for(1, a_worker(MemoryLease(now), [diary.job(takes=50, timeout=2)]))

    run_in_virtual_time(scenario())
    assert diary.runs[0].end == 2


def test_the_lease_is_kept_while_the_last_job_finishes():
    diary = Diary()

    async def scenario() -> None:
        lease = MemoryLease(now)
        worker = a_worker(lease, [diary.job(takes=3)])
        ending = asyncio.create_task(run_for(1, worker))
        await asyncio.sleep(2.9)
        assert await lease.take_or_renew("b:2:y") is None
        await ending
        assert now() == 3

    run_in_virtual_time(scenario())


def test_a_standby_stops_at_once_and_leaves_the_leader_its_lease():
    async def scenario() -> None:
        lease = MemoryLease(now)
        await lease.take_or_renew("b:2:y")
        await run_for(3.3, a_worker(lease, [Diary().job()]))
        assert now() == 3.3
        assert await lease.take_or_renew("b:2:y") == 1

    run_in_virtual_time(scenario())


def test_a_stop_while_postgres_is_away_ends_all_the_same():
    async def scenario() -> None:
        lease = MemoryLease(now)
        lease.available = False
        await run_for(3.3, a_worker(lease, [Diary().job()]))
        assert now() == 3.3

    run_in_virtual_time(scenario())


# -- a job that is hurried ---------------------------------------------------------------------------------------------


def test_a_hurried_job_runs_at_once_and_then_at_its_usual_times():
    diary = Diary()

    async def scenario() -> None:
        worker = a_worker(MemoryLease(now), [diary.job(every=5)])
        asyncio.get_running_loop().call_at(7.0, worker.hurry)
        await run_for(15.5, worker)

    run_in_virtual_time(scenario())
    assert diary.starts() == [0.0, 5.0, 7.0, 10.0, 15.0]


def test_a_job_that_is_hurried_while_it_runs_runs_once_more():
    diary = Diary()

    async def scenario() -> None:
        worker = a_worker(MemoryLease(now), [diary.job(every=100, takes=2)])
        for moment in (0.5, 1.0, 1.5):
            asyncio.get_running_loop().call_at(moment, worker.hurry)
        await run_for(50, worker)

    run_in_virtual_time(scenario())
    assert diary.starts() == [0.0, 2.0]
