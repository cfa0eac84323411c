"""Drift from the command line, against a real Postgres and hours that a real monitor summed up."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import orjson
import pyarrow as pa
import pytest
from command import CommandLine, Done
from pyarrow import parquet
from traffic.logged import LoggedTraffic, StoreAsOf, lead, scored_rows

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.core.drift.baseline import CategoricalBaseline, NumericBaseline, baselines_of
from understudy.core.drift.hours import HOUR_SECONDS, SETTLE_SECONDS, closed_until, hour_to_json
from understudy.core.drift.subject_window import categorical_window
from understudy.core.routing.policy import Role
from understudy.monitoring.drift_job import DriftJob

MAX_TEST_SECONDS = 45.0
RANDOM = np.random.default_rng(11)
UNDRAWN = RANDOM.bit_generator.state
MEAN, DEVIATION = 0.4, 0.1
INPUTS = {
    "features": [
        {"name": "tenure", "dtype": "float32"},
        {"name": "country", "dtype": "string"},
        {"name": "plan", "dtype": "int64", "enum": [1, 2, 3]},
        {"name": "pixels", "dtype": "float32", "shape": [4]},
    ]
}
HEADER = "customer,tenure,country,plan,score"
REASON = ("--reason", "retrained")


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Draw from the beginning: a test's figures must not depend on which ones ran before it."""
    RANDOM.bit_generator.state = UNDRAWN


@pytest.fixture(autouse=True)
def _within_an_hour() -> None:
    """No hour is closed during a test: the command would ask for one more than the test wrote."""
    left_seconds = HOUR_SECONDS - (time.time() - SETTLE_SECONDS) % HOUR_SECONDS
    if left_seconds < MAX_TEST_SECONDS:
        time.sleep(left_seconds + 0.1)


@pytest.fixture
def database(database_url) -> Callable[..., Any]:
    """A statement's rows."""

    def fetch(statement: str, *arguments: object) -> Any:
        return asyncio.run(_fetch(database_url, statement, *arguments))

    return fetch


async def _fetch(database_url: str, statement: str, *arguments: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(database_url)
    try:
        return list(await connection.fetch(statement, *arguments))
    finally:
        await connection.close()


@pytest.fixture
def ids(database) -> Mapping[str, int]:
    """The ids of versions 6, the champion, and 7, the shadow."""
    made = {version: register(database, version, INPUTS) for version in ("6", "7")}
    policy = "INSERT INTO ServingPolicy (model_name, champion_version, shadow_version) VALUES ('churn', $1, $2)"
    database(policy, made["6"], made["7"])
    return made


def register(database: Callable[..., Any], version: str, inputs: Mapping[str, Any]) -> int:
    ((made,),) = database(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, metrics)"
        " VALUES ('churn', $1, 's3://m', 'sklearn', $2, '{\"auc\": 0.8}') RETURNING id",
        version,
        orjson.dumps(inputs).decode(),
    )
    return int(made)


def scores(shift: float, rows: int) -> Any:
    return MEAN + DEVIATION * (shift + RANDOM.normal(size=rows))


@pytest.fixture
def hours(database_url, ids) -> Callable[..., None]:
    """Let both versions answer in the last hours, each with these shifts, and a monitor sum that up."""

    def passed(*shifts: tuple[float, float], rows: int = 400, until: float | None = None) -> None:
        asyncio.run(_pass(database_url, ids, shifts, rows, until or closed_until(time.time())))

    return passed


async def _pass(
    database_url: str,
    ids: Mapping[str, int],
    shifts: Any,
    rows: int,
    until: float,
    *,
    draw: Callable[[float, int], Any] = scores,
) -> None:
    traffic = LoggedTraffic(database_url)
    store = StoreAsOf(database_url, timeout_seconds=10)
    store.now = until + SETTLE_SECONDS
    for place, both in enumerate(shifts):
        at = until - (len(shifts) - place) * HOUR_SECONDS
        for (version, role), shift in zip((("6", Role.CHAMPION), ("7", Role.SHADOW)), both, strict=True):
            await traffic.ship(scored_rows(draw(shift, rows), at, ids[version], role))
    await traffic.close()
    windows = PostgresWindowLog(database_url, timeout_seconds=10)
    job = DriftJob(store, windows, MemoryTelemetry(), environment="test")
    epoch = await lead(database_url)
    for _ in range(40):
        await job.tick(epoch)


