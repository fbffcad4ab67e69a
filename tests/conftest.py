"""What every suite may use."""

from tests.s3 import careless_s3, proxy, s3

__all__ = ["careless_s3", "proxy", "s3"]
