"""The form and API that start a run: configuration as a form and as text, presets, templates, sweeps, estimates."""
