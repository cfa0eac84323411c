"""What is to be done about the version that a source's label names."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.rollout.sources.version_source import (
    STEPS,
    Delay,
    Do,
    Facts,
    Offered,
    OnNew,
    PastRollout,
    SourceSpec,
    SourceState,
    artifact_of,
    asked_plan,
    is_noted,
    labels_of,
    next_step,
    note_of,
)

SPEC = SourceSpec("mlflow", "fraud", "http://mlflow", "fraud", "challenger", plan="fast")
REGISTERS = SPEC._replace(on_new=OnNew.REGISTER, plan=None)
SEVENTH = Offered("7", "s3://m/7", {"version": "7", "run_id": "r"}, "mlflow: fraud@challenger is version 7")
FAILED, ENDED = (PastRollout(9, "7", phase, is_final=True) for phase in ("FAILED", "SUCCEEDED"))
FRESH = Facts("6", "7")
OPEN = PastRollout(12, "5", "PROGRESSING", is_final=False)


def test_a_version_is_registered_then_started_then_left_alone():
    unknown = FRESH._replace(label=None, free_label="7")
    started = FRESH._replace(rollouts=[PastRollout(13, "7", "PROGRESSING", is_final=False)], had_role=True)

    assert next_step(SPEC, SEVENTH, unknown).do is Do.REGISTER
    assert next_step(SPEC, SEVENTH, FRESH)[::3] == (Do.START, "fast")
    assert next_step(SPEC, SEVENTH, started).do is Do.NOTHING
    assert next_step(REGISTERS, SEVENTH, FRESH).do is Do.NOTHING


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        (FRESH._replace(champion=None), SourceState.REFUSED, "no champion"),
        (FRESH._replace(label=None), SourceState.REFUSED, "from something else"),
        (FRESH._replace(champion="7"), SourceState.DONE, "is the champion"),
        (FRESH._replace(rollouts=[FAILED]), SourceState.DONE, "not started again"),
        (FRESH._replace(rollouts=[ENDED]), SourceState.DONE, "SUCCEEDED"),
        (FRESH._replace(had_role=True), SourceState.DONE, "has had a role"),
        (FRESH._replace(is_retired=True), SourceState.REFUSED, "retired"),
        (FRESH._replace(rollouts=[OPEN]), SourceState.WAITING, "rollout 12 of version 5 is open"),
        (FRESH._replace(sharing="5"), SourceState.WAITING, "version 5 has a share"),
        (FRESH._replace(delay=Delay("it is being loaded")), SourceState.WAITING, "it is being loaded"),
        (FRESH._replace(delay=Delay("onnx-0: E212", is_final=True)), SourceState.REFUSED, "version 7: onnx-0: E212"),
    ],
)
def test_what_keeps_a_rollout_from_starting_is_said(facts: Facts, state: SourceState, words: str):
    step = next_step(SPEC, SEVENTH, facts)

    assert (step.do, step.state) == (Do.NOTHING, state)
    assert words in step.detail


def test_agents_are_asked_for_a_version_only_when_nothing_else_is_in_the_way():
    unwanted = FRESH._replace(delay=Delay("no agent loads it", is_wanted=False))

    assert next_step(SPEC, SEVENTH, unwanted).do is Do.LOAD
    assert next_step(SPEC, SEVENTH, unwanted._replace(rollouts=[OPEN])).do is Do.NOTHING


def test_a_version_asks_for_its_steps_within_what_the_source_permits():
    asking = SEVENTH._replace(steps="1, 5,25")

    assert next_step(SPEC, asking, FRESH).plan == "1,5,25,100"
    refused = next_step(SPEC._replace(first_percent=1), SEVENTH._replace(steps="5,25"), FRESH)
    assert (refused.do, refused.state) == (Do.NOTHING, SourceState.REFUSED)
    assert "begins with 5 %, and at most 1 % is taken" in refused.detail
    assert asked_plan(None, 10) is None
    assert asked_plan("10,100", 10) == "10,100"


@pytest.mark.parametrize("steps", ["", "0,5", "5,1", "5,5", "50%", "1,101", "1;DROP", "1" * 100, "²", "1,,2"])
def test_steps_that_are_none_are_refused_with_what_they_are(steps: str):
    with pytest.raises(ValueError, match=rf"its {STEPS} is .*, not rising percents by commas"):
        asked_plan(steps, 10)


@dataclass
class Installation:
    """Versions and rollouts of one model, as steps change them; each rollout ends when the next step is asked for."""

    versions: list[str] = field(default_factory=list)
    rollouts: list[str] = field(default_factory=list)

    def look(self, label: str, *, crashes_after: int) -> None:
        """Do what is asked for, and die after so many steps."""
        offered = Offered(label, f"s3://m/{label}", {"version": label}, "")
        for _ in range(crashes_after):
            past = [PastRollout(n, one, "FAILED", is_final=True) for n, one in enumerate(self.rollouts)][::-1]
            known = label if label in self.versions else None
            # Of the newest rollouts alone: of older ones only the version says that it had a role.
            facts = Facts("1", known, label, had_role=label in self.rollouts, rollouts=past[:2])
            step = next_step(SPEC, offered, facts)
            if step.do is Do.REGISTER:
                self.versions.append(label)
            elif step.do is Do.START:
                self.rollouts.append(label)


@given(st.lists(st.tuples(st.sampled_from("789"), st.integers(0, 3)), max_size=30))
def test_no_version_is_registered_or_rolled_out_twice_however_often_a_look_breaks_off(looks: list[tuple[str, int]]):
    there = Installation()

    for label, crashes_after in looks:
        there.look(label, crashes_after=crashes_after)

    assert len(there.versions) == len(set(there.versions))
    assert len(there.rollouts) == len(set(there.rollouts))


def test_a_version_is_the_one_that_is_offered_by_what_its_registry_says_and_not_by_its_address_or_label():
    noted = {"auc": 0.9, "source": note_of(SPEC, SEVENTH)}

    assert is_noted(noted, SEVENTH)
    assert is_noted({"source": note_of(SPEC._replace(url="https://moved"), SEVENTH)}, SEVENTH)
    assert not is_noted(noted, SEVENTH._replace(note={"version": "7", "run_id": "another"}))
    nonsense: list[Any] = [None, {}, [], {"source": None}, {"source": "x"}, {"source": {}}]
    assert not any(is_noted(one, SEVENTH) for one in nonsense)


def test_a_version_whose_label_is_taken_gets_another_one_where_its_registry_numbers_none():
    image = SEVENTH._replace(number="2026.11", distinction="0c3f")

    assert labels_of(SPEC, SEVENTH) == ("7",)
    assert labels_of(SPEC._replace(version="eu-{version}"), image) == ("eu-2026.11", "eu-2026.11-0c3f")


def test_files_in_the_registrys_own_store_are_where_the_source_says():
    spec = SPEC._replace(artifacts="s3://models/mlruns/")

    inside = artifact_of(spec, SEVENTH._replace(artifact="mlflow-artifacts:/1/models/m-9/artifacts"))

    assert inside == "s3://models/mlruns/1/models/m-9/artifacts"
    assert artifact_of(spec, SEVENTH._replace(artifact="s3://other/7")) == "s3://other/7"
    outside = SEVENTH._replace(artifact="mlflow-artifacts:/1")
    assert artifact_of(spec._replace(artifacts=None), outside) == "mlflow-artifacts:/1"
