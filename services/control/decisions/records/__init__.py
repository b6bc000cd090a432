"""Record rules: mirrors and content rules."""
