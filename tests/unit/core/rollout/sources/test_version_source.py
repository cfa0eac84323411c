"""What is to be done about the version that a source's label names."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.rollout.sources.version_source import (
    Do,
    Facts,
    Offered,
    OnNew,
    PastRollout,
    SourceSpec,
    SourceState,
    artifact_of,
    next_step,
)

FAILED, ENDED = (PastRollout(9, "7", phase, is_final=True) for phase in ("FAILED", "SUCCEEDED"))
FRESH = Facts("6", is_registered=True, is_same=True, is_retired=False, rollouts=())
OPEN = PastRollout(12, "5", "PROGRESSING", is_final=False)


def test_a_version_is_registered_then_started_then_left_alone():
    unknown = FRESH._replace(is_registered=False, is_same=False)
    started = FRESH._replace(rollouts=[PastRollout(13, "7", "PROGRESSING", is_final=False)])

    assert next_step("7", OnNew.ROLLOUT, unknown).do is Do.REGISTER
    assert next_step("7", OnNew.ROLLOUT, FRESH).do is Do.START
    assert next_step("7", OnNew.ROLLOUT, started).do is Do.NOTHING
    assert next_step("7", OnNew.REGISTER, FRESH).do is Do.NOTHING


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        (FRESH._replace(champion=None), SourceState.REFUSED, "no champion"),
        (FRESH._replace(is_same=False), SourceState.REFUSED, "from something else"),
        (FRESH._replace(champion="7"), SourceState.DONE, "is the champion"),
        (FRESH._replace(rollouts=[FAILED]), SourceState.DONE, "not started again"),
        (FRESH._replace(rollouts=[ENDED]), SourceState.DONE, "SUCCEEDED"),
        (FRESH._replace(is_retired=True), SourceState.REFUSED, "retired"),
        (FRESH._replace(rollouts=[OPEN]), SourceState.WAITING, "rollout 12 of version 5 is open"),
        (FRESH._replace(sharing="5"), SourceState.WAITING, "version 5 has a share"),
        (FRESH._replace(is_cut=True), SourceState.REFUSED, "by hand"),
    ],
)
def test_what_keeps_a_rollout_from_starting_is_said(facts: Facts, state: SourceState, words: str):
    step = next_step("7", OnNew.ROLLOUT, facts)

    assert (step.do, step.state) == (Do.NOTHING, state)
    assert words in step.detail


@dataclass
class Installation:
    """Versions and rollouts of one model, as steps change them; each rollout ends when the next step is asked for."""

    versions: list[str] = field(default_factory=list)
    rollouts: list[str] = field(default_factory=list)

    def look(self, label: str, *, crashes_after: int) -> None:
        """Do what is asked for, and die after so many steps."""
        for _ in range(crashes_after):
            past = [PastRollout(n, one, "FAILED", is_final=True) for n, one in enumerate(self.rollouts)][::-1]
            known = label in self.versions
            step = next_step(label, OnNew.ROLLOUT, Facts("1", known, known, is_retired=False, rollouts=past))
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


def test_files_in_the_registrys_own_store_are_where_the_source_says():
    spec = SourceSpec("mlflow", "fraud", "http://mlflow", "fraud", "challenger", artifacts="s3://models/mlruns/")

    inside = artifact_of(spec, Offered("7", "mlflow-artifacts:/1/models/m-9/artifacts", {}))

    assert inside == "s3://models/mlruns/1/models/m-9/artifacts"
    assert artifact_of(spec, Offered("7", "s3://other/7", {})) == "s3://other/7"
    assert artifact_of(spec._replace(artifacts=None), Offered("7", "mlflow-artifacts:/1", {})) == "mlflow-artifacts:/1"
