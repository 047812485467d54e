"""The sections of a report, each from what was measured."""
