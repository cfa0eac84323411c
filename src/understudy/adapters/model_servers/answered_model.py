"""Which model and version an Open Inference Protocol answer may be of: those that were asked for."""

import structlog

from understudy.adapters._proto.methods import OIP_SERVICE_OF_TORCHSERVE
from understudy.core.routing.policy import ModelVersion
from understudy.errors import BackendUnavailable, BadAnswer

ANY_MODEL = "*"
MAX_LOGGED_CHARACTERS = 64
"""Of a name that a server gave: it may be as long as an answer."""
MAX_NUMBER_CHARACTERS = 20
"""Of a version that is compared as a whole number: the sign and the digits of 64 bits."""

_log = structlog.get_logger(__name__)


class AskedModel:
    """The name, and the version if one was asked for, that a model server's answers must carry where they carry any.

    An endpoint may lead to another model: its address was given to another pod, or a mesh's table is wrong. Callers
    would get that model's numbers. What the server called the model is logged once, and callers are not told it: it
    may be a model of others.
    """

    def __init__(self, name: str, version: str | None) -> None:
        self._name = name
        self._version = version
        self._is_logged = False

    def require(self, name: str, version: str) -> None:
        """Refuse an answer of another model or version; an empty name or version says nothing.

        Raises:
            BadAnswer: If the answer is of another one.
        """
        if name != self._name and name:
            raise self._refusal("model", self._name, name)
        if self._version is not None and version != self._version and version and not self._is_same_number(version):
            raise self._refusal("version", self._version, version)

    def _is_same_number(self, answered: str) -> bool:
        """Whether both are one whole number: Triton says 7 where 007 was asked for, and for -1 which one is latest."""
        number, wanted = _number_of(answered), _number_of(self._version or "")
        return number is not None and wanted is not None and (number == wanted or wanted <= 0)

    def _refusal(self, what: str, asked: str, answered: str) -> BadAnswer:
        if not self._is_logged:
            self._is_logged = True
            next_step = "Correct the endpoint, or say in backend.answers_as what the server calls the model."
            found = answered[:MAX_LOGGED_CHARACTERS]
            _log.warning(f"model_answer.of_another_{what}", asked=asked, answered=found, next_step=next_step)
        return BadAnswer(f"the answer is of another {what} than {asked!r}, which was asked for")


def asked_model_of(version: ModelVersion, service_path: str) -> AskedModel | None:
    """Return what a version's answers must be of; ``None``: of any model.

    ``answers_as`` among the ``backend`` settings names the model where the server's answers do so differently, as
    behind a mesh (Seldon Core 2 answers ``iris_1`` for ``iris``); ``*`` takes answers of any model and version. That is
    the default at TorchServe, where the handler writes the names itself.

    Raises:
        BackendUnavailable: If ``answers_as`` is not text.
    """
    usual = ANY_MODEL if service_path == OIP_SERVICE_OF_TORCHSERVE else version.server_model_name
    name = version.backend.get("answers_as", usual)
    if not isinstance(name, str) or not name:
        raise BackendUnavailable("backend.answers_as must be the model's name in the server's answers, or \"*\"")
    return None if name == ANY_MODEL else AskedModel(name, version.server_version)


def _number_of(version: str) -> int | None:
    is_number = len(version) <= MAX_NUMBER_CHARACTERS and version.removeprefix("-").isdecimal()
    return int(version) if is_number else None
