"""Commands about the validation of records."""
