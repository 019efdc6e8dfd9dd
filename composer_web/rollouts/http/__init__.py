"""Pages and API of rollouts, groups, findings, forks and exports."""
