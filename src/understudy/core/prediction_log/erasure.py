"""Erasure of one entity, as values: the id that its rows get, the keys of rewritten files, and the counts of a run."""

import re
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from understudy.core.prediction_log.archive_plan import MAX_QUOTED_KEY
from understudy.errors import ArchiveDiffers

NO_HASH = " " * 64
"""What ``CHAR(64)`` holds for an empty text, and so ``COPY`` writes."""
_HEX_DIGITS = 32
_SHORT_ID = 4
_KEY = re.compile(r"(?P<stem>.+?)(-e\d+)?\.parquet")


def erased_name(salt: bytes, model_name: str) -> str:
    """Return the entity id that an erased entity's rows of one model get.

    One for all of them, because A/B tests and the sample-ratio test count entities; another one for each model and
    erasure. ``understudy_erased_name`` (migration 0021) is the same in SQL. The database deletes the salt when the
    erasure is finished; then nothing leads from an entity to its name.
    """
    return f"erased-{_digits(salt, f'entity:{model_name}')}"


def erased_prediction_id(salt: bytes, prediction_id: str) -> str:
    """Return the prediction id in place of one that callers know; a shadow's row keeps that of the call it copies."""
    return str(UUID(_digits(salt, f"prediction:{UUID(prediction_id)}")))


def replacing_key(key: str, erasure_id: int) -> str:
    """Return the name of the file that takes another's place; no two erasures give one file the same name.

    ``understudy_replacing_key`` (migration 0023) is the same in SQL.

    Raises:
        ArchiveDiffers: The key is not that of a file with rows. Understudy writes no such key.
    """
    return f"{_stem(key)}-e{erasure_id}.parquet"


def first_key(key: str) -> str:
    """Return the name that a file had before any erasure replaced it.

    Raises:
        ArchiveDiffers: As for :func:`replacing_key`.
    """
    return f"{_stem(key)}.parquet"


def _stem(key: str) -> str:
    found = _KEY.fullmatch(key)
    if found is None:
        raise ArchiveDiffers(f"{key[:MAX_QUOTED_KEY]!r} is no Parquet file of the archive")
    return found["stem"]


def names_entity(text: str, entity_id: str) -> bool:
    """Return whether a text has an entity's id in it, whatever its capitals.

    An id of up to four characters has to be a word of its own: such ones are in many words and numbers.
    ``understudy_names_entity`` (migration 0023) is the same in SQL.
    """
    words, name = text.lower(), entity_id.lower()
    if len(entity_id) > _SHORT_ID:
        return name in words
    return re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", words) is not None


class EntityRows(NamedTuple):
    """Where an entity is, in rows."""

    log_rows: int
    kept_rows: int
    """In tables of archived months that wait to be dropped."""
    outcomes: int
    dead_letters: int


class Erased(NamedTuple):
    """What an erasure has come to; counts add up over its runs."""

    log_rows: int
    kept_rows: int
    archived_rows: int
    files: int
    outcomes: int
    dead_letters: int
    lake_rows: int
    lake_files: int


def _digits(salt: bytes, text: str) -> str:
    return sha256(salt + text.encode()).hexdigest()[:_HEX_DIGITS]
