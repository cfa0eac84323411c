"""Declared tests as a list has them, and the end of one before it decides."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.errors import MigrationNeeded, NotRegistered, PolicyRefused
from understudy.experiments.declared_rows import declared_test
from understudy.experiments.declared_tests import DeclaredTest
from understudy.ports.experiments.experiment_store import ExperimentRecord, ExperimentStore
from understudy.ports.registry.registry import Actor

MAX_SEARCHED = 200
"""Newest tests of a model among which one is looked for by its id."""


class ListedTest(NamedTuple):
    """A test as its row says."""

    record: ExperimentRecord
    test: DeclaredTest | None
    """``None`` where this release cannot read it."""
    problem: str = ""


async def list_tests(store: ExperimentStore, model_name: str | None, at_most: int) -> Sequence[ListedTest]:
    """Return the newest tests of a model, or of all, newest first.

    Raises:
        RegistryUnavailable, MigrationNeeded: As the store; a row that cannot be read has its problem instead.
    """
    return [_listed(record) for record in await store.newest(model_name, at_most)]


async def test_of(store: ExperimentStore, model_name: str, test_id: int) -> ListedTest:
    """Return one test of a model.

    Raises:
        NotRegistered: It has no such test, or only among its oldest.
        RegistryUnavailable, MigrationNeeded: As the store.
    """
    found = next((one for one in await list_tests(store, model_name, MAX_SEARCHED) if one.record.id == test_id), None)
    if found is None:
        raise NotRegistered(
            f"{model_name} has no declared test {test_id}", hint="understudy ab list MODEL names those that it has."
        )
    return found


async def end_test(store: ExperimentStore, model_name: str, test_id: int, by: Actor) -> ExperimentRecord:
    """End an open test without a decision, and return it as it was.

    Raises:
        NotRegistered: As :func:`test_of`.
        PolicyRefused: It is over, or an interim analysis was taken at this moment.
        RegistryUnavailable, MigrationNeeded: As the store; also if its row is unreadable.
    """
    found = await test_of(store, model_name, test_id)
    if found.test is None:
        raise MigrationNeeded(found.problem, detail_for_callers=found.problem)
    record = found.record
    if not found.test.is_open:
        raise PolicyRefused(f"test {test_id} of {model_name} is over", hint="Nothing has to be done.")
    if not await store.record(record, record.result or {"looks": []}, ends=True, by=by):
        raise PolicyRefused(f"test {test_id} of {model_name} was changed at this moment", hint="Look at it again.")
    return record


def _listed(record: ExperimentRecord) -> ListedTest:
    try:
        return ListedTest(record, declared_test(record))
    except MigrationNeeded as problem:
        return ListedTest(record, None, problem.detail)
