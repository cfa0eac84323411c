"""A version that agents load gets a role, or a larger share, once a server has it; nothing is in a rollback's way."""

import shlex

import asyncpg
import pytest

HERE = " WHERE model_name = 'visits'"
ROLES = {
    "champion": "champion_version = {}",
    "challenger": "challenger_version = {}",
    "challenger with a share": "challenger_version = {}, challenger_weight = 5",
    "shadow": "shadow_version = {}",
    "arm": """arms = '[{{"version_id": {}, "first": 90, "last": 94}}]'""",
}
Ids = dict[str, int]


@pytest.fixture
async def ids(database: asyncpg.Connection) -> Ids:
    """Versions 1 to 3 of a model whose champion is 1; agents load all of them, and a server has 1 alone."""
    found = {}
    for label in "123":
        found[label] = await database.fetchval(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
            " VALUES ('visits', $1, 'a', 'onnx', '{}') RETURNING id",
            label,
        )
        await database.execute(
            "INSERT INTO VersionLoading (model_version_id, group_name) VALUES ($1, 'onnx')", found[label]
        )
    await database.execute(
        "INSERT INTO ModelServer (name, group_name, target) VALUES ('onnx-0', 'onnx', '10.0.0.7:8500')"
    )
    await load(database, found["1"])
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", found["1"])
    return found


async def load(database: asyncpg.Connection, version_id: int) -> None:
    """What the agent writes when its server has a version."""
    await database.execute("INSERT INTO Placement VALUES ($1, 'onnx-0', 'asked for', now(), 1)", version_id)
    await database.execute("SELECT understudy_add_agent_endpoint($1, 'onnx-0')", version_id)


async def unload(database: asyncpg.Connection, version_id: int) -> None:
    """Take the endpoint away, and with it what says that a server has the version, past every guard."""
    await database.execute("SET session_replication_role = replica")
    await database.execute("DELETE FROM ModelEndpoint WHERE model_version_id = $1", version_id)
    await database.execute("SET session_replication_role = origin")


@pytest.mark.parametrize("role", ROLES)
async def test_a_version_that_no_server_has_gets_no_role_until_one_has_it(database, ids, role):
    update = f"UPDATE ServingPolicy SET {ROLES[role].format(ids['2'])}{HERE}"
    await database.execute(
        "INSERT INTO LoadedVersion (model_version_id, server, state, error_code, epoch) VALUES ($1, 'onnx-0', 'ERROR',"
        " 'E217', 1)",
        ids["2"],
    )

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await database.execute(update)
    said = "version 2 of visits is loaded on no server (onnx-0: ERROR E217), and cannot be "
    assert refused.value.args[0] == said + role.removesuffix(" with a share").replace("arm", "an arm")
    assert refused.value.hint == "Have agents load it first: understudy version load visits 2 --wait"
    await load(database, ids["2"])

    assert await database.execute(update) == "UPDATE 1"


async def test_a_first_policy_is_judged_and_one_that_is_there_by_what_its_update_says(database, ids):
    upsert = (
        "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)"
        " ON CONFLICT (model_name) DO UPDATE SET shadow_percent = 50"
    )
    assert await database.execute(upsert, ids["2"]) == "INSERT 0 1"
    await database.execute(f"DELETE FROM ServingPolicy{HERE}")

    with pytest.raises(asyncpg.CheckViolationError, match="nothing has begun"):
        await database.execute(upsert, ids["2"])


async def test_a_version_that_people_serve_by_themselves_or_that_has_an_endpoint_of_theirs_gets_roles(database, ids):
    await database.execute("DELETE FROM VersionLoading WHERE model_version_id = $1", ids["2"])
    await database.execute("INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, 'a:1')", ids["3"])

    await database.execute(
        f"UPDATE ServingPolicy SET challenger_version = $1, shadow_version = $2{HERE}", ids["2"], ids["3"]
    )


