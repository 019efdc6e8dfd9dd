"""Tasks and trajectories in other tools' formats, in and out."""
