"""Reports over the lake are those over Postgres, to the digit."""

import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from worlds.experiment import DAY, MODEL, Call
from worlds.lake import Lake
from worlds.lake_erasure import forget, names_of
from worlds.lake_reports import SECONDS, LoggedWorld, a_month_of_everything, readers_of

from understudy.adapters.lake.reading.experiment_log import LakeExperimentLog
from understudy.adapters.lake.reading.log_query import open_lake_log
from understudy.adapters.lake.reading.question import Lake as Questions
from understudy.adapters.lake.reading.snapshot import LakeReader
from understudy.adapters.postgres.experiments.declarations import PostgresExperimentStore
from understudy.bootstrap.prediction_log.lake_reads import lake_place_of
from understudy.bootstrap.session import Session
from understudy.core.drift.baseline import baseline_to_json
from understudy.entrypoints.documents.experiments import ab_document, shadow_document
from understudy.errors import LakeUnavailable
from understudy.experiments.ab_report import report_ab
from understudy.experiments.declared_tests import MetricChoice, Wanted
from understudy.experiments.declaring import AbQuestion
from understudy.experiments.shadow_report import ShadowQuestion, report_shadow
from understudy.ports.experiments.experiment_log import (
    ArmScores,
    Entered,
    EntityGroups,
    EntityQuery,
    EntityValues,
    Observed,
    ShadowQuery,
    ToldOutcome,
)
from understudy.ports.prediction_log.log_archive import QueryRefused, WantedRows
from understudy.ports.prediction_log.receipts import EntityAsked
from understudy.registry.baselines import profile_log
from understudy.settings import Settings


@pytest.fixture(params=["lake", "la*ke"], ids=["read by DuckDB", "read by the table's library"])
def lake(database_url, tmp_path, request):
    # DuckDB takes a path with a star for a pattern, so such a lake is read as one in a bucket is.
    lake = Lake(database_url, tmp_path, str(tmp_path / request.param))
    yield lake
    lake.close()


@pytest.fixture
async def month(lake, database):
    world = LoggedWorld(database, lake)
    await world.add_versions("6", "7", "8")
    began = time.time() + 1
    return Month(world, began, began + 25 * DAY, await a_month_of_everything(world, began, 400))


async def test_what_reports_are_made_of_is_the_same_from_the_lake_as_from_postgres(lake, month):
    six, seven, eight = month.world.versions.values()
    epochs = {row.generation: row.challenger_weight for row in await readers_of(lake)[0].log.allocations(MODEL)}
    entered = EntityQuery(MODEL, "converted", six, seven, epochs, month.began, month.now, 2 * DAY, is_share=False)
    shares = entered._replace(metric="converted2", is_share=True, slices=40)
    one_epoch = entered._replace(epochs=dict.fromkeys(epochs, 0))
    asked = ShadowQuery(six, eight, list(epochs), month.began, month.now)
    found = list[dict[str, Any]]()
    counted = list[Counter[int]]()

    def epoch_20(entered: Sequence[Entered]) -> int:
        counted.append(Counter())
        for part in entered:
            counted[-1][part.epoch] += part.entities
        return 20

    for log, history, receipts in readers_of(lake):
        one = month.calls[3]
        found.append({
            "sums": in_order((await log.entities(entered._replace(per_call=True))).groups),
            "shares": in_order((await log.entities(shares)).groups),
            "arms": in_order(await log.arm_entries(entered, [six, seven, eight])),
            "latencies": in_order(of_entities(await log.entity_values(entered, Observed.LATENCY))),
            "outcomes": in_order(of_entities(await log.entity_values(entered, Observed.VALUE))),
            "first means": in_digits(await log.entities_and_scores(shares, epoch_20)),
            "later means": in_digits(await log.entities_and_scores(entered, lambda _entered: 50)),
            "means of one epoch": in_digits(await log.entities_and_scores(one_epoch, lambda _entered: 0)),
            "calls": await log.count_calls(asked),
            "pairs": in_order(await log.pairs(asked, 1.0)),
            "some pairs": in_order(await log.pairs(asked, 0.3)),
            "scores": in_order(map(sorted, (await history.scores(six, month.began, month.now, 10_000)).groups)),
            "some scores": in_order(map(sorted, (await history.scores(six, month.began, month.now, 99)).groups)),
            "receipt": await receipts.of_prediction(one.prediction_id, one.at),
            "receipts": await receipts.of_entity(EntityAsked(MODEL, "cust-3", month.began, month.now, 3), SECONDS),
        })  # fmt: skip
    from_postgres, from_lake = found

    assert counted[0] == counted[1]
    assert min(counted[0][20], counted[0][50]) > 0
    for name, expected in from_postgres.items():
        assert from_lake[name] == expected, name
        assert expected, name
    assert 0 < len(from_lake["some pairs"]) < len(from_lake["pairs"])


async def test_reports_over_the_lake_are_those_over_postgres_to_the_digit(lake, month):
    from_postgres, from_lake = await documents_of(lake, month)

    for expected, told in zip(from_postgres, from_lake, strict=True):
        assert told == expected


async def test_reports_are_the_same_after_an_entity_was_erased_and_after_old_rows_went(lake, month, database):
    erased = await forget(lake, MODEL, entity="cust-5")
    from_postgres, from_lake = await documents_of(lake, month)

    assert (erased.is_finished, erased.erased.lake_rows > 70) == (True, True)
    assert not names_of(lake)["cust-5"]
    assert from_lake == from_postgres

    before = set(lake.ids())
    await lake.commit(over_seconds=1e9, days=0)  # the calls of yesterday, which covariates are made of
    left = set(lake.ids())
    gone = [UUID(one) for one in before - left]
    await database.execute("DELETE FROM PredictionLog WHERE prediction_id = ANY ($1)", gone)
    shorter_postgres, shorter_lake = await documents_of(lake, month)

    assert 0 < len(gone) < len(before)
    assert shorter_lake == shorter_postgres
    assert shorter_lake != from_lake


