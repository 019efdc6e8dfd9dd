# Replaces pymongo's client before any module of the tests takes it by name.
# mypy: ignore-errors
import mongomock

mongomock.patch(on_new="create").start()
