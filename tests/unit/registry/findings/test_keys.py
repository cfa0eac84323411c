from datetime import UTC, datetime, timedelta

from understudy.ports.registry.registry import KeyRecord
from understudy.registry.findings.finding import State
from understudy.registry.findings.keys import judge_keys

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def a_key(key_id: str, days: float | None, *, is_revoked: bool = False) -> KeyRecord:
    until = None if days is None else NOW + timedelta(days=days)
    return KeyRecord(
        key_id, ("read", "predict:visits"), "CI", NOW, "dana", NOW if is_revoked else None, expires_at=until
    )


def test_a_key_is_named_from_a_week_before_its_end_to_a_week_after_it():
    keys = [a_key("later", 8), a_key("soon", 6), a_key("over", -1), a_key("old", -8), a_key("good", None)]

    found = judge_keys([*keys, a_key("revoked", 2, is_revoked=True)], NOW)

    assert [one.name for one in found] == ["key over", "key soon"]
    assert [one.state for one in found] == [State.WARNING, State.WARNING]
    assert found[0].what == "expired on 2026-11-19 12:00Z (CI)"
    assert found[1].what == "expires on 2026-11-26 12:00Z (CI)"
    assert "understudy key create --scope read --scope predict:visits --expires 30d" in found[1].next_step
