"""What only the namespaces backend has: cgroups, seccomp, ids of users, and what is left after a kill."""
