"""Recorded production sessions: rewards, exports, drafts of tasks, expiry, and the canary that they judge."""
