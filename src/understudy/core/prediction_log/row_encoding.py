"""Encodes rows for the spool: their records, and their lines of COPY text."""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeAlias

import numpy as np
import orjson

from understudy.core.prediction_log.analysis_hash import ANALYSIS_HASH
from understudy.core.prediction_log.row import PredictionRow, Status
from understudy.core.prediction_log.row_record import REASONS, ROLES, STATUSES
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason
from understudy.errors import DeadlineExceeded

_NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NO_SCORE = float("nan")
_pack_shared = Struct("<qqqqBB").pack
_pack_flags = Struct("<BBB").pack
_pack_own = Struct("<q3s8sdqqBB").pack


_Facts: TypeAlias = tuple[int, int, Role, Reason, int, int | None, bool, Status, str | None]


class _Shared(NamedTuple):
    """What the calls of one version in one role write alike, made once: columns, with the tabs around them."""

    versions: str
    choice: str
    rules: str
    """Those of the policy, and how the call ended."""
    record: bytes
    """The beginning of the record."""
    flags: bytes


def encode_rows(rows: Iterable[PredictionRow]) -> tuple[list[bytes], list[str]]:
    """Return rows' records and their lines, each line with its line feed.

    ``latency_ms`` is ``latency_us`` cut to whole milliseconds. What is not Unicode in a prediction becomes U+FFFD;
    lone surrogates are left for :func:`encode_text`.
    """
    records, lines = [], []
    known = at = None
    for row in rows:
        (
            prediction_id, predicted_at, model_version_id, assigned_version_id, entity_id, input_hash, prediction,
            score, latency_us, role, reason, bucket, policy_generation, rollout_id, cache_hit, status, error_code,
            defaulted, deadline_us, slices, inputs, is_drawn,
        ) = row  # fmt: skip
        facts = (
            model_version_id, assigned_version_id, role, reason, policy_generation, rollout_id, cache_hit, status,
            error_code,
        )  # fmt: skip
        if facts != known:  # rows that are written together mostly have them in common
            known, (versions, choice, rules, record, flags) = facts, _shared(facts)
        if predicted_at != at:
            at, (second, moment) = predicted_at, _moment(predicted_at)
        hasher = ANALYSIS_HASH.copy()  # as analysis_digest() does
        hasher.update(entity_id.encode("utf-8", "replace"))
        own = _pack_own(
            second, flags, hasher.digest(), _NO_SCORE if score is None else score, latency_us, deadline_us or 0,
            slices is not None, is_drawn,
        )  # fmt: skip
        records.append(record + own)
        answer = prediction.decode("utf-8", "replace")
        # One search for all four: escaping each separately would cost more than the rest of this function.
        text = f"{prediction_id}{entity_id}{input_hash}{answer}"
        if "\\" in text or "\t" in text or "\n" in text or "\r" in text:
            prediction_id, entity_id, input_hash, answer = map(_escape, (prediction_id, entity_id, input_hash, answer))
        is_plain = inputs is None and slices is None and deadline_us is None and not defaulted
        last = "\\N\t\\N\t\\N\t\\N\n" if is_plain else _last_columns(defaulted, deadline_us, slices, inputs)
        lines.append(
            f"{prediction_id}\t{moment}{versions}{entity_id}\t{input_hash}\t{answer}\t"
            f"{_NULL if score is None else score!s}\t{latency_us // 1000}\t{latency_us}{choice}{bucket}{rules}{last}"
        )
    return records, lines


def encode_text(lines: Iterable[str]) -> bytes:
    """Return lines as COPY text; lone surrogates become ``?``, because logging must never fail the request."""
    return "".join(lines).encode("utf-8", "replace")


def encode_line(row: PredictionRow) -> bytes:
    """Return a row's line of COPY text."""
    return encode_text(encode_rows((row,))[1])


@lru_cache(maxsize=4_096)
def _shared(facts: _Facts) -> _Shared:
    (
        model_version_id,
        assigned_version_id,
        role,
        reason,
        policy_generation,
        rollout_id,
        cache_hit,
        status,
        error_code,
    ) = facts
    ids = (model_version_id, assigned_version_id, policy_generation, rollout_id or 0)
    return _Shared(
        f"\t{model_version_id}\t{assigned_version_id}\t",
        f"\t{role.value}\t{reason.value}\t",
        f"\t{policy_generation}\t{_NULL if rollout_id is None else rollout_id}\t{'t' if cache_hit else 'f'}"
        f"\t{status.value}\t{_NULL if error_code is None else _escape(error_code)}\t",
        _pack_shared(*ids, ROLES.index(role), REASONS.index(reason)),
        _pack_flags(STATUSES.index(status), cache_hit, error_code == DeadlineExceeded.code),
    )


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)


def _last_columns(
    defaulted: tuple[str, ...], deadline_us: int | None, slices: bytes | None, inputs: bytes | None
) -> str:
    names = _defaulted_text(defaulted) if defaulted else _NULL
    deadline = _NULL if deadline_us is None else deadline_us
    slices_text = _NULL if slices is None else _slices_text(slices)
    inputs_text = _NULL if inputs is None else _escape(inputs.decode(errors="replace"))
    return f"{names}\t{deadline}\t{slices_text}\t{inputs_text}\n"


@lru_cache(maxsize=256)
def _defaulted_text(names: tuple[str, ...]) -> str:
    return _escape(orjson.dumps(names).decode())


@lru_cache(maxsize=1_024)
def _slices_text(slices: bytes) -> str:
    return _escape(slices.decode(errors="replace"))


@lru_cache(maxsize=8)
def _moment(predicted_at: float) -> tuple[int, str]:
    """Return the second and the text of a time, which rows that are written together share."""
    second, microsecond = divmod(round(predicted_at * 1_000_000), 1_000_000)
    return second, f"{_utc_text(second)}.{microsecond:06d}+00"


@lru_cache(maxsize=8)
def _utc_text(second: int) -> str:
    return str(np.datetime64(second, "s"))
