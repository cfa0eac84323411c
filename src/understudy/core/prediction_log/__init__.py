"""The row of the prediction log: its values, its form in the spool, its id, sampled inputs and the archive plan."""
