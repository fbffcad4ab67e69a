"""One Kafka partition, one lane: the loop that Spark, the local engine and the tests all call."""
