"""Every error Understudy raises, on one page.

UnderstudyError
├── RequestError                what the caller sent cannot be served
│   ├── MalformedBody      E100 the body is not acceptable JSON (says where)
│   ├── InputInvalid       E101 the inputs do not match the version's schema (all violations)
│   ├── EntityIdInvalid    E102 no entity id, an empty one, or one over 255 characters
│   ├── BodyTooLarge       E103 more than the permitted number of bytes
│   ├── HeaderInvalid      E104 a header that Understudy honours has an unusable value
│   ├── BatchInvalid       E105 the batch is empty, too long, not a list, or holds what cannot be used
│   ├── QueryInvalid       E106 a query parameter has an unusable value
│   ├── RequestTimedOut    E107 the body did not arrive in time
│   ├── BodyInvalid        E108 fields of a body are unknown, missing or unusable (all violations)
│   ├── NotRankable        E109 the version ranks no treatments (says what to register)
│   ├── UnknownModel       E201 no serving policy for this model
│   ├── UnknownVersion     E202 the model has no such version
│   ├── UnknownRoute       E404 no such path
│   ├── MethodNotAllowed   E405 the path does not answer this method
│   ├── GenerationNotNamed E428 a change of a policy does not say which generation it is of
│   ├── Unauthenticated    E401 no key, or one that is unknown or revoked
│   ├── QuotaExceeded      E429 the key, or its tenant, has used what it may (says when to come again)
│   └── ScopeMissing       E403 the key does not carry the scope
├── ServingError                the caller did nothing wrong
│   ├── BadAnswer          E502 the model server answered something unusable
│   ├── BackendUnavailable E503 no replica of the version answers
│   ├── DeadlineExceeded   E504 time ran out (says in which stage)
│   ├── FeaturesUnavailable E505 required features cannot be read
│   ├── PolicyNotLoaded    E506 no policy has been read yet
│   ├── Overloaded         E507 too much work is waiting
│   └── InternalFault      E500 a defect of Understudy itself
└── RegistryError               what an engineer asked of the registry
    ├── PolicyRefused      E203 the database refused the change (says why and what to do)
    ├── SchemaInvalid      E204 an input or output schema that cannot be compiled
    ├── AlreadyRegistered  E205 the version exists
    ├── NotRegistered      E206 the model or version does not exist
    ├── VersionNotReady    E207 the version does not answer as its callers would need it
    ├── ArchiveDiffers     E208 archived files are not what was written, or not what the log holds
    ├── ArchiveBusy        E209 somebody else archives, or reads the log for so long that nothing can be detached
    ├── DataWouldBeLost    E210 the older schema has no place for what the database holds
    ├── MigrationBlocked   E211 somebody holds a lock that a migration needs (says who)
    ├── GenerationMoved    E409 somebody else changed the policy first
    ├── RegistryUnavailable E510 Postgres cannot be reached
    │   └── LoginNotAllowed E514 Postgres answers, and refuses the login, or the login lacks a right
    ├── MigrationNeeded    E511 the database's schema is not the one this code needs
    ├── ArchiveUnavailable E513 the folder or bucket of archived files cannot be used
    └── LeadershipLost     E512 another monitor leads, or may: nothing was written

No HTTP status and no gRPC code lives here: the entry points own those tables.
"""

from typing import ClassVar, NamedTuple, Self


class Violation(NamedTuple):
    """One thing wrong with one place of a request; ``pointer`` is a JSON pointer (RFC 6901)."""

    pointer: str
    detail: str


class UnderstudyError(Exception):
    """Base of all errors: a stable code, a title, what happened, and what to do next."""

    code: ClassVar[str]
    title: ClassVar[str]
    hint: ClassVar[str]
    retry_after_seconds: int | None = None

    def __init__(self, detail: str = "", *, hint: str | None = None) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.next_step = hint or self.hint

    def as_value(self) -> Self:
        """Return the error to be passed on, not raised: without the frames that it came through, and what caused it.

        Frames hold a body and all that was made of it. One that comes to hold the error in turn is a circle, which only
        the garbage collector frees.
        """
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


class RequestError(UnderstudyError):
    """The caller's request cannot be served as it is."""

    violations: tuple[Violation, ...] = ()


class MalformedBody(RequestError):
    code = "E100"
    title = "The body is not acceptable JSON"
    hint = "Send one JSON object in UTF-8; the detail names the position of the first problem."


