"""Rollouts: each event follows from the one before, each move of the policy is one event's, and commands are obeyed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rigs.histories.audit import MONITOR, OF_ROLLOUT, Chain, Transaction
from rigs.histories.finding import Finding
from rigs.histories.policy import Policy, changed
from rigs.histories.record import COMMANDS, Ended, EventRow, History, Kind, Record, RolloutRow, tag_of
from rigs.histories.statuses import COMMIT_SECONDS
from rigs.histories.timeline import Placed, Timeline

PROGRESSING, WAITING, PROMOTING, SUCCEEDED, FAILED = "PROGRESSING", "WAITING", "PROMOTING", "SUCCEEDED", "FAILED"
FINAL = (SUCCEEDED, FAILED)
WHOLE = 100
BY_HAND, GOES_ON = "rolled back by hand", "goes on"
_FOLLOWS: Mapping[str, tuple[str, ...]] = {
    PROGRESSING: (PROGRESSING, WAITING, PROMOTING, FAILED),
    WAITING: (WAITING, PROGRESSING, PROMOTING, FAILED),
    PROMOTING: (PROMOTING, WAITING, *FINAL),
    SUCCEEDED: (),
    FAILED: (FAILED,),  # a rollback that was decided and not carried out is asked for again
}
_LEADS_TO: Mapping[Kind, tuple[str, ...]] = {
    Kind.PAUSE: (WAITING,),
    Kind.RESUME: (PROGRESSING, PROMOTING),
    Kind.PROMOTE: (PROGRESSING, PROMOTING),
    Kind.ABORT: (FAILED,),
}


@dataclass
class Course:
    """A rollout with its events, without the announcement of its end, and the policy's changes that are its own."""

    row: RolloutRow
    events: Sequence[EventRow]
    moves: Mapping[float, Transaction]
    """By the moment at which their transactions began, which is the event's as well."""


def courses_of(chain: Chain) -> list[Course]:
    """Return every rollout of a history."""
    history = chain.history
    moves = {one.at: one for one in chain.transactions if one.rows[0].via == OF_ROLLOUT}
    return [Course(row, _without_announcement(history, row), moves) for row in history.rollouts]


def _without_announcement(history: History, row: RolloutRow) -> list[EventRow]:
    own = [event for event in history.events if event.rollout_id == row.id]
    kept = own[:1]
    for earlier, later in pairwise(own):
        is_told = (
            earlier.phase in FINAL
            and later.phase == earlier.phase
            and later.actor == MONITOR
            and later.reason != earlier.reason
        )
        kept += [] if is_told else [later]
    return kept


def wrong_courses(chain: Chain) -> Iterator[Finding]:
    """Yield phases and steps out of order, moves of the policy without an event, and commands that were not obeyed."""
    courses = courses_of(chain)
    explained: set[float] = set()
    for course in courses:
        yield from _wrong_start(chain, course)
        yield from _wrong_events(course)
        yield from _wrong_moves(chain, course)
        yield from _wrong_order(chain, course)
        explained |= {event.at for event in course.events}
    for transaction in chain.transactions:
        if transaction.rows[0].via == OF_ROLLOUT and transaction.at not in explained:
            yield Finding("rollout", f"generation {transaction.first} was moved by a rollout without an event of it")
    yield from _wrong_commands(chain.history, courses)


def _wrong_start(chain: Chain, course: Course) -> Iterator[Finding]:
    row = course.row
    starts = [
        one
        for one in chain.transactions
        if one.rows[0].tag == row.reason
        and one.first > 1
        and chain.state(one.first - 1).rollout_id != row.id == chain.state(one.last).rollout_id
    ]
    if len(starts) != 1:
        yield Finding("rollout", f"rollout {row.id} has begun in the policy {len(starts)} times")
        return
    before, after = chain.state(starts[0].first - 1), chain.state(starts[0].last)
    expected = changed(before, challenger=row.challenger, weight=0, salt=row.salt, rollout_id=row.id)
    if before.rollout_id is not None or after != expected or before.champion != row.champion:
        yield Finding("rollout", f"rollout {row.id} began from {before} and made {after}")
    if row.salt_before != before.salt:
        yield Finding("rollout", f"rollout {row.id} remembers the salt {row.salt_before}, it was {before.salt}")


