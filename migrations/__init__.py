"""Alembic migrations of control's database. `kafka-mesh migrate` runs them; `services/control/store/migrate.py`
configures them.
"""
