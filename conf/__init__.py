"""The configuration tree: one YAML per option, one folder per group."""