def _wrong_events(course: Course) -> Iterator[Finding]:
    number = course.row.id
    if not course.events or course.events[0].reason != "begins":
        yield Finding("rollout", f"rollout {number} has no event of its beginning")
    for earlier, later in pairwise(course.events):
        if later.phase not in _FOLLOWS[earlier.phase]:
            yield Finding("rollout", f"rollout {number} went from {earlier.phase} to {later.phase}: {later.reason}")
        if later.step not in (earlier.step, earlier.step + 1):
            yield Finding("rollout", f"rollout {number} went from step {earlier.step} to {later.step}: {later.reason}")
        if earlier.phase == WAITING and later.phase in (PROGRESSING, PROMOTING) and tag_of(later.reason) is None:
            yield Finding("rollout", f"rollout {number} went on without an operator: {later.reason}")


def _wrong_moves(chain: Chain, course: Course) -> Iterator[Finding]:
    """Hold each change of the policy to what its event may do."""
    row, entered = course.row, 0
    salts: tuple[str | None, ...] | None = (row.salt,)
    for earlier, event in pairwise(course.events):
        transaction = course.moves.get(event.at)
        if earlier.phase == WAITING and event.reason.startswith(GOES_ON):
            # An operator goes on with the policy as it is by then, another salt included.
            salts = None
        if transaction is None:
            if event.phase in FINAL and chain.rollout(chain.state(chain.last)) == row:
                yield Finding("rollout", f"rollout {row.id} has ended and is in the policy: {event.reason}")
            if _is_step(event) and not _made_by_hand(chain, row, event, entered):
                yield Finding("rollout", f"rollout {row.id} took a step that the policy has not: {event.reason}")
            entered += _is_step(event)
            continue
        before, after = chain.state(transaction.first - 1), chain.state(transaction.last)
        if event.phase in FINAL:
            if after not in _ends(row, before, event, is_promoted=entered == len(row.weights)):
                yield Finding("rollout", f"rollout {row.id} ended with {after} from {before}: {event.reason}")
            continue
        salts = salts or (before.salt,)
        if before.salt in salts and after == _stepped(row, before, entered):
            entered += 1
        elif after != _put_back(row, before, entered) or tag_of(event.reason) is None:
            yield Finding("rollout", f"rollout {row.id} made {after} from {before} after {entered}: {event.reason}")


def _is_step(event: EventRow) -> bool:
    return "goes from" in event.reason or "becomes champion" in event.reason


def _made_by_hand(chain: Chain, row: RolloutRow, event: EventRow, entered: int) -> bool:
    """Whether an operator made the very change of a step in the moment in which the rollout decided it.

    Its writer cannot tell such a change from its own of a moment ago, and finds the policy as it is to be.
    """
    return any(
        chain.state(one.last) == _stepped(row, chain.state(one.first - 1), entered)
        for one in chain.transactions[1:]
        if abs(one.at - event.at) <= COMMIT_SECONDS
    )


def _stepped(row: RolloutRow, before: Policy, entered: int) -> Policy | None:
    """Return the policy one step on; nothing where roles or weight are not as the rollout left them."""
    weight = row.weights[entered - 1] if entered else 0
    roles = (before.champion, before.challenger, before.weight, before.rollout_id)
    if roles != (row.champion, row.challenger, weight, row.id) or entered >= len(row.weights):
        return None
    if row.weights[entered] == WHOLE:
        return changed(before, champion=row.challenger, challenger=None, weight=0, shadow=_not(before, row.challenger))
    return changed(before, weight=row.weights[entered])


def _put_back(row: RolloutRow, before: Policy, entered: int) -> Policy | None:
    """Return the policy with the step's own weight, which an operator's ``resume`` puts back."""
    if (before.champion, before.challenger, before.rollout_id) == (row.champion, row.challenger, row.id):
        return changed(before, weight=row.weights[entered - 1] if entered else 0)
    if (before.champion, before.challenger, before.rollout_id) == (row.challenger, None, row.id):
        return changed(before, weight=0)
    return None