class InputInvalid(RequestError):
    code = "E101"
    title = "The inputs do not match the model version"
    hint = "Correct each place that errors[] names; GET /v1/models/{model} shows a request that works."

    def __init__(self, detail: str, violations: tuple[Violation, ...] = ()) -> None:
        super().__init__(detail)
        self.violations = violations


class EntityIdInvalid(InputInvalid):
    code = "E102"
    title = "The request has no usable entity id"
    hint = 'Send "entity_id" as a string of 1 to 255 characters: it decides who answers.'


class BodyTooLarge(RequestError):
    code = "E103"
    title = "The body is too large"
    hint = "Send less, or split a batch into several."


class HeaderInvalid(RequestError):
    code = "E104"
    title = "A header has an unusable value"
    hint = "Correct the header that the detail names, or leave it out."


class BatchInvalid(RequestError):
    code = "E105"
    title = "The batch cannot be read"
    hint = 'Send {"entities": [...]} with 1 to 256 predict requests.'

    def __init__(self, detail: str = "", violations: tuple[Violation, ...] = (), *, hint: str | None = None) -> None:
        super().__init__(detail, hint=hint)
        self.violations = violations


class QueryInvalid(InputInvalid):
    code = "E106"
    title = "A query parameter has an unusable value"
    hint = "Correct each parameter that errors[] names; GET /docs shows what they take."


class RequestTimedOut(RequestError):
    code = "E107"
    title = "The request did not arrive in time"
    hint = "Send the body at once; UNDERSTUDY_RECEIVE_SECONDS is how long the proxy waits for it."


class BodyInvalid(InputInvalid):
    code = "E108"
    title = "The body does not match"
    hint = "Correct each place that errors[] names; nothing was done."


class NotRankable(InputInvalid):
    code = "E109"
    title = "The model version ranks no treatments"
    hint = (
        'Register a version whose input_schema has features with "per": "treatment" and whose output is one score: '
        "docs/reference/schema.md has an example."
    )


class UnknownModel(RequestError):
    code = "E201"
    title = "No such model"
    hint = "GET /v1/models lists what is served; a model is served once it has a row in ServingPolicy."


class UnknownVersion(RequestError):
    code = "E202"
    title = "The model has no such version"
    hint = "GET /v1/models/{model} lists its versions."


class UnknownRoute(RequestError):
    code = "E404"
    title = "No such path"
    hint = "GET /docs shows every path."


class MethodNotAllowed(RequestError):
    code = "E405"
    title = "The path does not answer this method"
    hint = "The Allow header names the methods it does answer."


class GenerationNotNamed(RequestError):
    code = "E428"
    title = "The change does not say which generation it is of"
    hint = "Send If-Match with the ETag of GET /v1/models/{model}/policy: nobody's change is overwritten unseen."


class Unauthenticated(RequestError):
    code = "E401"
    title = "No usable key"
    hint = "Send 'Authorization: Bearer <id>.<secret>'; understudy key create makes one."


class ScopeMissing(RequestError):
    code = "E403"
    title = "The key does not permit this"
    hint = "Ask for a key with the scope that the detail names: understudy key create --scope …"


