"""Discovery: leads each data plane from table to table, and tells control how far they are."""
