"""Outcomes in, reports out: a real proxy, a real Postgres, and the command line as a person uses it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import asyncpg
import httpx2
import pyarrow as pa
import pytest
from e2e.stack import PREDICT_BODIES, VISITS, a_stack, logged_ids, register, sql
from pyarrow import parquet
from worlds.experiment import DAY, HOUR, MODEL, Call, Told, World, arm_by_bucket

HEADER = "event_id,model,entity_id,name,value,occurred_at"


def a_row(event_id: str, **changes: str) -> str:
    cells = {
        "event_id": event_id,
        "model": MODEL,
        "entity_id": "cust-1",
        "name": "converted",
        "value": "1",
        "occurred_at": "2026-11-20T13:02:11Z",
    }
    return ",".join({**cells, **changes}.values())


def a_file(path: Path, *rows: str) -> Path:
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def in_database(database_url: str, work: Callable[[World], Awaitable[None]]) -> None:
    """Do ``work`` with a world in the database."""

    async def opened() -> None:
        connection = await asyncpg.connect(database_url)
        try:
            await work(World(connection))
        finally:
            await connection.close()

    asyncio.run(opened())


async def a_finished_test(world: World) -> None:
    """Twenty days at half and half, with a shadow; a fifth of A's entities convert, and two fifths of B's."""
    await world.add_versions("6", "7", "8")
    generation = await world.set_policy("6", "7", 50, shadow="8")
    await world.backdate(20 * DAY)
    began = time.time() - 20 * DAY + 1
    calls, told = [], []
    for number in range(1_200):
        entity, at = f"cust-{number}", began + number * 19.9 * DAY / 1_200
        assigned = arm_by_bucket(world.versions, entity, 50, ("6", "7"))
        calls.append(Call(entity, at, assigned, generation, score=number % 100 / 100))
        if number % 5 < (2 if assigned == world.versions["7"] else 1):
            told.append(Told(at + HOUR, entity))
    named = await world.call(calls)
    shadow = world.versions["8"]
    await world.call(
        call._replace(assigned=shadow, role="shadow", score=min(1.0, (call.score or 0) + 0.1))
        for call in named
        if call.assigned == world.versions["6"]
    )
    await world.tell(told)


async def a_model(world: World) -> None:
    await world.add_versions("6")


def test_outcomes_of_a_csv_file_are_imported_once_and_bad_rows_are_named(understudy, database_url, tmp_path):
    in_database(database_url, a_model)
    rows = [a_row(f"e{number}") for number in range(2_500)]
    file = a_file(tmp_path / "outcomes.csv", *rows[:1_200], a_row("bad", value="many"), *rows[1_200:])

    first, again = understudy("ab", "outcomes", "import", str(file)), understudy("ab", "outcomes", "import", str(file))

    stored = asyncio.run(sql(database_url, "SELECT count(*), count(DISTINCT event_id) FROM OutcomeEvent"))
    assert (first.code, again.code) == (1, 1)
    assert first.out.splitlines()[0] == (
        "✖ 2,500 new outcome events of 2,501 rows; 0 were there before, 1 cannot be used:"
    )
    assert "  line 1,202: value expected a number; 1 for yes and 0 for no" in first.out
    assert again.out.startswith("✖ 0 new outcome events of 2,501 rows; 2,500 were there before")
    assert tuple(stored[0]) == (2_500, 2_500)


def test_an_import_speaks_json_and_a_clean_file_leaves_with_0(understudy, database_url, tmp_path):
    in_database(database_url, a_model)
    file = a_file(tmp_path / "outcomes.csv", a_row("e1"), a_row("e2", entity_id=""))

    bad = understudy("ab", "outcomes", "import", str(file), "--json")
    good = understudy("ab", "outcomes", "import", str(a_file(file, a_row("e1"), a_row("e2"))))

    found = bad.document["import"]
    assert (bad.code, found["new"], found["known"], found["bad"]) == (1, 1, 0, 1)
    assert [(row["line"], row["event_id"]) for row in found["bad_rows"]] == [(3, "e2")]
    assert found["bad_rows"][0]["errors"][0]["pointer"] == "/entity_id"
    assert good.code == 0
    assert good.out.startswith("✔ 1 new outcome events of 2 rows; 1 were there before")


def test_a_parquet_file_is_imported_like_a_csv_file(understudy, database_url, tmp_path):
    in_database(database_url, a_model)
    columns = dict(zip(HEADER.split(","), ([cell] for cell in a_row("e1").split(",")), strict=True))
    parquet.write_table(pa.table(columns), tmp_path / "outcomes.parquet")

    done = understudy("ab", "outcomes", "import", "outcomes.parquet")

    assert (done.code, done.out.split()[1]) == (0, "1")


def test_a_file_that_cannot_be_read_is_wrong_usage_and_a_database_that_is_away_says_how_to_go_on(understudy, tmp_path):
    file = a_file(tmp_path / "outcomes.csv", a_row("e1"))

    missing = understudy("ab", "outcomes", "import", "nothing.csv")
    away = understudy("ab", "outcomes", "import", str(file), DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")

    assert (missing.code, away.code) == (2, 69)
    assert "nothing.csv cannot be read: No such file" in missing.err
    assert "Import the file again" in away.err


def test_a_test_is_planned_declared_looked_at_and_decided(understudy, database_url, tmp_path):
    in_database(database_url, a_finished_test)

    asked = ("churn", "--metric", "converted", "--within", "2d")

    plan = understudy("ab", "plan", *asked, "--effect", "50%")
    undeclared = understudy("ab", "report", *asked)
    decided = understudy("ab", "report", *asked, "--looks", "5", "--effect", "50%")
    again = understudy("ab", "report", "churn", "--metric", "converted", "--looks", "5", "--json")
    page = understudy("ab", "report", "churn", "--metric", "converted", "--html", "report.html")

    assert [done.code for done in (plan, undeclared, decided, again, page)] == [0] * 5
    assert "Each of two versions needs" in plan.out
    assert "no test of converted was declared" in " ".join(undeclared.out.split())
    assert "B is better by" in decided.out
    assert decided.out.splitlines()[-1] == ("→ understudy model set churn --champion 7 --challenger none promotes B")
    report = again.document["report"]
    assert (report["state"], report["champion"], report["challenger"]) == ("b_better", "6", "7")
    assert (report["test"]["is_open"], len(report["test"]["looks"])) == (False, 1)
    assert report["since"].endswith("Z")
    assert (tmp_path / "report.html").read_text().count("<svg") == 2
    for done in (plan, undeclared, decided, page):
        assert max(map(len, done.out.splitlines())) <= 80


def test_an_open_test_does_not_change_its_plan(understudy, database_url):
    in_database(database_url, a_finished_test)
    understudy("ab", "report", "churn", "--metric", "converted", "--looks", "5", "--effect", "2%", "--within", "2d")

    other = understudy("ab", "report", "churn", "--metric", "converted", "--looks", "3", "--effect", "4%")
    same = understudy("ab", "report", "churn", "--metric", "converted", "--looks", "5", "--effect", "2%")

    assert (other.code, same.code) == (5, 0)
    assert "declared with other --looks, --effect" in other.err
    assert "0 of 5 looks taken" in same.out


def test_what_is_not_there_is_said_and_what_is_no_option_refused(understudy, database_url):
    in_database(database_url, a_finished_test)

    nobody = understudy("ab", "report", "nobody", "--metric", "converted")
    nothing = understudy("ab", "report", "churn", "--metric", "bought")
    too_early = understudy("ab", "report", "churn", "--metric", "bought", "--looks", "5")
    no_change = understudy("ab", "plan", "churn", "--effect", "much")
    no_points = understudy("ab", "plan", "churn", "--effect", "0.5pt")

    assert [done.code for done in (nobody, nothing, too_early, no_change, no_points)] == [4, 0, 1, 2, 2]
    assert "No outcomes of churn named 'bought' are known" in " ".join(nothing.out.split())
    assert "there are: converted" in " ".join(too_early.err.split())


def test_seed_003s_figures_are_said_to_be_one_sample(understudy, database_url):
    in_database(database_url, a_finished_test)

    done = understudy("ab", "plan", "churn", "--effect", "5%", "--seed-figures", "--looks", "1")

    assert "Seed 003's figures are one-sample" in done.out
    assert ["5", "%", "3,137", "50.8", "%", "6,281"] in [line.split() for line in done.out.splitlines()]
    assert "Each of two versions needs 6,281 entities." in done.out


def test_a_shadow_is_reported_on_with_its_largest_disagreements(understudy, database_url, tmp_path):
    in_database(database_url, a_finished_test)

    report = understudy("shadow", "report", "churn", "--since", "20d", "--html", "shadow.html")
    document = understudy("shadow", "report", "churn", "--since", "20d", "--json").document["report"]
    examples = understudy("shadow", "examples", "churn", "--since", "20d", "--top", "3", "--json").document["examples"]
    nobody = understudy("shadow", "report", "nobody")

    assert (report.code, nobody.code) == (0, 4)
    assert report.out.splitlines()[2].startswith("The same decision at 0.5 in 90.")
    assert max(map(len, report.out.splitlines())) <= 80
    assert (tmp_path / "shadow.html").read_text().count("<svg") == 1
    assert document["report"]["scores"]["shadow_mean"] > document["report"]["scores"]["champion_mean"]
    assert len(examples["pairs"]) == 3
    assert examples["pairs"][0]["shadow_score"] - examples["pairs"][0]["champion_score"] == pytest.approx(0.1)


async def test_an_outcome_of_a_real_prediction_is_stored_once_and_refused_without_its_scope(
    tmp_path, database_url, model_port
):
    with a_stack(tmp_path, database_url) as stack:
        version_id = await register(database_url, 1, [model_port("visits:1")])
        await sql(
            database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version_id
        )
        for key_id, scope in (("sender", "outcomes"), ("caller", "predict")):
            await sql(
                database_url,
                "INSERT INTO ApiKey (id, sha256, scopes) VALUES ($1, $2, ARRAY[$3])",
                key_id,
                sha256(b"secret").hexdigest(),
                scope,
            )
        port = stack.start_proxy(auth=True)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            caller, sender = ({"authorization": f"Bearer {name}.secret"} for name in ("caller", "sender"))
            predicted = await client.post(VISITS, content=PREDICT_BODIES[0], headers=caller)
            prediction_id = predicted.json()["prediction_id"]
            event = {
                "event_id": "order-1",
                "model": "visits",
                "prediction_id": prediction_id,
                "name": "converted",
                "value": 1,
                "occurred_at": "2026-11-20T13:02:11Z",
            }

            first, again, refused, bad = [
                await client.post("/v1/outcomes", json={"events": events}, headers=headers)
                for events, headers in (([event], sender), ([event], sender), ([event], caller), ([{}], sender))
            ]
            await sql(database_url, "ALTER TABLE OutcomeEvent RENAME TO elsewhere")
            away = await client.post("/v1/outcomes", json={"events": [event]}, headers=sender)

        rows = await sql(database_url, "SELECT prediction_id::text, value FROM elsewhere")
        logged = await logged_ids(database_url, {prediction_id})
    assert [answer.status_code for answer in (first, again, refused, bad, away)] == [202, 202, 403, 422, 503]
    assert [answer.json()["results"][0]["result"] for answer in (first, again)] == ["new", "known"]
    assert [answer.json()["new_metrics"] for answer in (first, again)] == [
        [{"model": "visits", "name": "converted"}],
        [],
    ]
    assert "/events/0/event_id" in [error["pointer"] for error in bad.json()["errors"]]
    assert (away.headers["retry-after"], away.json()["code"]) == ("1", "E510")
    assert [tuple(row) for row in rows] == [(prediction_id, 1.0)]
    assert prediction_id in logged


async def a_test_of_arms(world: World) -> None:
    """Twenty days with version 7 in the upper half of the buckets and 8 in none of anybody's; half of 7's convert."""
    await world.add_versions("6", "7", "8")
    generation = await world.set_policy("6", arms={"7": (50, 99)})
    await world.backdate(20 * DAY)
    began = time.time() - 20 * DAY + 1
    calls, told = [], []
    for number in range(1_200):
        entity, at = f"cust-{number}", began + number * 10 * DAY / 1_200
        assigned = arm_by_bucket(world.versions, entity, 50, ("7", "6"))
        calls.append(Call(entity, at, assigned, generation))
        if number % 4 < (2 if assigned == world.versions["7"] else 1):
            told.append(Told(at + HOUR, entity))
    await world.call(calls)
    await world.tell(told)


def test_an_arm_is_reported_by_name_and_the_advice_is_about_it(understudy, database_url):
    in_database(database_url, a_test_of_arms)
    asked = ("ab", "report", MODEL, "--metric", "converted")

    alone = understudy(*asked)
    decided = understudy(*asked, "--version", "7", "--looks", "1", "--effect", "50%", "--json")
    told = understudy(*asked, "--version", "7")
    champion = understudy(*asked, "--version", "6")
    unknown = understudy(*asked, "--version", "70")
    asyncio.run(
        sql(
            database_url,
            "UPDATE ServingPolicy SET arms = arms || jsonb_build_array(jsonb_build_object('version_id',"
            " (SELECT id FROM ModelVersion WHERE version = '8'), 'first', 40, 'last', 49))",
        )
    )
    several = understudy(*asked)
    planned = understudy("ab", "plan", MODEL, "--metric", "converted", "--version", "8", "--json")

    codes = [done.code for done in (alone, decided, told, champion, unknown, several, planned)]
    assert codes == [0, 0, 0, 2, 4, 2, 0]
    assert "A 6 (champion) against B 7 (further arm)" in alone.out
    assert "--version 7 --looks 5" in " ".join(alone.out.split())
    assert decided.document["report"]["state"] == "b_better"
    assert decided.document["report"]["challenger"] == "7"
    assert "--champion 7 --arm 7=0 promotes B" in " ".join(told.out.split())
    assert "which is A" in champion.err
    assert "It has: 6, 7, 8" in unknown.err
    assert "several further arms: 7, 8" in several.err
    assert planned.document["plan"]["baseline"]["share_b"] == 0.1
    assert planned.document["plan"]["baseline"]["share_a"] == 0.4
