"""The consumer that users hold: options, joining, polling, dispatch, handlers."""