def a_table(path: Path, *rows: str) -> Path:
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def training(rows: int = 4_000) -> list[str]:
    """Return rows of training data: tenure 0 to 39 and sometimes unknown, two countries, three plans."""
    tenures = ["" if place % 100 == 0 else place % 40 for place in range(rows)]
    countries = ["BR" if place % 20 == 0 else "US" for place in range(rows)]
    return [
        f"c{place},{tenure},{country},{place % 3 + 1},{score}"
        for place, (tenure, country, score) in enumerate(zip(tenures, countries, scores(0.0, rows), strict=True))
    ]


def stored(database: Callable[..., Any], version: str = "6") -> Any:
    ((text,),) = database("SELECT metrics FROM ModelVersion WHERE version = $1", version)
    return orjson.loads(text)


def set_from(understudy: CommandLine, source: Path | str, version: str = "6", *more: str) -> Done:
    return understudy("drift", "baseline", "set", "churn", version, "--from", str(source), *REASON, *more)


@pytest.fixture
def trained(understudy, ids, tmp_path) -> Path:
    """Give both versions the baselines of a file, and return it."""
    path = a_table(tmp_path / "train.csv", *training())
    for version in ids:
        assert set_from(understudy, path, version).code == 0
    return path


def test_a_baseline_from_a_csv_file_is_tried_and_then_set(understudy, database, ids, tmp_path):
    path = a_table(tmp_path / "train.csv", *training())

    tried = understudy("drift", "baseline", "set", "churn", "6", "--from", str(path), "--dry-run", "--json")
    before = stored(database)
    made = set_from(understudy, path)

    assert (tried.code, tried.document["dry_run"], before) == (0, True, {"auc": 0.8})
    assert tried.document["baseline"]["rows"] == 4_000
    assert list(tried.document["baseline"]["after"]) == ["prediction", "tenure", "country", "plan"]
    assert made.code == 0
    assert "✔ baseline of churn 6 set from train.csv, 4,000 rows" in made.out
    assert "Columns left alone: customer." in made.said
    assert "because each value is a list: pixels" in made.said
    assert "→ understudy drift report churn 6" in made.said
    assert max(map(len, made.out.splitlines())) <= 80
    after = stored(database)
    assert after["auc"] == 0.8
    assert after["baseline"]["changed"]["source"] == "train.csv, 4,000 rows"
    assert after["baseline"]["changed"]["reason"] == "retrained"
    known = baselines_of(after)
    assert isinstance(known.prediction, NumericBaseline)
    assert known.prediction.mean == pytest.approx(MEAN, abs=0.01)
    assert isinstance(known.inputs["country"], CategoricalBaseline)
    assert dict(known.inputs["country"].shares) == pytest.approx({"US": 0.95, "BR": 0.05})
    assert known.inputs["tenure"].null_ratio == pytest.approx(0.01)


def test_a_parquet_file_says_the_same_as_a_csv_file_and_replaces_only_what_it_has(understudy, database, trained):
    before = baselines_of(stored(database))
    columns = {
        "tenure": [None if place % 100 == 0 else float(place % 40) for place in range(4_000)],
        "country": ["DE" if place % 4 == 0 else "US" for place in range(4_000)],
        "p": scores(1.0, 4_000),
    }
    parquet.write_table(pa.table(columns), trained.with_suffix(".parquet"))

    made = set_from(
        understudy, trained.with_suffix(".parquet"), "6", "--score-column", "p", "--columns", "country,tenure"
    )

    after = baselines_of(stored(database))
    assert made.code == 0
    assert "95 % US, 5 % BR 75 % US, 25 % DE" in made.said
    assert "No column has the score" in made.said
    assert after.inputs["tenure"] == before.inputs["tenure"]
    assert after.inputs["plan"] == before.inputs["plan"]
    assert after.inputs["country"] != before.inputs["country"]
    assert after.prediction == before.prediction


