"""The commands, one module each, with `add_arguments(parser)` and `run(options) -> exit code`."""
