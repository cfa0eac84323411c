"""Old months of the prediction log: out of Postgres, into files that are read as one with what is left."""
