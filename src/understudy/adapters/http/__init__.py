"""HTTP clients: alert receivers, and a proxy asked by the command line."""
