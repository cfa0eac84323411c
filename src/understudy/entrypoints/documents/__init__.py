"""What a program is told, as JSON: the same from the command line and over HTTP."""