UNUSABLE: list[tuple[str, tuple[str, ...], int, str]] = [
    (f"{HEADER}\nc1,4,US,1,0.5\nc2,four,US,1,0.5", (), 1, "row 3: column 'tenure': expected a number, got 'four'"),
    (f"{HEADER}\nc1,4,US,1,nan", (), 1, "row 2: column 'score': expected a score, got none"),
    (f"{HEADER}\nc1,4,US,9,0.5", (), 1, "row 2: column 'plan': expected one of 1, 2, 3, got '9'"),
    (f"{HEADER}\nc1,4,US", (), 1, "row 2: has more or fewer cells than the first line"),
    (HEADER, (), 1, "has no rows"),
    ("", (), 2, "is empty"),
    ("a,b\n1,2", (), 2, "no column of"),
    (f"{HEADER}\nc1,4,US,1,0.5", ("--score-column", "p"), 2, "has no column 'p'; it has: customer, tenure"),
    (f"{HEADER}\nc1,4,US,1,0.5", ("--columns", "age"), 2, "'age' is no input of churn 6"),
    (f"{HEADER}\nc1,4,US,1,0.5", ("--columns", "pixels"), 2, "has no column 'pixels'"),
    (f"{HEADER}\nc1,4,US,1,0.5", ("--since", "7d"), 2, "--since goes with --from-log"),
    (f"{HEADER}\nc1,4,US,1,0.5", ("--from-log",), 2, "a baseline is made of one thing"),
]


def test_a_file_that_cannot_be_used_changes_nothing_and_says_where_and_what_next(understudy, database, ids, tmp_path):
    for text, more, code, says in UNUSABLE:
        (tmp_path / "bad.csv").write_text(text, encoding="utf-8")

        said = set_from(understudy, "bad.csv", "6", *more)

        assert (said.code, says in said.said, "→" in said.err) == (code, True, True), (text, more, said)
    nowhere, nobody = set_from(understudy, "nowhere.csv"), set_from(understudy, "bad.csv", "9")
    unexplained = understudy("drift", "baseline", "set", "churn", "6", "--from", "bad.csv")
    assert (nowhere.code, nobody.code, unexplained.code) == (2, 4, 2)
    assert "nowhere.csv cannot be read" in nowhere.said
    assert "has no version '9'" in nobody.said
    assert "needs a reason" in unexplained.said
    assert stored(database) == {"auc": 0.8}


def test_of_very_many_inputs_somebody_has_to_choose(understudy, database, ids, tmp_path):
    names = [f"f{number}" for number in range(101)]
    register(database, "8", {"features": [{"name": name, "dtype": "float32"} for name in names]})
    (tmp_path / "wide.csv").write_text(",".join(names) + "\n" + ",".join(["1"] * 101), encoding="utf-8")

    refused, chosen = set_from(understudy, "wide.csv", "8"), set_from(understudy, "wide.csv", "8", "--columns", "f1,f2")

    assert (refused.code, "101 inputs of churn 8" in refused.said) == (2, True)
    assert chosen.code == 0
    assert list(stored(database, "8")["baseline"]["inputs"]) == ["f1", "f2"]


def test_metrics_that_are_no_object_are_left_alone(understudy, database, ids, tmp_path):
    database("UPDATE ModelVersion SET metrics = '[1]'")

    said = set_from(understudy, a_table(tmp_path / "t.csv", *training(10)))
    reported = understudy("drift", "report", "churn", "--policy", "seed")

    assert (said.code, "to be an object" in said.said) == (7, True)
    assert (reported.code, "the metrics of the version cannot be used" in reported.said) == (0, True)
    assert stored(database) == [1]