async def test_a_share_does_not_rise_while_no_server_has_the_version_and_may_fall(database, ids):
    await load(database, ids["2"])
    await database.execute(f"UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10{HERE}", ids["2"])
    await unload(database, ids["2"])

    with pytest.raises(asyncpg.CheckViolationError, match="cannot be challenger"):
        await database.execute(f"UPDATE ServingPolicy SET challenger_weight = 11{HERE}")
    with pytest.raises(asyncpg.CheckViolationError, match="cannot be champion"):
        await database.execute(
            f"UPDATE ServingPolicy SET champion_version = $1, challenger_version = NULL, challenger_weight = 0{HERE}",
            ids["2"],
        )

    await database.execute(f"UPDATE ServingPolicy SET challenger_weight = 5{HERE}")
    await database.execute("SELECT understudy_rollback('visits', 'it fails')")
    assert await database.fetchval(f"SELECT challenger_weight FROM ServingPolicy{HERE}") == 0


async def test_a_rollback_brings_the_champion_before_back_wherever_that_is(database, ids):
    await load(database, ids["2"])
    await database.execute(f"UPDATE ServingPolicy SET champion_version = $1{HERE}", ids["2"])
    await unload(database, ids["1"])

    await database.execute("SELECT understudy_rollback('visits', 'it fails')")

    assert await database.fetchval(f"SELECT champion_version FROM ServingPolicy{HERE}") == ids["1"]


async def test_a_champion_whose_wish_was_deleted_keeps_its_endpoint(database, ids):
    await database.execute("DELETE FROM VersionLoading")
    assert await database.fetchval("SELECT count(*) FROM Placement") == 0

    with pytest.raises(asyncpg.CheckViolationError, match="is the last endpoint of version 1 of visits"):
        await database.execute("SELECT understudy_remove_agent_endpoint($1, 'onnx-0')", ids["1"])


@pytest.mark.parametrize("role", [role for role in ROLES if role != "champion"])
async def test_the_champion_before_gets_another_role_only_where_a_server_has_it(database, ids, role):
    await load(database, ids["2"])
    await database.execute(f"UPDATE ServingPolicy SET champion_version = $1{HERE}", ids["2"])
    await unload(database, ids["1"])

    with pytest.raises(asyncpg.CheckViolationError, match="version 1 of visits is loaded on no server"):
        await database.execute(f"UPDATE ServingPolicy SET {ROLES[role].format(ids['1'])}{HERE}")


async def test_the_advice_names_model_and_version_as_a_shell_reads_them(database):
    found = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('dana''s visits', '1', 'a', 'onnx', '{}') RETURNING id"
    )
    await database.execute("INSERT INTO VersionLoading (model_version_id, group_name) VALUES ($1, 'onnx')", found)

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await database.execute(
            "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('dana''s visits', $1)", found
        )

    command = ["understudy", "version", "load", "dana's visits", "1", "--wait"]
    assert refused.value.hint == f"Have agents load it first: {shlex.join(command)}"


DIGEST, OTHER = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32
JUDGE = (
    "INSERT INTO VersionValidation (model_version_id, server, build, artifact_digest, passed, said, judged_by)"
    " VALUES ($1, 'onnx-0', 'onnx 1', $2, $3, $4, 'onnx-0') ON CONFLICT (model_version_id, server) DO UPDATE"
    " SET build = excluded.build, artifact_digest = excluded.artifact_digest, passed = excluded.passed"
)


@pytest.fixture
async def required(database: asyncpg.Connection, ids: Ids) -> int:
    """Version 2, which a server has and which requires a validation."""
    await load(database, ids["2"])
    await database.execute("UPDATE ModelServer SET build = 'onnx 1'")
    await database.execute(
        "UPDATE VersionLoading SET requires_validation = TRUE, pinned_digest = $2 WHERE model_version_id = $1",
        ids["2"],
        DIGEST,
    )
    return ids["2"]


@pytest.mark.parametrize("role", ROLES)
async def test_a_version_that_requires_a_validation_gets_no_role_until_one_holds(database, required, role):
    update = f"UPDATE ServingPolicy SET {ROLES[role].format(required)}{HERE}"

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await database.execute(update)
    said = "version 2 of visits is not validated (onnx-0 has not validated it), and cannot be "
    assert refused.value.args[0] == said + role.removesuffix(" with a share").replace("arm", "an arm")
    assert refused.value.hint == "Have it validated first: understudy version validate visits 2"
    await database.execute(JUDGE, required, DIGEST, True, "3 cases answered as expected")

    assert await database.execute(update) == "UPDATE 1"


