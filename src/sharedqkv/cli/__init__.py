"""The commands, one module each, with `add_arguments(parser)` and `run(options) -> exit code`.

What loads torch is imported in `run`, so that help need not wait for it; mistakes that can be told without it are
told by `check(options)`, in modules that have one.
"""
