"""Template tags of the frame around pages: recent runs, and the header and tabs of a run."""