STALE = {
    "another build": ("UPDATE ModelServer SET build = 'onnx 2'", "onnx-0 validated it as onnx 1, and is onnx 2 now"),
    "another artifact": (
        f"UPDATE VersionValidation SET artifact_digest = '{OTHER}'",
        "onnx-0 validated sha256:cdcdcdcd, and its artifact is sha256:abababab",
    ),
    "a failure": ("UPDATE VersionValidation SET passed = FALSE, said = 'case 1: no'", "onnx-0: case 1: no"),
    "another server": (
        """
        INSERT INTO ModelServer (name, group_name, target) VALUES ('onnx-1', 'onnx', '10.0.0.8:8500');
        INSERT INTO ModelEndpoint (model_version_id, target, source, server)
        SELECT max(model_version_id), '10.0.0.8:8500', 'agent', 'onnx-1' FROM VersionValidation
        """,
        "onnx-1 has not validated it",
    ),
}


@pytest.mark.parametrize("change", STALE)
async def test_a_validation_of_another_build_artifact_or_server_holds_no_more_and_takes_nothing_back(
    database, required, change
):
    await database.execute(JUDGE, required, DIGEST, True, "3 cases answered as expected")
    await database.execute(f"UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10{HERE}", required)
    statement, said = STALE[change]
    await database.execute(statement)

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await database.execute(f"UPDATE ServingPolicy SET challenger_weight = 11{HERE}")
    assert f"version 2 of visits is not validated ({said}), and cannot be challenger" in refused.value.args[0]
    assert refused.value.hint == "Have it validated first: understudy version validate visits 2 --while-serving"

    await database.execute(f"UPDATE ServingPolicy SET challenger_weight = 5, shadow_percent = 50{HERE}")
    await database.execute("SELECT understudy_rollback('visits', 'it fails')")


async def test_a_validation_is_not_asked_for_by_a_rollback_or_where_nobody_requires_it(database, ids, required):
    await database.execute(JUDGE, required, DIGEST, True, "3 cases answered as expected")
    await database.execute(f"UPDATE ServingPolicy SET champion_version = $1{HERE}", required)
    await load(database, ids["3"])
    await database.execute(f"UPDATE ServingPolicy SET champion_version = $1{HERE}", ids["3"])
    await database.execute("DELETE FROM VersionValidation")

    await database.execute("SELECT understudy_rollback('visits', 'it fails')")

    assert await database.fetchval(f"SELECT champion_version FROM ServingPolicy{HERE}") == required


MORE_CALLS = {
    "a category more": """category_roles = '{"vip": "challenger"}'""",
    "fewer held out": "category_holdout_percent = 0",
    "a category beside the champion's": """category_roles = '{"gold": "challenger", "vip": "champion"}'""",
}


@pytest.mark.parametrize("change", MORE_CALLS)
async def test_a_category_gives_no_calls_to_a_version_whose_validation_holds_no_more_and_may_be_taken_away(
    database, required, change
):
    await database.execute(JUDGE, required, DIGEST, True, "3 cases answered as expected")
    had = """category_roles = '{"gold": "challenger"}', category_holdout_percent = 20"""
    had = had if change == "fewer held out" else "category_holdout_percent = 20"
    await database.execute(
        f"UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 1, {had}{HERE}", required
    )
    await database.execute("UPDATE ModelServer SET build = 'onnx 2'")

    with pytest.raises(asyncpg.CheckViolationError, match="version 2 of visits is not validated"):
        await database.execute(f"UPDATE ServingPolicy SET {MORE_CALLS[change]}{HERE}")
    await database.execute(f"UPDATE ServingPolicy SET category_roles = '{{}}', category_holdout_percent = 50{HERE}")
    await database.execute(f"UPDATE ServingPolicy SET challenger_weight = 0, {MORE_CALLS[change]}{HERE}")
    await database.execute("SELECT understudy_rollback('visits', 'it fails')")
