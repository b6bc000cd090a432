"""Members, their rollouts and canaries."""
