"""Who did what to which record, when, with which trace: written beside the work, never in its way."""
