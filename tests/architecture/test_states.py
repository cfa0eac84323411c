"""Every state that an operator may meet has its words there: in texts, as a number of a gauge, on dashboards, in pages.

What each kind of alert has is in ``tests/unit/core/alerts``.
"""

import pytest
from architecture.test_docs import DOCS, table_rows

from tools.dashboards.panels import CHECK_WORDS
from understudy.core.canary.checks import BY_NAME
from understudy.core.canary.decision import CheckState, Evidence
from understudy.core.canary.slices.slice_figures import SliceState
from understudy.core.rollout.state import WAITING_ALERTS, DriftMode, GuardMode, Phase, WaitingFor
from understudy.entrypoints.cli.rollout.slices_text import slice_state_words
from understudy.entrypoints.cli.shared.texts.event_text import check_state_words
from understudy.entrypoints.cli.shared.texts.guard_text import MEANINGS, ON_DRIFT
from understudy.rollout.metrics import ENTITIES, SCORES, SHARED_ERRORS, SLICES, STATES

CLI = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
ROLLOUTS = (DOCS / "explanation" / "rollouts.md").read_text(encoding="utf-8")
CHECK_JSON = CLI.partition("In a rollout's `evidence` a row's `state` is")[2].partition("\n`null` stands")[0]
SLICES_JSON = CLI.partition("`rollout show --slices --json` has `slices`")[2].partition("\n- ")[0]


def row_of(name: str) -> str:
    """Return the last cell of the row of the metrics page that begins with a name."""
    (found,) = [row[-1] for row in table_rows("metrics.md") if row[0] == name]
    return found


def evidence(state: CheckState) -> Evidence:
    unknown = None, None, None, None, None, None, None, None, None, None
    return Evidence(BY_NAME["error_rate"], state, *unknown, 0, 0)


@pytest.mark.parametrize("state", CheckState)
def test_a_checks_state_has_words_in_texts_and_json_and_a_number_that_metrics_and_dashboards_explain(state):
    number = STATES[state]

    assert check_state_words(evidence(state)).plain.strip()
    assert f"`{state}`" in CHECK_JSON
    assert f"{number:g} " in row_of("`canary_check_state`")
    assert number in {value for value, *_ in CHECK_WORDS}


def test_no_two_states_look_alike():
    texts = [check_state_words(evidence(state)).plain for state in CheckState]

    for words in (texts, [slice_state_words(state) for state in SliceState], [text for _, text, _ in CHECK_WORDS]):
        assert len(set(words)) == len(words)
    assert len(set(STATES.values())) == len(CheckState) == len(CHECK_WORDS)


@pytest.mark.parametrize("state", SliceState)
def test_a_slices_state_has_words_in_texts_and_json(state):
    assert slice_state_words(state)
    assert f"`{state}`" in SLICES_JSON


@pytest.mark.parametrize("phase", Phase)
def test_a_phase_is_on_the_page_of_rollouts(phase):
    assert f"`{phase}`" in ROLLOUTS


@pytest.mark.parametrize("waits", [*WaitingFor, SCORES, ENTITIES, SLICES, SHARED_ERRORS, "guard"])
def test_what_a_rollout_waits_for_is_a_reason_that_the_metrics_page_explains(waits):
    assert f"`{waits}`" in row_of("`reason` of `rollout_transitions_total`")


def test_whatever_a_rollout_waits_for_but_a_persons_pause_is_told_to_on_call():
    assert WAITING_ALERTS.keys() == set(WaitingFor) - {WaitingFor.PAUSE}


def test_a_guards_and_a_drifts_modes_have_words_and_are_on_their_pages():
    drift = (DOCS / "explanation" / "drift.md").read_text(encoding="utf-8")

    assert MEANINGS.keys() == set(GuardMode)
    assert ON_DRIFT.keys() == set(DriftMode)
    assert all(f"| `{mode}`" in ROLLOUTS for mode in GuardMode)
    assert all(f"`{mode}`" in drift for mode in DriftMode)
