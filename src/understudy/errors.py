"""Every error Understudy raises, on one page.

UnderstudyError
├── RequestError                what the caller sent cannot be served
│   ├── MalformedBody      E100 the body is not acceptable JSON (names the position)
│   ├── InputInvalid       E101 the inputs do not match the version's schema (all violations)
│   ├── EntityIdInvalid    E102 no entity id, an empty one, or one over 255 characters
│   ├── BodyTooLarge       E103 more than the permitted number of bytes
│   ├── HeaderInvalid      E104 a header that Understudy honours has an unusable value
│   ├── BatchInvalid       E105 the batch is empty, too long or not a list, or has unusable entries
│   ├── QueryInvalid       E106 a query parameter has an unusable value
│   ├── RequestTimedOut    E107 the body did not arrive in time
│   ├── BodyInvalid        E108 fields of a body are unknown, missing or unusable (all violations)
│   ├── NotRankable        E109 the version cannot rank treatments (says what to register)
│   ├── CrossSiteRequest   E110 a web page of another site sent the request from a browser
│   ├── NotOffered         E111 the protocol has this, and the proxy does not offer it
│   ├── UnknownModel       E201 the model has no serving policy
│   ├── UnknownVersion     E202 the model has no such version
│   ├── UnknownRoute       E404 no such path
│   ├── MethodNotAllowed   E405 the path does not answer this method
│   ├── HostUnknown        E421 the Host header has a name that the proxy is not called by
│   ├── GenerationNotNamed E428 a change of a policy came without If-Match, so without the generation that it changes
│   ├── Unauthenticated    E401 no key or token, or one that is unknown, revoked or not to be believed
│   ├── QuotaExceeded      E429 the key, or its tenant, is over its rate limit (says when to retry)
│   ├── ScopeMissing       E403 the key lacks the scope
│   ├── TooManyLogins      E600 too many wrong keys were tried at the console's login (says when to retry)
│   ├── FormOfAnotherSession E601 a form of the console has not the token of the session that sends it
│   └── ActNotConfirmed    E602 an act of the console lacks the reason or the name that it asks for
├── ServingError                the request is good, something behind the proxy is not
│   ├── BadAnswer          E502 the model server gave an unusable answer
│   ├── BackendUnavailable E503 no replica of the version answers
│   │   └── VersionUnloaded E509 agents have the version loaded at no model server now (says when to retry)
│   ├── DeadlineExceeded   E504 the deadline passed (names the stage)
│   ├── FeaturesUnavailable E505 required features cannot be read
│   ├── PolicyNotLoaded    E506 no policy has been read yet
│   ├── Overloaded         E507 load shedding: too much work is waiting
│   ├── NotLogged          E508 the answer's log row cannot be written, and no answer leaves without it
│   ├── TokenKeysAway      E517 the keys of a token's issuer are not there, so nothing tells whether it is good
│   └── InternalFault      E500 a defect of Understudy itself
└── RegistryError               the registry cannot do what an engineer asked
    ├── PolicyRefused      E203 the database refused the change (says why and what to do)
    ├── SchemaInvalid      E204 an input or output schema cannot be compiled
    ├── AlreadyRegistered  E205 the version exists
    ├── NotRegistered      E206 the model or version does not exist
    ├── VersionNotReady    E207 the version's servers do not answer, or it needs inputs that callers do not send
    ├── ArchiveDiffers     E208 archived files are not what was written, or not what the log holds
    ├── ArchiveBusy        E209 another run archives or erases, or a long transaction on the log is in the way
    ├── DataWouldBeLost    E210 the older schema has no place for what the database holds
    ├── MigrationBlocked   E211 another transaction holds a lock that a migration needs (names it)
    ├── ArtifactDiffers    E212 an artifact is not what was registered, or not what was fetched first
    ├── ArtifactUnreachable E213 an artifact cannot be read, is too large, or is none that may be read
    ├── NothingFits        E214 the model server has no room for the version (has the figures)
    ├── ServerNotManageable E215 the model server's control does not answer, is off, or is another kind's
    ├── NotValidated       E216 a loaded version does not answer its cases as expected, or not hard calls or load
    ├── LoadRefused        E217 the model server cannot load or drop the version
    ├── ArtifactForbidden  E218 the store of an artifact refuses the login, or wants one
    ├── ArtifactNotTaken   E219 an artifact holds what none may, or is of a kind that is not read
    ├── SchemaNotTold      E220 a model server or a file does not tell all that a schema must have (says what)
    ├── ModelContradicts   E221 a model, or its server, has other tensors than the version's schemas say
    ├── VersionInUse       E222 a version is not replaced: it was deployed or called, or an agent has it
    ├── PolicyFileInvalid  E223 files of policies cannot be applied (all problems with line and column)
    │   └── PolicyContradicted E224 others changed what a file says, since it was last applied
    ├── DatabaseNeeded     E225 the command has no way over HTTP: it works on the database
    ├── DeclaredOtherwise  E226 the open test was declared with something else than what is asked
    ├── NotDeclarable      E227 no test can be declared yet: nothing is known to plan it with
    ├── SourceAway         E229 a registry that is followed does not answer, or not as one
    ├── ServerTaken        E230 the model server has an agent of another name (names it)
    ├── GenerationMoved    E409 another actor changed the policy first
    ├── RegistryUnavailable E510 Postgres cannot be reached
    │   ├── LoginNotAllowed E514 Postgres refuses the login, or the login lacks a right
    │   ├── ControlPlaneAway E516 the proxy that a context names does not answer
    │   └── LakeUnavailable E515 the lake's table, its files or its catalogue cannot be used
    ├── MigrationNeeded    E511 the database's schema, or a declared test in it, is not one this code reads
    ├── ArchiveUnavailable E513 the folder or bucket of archived files cannot be used
    └── LeadershipLost     E512 another monitor leads, or may: the fencing token let nothing be written

HTTP statuses and gRPC codes are not here: the entry points own those tables.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, Self


class Violation(NamedTuple):
    """One thing wrong with one place of a request; ``pointer`` is a JSON pointer (RFC 6901)."""

    pointer: str
    detail: str


MAX_VIOLATIONS = 1_000
"""Violations that the answer to one request names."""


class UnderstudyError(Exception):
    """Base of all errors: a stable code, a title, what happened (``detail``), and what to do next (``hint``)."""

    code: ClassVar[str]
    title: ClassVar[str]
    hint: ClassVar[str]
    retry_after_seconds: int | None = None
    ends_connection = False
    """Whether the rest of the request is not read, so that nothing can follow it on its connection."""

    def __init__(self, detail: str = "", *, hint: str | None = None) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.next_step = hint or self.hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a process pool hand the error on as it is: leaves have constructors of their own."""
        return _unpickled, (type(self), *self.args), self.__dict__

    def as_value(self) -> Self:
        """Return the error to be passed on as a value: without its traceback, cause and context.

        A traceback's frames hold the body and all that was parsed from it. A frame that holds the error in turn is a
        reference cycle, which only the garbage collector frees.
        """
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


