"""What drives epochs: Spark, or one local process. Both run the same lanes and commit through the same ledger."""
