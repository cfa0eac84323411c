"""Models, versions, policies and their audit in Postgres."""
