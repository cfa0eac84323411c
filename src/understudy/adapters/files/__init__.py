"""Tables that people bring: outcomes and training data, as CSV or Parquet."""
