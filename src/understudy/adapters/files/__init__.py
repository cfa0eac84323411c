"""Files of outcomes and training data, as CSV or Parquet."""
