"""Rows of the prediction log: group commit to the spool."""