def _unpickled(kind: type[UnderstudyError], *args: Any) -> UnderstudyError:
    return kind.__new__(kind, *args)


class RequestError(UnderstudyError):
    """The caller's request cannot be served as it is."""

    def __init__(self, detail: str = "", violations: tuple[Violation, ...] = (), *, hint: str | None = None) -> None:
        super().__init__(detail, hint=hint)
        self.violations = violations

    @classmethod
    def naming(cls, *violations: Violation) -> Self:
        """Return the error with the places that are wrong, the first :data:`MAX_VIOLATIONS` of them."""
        shown = violations[:MAX_VIOLATIONS]
        more = " or more" if len(violations) >= MAX_VIOLATIONS else ""
        return cls(f"{len(shown):,} problem{'s' if len(shown) > 1 else ''}{more}", shown)


class MalformedBody(RequestError):
    code = "E100"
    title = "The body is not acceptable JSON"
    hint = "Send one JSON object in UTF-8; the detail names the position of the first problem."


class InputInvalid(RequestError):
    code = "E101"
    title = "The inputs do not match the model version"
    hint = "Correct each place that errors[] names; GET /v1/models/{model} has an example request that works."


class EntityIdInvalid(InputInvalid):
    code = "E102"
    title = "The request has no usable entity id"
    hint = 'Send "entity_id" as a string of 1 to 255 characters: its hash chooses champion or challenger.'


