"""The audit: a chain without a gap, whose every transaction is one operation's, and does what the model says."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rigs.histories.finding import Finding
from rigs.histories.policy import (
    OpenRollout,
    Policy,
    Refusal,
    after_add,
    after_rollback,
    after_set,
)
from rigs.histories.record import COMMANDS, AuditRow, Ended, History, Kind, Record, RolloutRow

CHANGING = frozenset({Kind.SET, Kind.ADD, Kind.ROLL_BACK, Kind.START, *COMMANDS})
MONITOR = "monitor"
OF_ROLLOUT = "rollout"
CLOCK_SECONDS = 0.05
"""By which the database's clock may seem to differ from the runner's: both are the machine's, read by two programs."""


class Transaction(NamedTuple):
    """Rows of the audit that one transaction wrote."""

    rows: tuple[AuditRow, ...]

    @property
    def first(self) -> int:
        """The first generation that it made."""
        return self.rows[0].generation

    @property
    def last(self) -> int:
        """The generation that others see."""
        return self.rows[-1].generation

    @property
    def at(self) -> float:
        """When it began."""
        return self.rows[0].at


class Chain:
    """The policies of a history, by their generations.

    Args:
        history: With an audit that :func:`broken_links` finds nothing in.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.states: list[Policy] = [history.state(row) for row in history.audit]
        self.transactions = _transactions(history.audit)
        self.committed = frozenset(transaction.last for transaction in self.transactions)
        self._rollouts = {rollout.id: rollout for rollout in history.rollouts}

    @property
    def last(self) -> int:
        """The newest generation."""
        return len(self.states)

    def state(self, generation: int) -> Policy:
        """Return the policy of a generation, from 1."""
        return self.states[generation - 1]

    def until(self, generation: int) -> Sequence[Policy]:
        """Return the policies up to a generation, that one included."""
        return self.states[:generation]

    def rollout(self, policy: Policy) -> RolloutRow | None:
        """Return the open rollout of a policy: its end takes its id out of the policy, in the same transaction."""
        return None if policy.rollout_id is None else self._rollouts.get(policy.rollout_id)

    def after_rollback(self, generation: int, retired: frozenset[str]) -> tuple[Policy, str]:
        """Return what a rollback at a generation leads to."""
        rollout = self.rollout(self.state(generation))
        versions = None if rollout is None else OpenRollout(rollout.champion, rollout.challenger)
        return after_rollback(self.until(generation), versions, retired)

    def after(self, record: Record, generation: int, retired: frozenset[str]) -> Policy | Refusal:
        """Return what an operation leads to that finds a generation."""
        before, asked = self.state(generation), record.operation.asked
        match record.operation.kind:
            case Kind.SET:
                if asked.get("expected") not in (None, generation):
                    return Refusal("the generation has moved")
                return after_set(before, asked["changes"], retired)
            case Kind.ADD:
                return after_add(before, asked["add"])
            case Kind.ROLL_BACK:
                return self.after_rollback(generation, retired)[0]
        raise ValueError(record.operation.kind)

    def by_tag(self) -> Mapping[str, list[Transaction]]:
        """Return the transactions of each operation."""
        found: dict[str, list[Transaction]] = defaultdict(list)
        for transaction in self.transactions:
            tag = transaction.rows[0].tag
            if tag is not None:
                found[tag].append(transaction)
        return found


def _transactions(audit: Sequence[AuditRow]) -> list[Transaction]:
    """Put rows of one transaction together: neighbours with the same beginning, which is theirs to the microsecond."""
    groups: list[list[AuditRow]] = []
    for row in audit:
        if groups and (groups[-1][-1].at, groups[-1][-1].actor) == (row.at, row.actor):
            groups[-1].append(row)
        else:
            groups.append([row])
    return [Transaction(tuple(rows)) for rows in groups]


def broken_links(history: History) -> Iterator[Finding]:
    """Yield where the audit is no chain: rows that are missing, doubled, or do not follow from the row before."""
    for place, row in enumerate(history.audit, start=1):
        if row.generation != place:
            what = "doubled" if row.generation < place else "missing"
            yield Finding("audit", f"place {place} of the audit has generation {row.generation}: a row is {what}")
            return
        if row.after["generation"] != row.generation:
            yield Finding("audit", f"the row of generation {row.generation} holds another generation's policy")
            return
    for earlier, later in pairwise(history.audit):
        if later.before != earlier.after:
            yield Finding("audit", f"generation {later.generation} does not start from what {earlier.generation} left")
    if history.audit and history.policy != history.audit[-1].after:
        yield Finding("audit", f"the policy is not what generation {history.audit[-1].generation} left")


def wrong_changes(chain: Chain, possible: Mapping[str, Sequence[frozenset[str]]]) -> Iterator[Finding]:
    """Yield what operations changed though they must not, did not change though they said so, or changed wrongly.

    ``possible`` are the sets of versions that may have been retired while an operation was under way, by its tag.
    """
    by_tag = chain.by_tag()
    known = {record.operation.tag for record in chain.history.records}
    for tag in by_tag.keys() - known:
        yield Finding("audit", f"{tag} is in the audit and was never asked for")
    for record in chain.history.records:
        transactions = by_tag.get(record.operation.tag, [])
        yield from _of_record(chain, record, transactions, possible[record.operation.tag])
    for transaction in chain.transactions[1:]:
        row = transaction.rows[0]
        if row.tag is None and (row.actor, row.via) != (MONITOR, OF_ROLLOUT):
            yield Finding("audit", f"generation {row.generation} was made by {row.actor} via {row.via}: it is no one's")


def _of_record(
    chain: Chain, record: Record, transactions: Sequence[Transaction], retired_sets: Sequence[frozenset[str]]
) -> Iterator[Finding]:
    kind = record.operation.kind
    own = [one for one in transactions if not _is_monitors(one)]
    if own and (kind not in CHANGING or record.ended is Ended.REFUSED):
        yield Finding("change", f"generation {own[0].first} was changed by what must not have: {record}")
    elif len(own) > 1:
        yield Finding("change", f"carried out {len(own)} times: {record}")
    elif own:
        yield from _signed(chain.history, record, own[0])
        if kind in (Kind.SET, Kind.ADD, Kind.ROLL_BACK):
            yield from _as_the_model(chain, record, own[0], retired_sets)
    elif record.ended is Ended.DONE and record.answer.get("changed") and kind not in COMMANDS and kind in CHANGING:
        yield Finding("change", f"it says that it changed the policy and has no row in the audit: {record}")


def _is_monitors(transaction: Transaction) -> bool:
    """Whether it is the monitor's: one that finishes what a command decided repeats that command's reason."""
    return transaction.rows[0].actor == MONITOR


def _signed(history: History, record: Record, transaction: Transaction) -> Iterator[Finding]:
    row, expected = transaction.rows[0], history.signatures.get(record.operation.way)
    via = OF_ROLLOUT if record.operation.kind in COMMANDS else None if expected is None else expected.via
    if expected is not None and (row.actor, row.via) != (expected.actor, via):
        yield Finding("audit", f"signed {row.actor} via {row.via}, not {expected.actor} via {via}: {record}")
    if row.at < record.invoked - CLOCK_SECONDS or row.at > record.returned + CLOCK_SECONDS:
        yield Finding("audit", f"generation {row.generation} is dated {row.at:.3f}, outside of its operation: {record}")


def _as_the_model(
    chain: Chain, record: Record, transaction: Transaction, retired_sets: Sequence[frozenset[str]]
) -> Iterator[Finding]:
    if len(transaction.rows) != 1:
        yield Finding("change", f"it wrote {len(transaction.rows)} rows of the audit: {record}")
        return
    before, after = transaction.first - 1, chain.state(transaction.first)
    expected = [chain.after(record, before, retired) for retired in retired_sets]
    if after not in expected:
        yield Finding("change", f"generation {transaction.first} is {after}, the model says {expected[0]}: {record}")
        return
    told = record.answer.get("generation")
    if record.ended is Ended.DONE and told not in (None, transaction.first):
        yield Finding("answer", f"it made generation {transaction.first} and says {told}: {record}")
    did = record.answer.get("did")
    if did is not None and all(chain.after_rollback(before, retired)[1] != did for retired in retired_sets):
        yield Finding("answer", f"it says that it did something else than the model: {record}")
