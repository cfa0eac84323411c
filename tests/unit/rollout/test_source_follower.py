"""A source is followed: what its label names is registered and rolled out once, whatever happens meanwhile."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds.sources import CHAMPION, SCHEMA, SPEC, Installation, Label, version_offered

from understudy.core.loading.state import LoadingState
from understudy.core.rollout.sources.version_source import NOTE, Offered, OnNew, SourceState
from understudy.core.rollout.state import Phase
from understudy.core.schema.described import DescribedModel, DescribedTensor
from understudy.errors import ArtifactNotTaken, ModelContradicts, QuotaExceeded, ScopeMissing, SourceAway
from understudy.rollout.source_follower import new_version

SEVENTH = Offered("7", "mlflow-artifacts:/1/m-9", {"registered_model": "eu.fraud", "version": "7"}, "mlflow: …")
BY_AGENTS = SPEC._replace(endpoints=None, group="onnx")
DIGEST = "sha256:" + "ab" * 32
IMAGE = Offered(
    "2026.11", f"oci://r/fraud:canary@{DIGEST}", {"image": "r/fraud", "digest": DIGEST}, "oci: …", "1,5", "abab"
)


def said(size: int = 2) -> DescribedModel:
    return DescribedModel("version 7 of eu.fraud", (DescribedTensor("x", "FP32", (-1, size)),), (), "mlflow")


def labels(installation: Installation) -> tuple[list[str], list[str]]:
    """Return the versions beside the champion, and the challengers of rollouts in their order."""
    return list(installation.versions)[1:], [one.state.challenger for one in installation.rollouts[::-1]]


def test_a_version_has_the_champions_schemas_and_settings_and_says_what_it_is_from():
    spec = SPEC._replace(endpoints=None)
    new = new_version(spec, SEVENTH, "7", CHAMPION, said())

    assert (new.input_schema, new.output_schema, new.protocol) == (SCHEMA, {"tensor": "p"}, "oip")
    assert (new.deterministic, new.cache_ttl_seconds, new.timeout_ms) == (False, 60, 80)
    assert (new.base_model, new.family, new.framework) == ("trees-v2", "trees", "mlflow")
    assert (new.endpoints, new.backend, new.group_name) == (("models:8001",), {"model_name": "fraud"}, None)
    assert new.metrics == {NOTE: {"kind": "mlflow", "url": "https://mlflow", **SEVENTH.note}}
    assert new.artifact_digest is None


def test_its_servers_and_files_are_those_that_the_source_names():
    own = SPEC._replace(
        endpoints="a-{version}:1, b-{version}:1", backend={"model_name": "fraud-{version}"}, artifacts="s3://store"
    )

    served = new_version(own, SEVENTH, "7", CHAMPION, said())
    loaded = new_version(BY_AGENTS._replace(require_validation=True), SEVENTH, "7", CHAMPION, None)

    assert (served.endpoints, served.backend) == (("a-7:1", "b-7:1"), {"model_name": "fraud-7"})
    assert served.artifact_path == "s3://store/1/m-9"
    assert (loaded.endpoints, loaded.group_name, loaded.requires_validation) == ((), "onnx", True)
    assert loaded.framework == CHAMPION.framework


def test_a_model_with_other_tensors_is_refused_with_what_differs():
    with pytest.raises(ModelContradicts, match=r"version 7 of eu\.fraud is unlike version 6: the input x"):
        new_version(SPEC, SEVENTH, "7", CHAMPION, said(3))


async def test_a_version_that_agents_load_gets_its_rollout_once_they_have_it_and_with_its_own_steps():
    there, label = Installation(), Label(IMAGE)
    follower = there.follower(label, BY_AGENTS)

    made = await follower.look()
    there.server("2026.11", state=LoadingState.LOADING)
    loading = await follower.look()
    there.server("2026.11")
    started = await follower.look()
    again = await follower.look()

    assert (made.state, made.registered, made.started) == (SourceState.WAITING, True, None)
    assert (loading.state, loading.detail) == (SourceState.WAITING, "version 2026.11: it is being loaded")
    assert (started.state, started.started) == (SourceState.DONE, 1)
    assert (again.state, again.started, labels(there)) == (SourceState.DONE, None, (["2026.11"], ["2026.11"]))
    assert there.rollouts[0].state.plan == "1,5,100"
    assert there.asked_to_load == ["2026.11"]


async def test_a_version_whose_two_hours_went_by_behind_another_rollout_is_loaded_again_then_started():
    there, label = Installation(), Label(IMAGE)
    follower = there.follower(label, BY_AGENTS)
    await follower.look()
    there.loading["2026.11"] = there.loading["2026.11"]._replace(wanted_until=datetime.now(UTC) - timedelta(minutes=1))

    asked = await follower.look()
    there.server("2026.11")

    assert (asked.state, there.asked_to_load) == (SourceState.WAITING, ["2026.11", "2026.11"])
    assert (await follower.look()).started == 1


@pytest.mark.parametrize(("will_retry", "state"), [(True, SourceState.WAITING), (False, SourceState.REFUSED)])
async def test_a_version_that_a_server_cannot_load_is_told_of_in_the_servers_words(will_retry, state):
    there = Installation()
    follower = there.follower(Label(IMAGE), BY_AGENTS)
    await follower.look()
    failed = {"state": LoadingState.ERROR, "error_code": "E216", "error": "3 of 9 cases differ"}
    there.server("2026.11", **failed, will_retry=will_retry)

    report = await follower.look()

    assert (report.state, report.started) == (state, None)
    assert report.detail == "version 2026.11: onnx-0 could not load it: E216 3 of 9 cases differ"


async def test_a_tag_that_names_another_image_of_the_same_version_registers_it_under_its_digest():
    there = Installation()
    rebuilt = IMAGE._replace(
        artifact=IMAGE.artifact.replace("ab", "cd"), note={"digest": "cd"}, distinction="cdcd", steps=None
    )
    await there.follower(Label(IMAGE), BY_AGENTS._replace(on_new=OnNew.REGISTER)).look()

    report = await there.follower(Label(rebuilt), BY_AGENTS._replace(on_new=OnNew.REGISTER)).look()

    assert (report.state, report.label) == (SourceState.DONE, "2026.11-cdcd")
    assert labels(there)[0] == ["2026.11", "2026.11-cdcd"]


async def test_an_image_that_a_person_registered_by_its_digest_is_the_version_that_the_tag_names():
    there = Installation()
    there.versions["by-hand"] = CHAMPION._replace(
        version="by-hand", status="staging", deployed_at=None, artifact_path=f"oci://r/fraud@{DIGEST}"
    )

    report = await there.follower(Label(IMAGE), SPEC).look()

    assert (report.label, report.registered, report.started) == ("by-hand", False, 1)


async def test_a_source_whose_template_of_labels_changed_registers_nothing_again():
    there = Installation()
    await there.follower(Label(version_offered("7"))).look()

    report = await there.follower(Label(version_offered("7")), SPEC._replace(version="eu-{version}")).look()

    assert (report.label, report.state, labels(there)) == ("7", SourceState.DONE, (["7"], ["7"]))


async def test_a_version_that_was_promoted_by_hand_and_taken_back_gets_no_rollout_by_itself():
    there = Installation()
    await there.follower(Label(version_offered("7")), SPEC._replace(on_new=OnNew.REGISTER)).look()
    there.versions["7"] = there.versions["7"]._replace(deployed_at=datetime.now(UTC))

    report = await there.follower(Label(version_offered("7"))).look()

    assert (report.state, labels(there)[1]) == (SourceState.DONE, [])
    assert "has had a role" in report.detail


async def test_a_label_that_moves_between_two_questions_starts_no_rollout_of_what_it_named_before():
    there = Installation()
    await there.follower(Label(version_offered("7")), SPEC._replace(on_new=OnNew.REGISTER)).look()

    report = await there.follower(Label(version_offered("7"), version_offered("8"))).look()

    assert (report.state, labels(there)[1]) == (SourceState.WAITING, [])
    assert "moved on from version 7" in report.detail


async def test_a_label_that_moves_back_and_forth_a_hundred_times_has_one_rollout_of_each_version():
    there, label = Installation(), Label(None)
    follower = there.follower(label)

    for number in range(100):
        label.move(version_offered(str(7 + number % 2)))
        await follower.look()
        if number % 10 == 9:
            there.end(Phase.FAILED)

    assert labels(there) == (["7", "8"], ["7", "8"])


async def test_two_that_look_at_the_same_moment_register_and_start_once_and_neither_is_refused():
    there = Installation()

    reports = await asyncio.gather(*(there.follower(Label(version_offered("7"))).look() for _ in range(2)))

    assert labels(there) == (["7"], ["7"])
    assert {report.state for report in reports} == {SourceState.DONE}
    assert sum(report.registered for report in reports) == 1
    assert sum(report.started is not None for report in reports) == 1


@given(st.lists(st.tuples(st.sampled_from("789"), st.integers(0, 25)), max_size=10))
def test_a_follower_that_is_killed_after_any_number_of_turns_leaves_nothing_twice(looks: Sequence[tuple[str, int]]):
    there, label = Installation(), Label(None)

    async def look(number: str, turns: int) -> None:
        label.move(version_offered(number))
        looking = asyncio.ensure_future(there.follower(label).look())
        for _ in range(turns):
            await asyncio.sleep(0)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        if there.rollouts:
            there.end(Phase.FAILED)

    async def all_of_them() -> None:
        for number, turns in looks:
            await look(number, turns)

    asyncio.run(all_of_them())

    versions, rollouts = labels(there)
    assert len(rollouts) == len(set(rollouts))
    assert set(rollouts) <= set(versions)


@pytest.mark.parametrize(
    ("problem", "state"),
    [
        (SourceAway("401"), SourceState.AWAY),
        (ArtifactNotTaken("a list of 2 manifests"), SourceState.REFUSED),
        (ScopeMissing("register:fraud is not among its scopes"), SourceState.REFUSED),
        (QuotaExceeded("too many calls"), SourceState.WAITING),
    ],
)
async def test_what_is_in_the_way_is_in_the_report(problem, state):
    there, label = Installation(), Label(version_offered("7"))

    async def refuse(*_: object, **__: object) -> Any:
        raise problem

    refuses: Any = there if isinstance(problem, ScopeMissing | QuotaExceeded) else label
    setattr(refuses, "add_version" if refuses is there else "offered", refuse)
    report = await there.follower(label).look()

    assert (report.state, report.registered, report.detail) == (state, False, problem.detail)


async def test_a_look_that_only_says_what_would_be_done_does_nothing():
    there = Installation()

    report = await there.follower(Label(version_offered("7"))).look(dry_run=True)

    assert (report.state, report.detail) == (SourceState.WAITING, "version 7 is not registered")
    assert labels(there) == ([], [])
