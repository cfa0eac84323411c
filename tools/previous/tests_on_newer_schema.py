"""A pytest plugin for an older tree: a newer tree migrates the databases of its tests (see tools/test_previous.py).

It replaces one function of the older code, the one that migrates, by the newer tree's command; all else is as it was.
The older code's own `head()` stays what it is, so what it says of a schema newer than itself is tried as well.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from understudy.adapters import migrations

NEWER = Path(os.environ["UNDERSTUDY_NEWER_TREE"])
OLDER = Path.cwd()
SECONDS = 120

_DROPS_NO_TRIGGER = (
    "drops a constraint and then writes, as a release before it may have, rows that no proxy and no archiver writes; "
    "triggers now refuse them, which the older test does not drop"
)
_MAY_MORE = "the role may do more than the older list says"
_NO_NAME = "expects the model's name in the refusal, which may be the id of who confused the two"
_KEPT_WARM = "retires the champion before one that was set by hand, which a guard now keeps warm"
_OLDER_DOCTOR = "asks the older doctor, which rightly says that the schema is newer"
_OLDER_FINDINGS = "shows what the older doctor says, which is rightly that the schema is newer"
_NOT_PLACED = "adds an endpoint of a version that nothing has placed on the server, which no agent does"
# By the name of a test, or of one of its cases alone.
# What says which schema there is, or goes down from the older head: on a newer schema it says something else, rightly.
ABOUT_THE_SCHEMA = {
    "test_the_way_down_takes_the_rights_and_leaves_the_roles": "goes down from the older head",
    "test_an_installation_with_model_servers_on_its_own_machine_keeps_them": "goes down from the older head",
    "test_a_schema_below_keeps_versions_over_http_and_takes_no_new_ones": "goes down from the older head",
    "test_going_back_takes_the_inputs_away_and_leaves_the_log": "goes down from the older head",
    "test_the_release_before_leaves_a_champion_that_was_set_by_hand": "goes down from the older head",
    "test_every_table_and_view_has_a_decision_for_every_role": "lists every table of the older schema",
    "test_every_role_has_in_the_catalogue_what_was_decided_and_nothing_more": "lists every right, and roles got more",
    "test_every_check_constraint_of_the_registrys_tables_has_words": "lists each check; endpoints have a source now",
    "test_every_operation_that_was_not_decided_is_refused_when_it_is_tried[understudy_proxy]": _MAY_MORE,
    "test_every_operation_that_was_not_decided_is_refused_when_it_is_tried[understudy_retention]": _MAY_MORE,
    "test_a_champion_that_was_set_by_hand_stays_and_the_way_back_is_named": "a rollback now brings the one before back",
    "test_what_runbooks_tell_people_to_type_works_under_the_role_of_an_engineer_whose_url_is_in_a_file": (
        "asks the older doctor and db check, which rightly say that the schema is newer"
    ),
    "test_a_rollback_says_of_a_champion_before_that_is_retired_that_it_cannot_come_back": _KEPT_WARM,
    "test_a_retired_version_does_not_come_back_and_is_named": _KEPT_WARM,
    "test_an_old_champion_is_not_retired_by_hand_while_it_is_kept_warm": _KEPT_WARM,
    "test_a_champion_before_that_was_retired_comes_back_once_it_was_restored": _KEPT_WARM,
    "test_distances_and_limits_are_gauges_that_go_with_the_versions_role": (
        "expects no gauges of the champion before one that was set by hand, which a guard now keeps warm"
    ),
    "test_the_release_before_reads_a_rollout_whose_gates_went_with_the_migration_and_it_waits_paused": (
        "goes down from the older head"
    ),
    "test_the_health_page_says_what_doctor_finds_to_a_key_for_all_models": _OLDER_FINDINGS,
    "test_a_silent_monitor_and_a_proxy_with_an_old_policy_are_told_on_pages_of_models": _OLDER_FINDINGS,
    "test_where_nothing_is_wrong_a_page_has_no_word_of_it": _OLDER_FINDINGS,
    "test_a_key_for_some_models_hears_nothing_of_others": _OLDER_FINDINGS,
    "test_two_versions_of_one_server_without_their_own_numbers_are_the_same_call_everywhere": _OLDER_DOCTOR,
    "test_a_guards_judge_that_is_down_takes_nothing_back_and_is_told_until_it_answers_again": _OLDER_DOCTOR,
    "test_a_policy_is_changed_by_the_one_who_saw_it": "lists what a change changed, and a guard's id is among it now",
    "test_a_row_that_is_no_window_is_left_out_and_stops_no_reader": _DROPS_NO_TRIGGER,
    "test_a_report_that_no_proxy_wrote_is_left_out_and_stops_neither_the_monitor_nor_an_operator": _DROPS_NO_TRIGGER,
    "test_a_key_that_leads_out_of_the_archive_reaches_no_file_and_stops_no_other_month": _DROPS_NO_TRIGGER,
    "test_a_database_may_be_named_by_a_file": "asks the older db check, which rightly says that the schema is newer",
    "test_a_rollback_by_command_is_done_while_a_proxys_login_keeps_the_reports_locked": _OLDER_DOCTOR,
    "test_a_model_that_never_was_and_an_id_that_is_none_are_refused[chrun-customer-42]": _NO_NAME,
    "test_looking_changes_nothing_and_counts_what_erasing_erases": _NO_NAME,
    "test_without_a_confirmation_or_a_reason_nothing_is_erased": _NO_NAME,
    "test_doctor_names_an_erasure_that_was_stopped_until_a_run_has_finished_it": _OLDER_DOCTOR,
    "test_doctor_warns_of_a_policy_that_is_not_as_its_file_says": _OLDER_DOCTOR,
    "test_what_is_not_loaded_is_said_by_doctor_by_the_model_and_to_who_asks_about_an_entity": _OLDER_DOCTOR,
    "test_every_operation_that_was_not_decided_is_refused_when_it_is_tried": (
        "lists what each role may read: the monitor reads RegistryAudit now, and others who went on with an erasure"
    ),
    "test_no_role_writes_a_text_or_a_document_without_a_bound": (
        "lists what has no bound but the spool's, and a row's slices are among it now"
    ),
    "test_reasons_with_the_id_are_counted_and_stay": (
        "counts texts after the end, which the database does for an open erasure alone: the older command says none"
    ),
    "test_an_unload_waits_for_proxies_that_were_live_and_have_not_read_the_removal": _NOT_PLACED,
    "test_while_a_session_keeps_the_reports_of_proxies_locked_no_version_is_taken_for_quiet_and_rounds_go_on": (
        _NOT_PLACED
    ),
    "test_a_server_that_comes_back_under_another_address_has_its_endpoints_there_alone": _NOT_PLACED,
    "test_an_endpoint_that_people_registered_at_the_same_address_stays_theirs": _NOT_PLACED,
    "test_a_server_that_was_renamed_sees_what_it_serves_and_takes_its_endpoints_over": _NOT_PLACED,
    "test_what_a_server_has_is_seen_after_the_migration_was_taken_back_and_made_again": _NOT_PLACED,
    "test_silent_servers_lose_the_endpoints_that_others_stand_in_for_and_keep_the_rest": _NOT_PLACED,
    "test_a_server_is_forgotten_a_day_after_it_was_seen_once_no_endpoint_is_its": _NOT_PLACED,
    "test_a_version_that_is_wanted_is_not_moved_to_a_group_without_servers": _NOT_PLACED,
    "test_the_monitor_reads_which_servers_have_a_version_unless_their_agent_is_silent": _NOT_PLACED,
    "test_a_version_with_a_role_is_not_unloaded_and_it_is_said_which": (
        "makes a version champion that agents are to load and no server has, which the database refuses now"
    ),
}

FILES_ABOUT_THE_SCHEMA = {"test_db_check.py": "asks the older db check, which rightly says that the schema is newer"}

if not Path(migrations.__file__).is_relative_to(OLDER):
    raise pytest.UsageError(f"the code of {OLDER} was to be tried, and {migrations.__file__} was imported")


async def upgrade(database_url: str, revision: str = "head", *, patience: object = None) -> str:  # noqa: ARG001 - below
    """As the older tree's function; the newer tree's command does the work, with a patience of its own."""
    if revision != "head":
        raise RuntimeError("on the newer schema there is only its head")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "understudy.entrypoints.cli",
        *("db", "upgrade", "--json"),
        env={**os.environ, "PYTHONPATH": str(NEWER / "src"), "DATABASE_URL": database_url},
        cwd=NEWER,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await asyncio.wait_for(process.communicate(), SECONDS)
    if process.returncode:
        raise RuntimeError(f"the newer tree's upgrade failed: {out.decode()} {said.decode()}")
    return migrations.head()


migrations.upgrade = upgrade


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is about the older schema itself, and say why."""
    for item in items:
        name = item.name.partition("[")[0]
        reason = (
            ABOUT_THE_SCHEMA.get(item.name) or ABOUT_THE_SCHEMA.get(name) or FILES_ABOUT_THE_SCHEMA.get(item.path.name)
        )
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
