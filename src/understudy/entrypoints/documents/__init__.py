"""JSON documents for programs: the same from the command line and over HTTP."""