def test_a_baseline_from_the_log_is_made_of_answers_and_of_nothing_else(understudy, database, hours, ids):
    hours((0.0, 3.0), (0.0, 3.0))
    forced = "UPDATE PredictionLog SET {} WHERE model_version_id = $1 AND id % 4 = {}"
    spoilt = ["reason = 'forced'", "cache_hit = TRUE", "status = 'timeout'"]
    for rest, change in enumerate(spoilt):
        database(forced.format(f"{change}, score = 99", rest), ids["6"])

    made = understudy("drift", "baseline", "set", "churn", "6", "--from-log", "--since", "2d", *REASON, "--json")

    known = baselines_of(stored(database)).prediction
    assert made.code == 0, made
    assert isinstance(known, NumericBaseline)
    assert known.mean == pytest.approx(MEAN, abs=0.03)
    assert known.histogram.total == made.document["baseline"]["rows"] == 200
    assert known.rows is not None
    assert known.rows <= 200
    assert made.document["baseline"]["source"] == "the log since 2d, 200 scores"


def test_a_log_with_too_little_is_no_baseline(understudy, database, hours):
    hours((0.0, 0.0), rows=150)

    said = understudy("drift", "baseline", "set", "churn", "6", "--from-log", *REASON)

    assert said.code == 1
    assert "150 scores of entities in" in said.said
    assert "--from FILE" in said.said
    assert stored(database) == {"auc": 0.8}


def test_before_any_hour_nothing_can_be_said(understudy, trained):
    said = understudy("drift", "report", "churn")

    assert said.code == 0
    assert "Too early to say anything of v6 and v7." in said.out
    assert "No call of it is in the hours that are summed up." in said.out
    assert "… no traffic" not in said.out
    assert "The monitor has not summed up an hour of v6 yet." in said.out
    assert "→ understudy serve monitor" in said.out


def test_without_a_baseline_the_next_command_makes_one(understudy, hours):
    hours((0.0, 0.0))

    said = understudy("drift", "report", "churn")

    assert said.code == 0
    assert "No baseline of v6 and v7." in said.out
    assert "→ understudy drift baseline set churn 6 --from training.csv" in said.out


def test_scores_like_those_of_training_do_not_drift(understudy, hours, trained):
    hours(*[(0.0, 0.0)] * 6)

    said = understudy("drift", "report", "churn")

    assert said.code == 0
    assert "No drift in v6 and v7." in said.out
    assert "✖" not in said.out


def test_a_drift_is_said_first_with_its_evidence_and_leaves_with_1(understudy, hours, trained):
    hours(*[(0.0, 0.0)] * 6, *[(0.8, 0.0)] * 6)

    said = understudy("drift", "report", "churn")
    alone = understudy("drift", "report", "churn", "7")
    seed = understudy("drift", "report", "churn", "6", "--policy", "seed")

    assert said.code == 1
    assert said.out.splitlines()[2] == "v6: prediction drifts; no drift in v7."
    assert "✖ since" in said.out
    assert "prediction: mean 0." in said.out
    assert "Same drift" not in said.out
    assert "→ understudy drift report churn --html drift.html" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert (alone.code, "v6" in alone.out) == (0, False)
    assert seed.code == 0
    assert "reference rule (seed)" in seed.out
    assert "3.00" in seed.out


def test_the_same_drift_in_both_versions_is_the_inputs(understudy, hours, trained):
    hours(*[(0.0, 0.0)] * 2, *[(0.8, 0.8)] * 4)

    said = understudy("drift", "report", "churn")

    assert said.code == 1
    assert "Same drift in v6 and v7: the input moved, not the model." in said.out


