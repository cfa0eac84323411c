"""Work beside the requests of any process: tasks, threads, and what the log says of an outage."""
