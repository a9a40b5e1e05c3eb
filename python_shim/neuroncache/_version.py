"""The version, apart so that it costs nothing to read."""

VERSION = "0.1.0"
