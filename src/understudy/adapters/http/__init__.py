"""HTTP clients: alert receivers, and the command line's client of a proxy."""
