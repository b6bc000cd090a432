"""The console: pages about a mesh, over control's API."""
