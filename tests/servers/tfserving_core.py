"""TensorFlow Serving's own rules for configurations and for the states of models, over any way to load one.

As its ``server_core.cc`` and ``file_system_storage_path_source.cc`` have them, without versions beside the configured
one. This runs in the tests' process, and in TensorFlow's venv with TensorFlow to load (``empty_tensorflow.py``).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import NamedTuple

START, LOADING, AVAILABLE, UNLOADING, END = 10, 20, 30, 40, 50
OK, UNKNOWN, INVALID_ARGUMENT = 0, 2, 3


class Said(NamedTuple):
    """A status: its code, by gRPC's numbers, and its words."""

    code: int = OK
    message: str = ""


WELL = Said()


class State(NamedTuple):
    """What a model has come to."""

    state: int
    said: Said = WELL
    event: int = 0
    """Counts all that happened: a configuration waits for what happens after it has come."""


@dataclass
class Core:
    """One server, from its start to its end.

    Args:
        load: Returns what serves the version in a folder; an exception's words are the model's error.
        poll_seconds: How often folders are looked at (``--file_system_poll_wait_seconds``).
        was_configured: Whether it was started with ``model_config_list {}``, and not with an empty file.
        refuses_empty: Whether it refuses a configuration without models.
    """

    load: Callable[[Path], object]
    poll_seconds: float = 1.0
    was_configured: bool = True
    refuses_empty: bool = False
    states: dict[str, State] = field(default_factory=dict)
    served: dict[str, object] = field(default_factory=dict)
    """What serves each available model."""
    configurations: list[Mapping[str, str]] = field(default_factory=list)
    """Those that were taken, in their order: folders by name."""
    _aspired: dict[str, Path] = field(default_factory=dict)
    """What is loaded, or was tried: it is not tried again before it was left out."""
    _configuration: Mapping[str, str] = field(default_factory=dict)
    _one_configuration: Lock = field(default_factory=Lock)
    """Held until all that is new in a configuration is loaded, or has failed."""
    _changed: Condition = field(default_factory=Condition)
    _stuck: set[str] = field(default_factory=set)
    """What was in a first configuration that failed: it stays aspired for good (tensorflow/serving#1565)."""
    _events: int = 0
    _has_ended: bool = False

    def start(self) -> None:
        """Begin to look at folders."""
        Thread(target=self._manage, daemon=True).start()

    def end(self) -> None:
        """End what waits, and look at folders no more."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def reload(self, models: Mapping[str, str]) -> Said:
        """Take a configuration; return once each new model of it is loaded, or has failed, however long that takes."""
        with self._one_configuration, self._changed:
            if not models and self.refuses_empty:
                return Said(INVALID_ARGUMENT, "a configuration without models is not taken")
            new, since = models.keys() - self._configuration.keys(), self._events
            self.configurations.append(models)
            self._configuration = models
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._has_ended or all(self._is_done(name, since) for name in new))
            failed = {name: self.states.get(name) for name in sorted(new) if self._state_of(name) != AVAILABLE}
            if failed and not self.was_configured:
                self._configuration = {}
                self._stuck |= new
                return _unavailable(failed)
            self.was_configured = True
            return _unavailable(failed) if failed else Said()

    def _state_of(self, name: str) -> int | None:
        return self.states[name].state if name in self.states else None

    def _is_done(self, name: str, since: int) -> bool:
        return self._state_of(name) in (AVAILABLE, END) and self.states[name].event > since

    def _manage(self) -> None:
        """Drop what is configured no more at once, and load what is new when folders are looked at."""
        looked_at = time.monotonic()
        while not self._has_ended:
            with self._changed:
                gone = self._aspired.keys() - self._configuration.keys() - self._stuck
                if not gone:
                    self._changed.wait(max(looked_at + self.poll_seconds - time.monotonic(), 0))
            for name in gone:
                self._drop(name)
            if time.monotonic() - looked_at >= self.poll_seconds:
                looked_at = time.monotonic()
                for name, folder in self._found():
                    self._load(name, folder)

    def _found(self) -> list[tuple[str, Path]]:
        """Return what is to be loaded; one folder that is not there keeps all others from being found."""
        with self._changed:
            configured = {name: Path(folder) for name, folder in self._configuration.items()}
            if not all(folder.exists() for folder in configured.values()):
                return []
            there = {name: folder / "1" for name, folder in configured.items() if (folder / "1").exists()}
            return [(name, folder) for name, folder in there.items() if name not in self._aspired]

    def _load(self, name: str, folder: Path) -> None:
        self._aspired[name] = folder
        self._note(name, START)
        self._note(name, LOADING)
        try:
            served = self.load(folder)
        except Exception as refused:  # noqa: BLE001 - whatever it is, it is the model's error
            self._note(name, END, Said(UNKNOWN, str(refused)))
        else:
            self.served[name] = served
            self._note(name, AVAILABLE)

    def _drop(self, name: str) -> None:
        del self._aspired[name]
        if self.served.pop(name, None) is not None:  # what has failed stays as it was
            self._note(name, UNLOADING)
            self._note(name, END)

    def _note(self, name: str, state: int, said: Said = WELL) -> None:
        with self._changed:
            self._events += 1
            self.states[name] = State(state, said, self._events)
            self._changed.notify_all()


def _unavailable(failed: Mapping[str, State | None]) -> Said:
    each = "".join(
        f"{{{{name: {name} version: 1}} due to error: {state.said.message if state else ''}}}, "
        for name, state in failed.items()
    )
    return Said(UNKNOWN, f"{len(failed)} model(s) did not become available: {{{each}}}")
