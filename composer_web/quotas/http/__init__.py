"""Page and API of quotas."""
