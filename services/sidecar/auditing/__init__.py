"""The audit trail: the actor, action, record, time and trace, written beside the work without delaying it."""
