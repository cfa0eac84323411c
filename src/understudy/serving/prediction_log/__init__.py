"""Rows of the prediction log: group commit to the spool, and the shipper to Postgres."""
