"""Studies: variants × seeds × stages, from a YAML file to a report."""
