"""Auto-install: from an unconfigured checkout to an environment whose tests run offline. docs/guides/repositories.md."""
