"""The ``understudy`` script: it imports nothing before it can answer Ctrl-C, which comes at any moment."""


def main() -> None:
    """Run the command line of this process; while it is loaded, Ctrl-C ends it at once and without a traceback."""
    try:
        from understudy.entrypoints.cli.shared.startup.loading import begin_loading  # noqa: PLC0415 - nothing before this line

        begin_loading()
        from understudy.entrypoints.cli.main import main as run  # noqa: PLC0415 - as above

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # ExitCode.INTERRUPTED
