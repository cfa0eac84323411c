"""``python -m understudy.entrypoints.cli`` is the ``understudy`` command."""

from understudy.entrypoints.cli.start import main

if __name__ == "__main__":
    main()
