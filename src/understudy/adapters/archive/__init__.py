"""Old months of the prediction log as Parquet: in a folder or on S3, and queries over them."""
