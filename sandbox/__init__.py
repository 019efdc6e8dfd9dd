"""Tasks, the sandboxes they run in, the agent's harness, and grading. Needs neither Django nor torch.

backends/  isolation (namespaces, Docker)
grading/   verdicts that the work under test cannot influence
harness/   the tools and prompts of an agent session
install/   repositories into environments
network/   what a sandbox may reach
tasks/     task specifications, formats and generators
"""
