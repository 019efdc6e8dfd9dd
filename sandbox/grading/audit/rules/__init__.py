"""Rules over trajectories, one file a family. `sandbox.grading.audit.registry` lists them."""
