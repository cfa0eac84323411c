"""One module per revision, with its `upgrade` and its `downgrade`."""
