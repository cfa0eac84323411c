"""What several commands share: options, rendering, errors, times and sessions with the stores."""