async def test_sql_of_a_person_is_asked_of_the_lakes_rows_and_of_nothing_else(lake, month, tmp_path):
    folder = tmp_path / "query"
    folder.mkdir()
    reader = LakeReader(lake.url, lake.location, endpoint=None, timeout_seconds=SECONDS)
    wanted = WantedRows(month.began, month.now, (MODEL,))
    copied = list[int]()

    with open_lake_log(reader, folder, wanted, SECONDS, copied.append) as log:
        asked = log.ask("SELECT version, count(*) FROM predictionlog WHERE role <> 'shadow' GROUP BY 1 ORDER BY 1")
        counts = list(asked.rows)
        for statement in ("SELECT * FROM '/etc/passwd'", "DROP TABLE live"):
            with pytest.raises(QueryRefused):
                log.ask(statement)

    served = Counter(call.served or call.assigned for call in month.calls if call.at >= month.began)
    assert dict(counts) == {label: served[number] for label, number in month.world.versions.items() if served[number]}
    assert copied[-1] > sum(served.values()), "the shadow's rows are there as well"


async def test_a_session_reads_the_log_where_the_settings_say(lake, month):
    asked = ShadowQuery(month.world.versions["6"], 8, [month.calls[0].generation], month.began - DAY, month.now)
    one = month.calls[0]
    async with Session(lake.url, timeout_seconds=5) as session:
        expected = (
            await session.experiment_log.count_calls(asked),
            await session.receipts.of_prediction(one.prediction_id, one.at),
        )
    await month.world.database.execute("TRUNCATE PredictionLog")

    settings = Settings(log_reads="lake", lake_url=lake.location)
    async with Session(lake.url, timeout_seconds=5, lake=lake_place_of(settings)) as session:
        found = (
            await session.experiment_log.count_calls(asked),
            await session.receipts.of_prediction(one.prediction_id, one.at),
        )
        scores = await session.baseline_history.scores(month.world.versions["6"], month.began, month.now, 10)

    assert found == expected
    assert expected[0] > 0
    assert scores.calls > 0


async def test_a_question_to_the_lake_is_given_up_at_its_deadline_with_words(lake, month):
    reader = LakeReader(lake.url, lake.location, endpoint=None, timeout_seconds=SECONDS)
    hasty = LakeExperimentLog(Questions(reader, timeout_seconds=0.001), readers_of(lake)[0].log, NoOutcomes())
    asked = ShadowQuery(1, 2, [1], month.began, month.now)

    with pytest.raises(LakeUnavailable, match=r"did not give the answer within 0.001 s") as refused:
        await hasty.count_calls(asked)

    assert refused.value.next_step == "Ask for less, with a later --since."


async def test_a_lake_without_a_commit_has_no_rows(lake):
    _, readers = readers_of(lake)

    assert await readers.log.count_calls(ShadowQuery(1, 2, [1], 0.0, time.time())) == 0
    assert (await readers.history.scores(1, 0.0, time.time(), 10)).calls == 0
    assert not await readers.receipts.of_prediction("0199a1b2-0000-7000-8000-0000000000ff", time.time())


class NoOutcomes:
    """No outcome was told."""

    async def told(self, *_asked: object) -> AsyncGenerator[Sequence[ToldOutcome]]:
        for events in list[Sequence[ToldOutcome]]():
            yield events


class Month(NamedTuple):
    """What is logged, from when to when, and the calls of callers."""

    world: LoggedWorld
    began: float
    now: float
    calls: list[Call]


async def documents_of(lake: Lake, month: Month) -> list[list[Any]]:
    """Return the A/B reports, the shadow report and the baseline of a month, from Postgres and from the lake."""
    store = PostgresExperimentStore(lake.url, timeout_seconds=5)
    labels = {number: label for label, number in month.world.versions.items()}
    found = list[list[Any]]()
    for readers in readers_of(lake):
        documents = []
        for metric in ("converted", "converted2"):
            question = AbQuestion(MODEL, metric, month.now, month.began, Wanted(0.05), MetricChoice(2 * DAY))
            report = await report_ab(readers.log, store, question, with_timeline=True)
            documents.append(as_printed(ab_document(report, MODEL, metric, labels.__getitem__)))
        shadow = await report_shadow(readers.log, ShadowQuestion(MODEL, month.now, month.began))
        documents.append(as_printed(shadow_document(shadow, MODEL, labels.__getitem__)))
        profile = await profile_log(readers.history, month.world.versions["6"], (), month.began, month.now)
        assert profile.baselines.prediction is not None
        documents.append(as_printed(baseline_to_json(profile.baselines.prediction)))
        found.append(documents)
    return found


def in_order(rows: Iterable[Any]) -> list[Any]:
    return sorted(rows, key=repr)


def in_digits(found: tuple[EntityGroups, ArmScores]) -> list[Any]:
    """Return entities and scores in an order; a mean has its twelve digits."""
    groups, scores = found
    return [in_order(groups.groups), *([f"{mean:.12g}" for mean in sorted(side)] for side in scores)]


def of_entities(values: Iterable[EntityValues]) -> list[EntityValues]:
    return [one._replace(values=sorted(one.values)) for one in values]


def as_printed(value: Any) -> Any:
    """Figures with the twelve digits of which the order of an addition changes none."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, Mapping):
        return {name: as_printed(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_printed(part) for part in value]
    return value