class BodyTooLarge(RequestError):
    code = "E103"
    title = "The body is too large"
    hint = "Send a smaller body, or split a batch into several."


class HeaderInvalid(RequestError):
    code = "E104"
    title = "A header has an unusable value"
    hint = "Correct the header that the detail names, or leave it out."


class BatchInvalid(RequestError):
    code = "E105"
    title = "The batch cannot be read"
    hint = 'Send {"entities": [...]} with 1 to 256 predict requests.'


class QueryInvalid(InputInvalid):
    code = "E106"
    title = "A query parameter has an unusable value"
    hint = "Correct each parameter that errors[] names; GET /docs shows their permitted values."


class RequestTimedOut(RequestError):
    code = "E107"
    title = "The request did not arrive in time"
    ends_connection = True
    hint = "Send the whole body at once; the proxy waits UNDERSTUDY_RECEIVE_SECONDS for it."


class BodyInvalid(InputInvalid):
    code = "E108"
    title = "Fields of the body cannot be used"
    hint = "Correct each place that errors[] names; nothing was changed."


class NotRankable(InputInvalid):
    code = "E109"
    title = "The model version cannot rank treatments"
    hint = (
        'Register a version whose input_schema has features with "per": "treatment" and whose output is one score: '
        "docs/reference/schema.md has an example."
    )


class CrossSiteRequest(RequestError):
    code = "E110"
    title = "A web page of another site sent this request"
    hint = "Send the body as application/json, without an Origin header; or have the proxy ask for keys."


class NotOffered(RequestError):
    code = "E111"
    title = "The proxy does not offer this part of the protocol"
    hint = "Leave it out; docs/reference/dialects.md says what is offered of each protocol."


class UnknownModel(RequestError):
    code = "E201"
    title = "No such model"
    hint = "GET /v1/models lists the served models; a model is served once it has a row in ServingPolicy."


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
    hint = "The Allow header names the methods that it answers."


class HostUnknown(RequestError):
    code = "E421"
    title = "The proxy is not called by this host's name"
    hint = "Call it as localhost or by its address; UNDERSTUDY_HOST_NAMES permits further names where no key is needed."


