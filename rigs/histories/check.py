"""Everything that a history is held to."""

from collections.abc import Iterator

from rigs.histories.audit import Chain, broken_links, wrong_changes
from rigs.histories.exposures import wrong_exposures
from rigs.histories.finding import Finding
from rigs.histories.order import wrong_order
from rigs.histories.record import History
from rigs.histories.rollouts import wrong_courses
from rigs.histories.statuses import statuses_of, wrong_statuses

MODEL = "visits"


def check(history: History) -> list[Finding]:
    """Return every promise that a history breaks; nothing where it keeps them all.

    An audit that is no chain is all that is said of a history: without it there is no order to judge the rest by.
    """
    links = list(broken_links(history))
    return links or list(_check(Chain(history)))


def _check(chain: Chain) -> Iterator[Finding]:
    history = chain.history
    statuses = statuses_of(history)
    possible = {record.operation.tag: statuses.possible(record) for record in history.records}
    yield from wrong_changes(chain, possible)
    yield from wrong_statuses(history)
    yield from wrong_order(chain, possible)
    yield from wrong_courses(chain)
    yield from wrong_exposures(chain, MODEL)
    for record in history.records:
        if "unexpected" in record.answer:
            yield Finding("answer", f"no page promises that: {record}")
    for proxy, generation in history.proxies.items():
        if generation != chain.last:
            yield Finding("end", f"{proxy} still acts on generation {generation} of {chain.last}")
