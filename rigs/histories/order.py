"""Linearizability of what goes to Postgres: each operation has a place in the audit's order that real time allows."""

from collections.abc import Iterator, Mapping, Sequence

from rigs.histories.audit import CHANGING, Chain, Transaction
from rigs.histories.finding import Finding
from rigs.histories.policy import NOTHING, Arm, Policy, Refusal
from rigs.histories.record import COMMANDS, Ended, Kind, Record
from rigs.histories.timeline import Placed, Timeline

Retired = Mapping[str, Sequence[frozenset[str]]]
NOT_READY, MOVED = "not ready", "moved"
"""Refusals that no policy explains: a model server's, and a generation that moved meanwhile."""


def wrong_order(chain: Chain, possible: Retired) -> Iterator[Finding]:
    """Yield stale reads, changes out of order, wrong reads, and refusals or silence that no moment explains."""
    placed, floating = _sorted(chain)
    yield from _wrong_reads(chain, placed)
    timeline = Timeline(placed, [(one.at, one.first) for one in chain.transactions])
    for found in timeline.misplaced():
        what = "changed the policy before" if found.placed.writes else "read a policy older than"
        yield Finding(
            "order", f"{what} generation {found.floor}, which stood: {found.placed.record}; after {found.earlier}"
        )

    def fits(record: Record, generation: int) -> bool:
        return any(_explains(chain, record, generation, retired) for retired in possible[record.operation.tag])

    for record, low, high in timeline.unplaceable(floating, chain.last, fits):
        yield Finding("order", f"nothing between generations {low} and {high} explains: {record}")


def _sorted(chain: Chain) -> tuple[list[Placed], list[Record]]:
    """Return the operations whose place is known, and those for which one has to be found."""
    by_tag = chain.by_tag()
    placed: list[Placed] = []
    floating: list[Record] = []
    for record in chain.history.records:
        kind, generation = record.operation.kind, record.answer.get("generation")
        own = by_tag.get(record.operation.tag, [])
        if own and kind in CHANGING:
            placed.append(_written(record, own[0]))
        elif record.ended is Ended.DONE and kind is not Kind.PREDICT and isinstance(generation, int):
            placed.append(Placed(record, generation, generation, writes=False))
        elif (record.ended, kind in _JUDGED) == (Ended.REFUSED, True) or kind in _OF_VERSIONS:
            floating.append(record)
    return placed, floating


_OF_VERSIONS = frozenset({Kind.RETIRE, Kind.RESTORE})
_JUDGED = CHANGING - COMMANDS
"""Refusals that a policy explains; commands are judged by the rollout's own order."""


def _written(record: Record, transaction: Transaction) -> Placed:
    return Placed(record, transaction.first, transaction.last, writes=True)


def _wrong_reads(chain: Chain, placed: Sequence[Placed]) -> Iterator[Finding]:
    for one in placed:
        record, kind = one.record, one.record.operation.kind
        if one.writes:
            continue
        if one.last not in chain.committed:
            yield Finding("order", f"generation {one.last} was never committed, and was read: {record}")
        elif kind is Kind.READ_POLICY and policy_of_answer(record.answer["policy"]) != chain.state(one.last):
            yield Finding("answer", f"generation {one.last} is {chain.state(one.last)}: {record.answer['policy']}")
        elif kind is Kind.READ_AUDIT:
            yield from _wrong_entries(chain, record)
        elif kind in (Kind.SET, Kind.ADD) and chain.after(record, one.last, frozenset()) != chain.state(one.last):
            yield Finding("change", f"it was to change generation {one.last}, and did not: {record}")
        elif kind is Kind.ROLL_BACK:
            yield from _wrong_silence(chain, record, one.last)


def _wrong_silence(chain: Chain, record: Record, generation: int) -> Iterator[Finding]:
    # Retired or not is settled by the answer: only a version that may come back makes silence wrong.
    after, _ = chain.after_rollback(generation, frozenset())
    way = after.champion
    retired = chain.after_rollback(generation, frozenset({way}))[1]
    if after != chain.state(generation) and not (retired == NOTHING and "retired" in record.answer.get("did", "")):
        yield Finding("change", f"generation {generation} was to be rolled back, and was not: {record}")


def _wrong_entries(chain: Chain, record: Record) -> Iterator[Finding]:
    """Compare a page of the audit with the audit at the end, of which no row changes or goes."""
    entries = record.answer["entries"]
    newest = record.answer["generation"]
    rows = [row for row in reversed(chain.history.audit) if row.generation <= newest][: len(entries)]
    expected = [[row.generation, row.reason, row.actor] for row in rows]
    if entries != expected:
        yield Finding("audit", f"the page {entries} was not the newest {len(entries)} rows {expected}: {record}")


def policy_of_answer(document: Mapping[str, object]) -> Policy:
    """Return the policy that a client read, as the runner wrote it down."""
    values = dict(document)
    arms = values.pop("arms")
    assert isinstance(arms, list | tuple)
    return Policy(**values, arms=tuple(Arm(*arm) for arm in arms))  # type: ignore[arg-type]  # the runner's own names


def _explains(chain: Chain, record: Record, generation: int, retired: frozenset[str]) -> bool:
    """Whether an operation that found this generation ends as it did."""
    policy, asked = chain.state(generation), record.operation.asked
    why = record.answer.get("why")
    match record.operation.kind:
        case Kind.SET | Kind.ADD:
            if why == MOVED:
                return asked.get("expected") not in (None, generation)
            return isinstance(chain.after(record, generation, retired), Refusal)
        case Kind.RETIRE:
            return _explains_retire(chain, record, policy)
        case Kind.START:
            version = asked["version"]
            is_impossible = policy.rollout_id is not None or bool(policy.arms) or version in retired
            return why in (NOT_READY, MOVED) or is_impossible or version in (policy.champion, policy.shadow)
    return record.ended is not Ended.REFUSED  # to restore a version is never refused


def _explains_retire(chain: Chain, record: Record, policy: Policy) -> bool:
    version, rollout = record.operation.asked["version"], chain.rollout(policy)
    has_part = rollout is not None and version in (rollout.champion, rollout.challenger)
    if record.ended is Ended.REFUSED:
        return version in policy.holders or has_part
    return record.ended is Ended.UNKNOWN or version not in policy.holders
