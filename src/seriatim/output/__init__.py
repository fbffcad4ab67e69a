"""Rows to typed Arrow columns to staged Parquet files. May write new files, never show them: that is the ledger's."""
