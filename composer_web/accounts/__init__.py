"""Users, projects and permissions: sign-in and second factors, API tokens, roles, invitations, the audit log.

Every request and task acts inside a project (`permissions.py`); rows belong to one (`scoping.py`).
"""
