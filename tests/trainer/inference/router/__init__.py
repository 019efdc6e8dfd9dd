"""The router before several engines: choice, verification, and discovery of replicas."""