class GenerationNotNamed(RequestError):
    code = "E428"
    title = "The change names no generation of the policy"
    hint = "Send If-Match with the ETag of GET /v1/models/{model}/policy, so that no unseen change is overwritten."


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
    title = "The key is over its rate limit"
    hint = "Try again after Retry-After; understudy key create sets a key's limits."

    def __init__(self, detail: str = "", *, hint: str | None = None, retry_after_seconds: int = 1) -> None:
        super().__init__(detail, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class TooManyLogins(RequestError):
    code = "E600"
    title = "Too many wrong keys were tried"
    hint = "Try again after Retry-After; the console counts tries by address and by key id."

    def __init__(self, detail: str = "", *, hint: str | None = None, retry_after_seconds: int = 60) -> None:
        super().__init__(detail, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class FormOfAnotherSession(RequestError):
    code = "E601"
    title = "The form is not of this session"
    hint = "Nothing was changed. Open the page again and send its form; a sign-in since then makes old forms void."


class ActNotConfirmed(RequestError):
    code = "E602"
    field = ""
    """The one that is missing or wrong, where its form can be shown again with it; empty: the form is no whole one."""
    title = "The act was not confirmed"
    hint = "Nothing was changed. Fill in what the detail names."


class ServingError(UnderstudyError):
    """The request is good; something behind the proxy is not."""

    said = ""
    """The model server's own message. It may quote inputs: an engineer may see it for made-up ones, callers and the log
    never do."""


class BadAnswer(ServingError):
    code = "E502"
    title = "The model server gave an unusable answer"
    hint = (
        "Look at the model server and at the version's input_schema and output_schema; understudy version check calls "
        "it and quotes what it says. Nothing was used or cached."
    )


class BackendUnavailable(ServingError):
    code = "E503"
    title = "No replica of the model version answers"
    hint = "Try again after Retry-After; understudy doctor shows which model server is down."

    def __init__(self, detail: str = "", *, hint: str | None = None, retry_after_seconds: int = 1) -> None:
        super().__init__(detail, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class VersionUnloaded(BackendUnavailable):
    code = "E509"
    title = "The version is loaded at no model server"
    hint = (
        "Try again after Retry-After: agents load what is called by its name, unless a person had it unloaded. "
        "understudy version load does it too, and understudy version show says how far it is."
    )

    def __init__(self, detail: str = "", *, hint: str | None = None, retry_after_seconds: int = 10) -> None:
        super().__init__(detail, hint=hint, retry_after_seconds=retry_after_seconds)


class DeadlineExceeded(ServingError):
    code = "E504"
    title = "The deadline passed"
    hint = "Allow more time with x-request-timeout-ms, or find out why the stage that the detail names is slow."

    def __init__(self, stage: str, budget_seconds: float | None = None) -> None:
        allowed = "" if budget_seconds is None else f"{budget_seconds * 1000:.0f} ms were allowed; "
        super().__init__(f"{allowed}time ran out in stage {stage!r}")
        self.stage = stage
        self.budget_seconds = budget_seconds


class FeaturesUnavailable(ServingError):
    code = "E505"
    title = "Required features cannot be read"
    hint = "Send the features in the request, give them defaults in input_schema, or repair the feature store."
    retry_after_seconds = 1


class PolicyNotLoaded(ServingError):
    code = "E506"
    title = "No serving policy has been read yet"
    hint = "The proxy is starting and waits for Postgres; /readyz is 200 once it can answer."
    retry_after_seconds = 1


class TokenKeysAway(ServingError):
    code = "E517"
    title = "The keys of the token's issuer are not there"
    hint = "Try again in a moment; if it goes on, the proxy's log says why it cannot fetch them. Keys work meanwhile."
    retry_after_seconds = 2


class Overloaded(ServingError):
    code = "E507"
    title = "Too much work is waiting"
    hint = "Try again after Retry-After, or add a proxy."
    retry_after_seconds = 1

    def __init__(self, detail: str = "", *, hint: str | None = None, ends_connection: bool = False) -> None:
        super().__init__(detail, hint=hint)
        self.ends_connection = ends_connection


class NotLogged(ServingError):
    code = "E508"
    title = "The prediction log takes no row now"
    hint = (
        "Try again after Retry-After. The disk under the proxy's spool is full or fails, and UNDERSTUDY_SPOOL_FULL is "
        "refuse: docs/runbooks/PredictionLogDropping.md."
    )
    retry_after_seconds = 1


class InternalFault(ServingError):
    code = "E500"
    title = "Understudy failed to handle the request"
    hint = (
        "This is a defect of Understudy: report it with the x-request-id; the proxy's log has the cause under that id."
    )


class RegistryError(UnderstudyError):
    """The registry cannot do what an engineer asked."""


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
    hint = (
        "Register it under the next name, or correct one that never served: --replace. A model server of this one is "
        "added or taken away by understudy version add-endpoint and remove-endpoint; version show has it."
    )


class NotRegistered(RegistryError):
    code = "E206"
    title = "No such model or version in the registry"
    hint = "understudy version list shows what is registered."

    def __init__(self, detail: str = "", *, hint: str | None = None, others: str = "") -> None:
        super().__init__(f"{detail}; there are: {others}" if others else detail, hint=hint)
        self.detail_without_others = detail or self.title
        """What a caller is told whose key may be for one model only: the names of other models are not for it."""


class VersionNotReady(RegistryError):
    code = "E207"
    title = "The version is not ready for callers"
    hint = "Check its model servers, and its row with understudy version show; nothing was started."


class ArchiveDiffers(RegistryError):
    code = "E208"
    title = "The archived files are missing or differ"
    hint = "Nothing more was dropped. Check the files that the detail names, then run understudy db archive again."


class ArchiveBusy(RegistryError):
    code = "E209"
    title = "Others use the log or its archive"
    hint = "Run understudy db archive again later: it goes on where this run stopped, and nothing is lost meanwhile."


class DataWouldBeLost(RegistryError):
    code = "E210"
    title = "The downgrade would delete data"
    hint = (
        "Nothing was changed. Keep the schema: the release before this one runs on it. To delete the named data "
        "nevertheless, after a backup: understudy db downgrade REVISION --lose-data."
    )


class MigrationBlocked(RegistryError):
    code = "E211"
    title = "Another transaction holds a lock that the migration needs"
    hint = "Let the open transactions end, then run the command again: it goes on where it stopped."
    retry_after_seconds = 5


class ArtifactDiffers(RegistryError):
    code = "E212"
    title = "The artifact is not what was registered"
    hint = (
        "Put the registered artifact back, or register this one as another version; then understudy version load MODEL "
        "VERSION tries again."
    )


class ArtifactUnreachable(RegistryError):
    code = "E213"
    title = "The artifact cannot be read"
    hint = "Name what the agent may read: below UNDERSTUDY_ARTIFACT_ROOT, or in a store of UNDERSTUDY_ARTIFACT_STORES."


class NothingFits(RegistryError):
    code = "E214"
    title = "The model server has no room for the version"
    hint = (
        "It is tried again once versions go: unload one, or give the server more memory and say so in"
        " UNDERSTUDY_SERVER_MEMORY_BYTES."
    )

    def __init__(self, detail: str = "", *, hint: str | None = None, expected_bytes: int | None = None) -> None:
        super().__init__(detail, hint=hint)
        self.expected_bytes = expected_bytes
        """What the version was expected to take; ``None``: it was measured."""


class ServerTaken(RegistryError):
    code = "E230"
    title = "The model server has an agent"
    hint = (
        "Run one agent for each model server: stop this one, or name its own server in UNDERSTUDY_SERVER_TARGET. One"
        " that takes the place of another acts half a minute after that ended."
    )


class ServerNotManageable(RegistryError):
    code = "E215"
    title = "The model server's control does not answer, or lets nothing be loaded"
    hint = (
        "Start the model server with its control on, as docs/how-to/load-models.md says for each kind, and name that "
        "address in UNDERSTUDY_SERVER_CONTROL."
    )


class NotValidated(RegistryError):
    code = "E216"
    title = "The version does not pass its validation"
    hint = "Register another version with the right model, cases or bounds: this artifact is pinned."


class LoadRefused(RegistryError):
    code = "E217"
    title = "The model server cannot load or drop the version"
    hint = (
        "Read the server's words and its log; once that is mended, understudy version load MODEL VERSION tries again."
    )


class ArtifactForbidden(RegistryError):
    code = "E218"
    title = "The store of the artifact refuses the login"
    hint = (
        "Give the process a login that may read it: AWS_ACCESS_KEY_ID and so on for s3://, UNDERSTUDY_OCI_LOGINS for "
        "oci://; then understudy version load MODEL VERSION tries again."
    )


class ArtifactNotTaken(RegistryError):
    code = "E219"
    title = "The artifact holds what none may, or is of a kind that is not read"
    hint = "Build it anew as docs/how-to/load-models.md says, and register that as another version."


class SchemaNotTold(RegistryError):
    code = "E220"
    title = "The model does not tell the whole schema"
    hint = "Give the options that the detail names, or describe the version yourself: --from FILE."


class ModelContradicts(RegistryError):
    code = "E221"
    title = "The model has other tensors than the schemas say"
    hint = (
        "Correct the schemas, or have the model say them: --from-server in place of --from FILE. With --no-ask no "
        "server is asked, and the version is registered as it is described."
    )


class VersionInUse(RegistryError):
    code = "E222"
    title = "The version is not replaced"
    hint = (
        "Register it under another name: a version that was called goes on meaning what it meant. Its model servers "
        "may change all the same: understudy version add-endpoint and remove-endpoint."
    )


class FileProblem(NamedTuple):
    """One thing wrong with one place of a file; lines and columns count from 1."""

    path: str
    line: int
    column: int
    detail: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.detail}"


class PolicyFileInvalid(RegistryError):
    code = "E223"
    title = "Files of policies cannot be applied"
    hint = "Mend the places that are named; nothing was changed."

    def __init__(self, detail: str = "", problems: tuple[FileProblem, ...] = (), *, hint: str | None = None) -> None:
        super().__init__(detail, hint=hint)
        self.problems = problems

    @classmethod
    def naming(cls, problems: Iterable[FileProblem]) -> Self:
        """Return the error with the places that are wrong, by files and lines, the first :data:`MAX_VIOLATIONS`."""
        found = sorted(problems)
        files = len({problem.path for problem in found})
        count = f"{len(found):,} problem{'' if len(found) == 1 else 's'}"
        return cls(f"{count} in {files:,} file{'' if files == 1 else 's'}", tuple(found[:MAX_VIOLATIONS]))


class PolicyContradicted(PolicyFileInvalid):
    code = "E224"
    title = "Others changed what the file says, and it would undo that"
    hint = (
        "Write into the file what holds now, or leave the field out; understudy apply --overwrite undoes their changes."
    )


class DatabaseNeeded(RegistryError):
    code = "E225"
    title = "This needs the database"
    hint = "Run it where DATABASE_URL names the database; docs/how-to/drive-from-ci.md lists what a key is enough for."


class DeclaredOtherwise(RegistryError):
    code = "E226"
    title = "The open test was declared with something else"
    hint = "Leave these options out: what a test is to see is fixed before it begins."


class NotDeclarable(RegistryError):
    code = "E227"
    title = "No test can be declared yet"
    hint = "A plan needs the champion's own figures: let outcomes come in first."


class SourceAway(RegistryError):
    code = "E229"
    title = "The registry of a source does not answer"
    hint = "Check the source's url and its login; what is registered here and loaded stays as it is meanwhile."


class GenerationMoved(RegistryError):
    code = "E409"
    title = "The policy changed since you read it"
    hint = "Read it again (understudy model show) and repeat the change."


class RegistryUnavailable(RegistryError):
    code = "E510"
    title = "The registry's Postgres cannot be reached"
    hint = "Check DATABASE_URL and the server; understudy doctor tries the connection."
    retry_after_seconds: int | None = 1


class LoginNotAllowed(RegistryUnavailable):
    """A proxy treats it as an outage of Postgres; an operator must grant a right or correct a password."""

    code = "E514"
    title = "The database login may not do this"
    hint = "Grant the login the role that this needs: docs/reference/sql.md, Roles, lists the rights of each."
    retry_after_seconds = None


class ControlPlaneAway(RegistryUnavailable):
    code = "E516"
    title = "The proxy does not answer"
    hint = "Start a proxy there, or name another one: understudy context show says where commands go, and by what."


class MigrationNeeded(RegistryError):
    code = "E511"
    title = "The database does not fit this version of Understudy"
    hint = "Run understudy db upgrade; if the database is newer, install the newer Understudy."

    def __init__(self, detail: str = "", *, hint: str | None = None, detail_for_callers: str = "") -> None:
        super().__init__(detail, hint=hint)
        self.detail_for_callers = detail_for_callers
        """What a caller over HTTP is told; other details have statements of the database, which are for the log."""


class ArchiveUnavailable(RegistryError):
    code = "E513"
    title = "The archive cannot be used"
    hint = "Check UNDERSTUDY_ARCHIVE_URL, its credentials and its free space; what was done so far is kept."
    retry_after_seconds = 1


class LakeUnavailable(RegistryUnavailable):
    """What reads the log treats it as an outage of Postgres, and tells callers no detail: that may name addresses."""

    code = "E515"
    title = "The log's table in the lake cannot be used"
    hint = (
        "Check UNDERSTUDY_LAKE_URL, its credentials and its free space; rows wait in the spool and files in the store."
    )
    retry_after_seconds = 1


class LeadershipLost(RegistryError):
    code = "E512"
    title = "This monitor is no longer the leader"
    hint = "Nothing to do: the leader goes on, and this monitor stands by."


def leaf_errors(base: type[UnderstudyError] = UnderstudyError) -> tuple[type[UnderstudyError], ...]:
    """Return every error that carries a code, in the order of the page."""
    found: list[type[UnderstudyError]] = []
    for child in base.__subclasses__():
        if "code" in vars(child):
            found.append(child)
        found.extend(leaf_errors(child))
    return tuple(found)