def _ends(row: RolloutRow, before: Policy, event: EventRow, *, is_promoted: bool) -> list[Policy]:
    """Return the policies that the end of a rollout may leave; only its own promotion is its to take back."""
    left = _left(row, before)
    if event.phase == SUCCEEDED:
        return [left]
    roles = (before.champion, before.challenger)
    are_ours = roles == (row.champion, row.challenger) or (is_promoted and roles == (row.challenger, None))
    if before.rollout_id != row.id or not are_ours or event.reason.startswith(BY_HAND):
        return [left]
    back = changed(
        before,
        champion=row.champion,
        challenger=row.challenger,
        weight=0,
        shadow=None if before.shadow in (row.champion, row.challenger) else before.shadow,
    )
    return [_left(row, back)]


def _left(row: RolloutRow, before: Policy) -> Policy:
    """Return the policy without the rollout's id, and with the salt before where nothing depends on the rollout's."""
    is_restored = before.weight == 0 and before.salt == row.salt
    return changed(before, rollout_id=None, salt=row.salt_before if is_restored else before.salt)


def _not(before: Policy, version: str) -> str | None:
    return None if before.shadow == version else before.shadow


def _wrong_order(chain: Chain, course: Course) -> Iterator[Finding]:
    """Hold commands and reads of a rollout to real time: each event makes its revision one higher."""
    places = {tag_of(event.reason): place for place, event in enumerate(course.events, start=1)}
    placed = []
    for record in chain.history.records:
        kind, answer = record.operation.kind, record.answer
        if kind in COMMANDS and record.operation.tag in places:
            place = places[record.operation.tag]
            placed.append(Placed(record, place, place, writes=True))
        elif kind is Kind.READ_ROLLOUT and record.ended is Ended.DONE and answer.get("rollout") == course.row.id:
            revision = answer["revision"]
            placed.append(Placed(record, revision, revision, writes=False))
            event = course.events[revision - 1] if revision <= len(course.events) else None
            if event is None or (event.phase, event.step) != (answer["phase"], answer["step"]):
                yield Finding("rollout", f"revision {revision} is {event}: {record}")
    began_at = [(event.at, place) for place, event in enumerate(course.events, start=1)]
    for found in Timeline(placed, began_at).misplaced():
        yield Finding("order", f"{found.placed.record} stands before {found.earlier}, which had returned")


def _wrong_commands(history: History, courses: Sequence[Course]) -> Iterator[Finding]:
    started: dict[str, list[RolloutRow]] = {}
    for row in history.rollouts:
        started.setdefault(row.reason, []).append(row)
    for record in history.records:
        tag = record.operation.tag
        if record.operation.kind is Kind.START:
            count = len(started.get(tag, []))
            if count != 1 and (record.ended is Ended.DONE or count > 1):
                yield Finding("rollout", f"{count} rollouts were started by: {record}")
            if count and record.ended is Ended.REFUSED:
                yield Finding("rollout", f"rollout {started[tag][0].id} was started by what was refused: {record}")
        elif record.operation.kind in COMMANDS:
            own = [e for one in courses for e in one.events if tag_of(e.reason) == tag and e.actor != MONITOR]
            yield from _wrong_command(record, own)


def _wrong_command(record: Record, own: Sequence[EventRow]) -> Iterator[Finding]:
    said = record.answer.get("event", "")
    is_obeyed = record.ended is Ended.DONE and tag_of(said) == record.operation.tag
    if len(own) > 1:
        yield Finding("rollout", f"obeyed {len(own)} times: {record}")
    elif own and record.ended is not Ended.UNKNOWN and not is_obeyed:
        yield Finding("rollout", f"obeyed, though the answer is otherwise: {record}")
    elif is_obeyed and not own:
        yield Finding("rollout", f"said to be obeyed, and no event says so: {record}")
    elif own and own[0].phase not in _LEADS_TO[record.operation.kind]:
        yield Finding("rollout", f"it led to {own[0].phase}: {record}")
