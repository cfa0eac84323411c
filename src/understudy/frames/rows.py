"""Rows with named columns, as a data frame of either kind."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from understudy import DISTRIBUTION

if TYPE_CHECKING:  # whichever of them the caller has
    import pandas as pd
    import polars as pl


@dataclass(frozen=True, slots=True, repr=False)
class Rows:
    """What a reader returns. Moments are ``datetime`` in UTC, versions are named by their texts."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    is_complete: bool = True
    """Whether there are no more than these."""
    unseen_rows: int = 0
    """Of the log: rows of that time in archived months, which Postgres does not hold any more."""
    numbers: Collection[str] = ()
    """Columns that are numbers in a frame also where each row has ``None``."""
    times: Collection[str] = ()
    """The same of moments."""

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        more = "" if self.is_complete else " and there are more"
        return f"Rows({len(self.rows):,} rows{more}; columns {', '.join(self.columns)})"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a mapping of its columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_pandas(self) -> "pd.DataFrame":
        """Return a pandas data frame.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - not a dependency
        except ModuleNotFoundError as problem:
            raise _missing("pandas") from problem
        frame = pd.DataFrame.from_records(list(self.rows), columns=list(self.columns))
        kinds = {"float64": self.numbers, "datetime64[us, UTC]": self.times}
        empty = {name: kind for kind, names in kinds.items() for name in names if frame[name].isna().all()}
        return frame.astype(empty)

    def to_polars(self) -> "pl.DataFrame":
        """Return a polars data frame; a column's type is that of all of its values.

        Raises:
            ModuleNotFoundError: polars is not installed.
        """
        try:
            import polars as pl  # noqa: PLC0415 - not a dependency
        except ModuleNotFoundError as problem:
            raise _missing("polars") from problem
        frame = pl.DataFrame(list(self.rows), schema=list(self.columns), orient="row", infer_schema_length=None)
        kinds = {pl.Float64(): self.numbers, pl.Datetime("us", "UTC"): self.times}
        empty = [
            pl.col(name).cast(kind) for kind, names in kinds.items() for name in names if frame[name].dtype == pl.Null
        ]
        return frame.with_columns(empty)


def _missing(package: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(
        f"{package} is not installed: pip install {package}, or '{DISTRIBUTION}[frames]'", name=package
    )