def test_programs_and_pages_get_the_same_figures(understudy, hours, trained, tmp_path):
    hours(*[(0.0, 0.0)] * 2, *[(0.8, 0.0)] * 4)

    said = understudy("drift", "report", "churn", "--json", "--html", "drift.html")

    report = said.document["report"]
    assert said.code == 1
    assert (report["model"], report["verdict"], report["shared"]) == ("churn", "drift", [])
    assert report["next"] == "understudy drift report churn --html drift.html"
    first, second = report["versions"]
    assert (first["version"], first["role"], first["active"], first["verdict"]) == ("6", "champion", True, "drift")
    assert (second["version"], second["role"], second["verdict"]) == ("7", "shadow", "none")
    assert first["summed_until"] == report["until"]
    assert first["policy"]["run_length_windows"] == 2_000
    subject = first["subjects"][0]
    assert (subject["subject"], subject["state"], subject["rows"]) == ("prediction", "drift", 2_400)
    assert {reading["measure"] for reading in subject["readings"]} == {"mean", "wasserstein", "psi"}
    assert subject["shown"]["distance"] > subject["shown"]["limit"] == 0.1
    assert [point["at"] for point in subject["history"]].index(subject["since"]) == 2
    assert subject["tests"]["ks_p_value"] < 0.001
    page = (tmp_path / "drift.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 4
    assert report["sentence"] in page
    assert subject["words"] in page


def in_euros(shift: float, rows: int) -> Any:
    """Return prices of houses, some of them beyond the million that a mean knows."""
    return np.exp(np.log(380_000) + 0.4 * (shift + RANDOM.normal(size=rows)))


def test_a_model_that_answers_in_euros_has_a_report_and_a_page_in_whole_euros(understudy, database_url, ids, tmp_path):
    prices = enumerate(in_euros(0, 4_000))
    path = a_table(tmp_path / "train.csv", *(f"c{place},1,US,1,{price}" for place, price in prices))
    for version in ids:
        assert set_from(understudy, path, version).code == 0
    shifts = [(0.0, 0.0)] * 3 + [(0.0, 0.5)] * 3
    asyncio.run(_pass(database_url, ids, shifts, 400, closed_until(time.time()), draw=in_euros))

    said = understudy("drift", "report", "churn", "--html", "drift.html")

    page = (tmp_path / "drift.html").read_text(encoding="utf-8")
    words = " ".join(said.out.split())
    champion, shadow = (re.search(rf"v{version} .*?prediction ([0-9,]+) ([0-9,]+) ", words) for version in "67")
    assert champion
    assert shadow
    (trained, now), (_, moved) = ([int(one.replace(",", "")) for one in found.groups()] for found in (champion, shadow))
    assert 390_000 < trained < 430_000
    assert now == pytest.approx(trained, rel=0.05)
    assert moved == pytest.approx(trained * np.exp(0.2), rel=0.06)
    assert f"prediction: mean {shadow[1]} → {shadow[2]}" in page
    assert "e+0" not in said.out + page


def test_hours_that_are_missing_are_said(understudy, hours, trained, database):
    hours((0.0, 0.0), until=closed_until(time.time()) - 3 * HOUR_SECONDS)

    behind = understudy("drift", "report", "churn")
    database("UPDATE ServingPolicy SET shadow_version = NULL")
    retired = understudy("drift", "report", "churn", "7")

    assert "The monitor last summed up v6 until " in behind.out
    assert "v7 is not active: the monitor does not go on summing it up." in retired.out


def test_inputs_are_judged_where_their_hours_are_stored(understudy, hours, trained, database, ids):
    hours((0.0, 0.0))
    until = closed_until(time.time())
    for hour in range(8):
        window = categorical_window(
            until - (8 - hour) * HOUR_SECONDS,
            ["BR" if place % 4 == 0 else "US" for place in range(800)],
            np.arange(800) // 4 % 64,
        )
        database(
            "INSERT INTO DriftHour VALUES ($1, 'country', to_timestamp($2), 800, $3)",
            ids["6"],
            window.start_seconds,
            hour_to_json(window),
        )

    said = understudy("drift", "report", "churn", "6")

    assert said.code == 1
    assert "v6: country drifts." in said.out
    assert "BR 5 % → 25 %" in said.said


def test_what_cannot_be_reported_says_why(understudy, ids, database):
    nobody = understudy("drift", "report", "nobody")
    no_version = understudy("drift", "report", "churn", "9")
    too_long = understudy("drift", "report", "churn", "--since", "90d")
    no_page = understudy("drift", "report", "churn", "--html", "nowhere/drift.html")

    database("DELETE FROM ServingPolicy")
    nobody_active = understudy("drift", "report", "churn")

    assert [said.code for said in (nobody, no_version, too_long, no_page, nobody_active)] == [4, 4, 2, 2, 0]
    assert "No version of churn is active" in nobody_active.out
    assert "hours are kept for" in too_long.said
