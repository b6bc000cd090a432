"""The Spark jobs. Jobs import Spark; settings, positions and this package's command do not."""
