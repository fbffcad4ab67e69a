"""Kafka: connection options, topics, offsets, identities; the jars; the embedded broker. Knows no messages."""
