"""Training of a run on a worker: claims, the trainer process, its stages, and its bridge to rollouts."""
