"""The pages of the console: each view asks control by the viewer's identity, and makes a page of the answer."""
