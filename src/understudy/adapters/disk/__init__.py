"""The proxy's own disk: the spool of the prediction log, and the policy snapshot."""
