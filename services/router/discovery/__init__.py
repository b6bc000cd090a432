"""Discovery: leads each data plane from table to table, and reports the phase of each data plane to control."""
