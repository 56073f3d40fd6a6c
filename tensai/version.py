"""The version of tensai."""

__version__ = "0.1.0"
