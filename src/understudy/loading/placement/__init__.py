"""What the monitor that leads does about placements: which server is to have which version, and on how many."""
