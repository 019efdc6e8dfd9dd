"""Trajectories as people read them: stored in windows, as a transcript, through the lens, compared."""
