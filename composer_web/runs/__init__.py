"""Runs: configuration, launch, the bridge to the trainer process, metrics, charts, sweeps and templates."""