class QuotaExceeded(RequestError):
    code = "E429"
    title = "The key has used up what it may"
    hint = "Come again after Retry-After; understudy key create sets what a key may use."

    def __init__(self, detail: str = "", *, hint: str | None = None, retry_after_seconds: int = 1) -> None:
        super().__init__(detail, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class ServingError(UnderstudyError):
    """The request was good; something behind it was not."""

    said = ""
    """What the server said itself. It may quote inputs: for whoever made them up, never for callers or the log."""


class BadAnswer(ServingError):
    code = "E502"
    title = "The model server gave an unusable answer"
    hint = "Look at the model server and at the version's input_schema and output_schema; nothing was used or cached."


class BackendUnavailable(ServingError):
    code = "E503"
    title = "No replica of the model version answers"
    hint = "Try again after Retry-After; understudy doctor shows which model server is down."
    retry_after_seconds = 1


class DeadlineExceeded(ServingError):
    code = "E504"
    title = "The deadline passed"
    hint = "Allow more time with x-request-timeout-ms, or look at the stage that the detail names."

    def __init__(self, stage: str, budget_seconds: float | None = None) -> None:
        allowed = "" if budget_seconds is None else f"{budget_seconds * 1000:.0f} ms were allowed; "
        super().__init__(f"{allowed}time ran out in stage {stage!r}")
        self.stage = stage


class FeaturesUnavailable(ServingError):
    code = "E505"
    title = "Required features cannot be read"
    hint = "Send the features in the request, give them defaults in input_schema, or look at the feature store."
    retry_after_seconds = 1


class PolicyNotLoaded(ServingError):
    code = "E506"
    title = "No serving policy has been read yet"
    hint = "The proxy is starting and waits for Postgres; /readyz tells when it can answer."
    retry_after_seconds = 1


class Overloaded(ServingError):
    code = "E507"
    title = "Too much work is waiting"
    hint = "Try again after Retry-After, or add a proxy."
    retry_after_seconds = 1


class InternalFault(ServingError):
    code = "E500"
    title = "Understudy failed to handle the request"
    hint = (
        "This is a defect of Understudy: report it with the x-request-id; the proxy's log has the cause under that id."
    )


class RegistryError(UnderstudyError):
    """The registry cannot do what was asked."""


class PolicyRefused(RegistryError):
    code = "E203"
    title = "The database refused the change"
    hint = "The message names the column and a statement that helps."


class SchemaInvalid(RegistryError):
    code = "E204"
    title = "The schema cannot be used"
    hint = "docs/reference/schema.md has the fields of input_schema and output_schema, with examples."


class AlreadyRegistered(RegistryError):
    code = "E205"
    title = "The version is registered already"
    hint = "Versions do not change: register the next one, or look at it with understudy version show."


class NotRegistered(RegistryError):
    code = "E206"
    title = "No such model or version in the registry"
    hint = "understudy version list shows what is registered."


class VersionNotReady(RegistryError):
    code = "E207"
    title = "The version is not ready for callers"
    hint = "Look at its model servers and at its row with understudy version show; nothing was started."


class ArchiveDiffers(RegistryError):
    code = "E208"
    title = "The archive is not what it should be"
    hint = "Nothing more was dropped. Look at the files that the detail names, then run understudy db archive again."


class ArchiveBusy(RegistryError):
    code = "E209"
    title = "The log cannot be archived at this moment"
    hint = "Run understudy db archive again later: it goes on where this run stopped, and nothing is lost meanwhile."


class DataWouldBeLost(RegistryError):
    code = "E210"
    title = "Going back would delete data"
    hint = (
        "Nothing was changed. Keep the schema: the release before this one runs on it. To delete what is named all the "
        "same, after a backup: understudy db downgrade REVISION --lose-data."
    )


class MigrationBlocked(RegistryError):
    code = "E211"
    title = "Somebody holds a lock that the migration needs"
    hint = "Let the transactions that are open end, then run the command again: it goes on where it stopped."
    retry_after_seconds = 5


class GenerationMoved(RegistryError):
    code = "E409"
    title = "The policy changed since you read it"
    hint = "Look at it again (understudy model show) and repeat the change."


class RegistryUnavailable(RegistryError):
    code = "E510"
    title = "The registry's Postgres cannot be reached"
    hint = "Check DATABASE_URL and the server; understudy doctor shows what it sees."
    retry_after_seconds: int | None = 1


class LoginNotAllowed(RegistryUnavailable):
    """To whoever can do without Postgres for a while it is the same; to a person it is something else to mend."""

    code = "E514"
    title = "The database login may not do this"
    hint = "Grant the login the role that this needs: docs/reference/sql.md, Roles, has what each one may."
    retry_after_seconds = None


class MigrationNeeded(RegistryError):
    code = "E511"
    title = "The database's schema does not fit this version of Understudy"
    hint = "Run understudy db upgrade; if the database is newer, install the newer Understudy."


class ArchiveUnavailable(RegistryError):
    code = "E513"
    title = "The archive cannot be used"
    hint = "Check UNDERSTUDY_ARCHIVE_URL, its credentials and its space; what was done so far is kept."
    retry_after_seconds = 1


class LeadershipLost(RegistryError):
    code = "E512"
    title = "This monitor does not lead any more"
    hint = "Nothing to do: the monitor that leads goes on, and this one stands by."


def leaf_errors(base: type[UnderstudyError] = UnderstudyError) -> tuple[type[UnderstudyError], ...]:
    """Return every error that carries a code, in the order of the page."""
    found: list[type[UnderstudyError]] = []
    for child in base.__subclasses__():
        if "code" in vars(child):
            found.append(child)
        found.extend(leaf_errors(child))
    return tuple(found)
