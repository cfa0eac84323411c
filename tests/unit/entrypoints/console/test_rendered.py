from functools import partial

from understudy.entrypoints.console import rendered
from understudy.entrypoints.console.rendered import Rendered


def test_what_was_made_is_not_made_again_until_it_is_forgotten(monkeypatch):
    monkeypatch.setattr(rendered, "MAX_KEPT", 2)
    made: list[str] = []
    kept: Rendered[str] = Rendered()

    def make(name: str) -> str:
        made.append(name)
        return name.upper()

    def of(name: str) -> str:
        return kept.of(name, partial(make, name))

    found = [of(name) for name in ("a", "a", "b", "c", "c", "a")]

    assert found == ["A", "A", "B", "C", "C", "A"]
    assert made == ["a", "b", "c", "a"]
