"""Tasks, the sandboxes they run in, the agent's harness, and grading. Needs neither Django nor torch.

From the bottom up; each imports only what stands before it (`pyproject.toml` has the contract):

backends/      isolation (namespaces, Docker)
network/       what a sandbox may reach
harness/       the tools and prompts of an agent session
repositories/  where checkouts come from
tasks/         task specifications, environments, the procedural family
mutation/      mutation operators on Python source
grading/       verdicts that the work under test cannot influence, controls, the auditor
packages/      environments of pinned packages
formats/       other projects' formats of tasks and trajectories
fidelity/      whether a sandbox can be told from a user's machine
install/       repositories into environments
generators/    tasks from packages
"""
