"""Loading versions into model servers: the server's control, the stage of artifacts, and what is recorded of both."""
